"""Dates as people write them, each with its ISO 8601 form: the corpus 'dates'."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Literal

import numpy as np
import pydantic

from .casing import CASED_SCRIPTS, CASINGS, Casing, recase
from .cldr import Field, date_locale, pattern_tokens
from .corpus import PairCorpus
from .numerals import numeral

_FIRST_DAY = datetime.date(1900, 1, 1)
_LAST_DAY = datetime.date(2099, 12, 31)
_NUM_DAYS = (_LAST_DAY - _FIRST_DAY).days + 1  # 73,049

DEFAULT_LOCALES = (
    # Latin script
    *("en", "en_GB", "fr", "de", "es", "pt", "it", "nl", "sv", "da", "nb", "fi"),
    *("et", "lv", "lt", "pl", "cs", "hr", "hu", "ro", "tr", "vi", "id", "sw"),
    # Cyrillic; Greek, Armenian, Georgian
    *("ru", "uk", "bg", "sr", "kk", "mn", "el", "hy", "ka"),
    # Hebrew; Arabic (in Syria with months of its own)
    *("he", "ar_EG", "ar_SY", "fa", "ur", "ps"),
    # The scripts of India and Sri Lanka
    *("hi", "mr", "ne", "bn", "gu", "pa", "or", "ta", "te", "kn", "ml", "si"),
    # Thai, Lao, Khmer, Burmese; Ethiopic
    *("th", "lo", "km", "my", "am"),
    # Han, Japanese, Korean
    *("zh", "zh_Hant", "ja", "ko"),
)

# The columns of a row of random numbers: what each decides.
_DAY, _DIGITS, _PATTERN, _CASING = range(4)
_OTHER_DIGITS = 4  # where a locale has several kinds of digits, one text in four is not in the default kind
_RECASED = 10  # where a script has letter case, one text in ten is not in the case the CLDR gives


class Dates(PairCorpus):
    """Human date -> ISO date: '२१ नवंबर २०२६', 'samedi 21 novembre 2026', '2026年11月21日' -> '2026-11-21'.

    The days from 1900 to 2099 are divided among the splits first, so that no day of one split occurs in another, in
    any language. In 'validation' and 'test' each day occurs once; in 'train' each example draws its day. Every split
    deals the locales evenly, and draws the pattern, the digits and the letter case among those the locale uses.

    The division of the days follows from `seed` and the two numbers of days alone; the texts follow the CLDR of the
    installed Babel as well. No text means two days in the default locales; in others one may ('1 lut 2024' is in
    February in Polish, in September in Luba-Katanga).
    """

    kind: Literal["dates"] = "dates"
    locales: tuple[str, ...] = pydantic.Field(
        default=DEFAULT_LOCALES, min_length=1, description="CLDR identifiers, such as 'fr' or 'zh_Hant'"
    )
    seed: int = pydantic.Field(default=0, ge=0, lt=2**64, description="what everything random follows from")
    train_examples: pydantic.PositiveInt = pydantic.Field(default=100_000, description="how many examples to train on")
    validation_days: pydantic.PositiveInt = pydantic.Field(default=1_000, description="days kept for validation")
    test_days: pydantic.PositiveInt = pydantic.Field(default=10_000, description="days kept for the test")

    @pydantic.field_validator("locales")
    @classmethod
    def _check_locales(cls, locales: tuple[str, ...]) -> tuple[str, ...]:
        for name in locales:
            date_locale(name)
        if repeated := sorted({name for name in locales if locales.count(name) > 1}):
            raise ValueError(f"`locales` must name each locale once. Received: {', '.join(repeated)} more than once")
        return locales

    @pydantic.model_validator(mode="after")
    def _check_days(self) -> Dates:
        held_out = self.validation_days + self.test_days
        if held_out >= _NUM_DAYS:
            raise ValueError(
                f"`validation_days` and `test_days` must be below {_NUM_DAYS} together, the days from 1900 to 2099. "
                f"Received: {held_out}"
            )
        return self

    @property
    def splits(self) -> tuple[str, ...]:
        """'train', 'validation' and 'test'."""
        return ("train", "validation", "test")

    def metric(self, split: str) -> Literal["exact_match"]:
        """What a model is scored by: a date that is wrong in a digit is wrong."""
        return "exact_match"

    def _days(self, split: str) -> list[datetime.date]:
        order = np.argsort(_random_rows(self.seed, "days", _NUM_DAYS, 1)[:, 0], kind="stable").tolist()
        first, second = self.test_days, self.test_days + self.validation_days
        numbers = {"test": order[:first], "validation": order[first:second], "train": order[second:]}[split]
        return [_FIRST_DAY + datetime.timedelta(days=number) for number in numbers]

    def _read(self, split: str) -> Iterator[tuple[str, str, str]]:
        days = self._days(split)
        num_examples = self.train_examples if split == "train" else len(days)
        for number, row in enumerate(_random_rows(self.seed, split, num_examples, 4).tolist()):
            day = days[row[_DAY] % len(days) if split == "train" else number]
            locale = self.locales[number % len(self.locales)]
            yield format_date(day, locale, *_draw_form(locale, row)), day.isoformat(), locale


def format_date(
    day: datetime.date,
    locale: str,
    pattern: str | None = None,
    digits: str | None = None,
    casing: Casing | None = None,
) -> str:
    """A day of the Gregorian calendar as people of a locale write it, in a form that has one reading only.

    Args:
        day: a day from the year 1000 on.
        locale: a CLDR identifier, such as 'hi' or 'pt_BR'.
        pattern: one of `date_locale(locale).patterns`, in CLDR syntax; by default the most formal.
        digits: one of `date_locale(locale).numbering_systems`; by default the first.
        casing: 'lower', 'upper' or 'title', in a script that has letter case; by default as the CLDR has it.

    Raises:
        ValueError: the locale is unknown or does not use the pattern, digits or casing, or the year is below 1000.

    Example:
        >>> format_date(datetime.date(2026, 11, 21), "fr")
        'samedi 21 novembre 2026'
        >>> format_date(datetime.date(2026, 11, 21), "hi", pattern="d MMMM y", digits="deva")
        '२१ नवंबर २०२६'
    """
    if day.year < 1000:
        raise ValueError(f"`day` must have a year of four digits, from 1000 on. Received: day={day.isoformat()}")
    text = "".join([part if isinstance(part, str) else part(day) for part in _parts(locale, pattern, digits)])
    if casing is None:
        return text
    casing = _one_of("casing", casing, _casings(locale), f"a casing of {locale!r}")
    return recase(text, casing, locale.partition("_")[0])


@cache
def _parts(locale: str, pattern: str | None, digits: str | None) -> tuple[str | Callable[[datetime.date], str], ...]:
    """A pattern compiled once; Babel's own formatting looks every name up anew for every day."""
    known = date_locale(locale)
    digits = _one_of("digits", digits, known.numbering_systems, f"a numbering system of {locale!r}")
    patterns = known.patterns_in(digits)
    pattern = _one_of("pattern", pattern, patterns, f"an unambiguous pattern of {locale!r} in {digits!r} digits")
    return tuple(
        value if kind == "chars" else _field_writer(value, known.names.get(value), digits)
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


def _one_of(name: str, value: str | None, choices: tuple[str, ...], what: str) -> Any:
    """The value, or the first choice for None."""
    if value is not None and value not in choices:
        there_is = ", ".join(map(repr, choices)) or "none"
        raise ValueError(f"`{name}` must be {what}; there is {there_is}. Received: {name}={value!r}")
    return choices[0] if value is None else value


def _casings(locale: str) -> tuple[str, ...]:
    return CASINGS if date_locale(locale).script in CASED_SCRIPTS else ()


def _draw_form(locale: str, row: list[int]) -> tuple[str, str, Casing | None]:
    """The pattern, digits and casing that a row of random numbers stands for."""
    default, *others = date_locale(locale).numbering_systems
    digits = _one_in(_OTHER_DIGITS, others, row[_DIGITS]) or default
    patterns = date_locale(locale).patterns_in(digits)
    return patterns[row[_PATTERN] % len(patterns)], digits, _one_in(_RECASED, _casings(locale), row[_CASING])


def _one_in(often: int, choices: tuple[str, ...] | list[str], random_number: int) -> Any:
    """One of the choices one time in so many, else None."""
    choice, turn = divmod(random_number, often)
    return choices[choice % len(choices)] if choices and turn == 0 else None


def _random_rows(seed: int, purpose: str, num_rows: int, num_columns: int) -> np.ndarray:
    """Random 64-bit integers, a stream for each purpose, the same on every platform and for every version of NumPy.

    They are the raw output of a named bit generator: the one thing that NumPy promises not to change.
    """
    stream = ("days", "train", "validation", "test").index(purpose)
    generator = np.random.Philox(key=np.array([seed, stream], dtype=np.uint64))
    return generator.random_raw(num_rows * num_columns).reshape(num_rows, num_columns)
