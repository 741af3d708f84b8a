"""Where everything in a picture stands, in pixels from its upper left corner: the same for SVG and PNG.

A map stands alone without a title. Of a model with heads, layers stand from top to bottom and heads from left to right.
"""

import dataclasses
import math

import numpy as np

from zoo.pictures.alignment import Alignment, Picture, as_grid
from zoo.pictures.drawing import DRAWING
from zoo.pictures.labels import label, rise, turns, width

# Cells shrink until a picture is about this wide, as long as their labels can be read.
IDEAL_WIDTH, _SMALLEST_CELL, _LARGEST_CELL = (
    int(DRAWING[name]) for name in ("ideal_width", "smallest_cell", "largest_cell")
)
GAP = int(DRAWING["gap"])  # between the labels and a map: marks below the line, as in Khmer or Myanmar, need the room
TITLE_FONT, HEADING_FONT = 12, 15
_BETWEEN, _BELOW, _BETWEEN_KINDS = 20, 16, 26


@dataclasses.dataclass(frozen=True)
class Map:
    """One heat map. Its column labels stand above it; its row labels stand beside the first map of a row.

    Attributes:
        title: what stands above it, such as the layer and the head; empty for none.
        title_baseline: where the title stands.
        left: the left edge of the cells.
        top: the upper edge of the cells.
        weights: attention weights `(T, S)`.
        source_tokens: the tokens whose labels stand above, S of them.
        target_tokens: the tokens whose labels stand beside, T of them; empty for none.
        angles: by how many degrees the labels above are turned.
    """

    title: str
    title_baseline: float
    left: float
    top: float
    weights: np.ndarray
    source_tokens: list[str]
    target_tokens: list[str]
    angles: list[int]


@dataclasses.dataclass(frozen=True)
class Layout:
    """All that a picture consists of: headings as (text, baseline) at the left edge, and maps."""

    cell: int
    font: int
    headings: list[tuple[str, float]]
    maps: list[Map]
    width: float
    height: float


@dataclasses.dataclass(frozen=True)
class _Kind:
    """The maps of one kind, by their titles, and how many of them stand side by side."""

    heading: str
    source_tokens: list[str]
    target_tokens: list[str]
    rows: list[list[tuple[str, np.ndarray]]]

    @property
    def title_width(self) -> float:
        return max(TITLE_FONT * width(title) for row in self.rows for title, _ in row)


def arrange(picture: Picture, columns: int = 1) -> Layout:
    """Arranges the heat maps of a picture, one of `columns` pictures side by side."""
    kinds = _kinds(picture)
    widest = max(len(kind.source_tokens) * max(map(len, kind.rows)) for kind in kinds)
    cell = max(_SMALLEST_CELL, min(_LARGEST_CELL, IDEAL_WIDTH // (widest * columns)))
    font = max(9, round(DRAWING["font_share"] * cell))
    left = round(font * max(width(label(token)) for kind in kinds for token in kind.target_tokens)) + GAP + font // 2
    headings: list[tuple[str, float]] = []
    maps = []
    right = y = 0.0
    for kind in kinds:
        shown = [label(token) for token in kind.source_tokens]
        angles = turns(shown, room=cell / font)
        # Slanted labels would reach into the next map, and into each other where cells are hardly larger than letters.
        if kind.title_width or font > 0.72 * cell:
            angles = [90 if angle else 0 for angle in angles]
        overhang = round(font * (rise(shown, angles) if 45 in angles else 0.5))
        above = round(font * (rise(shown, angles) + 0.6)) + GAP
        across, down = len(kind.source_tokens) * cell, len(kind.target_tokens) * cell
        step = max(across, kind.title_width) + _BETWEEN
        if kind.heading:
            headings.append((kind.heading, y + HEADING_FONT))
            y += HEADING_FONT + 10
            right = max(right, HEADING_FONT * width(kind.heading))
        for row in kind.rows:
            baseline = y + TITLE_FONT
            y += above + (TITLE_FONT if kind.title_width else 0)
            for number, (title, weights) in enumerate(row):
                targets = kind.target_tokens if number == 0 else []
                place = (left + number * step, y)
                maps.append(Map(title, baseline, *place, weights, kind.source_tokens, targets, angles))
                right = max(right, place[0] + max(across + overhang, TITLE_FONT * width(title)))
            y += down + _BELOW
        y += _BETWEEN_KINDS - _BELOW
    return Layout(cell, font, headings, maps, round(right + 2), round(y - _BETWEEN_KINDS + 4))


def _kinds(picture: Picture) -> list[_Kind]:
    """The kinds of a picture. A layer's heads are divided into rows so that the picture has about the ideal width."""
    kinds = []
    for maps in as_grid(picture).kinds:
        titles = [[", ".join(filter(None, (layer, head))) for head in maps.heads] for layer in maps.layers]
        title_width = max(TITLE_FONT * width(title) for layer in titles for title in layer)
        narrowest = max(len(maps.source_tokens) * _SMALLEST_CELL, title_width) + _BETWEEN
        most = max(1, int(IDEAL_WIDTH // narrowest))
        side_by_side = math.ceil(len(maps.heads) / math.ceil(len(maps.heads) / most))
        rows = []
        for names, layer in zip(titles, maps.weights, strict=True):
            heads = list(zip(names, layer, strict=True))
            rows += [heads[start : start + side_by_side] for start in range(0, len(heads), side_by_side)]
        kinds.append(_Kind(maps.title, maps.source_tokens, maps.target_tokens, rows))
    return kinds


def spoken(picture: Picture) -> str:
    """Says in a sentence what a picture shows, for readers who do not see it."""
    name = f"{picture.title}: " if picture.title else ""
    if isinstance(picture, Alignment):
        targets, sources = picture.weights.shape
        return (
            f"{name}attention weights of {targets} output tokens (rows) over {sources} source tokens (columns), "
            f"from {picture.source_text} to {picture.target_text}"
        )
    kinds = "; ".join(
        f"{kind.title}, {len(kind.layers)} layers of {len(kind.heads)} heat maps, each of "
        f"{len(kind.target_tokens)} rows and {len(kind.source_tokens)} columns"
        for kind in picture.kinds
    )
    return f"{name}attention weights from {picture.source_text} to {picture.target_text}: {kinds}"
