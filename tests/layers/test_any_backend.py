"""Every layer of the zoo on another backend of Keras gives what it gives on TensorFlow: `make test-torch`.

`KERAS_BACKEND=jax` runs it on JAX, if that is installed. On TensorFlow almost all of it is skipped: the tests of each
layer prove more there. The file imports only Keras, except for gradients, for which Keras has no function.
"""

import os
import subprocess
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
    AttentionPooling,
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
    SequencePooling,
    SimpleSelfAttention,
    SinusoidalPositionalEncoding,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
    swap_attention,
)
from zoo.layers.functions import blockwise_attention, scaled_dot_product_attention
from zoo.layers.functions.random import DropoutMask

BACKEND = keras.backend.backend()
elsewhere = pytest.mark.skipif(BACKEND == "tensorflow", reason="the tests of each layer prove it on TensorFlow")

# B, T, S, widths of query and memory: all different. In blocks of 16 there are several on either side, and some left.
B, T, S, D, M, LONG, LONGER = 3, 5, 4, 6, 2, 37, 53
TOKENS = np.array([[True, True, True, False, False], [True] * 5, [False] * 5])  # the last row is nothing but padding
MEMORY = np.array([[True, True, True, False], [True, False, True, True], [False] * 4])
INPUTS = dict(x=(B, T, D), memory=(B, S, M), long=(B, LONG, D), longer=(B, LONGER, D))
SCORES = {"return_attention_scores": True}


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
    elif BACKEND == "jax":
        import jax

        def loss_of(values, tensors):
            with keras.StatelessScope(list(zip(variables, values, strict=True))):
                return function(*tensors)

        of_variables, of_tensors = jax.grad(loss_of, (0, 1))([variable.value for variable in variables], tensors)
        results = [*of_variables, *of_tensors]
    else:
        import torch

        tensors = [each.clone().requires_grad_() for each in tensors]
        results = torch.autograd.grad(function(*tensors), [*(variable.value for variable in variables), *tensors])
    return [numpy(result) for result in results]


def plain(*names, **options):
    """A call with the inputs of those names."""
    return lambda layer, inputs: layer(*(inputs[name] for name in names), **options)


def masked(*names):
    """The same with the masks that Keras attaches; masked tokens are zeros."""
    masks = dict(x=TOKENS, memory=MEMORY)

    def call(layer, inputs):
        tensors = (inputs[name] * ops.cast(masks[name][..., None], "float32") for name in names)
        return layer(*(keras.layers.Masking()(tensor) for tensor in tensors))

    return call


def stepped(layer, inputs):
    """The outputs of steps of two, one and two tokens with a cache."""
    cache, outputs, x = None, [], inputs["x"]
    options = {}
    if isinstance(layer, TransformerDecoderLayer) and layer.cross_attention:
        options = dict(prepared=layer.prepare(inputs["memory"]), memory_mask=MEMORY)
    for first, last in ((0, 2), (2, 3), (3, 5)):
        output, cache = layer.step(x[:, first:last], cache, mask=TOKENS[:, :last], **options)
        outputs.append(output)
    return ops.concatenate(outputs, 1)


def whole_and_stepped(*names):
    """The first call builds the layer."""

    def call(layer, inputs):
        return [layer(*(inputs[name] for name in names)), stepped(layer, inputs)]

    return call


def decoder_whole(layer, inputs):
    """The states, contexts and weights of a recurrent decoder."""
    return layer(inputs["x"], [inputs["x"][:, 0]], inputs["memory"], mask=MEMORY, **SCORES)


def decoder_steps(layer, inputs):
    """The same, at once and one by one."""
    whole, x = decoder_whole(layer, inputs), inputs["x"]
    prepared, states, results = layer.prepare(inputs["memory"], ops.convert_to_tensor(MEMORY)), (x[:, :1],), []
    for t in range(T):
        states, *others = layer.step(x[:, t : t + 1], states, prepared)
        results.append([states[0], *others])
    return [*whole, *(ops.concatenate(each, 1) for each in zip(*results, strict=True))]


def hypotheses(layer, inputs):
    """Two of each row, which share what is prepared of the memory; given as arrays at first."""
    x, memory = inputs["x"], inputs["memory"]
    both = ops.reshape(ops.stack([x, -x], 1), (2 * B, T, D))
    return [layer(x, memory), layer.step(both, None, layer.prepare(memory))[0]]


