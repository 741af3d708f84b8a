"""CharacterTokenizer against ids computed by hand and against plain Python."""

import json
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.text import END, PADDING, START, UNKNOWN, CharacterTokenizer, Tokenizer

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


def test_special_ids():
    assert (PADDING, UNKNOWN, START, END) == (0, 1, 2, 3)


def test_size_counts_the_special_ids():
    assert TOKENIZER.size == 4 + len(VOCABULARY)


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
    ("add_start", "add_end", "row"),
    [(False, False, [0]), (True, False, [2]), (False, True, [3]), (True, True, [2, 3])],
)
def test_length_is_never_zero(add_start, add_end, row):
    ids = TOKENIZER.tokenize(["", ""], add_start=add_start, add_end=add_end)
    assert ids.numpy().tolist() == [row, row]
    assert TOKENIZER.tokenize([], add_start=add_start, add_end=add_end).shape == (0, 1)


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


def test_max_length_errors():
    with pytest.raises(ValueError, match=r"`max_length` must leave room for an id .* Received: max_length=2$"):
        TOKENIZER.tokenize(["a"], add_start=True, add_end=True, max_length=2)


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
@given(st.one_of(TEXTS, BYTES))
def test_a_row_does_not_depend_on_its_neighbours(strings):
    batch = TOKENIZER.tokenize(strings, add_end=True).numpy()
    for row, string in zip(batch, strings, strict=True):
        alone = TOKENIZER.tokenize([string], add_end=True).numpy()[0].tolist()
        assert row.tolist() == alone + [PADDING] * (len(row) - len(alone))


@settings(deadline=None)
@given(KNOWN_TEXTS, st.booleans(), st.booleans(), st.sampled_from([TOKENIZER, RAW]))
def test_detokenize_inverts_tokenize(texts, add_start, add_end, tokenizer):
    ids = tokenizer.tokenize(texts, add_start=add_start, add_end=add_end)
    assert [text.decode() for text in tokenizer.detokenize(ids).numpy()] == texts


def test_detokenize_stops_at_the_first_end_and_drops_padding_and_start():
    ids = [[2, 4, 0, 5, 3, 4, 3, 4], [4, 2, 1, 5, 0, 0, 0, 0], [3, 4, 4, 4, 4, 4, 4, 4]]
    assert TOKENIZER.detokenize(ids).numpy().tolist() == [b"ab", "a\ufffdb".encode(), b""]


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (2, 0)])
def test_detokenize_and_tokens_take_empty_axes(shape):
    ids = tf.zeros(shape, tf.int32)
    assert TOKENIZER.detokenize(ids).numpy().tolist() == [b""] * shape[0]
    assert TOKENIZER.tokens(ids).shape == shape


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 20), min_size=4, max_size=4), min_size=1))
def test_detokenize_and_tokens_take_any_ids(ids):
    ids = tf.constant(ids, tf.int64)
    for text in TOKENIZER.detokenize(ids).numpy():
        text.decode()
    for id_, piece in zip(ids.numpy().ravel(), TOKENIZER.tokens(ids).numpy().ravel(), strict=True):
        assert (piece.decode() == "\ufffd") == (not 0 <= id_ < TOKENIZER.size)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_ids_may_have_any_width(dtype):
    wide = CharacterTokenizer([chr(code) for code in range(0x4E00, 0x4E00 + 300)])  # more ids than int8 can hold
    ids = np.array([[4, 127, 3]], dtype)
    assert wide.detokenize(ids).numpy()[0].decode() == chr(0x4E00) + chr(0x4E00 + 123)
    assert wide.tokens(ids).numpy()[0, 1].decode() == chr(0x4E00 + 123)


def test_ids_that_would_wrap_round_are_outside():
    for ids in (np.array([[2**32 + 4, -(2**32) + 4]]), np.array([[2**63 + 4, 2**64 - 1]], np.uint64)):
        assert TOKENIZER.detokenize(ids).numpy()[0].decode() == "\ufffd\ufffd"


def test_tokens():
    pieces = TOKENIZER.tokens([[2, 4, 1, 7, 6], [13, 3, 0, -1, 14]]).numpy().tolist()
    assert pieces[0] == [b"<s>", b"a", b"<unk>", b"\0", b" "]
    assert pieces[1] == ["😀".encode(), b"</s>", b"", "\ufffd".encode(), "\ufffd".encode()]


def test_in_a_graph():
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def outputs(texts):
        ids = TOKENIZER.tokenize(texts, add_start=True, add_end=True)
        pieces, back = TOKENIZER.tokens(ids), TOKENIZER.detokenize(ids)
        assert (ids.shape.rank, pieces.shape.rank, back.shape.rank) == (2, 2, 1)
        return ids, pieces, back

    ids, pieces, back = outputs(tf.constant(["a", "e\u0301b", ""]))
    assert ids.numpy().tolist() == [[2, 4, 3, 0], [2, 8, 5, 3], [2, 3, 0, 0]]
    assert pieces.numpy()[0].tolist() == [b"<s>", b"a", b"</s>", b""]
    assert back.numpy().tolist() == [b"a", "éb".encode(), b""]
    assert [each.shape[0] for each in outputs(tf.zeros([0], tf.string))] == [0, 0, 0]


def test_in_a_pipeline():
    batches = tf.data.Dataset.from_tensor_slices(["a", "ab", "e\u0301"]).batch(2).map(TOKENIZER.tokenize)
    assert [ids.tolist() for ids in batches.as_numpy_iterator()] == [[[4, 0], [4, 5]], [[8]]]


def test_config_survives_json():
    config = json.loads(json.dumps(CharacterTokenizer(VOCABULARY, normalize=False).get_config()))
    assert config == {"vocabulary": VOCABULARY, "normalize": False}
    assert CharacterTokenizer.from_config(config).get_config() == config


@pytest.mark.parametrize("texts", ["a", [["a"]], [1]])
def test_tokenize_errors(texts):
    with pytest.raises(
        ValueError, match=r"^`texts` must be a batch of strings `\(B,\)`; .* Received: (string|int32) of"
    ):
        TOKENIZER.tokenize(texts)


@pytest.mark.parametrize("method", [TOKENIZER.detokenize, TOKENIZER.tokens])
@pytest.mark.parametrize("ids", [4, [4], [[[4]]], [[4.0]], [["a"]]])
def test_ids_errors(method, ids):
    with pytest.raises(ValueError, match=r"^`ids` must be integers `\(B, T\)`\. Received: (int|float|str)\w* of"):
        method(ids)


def test_is_a_tokenizer():
    assert isinstance(TOKENIZER, Tokenizer)
    assert isinstance(TOKENIZER, tf.Module)
