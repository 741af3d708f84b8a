"""What all tokenizers share: special ids, padding, end tokens, the visible pieces, and encoding a whole corpus."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from zoo.text.ragged import cut_to
from zoo.text.strings import checked_texts

PADDING = 0
"""The id behind the tokens of a row."""
UNKNOWN = 1
"""The id of what is not in the vocabulary."""
START = 2
"""The id before a text."""
END = 3
"""The id after a text, the first of the ids that a model may write."""
SPECIAL_PIECES = ("", "<unk>", "<s>", "</s>")
FIRST = len(SPECIAL_PIECES)  # the first id of the vocabulary
REPLACEMENT = "\ufffd"


def previous(ids: tf.Tensor) -> tf.Tensor:
    """The decoder's inputs for target ids `(B, T)`: the ids shifted right by one, START first, `(B, T)`."""
    return tf.pad(ids[:, :-1], [[0, 0], [1, 0]], constant_values=START)


# The classes that `tokenizer_from_config` knows: all that were defined.
_CLASSES: dict[str, type[Tokenizer]] = {}


class Tokenizer(tf.Module):
    """Base of tokenizers that run in the graph: strings to ids and back.

    A tokenizer is made of core TensorFlow operations and lookup tables that it tracks. As an attribute of a `tf.Module`
    or a model it is saved with it, and any loader of SavedModels can run it.

    Ids 0 to 3 mean the same in every tokenizer: `PADDING` fills rows up to the longest of a batch, `UNKNOWN` stands for
    text outside the vocabulary, a decoder begins with `START`, and `detokenize` stops at `END`. The vocabulary begins
    at 4.

    A subclass sets its own attributes, calls `super().__init__(pieces, contents)` and gives `_split`, `_join` and
    `get_config`.

    Axes: B batch, T length.

    Args:
        pieces: the visible piece of each id from 4 on, in the order of the ids.
        contents: the bytes that each of these ids writes.

    Attributes:
        mask_id: the id of the mask, which hides a token of a text; None if the tokenizer has none.
        pair_separators: how many end ids stand between the texts of a pair: BERT has one, RoBERTa two.
    """

    mask_id: int | None = None
    pair_separators: int = 1

    def __init__(self, pieces: Sequence[str], contents: Sequence[bytes]):
        super().__init__()
        self._contents = np.array([b"", REPLACEMENT.encode(), b"", b"", *contents, REPLACEMENT.encode()], dtype=object)
        # The last piece stands for every id beyond the vocabulary. An array of objects: NumPy's own strings drop
        # trailing NULs, and tf.Module would wrap a tuple.
        everything = [*SPECIAL_PIECES, *pieces, REPLACEMENT]
        self._pieces = np.array([piece.encode() for piece in everything], dtype=object)

    def __init_subclass__(cls, **arguments: Any):
        super().__init_subclass__(**arguments)
        _CLASSES[cls.__name__] = cls

    @property
    def size(self) -> int:
        """The number of ids, the four special ones included."""
        return len(self._pieces) - 1

    def tokenize(
        self, texts: Any, add_start: bool = False, add_end: bool = False, max_length: int | None = None
    ) -> tf.Tensor:
        """Turns strings into rows of ids, padded with 0 to the longest row.

        Any bytes are accepted: unknown characters and broken UTF-8 become the unknown id or U+FFFD, never an error.
        Half a surrogate pair in a string of Python has no UTF-8 and becomes "?".

        T is at least 1: a batch of empty strings gives one column of padding, and an empty batch the shape `(0, 1)`.
        A model then never gets a sequence without positions, on which reductions and softmax are undefined.

        Args:
            texts: strings in UTF-8, `(B,)`.
            add_start: whether each row begins with the start id.
            add_end: whether the last id of each row is followed by the end id.
            max_length: the largest number of ids in a row, start and end included; the rest of the text is left out.
                None means no limit.

        Returns:
            Ids, int32 `(B, T)`.

        Raises:
            ValueError: `texts` are not strings with one axis, or `max_length` is no integer or leaves no room for an id
                of the text.
        """
        texts = checked_texts(texts)
        return self._padded(self._split(texts), texts.shape[0], add_start, add_end, max_length)

    def _padded(
        self, ids: tf.RaggedTensor, rows: int | None, add_start: bool, add_end: bool, max_length: int | None
    ) -> tf.Tensor:
        """Pads ragged ids `(B, None)` to `(B, T)`; `rows` is B where it is known statically."""
        if max_length is not None:
            room = whole_number("max_length", max_length) - int(add_start) - int(add_end)
            if room < 1:
                raise ValueError(
                    f"`max_length` must leave room for start, end and one id. Received: max_length={max_length}"
                )
            ids = ids[:, :room]
        lengths = ids.row_lengths()  # (B,)
        # The width without the start id. For an empty batch, the first argument is the smallest integer, and the second
        # one counts.
        width = tf.maximum(tf.reduce_max(lengths) + int(add_end), 1 - int(add_start))
        dense = ids.to_tensor(default_value=PADDING, shape=tf.stack([tf.constant(-1, tf.int64), width]))  # (B, T)
        if add_end:
            at_end = tf.range(width)[tf.newaxis, :] == lengths[:, tf.newaxis]  # (B, T)
            dense = tf.where(at_end, END, dense)
        if add_start:
            dense = tf.pad(dense, [[0, 0], [1, 0]], constant_values=START)  # (B, T + 1)
        return tf.ensure_shape(dense, [rows, None])

    def tokenize_pairs(self, first: Any, second: Any, max_length: int | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """Turns pairs of strings into rows of ids: start, the first text, end, the second text, end, and padding.

        Between the texts stand `pair_separators` end ids. If a pair is too long, ids are cut from the end of its longer
        text until both texts are equally long, and then from both. If the ids that are kept are an odd number, the
        longer text keeps one more; of equally long texts, the second does. This is `longest_first` of the `tokenizers`
        library. Special tokens that stand in the texts are read as text.

        Args:
            first: strings in UTF-8, `(B,)`.
            second: strings in UTF-8, `(B,)`.
            max_length: the largest number of ids in a row, start and ends included; None means no limit.

        Returns:
            Ids, int32 `(B, T)`, and the segment of each, int32 `(B, T)`: 1 for the second text and the end behind it, 0
            for all others.

        Raises:
            ValueError: a text is no batch of strings, the batches differ in size, or `max_length` is no integer or
                leaves no room for an id of each text.
        """
        first, second = checked_texts(first), checked_texts(second)
        if not first.shape.is_compatible_with(second.shape):
            raise ValueError(
                "`first` and `second` must have the same number of texts. "
                f"Received: {first.shape[0]} and {second.shape[0]}"
            )
        texts = [self._split(first), self._split(second)]  # (B, ragged), (B, ragged)
        if max_length is not None:
            room = whole_number("max_length", max_length) - self.pair_separators - 2
            if room < 2:
                raise ValueError(
                    "`max_length` must leave room for start, ends and an id of each text. "
                    f"Received: max_length={max_length}"
                )
            lengths = texts[0].row_lengths(), texts[1].row_lengths()  # (B,), (B,)
            # The shorter text keeps up to half of the room, and the longer one what is left.
            short = tf.minimum(tf.minimum(*lengths), room // 2)  # (B,)
            kept = tf.where(lengths[0] <= lengths[1], short, room - short)  # (B,), of the first text
            texts = [cut_to(text, limits) for text, limits in zip(texts, (kept, room - kept), strict=True)]
        begins = 1 + texts[0].row_lengths()[:, tf.newaxis] + self.pair_separators  # (B, 1), of the second texts
        ends = begins + texts[1].row_lengths()[:, tf.newaxis]  # (B, 1)

        def repeated(id_: int, number: int) -> tf.RaggedTensor:
            return tf.RaggedTensor.from_tensor(tf.fill([tf.size(first), number], id_), row_splits_dtype=tf.int64)

        ids = [repeated(START, 1), texts[0], repeated(END, self.pair_separators), texts[1], repeated(END, 1)]
        # The maximum over no rows is the least integer.
        width = tf.maximum(tf.reduce_max(ends) + 1, 1)
        dense = tf.concat(ids, axis=1).to_tensor(PADDING, shape=tf.stack([tf.constant(-1, tf.int64), width]))  # (B, T)
        columns = tf.range(width)[tf.newaxis, :]  # (1, T)
        segments = tf.cast((columns >= begins) & (columns <= ends), tf.int32)  # (B, T)
        rows = first.shape.merge_with(second.shape)[0]
        return tf.ensure_shape(dense, [rows, None]), tf.ensure_shape(segments, [rows, None])

    def detokenize(self, ids: Any) -> tf.Tensor:
        """Turns rows of ids back into strings.

        A row is read up to its first end id; padding and start ids are dropped everywhere. The unknown id and ids
        beyond the vocabulary become U+FFFD. The strings are valid UTF-8 for any ids.

        Args:
            ids: integers of any width, `(B, T)`.

        Returns:
            Strings in UTF-8, `(B,)`.

        Raises:
            ValueError: `ids` are not integers with two axes.
        """
        ids = _checked_ids(ids)
        columns = tf.range(tf.shape(ids)[1])  # (T,)
        # A sum along the rows would tell the same, and took a quarter of the time of all.
        end = tf.reduce_min(tf.where(ids == END, columns, tf.int32.max), axis=1)  # (B,)
        # What writes nothing is dropped first: rows are padded to the longest, and to look up a string costs most.
        places = tf.where((columns < end[:, tf.newaxis]) & (ids != PADDING) & (ids != START))  # (N, 2)
        found = tf.gather_nd(ids, places)  # (N,)
        inside = (found >= 0) & (found < self.size)
        # Narrowed after the test: a wide id would otherwise wrap round into the vocabulary.
        texts = self._join(tf.cast(tf.where(inside, found, UNKNOWN), tf.int32), places[:, 0], tf.shape(ids)[0])
        return tf.ensure_shape(texts, [ids.shape[0]])

    def tokens(self, ids: Any) -> tf.Tensor:
        """The visible piece of each id, as pictures of attention weights show it.

        Padding is the empty string; unknown, start and end are `<unk>`, `<s>` and `</s>`; ids beyond the vocabulary are
        U+FFFD.

        Args:
            ids: integers of any width, `(B, T)`.

        Returns:
            Strings in UTF-8, `(B, T)`.

        Raises:
            ValueError: `ids` are not integers with two axes.
        """
        ids = _checked_ids(ids)
        inside = (ids >= 0) & (ids < self.size)
        return tf.gather(tf.constant(self._pieces, tf.string), tf.where(inside, ids, self.size))

    def written(self, ids: Any) -> tf.Tensor:
        """The bytes that each id adds to a text; a character may need the bytes of several ids.

        Padding, start and end write nothing; the unknown id and ids beyond the vocabulary write U+FFFD.

        Args:
            ids: integers of any width and shape.

        Returns:
            Strings of bytes, of the same shape.
        """
        ids = tf.cast(tf.convert_to_tensor(ids), tf.int64)
        inside = (ids >= 0) & (ids < self.size)
        return tf.gather(tf.constant(self._contents, tf.string), tf.where(inside, ids, self.size))

    @property
    def longest_written(self) -> int:
        """The largest number of bytes that an id writes."""
        return max(map(len, self._contents))

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, fit for JSON."""
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The tokenizer of a `get_config`; it gives the same ids."""
        return cls(**config)

    def _split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Turns strings `(B,)` into ids of the vocabulary or unknown, int32 ragged `(B, None)`."""
        raise NotImplementedError

    def _join(self, ids: tf.Tensor, rows: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        """Turns ids into strings.

        Args:
            ids: of the vocabulary or unknown, those of all texts one after another, int32 `(N,)`.
            rows: the text of each, ascending, int64 `(N,)`.
            count: B, the number of texts; some may have no ids.

        Returns:
            Strings `(B,)`.
        """
        raise NotImplementedError


def tokenizer_to_config(tokenizer: Tokenizer) -> dict[str, Any]:
    """The tokenizer's class and arguments, fit for JSON."""
    return {"class": type(tokenizer).__name__, **tokenizer.get_config()}


def tokenizer_from_config(config: dict[str, Any]) -> Tokenizer:
    """The tokenizer of a `tokenizer_to_config`.

    Raises:
        ValueError: its class is not known.
    """
    arguments = dict(config)
    name = arguments.pop("class", None)
    if name not in _CLASSES:
        raise ValueError(f"Unknown tokenizer class {name!r}; known are {', '.join(sorted(_CLASSES))}.")
    return _CLASSES[name].from_config(arguments)


def example_texts(tokenizer: Tokenizer) -> list[str]:
    """Some texts of a tokenizer's tokens, always the same ones, of different lengths: for warm-up and checks."""
    random = np.random.default_rng(0)
    rows = [random.integers(FIRST, tokenizer.size, length) for length in (12, 5, 20, 1)]
    return [tokenizer.detokenize(row[None]).numpy()[0].decode("utf-8") for row in rows]


def compiled_encoder(
    tokenizer: Tokenizer, add_end: bool = False
) -> Callable[[Sequence[str]], tuple[np.ndarray, np.ndarray]]:
    """A function from texts to their ids without padding, compiled once for batches of any size.

    Preparing a corpus goes through it. Called eagerly, `tokenize` runs each round of merges as Python calls, at about a
    tenth of the speed of the graph; and a padded batch would be as wide as its longest text.

    Args:
        tokenizer: the tokenizer.
        add_end: whether the end id follows each text.

    Returns:
        A function that takes B strings and returns the ids of all texts one after another, int32 `(N,)`, and the number
        of ids of each text, int64 `(B,)`.
    """

    # Not an attribute of the tokenizer: its SavedModel would hold a second copy of the function.
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def encode(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        ids = tokenizer._split(texts)  # (B, ragged)
        if add_end:
            ends = tf.fill([tf.size(texts), 1], END)  # (B, 1)
            ids = tf.concat([ids, tf.RaggedTensor.from_tensor(ends, row_splits_dtype=tf.int64)], axis=1)
        return ids.values, ids.row_lengths()

    def encoder(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        values, lengths = encode(checked_texts(list(texts)))
        return values.numpy(), lengths.numpy()

    return encoder


def whole_number(name: str, value: Any) -> int:
    """The value of an argument as Python's integer, which a saved task can hold; it may be NumPy's or TensorFlow's.

    Raises:
        ValueError: it is no integer.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except (TypeError, AttributeError):  # the second of a tensor of strings
        raise ValueError(f"`{name}` must be an integer. Received: {name}={value!r}") from None


def _checked_ids(ids: Any) -> tf.Tensor:
    """The ids as a tensor, int32 or int64 `(B, T)`."""
    wanted = "`ids` must be integers `(B, T)`. Received: "
    try:
        ids = tf.convert_to_tensor(ids)
    except (TypeError, ValueError) as error:  # such as rows of different lengths
        raise ValueError(f"{wanted}{reprlib.repr(ids)}") from error
    if not ids.dtype.is_integer or ids.shape.rank not in (None, 2):
        raise ValueError(f"{wanted}{ids.dtype.name} of shape {ids.shape}")
    ids = tf.ensure_shape(ids, [None, None])
    # Wide enough for comparison with the size of any vocabulary.
    return ids if ids.dtype == tf.int32 else tf.cast(ids, tf.int64)
