"""CharacterTokenizer against ids computed by hand and against plain Python."""

import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.text import PADDING, UNKNOWN, CharacterTokenizer

# NUL, a space, two-, three- and four-byte characters, right-to-left letters, a letter with a decomposition.
VOCABULARY = "ab \0é한中אا😀"
TOKENIZER = CharacterTokenizer(VOCABULARY)
RAW = CharacterTokenizer(VOCABULARY, normalize=False)
KNOWN_TEXTS = st.lists(st.text(st.sampled_from(VOCABULARY)), max_size=5)
TEXTS = st.lists(st.text(st.one_of(st.sampled_from(VOCABULARY), st.characters(codec="utf-8"))), max_size=5)
BYTES = st.lists(st.binary(max_size=12), max_size=5)


def looked_up(text: str) -> list[int]:
    ids = {character: i for i, character in enumerate(VOCABULARY, start=4)}
    return [ids.get(character, UNKNOWN) for character in text]


def padded(rows: list[list[int]]) -> list[list[int]]:
    width = max([1, *map(len, rows)])
    return [row + [PADDING] * (width - len(row)) for row in rows]


@pytest.mark.parametrize(
    ("add_start", "add_end", "expected"),
    [
        (False, False, [[4, 5, 4], [1, 0, 0], [0, 0, 0]]),
        (True, False, [[2, 4, 5, 4], [2, 1, 0, 0], [2, 0, 0, 0]]),
        (False, True, [[4, 5, 4, 3], [1, 3, 0, 0], [3, 0, 0, 0]]),
        (True, True, [[2, 4, 5, 4, 3], [2, 1, 3, 0, 0], [2, 3, 0, 0, 0]]),
    ],
)
def test_start_end_and_padding(add_start, add_end, expected):
    ids = TOKENIZER.tokenize(["aba", "x", ""], add_start=add_start, add_end=add_end)
    assert ids.dtype == tf.int32
    assert ids.numpy().tolist() == expected


@pytest.mark.parametrize(
    ("max_length", "add_start", "add_end", "expected"),
    [
        (2, False, False, [[8, 5], [5, 0], [0, 0]]),
        (2, False, True, [[8, 3], [5, 3], [3, 0]]),
        (3, True, True, [[2, 8, 3], [2, 5, 3], [2, 3, 0]]),
        (3, False, False, [[8, 5, 4], [5, 0, 0], [0, 0, 0]]),
        (9, False, True, [[8, 5, 4, 3], [5, 3, 0, 0], [3, 0, 0, 0]]),
    ],
)
def test_max_length_counts_start_end_and_composed_characters(max_length, add_start, add_end, expected):
    ids = TOKENIZER.tokenize(["e\u0301ba", "b", ""], add_start=add_start, add_end=add_end, max_length=max_length)
    assert ids.numpy().tolist() == expected


def test_any_text_that_is_not_of_the_vocabulary_is_unknown():
    assert TOKENIZER.tokenize(["אb\0", "🏳️‍🌈", "\ufffd"]).numpy().tolist() == [[11, 5, 7, 0], [1] * 4, [1, 0, 0, 0]]


@pytest.mark.parametrize(
    "broken",
    [
        b"\xff",  # in no UTF-8
        b"\x80",  # a continuation that continues nothing
        b"\xe2\x82",  # a cut off euro sign
        b"\xf0\x9f\x98",  # a cut off emoji
        b"\xc0\xaf",  # a slash, overlong: two broken sequences
        b"\xed\xa0\xbd",  # a surrogate: three
        b"\xf4\x90\x80\x80",  # beyond U+10FFFF: four
    ],
)
def test_broken_sequences_are_unknown(broken):
    count = len(broken.decode("utf-8", "replace"))
    ids = TOKENIZER.tokenize([b"a" + broken + b"b"])
    assert ids.numpy().tolist() == [[4, *[UNKNOWN] * count, 5]]
    assert TOKENIZER.detokenize(ids).numpy()[0].decode() == "a" + "\ufffd" * count + "b"


@settings(deadline=None)
@given(TEXTS)
def test_tokenize_looks_characters_up(texts):
    composed = [unicodedata.normalize("NFC", text) for text in texts]
    assert TOKENIZER.tokenize(composed).numpy().tolist() == padded([looked_up(text) for text in composed])


@settings(deadline=None)
@given(BYTES)
def test_tokenize_reads_any_bytes(strings):
    expected = padded([looked_up(string.decode("utf-8", "replace")) for string in strings])
    assert RAW.tokenize(strings).numpy().tolist() == expected
    assert TOKENIZER.tokenize(strings).shape[0] == len(strings)


@settings(deadline=None)
@given(KNOWN_TEXTS, st.booleans(), st.booleans(), st.sampled_from([TOKENIZER, RAW]))
def test_detokenize_inverts_tokenize(texts, add_start, add_end, tokenizer):
    ids = tokenizer.tokenize(texts, add_start=add_start, add_end=add_end)
    assert [text.decode() for text in tokenizer.detokenize(ids).numpy()] == texts


