"""One alignment as SVG: the source across the top, the target down the left, a cell's strength its weight.

The columns keep the order in which the model reads, also for right-to-left scripts: position j is always the j-th from
the left, a monotone alignment always runs down the diagonal, and the digits of an Arabic or Hebrew date, which are
written from left to right, stay readable. Mirroring the columns would spell those numbers backwards.

Ink stands for weight: black on white in light mode and white on black, as in the paper, in dark mode.
"""

import html

import numpy as np

from zoo.pictures.alignment import Alignment, check_drawing
from zoo.pictures.labels import describe, is_right_to_left, label, readable, rise, turns, width

# A cell fainter than this share of full ink cannot be told from the background: leaving it out keeps files small.
FAINTEST = 0.005
# Long sources shrink their cells to about this many pixels across, within what can still be read.
_IDEAL_WIDTH, _SMALLEST_CELL, _LARGEST_CELL = 1040, 15, 26
_GAP = 9  # between the labels and the map: marks below the line, as in Khmer or Myanmar, need the room
_LEGEND_WIDTH, _LEGEND_HEIGHT = 300, 40

LIGHT = "--paper:#fff;--ink:#000;--text:#1c1c1e;--quiet:#63636b;--line:#dcdce0;--frame:#8e8e96;--accent:#d9480f"
DARK = "--paper:#111113;--ink:#fff;--text:#ececf0;--quiet:#a0a0aa;--line:#303036;--frame:#77777f;--accent:#ff8c42"
STYLE = f"""\
:root {{ color-scheme: light dark; {LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}
.alignment {{ font-family: system-ui, sans-serif; fill: var(--text); }}
.alignment .quiet {{ fill: var(--quiet); }}
.alignment .grid {{ fill: none; stroke: var(--line); }}
.alignment .frame {{ fill: none; stroke: var(--frame); }}
.alignment .cells, .alignment .legend {{ fill: var(--ink); }}
.alignment .cells rect:hover {{ stroke: var(--accent); stroke-width: 2; }}
.alignment .source {{ text-anchor: middle; }}
.alignment .source .turned {{ text-anchor: start; }}
.alignment .target {{ text-anchor: end; }}"""


def to_svg(alignment: Alignment, vmax: float = 1.0) -> str:
    """Draws one alignment as an SVG document that stands alone.

    Args:
        alignment: What to draw, with weights of shape [T, S].
        vmax: The weight drawn in full ink, above 0 and at most 1; anything above it looks the same. Lower it for
            heads that spread over a long source.

    Returns:
        The document, with a colour legend and no reference to anything outside it.

    Raises:
        ValueError: If `vmax` is out of range.
    """
    check_drawing(columns=1, vmax=vmax)
    return svg(alignment, vmax, alone=True)


