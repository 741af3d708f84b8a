"""The layers of a transformer's encoder and decoder, the latter with and without a memory."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.layers import MultiHeadAttention, RotaryEmbedding, TransformerDecoderLayer, TransformerEncoderLayer

# B, T, S, D, width of the memory, H and the feed-forward network's width: all different.
SHAPE, MEMORY, HEADS, UNITS = (3, 5, 8), (3, 4, 6), 2, 7
SIZES = dict(num_heads=HEADS, feed_forward_units=UNITS)
# Padding on the right, nothing but padding, and padding on the left; the last row has no memory.
MASK = np.array([[True, True, True, False, False], [False] * 5, [False, True, True, True, True]])
MEMORY_MASK = np.array([[True, True, False, False], [True, False, True, True], [False] * 4])
KINDS = {
    "paper": {},
    "norm first, gelu": dict(norm_first=True, activation="gelu"),
    "llama": dict(
        normalization="rms",
        norm_first=True,
        activation="swiglu",
        use_bias=False,
        rotary_embedding=RotaryEmbedding(),
        num_key_value_heads=1,
        epsilon=1e-2,
    ),
    "window, heads of another width": dict(sliding_window=2, key_dim=6, normalization="rms", epsilon=0.1),
    "window, rotary, norm last": dict(sliding_window=3, rotary_embedding=RotaryEmbedding(), num_key_value_heads=1),
}
LAYERS = {
    "encoder": TransformerEncoderLayer,
    "decoder": TransformerDecoderLayer,
    "decoder without a memory": lambda *args, **options: TransformerDecoderLayer(
        *args, cross_attention=False, **options
    ),
}
DECODERS = ["decoder", "decoder without a memory"]
SCORES = {"return_attention_scores": True}


@pytest.fixture
def make(randomize):
    def make(name, **arguments):
        layer = LAYERS[name](**SIZES, **arguments)
        layer.build(SHAPE, *([MEMORY] if name == "decoder" else []))
        return randomize(layer)

    return make


@pytest.fixture
def x(arrays):
    return arrays(inputs=SHAPE, memory=MEMORY)


def call(layer, inputs, memory=None, mask=None, memory_mask=None, **options):
    """Any of the layers; the memory is for the one that takes it."""
    if isinstance(layer, TransformerEncoderLayer):
        return layer(inputs, mask=mask, **options)
    if layer.cross_attention:
        return layer(inputs, memory, inputs_mask=mask, memory_mask=memory_mask, **options)
    return layer(inputs, inputs_mask=mask, **options)


def expected_of(numpy_transformer, layer, inputs, memory, kind, mask=None, memory_mask=None):
    """What `call` gives with the attention weights, in NumPy."""
    weights, results = numpy_transformer.weights(layer), []
    for b in range(len(inputs)):
        of_row, of_memory = (True if each is None else each[b] for each in (mask, memory_mask))
        if isinstance(layer, TransformerEncoderLayer):
            results.append(numpy_transformer.encoder(inputs[b], weights, KINDS[kind], of_row))
        else:
            row = memory[b] if layer.cross_attention else None
            results.append(numpy_transformer.decoder(inputs[b], weights, KINDS[kind], row, of_row, of_memory))
    return [np.array(each) for each in zip(*results, strict=True)]


def assert_close(results, expected, tolerance):
    for result, each in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, each, atol=tolerance)


@pytest.mark.parametrize(("kind", "masks"), [("paper", ()), *((kind, (MASK, MEMORY_MASK)) for kind in KINDS)])
@pytest.mark.parametrize("name", LAYERS)
def test_computes_what_the_papers_say(x, make, numpy_transformer, name, kind, masks):
    layer, given = make(name, **KINDS[kind]), (x.inputs, x.memory)
    expected = expected_of(numpy_transformer, layer, *given, kind, *masks)
    assert_close(call(layer, *given, *masks, **SCORES), expected, 2e-5)
    # The same whether weights are asked for or not, up to rounding.
    np.testing.assert_allclose(call(layer, *given, *masks), expected[0], atol=2e-5)


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_xla_computes_the_same(x, make, called, numpy_transformer, name):
    layer, given = make(name, **KINDS["llama"]), (x.inputs, x.memory, MASK, MEMORY_MASK)
    outputs = called("XLA", lambda *given: call(layer, *given), *given)
    expected = expected_of(numpy_transformer, layer, x.inputs, x.memory, "llama", MASK, MEMORY_MASK)
    np.testing.assert_allclose(outputs, expected[0], atol=2e-5)


@pytest.mark.parametrize(("name", "kind"), [("encoder", "llama"), ("decoder", "paper")])
@pytest.mark.parametrize(("policy", "tolerance"), [("float64", 1e-11), ("mixed_bfloat16", 2**-4)])
def test_in_other_precisions(x, make, numpy_transformer, name, kind, policy, tolerance):
    # Rotary positions have a precision of their own.
    rotary = {"rotary_embedding": RotaryEmbedding(dtype=policy)} if kind == "llama" else {}
    layer = make(name, **{**KINDS[kind], **rotary}, dtype=policy)
    given = [tf.cast(each, layer.compute_dtype) for each in (x.inputs, x.memory)]
    results = call(layer, *given, MASK, MEMORY_MASK, **SCORES)
    weights_dtype = "float64" if policy == "float64" else "float32"
    assert [each.dtype for each in results] == [layer.compute_dtype, *[weights_dtype] * (len(results) - 1)]
    given = [np.array(tf.cast(each, "float64")) for each in given]
    expected = expected_of(numpy_transformer, layer, *given, kind, MASK, MEMORY_MASK)
    for result, each in zip(results, expected, strict=True):
        np.testing.assert_allclose(tf.cast(result, "float64"), each, atol=tolerance * np.abs(each).max())


def cleared(layer):
    for weight in layer.weights:
        weight.assign(np.zeros(weight.shape))
    return layer


def test_computed_by_hand():
    # What is added: the biases, and of the memory the values of heads that attend evenly.
    layer = TransformerDecoderLayer(1, 1, norm_first=True)
    inputs, memory = np.array([[[3.0, 1.0], [0.0, 5.0]]]), np.array([[[10.0], [20.0], [60.0]]])
    layer(inputs, memory)
    cleared(layer)
    layer.self_attention.output_dense.bias.assign([100.0, 200.0])
    layer.memory_attention.value_dense.kernel.assign([[[1.0, 2.0]]])
    layer.memory_attention.output_dense.kernel.assign([[[1.0, 0.0], [0.0, 1.0]]])
    layer.feed_forward.output_projection.bias.assign([1000.0, 2000.0])
    np.testing.assert_allclose(layer(inputs, memory), [[[1133, 2261], [1130, 2265]]], rtol=1e-6)
    masked = layer(inputs, memory, memory_mask=np.array([[True, True, False]]))
    np.testing.assert_allclose(masked, [[[1118, 2231], [1115, 2235]]], rtol=1e-6)


def weights_of(kind, name):
    """The weights' shapes by path, with one head of keys and values."""
    attention = {"query": (2, 4), "key": (1, 4), "value": (1, 4)}
    weights = {}
    parts = {"self_attention": 8, **({"memory_attention": 6} if name == "decoder" else {})}
    for part, width in parts.items():
        for projection, heads in attention.items():
            weights[f"{part}/{projection}/kernel"] = (8 if projection == "query" else width, *heads)
        weights[f"{part}/attention_output/kernel"] = (2, 4, 8)
    weights |= {"feed_forward/input/kernel": (8, 7), "feed_forward/output/kernel": (7, 8)}
    weights |= {"feed_forward/gate/kernel": (8, 7)} if kind == "llama" else {}
    if kind != "llama":
        weights |= {
            path.replace("kernel", "bias"): shape[-1:] if "feed" in path or "output" in path else shape[1:]
            for path, shape in weights.items()
        }
    gains = ["scale"] if kind == "llama" else ["gamma", "beta"]
    return weights | {f"{part}_norm/{gain}": (8,) for part in (*parts, "feed_forward") for gain in gains}


