"""Normalisation in the graph against Python's unicodedata."""

import unicodedata

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.text import CharacterTokenizer, Composition
from zoo.text.canonical import canonical_tables

SCRIPTS = {
    "Latin": "".join(map(chr, [*range(0x41, 0x250), *range(0x1E00, 0x1F00), *range(0x2120, 0x2130)])),
    "Greek": "".join(map(chr, [*range(0x370, 0x400), *range(0x1F00, 0x2000)])),
    "Cyrillic": "".join(map(chr, range(0x400, 0x460))),
    "Hebrew": "".join(map(chr, [*range(0x591, 0x5F5), *range(0xFB1D, 0xFB50)])),
    "Arabic": "".join(map(chr, range(0x610, 0x6DD))),
    "Devanagari": "".join(map(chr, range(0x900, 0x980))),
    "Bengali": "".join(map(chr, range(0x980, 0xA00))),
    "Tamil": "".join(map(chr, range(0xB80, 0xC00))),
    "Kannada, Sinhala": "".join(map(chr, [*range(0xC80, 0xD00), *range(0xD80, 0xE00)])),
    "Tibetan": "".join(map(chr, range(0xF00, 0xFC0))),
    "Kana": "".join(map(chr, range(0x3040, 0x3100))),
    "Hangul": "".join(map(chr, [*range(0x1100, 0x1200), *range(0xAC00, 0xAC00 + 11172, 7)])),
    "Han": "".join(map(chr, [*range(0x4E00, 0x4E40), *range(0xF900, 0xFA00)])),
    "Music": "".join(map(chr, range(0x1D150, 0x1D1C0))),
    "marks": "".join(map(chr, range(0x300, 0x346))),
}
ALL = "".join(SCRIPTS.values())
# One script or all of them, and many marks, so that they meet often.
TEXTS = st.sampled_from([ALL, *SCRIPTS.values()]).flatmap(
    lambda characters: st.text(st.sampled_from(characters) | st.sampled_from(SCRIPTS["marks"]), max_size=8)
)


def nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def nfd(text: str) -> str:
    return unicodedata.normalize("NFD", text)


def ids_of(tokenizer: CharacterTokenizer, texts: list[str]) -> list[list[int]]:
    return [[id_ for id_ in row if id_] for row in tokenizer.tokenize(texts).numpy().tolist()]


def looked_up(vocabulary: str, text: str) -> list[int]:
    return [vocabulary.index(character) + 4 if character in vocabulary else 1 for character in text]


@st.composite
def equivalents(draw, text: str) -> str:
    """Draws a text that is canonically equivalent: some characters decomposed, some marks exchanged."""
    characters = [piece for c in nfc(text) for piece in (nfd(c) if draw(st.booleans()) else c)]
    for i in range(len(characters) - 1):
        first, second = map(unicodedata.combining, characters[i : i + 2])
        if first and second and first != second and draw(st.booleans()):
            characters[i : i + 2] = characters[i + 1], characters[i]
    return "".join(characters)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_equivalent_texts_have_the_ids_of_their_nfc(data):
    texts = data.draw(st.lists(TEXTS, min_size=3, max_size=12))
    tokenizer = CharacterTokenizer(sorted({*"x", *nfc("".join(map(nfc, texts)))}))
    # Joining texts may compose across their borders: keep those that are known.
    texts = [text for text in texts if set(nfc(text)) <= set(tokenizer.vocabulary)]
    forms = [form for text in texts for form in (text, nfc(text), nfd(text), data.draw(equivalents(text)))]
    expected = [looked_up(tokenizer.vocabulary, nfc(form)) for form in forms]
    assert ids_of(tokenizer, forms) == expected
    back = tokenizer.detokenize(tokenizer.tokenize(forms)).numpy()
    assert [text.decode() for text in back] == [nfc(form) for form in forms]


@settings(max_examples=12, deadline=None)
@given(st.lists(TEXTS, min_size=2, max_size=6), st.sets(st.sampled_from(ALL), max_size=30))
def test_a_row_does_not_depend_on_its_neighbours(texts, characters):
    # The vocabulary knows only a part of the texts.
    tokenizer = CharacterTokenizer(sorted({*"x", *nfc(texts[0]), *(c for c in characters if nfc(c) == c)}))
    assert ids_of(tokenizer, texts) == [ids_of(tokenizer, [text])[0] for text in texts]


