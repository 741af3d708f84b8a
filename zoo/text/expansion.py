"""Code points replaced by sequences of them, in the graph."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from zoo.text.tables import code_point_table


class Expansion(tf.Module):
    """Replaces single code points by sequences.

    Args:
        sequences: what takes the place of each character, at least one.
    """

    def __init__(self, sequences: Mapping[str, str]):
        super().__init__()
        self._choices = code_point_table({character: i for i, character in enumerate(sequences, start=1)})
        # Row 0 is for all other characters; -1 fills the rows.
        self._pieces = np.full([1 + len(sequences), max(map(len, sequences.values()))], -1, np.int32)
        for row, sequence in zip(self._pieces[1:], sequences.values(), strict=True):
            row[: len(sequence)] = [ord(piece) for piece in sequence]

    def __call__(self, values: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Replaces code points.

        Axes: N code points of all rows, M those that take their place.

        Args:
            values: the code points, int32 `(N,)`.
            rows: the row of each, int64 `(N,)`.

        Returns:
            Code points `(M,)`, and the row of each `(M,)`: that of what it stands for.
        """
        choices = self._choices.lookup(values)
        pieces = tf.gather(tf.constant(self._pieces), choices)  # (N, the longest sequence)
        first = tf.where(choices == 0, values, pieces[:, 0])
        pieces = tf.concat([first[:, tf.newaxis], pieces[:, 1:]], axis=1)
        kept = pieces >= 0
        return tf.boolean_mask(pieces, kept), tf.repeat(rows, tf.math.count_nonzero(kept, axis=1))