@pytest.mark.parametrize(
    ("name", "kind"), [("encoder", "paper"), ("decoder", "llama"), ("decoder without a memory", "paper")]
)
def test_layer_check(layer_check, x, name, kind):
    is_encoder, with_memory = name == "encoder", name == "decoder"
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
        "use_qkv_bias": None,
        "use_query_key_norm": False,
        "score_scale": 0.5,
        "parallel_residual": False,
        **({} if is_encoder else {"cross_attention": with_memory}),
        **KINDS[kind],
        **({"rotary_embedding": RotaryEmbedding()} if kind == "llama" else {}),
    }
    inputs = {"inputs": x.inputs, "memory": x.memory} if with_memory else {"inputs": x.inputs}
    masks = {"mask" if is_encoder else "inputs_mask": MASK, **({"memory_mask": MEMORY_MASK} if with_memory else {})}
    layer_check(
        TransformerEncoderLayer if is_encoder else TransformerDecoderLayer,
        arguments,
        {**inputs, **masks},
        weights=weights_of(kind, name),
        outputs=[SHAPE, (3, 2, 5, 5), *([(3, 2, 5, 4)] if with_memory else [])],
        options=SCORES,
        mask_goes_on=is_encoder,
    )


def copy_to_torch(layer, peer, attentions, norms):
    """The layer's weights into those of a layer of PyTorch; its attentions are given by PyTorch's names."""
    import torch

    network, arrays = layer.feed_forward, {}
    for theirs, attention in attentions.items():
        parts = attention.query_dense, attention.key_dense, attention.value_dense
        arrays |= {
            f"{theirs}.in_proj_weight": np.concatenate([np.array(part.kernel).reshape(8, -1).T for part in parts]),
            f"{theirs}.in_proj_bias": np.concatenate([np.array(part.bias).reshape(-1) for part in parts]),
            f"{theirs}.out_proj.weight": np.array(attention.output_dense.kernel).reshape(-1, 8).T,
            f"{theirs}.out_proj.bias": attention.output_dense.bias,
        }
    for theirs, dense in (("linear1", network.input_projection), ("linear2", network.output_projection)):
        arrays |= {f"{theirs}.weight": np.array(dense.kernel).T, f"{theirs}.bias": dense.bias}
    for i, norm in enumerate(norms, 1):
        arrays |= {f"norm{i}.weight": norm.gamma, f"norm{i}.bias": norm.beta}
    peer.load_state_dict({name: torch.tensor(np.array(array)) for name, array in arrays.items()})


