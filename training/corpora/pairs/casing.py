"""Letter case as people vary it, with the languages that have rules of their own."""

from __future__ import annotations

import unicodedata
from typing import Literal, get_args

Casing = Literal["lower", "upper", "title"]
CASINGS: tuple[Casing, ...] = get_args(Casing)

CASED_SCRIPTS = frozenset({"Armn", "Cyrl", "Grek", "Latn"})
"""The scripts whose text is written in both cases. Georgian has capitals in Unicode, which hardly anybody types."""

_DOTTED_I_LANGUAGES = frozenset({"az", "tr"})
_ACUTE = "\u0301"


def recase(text: str, casing: Casing, language: str) -> str:
    """A text in another letter case.

    Args:
        text: a text in one of `CASED_SCRIPTS`.
        casing: 'lower' or 'upper' for all letters, 'title' for a capital at the head of every word.
        language: the ISO 639 code; Turkish and Azerbaijani keep the dot on i, Greek capitals drop their accents.
    """
    if casing == "lower":
        return _lower(text, language)
    if casing == "upper":
        return _upper(text, language)
    return " ".join(_upper(word[:1], language) + word[1:] for word in text.split(" "))


def _lower(text: str, language: str) -> str:
    if language in _DOTTED_I_LANGUAGES:
        text = text.replace("İ", "i").replace("I", "ı")
    return text.lower()


def _upper(text: str, language: str) -> str:
    if language in _DOTTED_I_LANGUAGES:
        text = text.replace("i", "İ")
    capitals = text.upper()
    if language == "el":
        capitals = unicodedata.normalize("NFC", unicodedata.normalize("NFD", capitals).replace(_ACUTE, ""))
    return capitals
