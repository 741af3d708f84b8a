"""CharacterTokenizer against ids computed by hand and against plain Python."""

import unicodedata

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zoo.text import PADDING, UNKNOWN, CharacterTokenizer

# NUL, a space, two-, three- and four-byte characters, right-to-left letters, a letter with a decomposition.
VOCABULARY = "ab \0é한中אا😀"
TOKENIZER = CharacterTokenizer(VOCABULARY)
RAW = CharacterTokenizer(VOCABULARY, normalize=False)
TEXTS = st.lists(st.text(st.one_of(st.sampled_from(VOCABULARY), st.characters(codec="utf-8"))), max_size=16)
BYTES = st.lists(st.binary(max_size=12), max_size=16)


def looked_up(text: str) -> list[int]:
    ids = {character: i for i, character in enumerate(VOCABULARY, start=4)}
    return [ids.get(character, UNKNOWN) for character in text]


def padded(rows: list[list[int]]) -> list[list[int]]:
    width = max([1, *map(len, rows)])
    return [row + [PADDING] * (width - len(row)) for row in rows]


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


class TestLowercase:
    TOKENIZER = CharacterTokenizer("aéσi\u0307", lowercase=True)

    def test_each_character_is_lowered(self):
        # The lower case of U+0130 is two characters; a sigma at the end of a word is lowered as any other.
        ids = self.TOKENIZER.tokenize(["AÉE\u0301a", "ΑΣ", "İ", ""])
        assert ids.numpy().tolist() == [[4, 5, 5, 4], [1, 6, 0, 0], [7, 8, 0, 0], [0, 0, 0, 0]]
        assert RAW.tokenize(["A"]).numpy().tolist() == [[UNKNOWN]]

    def test_what_is_learnt_is_lowered_too(self):
        assert CharacterTokenizer.learn(["AaB", "E\u0301"], lowercase=True).vocabulary == "abé"
        assert CharacterTokenizer.learn(["AaB"]).vocabulary == "ABa"

    @settings(deadline=None, max_examples=12)
    @given(TEXTS)
    def test_against_python(self, texts):
        tokenizer = CharacterTokenizer("abé", normalize=False, lowercase=True)
        lowered = ["".join(character.lower() for character in text) for text in texts]
        ids = [[{"a": 4, "b": 5, "é": 6}.get(character, UNKNOWN) for character in text] for text in lowered]
        assert tokenizer.tokenize(texts).numpy().tolist() == padded(ids)


@settings(deadline=None, max_examples=12)
@given(TEXTS)
def test_tokenize_looks_characters_up(texts):
    composed = [unicodedata.normalize("NFC", text) for text in texts]
    assert TOKENIZER.tokenize(composed).numpy().tolist() == padded([looked_up(text) for text in composed])


@settings(deadline=None, max_examples=12)
@given(BYTES)
@example([b"\xff", b"a\x80b", b"\xe2\x82", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xed\xa0\xbd", b"\xf4\x90\x80\x80"])
def test_tokenize_reads_any_bytes(strings):
    expected = padded([looked_up(string.decode("utf-8", "replace")) for string in strings])
    assert RAW.tokenize(strings).numpy().tolist() == expected
    assert TOKENIZER.tokenize(strings).shape[0] == len(strings)


def test_ids_may_have_any_width():
    wide = CharacterTokenizer([chr(code) for code in range(0x4E00, 0x4E00 + 300)])  # more ids than int8 can hold
    for dtype in (np.int8, np.uint8, np.int32, np.int64, np.uint64):
        ids = np.array([[4, 127, 3]], dtype)
        assert wide.detokenize(ids).numpy()[0].decode() == chr(0x4E00) + chr(0x4E00 + 123)
        assert wide.tokens(ids).numpy()[0, 1].decode() == chr(0x4E00 + 123)


def test_tokens():
    pieces = TOKENIZER.tokens([[2, 4, 1, 7, 6], [13, 3, 0, -1, 14]]).numpy().tolist()
    assert pieces[0] == [b"<s>", b"a", b"<unk>", b"\0", b" "]
    assert pieces[1] == ["😀".encode(), b"</s>", b"", "\ufffd".encode(), "\ufffd".encode()]


# The vocabulary: given, learnt, refused.


def test_what_is_learnt():
    """By frequency, then by code point; normalised if the tokenizer does so; nothing that cannot be known."""
    assert CharacterTokenizer(iter("cab")).tokenize(["abc"]).numpy().tolist() == [[5, 6, 4]]
    assert CharacterTokenizer.learn(iter(["cbba", "ca", "", "d"])).vocabulary == "abcd"
    assert CharacterTokenizer.learn(["a", "bb"]).vocabulary == "ba"
    assert CharacterTokenizer.learn(["e\u0301e\u0301\u212b"]).vocabulary == "éÅ"
    assert CharacterTokenizer.learn(["e\u0301e\u0301\u212b"], normalize=False).vocabulary == "e\u0301\u212b"
    assert CharacterTokenizer.learn(["\ud800\ufffda"]).vocabulary == "?a"
    texts = ["aaa", "bbb", "cc", "d"]
    assert CharacterTokenizer.learn(texts, minimum_count=2).vocabulary == "abc"
    limited = CharacterTokenizer.learn(texts, maximum_size=6)
    assert limited.vocabulary == "ab"
    assert limited.size == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"texts": ["a"], "minimum_count": 0}, r"^`minimum_count` must be at least 1\. Received: minimum_count=0$"),
        ({"texts": ["a"], "maximum_size": 4}, r"^`maximum_size` must be at least 5, .* Received: maximum_size=4$"),
        ({"texts": "abc"}, r"^`texts` must be an iterable of strings\. Received: one str$"),
        ({"texts": ["a", b"b"]}, r"^`texts` must hold strings\. Received: b'b' of type bytes$"),
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
        ("abcab", r"each character once\. Received: \['a', 'b'\] more than once"),
        (["a", "bc"], r"strings of one code point each\. Received: 'bc'"),
        (b"a", r"strings of one code point each\. Received: 97"),
        ("a\ud800", r"no surrogates.* Received: '\\ud800'"),
        ("a\ufffd", r"no U\+FFFD.* Received: '\\ufffd'"),
        ("a\u212b", r"NFC leaves as they are \(this one becomes '\\xc5'\).* Received: '\\u212b'"),
    ],
)
def test_vocabulary_errors(vocabulary, message):
    with pytest.raises(ValueError, match=message):
        CharacterTokenizer(vocabulary)