@pytest.mark.peers
# Keras on TensorFlow rounds the root in gelu to float32.
@pytest.mark.parametrize(("norm_first", "activation", "tolerance"), [(False, "relu", 1e-11), (True, "gelu", 1e-7)])
@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_torch_layer_gives_the_same(name, norm_first, activation, tolerance):
    import torch

    random, is_decoder = np.random.default_rng(0), name == "decoder"
    given = [random.normal(size=SHAPE), random.normal(size=(3, 4, 8))][: 1 + is_decoder]
    mask = np.array([[True, True, True, False, False], [True] * 5, [True, True, True, True, False]])
    memory_mask = np.array([[True, True, False, False], [True] * 4, [True, False, True, True]])
    layer = LAYERS[name](**SIZES, norm_first=norm_first, activation=activation, dtype="float64")
    layer.build(*(each.shape for each in given))
    layer.set_weights([random.normal(0, 0.5, weight.shape) for weight in layer.weights])
    torch_class = torch.nn.TransformerDecoderLayer if is_decoder else torch.nn.TransformerEncoderLayer
    peer = torch_class(8, HEADS, UNITS, 0.0, activation, batch_first=True, norm_first=norm_first, dtype=torch.float64)
    theirs = [torch.tensor(each, requires_grad=True) for each in given]
    if is_decoder:
        attentions = {"self_attn": layer.self_attention, "multihead_attn": layer.memory_attention}
        norms = [layer.self_attention_norm, layer.memory_attention_norm, layer.feed_forward_norm]
        options = dict(
            tgt_mask=torch.ones(5, 5, dtype=torch.bool).triu(1),
            tgt_key_padding_mask=torch.from_numpy(~mask),
            memory_key_padding_mask=torch.from_numpy(~memory_mask),
        )
    else:
        attentions = {"self_attn": layer.self_attention}
        norms = [layer.self_attention_norm, layer.feed_forward_norm]
        options = dict(src_key_padding_mask=torch.from_numpy(~mask))
    copy_to_torch(layer, peer, attentions, norms)
    ours = [tf.constant(each) for each in given]
    with tf.GradientTape() as tape:
        tape.watch(ours)
        outputs = call(layer, *ours, mask=mask, memory_mask=memory_mask)
        loss = tf.reduce_sum(tf.boolean_mask(outputs, mask) ** 3)
    expected = peer(*theirs, **options)
    (expected[torch.from_numpy(mask)] ** 3).sum().backward()
    np.testing.assert_allclose(outputs, expected.detach().numpy(), rtol=tolerance, atol=tolerance)
    for gradient, tensor in zip(tape.gradient(loss, ours), theirs, strict=True):
        scale = tolerance * np.abs(gradient).max()
        np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=tolerance, atol=10 * scale)