def test_detokenize_stops_at_the_first_end_and_drops_padding_and_start():
    ids = [[2, 4, 0, 5, 3, 4, 3, 4], [4, 2, 1, 5, 0, 0, 0, 0], [3, 4, 4, 4, 4, 4, 4, 4]]
    assert TOKENIZER.detokenize(ids).numpy().tolist() == [b"ab", "a\ufffdb".encode(), b""]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_ids_may_have_any_width(dtype):
    wide = CharacterTokenizer([chr(code) for code in range(0x4E00, 0x4E00 + 300)])  # more ids than int8 can hold
    ids = np.array([[4, 127, 3]], dtype)
    assert wide.detokenize(ids).numpy()[0].decode() == chr(0x4E00) + chr(0x4E00 + 123)
    assert wide.tokens(ids).numpy()[0, 1].decode() == chr(0x4E00 + 123)


def test_tokens():
    pieces = TOKENIZER.tokens([[2, 4, 1, 7, 6], [13, 3, 0, -1, 14]]).numpy().tolist()
    assert pieces[0] == [b"<s>", b"a", b"<unk>", b"\0", b" "]
    assert pieces[1] == ["😀".encode(), b"</s>", b"", "\ufffd".encode(), "\ufffd".encode()]


# The vocabulary: given, learnt, refused.


@pytest.mark.parametrize("vocabulary", ["cab", ["c", "a", "b"], ("c", "a", "b"), iter("cab")])
def test_vocabulary_may_be_a_string_or_characters(vocabulary):
    tokenizer = CharacterTokenizer(vocabulary)
    assert tokenizer.vocabulary == "cab"
    assert tokenizer.tokenize(["abc"]).numpy().tolist() == [[5, 6, 4]]


def test_learn_orders_by_frequency_then_code_point():
    tokenizer = CharacterTokenizer.learn(iter(["cbba", "ca", "", "d"]))  # a b c twice each, d once
    assert tokenizer.vocabulary == "abcd"
    assert CharacterTokenizer.learn(["a", "bb"]).vocabulary == "ba"


def test_learn_limits():
    texts = ["aaa", "bbb", "cc", "d"]
    assert CharacterTokenizer.learn(texts, minimum_count=2).vocabulary == "abc"
    limited = CharacterTokenizer.learn(texts, maximum_size=6)
    assert limited.vocabulary == "ab"
    assert limited.size == 6


def test_learn_normalizes_if_the_tokenizer_does():
    assert CharacterTokenizer.learn(["e\u0301e\u0301\u212b"]).vocabulary == "éÅ"
    assert CharacterTokenizer.learn(["e\u0301e\u0301\u212b"], normalize=False).vocabulary == "e\u0301\u212b"


def test_learn_passes_over_what_cannot_be_known():
    assert CharacterTokenizer.learn(["\ud800\ufffda"]).vocabulary == "a"


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(), min_size=1).filter(any))
def test_learnt_texts_come_back(texts):
    texts = [text.replace("\ufffd", "") + "x" for text in texts]
    tokenizer = CharacterTokenizer.learn(texts)
    back = tokenizer.detokenize(tokenizer.tokenize(texts, add_end=True)).numpy()
    assert [text.decode() for text in back] == [unicodedata.normalize("NFC", text) for text in texts]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"texts": ["a"], "minimum_count": 0}, r"^`minimum_count` must be at least 1\. Received: minimum_count=0$"),
        ({"texts": ["a"], "maximum_size": 4}, r"^`maximum_size` must be at least 5, .* Received: maximum_size=4$"),
        ({"texts": "abc"}, r"^`texts` must be an iterable of strings\. Received: one str$"),
        ({"texts": ["a", b"b"]}, r"^`texts` must hold strings\. Received: b'b' of type bytes$"),
        ({"texts": [], "minimum_count": 1}, r"minimum_count=1 times\. Received: 0 different characters"),
        ({"texts": ["ab"], "minimum_count": 2}, r"minimum_count=2 times\. Received: 2 different characters"),
    ],
)
def test_learn_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        CharacterTokenizer.learn(**arguments)


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        ("", r"at least one character\. Received: none"),
        ([], r"at least one character\. Received: none"),
        ("abcab", r"each character once\. Received: \['a', 'b'\] more than once"),
        (["a", "bc"], r"strings of one code point each\. Received: 'bc'"),
        (["a", ""], r"strings of one code point each\. Received: ''"),
        (b"a", r"strings of one code point each\. Received: 97"),
        ("a\ud800", r"no surrogates.* Received: '\\ud800'"),
        ("a\ufffd", r"no U\+FFFD.* Received: '\\ufffd'"),
        ("a\u212b", r"NFC leaves as they are \(this one becomes '\\xc5'\).* Received: '\\u212b'"),
    ],
)
def test_vocabulary_errors(vocabulary, message):
    with pytest.raises(ValueError, match=message):
        CharacterTokenizer(vocabulary)


def test_only_normalization_asks_for_nfc():
    assert CharacterTokenizer("a\u212b", normalize=False).tokenize(["\u212ba\u0301"]).numpy().tolist() == [[5, 4, 1]]
