"""Bytes as they come, into whole characters up to a stop string."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.tasks.text_stream import whole_text


def cut(text, places):
    bounds = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[begin:end] for begin, end in itertools.pairwise(bounds)]


@given(st.binary(), st.lists(st.integers(0, 99)))
def test_together_it_is_the_text_however_it_comes(text, places):
    found = list(whole_text(cut(text, places)))
    assert "".join(found) == text.decode("utf-8", "replace")
    assert all(found)


@given(
    st.text("ab", max_size=30),
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(0, 99), max_size=9),
)
def test_it_ends_before_the_stop_string_that_is_whole_first(text, stop, places):
    chunks = cut(text.encode(), places)
    # As the model's loop does it: after each chunk, the earliest string that is there.
    expected, so_far = text, ""
    for chunk in chunks:
        so_far += chunk.decode()
        begins = [so_far.find(each) for each in stop if each in so_far]
        if begins:
            expected = so_far[: min(begins)]
            break
    assert "".join(whole_text(chunks, [each.encode() for each in stop])) == expected


def test_characters_come_when_they_are_whole():
    assert list(whole_text([b"a\xc3", b"\x9f", b"b"])) == ["a", "ß", "b"]


def test_what_may_begin_a_stop_string_waits():
    stream = whole_text(iter([b"one\n", b"\ntwo"]), [b"\n\n"])
    assert next(stream) == "one"
    with pytest.raises(StopIteration):
        next(stream)