# Masks.


@pytest.mark.parametrize("norm_first", [False, True], ids=["norm last", "norm first"])
@pytest.mark.parametrize("name", LAYERS)
def test_masks_of_embeddings_are_taken_and_the_inputs_goes_on(make, name, norm_first):
    layer = make(name, norm_first=norm_first)
    inputs = keras.layers.Embedding(6, 8, mask_zero=True)(MASK * np.arange(1, 6))
    memory = keras.layers.Embedding(6, 6, mask_zero=True)(MEMORY_MASK * np.arange(1, 5))
    plain = [np.array(each) for each in (inputs, memory)]
    # To the last token too: one that is masked gets what it gets with a mask that is given.
    results = call(layer, inputs, memory, **SCORES)
    for result, each in zip(results, call(layer, *plain, MASK, MEMORY_MASK, **SCORES), strict=True):
        np.testing.assert_array_equal(result, each)
    np.testing.assert_array_equal(results[0]._keras_mask, MASK)
    assert not any(hasattr(each, "_keras_mask") for each in results[1:])
    np.testing.assert_array_equal(inputs._keras_mask, MASK)
    # Other masks are preferred, for the queries as well.
    results = call(layer, inputs, memory, ~MASK, ~MEMORY_MASK, **SCORES)
    for result, each in zip(results, call(layer, *plain, ~MASK, ~MEMORY_MASK, **SCORES), strict=True):
        np.testing.assert_array_equal(result, each)
    np.testing.assert_array_equal(results[0]._keras_mask, ~MASK if name == "encoder" else MASK)


@pytest.mark.parametrize("name", ["encoder", "decoder without a memory"])
def test_a_mask_of_pairs_is_combined_with_that_of_an_embedding(x, make, numpy_transformer, name):
    """Of a decoder also with causality. It does not go on."""
    layer, pairs = make(name), np.random.default_rng(0).random((3, 5, 5)) > 0.4
    for attached, allowed in ((None, pairs), (MASK, pairs & MASK[:, None])):
        inputs = tf.constant(x.inputs)
        if attached is not None:
            inputs._keras_mask = tf.constant(attached)
        outputs = call(layer, inputs, mask=pairs)
        expected = expected_of(numpy_transformer, layer, x.inputs, None, "paper", allowed)
        np.testing.assert_allclose(outputs, expected[0], atol=2e-5)
        goes_on = getattr(outputs, "_keras_mask", None)
        assert goes_on is None if attached is None else np.array_equal(goes_on, attached)


def test_padding_of_either_side_changes_nothing_in_a_model(randomize):
    source, target = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    memory = keras.layers.Embedding(9, 6, mask_zero=True)(source)
    memory = TransformerEncoderLayer(2, 16, key_dim=4, rotary_embedding=RotaryEmbedding())(memory)
    hidden = keras.layers.Embedding(9, 8, mask_zero=True)(target)
    hidden = TransformerDecoderLayer(2, 16, norm_first=True, rotary_embedding=RotaryEmbedding())(hidden, memory)
    model = randomize(keras.Model([source, target], keras.layers.Dense(9)(hidden)))
    sources, targets = np.array([[1, 2, 3, 4, 0], [5, 6, 0, 0, 0]]), np.array([[1, 4, 3, 2], [1, 6, 5, 0]])
    before = model([sources, targets])
    longer = model([np.pad(sources, [(0, 0), (0, 3)]), np.pad(targets, [(0, 0), (0, 2)])])
    np.testing.assert_allclose(np.array(longer[:, :4])[targets > 0], np.array(before)[targets > 0], atol=1e-5)
    np.testing.assert_array_equal(before._keras_mask, targets > 0)


# Steps.


