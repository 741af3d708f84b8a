"""WhitespaceTokenizer against plain Python, and the contract of all tokenizers."""

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import zoo.testing
from zoo.text import UNKNOWN, WhitespaceTokenizer

VOCABULARY = ["AH0", "L", "é", "a\0b", "😀", "각"]
TOKENIZER = WhitespaceTokenizer(VOCABULARY)
RAW = WhitespaceTokenizer(VOCABULARY, normalize=False)
SPACES = [" ", "\t", "\n", "\x1c", "\x85", "\xa0", "\u2003", "\u2028", "\u3000"]  # not ASCII's alone
NO_SPACES = ["\u200b", "\x00", "\ufeff"]  # which look like some
LETTERS = st.one_of(st.sampled_from(["A", "H", "0", "L", "é", *SPACES]), st.characters(codec="utf-8"))


def looked_up(text: str) -> list[int]:
    ids = {word: i for i, word in enumerate(VOCABULARY, start=4)}
    return [ids.get(word, UNKNOWN) for word in text.split()]


class TestTheContract(zoo.testing.TokenizerTests):
    texts = ("HH AH0 L OW1", "", "L", "AH0 L")
    before = " "

    def make_tokenizer(self):
        return WhitespaceTokenizer(["AH0", "L", "OW1", "HH"])


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.text(st.one_of(st.sampled_from("AH0Lé" + "".join(SPACES)), st.characters(codec="utf-8"))), max_size=16)
)
@example(["AH0" + space + "L" + space for space in SPACES])
@example(["AH0" + other + "L" for other in NO_SPACES])
@example([" 각\u3000é ", "e\u0301", "\u1100\u1161\u11a8", " ", "AH0AH0 ah0"])
def test_words_are_those_of_str_split(texts):
    composed = [unicodedata.normalize("NFC", text) for text in texts]
    for tokenizer, expected in ((RAW, texts), (TOKENIZER, composed)):
        ids = tokenizer.tokenize(composed if tokenizer is TOKENIZER else texts).numpy()
        assert [[id_ for id_ in row if id_] for row in ids.tolist()] == [looked_up(text) for text in expected]


def test_equivalent_forms_have_one_id():
    forms = ["e\u0301 \u1100\u1161\u11a8"]
    assert TOKENIZER.tokenize(forms).numpy().tolist() == [[6, 9]]
    assert RAW.tokenize(forms).numpy().tolist() == [[UNKNOWN, UNKNOWN]]


def test_broken_bytes_are_unknown_words():
    texts = [b"L \xff L", b"L\xff", b"\xc2\xa0L"]
    assert TOKENIZER.tokenize(texts).numpy().tolist() == [
        [5, 1, 5],
        [1, 0, 0],
        [5, 0, 0],
    ]


def test_one_space_is_written_between_words():
    ids = TOKENIZER.tokenize(["  AH0 \t\n L ? ", " "])
    assert [text.decode() for text in TOKENIZER.detokenize(ids).numpy()] == ["AH0 L \ufffd", ""]


class TestLearn:
    def test_the_most_frequent_first_and_then_by_the_alphabet(self):
        texts = ["b a c", "c\u3000b", "c \ufffd x\ufffd", "e\u0301\ud800"]
        assert WhitespaceTokenizer.learn(texts).vocabulary == ["c", "b", "a", "é?"]
        assert WhitespaceTokenizer.learn(texts, normalize=False).vocabulary == ["c", "b", "a", "e\u0301?"]
        assert WhitespaceTokenizer.learn(texts, minimum_count=2).vocabulary == ["c", "b"]
        assert WhitespaceTokenizer.learn(texts, maximum_size=5).vocabulary == ["c"]

    @pytest.mark.parametrize(
        ("texts", "options", "message"),
        [
            (["a"], {"minimum_count": 0}, r"^`minimum_count` must be at least 1\. Received: minimum_count=0$"),
            (["a"], {"maximum_size": 9.0}, r"^`maximum_size` must be an integer\. Received: maximum_size=9\.0$"),
            (["a"], {"maximum_size": 4}, r"^`maximum_size` must be at least 5, for 4 special ids and a word\. Rec"),
            (["a b"], {"minimum_count": 2}, r"^`texts` must hold a word .* minimum_count=2 times\. Received: 2 diff"),
            ([" "], {}, r"Received: 0 different words, none of them as often$"),
            ("a", {}, r"^`texts` must be an iterable of strings\. Received: one str$"),
            ([b"a"], {}, r"^`texts` must hold strings\. Received: b'a' of type bytes$"),
        ],
    )
    def test_mistakes(self, texts, options, message):
        with pytest.raises(ValueError, match=message):
            WhitespaceTokenizer.learn(texts, **options)


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        ([], r"^`vocabulary` must hold at least one word\. Received: none$"),
        (["a", "b", "a"], r"^`vocabulary` must hold each word once\. Received: \['a'\] more than once$"),
        (["a", 1], r"^`vocabulary` must hold strings without white space, none of them empty\. Received: 1$"),
        ([""], r"none of them empty\. Received: ''$"),
        (["a b"], r"without white space.* Received: 'a b'$"),
        ("HH AH0", r"without white space.* Received: 'HH AH0'$"),
        (["a\u3000"], r"without white space"),
        (["\ud800a"], r"^`vocabulary` must hold no surrogates"),
        (["a\ufffd"], r"^`vocabulary` must hold no U\+FFFD"),
        (["e\u0301"], r"^`vocabulary` must hold words that NFC leaves as they are \(this one becomes '\\xe9'\): norm"),
    ],
)
def test_vocabularies_that_are_refused(vocabulary, message):
    with pytest.raises(ValueError, match=message):
        WhitespaceTokenizer(vocabulary)


def test_without_normalisation_any_word_may_be_known():
    assert WhitespaceTokenizer(["e\u0301"], normalize=False).tokenize(["e\u0301 é"]).numpy().tolist() == [[4, 1]]
