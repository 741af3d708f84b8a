import numpy as np
import pytest

from zoo.layers import ConcatAttention

# B, T, S, units, and the widths Q, K, D of query, key and value: all different.
SHAPES = dict(query=(2, 3, 5), key=(2, 4, 6), value=(2, 4, 7))
UNITS = 8
MASK = np.array([[True, True, True, False], [False, False, False, False]])


def scores_of_the_paper(query, key, kernel, score_kernel):
    """e_ij = v^T tanh(W [q_i; h_j]), pair by pair (Luong et al. 2015, equation 8)."""
    scores = np.zeros((*query.shape[:2], key.shape[1]))
    for b, i, j in np.ndindex(scores.shape):
        scores[b, i, j] = score_kernel[:, 0] @ np.tanh(kernel.T @ np.concatenate([query[b, i], key[b, j]]))
    return scores


@pytest.mark.parametrize("mask", [None, MASK], ids=["no mask", "mask"])
def test_computes_what_the_paper_says(arrays, randomize, numpy_softmax, mask):
    x = arrays(**SHAPES)
    layer = ConcatAttention(UNITS)
    layer(x.query, x.value, x.key)
    randomize(layer)
    context, weights = layer(x.query, x.value, key=x.key, mask=mask, return_attention_scores=True)
    scores = scores_of_the_paper(x.query, x.key, *layer.get_weights())
    expected = numpy_softmax(scores, True if mask is None else mask[:, None])
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    np.testing.assert_allclose(context, expected @ x.value, atol=1e-5)


def test_layer_check(layer_check, arrays):
    x = arrays(**SHAPES)
    layer_check(
        ConcatAttention,
        {"units": UNITS, "kernel_initializer": "he_normal"},
        {"query": x.query, "value": x.value, "key": x.key, "mask": MASK},
        weights={"kernel": (11, 8), "score_kernel": (8, 1)},
        outputs=[(2, 3, 7), (2, 3, 4)],
        options={"return_attention_scores": True},
    )


def test_without_key_the_values_are_scored(arrays):
    layer = ConcatAttention(UNITS)
    layer(np.zeros(SHAPES["query"]), np.zeros(SHAPES["value"]))
    assert layer.kernel.shape == (5 + 7, UNITS)