def svg(alignment: Alignment, vmax: float, alone: bool) -> str:
    """Draws one alignment; `alone` adds the style sheet, the background and the legend that a page has once."""
    targets, sources = alignment.weights.shape
    cell = max(_SMALLEST_CELL, min(_LARGEST_CELL, _IDEAL_WIDTH // sources))
    font = max(10, round(0.65 * cell))
    rows = [label(token) for token in alignment.target_tokens]
    columns = [label(token) for token in alignment.source_tokens]
    angles = turns(columns, room=cell / font)
    height = rise(columns, angles)
    left = round(font * max(map(width, rows))) + _GAP + font // 2
    top = round(font * (height + 0.5)) + _GAP
    overhang = round(font * (height if 45 in angles else 0.5))
    across, down = sources * cell, targets * cell
    full_width, full_height = left + across + overhang, top + down + 4
    if alone:
        full_width, full_height = max(full_width, left + _LEGEND_WIDTH), full_height + _LEGEND_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="alignment" role="img" '
        f'aria-label="{_escape(_spoken(alignment))}" font-size="{font}" '
        f'width="{full_width}" height="{full_height}" viewBox="0 0 {full_width} {full_height}">',
        f'<style>{STYLE}</style><rect width="100%" height="100%" fill="var(--paper)"/>' if alone else "",
        f'<g transform="translate({left} {top})">',
        f'<path class="grid" d="{_grid(targets, sources, cell)}"/>',
        f'<g class="cells">{_cells(alignment.weights / vmax, rows, columns, cell, vmax)}</g>',
        f'<path class="frame" d="M0 0H{across}V{down}H0Z"/>',
        f'<g class="source">{_source_labels(alignment.source_tokens, columns, angles, cell)}</g>',
        f'<g class="target">{_target_labels(alignment.target_tokens, rows, cell)}</g>',
        legend(vmax, down + 16) if alone else "",
        "</g></svg>",
    ]
    return "\n".join(part for part in parts if part)


def legend(vmax: float, top: int) -> str:
    """Draws the scale of the weights: a strip from no ink at 0 to full ink at `vmax`."""
    strip = "".join(
        f'<rect x="{16 + 12 * step}" y="{top}" width="12" height="12" fill-opacity="{step / 10:g}"/>'
        for step in range(11)
    )
    above = "" if vmax == 1 else "≥ "
    return (
        f'<g class="legend">{strip}<path class="frame" d="M16 {top}h132v12h-132Z"/></g>'
        f'<g class="quiet" font-size="12"><text x="0" y="{top + 10.5}">0</text>'
        f'<text x="156" y="{top + 10.5}">{above}{vmax:g}  attention weight</text></g>'
    )


def _spoken(alignment: Alignment) -> str:
    """Says in a sentence what a picture shows, for those who do not see it."""
    targets, sources = alignment.weights.shape
    name = f"{alignment.title}: " if alignment.title else ""
    return readable(
        f"{name}attention weights of {targets} output tokens (rows) over {sources} source tokens (columns), "
        f"from {alignment.source_text} to {alignment.target_text}"
    )


def _grid(targets: int, sources: int, cell: int) -> str:
    across, down = sources * cell, targets * cell
    rows = "".join(f"M0 {row * cell}H{across}" for row in range(1, targets))
    return rows + "".join(f"M{column * cell} 0V{down}" for column in range(1, sources))


def _cells(ink: np.ndarray, rows: list[str], columns: list[str], cell: int, vmax: float) -> str:
    cells = []
    for row, column in zip(*np.nonzero(ink >= FAINTEST), strict=True):
        share = ink[row, column]
        tip = f"source {column + 1}: {columns[column]}\noutput {row + 1}: {rows[row]}\nweight {share * vmax:.3f}"
        cells.append(
            f'<rect x="{column * cell}" y="{row * cell}" width="{cell}" height="{cell}" '
            f'fill-opacity="{min(share, 1):.3g}"><title>{_escape(tip)}</title></rect>'
        )
    return "".join(cells)


def _source_labels(tokens: list[str], shown: list[str], angles: list[int], cell: int) -> str:
    labels = []
    for column, (token, text, angle) in enumerate(zip(tokens, shown, angles, strict=True)):
        place = f'x="{(column + 0.5) * cell:g}" y="{-_GAP}"'
        if angle:
            turn = f"translate({(column + 0.5) * cell:g} {-_GAP}) rotate({-angle})"
            place = f'class="turned" transform="{turn}" dy="0.35em"'
        labels.append(_text(place, token, text))
    return "".join(labels)


def _target_labels(tokens: list[str], shown: list[str], cell: int) -> str:
    return "".join(
        _text(f'x="{-_GAP}" y="{(row + 0.5) * cell:g}" dy="0.35em"', token, text)
        for row, (token, text) in enumerate(zip(tokens, shown, strict=True))
    )


def _text(place: str, token: str, shown: str) -> str:
    # First-strong isolation (U+2068, U+2069) lets a right-to-left label of several letters order itself, while the
    # text element around it stays left-to-right, so that its anchor means the same for every script.
    isolated = f"\u2068{shown}\u2069" if len(shown) > 1 and is_right_to_left(shown) else shown
    return f"<text {place}>{_escape(isolated)}<title>{_escape(describe(token))}</title></text>"


def _escape(text: str) -> str:
    return html.escape(text, quote=True)
