"""Functions of logits: the k largest of many, and the log-probabilities of given tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from zoo.decoding.inputs import check_same_rows, rows_of_ids, written_size
from zoo.decoding.loop import not_converted
from zoo.text.tokenizer import PADDING, whole_number

_TOP_CHUNK = 64  # values in a chunk, approximately
_FEW_VALUES = 2048  # up to here, searching all of one row costs less than the operations that a few chunks take
_SCORED_CHUNK = 256  # tokens whose logits are held at once


class Largest(NamedTuple):
    """What `top_k` finds. Axes: B batch, k values.

    Attributes:
        values: in descending order, `(B, k)`.
        rows: the row of each value, from 0 to N - 1, int32 `(B, k)`.
        places: its place in that row, int32 `(B, k)`.
    """

    values: tf.Tensor
    rows: tf.Tensor
    places: tf.Tensor


def top_k(
    values: tf.Tensor, k: int, first: int = 0, added: tf.Tensor | None = None, as_log_probabilities: bool = False
) -> Largest:
    """The k largest values of several rows together.

    Of few values all are searched, which takes fewer operations; of many, only those that may be among the largest.

    Axes: B batch, N rows, V values of a row.

    Args:
        values: float `(B, N, V)`, N and V known.
        k: how many, at most N (V - `first`).
        first: places before this one are ignored.
        added: float `(B, N)`, added to all values of a row; None for nothing.
        as_log_probabilities: whether the values are logits, to be turned into log-probabilities row by row.

    Returns:
        `Largest`. Of equal values any may be taken; with k = 1 and N = 1, the first of them is.
    """
    number, size = values.shape[1:]
    if k == number == 1 and size <= _FEW_VALUES:
        found, places = tf.math.top_k(values[:, 0, first:], 1)  # (B, 1)
        if as_log_probabilities:  # the largest logit has the largest log-probability
            found = tf.reduce_max(tf.nn.log_softmax(values)[:, 0, first:], axis=-1, keepdims=True)  # (B, 1)
        return Largest(_added_late(found, added, number), tf.zeros_like(places), places + first)
    largest = _top_k_of_all if size < 4 * _TOP_CHUNK * k else _top_k_of_chunks
    return largest(values, k, first, added, as_log_probabilities)


def _top_k_of_all(
    values: tf.Tensor, k: int, first: int, added: tf.Tensor | None, as_log_probabilities: bool
) -> Largest:
    """`top_k` by a search of all values."""
    number, left = values.shape[1], values.shape[2] - first
    if as_log_probabilities:
        added = -log_normalizer(values) if added is None else added - log_normalizer(values)  # (B, N)
    values = values[:, :, first:] if first else values
    values = values if added is None or number == 1 else values + added[:, :, None]
    found, places = tf.math.top_k(tf.reshape(values, [-1, number * left]), k)  # (B, k)
    return Largest(_added_late(found, added, number), places // left, places % left + first)


def _top_k_of_chunks(
    values: tf.Tensor, k: int, first: int, added: tf.Tensor | None, as_log_probabilities: bool
) -> Largest:
    """`top_k` by a search of a few chunks of the values.

    On a CPU, `tf.math.top_k` compares values one by one, but a maximum reads many at once. The k largest values lie in
    the k chunks with the largest maxima, so only these chunks are searched. Copying takes as long as searching, so
    nothing is copied if V is divisible by a chunk length near 64.
    """
    number, size = values.shape[1:]
    chunk = _chunk(size)
    chunks = -(-size // chunk)
    if size % chunk:
        values = tf.pad(values, [[0, 0], [0, 0], [0, chunks * chunk - size]], constant_values=float("-inf"))
    values = tf.reshape(values, [-1, number * chunks, chunk])  # (B, N chunks, chunk)
    maxima = tf.reshape(tf.reduce_max(values, axis=-1), [-1, number, chunks])  # (B, N, chunks)
    if as_log_probabilities:
        normalizer = _log_normalizer_of_chunks(tf.reshape(values, [-1, number, chunks, chunk]), maxima)  # (B, N)
        added = -normalizer if added is None else added - normalizer
    to_all = None if number == 1 else added
    maxima = maxima if to_all is None else maxima + to_all[:, :, None]
    # Chunks with places before `first` may displace others, so the same number of additional chunks is searched.
    few = min(k - (-first // chunk) * number, number * chunks)
    _, best = tf.math.top_k(tf.reshape(maxima, [-1, number * chunks]), few)  # (B, few)
    rows, best_of_row = (tf.zeros_like(best), best) if number == 1 else (best // chunks, best % chunks)
    inside = tf.gather(values, best, batch_dims=1)  # (B, few, chunk)
    inside = inside if to_all is None else inside + tf.gather(to_all, rows, batch_dims=1)[:, :, None]
    places = (best_of_row * chunk)[:, :, None] + tf.range(chunk)  # (B, few, chunk)
    inside = tf.where(places < first, float("-inf"), inside) if first else inside
    inside, places = (tf.reshape(each, [-1, few * chunk]) for each in (inside, places))
    found, inside = tf.math.top_k(inside, k)  # (B, k)
    places = tf.gather(places, inside, batch_dims=1)
    if size % chunk:
        # Where fewer than k values are above -inf, some of the padding is found. No id may be beyond the vocabulary.
        places = tf.minimum(places, size - 1)
    rows = tf.zeros_like(places) if number == 1 else tf.gather(rows, inside // chunk, batch_dims=1)
    return Largest(_added_late(found, added, number), rows, places)


def _added_late(found: tf.Tensor, added: tf.Tensor | None, number: int) -> tf.Tensor:
    """Of one row, what is added to all values `(B, 1)` is added to those found `(B, k)`, so rounding makes no ties."""
    return found if added is None or number > 1 else found + added


def _chunk(size: int) -> int:
    """The length of a chunk: a divisor of the size near 64, which needs no padding; else 64."""
    near = [each for each in range(_TOP_CHUNK // 4, 2 * _TOP_CHUNK + 1) if size % each == 0]
    return min(near, key=lambda each: abs(each - _TOP_CHUNK), default=_TOP_CHUNK)


def log_normalizer(logits: tf.Tensor) -> tf.Tensor:
    """The number to subtract from logits `(..., V)` to get log-probabilities: log(sum(exp(logits))), `(...)`.

    The largest probability is exp(highest logit) / sum(exp(logits)). oneDNN's softmax reads the memory once;
    exponentials, sums and differences read it three times. For 10,000 logits that saves half the time for 5 rows and
    two thirds for 160. For the few scores of attention, starting oneDNN's softmax would cost more than it saves.
    """
    highest = tf.reduce_max(logits, axis=-1)
    return highest - tf.math.log(tf.reduce_max(tf.nn.softmax(logits), axis=-1))


def _log_normalizer_of_chunks(logits: tf.Tensor, maxima: tf.Tensor) -> tf.Tensor:
    """`log_normalizer` of logits `(B, N, C, V / C)` in chunks, of which the maxima `(B, N, C)` are known: `(B, N)`.

    The highest logit and the largest probability are in the same chunk, so only that chunk is searched. That saves two
    of five passes over the logits: 4% of a step of 128 hypotheses with 58,000 logits each.
    """
    shape = tf.shape(logits)
    probabilities = tf.nn.softmax(tf.reshape(logits, [shape[0], logits.shape[1], -1]))  # (B, N, V)
    best = tf.argmax(maxima, axis=-1, output_type=tf.int32)  # (B, N)
    largest = tf.gather(tf.reshape(probabilities, shape), best, batch_dims=2)  # (B, N, V / C)
    return tf.reduce_max(maxima, axis=-1) - tf.math.log(tf.reduce_max(largest, axis=-1))


@not_converted
def log_probabilities(hidden: tf.Tensor, tokens: tf.Tensor, logits_of: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    """Natural logarithms of the probabilities of tokens. Their logits are never all in memory at once.

    Axes: B batch, T length, D width, V vocabulary.

    Args:
        hidden: float `(B, T, D)`, from which the logits of each token are computed.
        tokens: ids `(B, T)`, 0 for padding.
        logits_of: a function from rows `(N, D)` of `hidden` to their logits `(N, V)`.

    Returns:
        float32 `(B, T)`; 0 at padding.

    Raises:
        ValueError: there are more or fewer tokens than vectors.
    """
    vectors = tf.TensorShape(hidden.shape)
    if vectors.rank != 3 or not vectors[:2].is_compatible_with(tokens.shape):
        raise ValueError(
            "`tokens` must have an id for each vector that the model gives. Received: tokens of shape "
            f"{tuple(tokens.shape)}, vectors of shape {tuple(vectors)}"
        )
    places = tf.cast(tf.where(tokens != PADDING), tf.int32)  # (N, 2), N tokens of the whole batch
    rows, ids = tf.gather_nd(hidden, places), tf.gather_nd(tokens, places)  # (N, D), (N,)
    number = tf.shape(ids)[0]
    chunks = -(-number // _SCORED_CHUNK)
    extra = chunks * _SCORED_CHUNK - number
    rows = tf.reshape(tf.pad(rows, [[0, extra], [0, 0]]), [chunks, _SCORED_CHUNK, hidden.shape[-1]])
    ids = tf.reshape(tf.pad(ids, [[0, extra]]), [chunks, _SCORED_CHUNK])

    def of_chunk(chunk):
        rows, ids = chunk
        logits = logits_of(rows)  # (256, V)
        return tf.gather(logits, ids, batch_dims=1) - log_normalizer(logits)

    found = tf.map_fn(of_chunk, (rows, ids), fn_output_signature=tf.float32, parallel_iterations=1)
    return tf.tensor_scatter_nd_update(tf.zeros_like(tokens, tf.float32), places, tf.reshape(found, [-1])[:number])


@not_converted
def score(model: Any, inputs: Any, tokens: tf.Tensor) -> dict[str, tf.Tensor]:
    """How likely texts are under a model.

    Args:
        model: one with `without_logits` and `output_weights`.
        inputs: what the model is called with, which includes the token before each of `tokens`.
        tokens: ids `(B, T)`, 0 for padding. These and the inputs may also be lists of rows.

    Returns:
        `log_probability`, float32 `(B,)`, of all tokens of a row, and `tokens`, int32 `(B,)`, how many there are.

    Raises:
        ValueError: the model has no such methods, the tokens are not rows of ids that the model has, or they are more
            or fewer than the inputs.
    """
    log_probabilities_of = _scorer(model)
    inputs, tokens = _checked(model, inputs, tokens)
    return _result(tf.reduce_sum(log_probabilities_of(inputs, tokens), axis=1), tokens)


@not_converted
def score_tokens(model: Any, inputs: Any, tokens: tf.Tensor) -> tf.Tensor:
    """As `score`, but the log-probability of each token, float32 `(B, T)`; 0 at padding."""
    return _scorer(model)(*_checked(model, inputs, tokens))


@not_converted
def score_in_windows(
    model: Any, inputs: tf.Tensor, tokens: tf.Tensor, context_length: int, stride: int | tf.Tensor
) -> dict[str, tf.Tensor]:
    """How likely texts of any length are under a language model.

    A text that is longer than the context is read in windows of the context's length. Each window begins `stride`
    tokens after the one before, and counts only the tokens that no window before it has counted. So a token behind the
    first window is predicted from at least `context_length - stride` tokens before it.

    Axes: B batch, T length.

    Args:
        model: one with `without_logits` and `output_weights`.
        inputs: ids `(B, T)`, the token before each of `tokens`.
        tokens: ids `(B, T)`, 0 for padding, which stands behind them.
        context_length: the most tokens that are read at once.
        stride: from 1 to `context_length`. A smaller stride gives each token more context, and takes longer.

    Returns:
        As `score`.

    Raises:
        ValueError: a length that is no integer, a stride out of its range, or as `score`. A stride that a graph does
            not know is not checked.
    """
    context_length = whole_number("context_length", context_length)
    known = tf.get_static_value(stride)
    if known is not None or stride is None:
        stride = known = whole_number("stride", known)
    if known is not None and not 1 <= known <= context_length:
        raise ValueError(f"`stride` must be from 1 to `context_length`={context_length}. Received: stride={known}")
    log_probabilities_of = _scorer(model)
    inputs, tokens = _checked(model, inputs, tokens)
    last = tf.reduce_max(tf.where(tokens != PADDING, tf.range(1, tf.shape(tokens)[1] + 1), 0), axis=1)  # (B,)
    overlap = context_length - stride

    def window(start, total):
        """Adds this window's scores to the totals of the rows that are long enough to reach it."""
        rows = tf.where((last > start + overlap) | (start == 0))[:, 0]  # (R,)
        of_rows = (tf.gather(each, rows)[:, start : start + context_length] for each in (inputs, tokens))
        inputs_here, tokens_here = of_rows  # (R, at most context_length)
        known = (start > 0) & (tf.range(tf.shape(tokens_here)[1]) < overlap)
        tokens_here = tf.where(known, PADDING, tokens_here)
        found = tf.reduce_sum(log_probabilities_of(inputs_here, tokens_here), axis=1)  # (R,)
        return start + stride, tf.tensor_scatter_nd_add(total, rows[:, None], found)

    _, total = tf.while_loop(
        lambda start, _: (start == 0) | tf.reduce_any(last > start + overlap),
        window,
        (tf.constant(0), tf.zeros_like(last, tf.float32)),
        parallel_iterations=1,
    )
    return _result(total, tokens)


