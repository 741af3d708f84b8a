"""One alignment as SVG: the source across the top, the target down the left, a cell's strength its weight.

The columns keep the order in which the model reads, also for right-to-left scripts: position j is always the j-th from
the left, a monotone alignment always runs down the diagonal, and the digits of an Arabic or Hebrew date, which are
written from left to right, stay readable. Mirroring the columns would spell those numbers backwards.

Ink stands for weight: black on white in light mode and white on black, as in the paper, in dark mode.
"""

import numpy as np

from zoo.pictures.alignment import Alignment, check_drawing
from zoo.pictures.drawable import Drawable
from zoo.pictures.grid_svg import grid_svg
from zoo.pictures.labels import label, rise, turns, width
from zoo.pictures.svg_parts import (
    GAP,
    LEGEND_HEIGHT,
    LEGEND_WIDTH,
    escape,
    frame,
    grid_lines,
    legend,
    opening,
    source_labels,
    target_labels,
)

# A cell fainter than this share of full ink cannot be told from the background: leaving it out keeps files small.
_FAINTEST = 0.005
# Long sources shrink their cells to about this many pixels across, within what can still be read.
_IDEAL_WIDTH, _SMALLEST_CELL, _LARGEST_CELL = 1040, 15, 26


def to_svg(alignment: Drawable, vmax: float = 1.0) -> str:
    """Draws one alignment, or one grid of many heads, as an SVG document that stands alone.

    Args:
        alignment: what to draw, an `Alignment` or an `AttentionGrid`.
        vmax: the weight drawn in full ink, above 0 and at most 1; anything above it looks the same. Lower it for
            heads that spread over a long source.

    Returns:
        The document, with a colour legend and no reference to anything outside it.

    Raises:
        ValueError: `vmax` is out of range.
    """
    check_drawing(columns=1, vmax=vmax)
    return drawn(alignment, vmax, alone=True)


def drawn(alignment: Drawable, vmax: float, alone: bool) -> str:
    """Draws what can be drawn, see `svg` and `grid_svg`."""
    if isinstance(alignment, Alignment):
        return svg(alignment, vmax, alone)
    return grid_svg(alignment, vmax, alone)


def svg(alignment: Alignment, vmax: float, alone: bool) -> str:
    """Draws one alignment; `alone` adds the style sheet, the background and the legend that a page has once."""
    targets, sources = alignment.weights.shape
    cell = max(_SMALLEST_CELL, min(_LARGEST_CELL, _IDEAL_WIDTH // sources))
    font = max(10, round(0.65 * cell))
    rows = [label(token) for token in alignment.target_tokens]
    columns = [label(token) for token in alignment.source_tokens]
    angles = turns(columns, room=cell / font)
    height = rise(columns, angles)
    left = round(font * max(map(width, rows))) + GAP + font // 2
    top = round(font * (height + 0.5)) + GAP
    overhang = round(font * (height if 45 in angles else 0.5))
    across, down = sources * cell, targets * cell
    full_width, full_height = left + across + overhang, top + down + 4
    if alone:
        full_width, full_height = max(full_width, left + LEGEND_WIDTH), full_height + LEGEND_HEIGHT
    parts = [
        opening(_spoken(alignment), font, full_width, full_height, alone),
        f'<g transform="translate({left} {top})">',
        f'<path class="grid" d="{grid_lines(targets, sources, cell)}"/>',
        f'<g class="cells">{_cells(alignment.weights / vmax, rows, columns, cell, vmax)}</g>',
        frame(targets, sources, cell),
        source_labels(alignment.source_tokens, columns, angles, cell),
        target_labels(alignment.target_tokens, rows, cell),
        legend(vmax, down + 16) if alone else "",
        "</g></svg>",
    ]
    return "\n".join(part for part in parts if part)


def _spoken(alignment: Alignment) -> str:
    """Says in a sentence what a picture shows, for those who do not see it."""
    targets, sources = alignment.weights.shape
    name = f"{alignment.title}: " if alignment.title else ""
    return (
        f"{name}attention weights of {targets} output tokens (rows) over {sources} source tokens (columns), "
        f"from {alignment.source_text} to {alignment.target_text}"
    )


def _cells(ink: np.ndarray, rows: list[str], columns: list[str], cell: int, vmax: float) -> str:
    cells = []
    for row, column in zip(*np.nonzero(ink >= _FAINTEST), strict=True):
        share = ink[row, column]
        tip = f"source {column + 1}: {columns[column]}\noutput {row + 1}: {rows[row]}\nweight {share * vmax:.3f}"
        cells.append(
            f'<rect x="{column * cell}" y="{row * cell}" width="{cell}" height="{cell}" '
            f'fill-opacity="{min(share, 1):.3g}"><title>{escape(tip)}</title></rect>'
        )
    return "".join(cells)
