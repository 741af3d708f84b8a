"""Short texts in many languages: items are divided among splits, and no text is written the same in two languages.

In the order of the file: the items of each language and split, the split of an item, a text about an item.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from .corpus import SPLITS, CorpusError
from .date_formats import CASED_SCRIPTS, CASINGS, as_typed, date_locale, draw_casing, format_date, recase
from .declarations import RunningText, running_texts
from .keywords import keywords
from .language_strings import LanguageStrings, language_strings

_SHARES = (0.75, 0.1, 0.15)  # of the items, by split
_FEWEST_NAMES = 4  # of a language in a split, as many as the longest list has
_OTHER_DIGITS = 4  # if a language has several kinds of digits, one number in four is in another kind than the default
_NUMBERS = range(1, 100)
_EMOJI = "emoji"  # how keys of keywords begin
_FIRST_DAY, _NUM_DAYS = datetime.date(1950, 1, 1), 36_525  # to 2049-12-31

RUNNING_KINDS = ("sentence", "words")
"""The kinds of texts that are taken from running text."""

Strings = Mapping[str, Mapping[str, Sequence[str]]]
"""By language and key, such as 'fr' and 'territory FR': all strings of an item, with {0} where a number stands."""


def writers(
    languages: Sequence[str], seed: int, sentences: bool = False, folder: Path | None = None
) -> dict[str, list[Writer]]:
    """By split, a writer for each of the languages.

    Args:
        languages: CLDR identifiers.
        seed: chooses the items of each split.
        sentences: whether they also write sentences and words of the declaration of human rights, and keywords of
            emoji.
        folder: the folder of the public files of both; None for one in the user's cache.

    Raises:
        CorpusError: a language has hardly a name that no other has; the message names the language most like it. Or
            a public file is missing and cannot be downloaded, or is not the public one.
    """
    # English is always counted, because untranslated entries of the CLDR are in English.
    known = {code: language_strings(code) for code in dict.fromkeys([*languages, "en"])}
    names: Strings = {code: {key: (name,) for key, name in data.names.items()} for code, data in known.items()}
    words: Strings = {code: {} for code in known}
    if sentences:
        words = {
            code: {f"{_EMOJI} {emoji} {text}": (text,) for emoji, texts in of_language.items() for text in texts}
            for code, of_language in keywords(known, folder).items()
        }
    named: Strings = {code: {**names[code], **words[code]} for code in known}
    keys_of_names = _divide(named, seed)
    keys_of_units = _divide({code: _all_forms(data.units) for code, data in known.items()}, seed)
    keys_of_spans = _unique({code: _all_forms(data.spans) for code, data in known.items()})
    numbers = _by_split(((f"number {number}", number) for number in _NUMBERS), seed)
    days = (_FIRST_DAY + datetime.timedelta(days=number) for number in range(_NUM_DAYS))
    days_by_split = _by_split(((f"day {day}", day) for day in days), seed)
    date_patterns = _unique_date_patterns(tuple(known))
    running: Mapping[str, Mapping[str, RunningText]] = {split: {} for split in SPLITS}
    if sentences:
        scripts = {code: date_locale(code).script for code in known}
        all_names = {code: [name for (name,) in of_language.values()] for code, of_language in named.items()}
        running = running_texts(
            scripts, all_names, lambda number: _split_of(_hash(seed, f"paragraph {number}")), folder
        )
    made: dict[str, list[Writer]] = {split: [] for split in SPLITS}
    for split in SPLITS:
        for code in languages:
            strings = known[code]
            keys = [key for key in keys_of_names[code][split] if key not in words[code]]
            if len(keys) < _FEWEST_NAMES:
                raise CorpusError(_too_alike(code, names))
            spans = [(key, number) for key in keys_of_spans[code] for number in numbers[split]]
            spans.sort(key=lambda span: _hash(seed, f"{span[0]} {span[1]}"))
            made[split].append(
                Writer(
                    code=code,
                    strings=strings,
                    names=[(key.partition(" ")[0], strings.names[key]) for key in keys],
                    keywords=[words[code][key][0] for key in keys_of_names[code][split] if key in words[code]],
                    units=[strings.units[key] for key in keys_of_units[code][split]],
                    spans=[(strings.spans[key], number) for key, number in spans],
                    days=days_by_split[split],
                    date_patterns=date_patterns[code],
                    running=running[split].get(code),
                )
            )
    return made


def _all_forms(patterns: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    return {key: tuple(forms.values()) for key, forms in patterns.items()}


def _unique(strings: Strings) -> dict[str, set[str]]:
    """By language, the keys whose strings occur in no other language."""
    owners: dict[str, set[str]] = {}
    for code, items in strings.items():
        for texts in items.values():
            for form in _forms(texts, code):
                owners.setdefault(form, set()).add(code)
    return {
        code: {key for key, texts in items.items() if all(owners[form] == {code} for form in _forms(texts, code))}
        for code, items in strings.items()
    }


def _divide(strings: Strings, seed: int) -> dict[str, dict[str, list[str]]]:
    """By language and split, the keys whose strings are in no other language and no earlier split, in random order."""
    unique = _unique(strings)
    order = _by_split(((_item(key), key) for key in sorted(set().union(*unique.values()))), seed)
    divided: dict[str, dict[str, list[str]]] = {code: {} for code in unique}
    for code, keys in unique.items():
        earlier: set[str] = set()
        for split in SPLITS:
            chosen: list[str] = []
            here: set[str] = set()
            for key in filter(keys.__contains__, order[split]):
                forms = _forms(strings[code][key], code)
                if not forms & earlier and not forms <= here:  # 'Singapur' is a country and a city
                    chosen.append(key)
                    here |= forms
            divided[code][split] = chosen
            earlier |= here
    return divided


def _unique_date_patterns(languages: tuple[str, ...]) -> dict[str, dict[tuple[int, int], list[str]]]:
    """By language, then by month and weekday, the patterns of a date that no other language writes the same."""
    days = [datetime.date(2026, month, day) for month in range(1, 13) for day in range(1, 8)]
    written: dict[str, set[str]] = {}
    forms_of: dict[tuple[str, str, datetime.date], set[str]] = {}
    for code in languages:
        for pattern in date_locale(code).patterns_in("latn"):
            for day in days:
                text = re.sub(r"\d+", "0", as_typed(format_date(day, code, pattern, "latn")))
                forms = forms_of[code, pattern, day] = _forms((text,), code)
                for form in forms:
                    written.setdefault(form, set()).add(code)
    patterns: dict[str, dict[tuple[int, int], list[str]]] = {code: {} for code in languages}
    for (code, pattern, day), forms in forms_of.items():
        in_words = any(map(str.isalpha, max(forms)))  # not '2026-11-21', though only Swedish had it as a pattern
        if in_words and all(written[form] == {code} for form in forms):
            patterns[code].setdefault((day.month, day.weekday()), []).append(pattern)
    return patterns


def _forms(texts: Iterable[str], code: str) -> set[str]:
    """The strings in every letter case, case then ignored: Greek capitals have no accents, and Turkish İ is not i."""
    if date_locale(code).script not in CASED_SCRIPTS:
        return {text.casefold() for text in texts}
    language = code.partition("_")[0]
    return {
        form.casefold() for text in texts for form in (text, *(recase(text, casing, language) for casing in CASINGS))
    }


def _too_alike(code: str, names: Strings) -> str:
    same = Counter(
        {
            other: sum(name == items.get(key) for key, name in names[code].items())
            for other, items in names.items()
            if other != code
        }
    )
    other, count = same.most_common(1)[0]
    return (
        f"Language {code!r} has too few names that no other of the languages has; {count} of {len(names[code])} are as "
        f"in {other!r}. Leave out one of the two."
    )


def _item(key: str) -> str:
    """What is held out together: 'language de' and 'language de_AT', and all keywords of an emoji."""
    if key.startswith(f"{_EMOJI} "):
        return " ".join(key.split(" ", 2)[:2])
    return key.partition("_")[0] if key.startswith("language ") else key


def _hash(seed: int, key: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed} {key}".encode(), digest_size=8).digest(), "big")


def _by_split(items: Iterable[tuple[str, Any]], seed: int) -> dict[str, list]:
    """The items of each split, in random order: both follow from the hash of the item's key."""
    divided: dict[str, list] = {split: [] for split in SPLITS}
    for number, item in sorted(((_hash(seed, key), item) for key, item in items), key=lambda pair: pair[0]):
        divided[_split_of(number)].append(item)
    return divided


