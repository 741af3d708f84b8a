"""The corpus 'dates': dates as people write them, each with its ISO 8601 form."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Literal

import pydantic

from .corpus import SPLITS, divided, random_numbers
from .pairs import PairCorpus

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


class Dates(PairCorpus):
    """Human date -> ISO date: '२१ नवंबर २०२६', 'samedi 21 novembre 2026', '21.11.2026' -> '2026-11-21'.

    Years have four digits. A date in digits is read with the day first, as most locales write it: '4/3/2026' is in
    March. The month comes first only where that is the one reading, as in '3/21/2026'.

    The days from 1900 to 2099 are first divided among the splits, so that no day of one split occurs in another, in
    any language. In 'validation' and 'test' each day occurs once; in 'train' each example draws its day. Every split
    uses the locales equally often, and draws the pattern, the digits and the letter case among those of the locale.

    The division of the days depends only on `seed` and the two numbers of days; the texts also depend on the CLDR of
    the installed Babel. In the default locales no text means two days; in others one may ('1 lut 2024' is in February
    in Polish, in September in Luba-Katanga).
    """

    kind: Literal["dates"] = "dates"
    locales: tuple[str, ...] = pydantic.Field(
        strict=False, default=DEFAULT_LOCALES, min_length=1, description="CLDR identifiers, such as 'fr' or 'zh_Hant'"
    )
    seed: int = pydantic.Field(default=0, ge=0, lt=2**64, description="seed of the days and of all draws")
    train_examples: pydantic.PositiveInt = pydantic.Field(default=100_000, description="number of training examples")
    validation_days: pydantic.PositiveInt = pydantic.Field(default=1_000, description="days kept for validation")
    test_days: pydantic.PositiveInt = pydantic.Field(default=10_000, description="days kept for the test")

    @pydantic.field_validator("locales")
    @classmethod
    def _check_locales(cls, locales: tuple[str, ...]) -> tuple[str, ...]:
        from .date_formats import date_locale

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
        return SPLITS

    def metric(self, split: str) -> Literal["exact_match"]:
        """The score of a split: a date with one wrong digit is wrong."""
        return "exact_match"

    def _read(self, split: str) -> Iterator[tuple[str, str, str]]:
        from .date_formats import draw_form, format_date  # here: it needs Babel, and recipes are read without it

        numbers = divided(_NUM_DAYS, self.validation_days, self.test_days, self.seed)[split]
        days = [_FIRST_DAY + datetime.timedelta(days=number) for number in numbers.tolist()]
        num_examples = self.train_examples if split == "train" else len(days)
        draws = random_numbers(self.seed, 1 + SPLITS.index(split), 4 * num_examples).reshape(-1, 4)
        for number, row in enumerate(draws.tolist()):
            day = days[row[0] % len(days) if split == "train" else number]
            locale = self.locales[number % len(self.locales)]
            yield format_date(day, locale, *draw_form(day, locale, *row[1:])), day.isoformat(), locale
