"""Every layer of the zoo on the backend that Keras runs on: `make test-torch` runs this file on PyTorch.

`make test` runs it on TensorFlow: every layer's equations and their gradients. The other tests are skipped there, since
the tests of each layer prove the same. The file imports only Keras, except for gradients, for which Keras has no
function.
"""

import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from keras import ops

import zoo.layers
from zoo.layers import (
    AdditiveAttention,
    AttentionDecoder,
    BidirectionalEncoder,
    CausalSelfAttention,
    ConcatAttention,
    DotProductAttention,
    Dropout,
    FeedForward,
    LearnedPositionalEmbedding,
    MaxoutReadout,
    MultiHeadAttention,
    ReversibleEmbedding,
    RotaryEmbedding,
    SelfAttention,
    SimpleSelfAttention,
    SinusoidalPositionalEncoding,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
    swap_attention,
)
from zoo.layers.functions import blockwise_attention, scaled_dot_product_attention
from zoo.layers.functions.random import DropoutMask

BACKEND = keras.backend.backend()
EXACT = BACKEND == "tensorflow"  # elsewhere Keras takes float64 to float32 in its products
elsewhere = pytest.mark.skipif(BACKEND == "tensorflow", reason="the tests of each layer prove it on TensorFlow")

# B, T, S, widths of query and memory: all different.
B, T, S, D, M = 2, 5, 4, 6, 3
TOKENS = np.array([[True, True, True, False, False], [True] * 5])
MEMORY = np.array([[True, True, True, False], [True, False, True, True]])
INPUTS = dict(x=(B, T, D), memory=(B, S, M))


def numpy(tensor):
    return keras.ops.convert_to_numpy(tensor)


def gradients(function, variables, tensors):
    """Gradients of a scalar function of the tensors, by the variables and then by the tensors."""
    tensors = [ops.convert_to_tensor(each) for each in tensors]
    if BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(tensors)
            loss = function(*tensors)
        results = tape.gradient(loss, [*(variable.value for variable in variables), *tensors])
    elif BACKEND == "torch":
        import torch

        tensors = [each.clone().requires_grad_() for each in tensors]
        results = torch.autograd.grad(function(*tensors), [*(variable.value for variable in variables), *tensors])
    else:
        pytest.skip(f"gradients on {BACKEND}")
    return [numpy(result) for result in results]


def weights_of(layer):
    return {w.path.removeprefix(f"{layer.name}/"): numpy(w.value).astype("float64") for w in layer.weights}


# What each layer computes, in NumPy: `(oracles, weights, x, memory) -> outputs`, with the oracles of conftest.py.


def softmax_of(scores, allowed, oracles):
    return oracles.softmax(scores, np.broadcast_to(allowed, scores.shape))


def additive(oracles, weights, x, memory, query="query_kernel", key="key_kernel"):
    hidden = np.tanh((x @ weights[query])[:, :, None] + (memory @ weights[key])[:, None])
    shares = softmax_of((hidden @ weights["score_kernel"])[..., 0], MEMORY[:, None], oracles)
    return [shares @ memory, shares]


def concat(oracles, weights, x, memory):
    halves = {"query_kernel": weights["kernel"][:D], "key_kernel": weights["kernel"][D:]}
    return additive(oracles, weights | halves, x, memory)


def general(oracles, weights, x, memory):
    shares = softmax_of(x @ (memory @ weights["kernel"]).swapaxes(1, 2), MEMORY[:, None], oracles)
    return [shares @ memory, shares]


def self_attention(oracles, weights, x, memory, causal=False):
    query, key, value = (
        x @ weights[f"{n}/kernel"] + weights.get(f"{n}/bias", 0) if weights else x for n in ("query", "key", "value")
    )
    allowed = TOKENS[:, None] & TOKENS[:, :, None] & (np.tril(np.ones((T, T), bool)) | (not causal))
    scale = query.shape[-1] ** -0.5 if weights else 1
    shares = softmax_of(query @ key.swapaxes(1, 2) * scale, allowed, oracles)
    return [shares @ value, shares]