def _split_of(number: int) -> str:
    place = number / 2**64
    return "train" if place < _SHARES[0] else "validation" if place < _SHARES[0] + _SHARES[1] else "test"


@dataclasses.dataclass(frozen=True)
class Writer:
    """Writes texts in one language, about the items of one split.

    Attributes:
        code: the language.
        strings: what the CLDR knows of it.
        names: the names, each with its category, such as 'territory'.
        keywords: keywords of emoji.
        units: the patterns of each unit.
        spans: of each relative date, its patterns and its number.
        days: the days.
        date_patterns: by month and weekday, the patterns of a date.
        running: the running text that sentences and words are taken from; None for none.
    """

    code: str
    strings: LanguageStrings
    names: Sequence[tuple[str, str]]
    keywords: Sequence[str]
    units: Sequence[Mapping[str, str]]
    spans: Sequence[tuple[Mapping[str, str], int]]
    days: Sequence[datetime.date]
    date_patterns: Mapping[tuple[int, int], Sequence[str]]
    running: RunningText | None = None

    @cached_property
    def _by_category(self) -> dict[str, list[str]]:
        by_category: dict[str, list[str]] = {}
        for category, name in self.names:
            by_category.setdefault(category, []).append(name)
        return by_category

    def write(self, kind: str, turn: int | None, draws: Sequence[int]) -> tuple[str, str]:
        """A text of this kind; or a list, if the language has no further text of this kind.

        Args:
            kind: 'name', 'list', 'unit', 'date', 'relative date', 'sentence', 'words' or 'keyword'.
            turn: the number of the item, so that each has one turn; None to draw it.
            draws: eight random numbers.

        Returns:
            The text and its kind.
        """
        item, *others, for_digits, for_casing = draws
        item = item if turn is None else turn
        systems = self.strings.numbering_systems
        other, its_turn = divmod(for_digits, _OTHER_DIGITS)
        digits = systems[other % len(systems)] if its_turn == 0 else systems[0]

        text: str | None = None
        pools: dict[str, Sequence[Any]] = {
            "name": self.names,
            "keyword": self.keywords,
            "unit": self.units,
            "date": self.days,
            "relative date": self.spans,
        }
        pool = pools.get(kind, ())
        if kind in RUNNING_KINDS:
            text = self._piece(kind, turn, [item, *others])
        elif len(pool) > (turn or 0):
            chosen = pool[item % len(pool)]
            if kind == "name":
                _, text = chosen
            elif kind == "keyword":
                text = chosen
            elif kind == "unit":
                text = self.strings.count(chosen, _NUMBERS[others[0] % len(_NUMBERS)], digits)
            elif kind == "relative date":
                patterns, number = chosen
                text = self.strings.count(patterns, number, digits)
            else:
                text = self._date(chosen, others, digits)
        if text is None:
            kind, text = "list", self._list(draws[:-2])

        if casing := draw_casing(self.code, for_casing):
            text = recase(text, casing, self.code.partition("_")[0])
        return text, kind

    def _piece(self, kind: str, turn: int | None, draws: Sequence[int]) -> str | None:
        if self.running is None:
            return None
        if turn is None:
            return self.running.draw(kind, draws)
        pieces = self._pieces_in_turn[kind]
        return pieces[turn] if turn < len(pieces) else None

    @cached_property
    def _pieces_in_turn(self) -> dict[str, list[str]]:
        """The different pieces of each kind, in random order."""
        if self.running is None:
            return {}
        pieces = {kind: dict.fromkeys(self.running.in_turn(kind)) for kind in RUNNING_KINDS}
        return {kind: sorted(each, key=lambda piece: _hash(0, piece)) for kind, each in pieces.items()}

    def _list(self, draws: Sequence[int]) -> str:
        """Two to four different names of one category, if there are as many."""
        for_category, length, *places = draws
        category, _ = self.names[for_category % len(self.names)]
        names = self._by_category[category].copy()
        if len(names) < _FEWEST_NAMES:
            names = [name for _, name in self.names]
        return self.strings.join([names.pop(place % len(names)) for place in places[: 2 + length % 3]])

    def _date(self, day: datetime.date, draws: Sequence[int], digits: str) -> str | None:
        """A date, half of the time with a time of day; None if other languages write it the same."""
        patterns = self.date_patterns.get((day.month, day.weekday()))
        if not patterns:
            return None
        text = as_typed(format_date(day, self.code, patterns[draws[0] % len(patterns)], digits))
        if draws[1] % 2:
            return text
        time = self.strings.time(draws[2] % (24 * 60), digits)
        return self.strings.date_and_time.replace("{0}", time).replace("{1}", text)
