"""What decoding is given, checked: rows of ids, limits and settings. What a graph does not know is not checked."""

from __future__ import annotations

import reprlib
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from zoo.text.tokenizer import PADDING


class ModelWrapper:
    """The base of what wraps a model. It has that model's sizes, by which sources and limits are checked."""

    PASSED_ON: ClassVar[tuple[str, ...]] = (
        "source_vocabulary_size",
        "vocabulary_size",
        "target_vocabulary_size",
        "context_length",
        "most_positions",
    )
    model: Any

    def __getattr__(self, name: str) -> Any:
        if name not in self.PASSED_ON:
            raise AttributeError(name)
        return getattr(self.model, name)  # which some models have not


def rows_of_ids(name: str, ids: Any, vocabulary_size: int | None = None) -> tf.Tensor:
    """Ids as int32 `(B, P)`; rows of different lengths get padding behind them.

    Args:
        name: the argument's name, for errors.
        ids: integers `(B, P)`, a ragged tensor, or a list or tuple of rows of any length.
        vocabulary_size: how many ids there are; None if it is not known.

    Raises:
        ValueError: they are not rows of integers, or an id is none of the vocabulary.
    """

    def is_row(each: Any) -> bool:
        is_known = isinstance(each, np.ndarray) or hasattr(each, "numpy")  # not so a tensor of a graph
        return isinstance(each, list | tuple) or (is_known and each.ndim == 1)

    received = f"a {type(ids).__name__}"
    if isinstance(ids, np.ndarray) and ids.dtype == object:  # of rows of different lengths
        ids = ids.tolist()
    try:
        if isinstance(ids, list | tuple) and all(map(is_row, ids)):
            rows = [[*(row if isinstance(row, list | tuple) else np.asarray(row))] for row in ids]
            width = max([1, *map(len, rows)])  # a recurrent model reads one position at least
            rows = [[*row, *[PADDING] * (width - len(row))] for row in rows]
            ids = tf.convert_to_tensor(rows) if rows else tf.zeros([0, width], tf.int32)
        ids = ids.to_tensor() if isinstance(ids, tf.RaggedTensor) else tf.convert_to_tensor(ids)
        received = f"{ids.dtype.name} of shape {ids.shape}"
    except (TypeError, ValueError, tf.errors.InvalidArgumentError):  # what is no tensor, such as a dict
        ids = tf.constant("")
    if ids.shape.rank not in (2, None) or not ids.dtype.is_integer:
        raise ValueError(f"`{name}` must be rows of ids, such as [[5, 6, 7]]. Received: {received}")
    _check_range(name, ids, vocabulary_size)
    return tf.ensure_shape(tf.cast(ids, tf.int32), [None, None]) if ids.shape.rank is None else tf.cast(ids, tf.int32)


def _check_range(name: str, ids: tf.Tensor, vocabulary_size: int | None) -> None:
    """Checks that ids which the graph knows are those of a vocabulary, if its size is known."""
    known = tf.get_static_value(ids)
    largest = tf.int32.max if vocabulary_size is None else vocabulary_size - 1
    wrong: Any = () if known is None else known[(known < 0) | (known > largest)]
    if len(wrong):
        raise ValueError(f"`{name}` must hold ids from 0 to {largest:,}, those of the model. Received: {wrong[0]}")


def _converted(source: list[Any]) -> tf.Tensor:
    """A list as a tensor of its own type; rows of ids of different lengths get padding behind them."""
    try:
        tensor = tf.convert_to_tensor(source)
        is_whole = tensor.shape.num_elements() != 0  # if the first row is empty, TensorFlow may drop all others
    except (TypeError, ValueError):
        is_whole = False
    return tensor if is_whole else rows_of_ids("source", source)


def written_size(model: Any) -> int | None:
    """How many ids a model may write; None if it does not tell."""
    return getattr(model, "vocabulary_size", getattr(model, "target_vocabulary_size", None))


def check_same_rows(name: str, tensor: tf.Tensor, of: str, other: tf.Tensor) -> None:
    """Checks that a tensor `(B, ...)` has as many rows as another, `of`, where the graph knows both.

    Raises:
        ValueError: it has more or fewer.
    """
    if not tensor.shape[:1].is_compatible_with(other.shape[:1]):
        raise ValueError(
            f"`{name}` must have as many rows as `{of}`, {other.shape[0]}. Received: {name} of shape {tensor.shape}"
        )


