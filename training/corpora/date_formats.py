"""How each locale writes a date that has one reading only: the CLDR's patterns, from the copy inside Babel.

A date in digits is read with the day first, as most locales write it: '4/3/2026' is in March. So a locale that writes
the month first takes part only with days that are no months, as in '3/21/2026', or have the month's number.

In the order of the file: the CLDR's data of a locale, a day written in one of its patterns, numerals, letter case.
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import itertools
import pickle
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, get_args

from zoo.extras import needs

with needs("train"):
    from babel import localedata
    from babel.core import get_global, parse_locale
    from babel.dates import tokenize_pattern

Field = tuple[str, int]
"""A field of a CLDR pattern, as (letter, width): ('M', 4) is 'MMMM', the month in words."""

# Other widths are ambiguous: one-letter names (5), years of two digits, week numbers.
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
_ROLE = {"L": "M", "c": "E", "e": "E"}  # stand-alone and week-counting forms are treated as the ordinary ones
_UNNAMED_MONTHS = frozenset(f"M{month:02d}" for month in range(1, 13))  # the CLDR's, for locales without names
_DIRECTION_MARKS = dict.fromkeys(map(ord, "\u200e\u200f\u061c"))


@dataclasses.dataclass(frozen=True)
class DateLocale:
    """The data for writing a locale's unambiguous dates, in the Gregorian calendar.

    Attributes:
        name: the CLDR identifier, such as 'pt_BR'.
        script: the ISO 15924 code of its script, such as 'Deva'.
        patterns: its date patterns in CLDR syntax in which every day has one reading, the most formal first; no two
            give the same text.
        numeric_patterns: its others, with day, month and year in digits, such as 'd/M/y' or 'M/d/y'.
        numbering_systems: the systems its numbers are written in, the default one first.
        names: by field, the names to choose from: of the months, of the weekdays (Monday first) or of the era.
    """

    name: str
    script: str
    patterns: tuple[str, ...]
    numeric_patterns: tuple[str, ...]
    numbering_systems: tuple[str, ...]
    names: Mapping[Field, tuple[str, ...]]

    def patterns_in(self, system: str) -> tuple[str, ...]:
        """The patterns whose numbers can be written in a numbering system."""
        return tuple(pattern for pattern in self.patterns if system not in HAN_SYSTEMS or "年" in pattern)

    def patterns_for(self, day: datetime.date, system: str) -> tuple[str, ...]:
        """The patterns in which a day has one reading, and whose numbers can be written in a numbering system.

        Only days above 12, and days with the month's number, have one if their month comes first in digits.
        """
        return _patterns_for(self.name, system, day.day > 12 or day.day == day.month)


@cache
def date_locale(name: str) -> DateLocale:
    """The data for writing a locale's unambiguous dates.

    Args:
        name: a CLDR identifier with underscores, such as 'fr', 'en_GB' or 'zh_Hant'.

    Raises:
        ValueError: Babel knows no such locale (the message names the nearest), or it has no unambiguous pattern.
    """
    if name not in localedata.locale_identifiers():
        raise ValueError(
            "A locale must be one of the CLDR's; the nearest known ones are "
            f"{', '.join(nearest_locales(name))}. Received: {name!r}"
        )
    data = localedata.LocaleDataDict(load_locale(name))
    names = {field: _names(data, path) for field, path in _NAMED.items()}
    patterns = _patterns(data, names, _is_unambiguous)
    if not patterns:
        raise ValueError(
            f"A locale must have a date pattern that can be read one way only. Received: {name!r}, which has none"
        )
    numeric_patterns = _patterns(data, names, _is_numeric)
    return DateLocale(name, _script(name), patterns, numeric_patterns, _numbering_systems(data), names)


@cache
def _patterns_for(name: str, system: str, month_first: bool) -> tuple[str, ...]:
    """`patterns_for` the days that have one reading if their month comes first, or for the others."""
    locale = date_locale(name)
    numeric = () if system in HAN_SYSTEMS else locale.numeric_patterns
    return (*locale.patterns_in(system), *(each for each in numeric if month_first or _order(each) == "dMy"))


def _is_unambiguous(pattern: str) -> bool:
    """Whether every date in this CLDR pattern has one reading: its month is in words, or its order year, month, day."""
    order = _order(pattern)
    return order == "yMd" or (order is not None and _month_field(pattern) in _NAMED)


def _is_numeric(pattern: str) -> bool:
    """Whether this CLDR pattern has the day and the month in digits, in either order, and then the year."""
    return _order(pattern) in ("dMy", "Mdy") and _month_field(pattern) in _NUMERIC


def _order(pattern: str) -> str | None:
    """The order of a pattern's fields, such as "dMy"; None if it has others than a date needs.

    Year, month and day each occur once. The year is written in full. Any two numbers are separated. A weekday and an
    era in words may stand beside them.
    """
    fields = _date_fields(pattern)
    if not all(field in _NUMERIC or field in _NAMED for field in fields) or _numbers_touch(pattern):
        return None
    roles = [_ROLE.get(letter, letter) for letter, _ in fields]
    order = "".join(role for role in roles if role in "yMd")
    return order if len(set(roles)) == len(roles) and sorted(order) == ["M", "d", "y"] else None


def _date_fields(pattern: str) -> list[Field]:
    """The fields of a CLDR pattern in order: 'd. MMM y' has ('d', 1), ('M', 3) and ('y', 1)."""
    return [value for kind, value in pattern_tokens(pattern) if kind == "field"]


def pattern_tokens(pattern: str) -> list[tuple[str, Any]]:
    """The parts of a CLDR pattern in order: "field" with a field, or "chars" with literal text."""
    return tokenize_pattern(pattern)


def _month_field(pattern: str) -> Field:
    return next(field for field in _date_fields(pattern) if field[0] in "ML")


def _numbers_touch(pattern: str) -> bool:
    return any(a in _NUMERIC and b in _NUMERIC for (_, a), (_, b) in itertools.pairwise(pattern_tokens(pattern)))


def nearest_locales(name: str) -> list[str]:
    """The CLDR's identifiers to suggest to someone who wrote an unknown one."""
    known, name = sorted(localedata.locale_identifiers()), name.replace("-", "_")
    same_language = [other for other in known if other.partition("_")[0] == name.partition("_")[0].lower()]
    # Of another language, only a name that looks like a typing error helps.
    near = difflib.get_close_matches(name, same_language, cutoff=0) or difflib.get_close_matches(name, known)
    return near or ["en", "fr", "zh_Hant"]


