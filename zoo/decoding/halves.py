"""Many rows as two halves that are decoded at the same time."""

import tensorflow as tf

_HYPOTHESES = 40  # of a half, at least: of fewer the two take together clearly longer than one whole


def in_halves(decode, results, rows, hypotheses):
    """Decodes two halves of the rows, each in a loop of its own, which a runtime with two threads runs side by side.

    A second thread for the operations of one loop brings little, as most are too small to be shared. A loop over parts
    does not do: whatever its `parallel_iterations`, parts that are loops themselves were seen to run one after another.
    Few rows stay together.

    Args:
        decode: `decode(*rows) -> tuple of tensors`, whose first axis has the rows.
        results: a tuple of `tf.TensorSpec`, of what it gives.
        rows: a tuple of tensors `(B, ...)`.
        hypotheses: how many of them a row has.

    Returns:
        What `decode` gives of all rows; where a half has less of another axis, zeros behind it.
    """
    number = tf.shape(rows[0])[0]
    many = number * hypotheses >= 2 * _HYPOTHESES
    half = tf.where(many, number // 2, number)
    first = decode(*(each[:half] for each in rows))
    second = tf.cond(
        many,
        lambda: tuple(decode(*(each[half:] for each in rows))),
        lambda: tuple(tf.zeros([size or 0 for size in each.shape], each.dtype) for each in results),
    )
    return tuple(_joined(*both) for both in zip(first, second, strict=True))


def _joined(one, other):
    shape = tf.maximum(tf.shape(one), tf.shape(other))[1:]
    behind = (tf.pad((shape - tf.shape(each)[1:])[:, None], [[1, 0], [1, 0]]) for each in (one, other))
    return tf.concat([tf.pad(each, extra) for each, extra in zip((one, other), behind, strict=True)], axis=0)
