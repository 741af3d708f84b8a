"""Decoding that begins with given tokens, and what may come next."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from zoo.decoding.inputs import ModelWrapper, check_same_rows, rows_of_ids, written_size
from zoo.decoding.logits import hidden_and_logits
from zoo.decoding.loop import not_converted
from zoo.decoding.token_choice import COLD, HOTTEST
from zoo.text.tokenizer import END, PADDING

NEXT = 20  # how many tokens `next_tokens` gives
NUMBER = "[0-9]{1,9}"  # an id or a position in a request
_UNLIKELIEST = 100.0  # a given token counts as if its probability were e^-100 at least


class WithPrefix(ModelWrapper):
    """A model whose first tokens are given: `greedy` and `beam_search` write these before any of their own.

    At the position of a given token all others have the probability 0, and the given one keeps what the model gives it.
    So hypotheses have the scores that they have without a prefix.

    Args:
        model: anything with `begin` and `step`, as for `greedy`.
        prefix: ids `(B, P)`, with zeros behind them, or a list of rows of any length.

    Raises:
        ValueError: the prefix is not rows of ids that the model may write, or, when it is decoded with, has more or
            fewer rows than the source. What a graph does not know is not checked.
    """

    def __init__(self, model: Any, prefix: Any):
        self.model = model
        prefix = rows_of_ids("prefix", prefix, written_size(model))
        known = tf.get_static_value(prefix)
        unwritten: Any = () if known is None else known[(known != PADDING) & (known < END)]
        if len(unwritten):
            raise ValueError(
                f"`prefix` must hold ids that a model writes, from {END} on, and zeros. Received: {unwritten[0]}"
            )
        self.prefix = tf.pad(prefix, [[0, 0], [0, 1]])  # (B, P + 1): behind the last token nothing is given

    def begin(self, source: Any) -> tuple[Any, Any]:
        """The model's memory with the prefix, which follows the rows through the loop, and its cache."""
        rows = tf.nest.flatten(source)[0]
        if hasattr(rows, "shape"):
            check_same_rows("prefix", self.prefix, "source", rows)
        memory, cache = self.model.begin(source)
        return (memory, self.prefix), cache

    def step(self, tokens: tf.Tensor, position: tf.Tensor, memory: Any, cache: Any) -> tuple[tf.Tensor, Any, Any]:
        """As the model's, with the logits of a given token only."""
        memory, prefix = memory
        logits, cache, weights = self.model.step(tokens, position, memory, cache)  # (B, K, V)
        given = prefix[:, tf.minimum(position, tf.shape(prefix)[1] - 1), None, None]  # (B, 1, 1)
        ids = tf.range(tf.shape(logits)[2])
        other = (given != PADDING) & (ids != given)  # (B, 1, V)
        # Padding takes the probability of all others: no search writes it, and the sum of all stays 1.
        of_others = tf.reduce_logsumexp(tf.where(other, logits, float("-inf")), axis=2, keepdims=True)  # (B, K, 1)
        # A token that the model never writes has a logit such as -1e9. In sums with it, what follows would be lost.
        logits = tf.maximum(logits, of_others - _UNLIKELIEST)
        return tf.where(other, tf.where(ids == PADDING, of_others, float("-inf")), logits), cache, weights


def read_prefix(prefix: tf.Tensor, size: int) -> tf.Tensor:
    """Ids `(B, P)` that strings `(B,)` such as "17 4 3" hold, with zeros behind them.

    A prefix ends before the first part that is no id which a model may write, since an error would also fail the other
    rows of a server's batch. It ends behind an end token.

    Args:
        prefix: decimal numbers with spaces between them.
        size: how many ids the model has.
    """
    parts = tf.strings.split(prefix).to_tensor("")  # (B, P)
    is_number = tf.strings.regex_full_match(parts, NUMBER)
    ids = tf.strings.to_number(tf.where(is_number, parts, "0"), tf.int32)
    fits = tf.cast((ids >= END) & (ids < size), tf.int32)
    before_end = tf.math.cumprod(tf.cast(ids != END, tf.int32), axis=1, exclusive=True)
    return ids * tf.math.cumprod(fits, axis=1) * before_end


def next_tokens(logits: tf.Tensor, temperature: tf.Tensor | None = None) -> tuple[tf.Tensor, tf.Tensor]:
    """The most likely tokens, and their probabilities among all that a model may write.

    Args:
        logits: float32 `(B, V)`.
        temperature: float32 `(B,)`, as in `zoo.decoding.Sampling`: if it is 0, negative or NaN, the most likely token
            has all probability. What is above 1e6 counts as 1e6. None for 1.

    Returns:
        Ids, int32, and probabilities, float32, the highest first: `(B, K)`, K at most 20.
    """
    logits = logits[:, END:]  # (B, V - END): the end token is the first that may be written
    scores = logits - tf.reduce_max(logits, axis=-1, keepdims=True)  # so that a division can only overflow to -inf
    if temperature is not None:
        drawn = (temperature > COLD)[:, None]  # false of NaN
        scores /= tf.where(drawn, tf.minimum(temperature, HOTTEST)[:, None], 1.0)
    probabilities = tf.nn.softmax(scores)
    if temperature is not None:
        certain = tf.one_hot(tf.argmax(logits, axis=-1), logits.shape[-1])  # (B, V - END)
        probabilities = tf.where(drawn, probabilities, certain)
    found = tf.math.top_k(probabilities, min(NEXT, logits.shape[-1]))
    return found.indices + END, found.values


@not_converted
def logits_after(model: Any, inputs: Any, lengths: tf.Tensor) -> tf.Tensor:
    """The logits `(B, V)` of what follows the first `lengths` `(B,)` tokens that a model reads.

    Args:
        model: one with `without_logits` and `output_weights`.
        inputs: what the model is called with.
        lengths: at least 1.
    """
    hidden_of, logits_of = hidden_and_logits(model)
    return logits_of(tf.gather(hidden_of(inputs), lengths - 1, batch_dims=1))
