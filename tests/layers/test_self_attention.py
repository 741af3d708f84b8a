import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.layers import CausalSelfAttention, SelfAttention

# B, T, D, units: all different.
SHAPE, UNITS = (3, 4, 5), 6
TOKENS = np.array([[True, True, False, False], [True, True, True, True], [False, False, False, False]])
PAIRS = np.random.default_rng(2).random((3, 4, 4)) > 0.4
PAIRS[0, 1] = False
MASKS = {"none": None, "tokens": TOKENS, "pairs": PAIRS}


def attention_of_the_paper(x, weights, allowed):
    """Vaswani et al. 2017, equation 1, token by token; `weights`: kernel and bias, if any, of query, key, value."""
    step = len(weights) // 3
    query, key, value = (
        x @ weights[step * i].astype("float64") + (weights[step * i + 1] if step == 2 else 0) for i in range(3)
    )
    contexts, shares = np.zeros(value.shape), np.zeros(allowed.shape)
    for b, i in np.ndindex(x.shape[:2]):
        odds = {j: np.exp(query[b, i] @ key[b, j] / 6**0.5) for j in range(x.shape[1]) if allowed[b, i, j]}
        for j, odd in odds.items():
            shares[b, i, j] = odd / sum(odds.values())
            contexts[b, i] += shares[b, i, j] * value[b, j]
    return contexts, shares


@pytest.fixture
def make(randomize):
    def make(layer_class=SelfAttention, **arguments):
        layer = layer_class(UNITS, **arguments)
        layer.build(SHAPE)
        return randomize(layer)

    return make