def case(make, call=None):
    return SimpleNamespace(make=make, call=call or plain("x"))


ROTARY = dict(num_key_value_heads=1, sliding_window=3)
CASES = {
    "AdditiveAttention": case(lambda: AdditiveAttention(7), plain("x", "memory", mask=MEMORY, **SCORES)),
    "AttentionDecoder": case(
        lambda: AttentionDecoder(D, AdditiveAttention(7, name="attention"), name="decoder"), decoder_steps
    ),
    "AttentionPooling": case(lambda: AttentionPooling(7), plain("x", mask=TOKENS, **SCORES)),
    "BidirectionalEncoder": case(lambda: BidirectionalEncoder(4), plain("x", mask=TOKENS)),
    "CausalSelfAttention": case(lambda: CausalSelfAttention(7, dropout=0.1), plain("x", mask=TOKENS, **SCORES)),
    "ConcatAttention": case(lambda: ConcatAttention(7), plain("x", "memory", value_mask=MEMORY, **SCORES)),
    "DotProductAttention": case(
        lambda: DotProductAttention("general"), plain("x", "memory", key_mask=MEMORY, **SCORES)
    ),
    "Dropout": case(lambda: Dropout(0.5)),
    "FeedForward": case(lambda: FeedForward(7, "geglu")),
    "LearnedPositionalEmbedding": case(lambda: LearnedPositionalEmbedding(9)),
    "MaxoutReadout": case(lambda: MaxoutReadout(7), lambda layer, inputs: layer([inputs["x"], 2 * inputs["x"]])),
    "MultiHeadAttention": case(lambda: MultiHeadAttention(3, 4), plain("x", "memory", value_mask=MEMORY, **SCORES)),
    "ReversibleEmbedding": case(lambda: ReversibleEmbedding(7, D), plain("x", reverse=True)),
    "RotaryEmbedding": case(lambda: RotaryEmbedding(pairs="adjacent")),
    "SelfAttention": case(lambda: SelfAttention(7, use_bias=True), plain("x", mask=TOKENS, **SCORES)),
    "SequencePooling": case(lambda: SequencePooling("max"), plain("x", mask=TOKENS)),
    "SimpleSelfAttention": case(lambda: SimpleSelfAttention(), plain("x", mask=TOKENS, **SCORES)),
    "SinusoidalPositionalEncoding": case(lambda: SinusoidalPositionalEncoding()),
    "TransformerDecoderLayer": case(
        lambda: TransformerDecoderLayer(3, 7, activation="gelu_tanh", sliding_window=3),
        plain("x", "memory", inputs_mask=TOKENS, memory_mask=MEMORY, **SCORES),
    ),
    "TransformerEncoderLayer": case(
        lambda: TransformerEncoderLayer(
            3,
            7,
            normalization="rms",
            norm_first=True,
            activation="swiglu",
            key_dim=4,
            num_key_value_heads=1,
            rotary_embedding=RotaryEmbedding(),
        ),
        plain("x", mask=TOKENS, **SCORES),
    ),
    # More arguments, and more ways to call them.
    "parallel parts": case(
        lambda: TransformerEncoderLayer(
            3, 7, norm_first=True, parallel_residual=True, use_query_key_norm=True, use_qkv_bias=False, score_scale=0.3
        )
    ),
    "masks, simple": case(SimpleSelfAttention, masked("x")),
    "masks, causal": case(lambda: CausalSelfAttention(7), masked("x")),
    "masks, scored": case(lambda: DotProductAttention("general"), masked("x", "memory")),
    "masks, multi-head": case(lambda: MultiHeadAttention(3, 4), masked("x", "memory")),
    "masks, encoder": case(lambda: TransformerEncoderLayer(3, 7, norm_first=True), masked("x")),
    "masks, decoder": case(lambda: TransformerDecoderLayer(3, 7), masked("x", "memory")),
    "steps, multi-head": case(
        lambda: MultiHeadAttention(3, 4, rotary_embedding=RotaryEmbedding(), **ROTARY), whole_and_stepped("x", "x")
    ),
    "steps, decoder": case(
        lambda: TransformerDecoderLayer(3, 7, key_dim=4, rotary_embedding=RotaryEmbedding(), **ROTARY),
        whole_and_stepped("x", "memory"),
    ),
    "steps, no memory": case(lambda: TransformerDecoderLayer(3, 7, cross_attention=False), whole_and_stepped("x")),
    "hypotheses": case(lambda: TransformerDecoderLayer(3, 7), hypotheses),
    "blocks, causal": case(
        lambda: MultiHeadAttention(4, 3, num_key_value_heads=2, flash_attention=True),
        plain("long", "longer", use_causal_mask=True),
    ),
    "blocks, window and masks": case(
        lambda: MultiHeadAttention(4, 3, sliding_window=7, flash_attention=True),
        plain(
            "long",
            "longer",
            query_mask=np.arange(LONG) % 5 != np.array([[1], [2], [3]]),
            key_mask=np.arange(LONGER) % 3 != np.array([[1], [2], [0]]),
        ),
    ),
    "blocks, pairs": case(
        lambda: MultiHeadAttention(4, 3, flash_attention=True),
        plain("long", "longer", attention_mask=np.random.default_rng(3).random((B, 1, LONG, LONGER)) > 0.5),
    ),
}
# A base without a forward pass, and a function, which has a test of its own below.
OTHERS = {"ScoredAttention", "swap_attention"}


