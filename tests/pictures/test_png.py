"""Figures, read back from their pixels and their texts; and what is said of characters without a font."""

import io
import sys
import warnings

import numpy as np
import pytest
from matplotlib import font_manager
from matplotlib.image import imread

from zoo.pictures import Alignment, AttentionGrid, AttentionMaps, figure, save, to_png
from zoo.pictures.fonts import families_for

WEIGHTS = np.array([[0.0, 0.1, 0.9, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.5, 0.0, 0.3, 0.2]])  # T = 3, S = 5


def some(**options):
    return Alignment([*"a b$", "</s>"], ["1", "-", "$x$"], WEIGHTS, **options)


def grey(drawing, axes):
    """The grey level at the middle of each cell, read back from the pixels: `(T, S)`, 0 black and 1 white."""
    drawing.canvas.draw()
    pixels = np.asarray(drawing.canvas.buffer_rgba())[..., 0] / 255
    levels = np.empty(WEIGHTS.shape)
    for row, column in np.ndindex(WEIGHTS.shape):
        x, y = axes.transData.transform((column, row))
        levels[row, column] = pixels[round(pixels.shape[0] - y), round(x)]
    return levels


@pytest.mark.parametrize("vmax", [1, 0.5])
def test_each_cell_is_as_dark_as_its_weight(vmax):
    drawing = figure(some(title="t", caption="c"), vmax=vmax)
    np.testing.assert_allclose(grey(drawing, drawing.axes[0]), 1 - np.minimum(WEIGHTS / vmax, 1), atol=0.01)
    scale = drawing.axes[-1]
    assert [text.get_text() for text in scale.get_yticklabels()] == ["0", "1" if vmax == 1 else "≥ 0.5"]
    assert scale.get_ylabel() == "attention weight"
    label, size = scale.yaxis.label.get_window_extent(), drawing.bbox
    assert scale.get_window_extent().x1 < label.x0 and label.x1 <= size.x1 and label.y0 >= size.y0
    shades = scale.images[0].get_array()[:, 0]
    assert (shades[0], shades[-1]) == (0, 1) and scale.images[0].origin == "lower"


