import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.layers import MultiHeadAttention, RotaryEmbedding, TransformerDecoderLayer, TransformerEncoderLayer

# B, T, D, H and the feed-forward network's width: all different.
SHAPE, HEADS, UNITS = (3, 5, 8), 2, 7
SIZES = dict(num_heads=HEADS, feed_forward_units=UNITS)
# A row with padding on the right, one without, one with padding on the left, and more of that below.
MASK = np.array([[True, True, True, False, False], [True] * 5, [False, True, True, True, True]])
NOTHING = np.array([[True, True, True, False, False], [False] * 5, [False, True, True, True, True]])
KINDS = {
    "paper": {},
    "norm first, gelu": dict(norm_first=True, activation="gelu"),
    "rms, silu": dict(normalization="rms", activation="silu"),
    "llama": dict(
        normalization="rms",
        norm_first=True,
        activation="swiglu",
        use_bias=False,
        rotary_embedding=RotaryEmbedding(),
        num_key_value_heads=1,
        epsilon=1e-2,
    ),
    "window, heads of another width, geglu": dict(sliding_window=2, key_dim=3, activation="geglu", epsilon=0.1),
    "gpt": dict(norm_first=True, activation="gelu_tanh", key_dim=6),
}


@pytest.fixture
def make(randomize):
    def make(shape=SHAPE, **arguments):
        layer = TransformerEncoderLayer(**SIZES, **arguments)
        layer.build(shape)
        return randomize(layer)

    return make


def expected_of(numpy_transformer, layer, x, mask, kind):
    rows = range(len(x))
    weights = numpy_transformer.weights(layer)
    results = [numpy_transformer.encoder(x[b], weights, KINDS[kind], True if mask is None else mask[b]) for b in rows]
    return [np.array(each) for each in zip(*results, strict=True)]


@pytest.mark.parametrize("mask", [None, MASK, NOTHING], ids=["no mask", "mask", "nothing in one row"])
@pytest.mark.parametrize("kind", KINDS)
def test_computes_what_the_papers_say(arrays, make, numpy_transformer, kind, mask):
    x, layer = arrays(x=SHAPE).x, make(**KINDS[kind])
    expected, expected_weights = expected_of(numpy_transformer, layer, x, mask, kind)
    outputs, weights = layer(x, mask=mask, return_attention_scores=True)
    np.testing.assert_allclose(outputs, expected, atol=2e-5)
    np.testing.assert_allclose(weights, expected_weights, atol=1e-5)
    # The same whether weights are asked for or not, up to rounding.
    np.testing.assert_allclose(layer(x, mask=mask), expected, atol=2e-5)


@pytest.mark.parametrize("path", ["graph", "XLA"])
@pytest.mark.parametrize("kind", ["paper", "llama"])
def test_compiled(arrays, make, called, numpy_transformer, kind, path):
    x, layer = arrays(x=SHAPE).x, make(**KINDS[kind])
    expected, _ = expected_of(numpy_transformer, layer, x, NOTHING, kind)
    outputs = called(path, lambda x, mask: layer(x, mask=mask), x, NOTHING)
    np.testing.assert_allclose(outputs, expected, atol=2e-5)


@pytest.mark.parametrize("kind", ["paper", "llama"])
@pytest.mark.parametrize(
    ("policy", "tolerance"), [("float64", 1e-11), ("mixed_bfloat16", 2**-4), ("mixed_float16", 2**-7)]
)
def test_in_other_precisions(arrays, make, numpy_transformer, kind, policy, tolerance):
    # Rotary positions have a precision of their own.
    rotary = {"rotary_embedding": RotaryEmbedding(dtype=policy)} if kind == "llama" else {}
    layer = make(**{**KINDS[kind], **rotary}, dtype=policy)
    x = tf.cast(arrays(x=SHAPE).x, layer.compute_dtype)
    outputs, weights = layer(x, mask=MASK, return_attention_scores=True)
    assert outputs.dtype == layer.compute_dtype
    assert weights.dtype == ("float64" if policy == "float64" else "float32")
    expected = expected_of(numpy_transformer, layer, np.array(tf.cast(x, "float64")), MASK, kind)
    for result, each in zip((outputs, weights), expected, strict=True):
        np.testing.assert_allclose(tf.cast(result, "float64"), each, atol=tolerance * np.abs(each).max())


