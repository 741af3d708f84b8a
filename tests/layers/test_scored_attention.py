"""What all attention layers have in common."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.layers import AdditiveAttention, ConcatAttention, DotProductAttention, ScoredAttention

MAKERS = {
    "additive": lambda **kwargs: AdditiveAttention(6, **kwargs),
    "concat": lambda **kwargs: ConcatAttention(6, **kwargs),
    "dot": lambda **kwargs: DotProductAttention("dot", **kwargs),
    "scaled": lambda **kwargs: DotProductAttention("scaled", **kwargs),
    "general": lambda **kwargs: DotProductAttention("general", **kwargs),
}
SHAPES = dict(query=(2, 3, 5), key=(2, 4, 5), value=(2, 4, 7))
MASK = np.array([[True, False, True, True], [False, True, False, False]])


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


@pytest.fixture
def x(arrays):
    return arrays(**SHAPES)


@pytest.fixture
def attention(make, x, randomize):
    layer = make()
    layer(x.query, x.value, x.key)
    return randomize(layer)


def test_is_a_base_only():
    with pytest.raises(TypeError, match=r"abstract.*project_key.*scores"):
        ScoredAttention()


def test_projecting_then_attending_is_the_call(attention, x):
    expected = attention(x.query, x.value, x.key, mask=MASK, return_attention_scores=True)
    projected = attention.project_key(x.key)
    # Once projected, the keys serve query after query.
    for i in range(3):
        context, weights = attention.attend(x.query[:, i : i + 1], projected, x.value, MASK)
        np.testing.assert_allclose(context, expected[0][:, i : i + 1], atol=1e-6)
        np.testing.assert_allclose(weights, expected[1][:, i : i + 1], atol=1e-6)


def test_the_context_is_the_same_whether_weights_are_asked_for_or_not(attention, x):
    context, _ = attention(x.query, x.value, x.key, mask=MASK, return_attention_scores=True)
    np.testing.assert_array_equal(attention(x.query, x.value, x.key, mask=MASK), context)


def test_a_mask_of_keys_holds_for_every_query(attention, x):
    expected = attention(x.query, x.value, x.key, mask=np.repeat(MASK[:, None], 3, axis=1))
    np.testing.assert_array_equal(attention(x.query, x.value, x.key, mask=MASK), expected)


def test_forbidden_keys_and_values_are_without_effect(attention, x):
    expected = attention(x.query, x.value, x.key, mask=MASK, return_attention_scores=True)
    key, value = (np.where(MASK[:, :, None], array, 1e3).astype("float32") for array in (x.key, x.value))
    for result, before in zip(
        attention(x.query, value, key, mask=MASK, return_attention_scores=True), expected, strict=True
    ):
        np.testing.assert_array_equal(result, before)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16", "float64"])
@pytest.mark.parametrize("scored", [True, False], ids=["with weights", "context alone"])
@pytest.mark.parametrize("compiled", [True, False], ids=["graph", "eager"])
def test_nothing_to_attend_to_gives_zeros_on_every_path(make, x, policy, scored, compiled):
    layer = make(dtype=policy)

    def call(query, value, key, mask):
        return layer(query, value, key, mask=mask, return_attention_scores=scored)

    mask = np.array([[False] * 4, [False, True, False, False]])
    outputs = (tf.function(call) if compiled else call)(x.query, x.value, x.key, mask)
    context = outputs[0] if scored else outputs
    np.testing.assert_array_equal(tf.cast(context[0], "float32"), np.zeros((3, 7)))
    # The other row has one key to attend to and gets its value.
    value = tf.cast(tf.cast(x.value[1, 1], layer.compute_dtype), "float32")
    np.testing.assert_allclose(tf.cast(context[1], "float32"), np.tile(value, (3, 1)), rtol=1e-6)
    assert context.dtype == layer.compute_dtype
    if scored:
        assert outputs[1].dtype == ("float64" if policy == "float64" else "float32")
        np.testing.assert_array_equal(outputs[1], np.broadcast_to(mask[:, None], (2, 3, 4)))


def test_no_gradient_comes_from_a_row_with_nothing_to_attend_to(attention, x):
    inputs = [tf.constant(array) for array in (x.query, x.value, x.key)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        context = attention(*inputs, mask=np.array([[False] * 4, [True] * 4]))
        loss = tf.reduce_sum(context**2)
    for gradient in tape.gradient(loss, inputs):
        np.testing.assert_array_equal(gradient[0], np.zeros_like(gradient[0]))
        assert np.isfinite(gradient[1]).all() and np.abs(gradient[1]).max() > 0


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_the_parts_compute_in_the_policys_type_outside_a_call_too(make, x, policy):
    layer = make(dtype=policy)
    query, value, key = (tf.cast(array, layer.compute_dtype) for array in (x.query, x.value, x.key))
    expected = layer(query, value, key, mask=MASK, return_attention_scores=True)
    projected = layer.project_key(key)
    assert projected.dtype == layer.compute_dtype
    for result, one in zip(layer.attend(query, projected, value, MASK), expected, strict=True):
        assert result.dtype == one.dtype
        np.testing.assert_array_equal(tf.cast(result, "float32"), tf.cast(one, "float32"))


def test_names_and_sizes_of_a_symbolic_call_without_weights(make):
    query, value = keras.Input((None, 5)), keras.Input((None, 5))
    context = make()(query, value)
    assert (context.shape, context.dtype) == ((None, None, 5), "float32")
