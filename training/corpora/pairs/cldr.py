"""How each locale writes a date that cannot be misread: what the CLDR says, read from the copy inside Babel."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import pickle
import unicodedata
from collections.abc import Mapping
from functools import cache
from typing import Any

from babel import localedata
from babel.core import get_global, parse_locale
from babel.dates import tokenize_pattern

from .numerals import HAN_SYSTEMS, NUMBERING_SYSTEMS

Field = tuple[str, int]
"""A field of a CLDR pattern, as (letter, width): ('M', 4) is 'MMMM', the month in words."""

# The widths that are not here are those that leave doubt: one-letter names (5), years of two digits, week numbers.
_NUMERIC = frozenset({("y", 1), ("y", 4), ("M", 1), ("M", 2), ("L", 1), ("L", 2), ("d", 1), ("d", 2)})
_NAMED: dict[Field, tuple[str, ...]] = {
    **{("M", width): ("months", "format", form) for width, form in ((3, "abbreviated"), (4, "wide"))},
    **{("L", width): ("months", "stand-alone", form) for width, form in ((3, "abbreviated"), (4, "wide"))},
    **{("E", width): ("days", "format", "abbreviated") for width in (1, 2, 3)},
    **{("e", 3): ("days", "format", "abbreviated"), ("c", 3): ("days", "stand-alone", "abbreviated")},
    **{(letter, 4): ("days", "format", "wide") for letter in "Ee"},
    **{("c", 4): ("days", "stand-alone", "wide")},
    **{("G", width): ("eras", "abbreviated") for width in (1, 2, 3)},
    **{("G", 4): ("eras", "wide")},
}
_KEYS = {"months": range(1, 13), "days": range(7), "eras": (1,)}  # the one era that is ours, the common one
_ROLE = {"L": "M", "c": "E", "e": "E"}  # stand-alone and week-counting forms play the part of the ordinary ones
_UNNAMED_MONTHS = frozenset(f"M{month:02d}" for month in range(1, 13))  # the CLDR's, where nobody entered any
_DIRECTION_MARKS = dict.fromkeys(map(ord, "\u200e\u200f\u061c"))


@dataclasses.dataclass(frozen=True)
class DateLocale:
    """What it takes to write a locale's unambiguous dates, in the Gregorian calendar.

    Attributes:
        name: the CLDR identifier, such as 'pt_BR'.
        script: the ISO 15924 code of its script, such as 'Deva'.
        patterns: its unambiguous date patterns in CLDR syntax, the most formal first; no two write the same text.
        numbering_systems: the systems its numbers are written in, the default one first.
        names: by field, the names to choose from: of the months, of the weekdays (Monday first) or of the era.
    """

    name: str
    script: str
    patterns: tuple[str, ...]
    numbering_systems: tuple[str, ...]
    names: Mapping[Field, tuple[str, ...]]

    def patterns_in(self, system: str) -> tuple[str, ...]:
        """The patterns whose numbers can be written in a numbering system."""
        return tuple(pattern for pattern in self.patterns if system not in HAN_SYSTEMS or "年" in pattern)


@cache
def date_locale(name: str) -> DateLocale:
    """What it takes to write a locale's unambiguous dates.

    Args:
        name: a CLDR identifier with underscores, such as 'fr', 'en_GB' or 'zh_Hant'.

    Raises:
        ValueError: Babel knows no such locale (the message names the nearest), or it has no unambiguous pattern.
    """
    if name not in localedata.locale_identifiers():
        raise ValueError(
            "A locale must be one of the CLDR's; the nearest known ones are "
            f"{', '.join(_nearest_locales(name))}. Received: {name!r}"
        )
    data = localedata.LocaleDataDict(_load(name))
    names = {field: _names(data, path) for field, path in _NAMED.items()}
    patterns = _patterns(data, names)
    if not patterns:
        raise ValueError(
            f"A locale must have a date pattern that can be read one way only. Received: {name!r}, which has none"
        )
    return DateLocale(name, _script(name), patterns, _numbering_systems(data), names)


def _is_unambiguous(pattern: str) -> bool:
    """Whether the shape of a CLDR date pattern leaves one reading only.

    That takes year, month and day once each, the year in full, the month in words unless the order is year, month,
    day, and something between any two numbers. A weekday and an era in words may stand beside them.
    """
    fields = _date_fields(pattern)
    if not all(field in _NUMERIC or field in _NAMED for field in fields):
        return False
    roles = [_ROLE.get(letter, letter) for letter, _ in fields]
    order = "".join(role for role in roles if role in "yMd")
    if len(set(roles)) < len(roles) or sorted(order) != ["M", "d", "y"]:
        return False
    return (order == "yMd" or _month_field(pattern) in _NAMED) and not _numbers_touch(pattern)


def _date_fields(pattern: str) -> list[Field]:
    """The fields of a CLDR pattern in order: 'd. MMM y' has ('d', 1), ('M', 3) and ('y', 1)."""
    return [value for kind, value in pattern_tokens(pattern) if kind == "field"]


def pattern_tokens(pattern: str) -> list[tuple[str, Any]]:
    """The parts of a CLDR pattern in order: "field" with a field, or "chars" with what is written as it is."""
    return tokenize_pattern(pattern)


def _month_field(pattern: str) -> Field:
    return next(field for field in _date_fields(pattern) if field[0] in "ML")


def _numbers_touch(pattern: str) -> bool:
    return any(a in _NUMERIC and b in _NUMERIC for (_, a), (_, b) in itertools.pairwise(pattern_tokens(pattern)))


def _nearest_locales(name: str) -> list[str]:
    known, name = sorted(localedata.locale_identifiers()), name.replace("-", "_")
    same_language = [other for other in known if other.partition("_")[0] == name.partition("_")[0].lower()]
    # Among locales of another language, only what looks like a slip of the keyboard is of any help.
    near = difflib.get_close_matches(name, same_language, cutoff=0) or difflib.get_close_matches(name, known)
    return near or ["en", "fr", "zh_Hant"]


def _patterns(data: Mapping, names: Mapping[Field, tuple[str, ...]]) -> tuple[str, ...]:
    skeletons = data["datetime_skeletons"]
    candidates = [data["date_formats"][length].pattern for length in ("full", "long", "medium", "short")]
    candidates += [skeletons[key].pattern for key in sorted(skeletons) if "G" not in key]
    chosen: dict[tuple, str] = {}
    for candidate in candidates:
        for pattern in (candidate, _as_typed(candidate)):
            if _is_unambiguous(pattern) and _months_differ(pattern, names):
                # Names in place of fields: where MMM and MMMM have the same names, two patterns are one.
                written = tuple(names.get(value, value) for _, value in pattern_tokens(pattern))
                chosen.setdefault(written, pattern)
    return tuple(chosen.values())


def _as_typed(pattern: str) -> str:
    """The pattern as a keyboard gives it: plain spaces for no-break ones, no invisible direction marks."""
    plain = pattern.translate(_DIRECTION_MARKS)
    return "".join(" " if unicodedata.category(char) == "Zs" else char for char in plain)


def _months_differ(pattern: str, names: Mapping[Field, tuple[str, ...]]) -> bool:
    """Whether the pattern's month is a plain number, or has twelve different names with letters in them."""
    months = names.get(_month_field(pattern))
    if months is None:
        return True
    words = {name.casefold() for name in months if any(map(str.isalpha, name)) and name not in _UNNAMED_MONTHS}
    return len(words) == 12


