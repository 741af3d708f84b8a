"""Attention as SVG: the source across the top, the target down the left, a cell as strong as its weight.

The columns keep the order in which the model reads, also for right-to-left scripts: position j is always the j-th from
the left, a monotone alignment always runs down the diagonal, and the digits of an Arabic or Hebrew date, which are
written from left to right, stay readable. Mirroring the columns would spell those numbers backwards.

Ink stands for weight: black on white in light mode and white on black, as in the paper, in dark mode.
"""

import html

import numpy as np

from zoo.pictures.alignment import Alignment, Picture, check_drawing, is_of_one_text
from zoo.pictures.labels import describe, is_right_to_left, label, readable
from zoo.pictures.layout import GAP, HEADING_FONT, TITLE_FONT, Map, arrange, spoken

# A cell fainter than this share of full ink cannot be told from the background: leaving it out keeps files small.
_FAINTEST = 0.005
# A grid has very many cells. Cells of one map with about the same ink are one path, of at most this many inks.
_INKS = 40
_MARGIN, _LEGEND_WIDTH, _LEGEND_HEIGHT = 10, 300, 40

_LIGHT = "--paper:#fff;--ink:#000;--text:#1c1c1e;--quiet:#63636b;--line:#dcdce0;--frame:#8e8e96;--accent:#d9480f"
_DARK = "--paper:#111113;--ink:#fff;--text:#ececf0;--quiet:#a0a0aa;--line:#303036;--frame:#77777f;--accent:#ff8c42"
STYLE = f"""\
:root {{ color-scheme: light dark; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
.alignment {{ font-family: system-ui, sans-serif; fill: var(--text); }}
.alignment .quiet {{ fill: var(--quiet); }}
.alignment .grid {{ fill: none; stroke: var(--line); }}
.alignment .frame {{ fill: none; stroke: var(--frame); }}
.alignment .cells, .alignment .inks, .alignment .legend {{ fill: var(--ink); }}
.alignment .cells rect:hover {{ stroke: var(--accent); stroke-width: 2; }}
.alignment .source {{ text-anchor: middle; }}
.alignment .source .turned {{ text-anchor: start; }}
.alignment .target {{ text-anchor: end; }}"""


def to_svg(alignment: Picture, vmax: float = 1.0) -> str:
    """Draws one alignment, or one grid of layers and heads, as an SVG document.

    Args:
        alignment: an `Alignment` or an `AttentionGrid`.
        vmax: the weight drawn in full ink, above 0 and at most 1; larger weights look the same. Lower it for heads
            that spread over a long source.

    Returns:
        The document, with a colour legend and no reference to anything outside it.

    Raises:
        ValueError: `vmax` is out of range.
    """
    check_drawing(columns=1, vmax=vmax)
    return svg(alignment, vmax, standalone=True)


def svg(picture: Picture, vmax: float, standalone: bool) -> str:
    """Draws a picture; `standalone` adds the style sheet, the background and the legend, which a page has once."""
    layout = arrange(picture)
    across, down, margin = layout.width, layout.height, 0
    background = key = ""
    if standalone:
        margin = _MARGIN
        across, down = max(across, _LEGEND_WIDTH) + 2 * margin, down + _LEGEND_HEIGHT + 2 * margin
        background = (
            f'<style>{STYLE}</style><rect x="{-margin}" y="{-margin}" width="100%" height="100%" fill="var(--paper)"/>'
        )
        key = legend(vmax, layout.height + 14)
    headings = [
        f'<text x="0" y="{baseline:g}" font-size="{HEADING_FONT}" font-weight="600">{markup(heading)}</text>'
        for heading, baseline in layout.headings
    ]
    sides = ("column", "row") if is_of_one_text(picture) else ("source", "output")
    # Only a single map has a tooltip for each cell: in a grid of a hundred maps they would be megabytes.
    details = sides if isinstance(picture, Alignment) else None
    maps = [_map(each, layout.cell, vmax, details) for each in layout.maps]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="alignment" role="img" aria-label="{markup(spoken(picture))}" '
        f'font-size="{layout.font}" width="{across:g}" height="{down:g}" '
        f'viewBox="{-margin} {-margin} {across:g} {down:g}">',
        *(background, *headings, *maps, key, "</svg>"),
    ]
    return "\n".join(part for part in parts if part)


