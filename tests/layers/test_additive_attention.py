import keras
import numpy as np
import pytest

from zoo.layers import AdditiveAttention

# B, T, S, units, and the widths Q, K, D of query, key and value: all different.
SHAPES = dict(query=(2, 3, 5), key=(2, 4, 6), value=(2, 4, 7))
UNITS = 8
# The first row allows two keys, the second one; one query of each may attend to nothing.
ROW_MASK = np.array([[True, True, False, False], [False, False, True, False]])
QUERY_MASK = ROW_MASK[:, None] & np.array([[[True], [False], [True]], [[True], [True], [False]]])


def scores_of_the_paper(query, key, query_kernel, key_kernel, score_kernel):
    """e_ij = v^T tanh(W q_i + U h_j), pair by pair (Bahdanau et al. 2014, appendix A.1.2)."""
    scores = np.zeros((*query.shape[:2], key.shape[1]))
    for b, i, j in np.ndindex(scores.shape):
        scores[b, i, j] = score_kernel[:, 0] @ np.tanh(query_kernel.T @ query[b, i] + key_kernel.T @ key[b, j])
    return scores


@pytest.fixture
def attention(arrays, randomize):
    x = arrays(**SHAPES)
    layer = AdditiveAttention(UNITS)
    layer(x.query, x.value, x.key)
    return randomize(layer)


@pytest.mark.parametrize(
    "mask", [None, ROW_MASK, QUERY_MASK, np.zeros((2, 4), bool)], ids=["none", "B S", "B T S", "0"]
)
def test_computes_what_the_paper_says(attention, arrays, numpy_softmax, mask):
    x = arrays(**SHAPES)
    context, weights = attention(x.query, x.value, key=x.key, mask=mask, return_attention_scores=True)
    allowed = True if mask is None else mask.reshape(2, -1, 4)
    expected = numpy_softmax(scores_of_the_paper(x.query, x.key, *attention.get_weights()), allowed)
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    np.testing.assert_allclose(context, expected @ x.value, atol=1e-5)


def test_hand_computed():
    layer = AdditiveAttention(1)
    query, value = np.array([[[1.0]]], "float32"), np.array([[[0.0, 1.0], [2.0, 5.0]]], "float32")
    layer(query, value)
    # e_1 = 2 tanh(1 + 0 + 1), e_2 = 2 tanh(1 + 2 + 5)
    layer.set_weights([np.array([[1.0]]), np.array([[1.0], [1.0]]), np.array([[2.0]])])
    odds = np.exp(2 * np.tanh(2.0)), np.exp(2 * np.tanh(8.0))
    first, second = odds / np.sum(odds)
    context, weights = layer(query, value, return_attention_scores=True)
    np.testing.assert_allclose(weights, [[[first, second]]], rtol=1e-6)
    np.testing.assert_allclose(context, [[[2 * second, first + 5 * second]]], rtol=1e-6)


def test_layer_check(layer_check, arrays):
    x = arrays(**SHAPES)
    layer_check(
        AdditiveAttention,
        {"units": UNITS, "kernel_initializer": "he_normal"},
        {"query": x.query, "value": x.value, "key": x.key, "mask": ROW_MASK},
        weights={"query_kernel": (5, 8), "key_kernel": (6, 8), "score_kernel": (8, 1)},
        outputs=[(2, 3, 7), (2, 3, 4)],
        options={"return_attention_scores": True},
    )


def test_without_key_the_values_are_scored(arrays):
    layer = AdditiveAttention(UNITS)
    layer(np.zeros(SHAPES["query"]), np.zeros(SHAPES["value"]))
    assert layer.key_kernel.shape == (7, UNITS)


def test_kernels_of_one_shape_are_drawn_apart():
    layer = AdditiveAttention(4, kernel_initializer=keras.initializers.RandomNormal())
    layer.build((2, 3, 5), (2, 4, 5))
    assert np.abs(layer.query_kernel - layer.key_kernel).max() > 0


def test_units_must_be_a_positive_integer():
    with pytest.raises(ValueError, match=r"^`units` must be a positive integer\. Received: units='8'$"):
        AdditiveAttention("8")
