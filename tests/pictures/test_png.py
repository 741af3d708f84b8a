import io
import sys
import warnings

import numpy as np
import pytest
from matplotlib.image import imread
from matplotlib.text import Text

from zoo.pictures import Alignment, figure, fonts, to_png

WEIGHTS = np.array([[0.0, 0.1, 0.9, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.5, 0.0, 0.3, 0.2]])  # T = 3, S = 5


def some(**options):
    return Alignment([*"a b$", "</s>"], ["1", "-", "$x$"], WEIGHTS, **options)


def shown(axes, words):
    return next(text for text in axes.findobj(Text) if text.get_text() == words)


def grey(drawing, axes):
    """The grey level at the middle of each cell, read back from the pixels: `(T, S)`, 0 black and 1 white."""
    drawing.canvas.draw()
    pixels = np.asarray(drawing.canvas.buffer_rgba())[..., 0] / 255
    levels = np.empty(WEIGHTS.shape)
    for row, column in np.ndindex(WEIGHTS.shape):
        x, y = axes.transData.transform((column, row))
        levels[row, column] = pixels[round(pixels.shape[0] - y), round(x)]
    return levels


def test_each_cell_is_as_dark_as_its_weight():
    drawing = figure(some(title="t", caption="c"))
    np.testing.assert_allclose(grey(drawing, drawing.axes[0]), 1 - WEIGHTS, atol=0.01)


def test_row_zero_is_on_top_and_column_zero_at_the_left():
    axes = figure(some()).axes[0]
    (left, top), (right, bottom) = axes.transData.transform([(0, 0), (4, 2)])
    assert left < right and bottom < top
    assert [text.get_text() for text in axes.get_xticklabels()] == ["a", "␣", "b", "$", "</s>"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["1", "-", "$x$"]
    assert [text.get_rotation() for text in axes.get_xticklabels()] == [0, 0, 0, 0, 90]


def test_vmax_is_black():
    drawing = figure(some(), vmax=0.5)
    np.testing.assert_allclose(grey(drawing, drawing.axes[0]), 1 - np.minimum(WEIGHTS / 0.5, 1), atol=0.01)
    assert [text.get_text() for text in drawing.axes[-1].get_yticklabels()] == ["0", "≥ 0.5"]


def test_several_pictures_stand_in_columns_with_cells_of_one_size():
    wide = Alignment(["word"] * 9, ["1"], np.full((1, 9), 0.1))
    drawing = figure([some(), wide, some()], columns=2)
    first, second, third = (axes.get_window_extent() for axes in drawing.axes[:3])
    assert first.x1 < second.x0 and third.y1 < first.y0
    assert first.x0 == pytest.approx(third.x0) and first.y1 == pytest.approx(second.y1)
    assert first.width / 5 == pytest.approx(second.width / 9) and first.height / 3 == pytest.approx(second.height)
    np.testing.assert_allclose(grey(drawing, drawing.axes[2]), 1 - WEIGHTS, atol=0.01)


@pytest.mark.parametrize("source_tokens", [["▁agreement", "▁on", "s", "▁Economic"], [*"abcdefg", "</s>"]])
def test_labels_lie_between_the_map_and_the_edge_of_the_figure(source_tokens):
    weights = np.zeros((2, len(source_tokens)))
    drawing = figure(Alignment(source_tokens, ["▁européenne", "."], weights, title="Title", caption="Caption"))
    drawing.canvas.draw()
    axes, edge = drawing.axes[0], drawing.bbox
    inside = axes.get_window_extent()
    above = [text.get_window_extent() for text in axes.get_xticklabels()]
    beside = [text.get_window_extent() for text in axes.get_yticklabels()]
    assert all(inside.y1 <= box.y0 + 1 and box.y1 <= edge.y1 for box in above)
    assert all(edge.x0 <= box.x0 and box.x1 <= inside.x0 for box in beside)
    assert beside[0].y0 >= beside[1].y1
    title, caption = shown(axes, "Title").get_window_extent(), shown(axes, "Caption").get_window_extent()
    assert max(box.y1 for box in above) <= title.y0 and title.y1 <= edge.y1
    assert edge.y0 <= caption.y0 and caption.y1 < inside.y0


def test_dollar_signs_are_no_mathematics():
    axes = figure(Alignment(["$a$", "b"], ["$x$"], [[0.5, 0.5]], title="$t$", caption="$c$")).axes[0]
    texts = [*axes.get_xticklabels(), *axes.get_yticklabels(), shown(axes, "$t$"), shown(axes, "$c$")]
    assert not any(text.get_parse_math() for text in texts)


def test_gives_a_png_and_leaves_pyplot_alone():
    small, large = (imread(io.BytesIO(to_png(some(), dpi=dpi))) for dpi in (100, 200))
    assert small.shape[2] == 4
    assert small.min() == 0
    np.testing.assert_allclose(large.shape[:2], 2 * np.array(small.shape[:2]), atol=2)
    if "matplotlib.pyplot" in sys.modules:  # another test may have loaded it
        assert not sys.modules["matplotlib.pyplot"].get_fignums()


def test_no_box_is_drawn_for_a_missing_glyph(monkeypatch):
    monkeypatch.setattr(fonts, "_families", lambda preferred: ["DejaVu Sans"])
    monkeypatch.setattr(fonts, "_register_new_fonts", lambda: False)
    with pytest.raises(ValueError, match=r"No installed font can draw 1 .* ETHIOPIC \(ቅ U\+1245\).*\.html"):
        to_png(Alignment(["ቅ", "a"], ["1"], [[0.5, 0.5]]))
    with pytest.raises(ValueError, match=r"MYANMAR"):
        to_png(some(title="မ"))


def test_draws_many_scripts_where_fonts_are_installed():
    tokens = ["न", "\u0902", "ن", "מ", "น", "\u0e31", "မ", "\u102d", "ថ", "\u17d2", "年", "월", "ቅ", "é", " "]
    alignment = Alignment(tokens, ["1"], np.full((1, len(tokens)), 0.05))
    try:
        fonts.families_for(tokens)
    except ValueError as missing:
        pytest.skip(str(missing))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure(alignment).canvas.draw()


def test_refuses_nothing_and_values_out_of_range():
    with pytest.raises(ValueError, match=r"at least one Alignment to draw\. Received: an empty list$"):
        figure([])
    with pytest.raises(ValueError, match=r"^`columns` must be at least 1\. Received: columns=-1$"):
        figure(some(), columns=-1)
    with pytest.raises(ValueError, match=r"`vmax`.*Received: vmax=0"):
        figure(some(), vmax=0)