def multi_head(oracles, weights, x, memory):
    query, key, value = (
        np.einsum("btd,dhk->bhtk", inputs, weights[f"{name}/kernel"]) + weights[f"{name}/bias"][:, None]
        for name, inputs in (("query", x), ("key", memory), ("value", memory))
    )
    shares = softmax_of(query @ key.swapaxes(2, 3) / 2, MEMORY[:, None, None], oracles)  # heads of width 4
    output = np.einsum("bhtk,hkd->btd", shares @ value, weights["attention_output/kernel"])
    return [output + weights["attention_output/bias"], shares]


def encoder(oracles, weights, x, memory):
    options = dict(normalization="rms", norm_first=True, activation="swiglu", rotary_embedding=True)
    rows = [oracles.transformer.encoder(x[b], weights, options, TOKENS[b]) for b in range(B)]
    return [np.array(each) for each in zip(*rows, strict=True)]


def decoder(oracles, weights, x, memory):
    options = dict(activation="gelu_tanh", sliding_window=3)
    rows = [oracles.transformer.decoder(x[b], weights, options, memory[b], TOKENS[b], MEMORY[b]) for b in range(B)]
    return [np.array(each) for each in zip(*rows, strict=True)]


def feed_forward(oracles, weights, x, memory):
    return [np.array([oracles.transformer.feed_forward(row, weights, "geglu") for row in x])]


def learned(oracles, weights, x, memory):
    return [x + weights["embeddings"][:T]]


def sinusoidal(oracles, weights, x, memory):
    angles = np.arange(T)[:, None] / 10_000 ** (np.arange(0, D, 2) / D)
    return [x + np.stack([np.sin(angles), np.cos(angles)], -1).reshape(T, D)]


def rotary(oracles, weights, x, memory):
    turns = np.exp(1j * np.arange(T)[:, None] / 10_000 ** (np.arange(0, D, 2) / D))
    turned = (x[..., ::2] + 1j * x[..., 1::2]) * turns
    return [np.stack([turned.real, turned.imag], -1).reshape(x.shape)]


def maxout(oracles, weights, x, memory):
    sums = np.concatenate([x, 2 * x], -1) @ weights["dense/kernel"] + weights["dense/bias"]
    return [np.maximum(sums[..., ::2], sums[..., 1::2])]


def gru(weights, name):
    return [weights[f"{name}/{weight}"] for weight in ("kernel", "recurrent_kernel", "bias")]


def bidirectional(oracles, weights, x, memory):
    annotations, last = np.zeros((B, T, 8)), np.zeros((2, B, 4))
    for b, length in enumerate(TOKENS.sum(1)):
        for way, (name, order) in enumerate(
            (("forward_cell", range(length)), ("backward_cell", reversed(range(length))))
        ):
            for t in order:
                (last[way, b],) = oracles.steps["gru"](x[b, t], (last[way, b],), *gru(weights, name))
                annotations[b, t, 4 * way : 4 * way + 4] = last[way, b]
    return [annotations, *last]


def attention_decoder(oracles, weights, x, memory):
    attention = {name.removeprefix("attention/"): weight for name, weight in weights.items()}
    state, steps = x[:, 0], []
    for t in range(T):
        context, shares = additive(oracles, attention, state[:, None], memory)
        inputs = np.concatenate([x[:, t], context[:, 0]], -1)
        (state,) = oracles.steps["gru"](inputs, (state,), *gru(weights, "cell"))
        steps.append((state, context[:, 0], shares[:, 0]))
    return [np.stack(each, 1) for each in zip(*steps, strict=True)]


def plain(*names, **options):
    """A call with the inputs of those names."""
    return lambda layer, inputs: layer(*(inputs[name] for name in names), **options)


def case(make, expected, call=None, smooth=None):
    """How to make a layer of some dtype, what it computes, and its call; another one if that rounds to float32."""
    call = call or plain("x")
    return SimpleNamespace(make=make, expected=expected, call=call, smooth=smooth or call)


