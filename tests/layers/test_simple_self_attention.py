import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.layers import SimpleSelfAttention

# B, T, D: all different. A row with padding, one without, one of nothing else.
SHAPE = (3, 4, 5)
TOKENS = np.array([[True, True, False, False], [True, True, True, True], [False, False, False, False]])
PAIRS = np.random.default_rng(2).random((3, 4, 4)) > 0.4
PAIRS[0, 1] = False
MASKS = {"none": None, "tokens": TOKENS, "pairs": PAIRS}


def averages(x, allowed):
    """The docstring's equations, token by token; the contexts and the weights."""
    contexts, weights = np.zeros(x.shape), np.zeros(allowed.shape)
    for b, i in np.ndindex(x.shape[:2]):
        shares = {j: np.exp(x[b, i].astype("float64") @ x[b, j]) for j in range(x.shape[1]) if allowed[b, i, j]}
        for j, share in shares.items():
            weights[b, i, j] = share / sum(shares.values())
            contexts[b, i] += weights[b, i, j] * x[b, j]
    return contexts, weights


@pytest.mark.parametrize("path", ["eager", "graph", "XLA"])
@pytest.mark.parametrize("mask", MASKS)
def test_computes_the_equations(arrays, numpy_pairs, called, mask, path):
    x, mask = arrays(x=SHAPE).x, MASKS[mask]
    layer = SimpleSelfAttention()
    results = called(path, lambda x: layer(x, mask=mask, return_attention_scores=True), x)
    for result, expected in zip(results, averages(x, numpy_pairs(mask, 3, 4)), strict=True):
        np.testing.assert_allclose(result, expected, atol=1e-5)
    np.testing.assert_array_equal(called(path, lambda x: layer(x, mask=mask), x), results[0])


@pytest.mark.parametrize(
    ("policy", "tolerance"), [("float64", 1e-12), ("mixed_bfloat16", 2**-6), ("mixed_float16", 2**-9)]
)
@pytest.mark.parametrize("mask", MASKS)
def test_in_other_precisions(arrays, numpy_pairs, policy, tolerance, mask):
    layer, mask = SimpleSelfAttention(dtype=policy), MASKS[mask]
    x = tf.cast(arrays(x=SHAPE).x, layer.compute_dtype)
    context, weights = layer(x, mask=mask, return_attention_scores=True)
    assert context.dtype == layer.compute_dtype
    assert weights.dtype == ("float64" if policy == "float64" else "float32")
    expected = averages(np.array(tf.cast(x, "float64")), numpy_pairs(mask, 3, 4))
    # The scores are computed in float32 whatever the layer's precision.
    np.testing.assert_allclose(weights, expected[1], atol=min(tolerance, 1e-5))
    np.testing.assert_allclose(tf.cast(context, "float64"), expected[0], atol=tolerance)


def test_hand_computed():
    # Each product of a vector with itself is log 3, of both 0: weights of 3/4 and 1/4.
    long = np.sqrt(np.log(3))
    x = np.array([[[long, 0], [0, long]]])
    context, weights = SimpleSelfAttention()(x, return_attention_scores=True)
    np.testing.assert_allclose(weights, [[[3 / 4, 1 / 4], [1 / 4, 3 / 4]]], rtol=1e-6)
    np.testing.assert_allclose(context, [[[0.75 * long, 0.25 * long], [0.25 * long, 0.75 * long]]], rtol=1e-6)


@pytest.mark.parametrize("mask", [TOKENS, PAIRS], ids=["tokens", "pairs"])
def test_layer_check(layer_check, arrays, mask):
    layer_check(
        SimpleSelfAttention,
        {},
        {"inputs": arrays(x=SHAPE).x, "mask": mask},
        weights={},
        outputs=[(3, 4, 5), (3, 4, 4)],
        options={"return_attention_scores": True},
        mask_goes_on=mask is TOKENS,
    )


def test_a_mask_of_pairs_serves_every_row(arrays):
    layer, x = SimpleSelfAttention(), arrays(x=SHAPE).x
    np.testing.assert_array_equal(layer(x, mask=PAIRS[1:2]), layer(x, mask=np.repeat(PAIRS[1:2], 3, axis=0)))


@settings(max_examples=10, deadline=None)
@given(order=st.permutations(range(4)), seed=st.integers(0, 9))
def test_has_no_notion_of_order(arrays, order, seed):
    layer, x = SimpleSelfAttention(), arrays(seed, x=SHAPE).x
    expected = np.array(layer(x, mask=TOKENS))[:, order]
    np.testing.assert_allclose(layer(x[:, order], mask=TOKENS[:, order]), expected, atol=1e-5)


def test_a_masked_token_gets_nothing_and_influences_no_other(arrays):
    layer, x = SimpleSelfAttention(), arrays(x=SHAPE).x
    before = np.array(layer(x, mask=TOKENS))
    np.testing.assert_array_equal(before[~TOKENS], 0)
    np.testing.assert_array_equal(layer(np.where(TOKENS[..., None], x, 1e3).astype("float32"), mask=TOKENS), before)


def test_the_mask_of_an_embedding_is_taken_and_goes_on(arrays):
    ids = np.array([[3, 4, 0, 0], [1, 2, 3, 4], [0, 0, 0, 0]])
    embedding, layer = keras.layers.Embedding(6, 5, mask_zero=True), SimpleSelfAttention()
    embedded = embedding(ids)
    context, weights = layer(embedded, return_attention_scores=True)
    np.testing.assert_array_equal(context._keras_mask, TOKENS)
    assert not hasattr(weights, "_keras_mask")
    np.testing.assert_array_equal(context, layer(np.array(embedded), mask=TOKENS))
    # Another one is preferred; one of pairs leaves that of the tokens to the layers after.
    for mask, after in ((PAIRS, TOKENS), (~TOKENS, ~TOKENS)):
        context = layer(embedded, mask=mask)
        np.testing.assert_array_equal(context, layer(np.array(embedded), mask=mask))
        np.testing.assert_array_equal(context._keras_mask, after)


def test_symbolic_weights_of_a_layer_in_float64():
    context, weights = SimpleSelfAttention(dtype="float64")(keras.Input((None, 5)), return_attention_scores=True)
    assert (context.shape, weights.shape) == ((None, None, 5), (None, None, None))
    assert context.dtype == weights.dtype == "float64"


@pytest.mark.parametrize("shape", [(4, 5), (2, 3, 4, 5)])
@pytest.mark.parametrize("make", [keras.Input, np.zeros], ids=["symbolic", "eager"])
def test_refuses_inputs_of_another_rank(shape, make):
    inputs = make(shape[1:]) if make is keras.Input else make(shape)
    with pytest.raises(ValueError, match=f"expected ndim=3, found ndim={len(shape)}"):
        SimpleSelfAttention()(inputs)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, 5), r"`mask` must have the first axes of its input, \(3, 4\)\. Received: mask of shape \(3, 5\)"),
        ((2, 4), r"`mask` must have the first axes of its input, \(3, 4\)\. Received: mask of shape \(2, 4\)"),
        ((3, 4, 5), r"`mask` must fit \(batch, heads, queries, keys\).*Received: mask of shape \(3, 1, 4, 5\)"),
        ((3,), r"`mask` must have 2 to 3 axes.*Received: mask of shape \(3,\)"),
    ],
)
def test_refuses_other_masks(shape, message):
    with pytest.raises(ValueError, match=message):
        SimpleSelfAttention()(np.zeros(SHAPE), mask=np.ones(shape, bool))