def _patterns(data: Mapping, names: Mapping[Field, tuple[str, ...]], fits: Callable[[str], bool]) -> tuple[str, ...]:
    """The patterns of a locale that fit, and each as people type it; no two give the same text."""
    skeletons = data["datetime_skeletons"]
    candidates = [data["date_formats"][length].pattern for length in ("full", "long", "medium", "short")]
    candidates += [skeletons[key].pattern for key in sorted(skeletons) if "G" not in key]
    chosen: dict[tuple, str] = {}
    for candidate in candidates:
        for pattern in (candidate, as_typed(candidate)):
            if fits(pattern) and _months_differ(pattern, names):
                # Compared with names in place of fields: MMM and MMMM may have the same names.
                written = tuple(names.get(value, value) for _, value in pattern_tokens(pattern))
                chosen.setdefault(written, pattern)
    return tuple(chosen.values())


def as_typed(text: str) -> str:
    """A text or pattern as people type it: plain spaces for no-break ones, no invisible direction marks."""
    plain = text.translate(_DIRECTION_MARKS)
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
    # Of the traditional systems `numeral` knows only Japan's; the others are letters that stand for numbers.
    systems = dict.fromkeys([default, others.get("native"), others.get("traditional"), "latn"])
    return tuple(system for system in systems if system in NUMBERING_SYSTEMS)


def _script(name: str) -> str:
    likely = get_global("likely_subtags")
    if script := parse_locale(name)[2]:
        return script
    if name in likely:
        return parse_locale(likely[name])[2] or "Zzzz"
    return _script(name.rpartition("_")[0]) if "_" in name else "Zzzz"  # ISO 15924's code for unknown


def load_locale(name: str) -> dict:
    """The CLDR data of a locale merged with what it inherits, sharing nothing with any other locale.

    Babel's own `load` lets locales share what they inherit, and writes resolved aliases into it, so that the names of
    one locale depend on which locales were asked about before (python-babel/babel#1234).
    """
    data = {} if name == "root" else load_locale(_parent(name))
    with open(localedata.resolve_locale_filename(name), "rb") as file:
        localedata.merge(data, pickle.load(file))
    return data


def _parent(name: str) -> str:
    if parent := get_global("parent_exceptions").get(name):
        return parent
    head, _, tail = name.rpartition("_")
    is_script = "_" not in head and len(tail) == 4 and tail.isalpha()
    return "root" if not head or (is_script and tail != _script(head)) else head


_OTHER_DIGITS = 4  # if a locale has several kinds of digits, one text in four is in another kind than the default
_RECASED = 10  # if a script has letter case, one text in ten is in another case than the CLDR's


def format_date(
    day: datetime.date,
    locale: str,
    pattern: str,
    digits: str,
    casing: Casing | None = None,
) -> str:
    """A day of the Gregorian calendar as people of a locale write it.

    Args:
        day: a day from the year 1000 on, so that its year has four digits.
        locale: a CLDR identifier, such as 'hi' or 'pt_BR'.
        pattern: a pattern in CLDR syntax. Those of `date_locale(locale).patterns_for(day, digits)` have one reading.
        digits: one of `date_locale(locale).numbering_systems`.
        casing: 'lower', 'upper' or 'title', in a script that has letter case; by default as the CLDR has it.

    Raises:
        ValueError: the locale is unknown.

    Example:
        >>> format_date(datetime.date(2026, 11, 21), "hi", pattern="d MMMM y", digits="deva")
        '२१ नवंबर २०२६'
    """
    text = "".join([part if isinstance(part, str) else part(day) for part in _parts(locale, pattern, digits)])
    return text if casing is None else recase(text, casing, locale.partition("_")[0])