SCORES = {"return_attention_scores": True}
CASES = {
    "AdditiveAttention": case(
        lambda dtype: AdditiveAttention(7, dtype=dtype), additive, plain("x", "memory", mask=MEMORY, **SCORES)
    ),
    "AttentionDecoder": case(
        lambda dtype: AttentionDecoder(D, AdditiveAttention(7, dtype=dtype, name="attention"), dtype=dtype),
        attention_decoder,
        lambda layer, inputs: layer(inputs["x"], [inputs["x"][:, 0]], inputs["memory"], mask=MEMORY, **SCORES),
        lambda layer, inputs: layer(inputs["x"], [inputs["x"][:, 0]], inputs["memory"], mask=MEMORY),
    ),
    "BidirectionalEncoder": case(
        lambda dtype: BidirectionalEncoder(4, dtype=dtype), bidirectional, plain("x", mask=TOKENS)
    ),
    "CausalSelfAttention": case(
        lambda dtype: CausalSelfAttention(7, dropout=0.1, dtype=dtype),
        lambda *args: self_attention(*args, causal=True),
        plain("x", mask=TOKENS, **SCORES),
    ),
    "ConcatAttention": case(
        lambda dtype: ConcatAttention(7, dtype=dtype), concat, plain("x", "memory", value_mask=MEMORY, **SCORES)
    ),
    "DotProductAttention": case(
        lambda dtype: DotProductAttention("general", dtype=dtype),
        general,
        plain("x", "memory", key_mask=MEMORY, **SCORES),
    ),
    "Dropout": case(lambda dtype: Dropout(0.5, dtype=dtype), lambda oracles, weights, x, memory: [x]),
    "FeedForward": case(lambda dtype: FeedForward(7, "geglu", dtype=dtype), feed_forward),
    "LearnedPositionalEmbedding": case(lambda dtype: LearnedPositionalEmbedding(9, dtype=dtype), learned),
    "MaxoutReadout": case(
        lambda dtype: MaxoutReadout(7, dtype=dtype), maxout, lambda layer, inputs: layer([inputs["x"], 2 * inputs["x"]])
    ),
    "MultiHeadAttention": case(
        lambda dtype: MultiHeadAttention(3, 4, dtype=dtype),
        multi_head,
        plain("x", "memory", value_mask=MEMORY, **SCORES),
    ),
    "ReversibleEmbedding": case(
        lambda dtype: ReversibleEmbedding(7, D, dtype=dtype),
        lambda oracles, weights, x, memory: [x @ weights["embeddings"].T],
        plain("x", reverse=True),
    ),
    "RotaryEmbedding": case(lambda dtype: RotaryEmbedding(pairs="adjacent", dtype=dtype), rotary),
    "SelfAttention": case(
        lambda dtype: SelfAttention(7, use_bias=True, dtype=dtype), self_attention, plain("x", mask=TOKENS, **SCORES)
    ),
    "SimpleSelfAttention": case(
        lambda dtype: SimpleSelfAttention(dtype=dtype), self_attention, plain("x", mask=TOKENS, **SCORES)
    ),
    "SinusoidalPositionalEncoding": case(lambda dtype: SinusoidalPositionalEncoding(dtype=dtype), sinusoidal),
    "TransformerDecoderLayer": case(
        lambda dtype: TransformerDecoderLayer(3, 7, activation="gelu_tanh", sliding_window=3, dtype=dtype),
        decoder,
        plain("x", "memory", inputs_mask=TOKENS, memory_mask=MEMORY, **SCORES),
    ),
    "TransformerEncoderLayer": case(
        lambda dtype: TransformerEncoderLayer(
            3,
            7,
            normalization="rms",
            norm_first=True,
            activation="swiglu",
            key_dim=4,
            num_key_value_heads=1,
            rotary_embedding=RotaryEmbedding(dtype=dtype),
            dtype=dtype,
        ),
        encoder,
        plain("x", mask=TOKENS, **SCORES),
    ),
}
# A base without a forward pass, and a function, which has a test of its own below.
OTHERS = {"ScoredAttention", "swap_attention"}


