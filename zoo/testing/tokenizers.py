"""A test suite for tokenizers: what models, decoding and the export rely on."""

import json
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.text import END, PADDING, START, UNKNOWN, Tokenizer, compiled_encoder
from zoo.text.tokenizer import FIRST, tokenizer_from_config, tokenizer_to_config

_REPLACEMENT = "\ufffd".encode()
# A byte of no UTF-8, a lone continuation, cut off characters, an overlong slash, a surrogate, beyond U+10FFFF; NUL.
_BROKEN = [
    b"\xff",
    b"a\x80b",
    b"\xe2\x82",
    b"\xf0\x9f\x98 a",
    b"\xc0\xaf",
    b"\xed\xa0\xbd",
    b"\xf4\x90\x80\x80",
    b"\0a",
]


class TokenizerTests:
    """Tests that a tokenizer keeps the contract of `zoo.text.Tokenizer`.

    Subclass it and say how to make the tokenizer.

        class TestMine(zoo.testing.TokenizerTests):
            def make_tokenizer(self):
                return Mine(...)

    Axes: B batch, T length.

    Attributes:
        texts: texts of different lengths that come back as they are, one of them empty. The first has several ids.
        before: what the ids of a text write before it, and `detokenize` leaves out: a space, for some.
    """

    texts: tuple[str, ...] = ("ab ba", "", "b", "a a")
    before = ""

    def make_tokenizer(self) -> Tokenizer:
        """The tokenizer under test."""
        raise NotImplementedError("Say how to make the tokenizer: override `make_tokenizer`.")

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer under test, made once for a class."""
        return self._once("_tokenizer", self.make_tokenizer)

    def test_texts_come_back(self):
        """`detokenize` gives back what `tokenize` was given, with and without start and end."""
        for options in ({}, {"add_start": True}, {"add_end": True}, {"add_start": True, "add_end": True}):
            assert self._decoded(self.tokenizer.tokenize(self.texts, **options)) == [*self.texts], options

    def test_ids_are_in_the_vocabulary_and_padding_is_behind(self):
        """Ids are int32 and of the vocabulary; 0 fills each row behind its ids, up to the longest."""
        ids = self.tokenizer.tokenize([*self._bytes(), *_BROKEN])  # (B, T)
        assert ids.dtype == tf.int32
        ids = ids.numpy()
        assert ((ids >= 0) & (ids < self.tokenizer.size)).all()
        assert not np.isin(ids, [START, END]).any()
        lengths = (ids != PADDING).sum(axis=1)
        assert (ids != PADDING).tolist() == (np.arange(ids.shape[1]) < lengths[:, None]).tolist()
        assert ids.shape[1] == lengths.max()

    def test_a_row_does_not_depend_on_its_neighbours(self):
        """A text has the same ids in a batch and alone."""
        batch = [*self._bytes(), *_BROKEN]
        encode = self._encoder()
        for row, text in zip(self.tokenizer.tokenize(batch).numpy(), batch, strict=True):
            assert row[row != PADDING].tolist() == encode([text])[0].tolist(), text

    def test_start_and_end_surround_the_ids(self):
        """`add_start` and `add_end` add the two ids and change no other."""
        plain = [row[row != PADDING].tolist() for row in self.tokenizer.tokenize(self.texts).numpy()]
        ids = self.tokenizer.tokenize(self.texts, add_start=True, add_end=True).numpy()
        assert [row[row != PADDING].tolist() for row in ids] == [[START, *row, END] for row in plain]

    def test_max_length_counts_start_and_end(self):
        """`max_length` cuts ids of the text, and leaves room for at least one."""
        whole = self.tokenizer.tokenize(self.texts[:1]).numpy()[0].tolist()
        for length in (1, 2, len(whole) + 1):
            kept = whole[:length]
            assert self.tokenizer.tokenize(self.texts[:1], max_length=length).numpy()[0].tolist() == kept
            options = {"add_start": True, "add_end": True, "max_length": length + 2}
            assert self.tokenizer.tokenize(self.texts[:1], **options).numpy()[0].tolist() == [START, *kept, END]
        for options in ({}, {"add_start": True}, {"add_end": True}, {"add_start": True, "add_end": True}):
            message = _refused(self.tokenizer.tokenize, self.texts, max_length=len(options), **options)
            assert message.startswith("`max_length` must leave room for start, end and one id.")

    def test_pairs_are_their_texts_between_start_and_ends(self):
        """A row of `tokenize_pairs` has the ids of both texts; too long a pair loses ids of its longer text first."""
        first, second = self.texts, self.texts[::-1]
        plain = [row[row != PADDING].tolist() for row in self.tokenizer.tokenize(self.texts).numpy()]
        between = [END] * self.tokenizer.pair_separators
        ids, segments = (rows.numpy() for rows in self.tokenizer.tokenize_pairs(first, second))
        assert ids.dtype == segments.dtype == np.int32
        for row, segment, a, b in zip(ids, segments, plain, plain[::-1], strict=True):
            pair = [START, *a, *between, *b, END]
            assert row.tolist() == pair + [PADDING] * (len(row) - len(pair))
            assert segment.nonzero()[0].tolist() == [*range(len(pair) - len(b) - 1, len(pair))]
        long = max(plain, key=len)
        assert len(long) > 1
        text = self.texts[plain.index(long)]
        ids, _ = self.tokenizer.tokenize_pairs([text], [text], max_length=4 + len(between))
        assert ids.numpy().tolist() == [[START, long[0], *between, long[0], END]]
        assert [rows.shape for rows in self.tokenizer.tokenize_pairs([], [])] == [(0, 1), (0, 1)]

    def test_the_length_is_never_zero(self):
        """Empty texts and empty batches have one column at least."""
        ends = [({}, [PADDING]), ({"add_start": True}, [START]), ({"add_end": True}, [END])]
        for options, row in [*ends, ({"add_start": True, "add_end": True}, [START, END])]:
            assert self.tokenizer.tokenize(["", ""], **options).numpy().tolist() == [row, row]
            assert self.tokenizer.tokenize([], **options).shape == (0, 1)

    def test_any_bytes_are_tokenized_and_give_valid_utf8(self):
        """Broken UTF-8 is no error, and what comes back is valid."""
        for options in ({}, {"max_length": 1}):
            for text in self.tokenizer.detokenize(self.tokenizer.tokenize(_BROKEN, **options)).numpy():
                text.decode()

    def test_any_ids_are_detokenized_to_valid_utf8(self):
        """Ids in any order, and any integers, give valid UTF-8."""
        random, size = np.random.default_rng(0), self.tokenizer.size
        some = random.integers(FIRST, size, (40, 6))
        for text in self.tokenizer.detokenize(np.concatenate([some, random.integers(-(2**63), 2**63 - 1, some.shape)])):
            text.numpy().decode()

    def test_detokenize_stops_at_the_end_and_drops_padding_and_start(self):
        """A row is read up to its first end id."""
        row = self.tokenizer.tokenize(self.texts[:1]).numpy()[0].tolist()
        inside = [START, row[0], PADDING, *row[1:], END, row[0], END]
        assert self._decoded([inside]) == [self.texts[0]]
        assert self._decoded([[END, *row]]) == [""]

    def test_unknown_ids_and_ids_outside_are_replaced(self):
        """U+FFFD stands for ids that the vocabulary lacks, however wide they are."""
        outside = [UNKNOWN, self.tokenizer.size, -1, 2**32 + FIRST, -(2**32) + FIRST]  # the last two wrap round
        for id_ in outside:
            assert self.tokenizer.detokenize(np.array([[id_]])).numpy().tolist() == [_REPLACEMENT], id_
        assert self.tokenizer.tokens(np.array([outside])).numpy()[0].tolist() == [b"<unk>", *[_REPLACEMENT] * 4]
        assert self.tokenizer.written(np.array(outside)).numpy().tolist() == [_REPLACEMENT] * 5

    def test_special_ids(self):
        """Ids 0 to 3 are padding, unknown, start and end."""
        special = [[PADDING, UNKNOWN, START, END]]
        assert special == [[0, 1, 2, 3]]
        assert self.tokenizer.tokens(special).numpy().tolist() == [[b"", b"<unk>", b"<s>", b"</s>"]]
        assert self.tokenizer.written(special).numpy().tolist() == [[b"", _REPLACEMENT, b"", b""]]

    def test_ids_may_have_any_width_and_no_rows(self):
        """Ids of every integer type are read, and empty axes."""
        ids = self.tokenizer.tokenize(self.texts[:1]).numpy()
        for dtype in [np.int32, np.int64, np.uint64] + [np.uint8, np.int8] * bool(ids.max() < 128):
            assert self._decoded(ids.astype(dtype)) == [self.texts[0]], dtype
        for shape in ((0, 0), (0, 3), (2, 0)):
            assert self.tokenizer.detokenize(np.zeros(shape, "int32")).numpy().tolist() == [b""] * shape[0]
            assert self.tokenizer.tokens(np.zeros(shape, "int32")).shape == shape

    def test_what_ids_write_adds_up_to_the_text(self):
        """The bytes that ids write make up the text."""
        written = self.tokenizer.written(self.tokenizer.tokenize(self.texts, add_start=True, add_end=True)).numpy()
        assert [b"".join(row).decode() for row in written] == [
            self.before + text if text else "" for text in self.texts
        ]
        assert max(map(len, written.ravel())) <= self.tokenizer.longest_written
        everything = self.tokenizer.written(np.arange(self.tokenizer.size)).numpy()
        assert max(map(len, everything)) == self.tokenizer.longest_written

    def test_pieces_are_visible_and_as_many_as_ids(self):
        """Every id but padding has a piece to show."""
        pieces = self.tokenizer.tokens(np.arange(self.tokenizer.size)[None]).numpy()[0]
        assert all(piece.decode() for piece in pieces[1:])

    def test_a_corpus_is_encoded_by_one_graph(self):
        """`compiled_encoder` gives the ids of `tokenize`, traced once for batches of any size."""
        texts, calls = [*self.texts, *self.texts[::-1], ""], []
        wanted = [row[row != PADDING].tolist() for row in self.tokenizer.tokenize(texts).numpy()]
        split = self.tokenizer._split
        self.tokenizer._split = lambda strings: calls.append(strings) or split(strings)  # type: ignore[method-assign]
        try:
            encoder = compiled_encoder(self.tokenizer, add_end=True)
            batches = [encoder(texts[begin : begin + 2]) for begin in range(0, len(texts), 2)]
        finally:
            del self.tokenizer._split
        ids, lengths = map(np.concatenate, zip(*batches, strict=True))
        assert ids.dtype == np.int32
        rows = np.split(ids, np.cumsum(lengths)[:-1])
        assert [row.tolist() for row in rows] == [[*row, END] for row in wanted]
        assert len(calls) == 1 and not hasattr(calls[0], "numpy")  # traced once, never run
        assert [each.size for each in encoder([])] == [0, 0]

    def test_the_config_survives_json(self):
        """A tokenizer of the configuration gives the same ids."""
        config = tokenizer_to_config(self.tokenizer)
        text = json.dumps(config, ensure_ascii=False)
        copy = tokenizer_from_config(config)
        assert json.dumps(config, ensure_ascii=False) == text  # reading leaves it as it is
        copy = tokenizer_from_config(json.loads(text))
        assert type(copy) is type(self.tokenizer)
        assert copy.get_config() == self.tokenizer.get_config()
        batch = [*self._bytes(), *_BROKEN]
        np.testing.assert_array_equal(copy.tokenize(batch), self.tokenizer.tokenize(batch))

    def test_it_is_exported_with_core_operations(self):
        """A SavedModel of core TensorFlow operations gives the same as the tokenizer."""
        module = _Exported(self.tokenizer)
        batches: list[list[bytes]] = [[*self._bytes(), *_BROKEN], [b"", b""], []]
        with tempfile.TemporaryDirectory() as folder:
            tf.saved_model.save(module, folder, signatures=module.serve)
            loaded = tf.saved_model.load(folder).signatures["serving_default"]
            for batch in batches:
                texts = tf.constant(batch, tf.string, [len(batch)])
                ids = self.tokenizer.tokenize(batch, add_start=True, add_end=True)
                outputs = loaded(texts=texts)
                np.testing.assert_array_equal(outputs["ids"], ids)
                np.testing.assert_array_equal(outputs["pieces"], self.tokenizer.tokens(ids))
                np.testing.assert_array_equal(outputs["back"], self.tokenizer.detokenize(ids))
        graph = module.serve.get_concrete_function().graph.as_graph_def()
        nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
        functions = {function.signature.name for function in graph.library.function}
        foreign = {node.op for node in nodes if not hasattr(tf.raw_ops, node.op)} - functions
        assert not foreign - {"PartitionedCall", "StatefulPartitionedCall"}, foreign
        assert not {node.op for node in nodes} & {"PyFunc", "PyFuncStateless", "EagerPyFunc"}

    def test_other_inputs_are_refused(self):
        """A single string, numbers, and ids of another rank or in rows of different lengths raise a `ValueError`."""
        for texts in ("a", [["a"]], [1]):
            assert _refused(self.tokenizer.tokenize, texts).startswith("`texts` must be a batch of strings `(B,)`; ")
        for method in (self.tokenizer.detokenize, self.tokenizer.tokens):
            for ids in (4, [4], [[[4]]], [[4.0]], [["a"]], [[4], [4, 4]], tf.ragged.constant([[4], [4, 4]])):
                assert _refused(method, ids).startswith("`ids` must be integers `(B, T)`. Received: ")

    # How the tests call the tokenizer.

    def _bytes(self) -> list[bytes]:
        return [text.encode() for text in self.texts]

    def _decoded(self, ids: Any) -> list[str]:
        return [text.decode() for text in self.tokenizer.detokenize(ids).numpy()]

    def _encoder(self) -> Callable:
        return self._once("_compiled", lambda: compiled_encoder(self.tokenizer))

    def _once(self, name: str, make: Callable) -> Any:
        suite: Any = type(self)
        if name not in vars(suite):
            setattr(suite, name, staticmethod(made) if callable(made := make()) else made)
        return getattr(suite, name)


class _Exported(tf.Module):
    """A tokenizer behind a signature."""

    def __init__(self, tokenizer: Tokenizer):
        super().__init__()
        self.tokenizer = tokenizer

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "texts")], autograph=False)
    def serve(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Ids, their pieces, and the texts again."""
        ids = self.tokenizer.tokenize(texts, add_start=True, add_end=True)  # (B, T)
        pieces, back = self.tokenizer.tokens(ids), self.tokenizer.detokenize(ids)  # (B, T), (B,)
        assert (ids.shape.rank, pieces.shape.rank, back.shape.rank) == (2, 2, 1)
        return {"ids": ids, "pieces": pieces, "back": back}


def _refused(call: Callable, *arguments: Any, **options: Any) -> str:
    """The message of the `ValueError` that a call raises."""
    try:
        call(*arguments, **options)
    except ValueError as error:
        return str(error)
    raise AssertionError(f"{arguments} {options} should raise a ValueError")
