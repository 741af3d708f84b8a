"""Attention as one HTML page: no script, nothing loaded from elsewhere, fonts and shaping left to the browser."""

from collections.abc import Iterable

from zoo.pictures.alignment import Alignment, Picture, as_list, check_drawing, is_of_one_text, notes
from zoo.pictures.labels import is_right_to_left
from zoo.pictures.svg import STYLE, legend, markup, svg

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

_MORE_INK = "the darker a cell (in dark mode, the brighter), the larger its attention weight"
_OF_TWO_TEXTS = f"A row is an output token, a column a source token; {_MORE_INK}."
_OF_ONE_TEXT = f"A row is a token, a column a token that it attends to; {_MORE_INK}."
_OF_A_GRID = f"Each map is one head of one layer. A row is a token, a column a token that it attends to; {_MORE_INK}."
_DETAILS = " Point at a cell or a label for details."
_RIGHT_TO_LEFT = (
    "The source is written from right to left. Its columns keep the order in which the model reads it: "
    "the first character is the leftmost column."
)


def to_html(
    alignments: Picture | Iterable[Picture],
    title: str = "Attention",
    columns: int = 1,
    vmax: float = 1.0,
) -> str:
    """Draws alignments, or grids of layers and heads, as a page of one file, in light and in dark mode.

    Above each heat map stand the whole source and output as running text, which the browser shapes and directs; the
    map labels single tokens. If all pictures have the same texts, as the heads of a model do, these stand once at the
    top. Cells below half a percent of full ink are left out.

    Args:
        alignments: one or several alignments, or grids of heads.
        title: the heading of the page.
        columns: how many pictures stand side by side. With 1, every picture has its full size and scrolls if it is too
            wide; with more, pictures shrink to fit.
        vmax: the weight drawn in full ink, above 0 and at most 1; larger weights look the same.

    Returns:
        The page, to be written as UTF-8.

    Raises:
        ValueError: there is nothing to draw, or `columns` or `vmax` is out of range.

    References:
        Bahdanau et al. (2014), Neural Machine Translation by Jointly Learning to Align and Translate, figure 3.
    """
    pictures = as_list(alignments)
    check_drawing(columns, vmax)
    layout = f"main {{ grid-template-columns: repeat({columns}, minmax(0, 1fr)); }}"
    if columns > 1:
        layout += "\n.map svg { max-width: 100%; height: auto; }"
    shared = len({(picture.source_text, picture.target_text) for picture in pictures}) == 1
    figures = "\n".join(_figure(picture, vmax, with_texts=not shared) for picture in pictures)
    if isinstance(pictures[0], Alignment):
        how_to_read = (_OF_ONE_TEXT if all(map(is_of_one_text, pictures)) else _OF_TWO_TEXTS) + _DETAILS
    else:
        how_to_read = _OF_A_GRID
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
{_texts(pictures[0]) if shared else ""}
<main>
{figures}
</main>
</body>
</html>
"""


def _texts(picture: Picture) -> str:
    # lang="" says that the language is unknown: the page's English must not choose the glyphs of Chinese or Japanese.
    texts = {"source →": picture.source_text, "output ↓": picture.target_text}
    if is_of_one_text(picture):
        texts = {"text": picture.source_text}
    rows = (f'<dt>{name}</dt><dd dir="auto" lang="">{markup(text)}</dd>' for name, text in texts.items())
    return "\n".join(["<dl>", *rows, "</dl>"])


def _figure(picture: Picture, vmax: float, with_texts: bool) -> str:
    heading = f'<h2 dir="auto" lang="">{markup(picture.title)}</h2>\n' if picture.title else ""
    below = [*notes(picture), *([_RIGHT_TO_LEFT] if is_right_to_left(picture.source_text) else [])]
    caption = "\n".join(f'<p class="quiet" dir="auto">{markup(note)}</p>' for note in below)
    return f"""\
<figure>
{heading}{_texts(picture) if with_texts else ""}
<div class="map" tabindex="0" role="group" aria-label="Heat map">
{svg(picture, vmax, standalone=False)}
</div>
<figcaption>{caption}</figcaption>
</figure>"""
