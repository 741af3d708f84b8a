"""Greedy decoding: the likeliest token at every step."""

from typing import NamedTuple

import tensorflow as tf

from zoo.decoding.phases import run_phases
from zoo.decoding.scoring import log_normalizer
from zoo.decoding.top_k import top_k
from zoo.text.tokenizer import END, PADDING, START


class Hypotheses(NamedTuple):
    """What a loop has decoded. Axes: B batch, T steps of the longest row, S source length.

    Attributes:
        ids: int32 `(B, T)`; each row ends with the end token, unless its limit came first, and then padding.
        token_log_probabilities: float32 `(B, T)`, natural logarithm of the model's probability of each id; 0 at
            padding.
        weights: float32 `(B, T, S)`, the attention of each step; 0 at padding. None unless asked for.
    """

    ids: tf.Tensor
    token_log_probabilities: tf.Tensor
    weights: tf.Tensor | None

    @property
    def log_probabilities(self):
        """The log-probability of each row as a whole, its end token included, `(B,)`."""
        return tf.reduce_sum(self.token_log_probabilities, axis=1)


def greedy(model, source, limits, return_weights=False):
    """Decodes each source row by the likeliest token, until it ends or meets its limit.

    The loop is part of the graph and stops when every row has ended; rows that have ended cost little. A row's result
    depends on that row alone. Padding, the unknown and the start token are never produced.

    Args:
        model: anything with `begin(source) -> (memory, cache)` and `step(tokens, position, memory, cache) ->
            (logits, cache, weights)`; it is stepped with one hypothesis a row (K = 1). What is in `memory` has the rows
            as its leading axis; a step gets those of the rows that it is for.
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
    limits = tf.cast(limits, tf.int32)

    def step(position, fixed, open_rows, moving, found):
        (memory, limits), (tokens, cache) = fixed, moving
        logits, cache, weights = model.step(tokens, position, memory, cache)
        if return_weights and weights is None:
            raise ValueError("`return_weights` needs a model with attention; this one returns no weights.")
        logits.set_shape([None, 1, None])  # which a loop may have lost
        best = top_k(logits, 1, first=END)
        token = tf.where(open_rows, best.places[:, 0], PADDING)
        written = token, tf.where(open_rows, (best.values - log_normalizer(logits))[:, 0], 0.0)
        if return_weights:
            written = *written, weights[:, 0] * tf.cast(open_rows[:, None], weights.dtype)
        open_rows = open_rows & (token != END) & (position + 1 < limits)
        return open_rows, (token[:, None], cache), found, written

    dtypes = (tf.int32, tf.float32, tf.float32) if return_weights else (tf.int32, tf.float32)
    start = tf.fill([tf.shape(limits)[0], 1], START), cache
    _, written = run_phases(step, dtypes, (memory, limits), limits > 0, start)
    ids, log_probabilities, *weights = written
    return Hypotheses(
        ids=tf.transpose(ids),
        token_log_probabilities=tf.transpose(log_probabilities),
        weights=tf.transpose(weights[0], [1, 0, 2]) if return_weights else None,
    )
