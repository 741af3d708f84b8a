"""Sampling: the next token drawn from what the model holds likely, each row by settings of its own."""

from typing import NamedTuple

import tensorflow as tf

from zoo.decoding.counted_uniform import counted_uniform
from zoo.decoding.greedy import Hypotheses
from zoo.decoding.phases import run_phases
from zoo.decoding.scoring import log_normalizer
from zoo.decoding.top_k import top_k
from zoo.text.tokenizer import END, PADDING

_FEW = 128  # candidates that are sorted at first, where it is not known how many will do

_COLD = 1e-20  # nothing but the likeliest has a chance long before, and less is no float32 everywhere


class Sampling(NamedTuple):
    """How each row is drawn. All of shape `(B,)`.

    Attributes:
        temperature: float32, what logits are divided by; at 0, below it or not a number, the likeliest token is taken.
        top_k: int32, draw from the so many likeliest alone (Fan et al. 2018); 0 or less, or V and more, for all.
        top_p: float32, draw from the likeliest alone that together have at least this share of the probability, of
            the `top_k` if that is given (Holtzman et al. 2020); 0 leaves the likeliest one, and 1 all.
        repetition_penalty: float32, what the logits of tokens that were there before are divided by if positive and
            multiplied by if negative (Keskar et al. 2019, section 4.1); 1 for none.
        seed: int64, what the row's choices follow from.
    """

    temperature: tf.Tensor
    top_k: tf.Tensor
    top_p: tf.Tensor
    repetition_penalty: tf.Tensor
    seed: tf.Tensor


def sample(model, source, first, limits, sampling, before=None, watch=None):
    """Draws the tokens of each row one by one, until it ends or meets its limit.

    The loop is part of the graph and stops when every row has ended; rows that have ended cost little. A row's result
    depends on that row, its settings and its seed alone. Padding, the unknown and the start token are never produced.

    Axes: B batch, T steps of the longest row, P length of what was there before, V vocabulary.

    Args:
        model: anything with `begin(source) -> (memory, cache)` and `step(tokens, position, memory, cache) ->
            (logits, cache, weights)`; it is stepped with one hypothesis a row (K = 1).
        source: what the model's `begin` takes, with leading axis B.
        first: int32 `(B,)`, the tokens that the first step reads.
        limits: int32 `(B,)`, the most tokens each row may have, its end token counted. A row of limit 0 stays empty.
        sampling: a `Sampling`.
        before: ids `(B, P)` that count as there before for the repetition penalty; None for none.
        watch: what may end a row before its end token: anything with `start() -> state`, a nest of tensors with the
            rows as their first axis, and `step(tokens, open_rows, state) -> (ends, state)`, with tokens, `open_rows`
            and `ends` `(R,)` for the rows that are left; the state of a row that is not open stays. None for nothing.

    Returns:
        `Hypotheses` without weights; the log-probabilities are the model's own, whatever the settings. With a `watch`,
        its last state beside them, each row's as it was when the row ended.
    """
    memory, cache = model.begin(source)
    limits = tf.cast(limits, tf.int32)
    history = tf.zeros([tf.shape(limits)[0], 0], tf.int32) if before is None else tf.cast(before, tf.int32)
    # Asked once, since a step of a small model takes hardly longer than all that drawing takes.
    plain = ~tf.reduce_any(_is_drawn(sampling) | (sampling.repetition_penalty != 1))

    def step(position, fixed, open_rows, moving, found):
        (memory, limits, sampling), (tokens, cache, history) = fixed, moving
        logits, cache, _ = model.step(tokens[:, None], position, memory, cache)
        logits = logits[:, 0]
        token = tf.cond(plain, lambda: _likeliest(logits), lambda: draw(logits, position, sampling, history))
        token = tf.where(open_rows, token, PADDING)
        log_probability = tf.gather(logits, token, batch_dims=1) - log_normalizer(logits)
        written = token, tf.where(open_rows, log_probability, 0.0)
        goes_on = open_rows & (token != END) & (position + 1 < limits)
        if watch is not None:
            ends, found = watch.step(token, open_rows, found)
            goes_on &= ~ends
        history = tf.concat([history, tf.expand_dims(token, 1)], axis=1)
        return goes_on, (token, cache, history), found, written

    moving = tf.cast(first, tf.int32), cache, history
    found = () if watch is None else watch.start()
    found, written = run_phases(step, (tf.int32, tf.float32), (memory, limits, sampling), limits > 0, moving, found)
    hypotheses = Hypotheses(*(tf.transpose(each) for each in written), weights=None)
    return hypotheses if watch is None else (hypotheses, found)


