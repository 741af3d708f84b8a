import numpy as np
import pytest
import tensorflow as tf

from zoo.decoding.halves import in_halves

RESULTS = tf.TensorSpec([None, 2, None], tf.int32), tf.TensorSpec([None], tf.float32)


def decode(numbers, factors):
    """As many columns as the largest number; what they are depends on the row alone."""
    columns = tf.range(tf.maximum(tf.reduce_max(numbers), 0))
    ids = tf.where(columns < numbers[:, None], numbers[:, None], 0)
    return tf.stack([ids, -ids], axis=1), tf.cast(numbers, tf.float32) * factors


@pytest.mark.parametrize("rows", [0, 1, 31, 32, 33, 101])
@pytest.mark.parametrize("hypotheses", [1, 4])
@pytest.mark.parametrize("first_half_is_longer", [True, False])
def test_gives_what_one_whole_gives(rows, hypotheses, first_half_is_longer):
    numbers = np.sort(np.random.default_rng(0).integers(1, 9, rows)).astype("int32")
    numbers = numbers[::-1] if first_half_is_longer else numbers
    factors = np.linspace(0, 1, rows, dtype="float32")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32), tf.TensorSpec([None])])
    def run(*columns):
        return in_halves(decode, RESULTS, columns, hypotheses)

    for one, other in zip(run(numbers, factors), decode(tf.constant(numbers), factors), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("rows", "hypotheses", "sizes"), [(79, 1, [79]), (81, 1, [40, 41]), (16, 5, [8, 8])])
def test_few_rows_stay_together(rows, hypotheses, sizes):
    seen = []

    def decode(numbers):
        seen.append(int(tf.size(numbers)))
        return (numbers,)

    in_halves(decode, (tf.TensorSpec([None], tf.int32),), (tf.range(rows),), hypotheses)
    assert seen == sizes
