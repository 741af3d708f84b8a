"""Alignments as one HTML page: no script, nothing loaded from elsewhere, fonts and shaping left to the browser."""

from collections.abc import Iterable

from zoo.pictures.alignment import Alignment, check_drawing
from zoo.pictures.drawable import Drawable, as_list
from zoo.pictures.labels import is_right_to_left
from zoo.pictures.svg import drawn
from zoo.pictures.svg_parts import STYLE, legend, markup

_PAGE_STYLE = """\
body { margin: 0; padding: 2rem clamp(1rem, 4vw, 3rem) 4rem; background: var(--paper); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { margin: 0 0 .25rem; font-size: 1.6rem; line-height: 1.25; }
h2 { margin: 0 0 .5rem; font-size: 1.05rem; }
p { margin: 0; }
.quiet { color: var(--quiet); font-size: .875rem; max-width: 44rem; }
header { margin-bottom: 2.5rem; }
header svg { display: block; margin-top: .75rem; }
main { display: grid; gap: 3.5rem 2.5rem; align-items: start; }
body > dl { margin-bottom: 1.5rem; }
figure { margin: 0; min-width: 0; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 0 1rem; align-items: baseline; margin: 0; }
dt { color: var(--quiet); font-size: .875rem; }
dd { margin: 0; justify-self: start; font-size: 1.25rem; line-height: 1.7; }
dd { overflow-wrap: anywhere; white-space: pre-wrap; }
.map { overflow-x: auto; margin-top: .5rem; }
.map svg { display: block; }
figcaption { margin-top: .5rem; }"""

_HOW_TO_READ = (
    "A row is an output token, a column a source token; the more a cell stands out, the larger its attention weight. "
    "Point at a cell or a label for details."
)
_HOW_TO_READ_A_GRID = (
    "Each map is one head of one layer. A row is a token that attends, a column a token that is attended to; the more "
    "a cell stands out, the larger its attention weight."
)
_RIGHT_TO_LEFT = (
    "The source is written from right to left. Its columns keep the order in which the model reads it: "
    "the first character is the leftmost column."
)


def to_html(
    alignments: Drawable | Iterable[Drawable],
    title: str = "Attention",
    columns: int = 1,
    vmax: float = 1.0,
) -> str:
    """Draws alignments, or grids of many heads, as a page that needs nothing but itself, in light and in dark mode.

    Above each heat map stand the whole source and output as running text, which the browser shapes and directs; the
    map labels single tokens. If all alignments share their texts, as the heads of a model do, these stand once above
    them all. Cells below half a percent of full ink are left out.

    Args:
        alignments: one or several, or grids of heads.
        title: the heading of the page.
        columns: how many pictures stand side by side, for the layers and heads of a model. With one, every picture
            has its full size and scrolls if it is too wide; with more, pictures shrink to fit.
        vmax: the weight drawn in full ink, above 0 and at most 1; anything above it looks the same.

    Returns:
        The page, to be written as UTF-8.

    Raises:
        ValueError: there is nothing to draw, or `columns` or `vmax` is out of range.

    References:
        Bahdanau et al. (2014), Neural Machine Translation by Jointly Learning to Align and Translate, figure 3.
    """
    alignments = as_list(alignments)
    check_drawing(columns, vmax)
    layout = f"main {{ grid-template-columns: repeat({columns}, minmax(0, 1fr)); }}"
    if columns > 1:
        layout += "\n.map svg { max-width: 100%; height: auto; }"
    # The heads of a model share their texts, which then stand once, above them all.
    shared = len({(alignment.source_text, alignment.target_text) for alignment in alignments}) == 1
    how_to_read = _HOW_TO_READ if isinstance(alignments[0], Alignment) else _HOW_TO_READ_A_GRID
    figures = "\n".join(_figure(alignment, vmax, with_texts=not shared) for alignment in alignments)
    return f"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{markup(title)}</title>
<style>
{STYLE}
{_PAGE_STYLE}
{layout}
</style>
</head>
<body>
<header>
<h1 dir="auto">{markup(title)}</h1>
<p class="quiet">{how_to_read}</p>
<svg class="alignment" role="img" aria-label="Scale of the attention weights" width="320" height="20">\
{legend(vmax, 2)}</svg>
</header>
{_texts(alignments[0]) if shared else ""}
<main>
{figures}
</main>
</body>
</html>
"""


def _texts(alignment: Drawable) -> str:
    # lang="" says that the language is unknown: the page's English must not choose the glyphs of Chinese or Japanese.
    return f"""\
<dl>
<dt>source →</dt><dd dir="auto" lang="">{markup(alignment.source_text)}</dd>
<dt>output ↓</dt><dd dir="auto" lang="">{markup(alignment.target_text)}</dd>
</dl>"""


def _figure(alignment: Drawable, vmax: float, with_texts: bool) -> str:
    heading = f'<h2 dir="auto" lang="">{markup(alignment.title)}</h2>\n' if alignment.title else ""
    notes = "".join(
        f'<p class="quiet" dir="auto">{markup(note)}</p>\n'
        for note in (alignment.caption, _RIGHT_TO_LEFT if is_right_to_left(alignment.source_text) else None)
        if note
    )
    return f"""\
<figure>
{heading}{_texts(alignment) if with_texts else ""}
<div class="map" tabindex="0" role="group" aria-label="Heat map">
{drawn(alignment, vmax, alone=False)}
</div>
<figcaption>{notes}</figcaption>
</figure>"""