@pytest.fixture(params=CASES)
def one(request):
    return CASES[request.param]


@pytest.fixture
def oracles(numpy_softmax, numpy_transformer, numpy_steps):
    return SimpleNamespace(softmax=numpy_softmax, transformer=numpy_transformer, steps=numpy_steps)


def built(one, dtype, inputs, seed=0):
    layer = one.make(dtype)
    one.call(layer, inputs)
    random = np.random.default_rng(seed)
    layer.set_weights([random.normal(0, 0.5, weight.shape) for weight in layer.weights])
    return layer


def inputs_of(dtype, seed=0):
    random = np.random.default_rng(seed)
    return {name: random.normal(size=shape).astype(dtype) for name, shape in INPUTS.items()}


def outputs_of(result):
    return list(result) if isinstance(result, (list, tuple)) else [result]


def test_every_public_name_has_a_case():
    assert set(zoo.layers.__all__) == set(CASES) | OTHERS


@elsewhere
def test_nothing_needs_tensorflow():
    assert "tensorflow" not in sys.modules


def test_computes_its_equations(one, oracles):
    inputs = inputs_of("float64")
    layer = built(one, "float64", inputs)
    results = outputs_of(one.call(layer, inputs))
    expected = one.expected(oracles, weights_of(layer), inputs["x"], inputs["memory"])
    assert len(results) == len(expected)
    for result, each in zip(results, expected, strict=True):
        np.testing.assert_allclose(numpy(result), each, atol=1e-7 if EXACT else 2e-5)


def slope(function, place, direction):
    """The derivative of a function of arrays along a direction, from differences: exact up to the step's square."""
    step = 1e-4 if EXACT else 1e-2
    there, back = ([p + sign * step * d for p, d in zip(place, direction, strict=True)] for sign in (1, -1))
    return (function(there) - function(back)) / (2 * step)


def assert_gradients(layer, loss, arrays):
    """Compares gradients by the layer's weights and by arrays with differences along three directions."""
    variables, random = layer.trainable_variables, np.random.default_rng(1)
    found = gradients(loss, variables, arrays)
    place = [*(numpy(v.value) for v in variables), *arrays]

    def value(moved):
        for variable, array in zip(variables, moved, strict=False):
            variable.assign(array)
        result = float(numpy(loss(*(ops.convert_to_tensor(each) for each in moved[len(variables) :]))))
        for variable, array in zip(variables, place, strict=False):
            variable.assign(array)
        return result

    for _ in range(3):
        direction = [random.normal(size=array.shape) for array in place]
        length = np.sqrt(sum(np.sum(each**2) for each in direction))
        direction = [each / length for each in direction]
        expected = slope(value, place, direction)
        total = sum(np.sum(gradient * d) for gradient, d in zip(found, direction, strict=True))
        # Without float64 there is rounding, 1e-7 of the loss over the step, besides.
        np.testing.assert_allclose(total, expected, rtol=1e-5 if EXACT else 2e-2, atol=1e-6 if EXACT else 5e-3)


def test_gradients_are_those_of_finite_differences(one):
    inputs = inputs_of("float64")
    layer = built(one, "float64", inputs)
    random = np.random.default_rng(2)
    forms = [ops.convert_to_tensor(random.normal(size=r.shape)) for r in outputs_of(one.smooth(layer, inputs))]

    def loss(x, memory):
        results = outputs_of(one.smooth(layer, {"x": x, "memory": memory}))
        # The memory is added so that a layer without one has a gradient by it too.
        return sum(ops.sum(result * form) for result, form in zip(results, forms, strict=True)) + ops.sum(memory)

    assert_gradients(layer, loss, [inputs["x"], inputs["memory"]])


