"""Where everything in a picture of many small heat maps stands, in pixels: the same for SVG and PNG."""

import dataclasses

from zoo.pictures.grid import AttentionGrid, AttentionMaps
from zoo.pictures.labels import label, rise, turns, width

# Wide grids shrink their cells to about this many pixels across, within what can still be read.
_IDEAL_WIDTH, _SMALLEST_CELL, _LARGEST_CELL = 1040, 9, 22
GAP = 6  # between the labels and a map: marks below the line need the room
TITLE_FONT, HEADING_FONT = 12, 15
_BETWEEN, _BELOW, _BETWEEN_KINDS = 20, 16, 18


@dataclasses.dataclass(frozen=True)
class Place:
    """One heat map: its upper left corner, its layer and head, and whether labels stand beside and above it."""

    layer: int
    head: int
    left: float
    top: float
    labels_beside: bool
    labels_above: bool
    title_baseline: float


@dataclasses.dataclass(frozen=True)
class KindLayout:
    """The heat maps of one kind, below its heading."""

    maps: AttentionMaps
    heading_baseline: float
    rows: list[str]
    columns: list[str]
    angles: list[int]
    places: list[Place]

    def title(self, place: Place) -> str:
        """What stands above a map."""
        return f"{self.maps.layers[place.layer]}, {self.maps.heads[place.head]}"


@dataclasses.dataclass(frozen=True)
class GridLayout:
    """All kinds of a grid, one below the other, from the origin to its width and height."""

    cell: int
    font: int
    kinds: list[KindLayout]
    width: float
    height: float


def grid_layout(grid: AttentionGrid) -> GridLayout:
    """Arranges the heat maps of a grid: tokens are labelled once a column of maps and once a row of maps."""
    widest = max(len(kind.heads) * len(kind.source_tokens) for kind in grid.kinds)
    cell = max(_SMALLEST_CELL, min(_LARGEST_CELL, _IDEAL_WIDTH // widest))
    font = max(9, round(0.68 * cell))
    rows = [[label(token) for token in kind.target_tokens] for kind in grid.kinds]
    left = round(font * max(width(text) for each in rows for text in each)) + GAP + font // 2
    right = y = 0.0
    kinds = []
    for kind, shown in zip(grid.kinds, rows, strict=True):
        columns = [label(token) for token in kind.source_tokens]
        # Side by side, slanted labels would reach into the next map.
        angles = [90 if angle else 0 for angle in turns(columns, room=cell / font)]
        above = round(font * (rise(columns, angles) + 0.6)) + GAP
        titles = [f"{layer}, {head}" for layer in kind.layers for head in kind.heads]
        across, down = len(kind.source_tokens) * cell, len(kind.target_tokens) * cell
        step = max(across, *(TITLE_FONT * width(title) for title in titles)) + _BETWEEN
        heading = y + HEADING_FONT
        y = heading + 10
        places = []
        for layer in range(len(kind.layers)):
            title = y + TITLE_FONT
            y = title + (above if layer == 0 else 6)
            for head in range(len(kind.heads)):
                places.append(Place(layer, head, left + head * step, y, head == 0, layer == 0, title))
            y += down + _BELOW
        y += _BETWEEN_KINDS
        right = max(right, left + len(kind.heads) * step - _BETWEEN, left + HEADING_FONT * width(kind.title))
        kinds.append(KindLayout(kind, heading, shown, columns, angles, places))
    return GridLayout(cell, font, kinds, round(right + 2 + font / 2), round(y - _BETWEEN_KINDS))


def spoken(grid: AttentionGrid) -> str:
    """Says in a sentence what a picture shows, for those who do not see it."""
    kinds = "; ".join(
        f"{kind.title}, {len(kind.layers)} layers of {len(kind.heads)} heat maps, each of "
        f"{len(kind.target_tokens)} rows and {len(kind.source_tokens)} columns"
        for kind in grid.kinds
    )
    name = f"{grid.title}: " if grid.title else ""
    return f"{name}attention weights from {grid.source_text} to {grid.target_text}: {kinds}"
