"""Greedy decoding: the likeliest token at every step."""

from typing import NamedTuple

import tensorflow as tf

from zoo.text.tokenizer import END, PADDING, START


class Hypotheses(NamedTuple):
    """What a loop has decoded. Axes: B batch, T steps of the longest row, S source length.

    Attributes:
        ids: int32 `(B, T)`; each row ends with the end token, unless its limit came first, and then padding.
        log_probabilities: float32 `(B, T)`, natural logarithm of the model's probability of each id; 0 at padding.
        weights: float32 `(B, T, S)`, the attention of each step; 0 at padding. None unless asked for.
    """

    ids: tf.Tensor
    log_probabilities: tf.Tensor
    weights: tf.Tensor | None

    @property
    def scores(self):
        """The log-probability of each row as a whole, its end token included, `(B,)`."""
        return tf.reduce_sum(self.log_probabilities, axis=1)


def greedy(model, source, limits, return_weights=False):
    """Decodes each source row by the likeliest token, until it ends or meets its limit.

    The loop is part of the graph and stops when every row has ended. A row's result depends on that row alone.
    Padding, the unknown and the start token are never produced.

    Args:
        model: anything with `begin(source) -> (memory, cache)` and `step(tokens, position, memory, cache) ->
            (logits, cache, weights)`; it is stepped with one hypothesis a row (K = 1).
        source: ids `(B, S)`, or whatever the model's `begin` takes, with leading axis B.
        limits: int32 `(B,)`, the most tokens each row may have, its end token counted. A row of limit 0
            stays empty.
        return_weights: whether to collect the attention weights.

    Returns:
        `Hypotheses`.

    Raises:
        ValueError: weights are asked for and the model has none.
    """
    memory, cache = model.begin(source)
    rows = tf.shape(limits)[0]

    def body(position, tokens, open_rows, cache, ids, log_probabilities, weights):
        logits, cache, attention = model.step(tokens, position, memory, cache)
        if return_weights and attention is None:
            raise ValueError("`return_weights` needs a model with attention; this one returns no weights.")
        token, log_probability = _likeliest(logits[:, 0])
        token = tf.where(open_rows, token, PADDING)
        ids = ids.write(position, token)
        log_probabilities = log_probabilities.write(position, tf.where(open_rows, log_probability, 0.0))
        if return_weights:
            weights = weights.write(position, attention[:, 0] * tf.cast(open_rows[:, None], attention.dtype))
        open_rows = open_rows & (token != END) & (position + 1 < limits)
        return position + 1, token[:, None], open_rows, cache, ids, log_probabilities, weights

    def unfinished(position, tokens, open_rows, *_):
        # At least one step, also for an empty batch, so that the arrays know the shape of what they stack.
        return (position < 1) | tf.reduce_any(open_rows)

    def array(dtype):
        return tf.TensorArray(dtype, size=1, dynamic_size=True)

    start = (
        tf.constant(0),
        tf.fill([rows, 1], START),
        limits > 0,
        cache,
        array(tf.int32),
        array(tf.float32),
        array(tf.float32) if return_weights else (),
    )
    invariants = tf.nest.map_structure(_loose_shape, start[:4])
    *_, ids, log_probabilities, weights = tf.while_loop(
        unfinished, body, start, shape_invariants=(*invariants, *(_array_shape(a) for a in start[4:]))
    )
    return Hypotheses(
        ids=tf.transpose(ids.stack()),
        log_probabilities=tf.transpose(log_probabilities.stack()),
        weights=tf.transpose(weights.stack(), [1, 0, 2]) if return_weights else None,
    )


def _likeliest(logits):
    """The likeliest id a row may hold and its log-probability, both `(B,)`, from logits `(B, V)`."""
    # The end token is the first of the ids that may be produced.
    token = tf.argmax(logits[:, END:], axis=-1, output_type=tf.int32) + END
    top = tf.gather(logits, token, batch_dims=1)
    return token, top - tf.reduce_logsumexp(logits, axis=-1)


def _loose_shape(tensor):
    """A loop variable's shape with all axes but the last free: a cache may grow."""
    if tensor.shape.rank in (None, 0):
        return tensor.shape
    if tensor.shape.rank == 1:
        return tf.TensorShape([None])
    return tf.TensorShape([None] * (tensor.shape.rank - 1) + [tensor.shape[-1]])


def _array_shape(array):
    return () if isinstance(array, tuple) else tf.TensorShape(None)
