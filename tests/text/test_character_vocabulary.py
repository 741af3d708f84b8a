"""The vocabulary of CharacterTokenizer: given, learnt, refused."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.text import CharacterTokenizer


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
