"""Cutting texts into words, and lower case, against the `tokenizers` library."""

import itertools

import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, normalizers, pre_tokenizers

from zoo.text.normalization import Lowercase
from zoo.text.words import PATTERNS, QWEN_2, split_into_words

LIBRARY = pre_tokenizers.ByteLevel(add_prefix_space=False)
LIBRARY_LOWERCASE = normalizers.Lowercase().normalize_str
LOWERCASE = Lowercase()
# All of the first two planes and of the marks of plane 14, and the borders of the others, where there are only
# ideographs, private characters and unassigned ones.
PLANES = [chr(c) for c in itertools.chain(range(0xD800), range(0xE000, 0x20000), range(0xE0000, 0xE0200))]
PLANES += [chr(c) for c in range(0x20000, 0x110000, 0x100)] + [chr(c - 1) for c in range(0x20100, 0x110001, 0x100)]
STRETCH = 128
# What the pattern tells apart, and what it might.
SPACES = [*" \t\n\0\x0b\x1c\x1f\x85\xa0\u180e\u2003\u200b\u2028\u3000\ufeff", "  ", "\r\n"]  # some only look like it
LETTERS = [*"aÉ中한אßsdmt", "e\u0301", "ब\u093f", "ll", "re", "ve", "r", "S", "'S", "'LL", "'ſ"]
OTHERS = [*"'’7٣Ⅷ²½!_-…€😀\u0301\u200d\ufffd\u0378\U0010ffff\U000e0001", "?!", "👩\u200d👧", "🇩🇪"]
FRAGMENTS = st.sampled_from(SPACES + LETTERS + OTHERS)
TEXTS = st.lists(st.one_of(st.lists(FRAGMENTS).map("".join), st.text(st.characters(codec="utf-8"))), max_size=12)


def library_words(text, library=LIBRARY):
    """The words of a text as the library cuts it, which it gives by their places."""
    return [text[begin:end] for _, (begin, end) in library.pre_tokenize_str(text)]


def words_of(texts, **options):
    """The words of each text as we cut it."""
    words, rows = split_into_words(tf.constant(texts, tf.string, [len(texts)]), **options)
    assert rows.dtype == tf.int64
    lists = [[] for _ in texts]
    for word, row in zip(words.numpy(), rows.numpy(), strict=True):
        lists[row].append(word.decode())
    return lists


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("Hello world", ["Hello", " world"]),
        ("it's we'll I'Ve 'tis", ["it", "'s", " we", "'ll", " I", "'", "Ve", " '", "tis"]),
        ("abc123 45,6!?", ["abc", "123", " 45", ",", "6", "!?"]),
        ("a   b", ["a", "  ", " b"]),
        ("a \n b\n\nc  ", ["a", " \n", " b", "\n", "\n", "c", "  "]),
        ("   ", ["   "]),
        ("  's", [" ", " '", "s"]),
        ("\u3000\u3000中", ["\u3000", "\u3000", "中"]),
        ("e\u0301a", ["e", "\u0301", "a"]),
    ],
)
def test_words_by_hand(text, words):
    assert words_of([text]) == [words]


def test_words_are_in_their_order_and_know_their_texts():
    words, rows = split_into_words(tf.constant(["a b", "", " c", ""]))
    assert words.numpy().tolist() == [b"a", b" b", b" c"]
    assert rows.numpy().tolist() == [0, 0, 2]
    assert words_of([]) == [] and words_of(["", ""]) == [[], []]


@settings(deadline=None, max_examples=50)
@given(TEXTS)
@example([" \t a\n\n's  "])
def test_words_are_the_librarys(texts):
    assert words_of(texts) == [library_words(text) for text in texts]


@pytest.mark.parametrize("after", ["a", "1", "!", "\n", "\n\n"])
def test_every_character_is_of_the_librarys_class(after):
    # Together with a neighbour of each class a character's own class shows.
    stretches = [PLANES[i : i + STRETCH] for i in range(0, len(PLANES), STRETCH)]
    texts = ["".join(character + after for character in stretch) for stretch in stretches]
    for text, words in zip(texts, words_of(texts), strict=True):
        assert words == library_words(text)


# Each pattern, the two kinds of digits, and several of them one after another.
CUTS = {pattern: ((pattern,), None) for pattern in PATTERNS}
CUTS |= {"individual digits": ((), True), "runs of digits": ((), False)}
CUTS |= {"digits, then a pattern": ((QWEN_2,), True), "two patterns": ((r"\p{N}{1,3}", PATTERNS[0]), None)}


def library_of(patterns, individual_digits):
    steps = [] if individual_digits is None else [pre_tokenizers.Digits(individual_digits)]
    steps += [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence(steps)


@pytest.mark.parametrize(("patterns", "individual_digits"), CUTS.values(), ids=CUTS)
class TestPatterns:
    def test_words_are_the_librarys(self, patterns, individual_digits):
        library = library_of(patterns, individual_digits)

        @settings(deadline=None, max_examples=20)
        @given(TEXTS)
        @example([" \t a\n\n's  ", ".\n\n a", "\r\n  \n 1234", "a \n", "12345 ²Ⅷ", "'LL'ſ'K", " \n\n\t\tb\u3000\n"])
        def check(texts):
            found = words_of(texts, patterns=patterns, individual_digits=individual_digits)
            assert found == [library_words(text, library) for text in texts]

        check()

    @pytest.mark.long
    @pytest.mark.parametrize(("before", "after", "one_in"), [("", "!\n", 1), ("'", "1", 5), ("  ", " a", 5)])
    def test_every_character_is_cut_as_the_library_does(self, patterns, individual_digits, before, after, one_in):
        """Behind nothing; and behind an apostrophe and behind spaces a fifth of them."""
        library, characters = library_of(patterns, individual_digits), PLANES[::one_in]
        stretches = [characters[i : i + STRETCH] for i in range(0, len(characters), STRETCH)]
        texts = ["".join(before + character + after for character in stretch) for stretch in stretches]
        found = words_of(texts, patterns=patterns, individual_digits=individual_digits)
        assert found == [library_words(text, library) for text in texts]


def test_every_character_has_the_librarys_lower_case():
    texts = ["".join(PLANES[i : i + STRETCH]) for i in range(0, len(PLANES), STRETCH)]
    lowered = LOWERCASE(tf.constant(texts)).numpy()
    for text, lower in zip(texts, lowered, strict=True):
        assert lower.decode() == LIBRARY_LOWERCASE(text)


@pytest.mark.parametrize(
    ("text", "lower"),
    [
        ("", ""),
        ("ÄÖÜẞ", "äöüß"),
        ("İI", "i\u0307i"),  # longer than before, and without the dotless i of Turkish
        ("ΑΣ ΣΑ", "ασ σα"),  # no final sigma, unlike in Python
        ("Ǆǅ Ⅷ Ⓐ 𐐀", "ǆǆ ⅷ ⓐ 𐐨"),
        ("\0A\n", "\0a\n"),
    ],
)
def test_lower_case_by_hand(text, lower):
    assert LOWERCASE(tf.constant(["X", text])).numpy()[1].decode() == lower == LIBRARY_LOWERCASE(text)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.binary(max_size=12), max_size=12))
def test_lower_case_reads_any_bytes(strings):
    lowered = LOWERCASE(tf.constant(strings, tf.string, [len(strings)])).numpy().tolist()
    assert [each.decode() for each in lowered] == [LIBRARY_LOWERCASE(s.decode("utf-8", "replace")) for s in strings]