def test_hand_computed():
    # All alike: nothing but the residual connections, the biases and the norms is at work.
    layer = TransformerEncoderLayer(1, 1, epsilon=1e-12, norm_first=True)
    x = np.array([[[3.0, 1.0]]])
    layer(x)
    for weight in layer.weights:
        weight.assign(np.zeros(weight.shape))
    np.testing.assert_allclose(layer(x), x)
    layer.self_attention.output_dense.bias.assign([1.0, 7.0])  # x is [4, 8], its norm [-1, 1]
    layer.feed_forward_norm.gamma.assign([1.0, 1.0])
    layer.feed_forward.input_projection.kernel.assign([[2.0], [5.0]])  # 3
    layer.feed_forward.output_projection.kernel.assign([[10.0, 20.0]])
    np.testing.assert_allclose(layer(x), [[[34, 68]]], rtol=1e-6)
    after = TransformerEncoderLayer(1, 1, epsilon=1e-12)
    after(x)
    after.set_weights(layer.get_weights())
    after.self_attention_norm.gamma.assign([1.0, 1.0])  # the norm of [4, 8], and of what comes of it: [29, 61]
    np.testing.assert_allclose(after(x), [[[-1, 1]]], rtol=1e-6)


WEIGHTS = {
    "self_attention/query/kernel": (8, 2, 4),
    "self_attention/key/kernel": (8, 1, 4),
    "self_attention/value/kernel": (8, 1, 4),
    "self_attention/attention_output/kernel": (2, 4, 8),
    "feed_forward/input/kernel": (8, 7),
    "feed_forward/gate/kernel": (8, 7),
    "feed_forward/output/kernel": (7, 8),
}


GAINS = ("gamma", "beta")


@pytest.mark.parametrize("kind", ["paper", "llama"])
def test_layer_check(layer_check, arrays, kind):
    arguments = {
        **SIZES,
        "dropout": 0.1,
        "attention_dropout": 0.2,
        "feed_forward_dropout": 0.3,
        "activation": "relu",
        "normalization": "layer",
        "norm_first": False,
        "use_bias": True,
        "key_dim": None,
        "num_key_value_heads": 1,
        "rotary_embedding": None,
        "sliding_window": 3,
        "flash_attention": False,
        "epsilon": 1e-3,
        "kernel_initializer": "he_normal",
        "seed": 3,
        **KINDS[kind],
        **({"rotary_embedding": RotaryEmbedding()} if kind == "llama" else {}),
    }
    weights = dict(WEIGHTS)
    if kind == "paper":
        del weights["feed_forward/gate/kernel"]
        norms = {f"{part}_norm/{weight}": (8,) for part in ("self_attention", "feed_forward") for weight in GAINS}
        biases = {name.replace("kernel", "bias"): shape[1:] for name, shape in weights.items()}
        weights |= {**biases, "self_attention/attention_output/bias": (8,), **norms}
    else:
        weights |= {"self_attention_norm/scale": (8,), "feed_forward_norm/scale": (8,)}
    layer_check(
        TransformerEncoderLayer,
        arguments,
        {"inputs": arrays(x=SHAPE).x, "mask": MASK},
        weights=weights,
        outputs=[SHAPE, (3, 2, 5, 5)],
        options={"return_attention_scores": True},
        mask_goes_on=True,
    )