def built(one, inputs):
    layer = one.make()
    one.call(layer, inputs)
    random = np.random.default_rng(0)
    layer.set_weights([random.normal(0, 0.5, weight.shape) for weight in layer.weights])
    return layer


def inputs_of():
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape).astype("float32") for name, shape in INPUTS.items()}


def outputs_of(result):
    return list(result) if isinstance(result, (list, tuple)) else [result]


def results_of(one):
    """A layer's outputs, and the gradients of a linear form of them by its weights and inputs."""
    inputs = {name: ops.convert_to_tensor(each) for name, each in inputs_of().items()}
    layer = built(one, inputs)
    outputs = [numpy(each) for each in outputs_of(one.call(layer, inputs))]
    random = np.random.default_rng(2)
    forms = [ops.convert_to_tensor(random.normal(size=each.shape), "float32") for each in outputs]

    def loss(*tensors):
        results = outputs_of(one.call(layer, dict(zip(INPUTS, tensors, strict=True))))
        # Every input is added, so that there is a gradient by it.
        return sum(ops.sum(result * form) for result, form in zip(results, forms, strict=True)) + sum(
            ops.sum(each) for each in tensors
        )

    return [*outputs, *gradients(loss, layer.trainable_variables, inputs.values())]


if __name__ == "__main__":
    blockwise_attention.BLOCK = 16
    found = {f"{name}/{i:02}": each for name, one in CASES.items() for i, each in enumerate(results_of(one))}
    np.savez(sys.argv[1], **found)


@pytest.fixture(scope="module")
def on_tensorflow(tmp_path_factory):
    """The results of every case, computed by this file in a process of TensorFlow."""
    path = tmp_path_factory.mktemp("tensorflow") / "results.npz"
    subprocess.run([sys.executable, __file__, path], env={**os.environ, "KERAS_BACKEND": "tensorflow"}, check=True)
    return np.load(path)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blockwise_attention, "BLOCK", 16)


def test_every_public_name_has_a_case():
    assert set(zoo.layers.__all__) == {name for name in CASES if name[0].isupper()} | OTHERS


@elsewhere
def test_nothing_needs_tensorflow():
    assert "tensorflow" not in sys.modules


@elsewhere
@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients_are_those_on_tensorflow(on_tensorflow, name):
    expected = [on_tensorflow[key] for key in sorted(on_tensorflow.files) if key.startswith(f"{name}/")]
    results = results_of(CASES[name])
    assert len(results) == len(expected) > 0
    for result, each in zip(results, expected, strict=True):
        assert (result.shape, result.dtype) == (each.shape, each.dtype)
        np.testing.assert_allclose(result, each, atol=2e-5 * max(1, np.abs(each).max()))