@pytest.mark.parametrize("layer_class", [SelfAttention, CausalSelfAttention])
@pytest.mark.parametrize("path", ["eager", "graph", "XLA"])
@pytest.mark.parametrize("use_bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("mask", MASKS)
def test_computes_what_the_paper_says(arrays, make, numpy_pairs, called, layer_class, mask, use_bias, path):
    x, mask, layer = arrays(x=SHAPE).x, MASKS[mask], make(layer_class, use_bias=use_bias)
    results = called(path, lambda x: layer(x, mask=mask, return_attention_scores=True), x)
    allowed = numpy_pairs(mask, 3, 4, causal=layer_class is CausalSelfAttention)
    for result, expected in zip(results, attention_of_the_paper(x, layer.get_weights(), allowed), strict=True):
        np.testing.assert_allclose(result, expected, atol=1e-5)
    np.testing.assert_array_equal(called(path, lambda x: layer(x, mask=mask), x), results[0])


@pytest.mark.parametrize("layer_class", [SelfAttention, CausalSelfAttention])
@pytest.mark.parametrize(
    ("policy", "tolerance"), [("float64", 1e-12), ("mixed_bfloat16", 2**-4), ("mixed_float16", 2**-7)]
)
def test_in_other_precisions(arrays, make, numpy_pairs, layer_class, policy, tolerance):
    layer = make(layer_class, dtype=policy, use_bias=True)
    x = tf.cast(arrays(x=SHAPE).x, layer.compute_dtype)
    context, weights = layer(x, mask=TOKENS, return_attention_scores=True)
    assert context.dtype == layer.compute_dtype
    assert weights.dtype == ("float64" if policy == "float64" else "float32")
    allowed = numpy_pairs(TOKENS, 3, 4, causal=layer_class is CausalSelfAttention)
    expected = attention_of_the_paper(np.array(tf.cast(x, "float64")), layer.get_weights(), allowed)
    np.testing.assert_allclose(tf.cast(context, "float64"), expected[0], atol=tolerance)
    np.testing.assert_allclose(weights, expected[1], atol=tolerance)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_scores_and_weights_are_computed_in_float32(arrays, make, numpy_softmax, policy):
    layer = make(dtype=policy)
    x = tf.cast(3 * arrays(x=SHAPE).x, layer.compute_dtype)
    _, weights = layer(x, return_attention_scores=True)
    query, key = (np.array(tf.cast(part(x), "float64")) for part in (layer.query, layer.key))
    np.testing.assert_allclose(weights, numpy_softmax(query @ key.swapaxes(1, 2) / 6**0.5), atol=1e-5)


def test_projections_are_in_the_order_of_their_names(make):
    layer = make(use_bias=True)
    names = [f"{name}/{weight}" for name in ("query", "key", "value") for weight in ("kernel", "bias")]
    assert [weight.path.removeprefix(f"{layer.name}/") for weight in layer.weights] == names
    assert [part.name for part in (layer.query, layer.key, layer.value)] == ["query", "key", "value"]


def test_hand_computed():
    layer = SelfAttention(4)
    x = np.array([[[1.0, 0], [0, 1]]])
    layer(x)
    # Queries and keys meet in the first of four features: products of 2 log 3 or 0, halved by the root of 4.
    query, key, value = np.zeros((2, 4)), np.zeros((2, 4)), np.zeros((2, 4))
    query[0, 0], key[1, 0], value[0, 1], value[1, 2] = 2.0, np.log(3.0), 8.0, 4.0
    layer.set_weights([query, key, value])
    context, weights = layer(x, return_attention_scores=True)
    np.testing.assert_allclose(weights, [[[1 / 4, 3 / 4], [1 / 2, 1 / 2]]], rtol=1e-6)
    np.testing.assert_allclose(context, [[[0, 2, 3, 0], [0, 4, 2, 0]]], rtol=1e-6)


@pytest.mark.parametrize("use_bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("mask", [TOKENS, PAIRS], ids=["tokens", "pairs"])
def test_layer_check(layer_check, arrays, mask, use_bias):
    weights = {f"{name}/kernel": (5, 6) for name in ("query", "key", "value")}
    weights |= {f"{name}/bias": (6,) for name in ("query", "key", "value")} if use_bias else {}
    layer_check(
        SelfAttention,
        {"units": UNITS, "use_bias": use_bias, "kernel_initializer": "he_normal"},
        {"inputs": arrays(x=SHAPE).x, "mask": mask},
        weights=weights,
        outputs=[(3, 4, 6), (3, 4, 4)],
        options={"return_attention_scores": True},
        mask_goes_on=mask is TOKENS,
    )


def test_each_kernel_is_drawn_for_itself_as_told():
    layer = SelfAttention(UNITS, kernel_initializer=keras.initializers.RandomUniform(7, 8))
    layer.build(SHAPE)
    kernels = layer.get_weights()
    assert all(((kernel >= 7) & (kernel <= 8)).all() for kernel in kernels)
    assert len({kernel.tobytes() for kernel in kernels}) == 3


def test_keras_attention_of_one_head_gives_the_same(arrays, make):
    x, layer = arrays(x=SHAPE).x, make(use_bias=True)
    peer = keras.layers.MultiHeadAttention(1, UNITS, output_shape=UNITS)
    peer.build(SHAPE, SHAPE)
    query, query_bias, key, key_bias, value, value_bias = layer.get_weights()
    # Behind it there is one more projection, here one that changes nothing.
    heads = [query[:, None], query_bias[None], key[:, None], key_bias[None], value[:, None], value_bias[None]]
    peer.set_weights([*heads, np.eye(UNITS)[None], np.zeros(UNITS)])
    for mask in (PAIRS | np.eye(4, dtype=bool), None):  # where there is nothing to attend to Keras takes the mean
        expected = peer(x, x, attention_mask=mask, return_attention_scores=True)
        context, weights = layer(x, mask=mask, return_attention_scores=True)
        np.testing.assert_allclose(context, expected[0], atol=1e-5)
        np.testing.assert_allclose(weights, expected[1][:, 0], atol=1e-6)


@settings(max_examples=10, deadline=None)
@given(order=st.permutations(range(4)), seed=st.integers(0, 9))
def test_has_no_notion_of_order(arrays, randomize, order, seed):
    layer, x = SelfAttention(UNITS), arrays(seed, x=SHAPE).x
    layer.build(SHAPE)
    expected = np.array(randomize(layer)(x, mask=TOKENS))[:, order]
    np.testing.assert_allclose(layer(x[:, order], mask=TOKENS[:, order]), expected, atol=1e-5)


def test_a_masked_token_gets_nothing_and_influences_no_other(arrays, make):
    layer, x = make(use_bias=True), arrays(x=SHAPE).x
    before = np.array(layer(x, mask=TOKENS))
    np.testing.assert_array_equal(before[~TOKENS], 0)
    np.testing.assert_array_equal(layer(np.where(TOKENS[..., None], x, 1e3).astype("float32"), mask=TOKENS), before)


@pytest.mark.parametrize("layer_class", [SelfAttention, CausalSelfAttention])
def test_the_mask_of_an_embedding_is_taken_and_goes_on(make, layer_class):
    ids = np.array([[3, 4, 0, 0], [1, 2, 3, 4], [0, 0, 0, 0]])
    embedded, layer = keras.layers.Embedding(6, 5, mask_zero=True)(ids), make(layer_class)
    context, weights = layer(embedded, return_attention_scores=True)
    np.testing.assert_array_equal(context._keras_mask, TOKENS)
    assert not hasattr(weights, "_keras_mask")
    np.testing.assert_array_equal(context, layer(np.array(embedded), mask=TOKENS))
    # Another one is preferred; one of pairs leaves that of the tokens to the layers after.
    for mask, after in ((PAIRS, TOKENS), (~TOKENS, ~TOKENS)):
        context = layer(embedded, mask=mask)
        np.testing.assert_array_equal(context, layer(np.array(embedded), mask=mask))
        np.testing.assert_array_equal(context._keras_mask, after)


def test_no_gradient_comes_from_a_row_of_padding(arrays, make):
    x, layer = tf.constant(arrays(x=SHAPE).x), make()
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(layer(x, mask=TOKENS) ** 2)
    reached = np.abs(tape.gradient(loss, x)).max(-1)
    np.testing.assert_array_equal(reached > 0, TOKENS)


def test_symbolic_shapes_and_types():
    context, weights = SelfAttention(UNITS, dtype="float64")(keras.Input((None, 5)), return_attention_scores=True)
    assert (context.shape, weights.shape) == ((None, None, 6), (None, None, None))
    assert context.dtype == weights.dtype == "float64"
    alone = SelfAttention(UNITS, dtype="mixed_float16")(keras.Input((4, 5)))
    assert (alone.shape, alone.dtype) == ((None, 4, 6), "float16")


@pytest.mark.parametrize("layer_class", [SelfAttention, CausalSelfAttention])
def test_refuses(layer_class):
    with pytest.raises(ValueError, match=r"^`units` must be a positive integer\. Received: units=0$"):
        layer_class(0)
    for shape in ((4, 5), (2, 3, 4, 5)):
        with pytest.raises(ValueError, match=f"expected ndim=3, found ndim={len(shape)}"):
            layer_class(UNITS)(np.zeros(shape))
        with pytest.raises(ValueError, match=f"expected ndim=3, found ndim={len(shape)}"):
            layer_class(UNITS)(keras.Input(shape[1:]))
    for shape, message in (
        ((3, 5), r"`mask` must have the first axes of its input, \(3, 4\)\. Received: mask of shape \(3, 5\)"),
        ((3, 5, 4), r"`mask` must fit \(batch, heads, queries, keys\).*Received: mask of shape \(3, 1, 5, 4\)"),
        ((3,), r"`mask` must have 2 to 3 axes.*Received: mask of shape \(3,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            layer_class(UNITS)(np.zeros(SHAPE), mask=np.ones(shape, bool))