def one_for_each_row(name: str, value: Any, dtype: tf.DType, rows: tf.Tensor) -> tf.Tensor:
    """A setting of each row, `(B,)`; one number is that of all rows.

    Args:
        name: the setting's name, for errors.
        value: `()` or `(B,)`.
        dtype: the type of the result. A larger number than int32 has is its largest one, which is as good as no limit.
        rows: any tensor `(B, ...)`.

    Raises:
        ValueError: no numbers, fractions for integers, or more or fewer numbers than rows.
    """
    kind = "integer" if dtype.is_integer else "number"
    try:
        number = tf.convert_to_tensor(value)
    except (TypeError, ValueError, OverflowError):
        number = tf.constant("")
    if number.shape.num_elements() == 0:
        number = tf.cast(number, dtype)  # an empty list is one of floats
    if not (number.dtype.is_integer or (number.dtype.is_floating and not dtype.is_integer)):
        raise ValueError(f"`{name}` must be one {kind}, or one for each row. Received: {name}={value!r}")
    if number.shape.rank != 0 and not number.shape.is_compatible_with(rows.shape[:1]):
        raise ValueError(
            f"`{name}` must be one {kind}, or one for each of the {rows.shape[0]} rows. "
            f"Received: {name} of shape {number.shape}"
        )
    if dtype == tf.int32 and number.dtype.max > dtype.max:
        number = tf.clip_by_value(number, 0 if number.dtype.is_unsigned else dtype.min, dtype.max)
    return tf.broadcast_to(tf.cast(number, dtype), tf.shape(rows)[:1])


def checked_rows(model: Any, source: Any, limits: Any, first: Any = None) -> tuple[Any, tf.Tensor]:
    """What a model's `begin` reads, and a limit for each of its rows, int32 `(B,)`.

    Args:
        model: what is decoded with.
        source: ids, if the model has a `source_vocabulary_size` or, as a language model, a `context_length`; else
            whatever its `begin` takes, such as images. A dict is given to `begin` as it is.
        limits: the most tokens of each row, or of all.
        first: for `sample`, the first tokens `(B,)`; None if a start token is the first.

    Raises:
        ValueError: the model has no `begin` and `step`, the source, limits or first tokens are none, there are more or
            fewer limits or first tokens than rows, a limit is above the model's `most_positions`, or a row of ids and
            its limit together are longer than the context of a language model.
    """
    if not (hasattr(model, "begin") and hasattr(model, "step")):
        raise ValueError(
            "`model` must have the methods `begin` and `step`, as the families of `zoo.models` have; a copy by "
            f"`keras.models.clone_model` has not. Received: model of type {type(model).__name__}"
        )
    size, length = getattr(model, "source_vocabulary_size", None), getattr(model, "context_length", None)
    if length is not None:
        size = getattr(model, "vocabulary_size", size)
    is_ids = not (size is None and length is None) and not isinstance(source, dict)
    if is_ids:
        source = rows_of_ids("source", source, size)
    elif isinstance(source, list):
        source = _converted(source)
    elif isinstance(source, np.ndarray):
        source = tf.convert_to_tensor(source)
    rows = next(iter(tf.nest.flatten(source)), None) if first is None else first
    if not hasattr(rows, "shape"):
        raise ValueError(
            "`source` must be a list of rows of ids, or tensors whose first axis has the rows. Received: "
            f"{reprlib.repr(source)}"
        )
    if first is not None:
        if not first.dtype.is_integer or (is_ids and not source.shape[:1].is_compatible_with(first.shape)):
            each = f"of the {source.shape[0]} rows" if is_ids else "row"
            raise ValueError(
                f"`first` must be an id for each {each}. Received: first of shape {first.shape}, {first.dtype.name}"
            )
        _check_range("first", first, written_size(model))
    of_rows = one_for_each_row("limits", limits, tf.int32, rows)
    known = tf.get_static_value(tf.convert_to_tensor(limits))
    most = getattr(model, "most_positions", None)
    if most is not None and known is not None and (known > most).any():
        raise ValueError(
            f"`limits` must be at most {most}, the model's `most_positions`. Received: limits={known.tolist()}"
        )
    prompts = tf.get_static_value(source) if is_ids else None
    if length is not None and prompts is not None and known is not None:
        # The last token that is written is not read, but `first` or the start token is.
        longest = int((np.count_nonzero(prompts, axis=1) + known.astype("float64")).max(initial=0))  # never overflows
        if longest > length:
            raise ValueError(
                f"A prompt and its limit must be at most {length} tokens together, the model's `context_length`; "
                f"`generate` continues longer texts. Received: {longest} tokens"
            )
    return source, of_rows
