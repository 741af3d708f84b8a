import numpy as np
import pytest

from zoo.layers import DotProductAttention

# B, T, S, and the widths Q, K, D of query, key and value: all different, but for the key of "dot" and "scaled".
SHAPES = dict(query=(2, 3, 5), key=(2, 4, 6), value=(2, 4, 7))
KEY_WIDTH = {"dot": 5, "scaled": 5, "general": 6}
MASK = np.array([[True, True, True, False], [False, False, False, False]])


def data(arrays, score):
    return arrays(**{**SHAPES, "key": (2, 4, KEY_WIDTH[score])})


def scores_of_the_papers(score, query, key, kernel=None):
    """Luong et al. 2015, equation 8, and Vaswani et al. 2017, equation 1, pair by pair."""
    scores = np.zeros((*query.shape[:2], key.shape[1]))
    for b, i, j in np.ndindex(scores.shape):
        q, h = query[b, i], key[b, j]
        scores[b, i, j] = {
            "dot": lambda q=q, h=h: q @ h,
            "scaled": lambda q=q, h=h: q @ h / np.sqrt(5),
            "general": lambda q=q, h=h: q @ kernel.T @ h,
        }[score]()
    return scores


@pytest.mark.parametrize("score", ["dot", "scaled", "general"])
@pytest.mark.parametrize("mask", [None, MASK], ids=["no mask", "mask"])
def test_computes_what_the_papers_say(arrays, randomize, numpy_softmax, score, mask):
    x = data(arrays, score)
    layer = DotProductAttention(score)
    layer(x.query, x.value, x.key)
    randomize(layer)
    context, weights = layer(x.query, x.value, key=x.key, mask=mask, return_attention_scores=True)
    scores = scores_of_the_papers(score, x.query, x.key, *layer.get_weights())
    expected = numpy_softmax(scores, True if mask is None else mask[:, None])
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    np.testing.assert_allclose(context, expected @ x.value, atol=1e-5)


def test_hand_computed_and_scaled_by_default():
    query, value = np.array([[[2.0, 0.0, 0.0, 0.0]]]), np.array([[[1.0, 9, 9, 9], [0.0, 4, 4, 4]]])
    key = np.array([[[np.log(3.0), 7, 7, 7], [0.0, 7, 7, 7]]])
    # 2 log 3 against 0, and log 3 against 0 when divided by the root of 4.
    np.testing.assert_allclose(DotProductAttention("dot")(query, value, key)[0, 0, 0], 9 / 10, rtol=1e-6)
    np.testing.assert_allclose(DotProductAttention()(query, value, key)[0, 0], [3 / 4, *[7.75] * 3], rtol=1e-6)


@pytest.mark.parametrize("score", ["dot", "scaled", "general"])
def test_layer_check(layer_check, arrays, score):
    x = data(arrays, score)
    layer_check(
        DotProductAttention,
        {"score": score, "kernel_initializer": "he_normal"},
        {"query": x.query, "value": x.value, "key": x.key, "mask": MASK},
        weights={"kernel": (6, 5)} if score == "general" else {},
        outputs=[(2, 3, 7), (2, 3, 4)],
        options={"return_attention_scores": True},
    )


def test_without_key_the_values_are_scored():
    layer = DotProductAttention("general")
    layer(np.zeros(SHAPES["query"]), np.zeros(SHAPES["value"]))
    assert layer.kernel.shape == (7, 5)


def test_unknown_score():
    message = r"^`score` must be one of 'dot', 'scaled', 'general'\. Received: score='bilinear'$"
    with pytest.raises(ValueError, match=message):
        DotProductAttention("bilinear")


@pytest.mark.parametrize("score", ["dot", "scaled"])
@pytest.mark.parametrize("key", [None, (2, 4, 6)], ids=["value", "key"])
def test_products_need_one_width(score, key):
    width = 7 if key is None else 6
    key = None if key is None else np.zeros(key)
    message = rf"score='{score}' needs queries and keys of one width.*Received: query width 5, key width {width}$"
    with pytest.raises(ValueError, match=message):
        DotProductAttention(score)(np.zeros(SHAPES["query"]), np.zeros(SHAPES["value"]), key)
