"""Where rows begin and end."""

import numpy as np
import tensorflow as tf

from zoo.text.ragged import rows_of, splits_of


def test_rows_from_ends_and_back():
    rows = rows_of(tf.constant([2, 2, 5]), 5)  # the second row is empty
    np.testing.assert_array_equal(rows, np.array([0, 0, 2, 2, 2]), strict=True)
    np.testing.assert_array_equal(splits_of(rows, 4), np.array([0, 2, 2, 5, 5]), strict=True)
    np.testing.assert_array_equal(splits_of(rows[:0], 2), np.array([0, 0, 0]), strict=True)
