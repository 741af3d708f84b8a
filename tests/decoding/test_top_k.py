import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.decoding.top_k import top_k


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 3000), k=st.integers(1, 9), seed=st.integers(0, 100))
def test_finds_what_a_sort_finds(size, k, seed):
    k = min(k, size)
    values = np.random.default_rng(seed).permutation(2 * 3 * size).reshape(2, 3, size).astype("float32")
    largest, places = top_k(tf.constant(values), k)
    np.testing.assert_array_equal(largest, -np.sort(-values)[..., :k])
    np.testing.assert_array_equal(places, np.argsort(-values)[..., :k])


@pytest.mark.parametrize("size", [8, 1000])
def test_several_of_the_largest_may_stand_side_by_side(size):
    values = np.zeros((1, size), "float32")
    values[0, 3:7] = 4, 1, 3, 2
    largest, places = top_k(tf.constant(values), 4)
    np.testing.assert_array_equal(largest, [[4, 3, 2, 1]])
    np.testing.assert_array_equal(places, [[3, 5, 6, 4]])


def test_takes_infinities_and_rows_of_unknown_number():
    values = np.full((2, 1000), -np.inf, "float32")
    values[0, 7], values[1, 999] = 1, 2

    @tf.function(input_signature=[tf.TensorSpec([None, 1000])])
    def run(values):
        return top_k(values, 2)

    largest, places = run(values)
    np.testing.assert_array_equal(largest[:, 0], [1, 2])
    np.testing.assert_array_equal(places[:, 0], [7, 999])
    assert run(values[:0])[0].shape == (0, 2)
