"""Attention as one HTML page: the explorer with the answer inside. It works from a disk and asks nobody."""

import base64
import json
from collections.abc import Iterable
from typing import Any

from zoo.pictures.alignment import Picture, as_grid, as_list, check_drawing, is_of_one_text, notes
from zoo.pictures.drawing import PAGE
from zoo.pictures.labels import is_right_to_left
from zoo.pictures.layout import spoken

_PLACE = "<!-- The answer of a picture. -->"
_RIGHT_TO_LEFT = (
    "The {} is written from right to left. The columns of the map keep the order in which the model reads it: "
    "the first token is the leftmost column."
)


def to_html(
    alignments: Picture | Iterable[Picture],
    title: str = "Attention",
    columns: int = 1,
    vmax: float = 1.0,
) -> str:
    """Draws alignments, or grids of layers and heads, as a page of one file, in light and in dark mode.

    The page is the explorer of `zoo serve` with the weights inside. It shows the tokens as running text, with lines and
    ink from the one that is pointed at, the map of the weights, and a small map of each head to choose from.

    Args:
        alignments: one or several alignments, or grids of heads.
        title: the heading of the page.
        columns: how many pictures stand side by side, on a wide screen.
        vmax: the weight drawn in full ink, above 0 and at most 1; larger weights look the same.

    Returns:
        The page, to be written as UTF-8. It needs JavaScript, and nothing from elsewhere.

    Raises:
        ValueError: there is nothing to draw, or `columns` or `vmax` is out of range.

    References:
        Bahdanau et al. (2014), Neural Machine Translation by Jointly Learning to Align and Translate, figure 3.
    """
    pictures = as_list(alignments)
    check_drawing(columns, vmax)
    # NumPy's numbers are none of JSON's.
    scale = {"vmax": float(vmax), "columns": int(columns)}
    content = {"title": title, **scale, "pictures": [_content(each) for each in pictures]}
    # Escaped so, no text can end the element that holds it; what is not ASCII is escaped too, lone surrogates included.
    answer = json.dumps(content).replace("<", r"\u003c")
    page = PAGE.read_text(encoding="utf-8").replace("connect-src *", "connect-src 'none'")
    return page.replace(_PLACE, f'<script type="application/json" id="answer">{answer}</script>')


def _content(picture: Picture) -> dict[str, Any]:
    grid = as_grid(picture)
    below = notes(picture)
    if is_right_to_left(picture.source_text):
        below.append(_RIGHT_TO_LEFT.format("text" if is_of_one_text(picture) else "source"))
    kinds = []
    for maps in grid.kinds:
        # In the kinds after the first, as of an encoder, equal tokens are those of one text.
        one = maps.source_tokens == maps.target_tokens and (maps is not grid.kinds[0] or is_of_one_text(picture))
        kinds.append(
            {
                "title": maps.title,
                "source_tokens": maps.source_tokens,
                "target_tokens": None if one else maps.target_tokens,
                "layers": maps.layers,
                "heads": maps.heads,
                "shape": maps.weights.shape,
                "weights": base64.b64encode(maps.weights.astype("<f4").tobytes()).decode(),
            }
        )
    texts = {"source_text": grid.source_text, "target_text": grid.target_text}
    return {"title": grid.title, "notes": below, "spoken": spoken(picture), **texts, "kinds": kinds}