@pytest.mark.parametrize("norm_first", [False, True], ids=["norm last", "norm first"])
@pytest.mark.parametrize("normalization", ["layer", "rms"])
def test_keras_layers_put_together_give_the_same(arrays, make, norm_first, normalization):
    x, layer = arrays(x=SHAPE).x, make(norm_first=norm_first, normalization=normalization)
    norm = {"layer": keras.layers.LayerNormalization, "rms": keras.layers.RMSNormalization}[normalization]
    attention, norms = keras.layers.MultiHeadAttention(HEADS, 4), [norm(epsilon=1e-5), norm(epsilon=1e-5)]
    dense = [keras.layers.Dense(UNITS, "relu"), keras.layers.Dense(8)]

    def peer(x):
        pairs = MASK[:, None]
        if norm_first:
            y = norms[0](x)
            x = x + attention(y, y, attention_mask=pairs)
            return x + dense[1](dense[0](norms[1](x)))
        x = norms[0](x + attention(x, x, attention_mask=pairs))
        return norms[1](x + dense[1](dense[0](x)))

    peer(x)
    for theirs, ours in (
        (attention, layer.self_attention),
        (norms[0], layer.self_attention_norm),
        (norms[1], layer.feed_forward_norm),
        (dense[0], layer.feed_forward.input_projection),
        (dense[1], layer.feed_forward.output_projection),
    ):
        theirs.set_weights(ours.get_weights())
    np.testing.assert_allclose(layer(x, mask=MASK), peer(x), atol=1e-5)


