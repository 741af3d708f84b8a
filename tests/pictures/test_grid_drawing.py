"""Grids of heads, drawn: every map stands apart from the others, has its title, and its ink is its weights."""

import re
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest

from zoo.pictures import Alignment, AttentionGrid, AttentionMaps, figure, save, to_html, to_svg
from zoo.pictures.grid_layout import grid_layout

SVG = "{http://www.w3.org/2000/svg}"


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


def drawn_cells(svg, cell):
    """Of each map (its translation): the cells with full ink as {(row, column)}, read from the paths."""
    maps = {}
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        inks = group.find(f"{SVG}g[@class='inks']")
        if inks is None:
            continue
        cells = set()
        for path in inks:
            assert path.get("fill-opacity") == "1"
            shapes = re.findall(r"M(\d+) (\d+)h(\d+)v(\d+)H(\d+)z", path.get("d"))
            for left, top, across, down, back in (map(int, shape) for shape in shapes):
                assert down == cell and back == left
                cells |= {(top // cell, column) for column in range(left // cell, (left + across) // cell)}
        maps[group.get("transform")] = cells
    return list(maps.values())


def test_each_map_has_the_ink_of_its_weights():
    picture = grid()
    cells = drawn_cells(to_svg(picture), grid_layout(picture).cell)
    wanted = [
        {(int(row), int(column)) for row, column in np.argwhere(head)}
        for kind in picture.kinds
        for layer in kind.weights
        for head in layer
    ]
    assert cells == wanted and len(cells) == 9


def test_faint_and_strong_cells():
    weights = np.array([[[[0.5, 0.5, 0.0], [0.25, 0.001, 0.749]]]])
    svg = to_svg(AttentionGrid(AttentionMaps("t", list("abc"), list("xy"), weights)), vmax=0.5)
    inks = re.search(r'<g class="inks">(.*?)</g>', svg)[1]
    cell = grid_layout(AttentionGrid(AttentionMaps("t", list("abc"), list("xy"), weights))).cell
    # Half the scale, and from the scale's end on full ink: two cells in a run and one below.
    assert inks == (
        f'<path fill-opacity="0.5" d="M0 {cell}h{cell}v{cell}H0z"/>'
        f'<path fill-opacity="1" d="M0 0h{2 * cell}v{cell}H0zM{2 * cell} {cell}h{cell}v{cell}H{2 * cell}z"/>'
    )


@pytest.mark.parametrize(
    "shape", [dict(layers=1, heads=2, source="a"), dict(layers=6, heads=8, source="long " * 12, encoder_layers=6), {}]
)
def test_maps_labels_and_titles_stand_apart(shape):
    layout = grid_layout(grid(**shape))
    boxes, last = [], 0
    for kind in layout.kinds:
        assert kind.heading_baseline > last
        targets, sources = kind.maps.weights.shape[2:]
        for place in kind.places:
            down = place.top + targets * layout.cell
            boxes.append((place.left, place.title_baseline - 10, place.left + sources * layout.cell, down))
            assert place.left > 0 and kind.heading_baseline < place.title_baseline < place.top
            title = len(kind.title(place)) * 12 * 0.45  # what proportional letters take at least
            beside = [other for other in kind.places if other.layer == place.layer and other.head == place.head + 1]
            assert all(other.left > place.left + title for other in beside)
            last = down
    for index, (left, top, right, bottom) in enumerate(boxes):
        assert right <= layout.width and bottom <= layout.height
        for other in boxes[index + 1 :]:
            assert right < other[0] or other[2] < left or bottom < other[1] or other[3] < top
    assert 9 <= layout.cell <= 22 and layout.font <= layout.cell + 1


def test_titles_headings_and_labels_are_there_once():
    svg = to_svg(grid(title="<b>"))
    texts = [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert texts.count("layer 2, head 3") == 1 and texts.count("layer 1, head 1") == 2
    assert texts.count("Attention to the source") == texts.count("Self-attention of the encoder") == 1
    # Source letters above each of three columns of both kinds, and beside the encoder's one row of maps.
    assert (texts.count("c"), texts.count("x")) == (7, 2)
    assert 'aria-label="&lt;b&gt;: attention weights from abcd to xy: Attention to the source, 2 layers of 3' in svg


def test_a_page_has_the_texts_and_a_picture_for_each():
    page = to_html([grid(source_text="Ab <cd>"), grid(target="z")], title="T")
    assert page.count("<figure") == page.count("<svg") - 1 == 2
    assert "Ab &lt;cd&gt;" in page and "Each map is one head of one layer." in page
    # Shown at their full size: nothing shrinks them.
    assert "max-width: 100%" not in page


def test_a_figure_has_axes_for_each_map_in_its_place():
    pictures = [grid(title="$a_1$", caption="c"), grid(layers=1)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawing = figure(pictures)
        drawing.canvas.draw()
    *axes, _ = drawing.axes
    kinds = [kind for picture in pictures for kind in picture.kinds]
    heads = [head for kind in kinds for layer in kind.weights for head in layer]
    for each, head in zip(axes, heads, strict=True):
        np.testing.assert_array_equal(each.images[0].get_array(), head)
    boxes = [each.get_position() for each in drawing.axes]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
    texts = [text.get_text() for text in drawing.texts]
    assert texts[:3] == ["$a_1$", "Attention to the source", "layer 1, head 1"] and "c" in texts
    assert [tick.get_text() for tick in axes[0].get_xticklabels()] == ["a", "b", "c", "d", "␣", "</s>"]
    assert [tick.get_text() for tick in axes[1].get_yticklabels()] == []
    assert [tick.get_text() for tick in axes[3].get_xticklabels()] == []
    size = drawing.get_size_inches()
    bounds = drawing.get_tightbbox()
    assert bounds.x0 >= 0 and bounds.y0 >= 0 and bounds.x1 <= size[0] and bounds.y1 <= size[1]


def test_saving(tmp_path):
    assert save(grid(), tmp_path / "a.svg").read_text("utf-8") == to_svg(grid())
    assert save([grid(), grid()], tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"\.svg must be of one picture; save several as"):
        save([grid(), grid()], tmp_path / "b.svg")
    with pytest.raises(ValueError, match="Received: some of both"):
        save([grid(), Alignment(["a"], ["b"], [[1.0]])], tmp_path / "b.html")
    with pytest.raises(ValueError, match="`vmax` must be above 0"):
        save(grid(), tmp_path / "b.png", vmax=0)