def stepped(layer, inputs, portions, memory=None, mask=None, memory_mask=None, **options):
    """The outputs and weights of all steps, the weights with zeros for what is still to come."""
    prepared = None if memory is None else layer.prepare(memory)
    cache, first, results = None, 0, []
    for portion in portions:
        last = first + portion
        given = dict(mask=None if mask is None else mask[:, :last], memory_mask=memory_mask)
        given |= {name: value[:, first:last] for name, value in options.items()}
        alone, _ = layer.step(inputs[:, first:last], cache, prepared, **given)
        output, cache, *weights = layer.step(inputs[:, first:last], cache, prepared, **given, **SCORES)
        np.testing.assert_allclose(alone, output, atol=1e-5)  # the same without the weights
        weights[0] = np.pad(weights[0], [(0, 0)] * 3 + [(0, inputs.shape[1] - last)])
        results.append([output, *weights])
        first = last
    outputs, *weights = zip(*results, strict=True)
    return [np.concatenate(outputs, axis=1), *(np.concatenate(each, axis=2) for each in weights)]


@pytest.mark.parametrize(
    ("kind", "portions"), zip(KINDS, [(1, 1, 1, 1, 1), (5,), (2, 3), (3, 1, 1), (1, 2, 2)], strict=True)
)
@pytest.mark.parametrize("name", DECODERS)
def test_stepping_by_any_portions_gives_the_whole(x, make, name, kind, portions):
    layer = make(name, **KINDS[kind])
    expected = call(layer, x.inputs, x.memory, MASK, MEMORY_MASK, **SCORES)
    memory = x.memory if name == "decoder" else None
    assert_close(stepped(layer, x.inputs, portions, memory, MASK, MEMORY_MASK), expected, 1e-5)


def test_positions_that_are_told_are_those_of_the_tokens_among_others(x, make):
    # With gaps: rotary positions that are all shifted would give the same.
    layer = make("decoder without a memory", **KINDS["llama"])
    places = np.array([[0, 3, 4], [1, 2, 4], [0, 1, 3]])
    mask = np.zeros((3, 5), bool)
    np.put_along_axis(mask, places, True, axis=1)
    whole = np.take_along_axis(np.array(layer(x.inputs, inputs_mask=mask)), places[..., None], axis=1)
    tokens = np.take_along_axis(x.inputs, places[..., None], axis=1)
    for portions in ((3,), (1, 2)):
        outputs, _ = stepped(layer, tokens, portions, positions=places)
        np.testing.assert_allclose(outputs, whole, atol=1e-5)


@pytest.mark.parametrize("kind", ["paper", "window, rotary, norm last"])
def test_hypotheses_of_one_row_share_its_memory(x, arrays, make, kind):
    layer, hypotheses = make("decoder", **KINDS[kind]), 4
    inputs = arrays(3, x=(3 * hypotheses, 5, 8)).x
    mask = np.random.default_rng(0).random((3 * hypotheses, 5)) > 0.2
    results = stepped(layer, inputs, (2, 1, 2), x.memory, mask=mask, memory_mask=MEMORY_MASK)
    memory, memory_mask = (np.repeat(each, hypotheses, axis=0) for each in (x.memory, MEMORY_MASK))
    assert_close(results, call(layer, inputs, memory, mask, memory_mask, **SCORES), 1e-5)
    # What is prepared stays of the memory's own size.
    assert [each.shape[0] for each in layer.prepare(x.memory)] == [3, 3]


def test_a_step_of_several_tokens_makes_no_whole_matrix_of_scores_unless_it_is_asked_for(x, make, monkeypatch):
    layer = make("decoder", flash_attention=True)
    prepared = layer.prepare(x.memory)
    expected, _ = layer.step(x.inputs, None, prepared)
    with monkeypatch.context() as patch:
        patch.setattr("zoo.layers.multi_head_attention.attention_with_weights", None)
        outputs, _ = layer.step(x.inputs, None, prepared)
    np.testing.assert_array_equal(outputs, expected)


def test_steps_in_lower_precision(x, make):
    layer = make("decoder", dtype="mixed_bfloat16")
    expected = layer(x.inputs, x.memory)
    # Tensors that no other layer has cast before are fine, as in a call.
    cache, prepared, outputs = None, layer.prepare(x.memory), []
    for t in range(5):
        output, cache = layer.step(tf.constant(x.inputs[:, t : t + 1]), cache, prepared)
        assert output.dtype == cache[0].dtype == prepared[0].dtype == "bfloat16"
        outputs.append(tf.cast(output, "float32"))
    np.testing.assert_allclose(tf.concat(outputs, 1), tf.cast(expected, "float32"), atol=2**-5)


