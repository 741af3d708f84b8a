"""Whole numbers in the digits of the world's scripts, by their CLDR numbering-system names."""

from __future__ import annotations

import unicodedata
from functools import cache

# Unicode names each digit "<prefix> DIGIT ZERO" to "... NINE". A system outside this table (Greek or Ethiopic letters
# as numbers, say) is one nobody writes a calendar date in.
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
"""Systems whose numbers are words of Han characters; they stand beside 年, 月 and 日, never between slashes."""

NUMBERING_SYSTEMS = frozenset({"latn", *_DIGIT_PREFIX, *HAN_SYSTEMS})
"""The numbering systems `numeral` can write."""


@cache
def numeral(value: int, width: int, system: str) -> str:
    """A number written in a numbering system.

    Args:
        value: a number from 0 to 9999.
        width: how many digits at least; missing ones are zeros in front (Han numbers take none).
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