@elsewhere
def test_a_saved_model_gives_the_same_again(one, tmp_path):
    inputs = inputs_of("float32")
    layer = built(one, "float32", inputs)
    specs = {name: keras.Input(shape=INPUTS[name][1:], batch_size=B, name=name) for name in INPUTS}
    model = keras.Model(specs, outputs_of(one.call(layer, specs)))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    expected = outputs_of(one.call(layer, inputs))
    for promise, result, each in zip(model.outputs, outputs_of(loaded(inputs)), expected, strict=True):
        assert tuple(promise.shape) == tuple(result.shape)
        assert promise.dtype == keras.backend.standardize_dtype(result.dtype)
        np.testing.assert_array_equal(numpy(result), numpy(each))


@elsewhere
@pytest.mark.parametrize("name", [name for name in CASES if name.endswith("Attention")])
def test_a_row_with_nothing_to_attend_to_gets_zeros(name):
    inputs, layer = inputs_of("float32"), CASES[name].make("float32")
    if "Self" in name:
        context, weights = layer(inputs["x"], mask=TOKENS & [[False], [True]], **SCORES)
    else:
        context, weights = layer(inputs["x"], inputs["memory"], value_mask=MEMORY & [[False], [True]], **SCORES)
    np.testing.assert_array_equal(numpy(context[0]), 0)  # the output's bias starts as zero
    np.testing.assert_array_equal(numpy(weights[0]), 0)
    assert np.isfinite(numpy(context)).all() and np.abs(numpy(context[1])).min() > 0


@elsewhere
def test_masks_of_embeddings_are_taken_and_go_on():
    ids, source = TOKENS * np.arange(1, T + 1), MEMORY * np.arange(1, S + 1)
    x, memory = (keras.layers.Embedding(9, width, mask_zero=True)(each) for width, each in ((D, ids), (M, source)))
    plain = [ops.convert_to_tensor(numpy(each)) for each in (x, memory)]
    for layer, given, masks in (
        (SimpleSelfAttention(), 1, {"mask": TOKENS}),
        (CausalSelfAttention(7), 1, {"mask": TOKENS}),
        (DotProductAttention("general"), 2, {"query_mask": TOKENS, "value_mask": MEMORY}),
        (MultiHeadAttention(3, 4), 2, {"query_mask": TOKENS, "value_mask": MEMORY}),
        (TransformerEncoderLayer(3, 7, norm_first=True), 1, {"mask": TOKENS}),
        (TransformerDecoderLayer(3, 7), 2, {"inputs_mask": TOKENS, "memory_mask": MEMORY}),
        (TransformerDecoderLayer(3, 7, cross_attention=False), 1, {"inputs_mask": TOKENS}),
    ):
        result = layer(*(x, memory)[:given])
        np.testing.assert_array_equal(numpy(result._keras_mask), TOKENS)
        expected = layer(*plain[:given], **masks)
        np.testing.assert_allclose(numpy(result), numpy(expected), atol=1e-6)


# Attention in blocks: of 16 tokens each, so several on either side, and some left over.
LONG, LONGER = 37, 53
RULES = {
    "causal": dict(use_causal_mask=True),
    "query_mask, key_mask": dict(
        query_mask=np.arange(LONG) % 5 != np.array([[1], [2]]), key_mask=np.arange(LONGER) % 3 != np.array([[1], [2]])
    ),
    "pairs": dict(attention_mask=np.random.default_rng(3).random((2, 1, LONG, LONGER)) > 0.5),
}


