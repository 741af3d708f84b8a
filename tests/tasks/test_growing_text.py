"""A text that is asked for again and again is the text that is asked for once."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.tasks.protocol import GrowingText
from zoo.tasks.results import Score

PIECES = [b"a", b"b", b"ab", "é".encode(), "é".encode()[:1], "é".encode()[1:], "🙂".encode()[:2], "🙂".encode()[2:]]


def answer(written, stop, tokens):
    """As an export answers: text before the first stop string, in valid UTF-8, and how many tokens it took."""
    text = b""
    for number, piece in enumerate(written[:tokens], 1):
        text += piece
        ends = [text.find(each) for each in stop if each in text]
        if ends:
            return text[: min(ends)].decode("utf-8", "replace"), number
    ended = min(tokens, len(written) + 1)  # the end token counts
    return text.decode("utf-8", "replace"), ended


@given(
    st.lists(st.sampled_from(PIECES), max_size=60),
    st.lists(st.sampled_from([b"ab", b"aba", b"bb", "aé".encode(), "🙂a".encode()]), max_size=2),
    st.integers(0, 80),
)
def test_the_pieces_are_the_text_of_one_request(written, stop, limit):
    growing, pieces, computed = GrowingText(limit, stop), [], 0
    while not growing.done:
        assert growing.size <= limit
        computed += growing.size
        pieces.append(growing.add(*answer(written, stop, growing.size)))
    assert "".join(pieces) == answer(written, stop, limit)[0]
    assert computed <= 3.5 * limit


def test_pieces_come_early():
    growing, sizes = GrowingText(100), []
    while not growing.done:
        sizes.append(growing.size)
        assert growing.add("x" * growing.size, growing.size)
    assert sizes == [8, 12, 18, 27, 40, 60, 90, 100]


def test_what_may_begin_a_stop_string_or_end_a_character_is_held_back():
    growing = GrowingText(100, [b"stop"])
    assert growing.add("on st\N{REPLACEMENT CHARACTER}", 8) == "on "
    assert growing.add("on stéöp sto", 12) == "stéöp "
    assert growing.add("on stéöp ", 14) == ""
    assert growing.done


def test_a_text_that_does_not_begin_with_what_was_given_is_refused():
    growing = GrowingText(100)
    assert growing.add("one tex", 8) == "one tex"
    with pytest.raises(ValueError, match="the text changed while it was written; another version may answer now"):
        growing.add("another text", 12)


def test_the_perplexity_of_a_text_that_cannot_be_written_is_infinite():
    assert Score("x", -1e9, 1).perplexity == math.inf
    assert Score("x", -2 * math.log(3), 2).perplexity == pytest.approx(3)
