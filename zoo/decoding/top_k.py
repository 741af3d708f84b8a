"""The largest of very many."""

from typing import NamedTuple

import tensorflow as tf

_CHUNK = 64  # about so many values


class Largest(NamedTuple):
    """What `top_k` finds. Axes: B batch, k values.

    Attributes:
        values: in descending order, `(B, k)`.
        rows: of which of the N rows each is, int32 `(B, k)`.
        places: where it stands there, int32 `(B, k)`.
    """

    values: tf.Tensor
    rows: tf.Tensor
    places: tf.Tensor


def top_k(values, k, first=0, added=None):
    """The largest of what several rows hold together.

    The kernel of `tf.math.top_k` looks at every value by itself on a CPU, where a maximum is taken of many at once. The
    k largest values lie in the k chunks with the largest maxima, so it has to look into these alone. And of very many
    values a copy takes as long as a look, so none is made where chunks of about 64 values divide V.

    Axes: B batch, N rows, V values a row.

    Args:
        values: float `(B, N, V)`, N and V known.
        k: how many, at most N (V - `first`).
        first: the first place that counts; what stands before is passed over.
        added: float `(B, N)`, what is added to all values of a row; None for nothing.

    Returns:
        `Largest`. Of equal values any may come; of one row the largest is the first of them.
    """
    number, size = values.shape[1:]
    if size < 4 * _CHUNK * k:
        left = size - first
        values = values[:, :, first:] if first else values
        values = values if added is None else values + added[:, :, None]
        found, places = tf.math.top_k(tf.reshape(values, [-1, number * left]), k)
        return Largest(found, places // left, places % left + first)
    chunk = _chunk(size)
    chunks = -(-size // chunk)
    if size % chunk:
        values = tf.pad(values, [[0, 0], [0, 0], [0, chunks * chunk - size]], constant_values=float("-inf"))
    values = tf.reshape(values, [-1, number * chunks, chunk])
    maxima = tf.reshape(tf.reduce_max(values, axis=-1), [-1, number, chunks])
    maxima = maxima if added is None else maxima + added[:, :, None]
    # The chunks with what is passed over may have taken the places of others.
    few = min(k - (-first // chunk) * number, number * chunks)
    _, best = tf.math.top_k(tf.reshape(maxima, [-1, number * chunks]), few)  # (B, few)
    rows, best_of_row = (tf.zeros_like(best), best) if number == 1 else (best // chunks, best % chunks)
    inside = tf.gather(values, best, batch_dims=1)
    inside = inside if added is None else inside + tf.gather(added, rows, batch_dims=1)[:, :, None]
    places = (best_of_row * chunk)[:, :, None] + tf.range(chunk)
    inside = tf.where(places < first, float("-inf"), inside) if first else inside
    inside, places = (tf.reshape(each, [-1, few * chunk]) for each in (inside, places))
    found, inside = tf.math.top_k(inside, k)
    places = tf.gather(places, inside, batch_dims=1)
    rows = tf.zeros_like(places) if number == 1 else tf.gather(rows, inside // chunk, batch_dims=1)
    return Largest(found, rows, places)


def _chunk(size):
    """How long chunks are: a length that divides all, so that nothing need be added, if one is near."""
    near = [each for each in range(_CHUNK // 4, 2 * _CHUNK + 1) if size % each == 0]
    return min(near, key=lambda each: abs(each - _CHUNK), default=_CHUNK)
