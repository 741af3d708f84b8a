import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zoo.decoding.top_k import top_k


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 3000), k=st.integers(1, 9), first=st.integers(0, 200), seed=st.integers(0, 100))
@example(size=2560, k=1, first=130, seed=0)
@example(size=256, k=1, first=200, seed=0)
@example(size=2557, k=9, first=3, seed=0)  # a prime number
def test_finds_what_a_sort_finds(size, k, first, seed):
    first = min(first, size - 1)
    k = min(k, size - first)
    values = np.random.default_rng(seed).permutation(2 * 3 * size).reshape(2, 3, size).astype("float32")
    largest, places, highest = top_k(tf.constant(values), k, first)
    np.testing.assert_array_equal(largest, -np.sort(-values[..., first:])[..., :k])
    np.testing.assert_array_equal(places, np.argsort(-values[..., first:])[..., :k] + first)
    np.testing.assert_array_equal(highest, values.max(-1, keepdims=True))


@pytest.mark.parametrize("size", [100, 1000, 1009])
def test_of_equal_values_the_first_is_the_largest(size):
    """As for a maximum's place, whatever the way to find it: or a text would depend on the texts beside it."""
    values = np.random.default_rng(0).integers(0, 3, (50, size)).astype("float32")
    places = top_k(tf.constant(values), 1, first=3).places
    np.testing.assert_array_equal(places[:, 0], values[:, 3:].argmax(-1) + 3)


def test_what_is_passed_over_takes_nobodys_place():
    values = np.arange(1000.0, dtype="float32")[None]
    values[0, :3] = 5000, 4000, 3000
    largest, places, highest = top_k(tf.constant(values), 2, first=3)
    assert (largest.numpy().tolist(), places.numpy().tolist()) == ([[999, 998]], [[999, 998]])
    assert highest.numpy().tolist() == [[5000]]


@pytest.mark.parametrize("size", [8, 1000])
def test_several_of_the_largest_may_stand_side_by_side(size):
    values = np.zeros((1, size), "float32")
    values[0, 3:7] = 4, 1, 3, 2
    largest, places, _ = top_k(tf.constant(values), 4)
    np.testing.assert_array_equal(largest, [[4, 3, 2, 1]])
    np.testing.assert_array_equal(places, [[3, 5, 6, 4]])


def test_takes_infinities_and_rows_of_unknown_number():
    values = np.full((2, 1000), -np.inf, "float32")
    values[0, 7], values[1, 999] = 1, 2

    @tf.function(input_signature=[tf.TensorSpec([None, 1000])])
    def run(values):
        return top_k(values, 2)

    largest, places, _ = run(values)
    np.testing.assert_array_equal(largest[:, 0], [1, 2])
    np.testing.assert_array_equal(places[:, 0], [7, 999])
    assert run(values[:0])[0].shape == (0, 2)
