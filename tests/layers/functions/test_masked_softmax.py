import numpy as np
import pytest
import tensorflow as tf

from zoo.layers.functions.masked_softmax import masked_softmax

FORBIDDEN_ROW = [[True, True, False], [False, False, False]]


def test_without_mask_is_a_softmax():
    np.testing.assert_allclose(masked_softmax(np.log([[1.0, 3.0], [4.0, 1.0]])), [[0.25, 0.75], [0.8, 0.2]], rtol=1e-6)


def test_forbidden_positions_weigh_nothing_and_the_others_share():
    scores = np.log([[1.0, 2.0, 3.0, 99.0], [5.0, 1.0, 1.0, 3.0]])
    weights = masked_softmax(scores, np.array([[True, True, True, False], [False, True, False, True]]))
    np.testing.assert_allclose(weights, [[1 / 6, 2 / 6, 3 / 6, 0], [0, 1 / 4, 0, 3 / 4]], rtol=1e-6)
    assert weights[0, 3] == weights[1, 0] == weights[1, 2] == 0.0


def test_mask_broadcasts_over_queries():
    scores = np.log(np.arange(1.0, 25.0)).reshape(2, 3, 4)
    weights = masked_softmax(scores, np.array([[[True, False, True, False]], [[False, True, True, True]]]))
    # The second query of the first row has scores log 5, 6, 7, 8; the third of the second log 21, 22, 23, 24.
    np.testing.assert_allclose(weights[0, 1], [5 / 12, 0, 7 / 12, 0], rtol=1e-6)
    np.testing.assert_allclose(weights[1, 2], [0, 22 / 69, 23 / 69, 24 / 69], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_row_without_allowed_position_is_zero_and_the_result_float32(dtype):
    weights = masked_softmax(tf.constant([[1.0, 1.0, 5.0], [1.0, 2.0, 3.0]], dtype), np.array(FORBIDDEN_ROW))
    assert weights.dtype == "float32"
    np.testing.assert_array_equal(weights, [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]])


def test_sums_in_float32_whatever_the_scores():
    # 4097 equal weights: bfloat16 holds neither their sum nor 1/4097 to better than a 256th.
    weights = masked_softmax(tf.zeros((1, 4100), "bfloat16"), tf.range(4100)[None] < 4097)
    np.testing.assert_allclose(weights[0, :4097], np.full(4097, 1 / 4097), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_gradient_is_the_softmax_jacobian_and_zero_without_allowed_position(dtype):
    scores = tf.constant([[0.0, 2.0, 5.0], [1.0, 2.0, 3.0]], dtype)
    direction = tf.constant([[3.0, -1.0, 7.0], [3.0, -1.0, 7.0]])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        total = tf.reduce_sum(masked_softmax(scores, np.array(FORBIDDEN_ROW)) * direction)
    gradient = tape.gradient(total, scores)
    first = 1 / (1 + np.exp(2.0))  # the weight of the first position; the second has the rest
    slope = first * (1 - first) * (3.0 + 1.0)
    tolerance = {"float32": 1e-6, "bfloat16": 2**-8, "float16": 2**-11}[dtype]
    np.testing.assert_allclose(tf.cast(gradient, "float32"), [[slope, -slope, 0], [0, 0, 0]], rtol=tolerance)


@pytest.mark.parametrize("huge", [1e4, 6e4, 1e38])
def test_huge_scores_neither_overflow_nor_vanish(huge):
    dtype = "float16" if huge < 65504 else "float32"
    scores = tf.constant([[huge, -huge, huge, huge], [-huge, -huge, huge, -huge]], dtype)
    mask = np.array([[True, True, True, False], [True, True, False, False]])
    np.testing.assert_array_equal(masked_softmax(scores, mask), [[0.5, 0, 0.5, 0], [0.5, 0.5, 0, 0]])


@pytest.mark.parametrize("garbage", [3.4e38, np.inf, -np.inf, np.nan])
def test_whatever_stands_at_forbidden_positions_is_without_effect(garbage):
    scores = tf.constant([[0.0, garbage, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        weights = masked_softmax(scores, np.array([[True, False, True]]))
        first = weights[0, 0]
    np.testing.assert_array_equal(weights, [[0.5, 0.0, 0.5]])
    np.testing.assert_array_equal(tape.gradient(first, scores), [[0.25, 0.0, -0.25]])


def test_agrees_with_numpy_for_any_mask(numpy_softmax):
    random = np.random.default_rng(0)
    scores, mask = random.normal(0, 5, (3, 4, 5)), random.random((3, 4, 5)) < 0.3
    assert (~mask.any(-1)).any()  # some rows may attend to nothing
    np.testing.assert_allclose(masked_softmax(scores.astype("float32"), mask), numpy_softmax(scores, mask), rtol=1e-5)


def test_scores_in_float64_stay_in_it(numpy_softmax):
    random = np.random.default_rng(0)
    scores, mask = random.normal(0, 5, (3, 4, 5)), random.random((3, 4, 5)) < 0.3
    for allowed in (None, mask):
        weights = masked_softmax(scores, allowed)
        assert weights.dtype == "float64"
        expected = numpy_softmax(scores, True if allowed is None else allowed)
        np.testing.assert_allclose(weights, expected, rtol=1e-13)
