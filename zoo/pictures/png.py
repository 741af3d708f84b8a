"""Alignments as a Matplotlib figure, for papers.

It needs Matplotlib, as `grid_png` and `fonts` do; all three import it when they draw, so that pages can do without.
"""

import io
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from zoo.pictures.alignment import Alignment, check_drawing
from zoo.pictures.drawable import Drawable, as_list
from zoo.pictures.fonts import families_for
from zoo.pictures.grid_png import grid_figure
from zoo.pictures.labels import label, readable, rise, turns, width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_CELL = 0.22  # inches, for labels of _FONT points
_FONT = 9
_EM = _FONT / 72  # inches
_PAD = 5  # points between the labels and the map: marks below the line need the room


def figure(
    alignments: Drawable | Iterable[Drawable], columns: int = 1, vmax: float = 1.0, fonts: Sequence[str] = ()
) -> "Figure":
    """Draws alignments as a Matplotlib figure, without touching the state of `pyplot`.

    Args:
        alignments: one or several; each becomes one `Axes`, in order. Or grids of heads, whose maps do.
        columns: how many pictures stand side by side.
        vmax: the weight drawn in black, above 0 and at most 1; anything above it looks the same.
        fonts: font families to try first, for example `["Noto Sans CJK SC"]` for the Chinese shapes of characters.

    Returns:
        The figure, on an Agg canvas; save it as PNG, PDF or SVG with its own `savefig(..., bbox_inches="tight")`.

    Raises:
        ValueError: there is nothing to draw, an argument is out of range, or no installed font has a character.

    References:
        Bahdanau et al. (2014), Neural Machine Translation by Jointly Learning to Align and Translate, figure 3.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    pictures: list[Any] = as_list(alignments)  # which are all of one kind
    check_drawing(columns, vmax)
    if not isinstance(pictures[0], Alignment):
        return grid_figure(pictures, vmax, fonts)
    families = families_for((text for alignment in pictures for text in _texts(alignment)), fonts)
    places, size = _places(pictures, columns)
    drawing = Figure(figsize=size, facecolor="white")
    FigureCanvasAgg(drawing)
    for alignment, place in zip(pictures, places, strict=True):
        image = _draw(drawing.add_axes(place), alignment, vmax, families)
    _scale(drawing, image, above=places[0])
    return drawing


def to_png(
    alignments: Drawable | Iterable[Drawable],
    columns: int = 1,
    vmax: float = 1.0,
    fonts: Sequence[str] = (),
    dpi: int = 200,
) -> bytes:
    """Draws alignments as a PNG.

    Args:
        alignments: one or several, or grids of heads.
        columns: how many pictures stand side by side.
        vmax: the weight drawn in black, above 0 and at most 1.
        fonts: font families to try first.
        dpi: pixels an inch; a cell is 0.22 inches.

    Returns:
        The bytes of the file.

    Raises:
        ValueError: as for `figure`.
    """
    buffer = io.BytesIO()
    figure(alignments, columns, vmax, fonts).savefig(buffer, format="png", dpi=dpi, bbox_inches="tight")
    return buffer.getvalue()


def _draw(axes: "Axes", alignment: Alignment, vmax: float, families: dict[str, list[str]]) -> "AxesImage":
    targets, sources = alignment.weights.shape
    image = axes.imshow(alignment.weights, cmap="binary", vmin=0, vmax=vmax, interpolation="none", aspect="equal")
    # A token may hold dollar signs, which are no mathematics here.
    axes.set_xticks(range(sources), map(label, alignment.source_tokens), fontsize=_FONT, parse_math=False)
    axes.set_yticks(range(targets), map(label, alignment.target_tokens), fontsize=_FONT, parse_math=False)
    axes.tick_params(top=False, bottom=False, left=False, labeltop=True, labelbottom=False, pad=_PAD)
    for tick in [*axes.get_xticklabels(), *axes.get_yticklabels()]:
        tick.set_fontfamily(families[tick.get_text()])
    angles = turns([label(token) for token in alignment.source_tokens], room=_CELL / _EM)
    for tick, angle in zip(axes.get_xticklabels(), angles, strict=True):
        tick.set_verticalalignment("baseline")
        if angle:
            # Turned about the left end of its middle line, which stands over the middle of the column.
            tick.set(rotation=angle, ha="left", va="center", rotation_mode="anchor")
    _rule(axes, targets, sources)
    if alignment.title:
        _write(axes.set_title, alignment.title, families, fontsize=_FONT + 1, loc="left")
    if alignment.caption:
        _write(axes.set_xlabel, alignment.caption, families, fontsize=_FONT - 1, loc="left")
    return image


def _rule(axes: "Axes", targets: int, sources: int) -> None:
    """Draws hairlines between the cells: in a long row they lead the eye from a cell to its labels."""
    axes.set_xticks([column + 0.5 for column in range(sources - 1)], minor=True)
    axes.set_yticks([row + 0.5 for row in range(targets - 1)], minor=True)
    axes.grid(which="minor", color="0.87", linewidth=0.4)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set(color="0.55", linewidth=0.5)


def _write(setter: Callable, text: str, families: dict[str, list[str]], **style) -> None:
    shown = readable(text)
    setter(shown, fontfamily=families[shown], parse_math=False, **style)


def _scale(drawing: "Figure", image: "AxesImage", above: tuple[float, float, float, float]) -> None:
    """Draws the scale of the weights at the right edge, level with the top of the first picture."""
    width_in, height_in = drawing.get_size_inches()
    height = min(1.0, above[3] * height_in) / height_in
    axes = drawing.add_axes((1 - 0.35 / width_in, above[1] + above[3] - height, 0.08 / width_in, height))
    _, vmax = image.get_clim()
    bar = drawing.colorbar(image, cax=axes)
    bar.set_ticks([0, vmax], labels=["0", f"{vmax:g}" if vmax == 1 else f"≥ {vmax:g}"])
    bar.outline.set_linewidth(0.4)
    axes.tick_params(labelsize=_FONT - 2, width=0.4, length=2)


def _texts(alignment: Alignment) -> list[str]:
    texts = [label(token) for token in alignment.source_tokens + alignment.target_tokens]
    return texts + [readable(text) for text in (alignment.title, alignment.caption) if text]


def _places(
    alignments: Sequence[Alignment], columns: int
) -> tuple[list[tuple[float, float, float, float]], tuple[float, float]]:
    """Arranges pictures in columns, all cells of one size: a place for each, and the size of the figure.

    A place is left, bottom, width and height as shares of the figure, the size is in inches.
    """
    columns = min(columns, len(alignments))
    rooms = [_room(alignment) for alignment in alignments]
    lefts = [max(room[0] for room in rooms[column::columns]) for column in range(columns)]
    widths = [max(room[1] for room in rooms[column::columns]) for column in range(columns)]
    starts = range(0, len(rooms), columns)
    tops = [max(room[2] for room in rooms[start : start + columns]) for start in starts]
    heights = [max(room[3] for room in rooms[start : start + columns]) for start in starts]
    across, down = sum(lefts) + sum(widths) + 0.4, sum(tops) + sum(heights)
    places = []
    for index, alignment in enumerate(alignments):
        row, column = divmod(index, columns)
        targets, sources = alignment.weights.shape
        left = sum(lefts[: column + 1]) + sum(widths[:column])
        bottom = down - sum(tops[: row + 1]) - sum(heights[:row]) - targets * _CELL
        places.append((left / across, bottom / down, sources * _CELL / across, targets * _CELL / down))
    return places, (across, down)


def _room(alignment: Alignment) -> tuple[float, float, float, float]:
    """Estimates the inches for the labels at the left, the map, the labels above, and the map with its caption."""
    targets, sources = alignment.weights.shape
    columns = [label(token) for token in alignment.source_tokens]
    angles = turns(columns, room=_CELL / _EM)
    height = rise(columns, angles) * _EM
    left = max(width(label(token)) for token in alignment.target_tokens) * _EM + 0.2
    overhang = height if 45 in angles else 0.0
    title, caption = 0.3 if alignment.title else 0.0, 0.3 if alignment.caption else 0.0
    return left, sources * _CELL + overhang + 0.15, height + title + 0.2, targets * _CELL + caption + 0.1