# Dropout, and other arguments.
RATES = ("dropout", "attention_dropout", "feed_forward_dropout")


@pytest.mark.parametrize(("name", "rate"), [("encoder", "dropout"), *(("decoder", rate) for rate in RATES)])
def test_each_dropout_is_for_training_only_and_seeded(x, make, name, rate):
    layers = [make(name, **{rate: 0.5}, seed=seed, norm_first=name == "encoder") for seed in (1, 1, 2)]
    expected = call(layers[0], x.inputs, x.memory)
    np.testing.assert_allclose(call(layers[0], x.inputs, x.memory, training=False), expected, atol=1e-6)
    first, again, other = (call(layer, x.inputs, x.memory, training=True) for layer in layers)
    np.testing.assert_array_equal(first, again)
    for different in (expected, other, call(layers[0], x.inputs, x.memory, training=True)):
        assert np.abs(first - different).max() > 1e-2
    if name == "decoder":  # a step is never one of training
        np.testing.assert_allclose(stepped(layers[0], x.inputs, (5,), x.memory)[0], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "sums"), [("encoder", [0, 2, 20, 22]), ("decoder", [0, 2, 20, 22, 200, 202, 220, 222])]
)
def test_dropout_falls_on_what_is_added_in_all_places(make, name, sums):
    layer = cleared(make(name, norm_first=True, dropout=0.5, seed=1))
    parts = [layer.self_attention.output_dense, layer.feed_forward.output_projection]
    parts += [layer.memory_attention.output_dense] if name == "decoder" else []
    for part, size in zip(parts, (1.0, 10.0, 100.0), strict=False):
        part.bias.assign(np.full(8, size))
    inputs, memory = np.zeros((1, 50, 8), "float32"), np.zeros((1, 4, 6), "float32")
    values, counts = np.unique(call(layer, inputs, memory, training=True), return_counts=True)
    np.testing.assert_array_equal(values, sums)
    assert (counts > 160 / len(sums)).all()  # of 400; equally many each, but never few


def test_each_argument_reaches_its_parts():
    arguments = dict(
        dropout=0.1,
        attention_dropout=0.2,
        feed_forward_dropout=0.3,
        sliding_window=4,
        flash_attention=True,
        rotary_embedding=RotaryEmbedding(),
        num_key_value_heads=1,
        key_dim=6,
        use_bias=False,
        kernel_initializer="he_normal",
        seed=5,
    )
    layer = TransformerDecoderLayer(**SIZES, **arguments)
    layer.build(SHAPE, MEMORY)
    for attention in (layer.self_attention, layer.memory_attention):
        assert type(attention) is MultiHeadAttention
        assert (attention.dropout, attention.flash_attention, attention.num_key_value_heads) == (0.2, True, 1)
        assert attention.key_dim == 6 and not attention.use_bias
        assert isinstance(attention.kernel_initializer, keras.initializers.HeNormal)
    # Window and rotary positions are of the self-attention, where positions mean the same on both sides.
    attention = layer.self_attention
    assert attention.sliding_window == 4 and attention.rotary_embedding is arguments["rotary_embedding"]
    attention = layer.memory_attention
    assert (attention.sliding_window, attention.rotary_embedding) == (None, None)
    assert isinstance(layer.feed_forward.kernel_initializer, keras.initializers.HeNormal)
    assert (layer.feed_forward.dropout, layer.feed_forward.use_bias) == (0.3, False)


def test_every_part_drops_by_a_seed_of_its_own():
    layer = TransformerDecoderLayer(2, 8, dropout=0.1, attention_dropout=0.1, feed_forward_dropout=0.1, seed=5)
    layer(np.ones((2, 3, 4)), np.ones((2, 3, 4)))
    parts = layer, layer.self_attention, layer.memory_attention, layer.feed_forward
    seeds = [int(part._dropout_layer.seed_generator.state[0]) for part in parts]
    assert len(set(seeds)) == 4 and seeds[0] == 5
    assert TransformerDecoderLayer.from_config(layer.get_config()).seed == 5


