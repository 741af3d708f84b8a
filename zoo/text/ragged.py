"""Rows of different lengths: all their values one after another, and where each row begins or ends."""

from __future__ import annotations

import tensorflow as tf


def rows_of(ends: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """The row of each of `count` values, int64 `(count,)`, if row i ends before value `ends[i]`.

    It is one operation; `tf.repeat(tf.range(rows), lengths)` has about 25.
    """
    places = tf.range(tf.cast(count, ends.dtype))
    return tf.raw_ops.UpperBound(sorted_inputs=ends[tf.newaxis], values=places[tf.newaxis], out_type=tf.int64)[0]


def splits_of(rows: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Where each of `count` rows begins, and the end, int64 `(count + 1,)`, from the ascending row of each value."""
    every = tf.range(tf.cast(count, tf.int64) + 1)
    return tf.raw_ops.LowerBound(sorted_inputs=rows[tf.newaxis], values=every[tf.newaxis], out_type=tf.int64)[0]


def chosen_rows(values: tf.Tensor, splits: tf.Tensor, which: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Rows of a ragged tensor in any order, also several times.

    Args:
        values: the values of all rows, `(N,)`.
        splits: where each row begins, and the end, int64 `(rows + 1,)`.
        which: the number of each row that is chosen, `(R,)`.

    Returns:
        The values of the chosen rows, `(P,)`, and where each row begins, and the end, int64 `(R + 1,)`.
    """
    chosen = tf.raw_ops.RaggedGather(
        params_nested_splits=[splits], params_dense_values=values, indices=which, OUTPUT_RAGGED_RANK=1
    )
    return chosen.output_dense_values, chosen.output_nested_splits[0]


def cut_to(ids: tf.RaggedTensor, limits: tf.Tensor) -> tf.RaggedTensor:
    """The first ids of each row of `(B, None)`, at most as many as its limit `(B,)`."""
    rows = ids.value_rowids()  # (N,)
    places = tf.range(tf.size(rows, tf.int64)) - tf.gather(ids.row_starts(), rows)  # (N,)
    values = tf.boolean_mask(ids.values, places < tf.gather(limits, rows))
    return tf.RaggedTensor.from_row_lengths(values, tf.minimum(ids.row_lengths(), limits), validate=False)