def draw(logits, position, sampling, history):
    """The next token of each row.

    Args:
        logits: float32 `(B, V)`.
        position: the number of the step, which with a row's seed tells its choice.
        sampling: a `Sampling`.
        history: ids `(B, P)` that were there before.

    Returns:
        Ids from the end token on, int32 `(B,)`.
    """
    logits = tf.cond(
        tf.reduce_all(sampling.repetition_penalty == 1),
        lambda: logits,
        lambda: _penalized(logits, sampling.repetition_penalty, history),
    )[:, END:]  # the end token is the first of the ids that may be produced
    size = logits.shape[-1]
    drawn = _is_drawn(sampling)
    scores = logits - tf.reduce_max(logits, axis=-1, keepdims=True)  # so that no division overflows but to -inf
    scores /= tf.where(drawn, sampling.temperature, 1.0)[:, None]
    top_k = tf.where((sampling.top_k > 0) & (sampling.top_k < size), sampling.top_k, size)
    cut = drawn & ((top_k < size) | (sampling.top_p < 1))
    chance = counted_uniform(sampling.seed, position)
    # A row goes one way or the other by its own settings; a way that no row goes is not gone.
    token = tf.argmax(logits, axis=-1, output_type=tf.int32)
    token = tf.cond(
        tf.reduce_any(drawn & ~cut), lambda: tf.where(drawn & ~cut, _from_all(scores, chance), token), lambda: token
    )
    token = tf.cond(
        tf.reduce_any(cut),
        lambda: tf.where(cut, _from_likeliest(scores, chance, cut, top_k, sampling.top_p), token),
        lambda: token,
    )
    return token + END


def _likeliest(logits):
    """The likeliest id that may be written, int32 `(B,)`, from logits `(B, V)`."""
    return top_k(logits[:, None], 1, first=END).places[:, 0]


def _is_drawn(sampling):
    return sampling.temperature > _COLD  # false of what is no number


def _penalized(logits, penalty, history):
    rows = tf.repeat(tf.range(tf.shape(logits)[0])[:, None], tf.shape(history)[1], axis=1)
    values = tf.gather(logits, history, batch_dims=1)
    values = tf.where(values > 0, values / penalty[:, None], values * penalty[:, None])
    return tf.tensor_scatter_nd_update(logits, tf.stack([rows, history], axis=-1), values)


def _from_all(scores, chance):
    """The place at which the summed probabilities pass the row's chance, `(B,)`."""
    return _place(tf.nn.softmax(scores), chance)


def _from_likeliest(scores, chance, cut, top_k, top_p):
    """The same among the likeliest that the settings leave."""
    size = scores.shape[-1]
    by_rank = cut & (top_k < size)
    # How many ranks do is known of rows with a top_k. Of others it is few mostly, and all if they do not do.
    few = tf.reduce_max(tf.where(by_rank, top_k, tf.where(cut, min(_FEW, size), 1)))
    total = tf.reduce_logsumexp(scores, axis=-1)

    def ranked(number):
        values, ids = tf.math.top_k(scores, number)
        probabilities = tf.exp(values - total[:, None])
        inside = tf.range(number) < top_k[:, None]
        return tf.where(inside, probabilities, 0.0), ids

    def enough():
        probabilities, _ = found
        return tf.reduce_all(~cut | by_rank | (tf.reduce_sum(probabilities, axis=-1) >= top_p))

    found = ranked(few)
    probabilities, ids = tf.cond(enough(), lambda: found, lambda: ranked(size))
    # Of what the top_k have together; all of it has 1.
    share = tf.where(by_rank, tf.cumsum(probabilities, axis=-1)[:, -1], 1.0)
    above = tf.cumsum(probabilities, axis=-1, exclusive=True)
    kept = (above < (top_p * share)[:, None]) | (top_p >= 1)[:, None] | (tf.range(tf.shape(ids)[1]) == 0)
    return tf.gather(ids, _place(tf.where(kept, probabilities, 0.0), chance), batch_dims=1)


def _place(weights, chance):
    """Where the running sum of weights `(B, N)` passes the share `chance` `(B,)` of their total; never at a zero."""
    sums = tf.cumsum(weights, axis=-1)
    place = tf.reduce_sum(tf.cast(sums <= (chance * sums[:, -1])[:, None], tf.int32), axis=-1)
    # Rounding may let the chance meet the total.
    last = tf.reduce_max(tf.where(weights > 0, tf.range(tf.shape(weights)[1]), 0), axis=-1)
    return tf.minimum(place, last)
