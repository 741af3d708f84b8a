"""The largest of very many."""

from typing import NamedTuple

import tensorflow as tf

_CHUNK = 64  # about so many values


class Largest(NamedTuple):
    """What `top_k` finds. Axes: V values, k of them.

    Attributes:
        values: in descending order, `(..., k)`.
        places: where they stand, int32 `(..., k)`.
        highest: the largest of all, whatever its place, `(..., 1)`.
    """

    values: tf.Tensor
    places: tf.Tensor
    highest: tf.Tensor


def top_k(values, k, first=0):
    """What `tf.math.top_k` gives, sooner for a long last axis.

    Its kernel on a CPU looks at every value by itself, where a maximum is taken of many at once. The k largest values
    lie in the k chunks with the largest maxima, so it has to look into these alone. And of very many values a copy
    takes as long as a look, so none is made where chunks of about 64 values divide V.

    Args:
        values: float `(..., V)`, V known.
        k: how many, at most V - `first`.
        first: the first place that counts; what stands before is passed over.

    Returns:
        `Largest`. Of equal values any may come, but as the largest, which is the first of them.
    """
    size = values.shape[-1]
    if size < 4 * _CHUNK * k:
        found, places = tf.math.top_k(values[..., first:], k)
        return Largest(found, places + first, tf.reduce_max(values, axis=-1, keepdims=True))
    chunk = _chunk(size)
    chunks = -(-size // chunk)
    shape = tf.shape(values)
    rows = tf.reshape(values, [-1, size])
    if size % chunk:
        rows = tf.pad(rows, [[0, 0], [0, chunks * chunk - size]], constant_values=float("-inf"))
    rows = tf.reshape(rows, [-1, chunks, chunk])
    maxima = tf.reduce_max(rows, axis=-1)  # (R, chunks)
    # The chunks with what is passed over may have taken the places of others.
    number = min(k - (-first // chunk), chunks)
    _, best = tf.math.top_k(maxima, number)
    inside = tf.reshape(tf.gather(rows, best, batch_dims=1), [-1, number * chunk])
    places = tf.reshape(best[:, :, None] * chunk + tf.range(chunk), [-1, number * chunk])
    if first:
        inside = tf.where(places < first, float("-inf"), inside)
    found, best = tf.math.top_k(inside, k)
    places = tf.gather(places, best, batch_dims=1)
    highest = tf.reduce_max(maxima, axis=-1)
    leading = shape[:-1]
    return Largest(
        *(tf.reshape(each, tf.concat([leading, [k]], axis=0)) for each in (found, places)),
        tf.reshape(highest, tf.concat([leading, [1]], axis=0)),
    )


def _chunk(size):
    """How long chunks are: a length that divides all, so that nothing need be added, if one is near."""
    near = [each for each in range(_CHUNK // 4, 2 * _CHUNK + 1) if size % each == 0]
    return min(near, key=lambda each: abs(each - _CHUNK), default=_CHUNK)