@cache
def _parts(locale: str, pattern: str, digits: str) -> tuple[str | Callable[[datetime.date], str], ...]:
    """A pattern compiled once: Babel's own formatting looks every name up again for every day."""
    names = date_locale(locale).names
    return tuple(
        value if kind == "chars" else _field_writer(value, names.get(value), digits)
        for kind, value in pattern_tokens(pattern)
    )


def _field_writer(field: Field, names: tuple[str, ...] | None, digits: str) -> Callable[[datetime.date], str]:
    letter, width = field
    if names is None:
        part = {"y": "year", "M": "month", "L": "month", "d": "day"}[letter]
        return lambda day: numeral(getattr(day, part), width, digits)
    if letter in "ML":
        return lambda day: names[day.month - 1]
    if letter in "Eec":
        return lambda day: names[day.weekday()]
    return lambda day: names[0]  # the era


def draw_form(
    day: datetime.date, locale: str, for_digits: int, for_pattern: int, for_casing: int
) -> tuple[str, str, Casing | None]:
    """The pattern, digits and casing that three random numbers choose among those of a locale for a day."""
    default, *others = date_locale(locale).numbering_systems
    digits = _one_in(_OTHER_DIGITS, others, for_digits) or default
    patterns = date_locale(locale).patterns_for(day, digits)
    return patterns[for_pattern % len(patterns)], digits, draw_casing(locale, for_casing)


def draw_casing(locale: str, random_number: int) -> Casing | None:
    """A letter case for one text in ten; None for the CLDR's, and in a script without letter case."""
    return _one_in(_RECASED, CASINGS if date_locale(locale).script in CASED_SCRIPTS else (), random_number)


def _one_in(often: int, choices: tuple[str, ...] | list[str], random_number: int) -> Any:
    """One of the choices, on average once in `often` calls; else None."""
    choice, turn = divmod(random_number, often)
    return choices[choice % len(choices)] if choices and turn == 0 else None


# Unicode names the digits "<prefix> DIGIT ZERO" to "... NINE". Nobody writes calendar dates in the systems that are
# not here, such as Greek letters as numbers.
_DIGIT_PREFIX = {
    "adlm": "ADLAM",
    "arab": "ARABIC-INDIC",
    "arabext": "EXTENDED ARABIC-INDIC",
    "beng": "BENGALI",
    "cakm": "CHAKMA",
    "deva": "DEVANAGARI",
    "gujr": "GUJARATI",
    "guru": "GURMUKHI",
    "hmnp": "NYIAKENG PUACHUE HMONG",
    "java": "JAVANESE",
    "khmr": "KHMER",
    "knda": "KANNADA",
    "laoo": "LAO",
    "mlym": "MALAYALAM",
    "mong": "MONGOLIAN",
    "mtei": "MEETEI MAYEK",
    "mymr": "MYANMAR",
    "nkoo": "NKO",
    "olck": "OL CHIKI",
    "orya": "ORIYA",
    "tamldec": "TAMIL",
    "telu": "TELUGU",
    "thai": "THAI",
    "tibt": "TIBETAN",
    "vaii": "VAI",
}
_HAN_DIGITS = "〇一二三四五六七八九"

HAN_SYSTEMS = frozenset({"hanidec", "jpan"})
"""Systems whose numbers are Han characters. They stand beside 年, 月 and 日, never between slashes."""

NUMBERING_SYSTEMS = frozenset({"latn", *_DIGIT_PREFIX, *HAN_SYSTEMS})
"""The numbering systems `numeral` can write."""


@cache
def numeral(value: int, width: int, system: str) -> str:
    """A number written in a numbering system.

    Args:
        value: a number from 0 to 9999.
        width: the least number of digits, with zeros in front (Han numbers take none).
        system: one of `NUMBERING_SYSTEMS`.
    """
    if system in HAN_SYSTEMS:
        return _han(value)
    digits = f"{value:0{width}d}"
    return digits if system == "latn" else digits.translate(_digits(system))


@cache
def _digits(system: str) -> dict[int, str]:
    zero = ord(unicodedata.lookup(f"{_DIGIT_PREFIX[system]} DIGIT ZERO"))
    return {ord("0") + digit: chr(zero + digit) for digit in range(10)}


def _han(value: int) -> str:
    # As written in dates: a year digit by digit (二〇二六), a month or day with 十 for ten (十一, 二十一).
    if value > 99:
        return "".join(_HAN_DIGITS[int(digit)] for digit in str(value))
    tens, ones = divmod(value, 10)
    ten = ("" if tens == 1 else _HAN_DIGITS[tens]) + "十" if tens else ""
    return ten + (_HAN_DIGITS[ones] if ones or not tens else "")


Casing = Literal["lower", "upper", "title"]
CASINGS: tuple[Casing, ...] = get_args(Casing)

CASED_SCRIPTS = frozenset({"Armn", "Cyrl", "Grek", "Latn"})
"""Scripts with two cases in everyday use. Georgian has capitals in Unicode, but hardly anybody types them."""

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
