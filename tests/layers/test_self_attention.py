"""`SimpleSelfAttention`, `SelfAttention`, `CausalSelfAttention`: what they share, then what each has for itself."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.layers import CausalSelfAttention, SelfAttention, SimpleSelfAttention

# B, T, D, units: all different. A row with padding, one without, one of nothing else.
SHAPE, UNITS = (3, 4, 5), 6
TOKENS = np.array([[True, True, False, False], [True, True, True, True], [False, False, False, False]])
PAIRS = np.random.default_rng(2).random((3, 4, 4)) > 0.4
PAIRS[0, 1] = False
MASKS = {"none": None, "tokens": TOKENS, "pairs": PAIRS}
LAYERS = {
    "simple": SimpleSelfAttention,
    "plain": lambda **options: SelfAttention(UNITS, **options),
    "causal": lambda **options: CausalSelfAttention(UNITS, use_bias=True, **options),
}


def by_the_equations(x, weights, allowed):
    """Vaswani et al. 2017, equation 1, token by token; without weights, inputs are all three and nothing is scaled.

    Args:
        weights: kernel and bias, if there are biases, of query, key and value.
    """
    query = key = value = x.astype("float64")
    step = len(weights) // 3
    if weights:
        query, key, value = (
            x @ weights[step * i].astype("float64") + (weights[step * i + 1] if step == 2 else 0) for i in range(3)
        )
    contexts, shares = np.zeros(value.shape), np.zeros(allowed.shape)
    for b, i in np.ndindex(x.shape[:2]):
        scale = query.shape[-1] ** -0.5 if weights else 1
        odds = {j: np.exp(query[b, i] @ key[b, j] * scale) for j in range(x.shape[1]) if allowed[b, i, j]}
        for j, odd in odds.items():
            shares[b, i, j] = odd / sum(odds.values())
            contexts[b, i] += shares[b, i, j] * value[b, j]
    return contexts, shares


@pytest.fixture(params=LAYERS)
def name(request):
    return request.param


@pytest.fixture
def make(name, randomize):
    def make(**options):
        layer = LAYERS[name](**options)
        layer.build(SHAPE)
        return randomize(layer)

    return make


@pytest.fixture
def x(arrays):
    return arrays(x=SHAPE).x


@pytest.mark.parametrize(
    ("mask", "path"), [("none", "eager"), ("tokens", "eager"), ("pairs", "eager"), ("tokens", "XLA")]
)
def test_computes_the_equations(x, name, make, numpy_pairs, called, mask, path):
    layer, mask = make(), MASKS[mask]
    results = called(path, lambda x: layer(x, mask=mask, return_attention_scores=True), x)
    expected = by_the_equations(x, layer.get_weights(), numpy_pairs(mask, 3, 4, causal=name == "causal"))
    for result, each in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, each, atol=1e-5)
        np.testing.assert_array_equal(np.array(result)[each == 0], 0)
    np.testing.assert_allclose(layer(x, mask=mask), results[0], atol=1e-6)


@pytest.mark.parametrize(("policy", "tolerance"), [("float64", 1e-12), ("mixed_bfloat16", 2**-4)])
def test_in_other_precisions(x, name, make, numpy_pairs, policy, tolerance):
    layer = make(dtype=policy)
    x = tf.cast(x, layer.compute_dtype)
    context, weights = layer(x, mask=TOKENS, return_attention_scores=True)
    assert context.dtype == layer.compute_dtype
    assert weights.dtype == ("float64" if policy == "float64" else "float32")
    inputs, allowed = np.array(tf.cast(x, "float64")), numpy_pairs(TOKENS, 3, 4, causal=name == "causal")
    expected = by_the_equations(inputs, layer.get_weights(), allowed)
    np.testing.assert_allclose(tf.cast(context, "float64"), expected[0], atol=tolerance)
    # Only projections round; scores are computed in float32.
    np.testing.assert_allclose(weights, expected[1], atol=min(tolerance, 1e-5) if name == "simple" else tolerance)
    symbolic = layer(keras.Input((None, 5)), return_attention_scores=True)
    assert [each.shape for each in symbolic] == [(None, None, context.shape[2]), (None, None, None)]
    assert [each.dtype for each in symbolic] == [context.dtype, weights.dtype]


def test_scores_and_weights_are_computed_in_float32(x, numpy_softmax, randomize):
    layer = SelfAttention(UNITS, dtype="mixed_bfloat16")
    layer.build(SHAPE)
    randomize(layer)
    x = tf.cast(3 * x, "bfloat16")
    _, weights = layer(x, return_attention_scores=True)
    query, key = (np.array(tf.cast(part(x), "float64")) for part in (layer.query, layer.key))
    np.testing.assert_allclose(weights, numpy_softmax(query @ key.swapaxes(1, 2) / 6**0.5), atol=1e-5)


@pytest.mark.parametrize("mask", ["tokens", "pairs"])
def test_layer_check(layer_check, x, name, mask):
    parts = ("query", "key", "value")
    arguments = {
        "simple": {},
        "plain": {"use_bias": False},
        "causal": {"use_bias": True, "dropout": 0.1, "seed": 3},
    }[name]
    weights = {f"{part}/kernel": (5, 6) for part in parts} if arguments else {}
    weights |= {f"{part}/bias": (6,) for part in parts} if name == "causal" else {}
    layer = layer_check(
        {"simple": SimpleSelfAttention, "plain": SelfAttention, "causal": CausalSelfAttention}[name],
        {"units": UNITS, "kernel_initializer": "he_normal", **arguments} if arguments else {},
        {"inputs": x, "mask": MASKS[mask]},
        weights=weights,
        outputs=[(3, 4, 6 if arguments else 5), (3, 4, 4)],
        options={"return_attention_scores": True},
        mask_goes_on=mask == "tokens",
    )
    # In the order of their names.
    assert [weight.path.removeprefix(f"{layer.name}/").split("/")[0] for weight in layer.weights] == [
        part for part in parts for _ in range(len(weights) // 3)
    ]


@pytest.mark.parametrize("mask", [TOKENS, PAIRS], ids=["tokens", "pairs"])
def test_a_mask_of_one_row_counts_for_all(x, make, mask):
    layer = make()
    found, expected = layer(x, mask=mask[:1]), layer(x, mask=np.repeat(mask[:1], 3, axis=0))
    np.testing.assert_array_equal(found, expected)
    for each in (found, layer(x, mask=mask[:1].astype("int32"))):
        if mask is TOKENS:
            np.testing.assert_array_equal(each._keras_mask, np.repeat(mask[:1], 3, axis=0), strict=True)


def test_a_masked_token_gets_nothing_influences_no_other_and_has_no_gradient(x, make):
    layer = make()
    before = np.array(layer(x, mask=TOKENS))
    np.testing.assert_array_equal(layer(np.where(TOKENS[..., None], x, 1e3).astype("float32"), mask=TOKENS), before)
    inputs = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        loss = tf.reduce_sum(layer(inputs, mask=TOKENS) ** 2)
    np.testing.assert_array_equal(np.abs(tape.gradient(loss, inputs)).max(-1) > 0, TOKENS)


def test_the_mask_of_an_embedding_is_taken_and_goes_on(make):
    ids = np.array([[3, 4, 0, 0], [1, 2, 3, 4], [0, 0, 0, 0]])
    embedded, layer = keras.layers.Embedding(6, 5, mask_zero=True)(ids), make()
    context, weights = layer(embedded, return_attention_scores=True)
    np.testing.assert_array_equal(context._keras_mask, TOKENS)
    assert not hasattr(weights, "_keras_mask")
    np.testing.assert_array_equal(context, layer(np.array(embedded), mask=TOKENS))
    # Another one is preferred; one of pairs leaves that of the tokens to the layers after.
    for mask, after in ((PAIRS, TOKENS), (~TOKENS, ~TOKENS)):
        context = layer(embedded, mask=mask)
        np.testing.assert_array_equal(context, layer(np.array(embedded), mask=mask))
        np.testing.assert_array_equal(context._keras_mask, after)


def test_refuses_inputs_of_another_rank_and_masks_that_do_not_fit(name):
    for shape in ((4, 5), (2, 3, 4, 5)):
        for inputs in (np.zeros(shape), keras.Input(shape[1:])):
            with pytest.raises(ValueError, match=f"expected ndim=3, found ndim={len(shape)}"):
                LAYERS[name]()(inputs)
    for shape, message in (
        ((3, 5), r"`mask` must have the first axes of its input, \(3, 4\)\. Received: mask of shape \(3, 5\)"),
        ((3, 5, 4), r"`mask` must fit \(batch, queries, keys\), here \(3, 4, 4\).*Received: mask of shape \(3, 5, 4\)"),
        ((3,), r"`mask` must have 2 to 3 axes.*Received: mask of shape \(3,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            LAYERS[name]()(np.zeros(SHAPE), mask=np.ones(shape, bool))


def test_takes_a_mask_as_a_list_of_rows(make, x):
    layer = make()
    np.testing.assert_array_equal(layer(x, TOKENS.tolist()), layer(x, TOKENS))


def test_hand_computed_simple():
    # Each product of a vector with itself is log 3, of both 0: weights of 3/4 and 1/4.
    long = np.sqrt(np.log(3))
    x = np.array([[[long, 0], [0, long]]])
    context, weights = SimpleSelfAttention()(x, return_attention_scores=True)
    np.testing.assert_allclose(weights, [[[3 / 4, 1 / 4], [1 / 4, 3 / 4]]], rtol=1e-6)
    np.testing.assert_allclose(context, [[[0.75 * long, 0.25 * long], [0.25 * long, 0.75 * long]]], rtol=1e-6)


def test_integers_are_vectors_like_floats():
    x = np.array([[[1, 0], [0, 1]]])
    np.testing.assert_array_equal(SimpleSelfAttention()(x), SimpleSelfAttention()(x.astype("float32")))


def test_hand_computed_with_projections():
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


def test_hand_computed_causal():
    layer = CausalSelfAttention(1)
    x = np.array([[[1.0], [2.0], [3.0]]])
    layer(x)
    layer.set_weights([np.array([[1.0]]), np.array([[np.log(2.0)]]), np.array([[12.0]])])
    context, weights = layer(x, return_attention_scores=True)
    # Token i has the odds (2^i)^j: 4 to 16 for the second, 8 to 64 to 512 for the third.
    np.testing.assert_allclose(weights, [[[1, 0, 0], [1 / 5, 4 / 5, 0], [1 / 73, 8 / 73, 64 / 73]]], rtol=1e-5)
    np.testing.assert_allclose(context, [[[12], [12 * 9 / 5], [12 * 209 / 73]]], rtol=1e-5)


def test_each_kernel_is_drawn_for_itself_as_told():
    layer = SelfAttention(UNITS, kernel_initializer=keras.initializers.RandomUniform(7, 8))
    layer.build(SHAPE)
    kernels = layer.get_weights()
    assert all(((kernel >= 7) & (kernel <= 8)).all() for kernel in kernels)
    assert len({kernel.tobytes() for kernel in kernels}) == 3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dropout_takes_away_weights_and_makes_the_others_larger_in_training_only(dtype):
    # With a value for each token that stands at a place of its own, the context shows the weights after dropout.
    x = np.eye(40)[None]

    def made():
        layer = CausalSelfAttention(40, dropout=0.25, seed=1, dtype=dtype)
        layer.build(x.shape)
        layer.set_weights([np.zeros((40, 40)), np.zeros((40, 40)), np.eye(40)])
        return layer

    layer, before = made(), np.tril(np.ones((40, 40))) / np.arange(1, 41)[:, None]
    tolerance = 1e-6 if dtype == "float32" else 1e-7  # the numbers that are drawn are in float32
    for training in (None, False):
        np.testing.assert_allclose(layer(x, training=training)[0], before, rtol=tolerance)
    dropped, weights = (np.array(each)[0] for each in layer(x, training=True, return_attention_scores=True))
    np.testing.assert_allclose(weights, before, rtol=tolerance)
    kept = dropped != 0
    np.testing.assert_allclose(dropped, np.where(kept, before / 0.75, 0), rtol=tolerance)
    assert 0.65 < kept.sum() / 820 < 0.85  # more than 6 standard deviations either side
    # Each call draws anew, and a layer of the same seed draws the same.
    again, twin = np.array(layer(x, training=True))[0], made()
    assert (again != dropped).any()
    for expected in (dropped, again):
        np.testing.assert_array_equal(twin(x, training=True)[0], expected)


def test_refuses_arguments():
    for layer_class in (SelfAttention, CausalSelfAttention):
        with pytest.raises(ValueError, match=r"^`units` must be a positive integer\. Received: units=0$"):
            layer_class(0)
    with pytest.raises(ValueError, match=r"^`dropout` must be at least 0 and below 1\. Received: dropout=1\.0$"):
        CausalSelfAttention(UNITS, dropout=1.0)
