import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from zoo.pictures import Alignment, to_svg

SVG = "{http://www.w3.org/2000/svg}"
WEIGHTS = np.array([[0.9, 0.0, 0.1, 0.0], [0.004, 0.25, 0.006, 0.74], [0.0, 0.0, 0.0, 0.0]])  # T = 3, S = 4


@pytest.fixture
def alignment():
    return Alignment(["न", "\u0902", " ", "</s>"], ["1", "-", "</s>"], WEIGHTS)


def group(svg, name):
    return next(element for element in ElementTree.fromstring(svg).iter(f"{SVG}g") if element.get("class") == name)


def cells(svg):
    """Every cell as {(row, column): (ink, tooltip)}, read from its place in the drawing."""
    found = {}
    for rect in group(svg, "cells"):
        size = float(rect.get("width"))
        place = float(rect.get("y")) / size, float(rect.get("x")) / size
        found[place] = float(rect.get("fill-opacity")), rect.find(f"{SVG}title").text
    return found


def test_every_weight_above_the_threshold_is_at_its_row_and_column(alignment):
    drawn = cells(to_svg(alignment))
    expected = {(i, j): WEIGHTS[i, j] for i, j in zip(*np.nonzero(WEIGHTS >= 0.005), strict=True)}
    assert drawn.keys() == expected.keys()
    assert {place: ink for place, (ink, _) in drawn.items()} == pytest.approx(expected, abs=5e-4)
    assert (1, 0) not in drawn and (1, 2) in drawn  # 0.004 and 0.006, either side of half a percent


def test_tooltips_give_both_tokens_and_the_weight(alignment):
    assert cells(to_svg(alignment))[1, 3] == (0.74, "source 4: </s>\noutput 2: -\nweight 0.740")
    assert cells(to_svg(alignment))[1, 1][1] == "source 2: ◌\u0902\noutput 2: -\nweight 0.250"


def test_labels_stand_beside_their_row_and_above_their_column(alignment):
    svg = to_svg(alignment)
    size = float(next(iter(group(svg, "cells"))).get("width"))
    columns = {text.text: text for text in group(svg, "source")}
    assert list(columns) == ["न", "◌\u0902", "␣", "</s>"]
    assert [float(columns[shown].get("x")) for shown in ("न", "◌\u0902", "␣")] == [0.5 * size, 1.5 * size, 2.5 * size]
    assert f"translate({3.5 * size:g} " in columns["</s>"].get("transform")
    rows = [(text.text, float(text.get("y"))) for text in group(svg, "target")]
    assert rows == [("1", 0.5 * size), ("-", 1.5 * size), ("</s>", 2.5 * size)]
    assert columns["◌\u0902"].find(f"{SVG}title").text == "U+0902 DEVANAGARI SIGN ANUSVARA"


def test_right_to_left_sources_keep_their_order_and_long_labels_are_isolated():
    svg = to_svg(Alignment(["ن", "وف", " "], ["1"], [[0.2, 0.3, 0.5]]))
    assert [text.text for text in group(svg, "source")] == ["ن", "\u2068وف\u2069", "␣"]


def test_vmax_is_full_ink(alignment):
    drawn = cells(to_svg(alignment, vmax=0.5))
    assert drawn[0, 0][0] == 1
    assert drawn[1, 1] == (0.5, "source 2: ◌\u0902\noutput 2: -\nweight 0.250")
    assert "≥ 0.5" in to_svg(alignment, vmax=0.5) and "≥" not in to_svg(alignment)


@pytest.mark.parametrize("vmax", [0, -1, 1.5])
def test_vmax_out_of_range(alignment, vmax):
    with pytest.raises(ValueError, match=rf"^`vmax` must be above 0 and at most 1\. Received: vmax={vmax}$"):
        to_svg(alignment, vmax=vmax)


def test_is_an_image_with_a_name_that_fits_its_canvas(alignment):
    root = ElementTree.fromstring(to_svg(alignment))
    assert root.get("role") == "img"
    assert "3 output tokens (rows) over 4 source tokens (columns), from नं to 1-" in root.get("aria-label")
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"


def test_long_sources_get_smaller_cells_but_not_too_small():
    def size(sources):
        svg = to_svg(Alignment(["a"] * sources, ["x"], np.full((1, sources), 0.006)))
        return float(next(iter(group(svg, "cells"))).get("width"))

    assert size(10) == size(30) > size(60) > size(200) == size(400) >= 12


def test_faint_cells_cost_nothing():
    weights = np.full((50, 200), 0.001)
    weights[:, 0] = 0.8
    svg = to_svg(Alignment(["a"] * 200, ["b"] * 50, weights))
    assert len(group(svg, "cells")) == 50
    assert len(svg) < 60_000


def test_a_narrow_map_leaves_room_for_its_legend():
    assert int(ElementTree.fromstring(to_svg(Alignment(["a"], ["b"], [[1.0]]))).get("width")) > 300
