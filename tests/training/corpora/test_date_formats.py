"""How dates are written: patterns as Babel reads them, digits as the Unicode database has them, letter case by hand."""

import datetime
import unicodedata

import pytest
from babel import localedata
from zoo_training.corpora import date_formats
from zoo_training.corpora.date_formats import (
    HAN_SYSTEMS,
    NUMBERING_SYSTEMS,
    _date_fields,
    _is_unambiguous,
    date_locale,
    numeral,
    recase,
)


def test_unambiguous_patterns():
    clear = (
        "EEEE d MMMM y",
        "d MMM yyyy",
        "y年M月d日",
        "y-MM-dd, E",
        "cccc d. LLLL y",
        "d MMMM G y",
        "EEEE د y د MMMM d",
    )
    ambiguous = (
        *("d/M/y", "M/d/y", "dd.MM.y", "y/d/M", "E d/M y"),  # a month in digits anywhere but between year and day
        *("d MMM yy", "yy/M/d", "d MMM Y", "d MMM u", "d MMM"),  # no year, not in full, or another one
        *("d MMMMM y", "ccccc d MMM y", "c d MMM y", "d MMM GGGGG y"),  # one letter, or the number of a weekday
        *("yMMdd", "MMM dy", "MMM y", "d d MMM y", "d MMM y H", "d MMM Q y"),  # touching, missing, double, alien
    )
    assert [pattern for pattern in (*clear, *ambiguous) if _is_unambiguous(pattern)] == [*clear]


def test_numeric_patterns_by_the_day():
    def patterns(name, month, day, system="latn"):
        locale = date_locale(name)
        return set(locale.patterns_for(datetime.date(2026, month, day), system)) - set(locale.patterns_in(system))

    assert patterns("en", 4, 3) == patterns("en", 4, 12) == set()  # since 4/3 is in March
    assert patterns("en", 4, 13) == patterns("en", 4, 4) == {"E, M/d/y", "M/d/y"}
    assert patterns("en_GB", 4, 3) == patterns("en_GB", 4, 13) == {"E, dd/MM/y", "dd/MM/y"}
    assert patterns("sv", 4, 30) == set()  # year, month, day: always one reading
    assert patterns("kn", 4, 30) - patterns("kn", 4, 3) == {"E, M/d/y"}  # this locale has both orders
    assert patterns("kn", 4, 30, "knda") == patterns("kn", 4, 30)
    assert patterns("zh", 4, 30, "hanidec") == set()


@pytest.mark.parametrize("name", ["dz", "mn_Mong"])  # '༡' to '༡༢' in Dzongkha; nobody has entered Mongolian ones
def test_months_that_are_no_words_are_not_used(name):
    widths = {
        width for pattern in date_locale(name).patterns for letter, width in _date_fields(pattern) if letter in "ML"
    }
    assert 3 not in widths


def test_patterns_are_those_of_the_locale():
    assert date_locale("sv").patterns == (
        *("EEEE d MMMM y", "d MMMM y", "d MMM y", "y-MM-dd", "E, y-MM-dd", "E d MMM y"),
    )
    assert date_locale("ar_EG").patterns == ("EEEE، d MMMM y", "d MMMM y")  # its abbreviated months are the full ones
    assert set(date_locale("bg").patterns) >= {
        "d MMMM y\u202f'г'.",
        "d MMMM y 'г'.",
    }  # as the CLDR and as keyboards have it


@pytest.mark.parametrize(
    ("name", "script", "numbering_systems"),
    [
        ("fr", "Latn", ("latn",)),
        ("hi", "Deva", ("latn", "deva")),
        ("ar_SY", "Arab", ("arab", "latn")),
        ("pa_Arab", "Arab", ("arabext", "latn")),
        ("el", "Grek", ("latn",)),  # not the letters of antiquity
        ("zh_Hant", "Hant", ("latn", "hanidec")),
        ("ja", "Jpan", ("latn", "jpan")),
    ],
)
def test_scripts_and_numbering_systems(name, script, numbering_systems):
    assert (date_locale(name).script, date_locale(name).numbering_systems) == (script, numbering_systems)


def test_han_numbers_stand_between_han_characters_only():
    assert date_locale("ja").patterns_in("jpan") == ("y年M月d日EEEE", "y年M月d日", "y年M月d日(E)")


def test_data_is_inherited_as_in_babel(monkeypatch):
    names = localedata.locale_identifiers()
    for name in {*names[::20], "ar_SY", "en_GB", "zh_Hant", "nb", "sr_Latn", "pa_Arab"}:
        monkeypatch.setattr(localedata, "_cache", {})
        assert repr(date_formats.load_locale(name)) == repr(localedata.load(name))


@pytest.mark.parametrize(("name", "nearest"), [("pt-BR", "pt_BR"), ("zh_CN", "zh_Hans_CN"), ("??", "en, fr")])
def test_an_unknown_locale_is_an_error_naming_the_nearest(name, nearest):
    with pytest.raises(ValueError) as error:
        date_locale(name)
    message = str(error.value)
    assert message.startswith("A locale must be one of the CLDR's; the nearest known ones are ")
    assert message.endswith(f". Received: {name!r}")
    assert nearest in message


def test_digits_have_their_values():
    for system in NUMBERING_SYSTEMS - HAN_SYSTEMS:
        digits = numeral(1234567890, 1, system)
        assert [unicodedata.decimal(digit) for digit in digits] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
        assert numeral(7, 2, system) == digits[9] + digits[6]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((9, "九"), (10, "十"), (11, "十一"), (20, "二十"), (31, "三十一"), (1900, "一九〇〇"), (2010, "二〇一〇")),
    ],
)
def test_han_numbers_are_written_as_in_dates(value, expected):
    assert numeral(value, 1, "hanidec") == numeral(value, 2, "jpan") == expected


@pytest.mark.parametrize(
    ("text", "casing", "language", "expected"),
    [
        ("Nisan Kasım", "upper", "tr", "NİSAN KASIM"),
        ("NİSAN KASIM", "lower", "tr", "nisan kasım"),
        ("21 iyun", "title", "az", "21 İyun"),
        ("Μαΐου Σάββατο", "upper", "el", "ΜΑΪΟΥ ΣΑΒΒΑΤΟ"),
        ("ΙΑΝΟΥΑΡΙΟΣ", "lower", "el", "ιανουαριος"),
        ("sábado, 6 de junio", "title", "es", "Sábado, 6 De Junio"),
    ],
)
def test_letter_case_follows_the_language(text, casing, language, expected):
    assert recase(text, casing, language) == expected
