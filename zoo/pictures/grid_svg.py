"""The attention of many layers and heads as SVG: one small heat map each, with the same tokens beside and above all."""

import numpy as np

from zoo.pictures.grid import AttentionGrid
from zoo.pictures.grid_layout import GAP, HEADING_FONT, TITLE_FONT, GridLayout, KindLayout, grid_layout, spoken
from zoo.pictures.svg_parts import (
    LEGEND_HEIGHT,
    LEGEND_WIDTH,
    frame,
    grid_lines,
    legend,
    markup,
    opening,
    source_labels,
    target_labels,
)

# Cells of one map with about the same ink are one shape, since a grid has very many cells; so many inks there are.
_INKS = 40
_MARGIN = 10  # around a picture that stands alone


def grid_svg(grid: AttentionGrid, vmax: float, alone: bool) -> str:
    """Draws a grid; `alone` adds the style sheet, the background and the legend that a page has once."""
    layout = grid_layout(grid)
    across, down, margin = layout.width, layout.height, 0
    if alone:
        margin = _MARGIN
        across, down = max(across, LEGEND_WIDTH) + 2 * margin, down + LEGEND_HEIGHT + 2 * margin
    parts = [
        opening(spoken(grid), layout.font, across, down, alone, margin),
        *(_kind(kind, layout, vmax) for kind in layout.kinds),
        legend(vmax, layout.height + 14) if alone else "",
        "</svg>",
    ]
    return "\n".join(part for part in parts if part)


def _kind(kind: KindLayout, layout: GridLayout, vmax: float) -> str:
    heading = (
        f'<text x="0" y="{kind.heading_baseline:g}" font-size="{HEADING_FONT}" font-weight="600">'
        f"{markup(kind.maps.title)}</text>"
    )
    return "\n".join([heading, *(_map(kind, place, layout, vmax) for place in kind.places)])


def _map(kind: KindLayout, place, layout: GridLayout, vmax: float) -> str:
    weights = kind.maps.weights[place.layer, place.head]
    (targets, sources), cell, title = weights.shape, layout.cell, markup(kind.title(place))
    above, beside = "", ""
    if place.labels_above:
        above = source_labels(kind.maps.source_tokens, kind.columns, kind.angles, cell, GAP)
    if place.labels_beside:
        beside = target_labels(kind.maps.target_tokens, kind.rows, cell, GAP)
    return (
        f'<g transform="translate({place.left:g} {place.top:g})">'
        f'<text class="quiet" x="0" y="{place.title_baseline - place.top:g}" font-size="{TITLE_FONT}">{title}</text>'
        f'<path class="grid" stroke-width="0.5" d="{grid_lines(targets, sources, cell)}"/>'
        f'<g class="inks">{_inks(weights / vmax, cell)}</g>'
        f"{frame(targets, sources, cell)}{above}{beside}</g>"
    )


def _inks(ink: np.ndarray, cell: int) -> str:
    """A path for each ink, of squares and of runs of them."""
    levels = np.minimum(np.rint(ink * _INKS), _INKS).astype(int)
    shapes: dict[int, list[str]] = {}
    for row, of_row in enumerate(levels):
        ends = [*np.flatnonzero(np.diff(of_row)) + 1, len(of_row)]
        for begin, end in zip([0, *ends], ends, strict=False):
            shape = f"M{begin * cell} {row * cell}h{(end - begin) * cell}v{cell}H{begin * cell}z"
            shapes.setdefault(int(of_row[begin]), []).append(shape)
    return "".join(
        f'<path fill-opacity="{level / _INKS:g}" d="{"".join(each)}"/>'
        for level, each in sorted(shapes.items())
        if level
    )
