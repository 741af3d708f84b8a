"""Whether a first line names columns."""

from __future__ import annotations

import functools
from collections.abc import Iterable

_WORDS = {"source", "src", "target", "tgt", "input", "output", "text", "sentence", "translation"}


def names_columns(cells: Iterable[str]) -> bool:
    """Whether each cell is what columns are called: `source`, `target text`, `English`, `en`, `deu`, ..."""
    return all(" ".join(cell.casefold().replace("_", " ").split()) in _names() for cell in cells)


@functools.cache
def _names() -> frozenset[str]:
    from babel import Locale
    from babel.core import get_global

    languages = Locale("en").languages
    names = {name.casefold() for each in languages.items() for name in each}
    return frozenset({*_WORDS, *(f"{word} text" for word in _WORDS), *names, *get_global("language_aliases")})
