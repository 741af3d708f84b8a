"""The largest of very many."""

import tensorflow as tf

_CHUNK = 64


def top_k(values, k):
    """What `tf.math.top_k` gives, sooner for a long last axis.

    Its kernel on a CPU looks at every value by itself, where a maximum is taken of many at once. The k largest values
    lie in the k chunks with the largest maxima, so it has to look into these alone.

    Args:
        values: float `(..., V)`, V known.
        k: how many, at most V.

    Returns:
        The values in descending order and their places, both `(..., k)`. Of equal values any may come.
    """
    size = values.shape[-1]
    if size < 4 * _CHUNK * k:
        return tf.math.top_k(values, k)
    chunks = -(-size // _CHUNK)
    shape = tf.shape(values)
    rows = tf.reshape(values, [-1, size])
    rows = tf.pad(rows, [[0, 0], [0, chunks * _CHUNK - size]], constant_values=values.dtype.min)
    rows = tf.reshape(rows, [-1, chunks, _CHUNK])
    _, best = tf.math.top_k(tf.reduce_max(rows, axis=-1), k, sorted=False)  # (rows, k)
    inside = tf.reshape(tf.gather(rows, best, batch_dims=1), [-1, k * _CHUNK])
    largest, places = tf.math.top_k(inside, k)
    places = tf.gather(best, places // _CHUNK, batch_dims=1) * _CHUNK + places % _CHUNK
    out = tf.concat([shape[:-1], [k]], axis=0)
    return tf.reshape(largest, out), tf.reshape(places, out)
