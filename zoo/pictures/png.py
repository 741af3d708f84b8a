"""Attention as a Matplotlib figure, for papers. Only this file needs Matplotlib, and imports it when it draws."""

import dataclasses
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from zoo.extras import needs
from zoo.pictures.alignment import Alignment, Picture, as_list, check_drawing, notes
from zoo.pictures.drawing import DRAWING, LIGHT
from zoo.pictures.fonts import families_for
from zoo.pictures.labels import label, readable, width
from zoo.pictures.layout import GAP, HEADING_FONT, TITLE_FONT, Layout, Map, arrange

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

_PIXELS = 96  # an inch
_POINT = 72 / _PIXELS  # of a pixel
_MARGIN, _BETWEEN, _SCALE_WIDTH, _SCALE_HEIGHT = 8, 28, 52, 88
_PICTURE_TITLE_FONT, _TITLE_HEIGHT, _NOTE_HEIGHT = 16, 26, 22


def figure(
    alignments: Picture | Iterable[Picture], columns: int = 1, vmax: float = 1.0, fonts: Sequence[str] = ()
) -> "Figure":
    """Draws alignments as a Matplotlib figure, without touching the state of `pyplot`.

    Args:
        alignments: one or several alignments, or grids of heads. Every heat map becomes one `Axes`, in order; the last
            `Axes` is the scale.
        columns: how many alignments stand side by side; grids stand one below the other.
        vmax: the weight drawn in black, above 0 and at most 1; larger weights look the same.
        fonts: font families to try first, for example `["Noto Sans CJK SC"]` for the Chinese shapes of characters.

    Returns:
        The figure, on an Agg canvas; save it as PNG, PDF or SVG with its own `savefig(..., bbox_inches="tight")`.

    Raises:
        ValueError: there is nothing to draw, an argument is out of range, or no font has a character.
        MissingExtraError: Matplotlib is not installed.

    References:
        Bahdanau et al. (2014), Neural Machine Translation by Jointly Learning to Align and Translate, figure 3.
    """
    pictures = as_list(alignments)
    check_drawing(columns, vmax)
    with needs("pictures"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    columns = min(columns, len(pictures)) if all(isinstance(each, Alignment) for each in pictures) else 1
    blocks = [_Block(picture, arrange(picture, columns), notes(picture)) for picture in pictures]
    families = families_for([text for block in blocks for text in block.texts()], fonts)
    rows = [blocks[start : start + columns] for start in range(0, len(blocks), columns)]
    # In a column of pictures the left edges of the maps are one line; in a row of pictures, the upper edges.
    lefts = [max(block.maps[0].left for block in blocks[column::columns]) for column in range(columns)]
    rights = [max(block.right for block in blocks[column::columns]) for column in range(columns)]
    tops = [max(block.above for block in row) for row in rows]
    bottoms = [max(block.below for block in row) for row in rows]
    scale_left = _MARGIN + sum(lefts) + sum(rights) + _BETWEEN * (columns - 1) + 12
    texts_right = scale_left - 12 - rights[-1] + max(block.texts_right for block in blocks)
    across = max(scale_left + _SCALE_WIDTH, texts_right) + _MARGIN
    down = sum(tops) + sum(bottoms) + _BETWEEN * (len(rows) - 1)
    down = max(down, tops[0] + _SCALE_HEIGHT) + 2 * _MARGIN
    drawing = Figure(figsize=(across / _PIXELS, down / _PIXELS), facecolor=LIGHT["paper"])
    FigureCanvasAgg(drawing)
    canvas = _Canvas(drawing, across, down, families)
    for index, block in enumerate(blocks):
        row, column = divmod(index, columns)
        # The upper left corner of the cells of the picture's first map.
        left = _MARGIN + sum(lefts[: column + 1]) + sum(rights[:column]) + _BETWEEN * column
        top = _MARGIN + sum(tops[: row + 1]) + sum(bottoms[:row]) + _BETWEEN * row
        canvas.picture(block, left - block.maps[0].left, top - block.above, vmax)
    canvas.scale(scale_left, _MARGIN + tops[0], vmax)
    return drawing


def to_png(
    alignments: Picture | Iterable[Picture],
    columns: int = 1,
    vmax: float = 1.0,
    fonts: Sequence[str] = (),
    dpi: int = 200,
) -> bytes:
    """Draws alignments as a PNG.

    Args:
        alignments: one or several alignments, or grids of heads.
        columns: how many alignments stand side by side; grids stand one below the other.
        vmax: the weight drawn in black, above 0 and at most 1.
        fonts: font families to try first.
        dpi: pixels per inch. A cell is 0.09 to 0.23 inches; long sources have small cells.

    Returns:
        The bytes of the file.

    Raises:
        ValueError: as for `figure`.
        MissingExtraError: Matplotlib is not installed.
    """
    buffer = io.BytesIO()
    figure(alignments, columns, vmax, fonts).savefig(buffer, format="png", dpi=dpi, bbox_inches="tight")
    return buffer.getvalue()


def _inks() -> "Colormap":
    """From no ink to full ink on white paper."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("ink", [LIGHT["paper"], LIGHT["ink"]], int(DRAWING["inks"]) + 1)


@dataclasses.dataclass(frozen=True)
class _Block:
    """A picture with its title above and its notes below, measured from the upper left corner of its first map."""

    picture: Picture
    layout: Layout
    notes: list[str]

    @property
    def maps(self) -> list[Map]:
        return self.layout.maps

    @property
    def above(self) -> float:
        return self.maps[0].top + _TITLE_HEIGHT * bool(self.picture.title)

    @property
    def below(self) -> float:
        return self.layout.height - self.maps[0].top + _NOTE_HEIGHT * len(self.notes)

    @property
    def right(self) -> float:
        return self.layout.width - self.maps[0].left

    @property
    def texts_left(self) -> float:
        """Where title and notes begin: at the headings, or else at the map."""
        return 0 if self.layout.headings else self.maps[0].left

    @property
    def texts_right(self) -> float:
        texts = [(self.picture.title or "", _PICTURE_TITLE_FONT), *((note, TITLE_FONT) for note in self.notes)]
        return self.texts_left - self.maps[0].left + max(size * width(text) for text, size in texts)

    def texts(self) -> list[str]:
        """All that is written in it."""
        texts = [self.picture.title or "", *self.notes, *(heading for heading, _ in self.layout.headings)]
        texts = [readable(text) for text in (*texts, *(each.title for each in self.maps))]
        return texts + [label(token) for each in self.maps for token in each.source_tokens + each.target_tokens]


class _Canvas:
    """A figure measured in pixels from its upper left corner."""

    def __init__(self, drawing: "Figure", across: float, down: float, families: list[str]):
        self.drawing, self.across, self.down, self.families = drawing, across, down, families

    def picture(self, block: _Block, left: float, top: float, vmax: float) -> None:
        """Draws a picture whose upper left corner is given."""
        if block.picture.title:
            self._write(block.picture.title, left + block.texts_left, top + _PICTURE_TITLE_FONT, _PICTURE_TITLE_FONT)
            top += _TITLE_HEIGHT
        for heading, baseline in block.layout.headings:
            self._write(heading, left, top + baseline, HEADING_FONT)
        for each in block.maps:
            self._write(each.title, left + each.left, top + each.title_baseline, TITLE_FONT)
            self._map(each, block.layout, left, top, vmax)
        for number, note in enumerate(block.notes):
            baseline = top + block.layout.height + _NOTE_HEIGHT * (number + 0.7)
            self._write(note, left + block.texts_left, baseline, TITLE_FONT)

    def scale(self, left: float, top: float, vmax: float) -> None:
        """Draws the scale of the weights."""
        axes = self._axes(left, top, 8, _SCALE_HEIGHT)
        shades = [[level / 64] for level in range(65)]
        axes.imshow(shades, cmap=_inks(), aspect="auto", origin="lower", extent=(0, 1, 0, 1))
        axes.yaxis.tick_right()
        axes.yaxis.set_label_position("right")
        axes.set_ylabel("attention weight", fontsize=7, labelpad=1)
        axes.set_xticks([])
        axes.set_yticks([0, 1], ["0", "1" if vmax == 1 else f"≥ {vmax:g}"])
        axes.tick_params(labelsize=7, width=0.4, length=2)
        axes.spines[:].set_linewidth(0.4)

    def _axes(self, left: float, top: float, across: float, down: float) -> "Axes":
        box = (left / self.across, 1 - (top + down) / self.down, across / self.across, down / self.down)
        return self.drawing.add_axes(box)

    def _write(self, text: str, left: float, baseline: float, size: float) -> None:
        # A text may hold dollar signs, which are no mathematics here.
        style: dict[str, Any] = dict(fontsize=size * _POINT, fontfamily=self.families, parse_math=False)
        if text:
            self.drawing.text(left / self.across, 1 - baseline / self.down, readable(text), va="baseline", **style)

    def _map(self, drawn: Map, layout: Layout, left: float, top: float, vmax: float) -> None:
        (targets, sources), cell = drawn.weights.shape, layout.cell
        axes = self._axes(left + drawn.left, top + drawn.top, sources * cell, targets * cell)
        axes.imshow(drawn.weights, cmap=_inks(), vmin=0, vmax=vmax, interpolation="none", aspect="auto")
        style: dict[str, Any] = dict(fontsize=layout.font * _POINT, fontfamily=self.families, parse_math=False)
        axes.set_xticks(range(sources), map(label, drawn.source_tokens), **style)
        axes.set_yticks(range(len(drawn.target_tokens)), map(label, drawn.target_tokens), **style)
        axes.tick_params(length=0, top=False, labeltop=True, labelbottom=False, pad=GAP * _POINT)
        for tick, angle in zip(axes.get_xticklabels(), drawn.angles, strict=True):
            tick.set(va="baseline")
            if angle:  # turned about the left end of its middle line, which stands over the middle of the column
                tick.set(rotation=angle, ha="left", va="center", rotation_mode="anchor")
        # Hairlines between the cells: in a long row they lead the eye from a cell to its labels.
        style = dict(color="0.88", linewidth=0.35)
        axes.vlines([column + 0.5 for column in range(sources - 1)], -0.5, targets - 0.5, **style)
        axes.hlines([row + 0.5 for row in range(targets - 1)], -0.5, sources - 0.5, **style)
        axes.spines[:].set(color="0.55", linewidth=0.5)