def _names(data: Mapping, path: tuple[str, ...]) -> tuple[str, ...]:
    keys = _KEYS[path[0]]
    for key in path:
        data = data[key]
    return tuple(data[key] for key in keys)


def _numbering_systems(data: Mapping) -> tuple[str, ...]:
    default, others = data["default_numbering_system"], data["numbering_systems"]
    # Of the traditional systems `numeral` knows Japan's alone; the others are letters that stand for numbers.
    systems = dict.fromkeys([default, others.get("native"), others.get("traditional"), "latn"])
    return tuple(system for system in systems if system in NUMBERING_SYSTEMS)


def _script(name: str) -> str:
    likely = get_global("likely_subtags")
    if script := parse_locale(name)[2]:
        return script
    if name in likely:
        return parse_locale(likely[name])[2] or "Zzzz"
    return _script(name.rpartition("_")[0]) if "_" in name else "Zzzz"  # ISO 15924's code for unknown


def _load(name: str) -> dict:
    """The CLDR data of a locale merged with what it inherits, sharing nothing with any other locale.

    Babel's own `load` lets locales share what they inherit, and writes resolved aliases into it, so that the names of
    one locale depend on which locales were asked about before (python-babel/babel#1234).
    """
    data = {} if name == "root" else _load(_parent(name))
    with open(localedata.resolve_locale_filename(name), "rb") as file:
        localedata.merge(data, pickle.load(file))
    return data


def _parent(name: str) -> str:
    if parent := get_global("parent_exceptions").get(name):
        return parent
    head, _, tail = name.rpartition("_")
    is_script = "_" not in head and len(tail) == 4 and tail.isalpha()
    return "root" if not head or (is_script and tail != _script(head)) else head
