"""What the CLDR says in a language: names, units, lists, times and spans of time; from the copy inside Babel."""

from __future__ import annotations

import dataclasses
import difflib
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from zoo.extras import needs

from .date_formats import HAN_SYSTEMS, as_typed, date_locale, load_locale, nearest_locales, numeral, pattern_tokens

with needs("train"):
    from babel import localedata

MIN_NAMES = 100
"""A language with fewer names of its own is not used."""

_NAMES = {"territory": "territories", "language": "languages", "script": "scripts", "currency": "currency_names"}
_NO_NAMES = frozenset(
    {
        *("territory XA", "territory XB", "territory ZZ"),  # tests of software, and the unknown territory
        *("language und", "language mul", "language zxx", "language mis", "language root"),
        *("script Zzzz", "script Zyyy", "script Zxxx", "script Zinh"),  # unknown, common, none, inherited
        *("currency XXX", "currency XTS", "city Etc/Unknown", "city Etc/UTC"),
    }
)
_SPANS = ("second", "minute", "hour", "day", "week", "month", "year")
_PLURAL_FORMS = ("zero", "one", "two", "few", "many", "other")
_BESIDE_LETTERS = frozenset(" -'’‘ʻ.·・׳״&\u200c\u200d")  # the last two shape letters in Persian, Malayalam, Sinhala
_TIMES = frozenset("Hhma")  # the fields of a time that `LanguageStrings.time` can write


