import numpy as np
import pytest
import tensorflow as tf

from zoo.decoding.scoring import log_normalizer


@pytest.mark.parametrize("shape", [(7,), (2, 3, 1000)])
def test_the_normalizer_is_the_log_of_the_summed_exponentials(shape):
    logits = np.random.default_rng(0).normal(0, 20, shape).astype("float32")
    expected = np.logaddexp.reduce(logits.astype("float64"), axis=-1)
    np.testing.assert_allclose(log_normalizer(tf.constant(logits)), expected, rtol=1e-6, atol=1e-5)


def test_the_normalizer_of_logits_that_are_far_from_zero():
    """None of them has an exponential in float32."""
    logits = np.array([[500.0, 499.0], [-500.0, -510.0], [0.0, float("-inf")]], "float32")
    expected = [500 + np.log1p(np.exp(-1)), -500 + np.log1p(np.exp(-10)), 0]
    np.testing.assert_allclose(log_normalizer(tf.constant(logits)), expected, rtol=1e-6)
