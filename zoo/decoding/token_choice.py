"""Which token comes next: drawn from the model's logits, each row by its own settings and its own random numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from zoo.decoding.logits import log_normalizer
from zoo.text.tokenizer import END

_FEW = 128  # candidates to sort first, when the number needed is not known
_BLOCK = 256  # tokens that are summed together
_BINS = 2048  # of a histogram of scores
_LOWEST = 32.0  # the scores below the highest one by this and more share the last bin; exp(-32) is 1e-14
COLD = 1e-20  # here only the likeliest token has a chance; smaller numbers underflow on some machines
HOTTEST = 1e6  # a higher temperature would also draw ids that a logit of -1e9 forbids
_PENALTIES = 1e-6, 1e6  # a repetition penalty out of this range, or NaN, is 1: dividing by it could overflow


class Sampling(NamedTuple):
    """How each row is drawn. All of shape `(B,)`.

    Attributes:
        temperature: float32, the divisor of the logits; if it is 0, negative or NaN, the most likely token is taken.
            What is above 1e6 counts as 1e6.
        top_k: int32, draw only from this many of the most likely tokens (Fan et al. 2018); below 1 or from V on, draw
            from all.
        top_p: float32, draw only from the most likely tokens, as few as together have at least this share of the
            probability (Holtzman et al. 2020). With `top_k`, it is a share of the probability of these k tokens. 0
            leaves only the most likely token, 1 leaves all, and so does NaN.
        repetition_penalty: float32. The logits of tokens that occurred before are divided by it if they are positive,
            and multiplied by it if they are negative (Keskar et al. 2019, section 4.1). 1 is no penalty, and so are NaN
            and values outside 1e-6 to 1e6.
        seed: int64, determines the row's choices.
    """

    temperature: tf.Tensor
    top_k: tf.Tensor
    top_p: tf.Tensor
    repetition_penalty: tf.Tensor
    seed: tf.Tensor


def draw(logits: tf.Tensor, chance: tf.Tensor, sampling: Sampling, history: tf.Tensor) -> tf.Tensor:
    """The next token of each row.

    Args:
        logits: float32 `(B, V)`.
        chance: float32 `(B,)`, from 0 to below 1: decides between the tokens.
        sampling: a `Sampling`.
        history: ids `(B, P)` that were there before.

    Returns:
        Ids from the end token on, int32 `(B,)`.
    """
    logits = tf.cond(
        tf.reduce_all(sampling.repetition_penalty == 1),
        lambda: logits,
        lambda: _penalized(logits, sampling.repetition_penalty, history),
    )[:, END:]  # (B, V - END): the end token is the first of the ids that may be produced
    size = logits.shape[-1]
    drawn = is_drawn(sampling)
    scores = logits - tf.reduce_max(logits, axis=-1, keepdims=True)  # so that a division can only overflow to -inf
    scores /= tf.where(drawn, sampling.temperature, 1.0)[:, None]
    top_k = tf.where((sampling.top_k > 0) & (sampling.top_k < size), sampling.top_k, size)
    cut = drawn & ((top_k < size) | (sampling.top_p < 1))
    # There are three ways to choose a token: the likeliest, a draw from all, and a draw from the likeliest few, which
    # sorts and costs most. Each is computed only if a row of the batch needs it.
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


def with_valid_settings(sampling: Sampling) -> Sampling:
    """The same settings within the limits that `Sampling` names."""
    least, most = _PENALTIES
    penalty = sampling.repetition_penalty
    fits = (penalty >= least) & (penalty <= most)  # false of NaN
    return sampling._replace(
        temperature=tf.minimum(sampling.temperature, HOTTEST), repetition_penalty=tf.where(fits, penalty, 1.0)
    )


def is_drawn(sampling: Sampling) -> tf.Tensor:
    """Which rows are drawn, `(B,)`; the others take the most likely token."""
    return sampling.temperature > COLD  # false of NaN


def _penalized(logits: tf.Tensor, penalty: tf.Tensor, history: tf.Tensor) -> tf.Tensor:
    rows = tf.repeat(tf.range(tf.shape(logits)[0])[:, None], tf.shape(history)[1], axis=1)  # (B, P)
    values = tf.gather(logits, history, batch_dims=1)  # (B, P)
    values = tf.where(values > 0, values / penalty[:, None], values * penalty[:, None])
    return tf.tensor_scatter_nd_update(logits, tf.stack([rows, history], axis=-1), values)


def _from_all(scores: tf.Tensor, chance: tf.Tensor) -> tf.Tensor:
    """The place at which the summed probabilities pass the row's chance, `(B,)`.

    The sums of blocks tell the block, and then only this one is summed up token by token: `tf.cumsum` takes ten times
    as long as a sum. To draw 32 tokens of 50,257 takes 3.8 ms in all, not 10.4.
    """
    blocks = -(-scores.shape[-1] // _BLOCK)
    room = blocks * _BLOCK - scores.shape[-1]
    weights = tf.exp(tf.pad(scores, [[0, 0], [0, room]], constant_values=float("-inf")))
    weights = tf.reshape(weights, [-1, blocks, _BLOCK])  # (B, V / 256, 256)
    sums = tf.reduce_sum(weights, axis=-1)  # (B, V / 256)
    amount = chance * _total(sums)  # (B,)
    block = _place(sums, amount)  # (B,)
    amount -= tf.gather(tf.cumsum(sums, axis=-1, exclusive=True), block, batch_dims=1)
    return block * _BLOCK + _place(tf.gather(weights, block, batch_dims=1), amount)


def _from_likeliest(
    scores: tf.Tensor, chance: tf.Tensor, cut: tf.Tensor, top_k: tf.Tensor, top_p: tf.Tensor
) -> tf.Tensor:
    """The same among the most likely tokens that the settings leave."""
    size = scores.shape[-1]
    by_rank = cut & (top_k < size)
    # Rows with a top_k need that many ranks. Other rows mostly need few; those that need more are drawn in another way.
    # What a row needs never depends on other rows, and so neither does rounding.
    ranks = tf.where(by_rank, top_k, tf.where(cut, min(_FEW, size), 1))  # (B,)
    values, ids = tf.math.top_k(scores, tf.reduce_max(ranks))  # (B, number)
    probabilities = tf.exp(values - log_normalizer(scores)[:, None])
    probabilities = tf.where(tf.range(tf.shape(ids)[1]) < ranks[:, None], probabilities, 0.0)
    share = _total(probabilities)  # (B,)
    # top_p is a share of the total probability of the top_k tokens; the total of all tokens is 1.
    kept = _nucleus(probabilities, tf.where(top_p < 1, top_p * tf.where(by_rank, share, 1.0), float("inf")))
    token = tf.gather(ids, _place(kept, chance * _total(kept)), batch_dims=1)
    if size <= _FEW:
        return token
    needs_more = cut & ~by_rank & (share < top_p)  # (B,): false of NaN
    rows = tf.where(needs_more)  # (R, 1)
    return tf.cond(
        tf.reduce_any(needs_more),
        lambda: tf.tensor_scatter_nd_update(
            token, rows, _from_large_nucleus(*(tf.gather_nd(each, rows) for each in (scores, chance, top_p)))
        ),
        lambda: token,
    )


def _from_large_nucleus(scores: tf.Tensor, chance: tf.Tensor, top_p: tf.Tensor) -> tf.Tensor:
    """The same for rows whose `top_p` leaves many tokens, without sorting all.

    A histogram of the scores, weighted by probability, has bins in the order of the ranks. Its running sum tells in
    which bin the nucleus ends, and in which one the chance falls. Only these two bins are sorted. To draw 32 tokens of
    50,257 takes 25 ms, where sorting all of them took 95; one takes 2.5 ms, not 7.
    """
    weights = tf.exp(scores)  # (B, V): the largest is 1
    bins = tf.cast(tf.minimum(-scores, _LOWEST) * (_BINS / _LOWEST), tf.int32)  # (B, V)
    sums = tf.raw_ops.DenseBincount(input=bins, size=tf.constant(_BINS + 1), weights=weights)  # (B, bins)
    before = tf.cumsum(sums, axis=-1, exclusive=True)  # (B, bins)
    limit = top_p * _total(sums)  # (B,)

    def in_bin(number):
        """The weights of the nucleus in one bin of each row in the order of ranks, `(B, most)`, and their tokens."""
        inside = bins == number[:, None]  # (B, V)
        most = tf.reduce_max(tf.math.count_nonzero(inside, axis=-1, dtype=tf.int32))
        values, ids = tf.math.top_k(tf.where(inside, scores, float("-inf")), most)  # (B, most)
        return _nucleus(tf.exp(values), limit - tf.gather(before, number, batch_dims=1)), ids

    last = _last(_nucleus(sums, limit))  # (B,)
    total = tf.gather(before, last, batch_dims=1) + _total(in_bin(last)[0])  # (B,)
    drawn = tf.minimum(_place(sums, chance * total), last)  # (B,)
    kept, ids = in_bin(drawn)
    return tf.gather(ids, _place(kept, chance * total - tf.gather(before, drawn, batch_dims=1)), batch_dims=1)


def _nucleus(weights: tf.Tensor, limit: tf.Tensor) -> tf.Tensor:
    """Weights in the order of ranks `(B, N)`, with zeros from where their running sum reaches `limit` `(B,)`.

    The first one always stays.
    """
    above = tf.cumsum(weights, axis=-1, exclusive=True)
    return tf.where((above < limit[:, None]) | (tf.range(tf.shape(weights)[1]) == 0), weights, 0.0)


def _total(weights: tf.Tensor) -> tf.Tensor:
    """The last of the running sums of weights `(B, N)`; by rounding, `tf.reduce_sum` may differ."""
    return tf.cumsum(weights, axis=-1)[:, -1]


def _place(weights: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Where the running sum of weights `(B, N)` passes `amount` `(B,)`; never at a zero."""
    place = tf.reduce_sum(tf.cast(tf.cumsum(weights, axis=-1) <= amount[:, None], tf.int32), axis=-1)
    return tf.minimum(place, _last(weights))  # by rounding, the amount may reach the total


