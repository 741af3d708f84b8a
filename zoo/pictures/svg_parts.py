"""What all pictures in SVG are made of: colours, labels, hairlines and the scale of the weights."""

import html

from zoo.pictures.labels import describe, is_right_to_left, readable

GAP = 9  # between the labels and the map: marks below the line, as in Khmer or Myanmar, need the room
LEGEND_WIDTH, LEGEND_HEIGHT = 300, 40

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


def opening(spoken: str, font: int, width: float, height: float, alone: bool, margin: int = 0) -> str:
    """What a picture begins with: the element itself, and if it stands `alone` the style sheet and the background.

    Args:
        spoken: what the picture shows, in a sentence.
        font: the size of labels, in pixels.
        width: of the whole picture, its margins included.
        height: likewise.
        alone: whether there is no page around it.
        margin: how far left of the origin and above it the picture begins.
    """
    element = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="alignment" role="img" aria-label="{markup(spoken)}" '
        f'font-size="{font}" width="{width}" height="{height}" viewBox="{-margin} {-margin} {width} {height}">'
    )
    if not alone:
        return element
    corner = f' x="{-margin}" y="{-margin}"' if margin else ""
    return f'{element}\n<style>{STYLE}</style><rect{corner} width="100%" height="100%" fill="var(--paper)"/>'


def legend(vmax: float, top: float) -> str:
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


def grid_lines(targets: int, sources: int, cell: int) -> str:
    """The path of the hairlines between the cells."""
    across, down = sources * cell, targets * cell
    rows = "".join(f"M0 {row * cell}H{across}" for row in range(1, targets))
    return rows + "".join(f"M{column * cell} 0V{down}" for column in range(1, sources))


def frame(targets: int, sources: int, cell: int) -> str:
    """Draws the border of a map."""
    return f'<path class="frame" d="M0 0H{sources * cell}V{targets * cell}H0Z"/>'


def source_labels(tokens: list[str], shown: list[str], angles: list[int], cell: int, gap: int = GAP) -> str:
    """Draws the labels above the columns of a map."""
    labels = []
    for column, (token, text, angle) in enumerate(zip(tokens, shown, angles, strict=True)):
        place = f'x="{(column + 0.5) * cell:g}" y="{-gap}"'
        if angle:
            turn = f"translate({(column + 0.5) * cell:g} {-gap}) rotate({-angle})"
            place = f'class="turned" transform="{turn}" dy="0.35em"'
        labels.append(_text(place, token, text))
    return f'<g class="source">{"".join(labels)}</g>'


def target_labels(tokens: list[str], shown: list[str], cell: int, gap: int = GAP) -> str:
    """Draws the labels beside the rows of a map."""
    labels = (
        _text(f'x="{-gap}" y="{(row + 0.5) * cell:g}" dy="0.35em"', token, text)
        for row, (token, text) in enumerate(zip(tokens, shown, strict=True))
    )
    return f'<g class="target">{"".join(labels)}</g>'


def _text(place: str, token: str, shown: str) -> str:
    # First-strong isolation (U+2068, U+2069) lets a right-to-left label of several letters order itself, while the
    # text element around it stays left-to-right, so that its anchor means the same for every script.
    isolated = f"\u2068{shown}\u2069" if len(shown) > 1 and is_right_to_left(shown) else shown
    return f"<text {place}>{escape(isolated)}<title>{escape(describe(token))}</title></text>"


def markup(text: str) -> str:
    """Running text as it stands in markup, see `readable`."""
    return escape(readable(text))


def escape(text: str) -> str:
    """A label as it stands in markup."""
    return html.escape(text, quote=True)
