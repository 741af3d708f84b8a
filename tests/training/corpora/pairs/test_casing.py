"""Letter case, where languages have rules of their own."""

import pytest
from zoo_training.corpora.pairs.casing import recase


@pytest.mark.parametrize(
    ("text", "casing", "language", "expected"),
    [
        ("Nisan Kasım", "upper", "tr", "NİSAN KASIM"),
        ("NİSAN KASIM", "lower", "tr", "nisan kasım"),
        ("21 iyun", "title", "az", "21 İyun"),
        ("Μαΐου Σάββατο", "upper", "el", "ΜΑΪΟΥ ΣΑΒΒΑΤΟ"),
        ("ΙΑΝΟΥΑΡΙΟΣ", "lower", "el", "ιανουαριος"),
        ("sábado, 6 de junio", "title", "es", "Sábado, 6 De Junio"),
        ("dimanche 9 août", "upper", "fr", "DIMANCHE 9 AOÛT"),
        ("27. Jaanuar", "lower", "et", "27. jaanuar"),
    ],
)
def test_letter_case_follows_the_language(text, casing, language, expected):
    assert recase(text, casing, language) == expected
