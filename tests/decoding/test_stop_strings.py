"""Stop strings: found at any place, for any tokens."""

import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zoo.decoding import StopStrings
from zoo.text import BytePairTokenizer, CharacterTokenizer

CHARACTERS = CharacterTokenizer("ab.\nß中")
PIECES = BytePairTokenizer.learn(["abab ab. ß中 aab\n\n"] * 5, 280)


def watched(tokenizer, ids, strings):
    """The step after which the row ended, or None, and how many bytes are kept; ids of one row."""
    watch = StopStrings(tokenizer, [strings], 64)
    state = watch.start()
    for number, token in enumerate(ids):
        ends, state = watch.step(tf.constant([token]), tf.constant([True]), state)
        if ends[0]:
            return number, int(state["kept"][0])
    assert int(state["kept"][0]) == -1
    return None, -1


def by_definition(tokenizer, ids, strings):
    text = b""
    for number, token in enumerate(ids):
        text += tokenizer.written([token]).numpy()[0]
        places = [text.find(each) for each in strings if each and each in text]
        if places:
            return number, min(places)
    return None, -1


@pytest.mark.parametrize(
    ("text", "strings", "expected"),
    [
        ("ab.ab", ["."], (2, 2)),
        ("abab\n\nab", ["\n\n"], (5, 4)),
        ("ababab", ["bab", "aba"], (2, 0)),  # what ends first
        ("ß中a", ["中"], (1, 2)),  # bytes
        ("abab", ["", "bb"], (None, -1)),
        ("a" * 70 + "b", ["ab"], (70, 69)),  # behind more than 64 bytes
        ("b" + "a" * 200, ["b" + "a" * 63], (63, 0)),
        ("b" + "a" * 200, ["b" + "a" * 80], (63, 0)),  # 64 bytes of it count
    ],
)
def test_by_hand(text, strings, expected):
    ids = CHARACTERS.tokenize([text]).numpy()[0]
    assert watched(CHARACTERS, ids, strings) == expected


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(0, PIECES.size + 1), max_size=25),
    st.lists(st.text("ab. \nß中\0", max_size=4).map(str.encode) | st.binary(max_size=3), max_size=3),
)
@example([97 + 4 - 33, 0, 0], [b"\0"])  # zeros behind a text are no NUL bytes
def test_any_ids_and_strings(ids, strings):
    strings = strings or [b""]
    assert watched(PIECES, ids, strings) == by_definition(PIECES, ids, strings)


def test_each_row_has_its_own():
    watch = StopStrings(CHARACTERS, [["a", ""], ["", "b"], ["", ""], ["b", ""]], 64)
    is_open = tf.constant([True, True, True, False])
    ends, state = watch.step(CHARACTERS.tokenize(["a", "a", "a", "b"])[:, 0], is_open, watch.start())
    assert ends.numpy().tolist() == [True, False, False, False]
    is_open &= ~ends
    ends, state = watch.step(CHARACTERS.tokenize(["b", "b", "b", "b"])[:, 0], is_open, state)
    assert ends.numpy().tolist() == [False, True, False, False]
    assert state["kept"].numpy().tolist() == [0, 1, -1, -1]
    assert state["written"].numpy().tolist() == [1, 2, 2, 0]  # of a row that is not open it stays


def test_a_graph_of_unknown_sizes():
    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, None], tf.string)], autograph=False
    )
    def ends(tokens, strings):
        watch = StopStrings(CHARACTERS, strings, 64)
        return watch.step(tokens, tf.ones_like(tokens, tf.bool), watch.start())[0]

    tokens = CHARACTERS.tokenize(["a", "b"])[:, 0]
    assert ends(tokens, [["a"], ["a"]]).numpy().tolist() == [True, False]
    assert ends(tokens, tf.zeros([2, 0], tf.string)).numpy().tolist() == [False, False]
    assert ends(tokens[:0], tf.zeros([0, 1], tf.string)).numpy().tolist() == []