@elsewhere
@pytest.mark.parametrize("name", [name for name in CASES if name[0].isupper()])
def test_a_saved_model_gives_the_same_again(name, tmp_path):
    one, inputs = CASES[name], inputs_of()
    call = decoder_whole if name == "AttentionDecoder" else one.call  # steps are no part of a model
    layer = built(one, {key: ops.convert_to_tensor(each) for key, each in inputs.items()})
    specs = {key: keras.Input(shape=INPUTS[key][1:], batch_size=B, name=key) for key in INPUTS}
    model = keras.Model(specs, outputs_of(call(layer, specs)))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    expected = outputs_of(call(layer, inputs))
    for promise, result, each in zip(model.outputs, outputs_of(loaded(inputs)), expected, strict=True):
        assert tuple(promise.shape) == tuple(result.shape)
        assert promise.dtype == keras.backend.standardize_dtype(result.dtype)
        np.testing.assert_array_equal(numpy(result), numpy(each))


@elsewhere
@pytest.mark.parametrize("blockwise", [False, True], ids=["whole", "in blocks"])
def test_gradients_with_dropout_are_those_of_the_same_mask(blockwise):
    """The context is linear in the values, so values times gradient is the loss, if both dropped the same."""
    random = np.random.default_rng(0)
    query, key, value = (random.normal(size=(1, 20, 2, width)).astype("float32") for width in (4, 4, 3))
    form = ops.convert_to_tensor(random.normal(size=(1, 20, 2, 3)), "float32")
    dropout_mask = DropoutMask(0.4, keras.random.SeedGenerator(3))

    def loss(value, dropout_mask=dropout_mask):
        context = scaled_dot_product_attention(query, key, value, dropout_mask=dropout_mask, blockwise=blockwise)
        return ops.sum(context * form)

    total = float(numpy(loss(ops.convert_to_tensor(value))))
    np.testing.assert_allclose(np.sum(gradients(loss, [], [value])[0] * value), total, rtol=1e-4)
    assert abs(total - float(numpy(loss(ops.convert_to_tensor(value), None)))) > 1e-2


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
@pytest.mark.parametrize("rows, length, memory_length", [(0, 3, 5), (2, 0, 5), (2, 3, 0), (0, 0, 0)])
def test_masks_of_empty_axes(rows, length, memory_length):
    query, value = np.ones((rows, length, D), "float32"), np.ones((rows, memory_length, D), "float32")
    masks = dict(query_mask=np.ones((rows, length), bool), value_mask=np.ones((rows, memory_length), bool))
    output, weights = MultiHeadAttention(3, 4)(query, value, **masks, return_attention_scores=True)
    assert tuple(weights.shape) == (rows, 3, length, memory_length)
    np.testing.assert_array_equal(numpy(output), np.zeros((rows, length, D)))  # no key: the bias


@elsewhere
def test_texts_longer_than_a_block():
    """Here the number of scores and the device decide about blocks."""
    x = np.random.default_rng(0).normal(size=(1, 513, 2, 3)).astype("float32")
    found = scaled_dot_product_attention(x, x, x)
    np.testing.assert_allclose(numpy(found), numpy(scaled_dot_product_attention(x, x, x, blockwise=False)), atol=1e-6)


@elsewhere
def test_gradients_in_blocks_refuse_to_be_differentiated_again():
    arrays = [np.random.default_rng(0).normal(size=(1, 3, 2, 4)).astype("float32") for _ in range(3)]

    def total(*inputs):
        return ops.sum(scaled_dot_product_attention(*inputs, blockwise=True) ** 2)

    def of_gradient(*inputs):
        if BACKEND == "jax":
            import jax

            return ops.sum(jax.grad(total)(*inputs) ** 2)
        import torch

        return ops.sum(torch.autograd.grad(total(*inputs), inputs[0], create_graph=True)[0] ** 2)

    with pytest.raises(NotImplementedError, match="The gradient of attention in blocks cannot be differentiated again"):
        gradients(of_gradient, [], arrays)


@elsewhere
def test_attention_is_swapped():
    x = keras.Input((None, D))
    theirs = keras.Model(x, keras.layers.MultiHeadAttention(3, 4)(x, x))
    ours = swap_attention(theirs)
    assert type(ours.layers[-1]) is MultiHeadAttention
    given = inputs_of()["x"]
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