@elsewhere
@pytest.mark.parametrize(
    ("rule", "window"), [("causal", None), ("query_mask, key_mask", 7), ("pairs", None)], ids=lambda each: str(each)
)
def test_attention_in_blocks_gives_the_same_and_its_gradients(monkeypatch, rule, window):
    monkeypatch.setattr(blockwise_attention, "BLOCK", 16)
    random, options = np.random.default_rng(0), RULES[rule]
    query, value = (random.normal(size=(2, length, D)).astype("float32") for length in (LONG, LONGER))
    form = ops.convert_to_tensor(random.normal(size=(2, LONG, D)), "float32")
    results = []
    for flash_attention in (False, True, None):
        layer = MultiHeadAttention(
            4, 3, sliding_window=window, flash_attention=flash_attention, num_key_value_heads=2, seed=1
        )
        layer.build(query.shape, value.shape)
        weights = np.random.default_rng(1)
        layer.set_weights([weights.normal(0, 0.5, weight.shape) for weight in layer.weights])

        def loss(query, value, layer=layer):
            return ops.sum(layer(query, value, **options) * form)

        changes = gradients(loss, layer.trainable_variables, [query, value])
        results.append([numpy(layer(query, value, **options)), *changes])
    for other in results[1:]:
        for one, each in zip(results[0], other, strict=True):
            np.testing.assert_allclose(each, one, atol=1e-5 * max(1, np.abs(one).max()))


@elsewhere
@pytest.mark.parametrize("flash_attention", [False, True], ids=["whole", "blocks"])
def test_gradients_with_dropout_are_those_of_the_same_mask(monkeypatch, flash_attention):
    monkeypatch.setattr(blockwise_attention, "BLOCK", 16)
    x = np.random.default_rng(0).normal(size=(1, 20, D))

    def loss(x, training=True):
        # A layer made anew draws the same again.
        layer = MultiHeadAttention(2, 3, dropout=0.4, flash_attention=flash_attention, seed=3, dtype="float64")
        layer.build(tuple(x.shape), tuple(x.shape))
        random = np.random.default_rng(1)
        layer.set_weights([random.normal(0, 0.5, weight.shape) for weight in layer.weights])
        return ops.sum(layer(x, x, training=training) ** 2)

    assert_gradients(keras.layers.Identity(), loss, [x])
    dropped, whole = (float(numpy(loss(ops.convert_to_tensor(x), training))) for training in (True, False))
    assert abs(dropped - whole) > 1e-3


@elsewhere
def test_a_dropout_mask_is_drawn_again_by_the_number_of_its_block():
    seed = keras.random.SeedGenerator(1)
    dropout_mask, other = DropoutMask(0.25, seed), DropoutMask(0.25, seed)
    first = numpy(dropout_mask((50, 60), 4))
    np.testing.assert_array_equal(numpy(dropout_mask((50, 60), ops.convert_to_tensor(4))), first)
    np.testing.assert_allclose(np.unique(first), [0, 4 / 3], rtol=1e-6)
    assert abs((first > 0).mean() - 0.75) < 0.05
    for different in (dropout_mask((50, 60), 5), dropout_mask((50, 60)), other((50, 60), 4)):
        assert (numpy(different) != first).any()


@elsewhere
def test_gradients_in_blocks_refuse_to_be_differentiated_again():
    arrays = [np.random.default_rng(0).normal(size=(1, 3, 2, 4)).astype("float32") for _ in range(3)]

    def square(*inputs):
        return ops.sum(scaled_dot_product_attention(*inputs, blockwise=True) ** 2)

    def of_gradient(*inputs):
        import torch

        return ops.sum(torch.autograd.grad(square(*inputs), inputs[0], create_graph=True)[0] ** 2)

    with pytest.raises(NotImplementedError, match="The gradient of attention in blocks cannot be differentiated again"):
        gradients(of_gradient, [], arrays)


def stepped(step, x):
    """The outputs of steps of two, one and two tokens; a step takes what comes next and what it returned."""
    cache, outputs = None, []
    for first, last in ((0, 2), (2, 3), (3, 5)):
        output, cache = step(ops.convert_to_tensor(x[:, first:last]), cache, last)
        outputs.append(numpy(output))
    return np.concatenate(outputs, 1)