@pytest.mark.peers
@pytest.mark.parametrize("norm_first", [False, True], ids=["norm last", "norm first"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_torch_layer_gives_the_same(norm_first, activation):
    import torch

    x = np.random.default_rng(0).normal(size=SHAPE)
    layer = TransformerEncoderLayer(**SIZES, norm_first=norm_first, activation=activation, dtype="float64")
    layer.build(SHAPE)
    random = np.random.default_rng(1)
    layer.set_weights([random.normal(0, 0.5, weight.shape) for weight in layer.weights])
    peer = torch.nn.TransformerEncoderLayer(
        8, HEADS, UNITS, 0.0, activation, batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    copy_to_torch(layer, peer)
    inputs = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = layer(inputs, mask=MASK)
        loss = tf.reduce_sum(tf.boolean_mask(outputs, MASK) ** 3)
    theirs = torch.tensor(x, requires_grad=True)
    expected = peer(theirs, src_key_padding_mask=torch.from_numpy(~MASK))
    # Keras on TensorFlow rounds the root in gelu to float32.
    tolerance = 1e-7 if activation == "gelu" else 1e-11
    np.testing.assert_allclose(outputs, expected.detach().numpy(), rtol=tolerance, atol=tolerance)
    (expected[torch.from_numpy(MASK)] ** 3).sum().backward()
    np.testing.assert_allclose(tape.gradient(loss, inputs), theirs.grad.numpy(), rtol=tolerance, atol=10 * tolerance)


def copy_to_torch(layer, peer):
    """The layer's weights into those of `torch.nn.TransformerEncoderLayer`."""
    import torch

    attention, network = layer.self_attention, layer.feed_forward
    parts = attention.query_dense, attention.key_dense, attention.value_dense
    width = layer.self_attention_norm.gamma.shape[0]
    arrays = {
        "self_attn.in_proj_weight": np.concatenate([np.array(part.kernel).reshape(width, -1).T for part in parts]),
        "self_attn.in_proj_bias": np.concatenate([np.array(part.bias).reshape(-1) for part in parts]),
        "self_attn.out_proj.weight": np.array(attention.output_dense.kernel).reshape(-1, width).T,
        "self_attn.out_proj.bias": attention.output_dense.bias,
        "linear1.weight": np.array(network.input_projection.kernel).T,
        "linear1.bias": network.input_projection.bias,
        "linear2.weight": np.array(network.output_projection.kernel).T,
        "linear2.bias": network.output_projection.bias,
        "norm1.weight": layer.self_attention_norm.gamma,
        "norm1.bias": layer.self_attention_norm.beta,
        "norm2.weight": layer.feed_forward_norm.gamma,
        "norm2.bias": layer.feed_forward_norm.beta,
    }
    peer.load_state_dict({name: torch.tensor(np.array(array)) for name, array in arrays.items()})


@pytest.mark.peers
def test_the_parts_of_llama_in_torch_give_the_same():
    import torch
    from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

    x = np.random.default_rng(0).normal(size=SHAPE)
    kind = dict(normalization="rms", norm_first=True, activation="swiglu", use_bias=False, num_key_value_heads=1)
    layer = TransformerEncoderLayer(**SIZES, **kind, epsilon=1e-6, dtype="float64")
    layer.build(SHAPE)
    random = np.random.default_rng(1)
    layer.set_weights([random.normal(0, 0.5, weight.shape) for weight in layer.weights])
    weights = {w.path.removeprefix(f"{layer.name}/"): torch.tensor(np.array(w)) for w in layer.weights}

    def heads(x, part):
        return torch.einsum("btd,dhk->bhtk", x, weights[f"self_attention/{part}/kernel"])

    total = torch.tensor(x)
    normed = rms_norm(total, (8,), weights["self_attention_norm/scale"], 1e-6)
    context = scaled_dot_product_attention(
        *(heads(normed, part) for part in ("query", "key", "value")),
        attn_mask=torch.from_numpy(MASK[:, None, None]),
        enable_gqa=True,
    )
    total = total + torch.einsum("bhtk,hkd->btd", context, weights["self_attention/attention_output/kernel"])
    normed = rms_norm(total, (8,), weights["feed_forward_norm/scale"], 1e-6)
    hidden = silu(normed @ weights["feed_forward/input/kernel"]) * (normed @ weights["feed_forward/gate/kernel"])
    total = total + hidden @ weights["feed_forward/output/kernel"]
    np.testing.assert_allclose(layer(x, mask=MASK), total.numpy(), rtol=1e-11, atol=1e-11)


@settings(max_examples=10, deadline=None)
@given(order=st.permutations(range(5)), kind=st.sampled_from(["paper", "norm first, gelu", "rms, silu"]))
def test_has_no_notion_of_order_without_positions(arrays, randomize, order, kind):
    x, layer = arrays(x=SHAPE).x, TransformerEncoderLayer(**SIZES, **KINDS[kind])
    layer.build(SHAPE)
    expected = np.array(randomize(layer)(x, mask=MASK))[:, order]
    np.testing.assert_allclose(layer(x[:, order], mask=MASK[:, order]), expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["llama", "window, heads of another width, geglu"])
def test_has_one_with_positions(arrays, make, kind):
    x, layer = arrays(x=SHAPE).x, make(**KINDS[kind])
    order = [3, 0, 2, 4, 1]
    assert np.abs(layer(x[:, order]) - np.array(layer(x))[:, order]).max() > 1e-3


@settings(max_examples=10, deadline=None)
@given(extra=st.integers(1, 4), kind=st.sampled_from(list(KINDS)))
def test_more_padding_changes_nothing(arrays, randomize, extra, kind):
    x, layer = arrays(x=SHAPE).x, TransformerEncoderLayer(**SIZES, **KINDS[kind])
    layer.build(SHAPE)
    before = randomize(layer)(x, mask=MASK)
    longer = np.pad(x, [(0, 0), (0, extra), (0, 0)], constant_values=9)
    after = layer(longer, mask=np.pad(MASK, [(0, 0), (0, extra)]))
    np.testing.assert_allclose(after[:, :5], before, atol=1e-5)


@pytest.mark.parametrize("kind", ["paper", "llama"])
def test_a_masked_token_influences_no_other(arrays, make, kind):
    layer, x = make(**KINDS[kind]), arrays(x=SHAPE).x
    before = np.array(layer(x, mask=MASK))
    after = np.array(layer(np.where(MASK[..., None], x, 1e2).astype("float32"), mask=MASK))
    np.testing.assert_array_equal(after[MASK], before[MASK])
    assert np.abs(after - before)[~MASK].max() > 0.1


@pytest.mark.parametrize("norm_first", [False, True], ids=["norm last", "norm first"])
def test_the_mask_of_an_embedding_is_taken_and_goes_on(make, norm_first):
    ids = np.array([[3, 4, 5, 0, 0], [1, 2, 3, 4, 5], [0, 2, 3, 4, 5]])
    embedded, layer = keras.layers.Embedding(6, 8, mask_zero=True)(ids), make(norm_first=norm_first)
    # To the last token too: one that is masked gets what it gets with a mask that is given.
    results = layer(embedded, return_attention_scores=True)
    expected = layer(np.array(embedded), mask=MASK, return_attention_scores=True)
    for result, each in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, each)
    np.testing.assert_array_equal(results[0]._keras_mask, MASK)
    assert not hasattr(results[1], "_keras_mask")
    np.testing.assert_array_equal(embedded._keras_mask, MASK)
    # Another mask is preferred, for the queries as well.
    outputs = layer(embedded, mask=~MASK)
    np.testing.assert_array_equal(outputs, layer(np.array(embedded), mask=~MASK))
    np.testing.assert_array_equal(outputs._keras_mask, ~MASK)


@pytest.mark.parametrize("layer_class", [TransformerEncoderLayer, TransformerDecoderLayer])
def test_a_mask_of_pairs_is_combined_with_that_of_an_embedding(layer_class, arrays, randomize, numpy_transformer):
    """Of a decoder also with causality. It does not go on."""
    x, pairs = arrays(x=SHAPE).x, np.random.default_rng(0).random((3, 5, 5)) > 0.4
    causal = {"cross_attention": False} if layer_class is TransformerDecoderLayer else {}
    layer, name = layer_class(**SIZES, **causal), "inputs_mask" if causal else "mask"
    layer.build(SHAPE)
    randomize(layer)
    compute = numpy_transformer.decoder if causal else numpy_transformer.encoder
    weights = numpy_transformer.weights(layer)
    for attached, allowed in ((None, pairs), (MASK, pairs & MASK[:, None])):
        inputs = tf.constant(x)
        if attached is not None:
            inputs._keras_mask = tf.constant(attached)
        outputs = layer(inputs, **{name: pairs})
        expected = [compute(x[b], weights, {}, mask=allowed[b])[0] for b in range(3)]
        np.testing.assert_allclose(outputs, expected, atol=2e-5)
        goes_on = getattr(outputs, "_keras_mask", None)
        assert goes_on is None if attached is None else np.array_equal(goes_on, attached)


def test_symbolic_shapes_and_types():
    layer = TransformerEncoderLayer(**SIZES, dtype="float64")
    outputs, weights = layer(keras.Input((None, 8)), return_attention_scores=True)
    assert (outputs.shape, weights.shape) == ((None, None, 8), (None, 2, None, None))
    assert outputs.dtype == weights.dtype == "float64"
    alone = TransformerEncoderLayer(**SIZES, dtype="mixed_float16")(keras.Input((5, 8)))
    assert (alone.shape, alone.dtype) == ((None, 5, 8), "float16")
    assert layer.compute_output_shape((2, 5, 8)) == (2, 5, 8)


RATES = ("dropout", "attention_dropout", "feed_forward_dropout")


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("norm_first", [False, True], ids=["norm last", "norm first"])
def test_each_dropout_is_for_training_only_and_seeded(arrays, make, rate, norm_first):
    x = arrays(x=SHAPE).x
    layers = [make(**{rate: 0.5}, seed=seed, norm_first=norm_first) for seed in (1, 1, 2)]
    expected = make(norm_first=norm_first)(x)
    for training in (None, False):
        np.testing.assert_array_equal(layers[0](x, training=training), expected)
    first, again, other = (layer(x, training=True) for layer in layers)
    np.testing.assert_array_equal(first, again)
    for different in (expected, other, layers[0](x, training=True)):
        assert np.abs(first - different).max() > 1e-2


def test_dropout_falls_on_what_is_added_in_both_places(arrays, make):
    layer, x = make(norm_first=True, dropout=0.5, seed=1), np.zeros((1, 50, 8), "float32")
    for weight in layer.weights:
        weight.assign(np.zeros(weight.shape))
    layer.self_attention.output_dense.bias.assign(np.ones(8))
    layer.feed_forward.output_projection.bias.assign(np.full(8, 10.0))
    values, counts = np.unique(layer(x, training=True), return_counts=True)
    np.testing.assert_array_equal(values, [0, 2, 20, 22])
    assert (counts > 50).all()  # of 400; about 100 each, but never few


def test_each_rate_reaches_its_part_and_the_attention_takes_every_option():
    rotary = RotaryEmbedding()
    layer = TransformerEncoderLayer(
        **SIZES,
        dropout=0.1,
        attention_dropout=0.2,
        feed_forward_dropout=0.3,
        sliding_window=4,
        flash_attention=True,
        rotary_embedding=rotary,
        num_key_value_heads=1,
        key_dim=6,
        use_bias=False,
        kernel_initializer="he_normal",
        seed=5,
    )
    layer.build(SHAPE)
    attention = layer.self_attention
    assert type(attention) is MultiHeadAttention
    told = (attention.dropout, attention.sliding_window, attention.flash_attention, attention.num_key_value_heads)
    assert told == (0.2, 4, True, 1)
    assert attention.rotary_embedding is rotary and attention.key_dim == 6 and not attention.use_bias
    assert isinstance(attention.kernel_initializer, keras.initializers.HeNormal)
    assert isinstance(layer.feed_forward.kernel_initializer, keras.initializers.HeNormal)
    assert (layer.feed_forward.dropout, layer.feed_forward.use_bias) == (0.3, False)
    assert layer.seed == 5 and len({layer.seed, attention.seed, layer.feed_forward.seed}) == 3


def test_without_the_rest_of_a_configuration_the_defaults_hold():
    assert TransformerEncoderLayer.from_config(dict(SIZES)).rotary_embedding is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": 0}, r"^`num_heads` must be a positive integer\. Received: num_heads=0$"),
        ({"feed_forward_units": 1.5}, r"^`feed_forward_units` must be a positive integer\."),
        *(({rate: 1.0}, rf"^`{rate}` must be at least 0 and below 1\. Received: {rate}=1\.0$") for rate in RATES),
        ({"activation": "tan"}, r"^`activation` must be one of 'gelu', .*Received: activation='tan'$"),
        (
            {"normalization": "batch"},
            r"^`normalization` must be one of 'layer', 'rms'\. Received: normalization='batch'$",
        ),
        ({"key_dim": 0}, r"^`key_dim` must be a positive integer\. Received: key_dim=0$"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        TransformerEncoderLayer(**{**SIZES, **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"num_heads": 3},
            r"^The width D must be a multiple of `num_heads` where `key_dim` is not given\. "
            r"Received: D=8, num_heads=3$",
        ),
        ({"num_key_value_heads": 3}, r"^`num_key_value_heads` must divide `num_heads`\."),
        ({"sliding_window": 0}, r"^`sliding_window` must be a positive integer\."),
    ],
)
def test_refuses_what_does_not_fit_when_built(arguments, message):
    layer = TransformerEncoderLayer(**{**SIZES, **arguments})
    with pytest.raises(ValueError, match=message):
        layer.build(SHAPE)


def test_refuses_masks_and_weights_in_blocks(make):
    with pytest.raises(ValueError, match=r"must have the first axes of its input, \(3, 5\)\. Received: .* \(3, 4\)"):
        make()(np.zeros(SHAPE), mask=np.ones((3, 4), bool))
    with pytest.raises(ValueError, match=r"`return_attention_scores` needs the whole matrix.*flash_attention=True"):
        make(flash_attention=True)(np.zeros(SHAPE), return_attention_scores=True)
    # A width that heads do not divide is fine with a width of their own.
    layer = TransformerEncoderLayer(3, UNITS, key_dim=2)
    assert layer(np.zeros(SHAPE)).shape == SHAPE
