"""Numbers in other scripts: the Unicode database is the oracle for digits, Han numbers are checked by hand."""

import unicodedata

import pytest
from zoo_training.corpora.pairs.numerals import HAN_SYSTEMS, NUMBERING_SYSTEMS, numeral


@pytest.mark.parametrize("system", sorted(NUMBERING_SYSTEMS - HAN_SYSTEMS))
def test_digits_have_their_values(system):
    digits = numeral(1234567890, 1, system)
    assert [unicodedata.decimal(digit) for digit in digits] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
    assert numeral(7, 2, system) == digits[9] + digits[6]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((1, "一"), (9, "九"), (10, "十"), (11, "十一"), (20, "二十"), (31, "三十一")),
        *((1900, "一九〇〇"), (2010, "二〇一〇"), (2026, "二〇二六")),
    ],
)
def test_han_numbers_are_written_as_in_dates(value, expected):
    assert numeral(value, 1, "hanidec") == numeral(value, 2, "jpan") == expected