def test_row_zero_is_on_top_and_column_zero_at_the_left():
    axes = figure(some()).axes[0]
    (left, top), (right, bottom) = axes.transData.transform([(0, 0), (4, 2)])
    assert left < right and bottom < top
    assert [text.get_text() for text in axes.get_xticklabels()] == ["a", "␣", "b", "$", "</s>"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["1", "-", "$x$"]
    assert not any(text.get_parse_math() for text in [*axes.get_xticklabels(), *axes.get_yticklabels()])
    assert [text.get_rotation() for text in axes.get_xticklabels()] == [0, 0, 0, 0, 90]


def test_several_pictures_stand_in_columns():
    wide = Alignment(["word"] * 9, ["1"], np.full((1, 9), 0.1))
    drawing = figure([some(), wide, some(title="third")], columns=2)
    first, second, third = (axes.get_window_extent() for axes in drawing.axes[:3])
    assert first.x1 < second.x0 and third.y1 < first.y0
    assert first.x0 == pytest.approx(third.x0) and first.y1 == pytest.approx(second.y1)
    assert first.width / 5 == pytest.approx(second.width / 9) and first.height / 3 == pytest.approx(second.height)
    np.testing.assert_allclose(grey(drawing, drawing.axes[2]), 1 - WEIGHTS, atol=0.01)


@pytest.mark.parametrize("source_tokens", [["▁agreement", "▁on", "s", "▁Economic"], [*"abcdefg", "</s>"]])
def test_labels_lie_between_the_map_and_the_edge_of_the_figure(source_tokens):
    weights = np.zeros((2, len(source_tokens)))
    drawing = figure(Alignment(source_tokens, ["▁européenne", "."], weights, title="Title", caption="A long caption"))
    drawing.canvas.draw()
    axes, edge = drawing.axes[0], drawing.bbox
    inside = axes.get_window_extent()
    above = [text.get_window_extent() for text in axes.get_xticklabels()]
    beside = [text.get_window_extent() for text in axes.get_yticklabels()]
    assert all(inside.y1 <= box.y0 + 1 and box.y1 <= edge.y1 for box in above)
    assert all(edge.x0 <= box.x0 and box.x1 <= inside.x0 for box in beside)
    assert beside[0].y0 >= beside[1].y1
    title, caption = (text.get_window_extent() for text in drawing.texts)
    assert max(box.y1 for box in above) <= title.y0 and title.y1 <= edge.y1
    assert edge.y0 <= caption.y0 and caption.y1 < inside.y0 and caption.x1 <= edge.x1


def test_a_grid_has_axes_for_each_map_in_its_place():
    random = np.random.default_rng(0).random((2, 2, 3, 2, 4)) / 2
    maps = [AttentionMaps(f"kind {n}", [*"ab ", "</s>"], [*"xy"], random[n, : n + 1]) for n in range(2)]
    drawing = figure([AttentionGrid(*maps, title="$a_1$", caption="c"), AttentionGrid(maps[0])], columns=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawing.canvas.draw()
    *axes, _ = drawing.axes
    heads = [*random[0, 0], *random[1].reshape(6, 2, 4), *random[0, 0]]
    for each, head in zip(axes, heads, strict=True):
        np.testing.assert_array_equal(each.images[0].get_array(), head)
    boxes = [each.get_position() for each in drawing.axes]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
    assert axes[9].get_position().y1 < axes[8].get_position().y0, "grids stand one below the other"
    texts = [text.get_text() for text in drawing.texts]
    assert texts[:2] == ["$a_1$", "kind 0"] and texts[-4:] == ["kind 0", *(f"layer 1, head {n}" for n in (1, 2, 3))]
    assert "c" in texts and not any(text.get_parse_math() for text in drawing.texts)
    assert [tick.get_text() for tick in axes[8].get_xticklabels()] == ["a", "b", "␣", "</s>"]
    assert [[tick.get_text() for tick in each.get_yticklabels()] for each in axes[:2]] == [["x", "y"], []]
    size, bounds = drawing.get_size_inches(), drawing.get_tightbbox()
    assert bounds.x0 >= 0 and bounds.y0 >= 0 and bounds.x1 <= size[0] and bounds.y1 <= size[1]


def test_gives_a_png_and_leaves_pyplot_alone():
    small, large = (imread(io.BytesIO(to_png(some(), dpi=dpi))) for dpi in (100, 200))
    assert small.shape[2] == 4
    assert small.min() == 0
    np.testing.assert_allclose(large.shape[:2], 2 * np.array(small.shape[:2]), atol=2)
    if "matplotlib.pyplot" in sys.modules:  # another test may have loaded it
        assert not sys.modules["matplotlib.pyplot"].get_fignums()


class TestFonts:
    @pytest.fixture(autouse=True)
    def only_matplotlibs_own(self, monkeypatch):
        monkeypatch.setattr(font_manager, "get_font_names", lambda: ["DejaVu Sans", "cmr10"])

    def test_plain_text_needs_no_installed_font(self):
        tokens = ["2", "</s>", " ", "\u00a0", "", "\n", "\t", "\u0301", "é"]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            figure(Alignment(tokens, ["1"], np.full((1, 9), 0.05))).canvas.draw()

    def test_preferred_families_come_first(self):
        drawing = figure(some(title="t"), fonts=["DejaVu Serif"])
        assert drawing.texts[0].get_fontfamily()[0] == "DejaVu Serif"
        with pytest.raises(ValueError, match="No Such Font"):
            figure(some(), fonts=["No Such Font"])

    def test_a_font_that_was_installed_after_matplotlib_made_its_list(self, monkeypatch):
        """The list lies on disk: without a look at the system's fonts, it stays as it was before."""
        path = font_manager.findfont("STIXGeneral")
        known = [each for each in font_manager.fontManager.ttflist if each.name == "DejaVu Sans"]
        monkeypatch.setattr(font_manager.fontManager, "ttflist", known)
        monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [path, __file__])  # one of them is no font
        assert families_for("a", ["STIXGeneral"]) == ["STIXGeneral"]

    @pytest.mark.parametrize(
        ("shown", "message"),
        [
            ("न年", r"No font has 2 of the characters: न U\+0928 DEVANAGARI LETTER NA, 年 U\+5E74 .*\.html or \.svg"),
            ("가각갂갃간갅갆", r"7 of the characters: (. U\+\w+ HANGUL SYLLABLE \w+, ){5}…\. .* fonts-noto-cjk\)\.$"),
            (
                "\U0001f9e0",
                r"🧠 U\+1F9E0 BRAIN.*\. Save the picture as \.html or \.svg, .*; Matplotlib cannot draw .* emoji\.$",
            ),
        ],
    )
    def test_characters_without_a_font_are_named_and_nothing_is_written(self, tmp_path, shown, message):
        for picture in (Alignment([shown, "a"], ["1"], [[0.5, 0.5]]), some(title=shown)):
            with pytest.raises(ValueError, match=message):
                save(picture, tmp_path / "new" / "a.png")
        assert not list(tmp_path.iterdir())