@pytest.mark.parametrize(
    ("vocabulary", "text", "expected"),
    [
        ("é", "e\u0301", [4]),
        ("ế", "e\u0302\u0301", [4]),  # by way of an unknown ê
        ("ế", "ê\u0301", [4]),
        ("ậ", "â\u0323", [4]),  # as Vietnamese keyboards write it: the dot below belongs before the circumflex
        ("각", "\u1100\u1161\u11a8", [4]),  # by way of an unknown 가
        ("Å", "\u212b", [4]),
        ("क\u093c", "\u0958", [4, 5]),  # NFC itself writes this letter with two code points
        ("á\u0327", "a\u0327\u0301", [4, 5]),  # composes across a mark
        ("aá\u030d\u0301", "a\u030d\u0301", [4, 6, 7]),  # but not across a mark of the same class
        ("ب\u0651\u064e", "ب\u0651\u064e", [4, 6, 5]),  # order of marks that compose with nothing
    ],
)
def test_by_hand(vocabulary, text, expected):
    assert ids_of(CharacterTokenizer(vocabulary), [text]) == [expected]
    assert looked_up(vocabulary, nfc(text)) == expected


@pytest.mark.parametrize(
    ("vocabulary", "text", "expected"),
    [
        ("e\u0301", "é", [4, 5]),  # an unknown letter of known pieces
        ("ê\u0301", "ế", [4, 5]),
        ("e\u0302\u0301", "ế", [4, 5, 6]),
        ("eế", "ê", [1]),  # the circumflex is known only inside another letter
        ("a", "é", [1]),  # unknown: as many as are written
        ("a", "e\u0301", [1, 1]),
        ("aé", "a\u0301", [1]),
        ("é", "e\u0316\u0301", [4, 1]),  # an unknown mark does not stand between
    ],
)
def test_what_the_vocabulary_lacks(vocabulary, text, expected):
    assert ids_of(CharacterTokenizer(vocabulary), [text]) == [expected]


def test_nothing_composes_across_rows():
    tokenizer = CharacterTokenizer("eé\u0301\u0316")
    rows = ["e", "\u0301", "", "\u0301\u0316", "e\u0316", "\u0301e", "\u0301"]
    assert ids_of(tokenizer, rows) == [[4], [6], [], [7, 6], [4, 7], [6, 4], [6]]


def test_rows_change_length_apart():
    tokenizer = CharacterTokenizer("éक\u093c")
    assert ids_of(tokenizer, ["\u0958\u0958", "", "e\u0301e\u0301e\u0301", "\u0958"]) == [
        [5, 6, 5, 6],
        [],
        [4, 4, 4],
        [5, 6],
    ]


def test_composition_keeps_code_points_of_other_texts():
    composition = Composition("é")
    texts = tf.ragged.constant([[97, 0, 0x10FFFF], [], [101, 0x301]], tf.int32)
    assert composition(texts).to_list() == [[97, 0, 0x10FFFF], [], [0xE9]]


def operations(tokenizer: CharacterTokenizer) -> list[str]:
    function = tf.function(tokenizer.tokenize, autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
    return [operation.type for operation in function.get_concrete_function().graph.get_operations()]


def test_no_operations_where_nothing_can_change():
    vocabulary = "0123456789-数字"
    assert operations(CharacterTokenizer(vocabulary)) == operations(CharacterTokenizer(vocabulary, normalize=False))


def test_tables_hold_what_the_vocabulary_needs():
    tables = canonical_tables(frozenset("K각"))
    assert tables.expansions == {"\u212a": "K"}
    assert tables.pairs == {("가", "\u11a8"): "각", ("\u1100", "\u1161"): "가"}
    assert tables.watched == {"\u212a", "\u11a8", "\u1161"}
    assert (tables.classes, tables.spellings, tables.passes) == ({}, {}, 2)
