"""Attention as SVG: the source across the top, the target down the left, a cell as strong as its weight.

The columns keep the order in which the model reads, also for right-to-left scripts: position j is always the j-th from
the left, a monotone alignment always runs down the diagonal, and the digits of an Arabic or Hebrew date, which are
written from left to right, stay readable. Mirroring the columns would spell those numbers backwards.

Ink stands for weight: black on white in light mode and white on black, as in the paper, in dark mode.
"""

import html

import numpy as np

from zoo.pictures.alignment import Picture, check_drawing, notes
from zoo.pictures.drawing import DARK, LIGHT, ink_of
from zoo.pictures.labels import describe, is_right_to_left, label, readable, width
from zoo.pictures.layout import GAP, HEADING_FONT, TITLE_FONT, Map, arrange, spoken

_MARGIN, _LEGEND_WIDTH, _LEGEND_HEIGHT = 10, 300, 40
_PICTURE_TITLE_FONT, _TITLE_HEIGHT, _NOTE_HEIGHT = 16, 26, 22


def _properties(colours: dict[str, str]) -> str:
    return ";".join(f"--{name}:{colours[name]}" for name in ("paper", "ink", "text", "quiet", "line", "frame"))


_STYLE = f"""\
:root {{ color-scheme: light dark; {_properties(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_properties(DARK)} }} }}
.alignment {{ font-family: system-ui, sans-serif; fill: var(--text); }}
.alignment .quiet {{ fill: var(--quiet); }}
.alignment .grid {{ fill: none; stroke: var(--line); }}
.alignment .frame {{ fill: none; stroke: var(--frame); }}
.alignment .inks, .alignment .legend {{ fill: var(--ink); }}
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
        The document, with the picture's title, a colour legend and the picture's notes below it, and no reference to
        anything outside it.

    Raises:
        ValueError: `vmax` is out of range.
    """
    check_drawing(columns=1, vmax=vmax)
    layout = arrange(alignment)
    # The title stands above y = 0, where the maps begin.
    texts = [(_PICTURE_TITLE_FONT, -10.0, alignment.title)] if alignment.title else []
    top = -_TITLE_HEIGHT * len(texts) - _MARGIN
    foot = layout.height + _LEGEND_HEIGHT
    texts += [(TITLE_FONT, foot + _NOTE_HEIGHT * (n + 0.7), note) for n, note in enumerate(notes(alignment))]
    across = max(layout.width, _LEGEND_WIDTH, *(font * width(text) for font, _, text in texts)) + 2 * _MARGIN
    down = foot + _NOTE_HEIGHT * len(notes(alignment)) - top + _MARGIN
    written = [f'<text x="0" y="{y:g}" font-size="{font}">{_markup(text)}</text>' for font, y, text in texts]
    headings = [
        f'<text x="0" y="{baseline:g}" font-size="{HEADING_FONT}" font-weight="600">{_markup(heading)}</text>'
        for heading, baseline in layout.headings
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="alignment" role="img" '
        f'aria-label="{_markup(spoken(alignment))}" font-size="{layout.font}" width="{across:g}" height="{down:g}" '
        f'viewBox="{-_MARGIN} {top:g} {across:g} {down:g}">',
        f'<style>{_STYLE}</style><rect x="{-_MARGIN}" y="{top:g}" width="100%" height="100%" fill="var(--paper)"/>',
        *(*written, *headings, *(_map(each, layout.cell, vmax) for each in layout.maps)),
        _legend(vmax, layout.height + 14),
        "</svg>",
    ]
    return "\n".join(parts)


def _legend(vmax: float, top: float) -> str:
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


def _markup(text: str) -> str:
    """Running text as it stands in markup, see `readable`."""
    return html.escape(readable(text))


def _map(drawn: Map, cell: int, vmax: float) -> str:
    targets, sources = drawn.weights.shape
    across, down = sources * cell, targets * cell
    lines = "".join(f"M0 {row * cell}H{across}" for row in range(1, targets))
    lines += "".join(f"M{column * cell} 0V{down}" for column in range(1, sources))
    title = f'<text class="quiet" x="0" y="{drawn.title_baseline - drawn.top:g}" font-size="{TITLE_FONT}">'
    parts = [
        f'<g transform="translate({drawn.left:g} {drawn.top:g})">',
        f"{title}{_markup(drawn.title)}</text>" if drawn.title else "",
        f'<path class="grid" stroke-width="0.5" d="{lines}"/>' if lines else "",
        f'<g class="inks">{_inks(ink_of(drawn.weights, vmax), cell)}</g>',
        f'<path class="frame" d="M0 0H{across}V{down}H0Z"/>',
        _source_labels(drawn, cell),
        _target_labels(drawn, cell),
        "</g>",
    ]
    return "".join(parts)


def _inks(inks: np.ndarray, cell: int) -> str:
    """A path for each ink, of runs of cells: one for each cell would be megabytes for a model of many heads."""
    shapes: dict[float, list[str]] = {}
    for row, of_row in enumerate(inks):
        ends = [*np.flatnonzero(np.diff(of_row)) + 1, len(of_row)]
        for begin, end in zip([0, *ends], ends, strict=False):
            shape = f"M{begin * cell} {row * cell}h{(end - begin) * cell}v{cell}H{begin * cell}z"
            shapes.setdefault(float(of_row[begin]), []).append(shape)
    return "".join(f'<path fill-opacity="{ink:g}" d="{"".join(runs)}"/>' for ink, runs in sorted(shapes.items()) if ink)


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