def legend(vmax: float, top: float) -> str:
    """Draws the scale of the weights: a strip from no ink at 0 to full ink at `vmax`."""
    strip = "".join(
        f'<rect x="{16 + 12 * step}" y="{top:g}" width="12" height="12" fill-opacity="{step / 10:g}"/>'
        for step in range(11)
    )
    above = "" if vmax == 1 else "≥ "
    return (
        f'<g class="legend">{strip}<path class="frame" d="M16 {top:g}h132v12h-132Z"/></g>'
        f'<g class="quiet" font-size="12"><text x="0" y="{top + 10.5:g}">0</text>'
        f'<text x="156" y="{top + 10.5:g}">{above}{vmax:g}  attention weight</text></g>'
    )


def markup(text: str) -> str:
    """Running text as it stands in markup, see `readable`."""
    return html.escape(readable(text))


def _map(drawn: Map, cell: int, vmax: float, details: tuple[str, str] | None) -> str:
    targets, sources = drawn.weights.shape
    across, down = sources * cell, targets * cell
    lines = "".join(f"M0 {row * cell}H{across}" for row in range(1, targets))
    lines += "".join(f"M{column * cell} 0V{down}" for column in range(1, sources))
    ink = drawn.weights / vmax
    title = f'<text class="quiet" x="0" y="{drawn.title_baseline - drawn.top:g}" font-size="{TITLE_FONT}">'
    parts = [
        f'<g transform="translate({drawn.left:g} {drawn.top:g})">',
        f"{title}{markup(drawn.title)}</text>" if drawn.title else "",
        f'<path class="grid" stroke-width="0.5" d="{lines}"/>' if lines else "",
        f'<g class="cells">{_cells(ink, cell, drawn, details)}</g>' if details else "",
        "" if details else f'<g class="inks">{_inks(ink, cell)}</g>',
        f'<path class="frame" d="M0 0H{across}V{down}H0Z"/>',
        _source_labels(drawn, cell),
        _target_labels(drawn, cell),
        "</g>",
    ]
    return "".join(parts)


def _cells(ink: np.ndarray, cell: int, drawn: Map, details: tuple[str, str]) -> str:
    """A rectangle for every cell that can be seen, with a tooltip."""
    cells = []
    for row, column in zip(*np.nonzero(ink >= _FAINTEST), strict=True):
        tip = (
            f"{details[0]} {column + 1}: {label(drawn.source_tokens[column])}\n"
            f"{details[1]} {row + 1}: {label(drawn.target_tokens[row])}\nweight {drawn.weights[row, column]:.3f}"
        )
        cells.append(
            f'<rect x="{column * cell}" y="{row * cell}" width="{cell}" height="{cell}" '
            f'fill-opacity="{min(ink[row, column], 1):.3g}"><title>{html.escape(tip)}</title></rect>'
        )
    return "".join(cells)


def _inks(ink: np.ndarray, cell: int) -> str:
    """A path for each ink, of runs of cells."""
    levels = np.minimum(np.rint(ink * _INKS), _INKS).astype(int)
    shapes: dict[int, list[str]] = {}
    for row, of_row in enumerate(levels):
        ends = [*np.flatnonzero(np.diff(of_row)) + 1, len(of_row)]
        for begin, end in zip([0, *ends], ends, strict=False):
            shape = f"M{begin * cell} {row * cell}h{(end - begin) * cell}v{cell}H{begin * cell}z"
            shapes.setdefault(int(of_row[begin]), []).append(shape)
    return "".join(
        f'<path fill-opacity="{level / _INKS:g}" d="{"".join(runs)}"/>'
        for level, runs in sorted(shapes.items())
        if level
    )


def _source_labels(drawn: Map, cell: int) -> str:
    labels = []
    for column, (token, angle) in enumerate(zip(drawn.source_tokens, drawn.angles, strict=True)):
        middle = f"{(column + 0.5) * cell:g}"
        place = f'x="{middle}" y="{-GAP}"'
        if angle:
            place = f'class="turned" transform="translate({middle} {-GAP}) rotate({-angle})" dy="0.35em"'
        labels.append(_label(place, token))
    return f'<g class="source">{"".join(labels)}</g>'


def _target_labels(drawn: Map, cell: int) -> str:
    labels = (
        _label(f'x="{-GAP}" y="{(row + 0.5) * cell:g}" dy="0.35em"', token)
        for row, token in enumerate(drawn.target_tokens)
    )
    return f'<g class="target">{"".join(labels)}</g>' if drawn.target_tokens else ""


def _label(place: str, token: str) -> str:
    shown = label(token)
    # First-strong isolation (U+2068, U+2069) lets a right-to-left label of several letters order itself, while the
    # text element around it stays left-to-right, so that its anchor means the same for every script.
    isolated = f"\u2068{shown}\u2069" if len(shown) > 1 and is_right_to_left(shown) else shown
    return f"<text {place}>{html.escape(isolated)}<title>{html.escape(describe(token))}</title></text>"