@elsewhere
def test_stepping_with_a_cache_gives_the_whole():
    inputs = inputs_of("float32")
    x, memory = inputs["x"], inputs["memory"]
    shared = dict(num_key_value_heads=1, sliding_window=3)
    attention = MultiHeadAttention(3, 4, rotary_embedding=RotaryEmbedding(), **shared)
    whole = attention(x, x, value_mask=TOKENS, use_causal_mask=True)
    steps = stepped(lambda now, cache, end: attention.step(now, cache, mask=TOKENS[:, :end]), x)
    np.testing.assert_allclose(steps, numpy(whole), atol=1e-5)
    for cross_attention in (True, False):
        layer = TransformerDecoderLayer(
            3, 7, key_dim=4, rotary_embedding=RotaryEmbedding(), cross_attention=cross_attention, **shared
        )
        masks = {"inputs_mask": TOKENS, **({"memory_mask": MEMORY} if cross_attention else {})}
        whole = layer(x, *([memory] if cross_attention else []), **masks)
        prepared = layer.prepare(ops.convert_to_tensor(memory)) if cross_attention else None

        def step(now, cache, end, layer=layer, prepared=prepared):
            return layer.step(now, cache, prepared, mask=TOKENS[:, :end], memory_mask=MEMORY)

        np.testing.assert_allclose(stepped(step, x), numpy(whole), atol=1e-5)


@elsewhere
def test_a_step_takes_arrays_and_several_hypotheses_a_row_of_the_memory():
    inputs = inputs_of("float32")
    layer, x = TransformerDecoderLayer(3, 7), np.concatenate([inputs["x"], -inputs["x"]])
    whole = layer(x, np.repeat(inputs["memory"], 2, axis=0))
    output, _ = layer.step(x, None, layer.prepare(inputs["memory"]))
    np.testing.assert_allclose(numpy(output), numpy(whole), atol=1e-5)


@elsewhere
def test_stepping_a_recurrent_decoder_gives_the_whole():
    inputs = inputs_of("float32")
    one = CASES["AttentionDecoder"]
    layer = built(one, "float32", inputs)
    x, memory = (ops.convert_to_tensor(each) for each in inputs.values())
    prepared, states, results = layer.prepare(memory, ops.convert_to_tensor(MEMORY)), (x[:, :1],), []
    for t in range(T):
        states, *others = layer.step(x[:, t : t + 1], states, prepared)
        results.append([numpy(each)[:, 0] for each in (states[0], *others)])
    for result, each in zip(zip(*results, strict=True), one.call(layer, inputs), strict=True):
        np.testing.assert_allclose(np.stack(result, 1), numpy(each), atol=1e-5)


@elsewhere
def test_dropout_is_for_training_only():
    x = np.random.default_rng(0).normal(size=(2, 20, D)).astype("float32")
    for layer in (
        CausalSelfAttention(7, dropout=0.5),
        FeedForward(7, dropout=0.5),
        Dropout(0.5),
        TransformerEncoderLayer(3, 7, dropout=0.5, attention_dropout=0.5, feed_forward_dropout=0.5),
    ):
        before = numpy(layer(x))
        np.testing.assert_array_equal(numpy(layer(x, training=False)), before)
        assert (numpy(layer(x, training=True)) != before).any()


@elsewhere
def test_attention_is_swapped():
    x = keras.Input((None, D))
    theirs = keras.Model(x, keras.layers.MultiHeadAttention(3, 4)(x, x))
    ours = swap_attention(theirs)
    assert type(ours.layers[-1]) is MultiHeadAttention
    given = inputs_of("float32")["x"]
    np.testing.assert_allclose(numpy(ours(given)), numpy(theirs(given)), atol=1e-5)


@elsewhere
def test_a_model_learns():
    ids = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Embedding(9, 8, mask_zero=True)(ids)
    hidden = TransformerEncoderLayer(2, 16, dropout=0.1, rotary_embedding=RotaryEmbedding())(hidden)
    model = keras.Model(ids, keras.layers.Dense(9)(hidden))
    model.compile(keras.optimizers.Adam(0.03), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    tokens = np.array([[1, 2, 3, 4, 5, 0, 0], [6, 7, 8, 0, 0, 0, 0]])
    losses = model.fit(tokens, tokens, epochs=10, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