def _checked(model: Any, inputs: Any, tokens: Any) -> tuple[Any, tf.Tensor]:
    """What a model is called with, and the tokens `(B, T)`; the inputs of a family of the zoo as ids, too.

    Raises:
        ValueError: they are not rows of ids, or an id is none of the model's.
    """
    sizes = {name: getattr(model, f"{name}_vocabulary_size", None) for name in ("source", "target")}
    size = written_size(model)
    tokens = rows_of_ids("tokens", tokens, size)
    if isinstance(inputs, dict):
        inputs = {n: rows_of_ids(n, each, sizes[n]) if sizes.get(n) else each for n, each in inputs.items()}
        for name in filter(sizes.get, inputs):
            check_same_rows(name, inputs[name], "tokens", tokens)
    elif hasattr(model, "vocabulary_size"):
        inputs = rows_of_ids("inputs", inputs, size)
    return inputs, tokens


def _scorer(model: Any) -> Any:
    """A function (inputs of the model, tokens `(B, T)`) -> log-probabilities of the tokens."""
    hidden_of, logits_of = hidden_and_logits(model)
    return lambda inputs, tokens: log_probabilities(hidden_of(inputs), tokens, logits_of)


def hidden_and_logits(model: Any) -> tuple[Callable[[Any], tf.Tensor], Callable[[tf.Tensor], tf.Tensor]]:
    """Two functions: from a model's inputs to rows `(B, T, D)`, and from rows `(N, D)` to logits `(N, V)`.

    Raises:
        ValueError: the model has no `without_logits` and `output_weights`.
    """
    if not hasattr(model, "without_logits"):
        raise ValueError("`score` needs a model with `without_logits` and `output_weights`; this one has neither.")
    hidden_of = model.without_logits()
    # A packed model has its weights in the order that its product reads fastest, a quantised one has scales too.
    logits_of = model.logits_of if hasattr(model, "logits_of") else _product_with(*model.output_weights())
    return hidden_of, logits_of


def _product_with(weights: tf.Tensor, bias: tf.Tensor | None) -> Callable[[tf.Tensor], tf.Tensor]:
    """A function from rows `(N, D)` to float32 logits `(N, V)`, by weights `(V, D)` and a bias `(V,)` or None."""
    if (dtype := tf.convert_to_tensor(weights).dtype).is_integer:
        raise ValueError(
            "The `output_weights` must be floats. A model that can be quantised needs a method `logits_of`, from rows "
            f"(N, D) to logits (N, V). Received: {dtype.name} weights"
        )

    def logits_of(rows):
        logits = tf.cast(tf.matmul(rows, tf.cast(weights, rows.dtype), transpose_b=True), tf.float32)  # (N, V)
        return logits if bias is None else logits + tf.cast(bias, tf.float32)

    return logits_of


def _result(log_probability: tf.Tensor, tokens: tf.Tensor) -> dict[str, tf.Tensor]:
    return {
        "log_probability": log_probability,
        "tokens": tf.math.count_nonzero(tokens, axis=1, dtype=tf.int32),
    }