@dataclasses.dataclass(frozen=True)
class LanguageStrings:
    """The strings of a language, as people type them: plain spaces, no invisible marks, NFC-normalised.

    Strings inherited from the CLDR's root are left out, because they are codes or English names.

    Attributes:
        names: by key, such as 'territory FR', 'language de', 'script Arab', 'currency CHF', 'city Europe/Vienna' or
            'zone Europe_Central', the name.
        units: by key, such as 'unit length-kilometer' or 'currency CHF', its pattern for each plural form:
            '{0} Kilometer', '{0} Schweizer Franken'.
        spans: by key, such as 'day past', its pattern for each plural form: 'vor {0} Tagen'.
        plural_form: from a number to the name of its plural form.
        numbering_systems: the systems its numbers are written in, the default one first.
        list_patterns: how items are joined, by place: 'start', 'middle' and 'end', or '2' for two items.
        date_and_time: the pattern of a time {0} with a date {1}.
        time_tokens: the parts of its pattern of a time.
        halves: the names of the two halves of the day, such as 'AM' and 'PM'.
    """

    names: Mapping[str, str]
    units: Mapping[str, Mapping[str, str]]
    spans: Mapping[str, Mapping[str, str]]
    plural_form: Callable[[int], str]
    numbering_systems: tuple[str, ...]
    list_patterns: Mapping[str, str]
    date_and_time: str
    time_tokens: tuple[tuple[str, Any], ...]
    halves: tuple[str, str]

    def count(self, patterns: Mapping[str, str], number: int, digits: str) -> str:
        """A number in one of the patterns of a unit or span."""
        return patterns.get(self.plural_form(number), patterns["other"]).replace("{0}", numeral(number, 1, digits))

    def join(self, items: Sequence[str]) -> str:
        """Two items or more joined: 'Norwegen, Schweden und Finnland'."""
        if len(items) == 2:
            return _joined(self.list_patterns["2"], *items)
        text = _joined(self.list_patterns["end"], items[-2], items[-1])
        for item in items[-3:0:-1]:
            text = _joined(self.list_patterns["middle"], item, text)
        return _joined(self.list_patterns["start"], items[0], text)

    def time(self, minute: int, digits: str) -> str:
        """A time of day, from the number of minutes after midnight."""
        hour = minute // 60
        values = {"H": hour, "h": (hour - 1) % 12 + 1, "m": minute % 60}
        return "".join(
            value
            if kind == "chars"
            else self.halves[hour // 12]
            if value[0] == "a"
            else numeral(values[value[0]], value[1], digits)
            for kind, value in self.time_tokens
        )


@cache
def language_strings(code: str) -> LanguageStrings:
    """The strings of a language.

    Args:
        code: a CLDR identifier with underscores, such as 'de' or 'zh_Hant'.

    Raises:
        ValueError: Babel knows no such language; the message names the nearest.
    """
    digits = date_locale(code).numbering_systems
    raw, root = load_locale(code), _root()
    data = localedata.LocaleDataDict(raw)
    time = as_typed(data["time_formats"]["short"].pattern)
    if not {value[0] for kind, value in pattern_tokens(time) if kind == "field"} <= _TIMES:
        time = "HH:mm"  # Chinese in Taiwan names six parts of the day
    halves = data["day_periods"]["format"]["abbreviated"]
    return LanguageStrings(
        names=_names(raw, root),
        units={**_units(raw, root), **_amounts(raw)},
        spans={
            f"{span} {direction}": patterns
            for span in _SPANS
            for direction in ("past", "future")
            if (patterns := _patterns(raw["date_fields"][span][direction], root["date_fields"][span][direction]))
        },
        plural_form=raw["plural_form"],
        numbering_systems=tuple(system for system in digits if system not in HAN_SYSTEMS),
        # Welsh and Luxembourgish have 'a(c)' and 'a(n)', for what depends on the next word.
        list_patterns={
            place: re.sub(r"\(\w\)", "", typed(form)) for place, form in data["list_patterns"]["standard"].items()
        },
        date_and_time=typed(data["datetime_formats"]["long"]),
        time_tokens=tuple(pattern_tokens(time)),
        halves=(typed(halves["am"]), typed(halves["pm"])),
    )


def check_language(code: str) -> None:
    """Checks that there are enough names in a language.

    Raises:
        ValueError: Babel knows no such language, or it has too few names; the message names the nearest.
    """
    if code not in localedata.locale_identifiers():
        raise ValueError(
            "A language must be one of the CLDR's; the nearest known ones are "
            f"{', '.join(nearest_locales(code))}. Received: {code!r}"
        )
    if (num_names := _num_own_names(code)) < MIN_NAMES:
        # First the same language, such as 'pa' for 'pa_Arab'; then similar spellings.
        known = sorted(localedata.locale_identifiers(), key=lambda name: len(name.split("_")))
        near = [code.partition("_")[0], *difflib.get_close_matches(code, known, n=20, cutoff=0)]
        nearest = next((name for name in near if _num_own_names(name) >= MIN_NAMES), "en")
        raise ValueError(
            f"A language must have {MIN_NAMES} names or more in the CLDR that are not the English ones; {code!r} has "
            f"{num_names}, and the nearest code with enough is {nearest!r}. Received: {code!r}"
        )


@cache
def _root() -> dict:
    return load_locale("root")


def _num_own_names(code: str) -> int:
    try:
        names, english = language_strings(code).names, language_strings("en").names
    except ValueError:  # every date pattern of this language is ambiguous
        return 0
    return sum(code == "en" or name.casefold() != english.get(key, "").casefold() for key, name in names.items())


def _names(raw: Mapping, root: Mapping) -> dict[str, str]:
    named = {f"{kind} {key}": name for kind, table in _NAMES.items() for key, name in raw.get(table, {}).items()}
    for zone, forms in raw["time_zones"].items():
        if forms.get("city") not in (None, root["time_zones"].get(zone, {}).get("city")):
            named[f"city {zone}"] = forms["city"]
    for zone, forms in raw["meta_zones"].items():
        if name := forms.get("long", {}).get("standard"):
            named[f"zone {zone}"] = name
    found = {key: typed(name) for key, name in named.items() if key not in _NO_NAMES}
    return {key: name for key, name in found.items() if is_plain(name) and name != key.partition(" ")[2]}


def _units(raw: Mapping, root: Mapping) -> dict[str, dict[str, str]]:
    found = {
        f"unit {key}": _patterns(forms.get("long"), root["unit_patterns"].get(key, {}).get("long"))
        for key, forms in raw["unit_patterns"].items()
    }
    return {key: patterns for key, patterns in found.items() if patterns}


def _amounts(raw: Mapping) -> dict[str, dict[str, str]]:
    """Patterns of a number with the plural of a currency: '{0} Schweizer Franken'."""
    found = {}
    for currency, names in raw.get("currency_names_plural", {}).items():
        patterns = raw["currency_unit_patterns"]
        forms = {
            form: patterns.get(form, patterns["other"]).replace("{1}", name)
            for form, name in names.items()
            if is_plain(typed(name))
        }
        if len(forms) == len(names) and f"currency {currency}" not in _NO_NAMES:
            found[f"currency {currency}"] = _patterns(forms, None)
    return {key: patterns for key, patterns in found.items() if patterns}


def is_plain(name: str) -> bool:
    """Whether a name is words only: no remark in brackets, no years, no list."""
    return len(name) > 1 and all(unicodedata.category(char)[0] in "LM" or char in _BESIDE_LETTERS for char in name)


def _patterns(forms: Any, inherited: Any) -> dict[str, str]:
    """By plural form, a language's own patterns for a number; none if one of them has brackets or no words."""
    if not isinstance(forms, dict) or "other" not in forms or forms == inherited:
        return {}
    patterns = {form: typed(forms[form]) for form in _PLURAL_FORMS if form in forms}
    plain = all(re.search(r"[^\W\d_]{2}", text.replace("{0}", "")) and "(" not in text for text in patterns.values())
    return patterns if plain else {}


def typed(text: str) -> str:
    """A text of the CLDR as people type it, NFC-normalised."""
    # Khmer has zero-width spaces between words in the CLDR, German a few soft hyphens; nobody types them.
    return unicodedata.normalize("NFC", as_typed(text).replace("\u200b", "").replace("\u00ad", "")).strip()


def _joined(pattern: str, first: str, second: str) -> str:
    return re.sub(r"\{([01])\}", lambda place: (first, second)[int(place[1])], pattern)
