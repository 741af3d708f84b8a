"""The attention of many layers and heads as a Matplotlib figure, for papers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zoo.pictures.alignment import check_drawing
from zoo.pictures.fonts import families_for
from zoo.pictures.grid import AttentionGrid
from zoo.pictures.grid_layout import GAP, HEADING_FONT, TITLE_FONT, GridLayout, KindLayout, Place, grid_layout
from zoo.pictures.labels import readable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PIXELS = 96  # an inch
_POINT = 72 / _PIXELS  # of a pixel
_MARGIN, _BETWEEN_TEXTS, _SCALE = 8, 40, 56


def grid_figure(grids: Sequence[AttentionGrid], vmax: float = 1.0, fonts: Sequence[str] = ()) -> "Figure":
    """Draws grids one below the other, as `figure` does alignments."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    check_drawing(columns=1, vmax=vmax)
    layouts = [grid_layout(grid) for grid in grids]
    families = families_for(_texts(grids, layouts), fonts)
    titles = [26 * bool(grid.title) for grid in grids]
    captions = [22 * bool(grid.caption) for grid in grids]
    across = max(layout.width for layout in layouts) + 2 * _MARGIN + _SCALE
    down = sum(layout.height for layout in layouts) + sum(titles) + sum(captions)
    down += 2 * _MARGIN + _BETWEEN_TEXTS * (len(grids) - 1)
    drawing = Figure(figsize=(across / _PIXELS, down / _PIXELS), facecolor="white")
    FigureCanvasAgg(drawing)
    canvas = _Canvas(drawing, across, down, families)
    y: float = _MARGIN
    for grid, layout, title, caption in zip(grids, layouts, titles, captions, strict=True):
        if grid.title:
            canvas.write(grid.title, _MARGIN, y + 16, 16)
        y += title
        for kind in layout.kinds:
            canvas.write(kind.maps.title, _MARGIN, y + kind.heading_baseline, HEADING_FONT)
            for place in kind.places:
                image = canvas.map(kind, place, layout, y, vmax)
        y += layout.height
        if grid.caption:
            canvas.write(grid.caption, _MARGIN, y + 14, TITLE_FONT)
        y += caption + _BETWEEN_TEXTS
    canvas.scale(image, across - _MARGIN - _SCALE + 12, _MARGIN + titles[0] + layouts[0].kinds[0].places[0].top)
    return drawing


class _Canvas:
    """A figure measured in pixels from its upper left corner."""

    def __init__(self, drawing: "Figure", across: float, down: float, families: dict[str, list[str]]):
        self.drawing, self.across, self.down, self.families = drawing, across, down, families

    def axes(self, left: float, top: float, width: float, height: float):
        box = left / self.across, 1 - (top + height) / self.down, width / self.across, height / self.down
        return self.drawing.add_axes(box)

    def write(self, text: str, left: float, baseline: float, size: float) -> None:
        shown = readable(text)
        self.drawing.text(
            left / self.across,
            1 - baseline / self.down,
            shown,
            fontsize=size * _POINT,
            fontfamily=self.families[shown],
            va="baseline",
            parse_math=False,
        )

    def map(self, kind: KindLayout, place: Place, layout: GridLayout, y: float, vmax: float):
        weights = kind.maps.weights[place.layer, place.head]
        (targets, sources), cell = weights.shape, layout.cell
        left, top = _MARGIN + place.left, y + place.top
        axes = self.axes(left, top, sources * cell, targets * cell)
        image = axes.imshow(weights, cmap="binary", vmin=0, vmax=vmax, interpolation="none", aspect="auto")
        self.write(kind.title(place), left, y + place.title_baseline, TITLE_FONT)
        size = layout.font * _POINT
        columns, rows = kind.columns * place.labels_above, kind.rows * place.labels_beside
        # A token may hold dollar signs, which are no mathematics here.
        axes.set_xticks(range(len(columns)), columns, fontsize=size, parse_math=False)
        axes.set_yticks(range(len(rows)), rows, fontsize=size, parse_math=False)
        axes.tick_params(length=0, top=False, labeltop=True, labelbottom=False, pad=GAP * _POINT)
        for tick in [*axes.get_xticklabels(), *axes.get_yticklabels()]:
            tick.set_fontfamily(self.families[tick.get_text()])
        for tick, angle in zip(axes.get_xticklabels(), kind.angles, strict=False):
            tick.set_va("baseline")
            if angle:
                tick.set(rotation=angle, ha="left", va="center", rotation_mode="anchor")
        axes.set_xticks([column + 0.5 for column in range(sources - 1)], minor=True)
        axes.set_yticks([row + 0.5 for row in range(targets - 1)], minor=True)
        axes.grid(which="minor", color="0.9", linewidth=0.3)
        axes.tick_params(which="minor", length=0)
        axes.spines[:].set(color="0.55", linewidth=0.5)
        return image

    def scale(self, image, left: float, top: float) -> None:
        """The scale of the weights, at the right edge."""
        axes = self.axes(left, top, 8, 88)
        vmax = image.norm.vmax
        bar = self.drawing.colorbar(image, cax=axes)
        bar.set_ticks([0, vmax], labels=["0", f"{vmax:g}" if vmax == 1 else f"≥ {vmax:g}"])
        bar.outline.set_linewidth(0.4)
        axes.tick_params(labelsize=7, width=0.4, length=2)


def _texts(grids: Sequence[AttentionGrid], layouts: Sequence[GridLayout]) -> list[str]:
    texts = [readable(text) for grid in grids for text in (grid.title, grid.caption) if text]
    for kind in (kind for layout in layouts for kind in layout.kinds):
        texts += [*kind.rows, *kind.columns, readable(kind.maps.title)]
        texts += [readable(kind.title(place)) for place in kind.places]
    return texts