def test_without_the_rest_of_a_configuration_the_defaults_hold():
    assert TransformerEncoderLayer.from_config(dict(SIZES)).rotary_embedding is None
    layer = TransformerDecoderLayer.from_config(dict(SIZES))
    assert layer.cross_attention and layer.rotary_embedding is None


# Refusals.


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
        ({"epsilon": 0}, r"^`epsilon` must be a positive number\. Received: epsilon=0$"),
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
    # A width that heads do not divide is fine with a width of their own.
    assert TransformerEncoderLayer(3, UNITS, key_dim=2)(np.zeros(SHAPE)).shape == SHAPE


def test_refuses_inputs_and_masks_that_do_not_fit_and_weights_in_blocks(x, make):
    layer = make("decoder")
    for masks in (dict(inputs_mask=MEMORY_MASK), dict(memory_mask=MASK)):
        with pytest.raises(ValueError, match=f"`{next(iter(masks))}` must have the shape of the tokens"):
            layer(x.inputs, x.memory, **masks)
    with pytest.raises(ValueError, match="`mask` must have the shape of the tokens"):
        make("encoder")(x.inputs, MEMORY_MASK)
    with pytest.raises(ValueError, match=r"Query and value must be equal in the axes \(0,\)"):
        layer(x.inputs, x.memory[:2])
    with pytest.raises(ValueError, match="expected ndim=3, found ndim=4"):
        layer(np.ones((2, 3, 5, 4)), x.memory)
    with pytest.raises(ValueError, match=r"`return_attention_scores` needs the whole matrix.*flash_attention=True"):
        make("encoder", flash_attention=True)(x.inputs, **SCORES)


@pytest.mark.parametrize("name", LAYERS)
def test_a_mask_of_one_row_counts_for_all(x, make, name):
    layer, rows = make(name), [len(x.inputs), 1]
    found, expected = (
        call(layer, x.inputs, x.memory, *masks)
        for masks in ((MASK[:1], MEMORY_MASK[:1]), (np.tile(MASK[:1], rows), np.tile(MEMORY_MASK[:1], rows)))
    )
    np.testing.assert_array_equal(found, expected)
    if name == "encoder":
        np.testing.assert_array_equal(found._keras_mask, np.tile(MASK[:1], rows))  # Keras' layers take all rows only
    # In a functional model, whose number of rows is not known.
    inputs = [keras.Input(each.shape[1:]) for each in (x.inputs, x.memory)]
    model = keras.Model(inputs, call(layer, *inputs, MASK[:1], MEMORY_MASK[:1]))
    np.testing.assert_allclose(model([x.inputs, x.memory]), expected, atol=1e-6)


MISSING = r"`memory` is missing; a layer without one has cross_attention=False\."
PLACELESS = r"`memory` was given to a layer with cross_attention=False\."


def test_refuses_a_memory_that_is_missing_or_has_no_place(x, make):
    inputs, memory = keras.Input((None, 8)), keras.Input((None, 6))
    with_one, without = make("decoder"), make("decoder without a memory")
    for layer in (with_one, TransformerDecoderLayer(**SIZES)):
        for given in (x.inputs, inputs):
            with pytest.raises(ValueError, match=MISSING):
                layer(given)
    for layer in (without, TransformerDecoderLayer(**SIZES, cross_attention=False)):
        for given in ((x.inputs, x.memory), (inputs, memory)):
            with pytest.raises(ValueError, match=PLACELESS):
                layer(*given)
    with pytest.raises(ValueError, match=f"^{MISSING}$"):
        with_one.step(x.inputs)
    with pytest.raises(ValueError, match=f"^{PLACELESS}$"):
        without.step(x.inputs, prepared=with_one.prepare(x.memory))


def test_a_layer_that_is_not_built_says_so():
    layer = TransformerDecoderLayer(**SIZES, name="mine")
    for call in (lambda: layer.prepare(np.ones(MEMORY)), lambda: layer.step(np.ones(SHAPE), prepared=())):
        with pytest.raises(ValueError, match=r"^mine has no weights yet; call it once, or `build` it"):
            call()
    alone = TransformerDecoderLayer(**SIZES, cross_attention=False)
    alone.build(SHAPE)
    with pytest.raises(ValueError, match="`memory` was given to a layer with cross_attention=False"):
        alone.prepare(np.ones(MEMORY))
