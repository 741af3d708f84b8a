"""What corpora know of texts in general."""

import pytest
from zoo_training.corpora.pairs import are_sentences


@pytest.mark.parametrize(
    ("texts", "language", "wanted"),
    [
        (["a b c d"], None, True),
        (["a b c"], None, False),
        (["2026-11-21", "one two three four"], None, True),
        (["2026-11-21", "ABC", "one two three four"], None, False),
        (["我今天去学校"], None, False),
        (["我今天去学校"], "zh_CN", True),
        (["去学校"], "zh", False),
    ],
)
def test_are_sentences(texts, language, wanted):
    assert are_sentences(texts, language) is wanted