def _last(weights: tf.Tensor) -> tf.Tensor:
    """The place of the last weight that is not zero, `(B,)`."""
    return tf.reduce_max(tf.where(weights > 0, tf.range(tf.shape(weights)[1]), 0), axis=-1)


# Random numbers. TensorFlow's stateless functions take one seed for a whole tensor, so the number of a row would depend
# on its place in the batch. These numbers depend only on the row's seed and the number of the step: SplitMix64 of
# Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators", whose constants are written as signed
# numbers here.

_STEP = 0x9E3779B97F4A7C15 - 2**64
_FACTORS = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64


def random_streams(seeds: tf.Tensor) -> tf.Tensor:
    """The first state of each row's generator. Mixing keeps neighbouring seeds from giving the same numbers."""
    return _mixed(tf.cast(seeds, tf.int64) + _STEP)


def advanced(streams: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
    """The streams so many steps later, as if these numbers had been drawn."""
    return streams + tf.cast(steps, tf.int64) * _STEP


def counted_uniform(streams: tf.Tensor, counter: Any) -> tf.Tensor:
    """Uniform numbers from 0 to below 1, multiples of 2^-24, from `random_streams` and the number of a step.

    Args:
        streams: int64, any shape.
        counter: an integer, or an integer tensor of the same shape.

    Returns:
        float32 of the same shape.
    """
    mixed = _mixed(advanced(streams, tf.cast(counter, tf.int64) + 1))
    return tf.cast(_shifted(mixed, 40), tf.float32) * 2.0**-24


def _mixed(state: tf.Tensor) -> tf.Tensor:
    """SplitMix64's finaliser: every bit of the result depends on every bit of the state."""
    state = (state ^ _shifted(state, 30)) * _FACTORS[0]
    state = (state ^ _shifted(state, 27)) * _FACTORS[1]
    return state ^ _shifted(state, 31)


def _shifted(state: tf.Tensor, bits: int) -> tf.Tensor:
    """A shift to the right that fills with zeros. Int64's own shift repeats the sign."""
    return tf.bitwise.right_shift(state, tf.constant(bits, tf.int64)) & ((1 << (64 - bits)) - 1)
