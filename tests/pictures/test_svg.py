"""SVG, read back: every cell is where its weight belongs, nothing overlaps, and the colours are the page's."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from zoo.pictures import Alignment, AttentionGrid, AttentionMaps, to_svg
from zoo.pictures.drawing import PAGE
from zoo.pictures.layout import arrange

SVG = "{http://www.w3.org/2000/svg}"
WEIGHTS = np.array([[0.9, 0.0, 0.1, 0.0], [0.004, 0.25, 0.006, 0.74], [0.0, 0.0, 0.0, 0.0]])  # T = 3, S = 4


@pytest.fixture
def alignment():
    return Alignment(["न", "\u0902", " ", "</s>"], ["1", "-", "</s>"], WEIGHTS)


def grid(layers=2, heads=3, source="abcd ", target="xy", encoder_layers=1, **more):
    """Head 1 of layer 1 looks at the first token, head 2 at the second, and so on through all maps."""
    source, target = [*source, "</s>"], [*target, "</s>"]

    def maps(title, layers, rows):
        weights = np.zeros((layers, heads, len(rows), len(source)))
        for number in range(layers * heads):
            weights[number // heads, number % heads, :, number % len(source)] = 1
        return AttentionMaps(title, source, rows, weights)

    within = maps("Self-attention of the encoder", encoder_layers, source)
    return AttentionGrid(maps("Attention to the source", layers, target), within, **more)


def groups(svg, name):
    return [element for element in ElementTree.fromstring(svg).iter(f"{SVG}g") if element.get("class") == name]


def cells(svg):
    """Of each map every cell that has ink, as {(row, column): ink}, read from its place in the drawing."""
    found = []
    for inks in groups(svg, "inks"):
        found.append({})
        for path in inks:
            shapes = re.findall(r"M(\d+) (\d+)h(\d+)v(\d+)H(\d+)z", path.get("d"))
            assert "".join("M{} {}h{}v{}H{}z".format(*shape) for shape in shapes) == path.get("d")
            for left, top, across, cell, back in (map(int, shape) for shape in shapes):
                assert back == left
                for column in range(left // cell, (left + across) // cell):
                    found[-1][top // cell, column] = float(path.get("fill-opacity"))
    return found


def test_every_weight_that_can_be_seen_is_at_its_row_and_column(alignment):
    (drawn,) = cells(to_svg(alignment))
    expected = {(i, j): WEIGHTS[i, j] for i, j in zip(*np.nonzero(WEIGHTS >= 0.005), strict=True)}
    assert drawn == pytest.approx(expected, abs=0.005)
    assert (1, 0) not in drawn and (1, 2) in drawn  # 0.004 and 0.006, either side of half a percent


def test_title_and_notes_are_inside_the_picture_and_not_on_the_map():
    cut = Alignment([*"ab"], ["1"], [[0.5, 0.5]], source_text="ab & <b>", title="Month & <day>", caption="sure")
    plain, svg = (ElementTree.fromstring(to_svg(each)) for each in (Alignment([*"ab"], ["1"], [[0.5, 0.5]]), cut))
    shown = {text.text: float(text.get("y")) for text in svg.iter(f"{SVG}text") if text.get("x") == "0"}
    assert list(shown) == [
        "Month & <day>",
        "sure",
        "The source was cut after 2 tokens. The model did not read “& <b>”.",
        "0",  # of the legend
    ]
    title, caption, note, legend = shown.values()
    _, top, across, down = map(float, svg.get("viewBox").split())
    assert top + 16 < title < 0 < legend + 12 < caption < note - 12 < top + down - 12
    assert across > float(plain.get("width"))  # the note is longer than the legend
    assert svg.find(f"{SVG}rect").get("y") == f"{top:g}"


def test_colours_are_those_of_the_page(alignment):
    """As a browser resolves them: the last declaration counts, in each of the two schemes."""
    page = PAGE.read_text(encoding="utf-8")
    style = ElementTree.fromstring(to_svg(alignment)).find(f"{SVG}style").text
    for name in ("paper", "ink", "text", "quiet", "line", "frame"):
        assert re.findall(rf"--{name}: ?(#\w+)", style) == re.findall(rf"--{name}: ?(#\w+)", page), name
        assert len(re.findall(rf"--{name}: ?(#\w+)", style)) == 2


def test_labels_stand_beside_their_row_and_above_their_column(alignment):
    svg = to_svg(alignment)
    size = arrange(alignment).cell
    columns = {text.text: text for text in groups(svg, "source")[0]}
    assert list(columns) == ["न", "◌\u0902", "␣", "</s>"]
    assert [float(columns[shown].get("x")) for shown in ("न", "◌\u0902", "␣")] == [0.5 * size, 1.5 * size, 2.5 * size]
    assert f"translate({3.5 * size:g} " in columns["</s>"].get("transform")
    rows = [(text.text, float(text.get("y"))) for text in groups(svg, "target")[0]]
    assert rows == [("1", 0.5 * size), ("-", 1.5 * size), ("</s>", 2.5 * size)]
    assert columns["◌\u0902"].find(f"{SVG}title").text == "U+0902 DEVANAGARI SIGN ANUSVARA"


def test_right_to_left_sources_keep_their_order_and_long_labels_are_isolated():
    svg = to_svg(Alignment(["ن", "وف", " "], ["1"], [[0.2, 0.3, 0.5]]))
    assert [text.text for text in groups(svg, "source")[0]] == ["ن", "\u2068وف\u2069", "␣"]


def test_vmax_is_full_ink(alignment):
    (drawn,) = cells(to_svg(alignment, vmax=0.5))
    assert drawn[0, 0] == 1
    assert drawn[1, 1] == 0.5
    assert "≥ 0.5" in to_svg(alignment, vmax=0.5) and "≥" not in to_svg(alignment)
    for wrong in (0, -1, 1.5):
        with pytest.raises(ValueError, match=rf"^`vmax` must be above 0 and at most 1\. Received: vmax={wrong}$"):
            to_svg(alignment, vmax=wrong)


def test_is_an_image_with_a_name_whose_canvas_is_as_large_as_it(alignment):
    root = ElementTree.fromstring(to_svg(alignment))
    assert root.get("role") == "img"
    assert "3 output tokens (rows) over 4 source tokens (columns), from नं to 1-" in root.get("aria-label")
    assert root.get("viewBox").split()[2:] == [root.get("width"), root.get("height")]
    narrow = ElementTree.fromstring(to_svg(Alignment(["a"], ["b"], [[1.0]])))
    assert float(narrow.get("width")) > 300, "the legend needs its room"
    name = ElementTree.fromstring(to_svg(grid(title="<b>"))).get("aria-label")
    assert name.startswith("<b>: attention weights from abcd to xy: Attention to the source, 2 layers of 3 heat maps")


def test_long_sources_get_smaller_cells_but_not_too_small():
    def layout(sources):
        return arrange(Alignment(["a"] * sources, ["x"], np.full((1, sources), 0.006)))

    assert layout(10).cell == layout(30).cell > layout(60).cell > layout(115).cell == layout(400).cell == 9
    assert layout(107).width < 1100  # a page shows that many characters without scrolling
    words = Alignment(["word"] * 100, ["x"], np.full((1, 100), 0.006))
    assert set(arrange(words).maps[0].angles) == {90}, "slanted labels overlap above small cells"


class TestGrid:
    def test_each_map_has_the_ink_of_its_weights(self):
        picture = grid()
        drawn = cells(to_svg(picture))
        heads = [head for kind in picture.kinds for layer in kind.weights for head in layer]
        assert drawn == [{(int(row), int(column)): 1.0 for row, column in np.argwhere(head)} for head in heads]
        assert len(drawn) == 9

    def test_faint_and_strong_cells(self):
        weights = np.array([[[[0.5, 0.5, 0.0], [0.25, 0.001, 0.749]]]])
        picture = AttentionGrid(AttentionMaps("t", list("abc"), list("xy"), weights))
        inks = re.search(r'<g class="inks">(.*?)</g>', to_svg(picture, vmax=0.5))[1]
        cell = arrange(picture).cell
        # Half the scale, and from the scale's end on full ink: two cells in a run and one below.
        assert inks == (
            f'<path fill-opacity="0.5" d="M0 {cell}h{cell}v{cell}H0z"/>'
            f'<path fill-opacity="1" d="M0 0h{2 * cell}v{cell}H0zM{2 * cell} {cell}h{cell}v{cell}H{2 * cell}z"/>'
        )

    @pytest.mark.parametrize(
        "shape",
        [
            dict(layers=1, heads=2, source="a"),
            dict(layers=6, heads=8, source="long " * 12, encoder_layers=6),
            dict(layers=1, heads=4, source="a" * 54),
            {},
        ],
    )
    def test_maps_labels_and_titles_stand_apart(self, shape):
        picture = grid(**shape)
        layout = arrange(picture)
        boxes = []
        for drawn in layout.maps:
            targets, sources = drawn.weights.shape
            title = drawn.left + len(drawn.title) * 12 * 0.45  # what proportional letters take at least
            right = max(title, drawn.left + sources * layout.cell)
            boxes.append((drawn.left, drawn.title_baseline - 10, right, drawn.top + targets * layout.cell))
            assert drawn.left > 0 and drawn.top - drawn.title_baseline > layout.font
        boxes += [(0, baseline - 12, 100, baseline) for _, baseline in layout.headings]
        for index, (left, top, right, bottom) in enumerate(boxes):
            assert right <= layout.width and bottom <= layout.height
            for other in boxes[index + 1 :]:
                assert right < other[0] or other[2] < left or bottom < other[1] or other[3] < top
        assert 9 <= layout.cell <= 22 and layout.font <= layout.cell
        assert layout.width < 1200, "a page shows it without scrolling"
        heads = [head for kind in picture.kinds for layer in kind.weights for head in layer]
        np.testing.assert_array_equal(
            np.array([drawn.weights.sum() for drawn in layout.maps]), [h.sum() for h in heads]
        )

    def test_labels_above_every_map_and_beside_every_row_of_maps(self):
        texts = [text.text for text in ElementTree.fromstring(to_svg(grid())).iter(f"{SVG}text")]
        assert texts.count("layer 2, head 3") == 1 and texts.count("layer 1, head 1") == 2
        assert texts.count("Attention to the source") == texts.count("Self-attention of the encoder") == 1
        # Above nine maps and beside the encoder's one row of maps; beside the two rows of the others.
        assert (texts.count("c"), texts.count("x")) == (10, 2)
        # Four maps of 55 columns do not fit side by side: two rows of two.
        layout = arrange(grid(layers=1, heads=4, source="a" * 54))
        assert [bool(drawn.target_tokens) for drawn in layout.maps[:4]] == [True, False, True, False]
        assert layout.maps[2].left == layout.maps[0].left and layout.maps[2].top > layout.maps[1].top
