import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.layers import RotaryEmbedding, TransformerDecoderLayer, TransformerEncoderLayer

# B, T, S, D, width of the memory, H and the feed-forward network's width: all different.
SHAPE, MEMORY, HEADS, UNITS = (3, 5, 8), (3, 4, 6), 2, 7
SIZES = dict(num_heads=HEADS, feed_forward_units=UNITS)
# Padding on the right, none, and on the left; of the memory also nothing but padding.
MASK = np.array([[True, True, True, False, False], [True] * 5, [False, True, True, True, True]])
MEMORY_MASK = np.array([[True, True, False, False], [False] * 4, [True, False, True, True]])
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
    ),
    "window, heads of another width": dict(sliding_window=2, key_dim=6, normalization="rms", epsilon=0.1),
    "window, rotary, norm last": dict(sliding_window=3, rotary_embedding=RotaryEmbedding(), num_key_value_heads=1),
}


def made(randomize, cross_attention=True, **arguments):
    layer = TransformerDecoderLayer(**SIZES, cross_attention=cross_attention, **arguments)
    layer.build(SHAPE, *([MEMORY] if cross_attention else []))
    return randomize(layer)


@pytest.fixture
def make(randomize):
    return lambda *args, **arguments: made(randomize, *args, **arguments)


@pytest.fixture
def x(arrays):
    return arrays(inputs=SHAPE, memory=MEMORY)


def expected_of(numpy_transformer, layer, x, memory, kind, mask=None, memory_mask=None):
    weights, results = numpy_transformer.weights(layer), []
    for b in range(len(x)):
        masks = (True if each is None else each[b] for each in (mask, memory_mask))
        results.append(
            numpy_transformer.decoder(x[b], weights, KINDS[kind], None if memory is None else memory[b], *masks)
        )
    return [np.array(each) for each in zip(*results, strict=True)]


@pytest.mark.parametrize("masks", [(None, None), (MASK, None), (None, MEMORY_MASK), (MASK, MEMORY_MASK)])
@pytest.mark.parametrize("kind", KINDS)
def test_computes_what_the_papers_say(x, make, numpy_transformer, kind, masks):
    layer = make(**KINDS[kind])
    expected = expected_of(numpy_transformer, layer, x.inputs, x.memory, kind, *masks)
    masks = dict(zip(("inputs_mask", "memory_mask"), masks, strict=True))
    results = layer(x.inputs, x.memory, **masks, return_attention_scores=True)
    for result, each in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, each, atol=2e-5)
    # The same whether weights are asked for or not, up to rounding.
    np.testing.assert_allclose(layer(x.inputs, x.memory, **masks), expected[0], atol=2e-5)


@pytest.mark.parametrize("mask", [None, MASK], ids=["no mask", "mask"])
@pytest.mark.parametrize("kind", KINDS)
def test_computes_what_the_papers_say_without_a_memory(x, make, numpy_transformer, kind, mask):
    layer = make(cross_attention=False, **KINDS[kind])
    expected = expected_of(numpy_transformer, layer, x.inputs, None, kind, mask)
    results = layer(x.inputs, inputs_mask=mask, return_attention_scores=True)
    for result, each in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, each, atol=2e-5)
    np.testing.assert_allclose(layer(x.inputs, inputs_mask=mask), expected[0], atol=2e-5)


@pytest.mark.parametrize("path", ["graph", "XLA"])
@pytest.mark.parametrize("kind", ["paper", "llama"])
def test_compiled(x, make, called, numpy_transformer, kind, path):
    layer = make(**KINDS[kind])
    expected = expected_of(numpy_transformer, layer, x.inputs, x.memory, kind, MASK, MEMORY_MASK)
    outputs = called(
        path,
        lambda inputs, memory, mask, memory_mask: layer(inputs, memory, inputs_mask=mask, memory_mask=memory_mask),
        x.inputs,
        x.memory,
        MASK,
        MEMORY_MASK,
    )
    np.testing.assert_allclose(outputs, expected[0], atol=2e-5)


@pytest.mark.parametrize(
    ("policy", "tolerance"), [("float64", 1e-11), ("mixed_bfloat16", 2**-4), ("mixed_float16", 2**-7)]
)
def test_in_other_precisions(x, make, numpy_transformer, policy, tolerance):
    layer = make(dtype=policy)
    inputs, memory = (tf.cast(each, layer.compute_dtype) for each in (x.inputs, x.memory))
    options = dict(inputs_mask=MASK, memory_mask=MEMORY_MASK, return_attention_scores=True)
    outputs, *weights = layer(inputs, memory, **options)
    assert outputs.dtype == layer.compute_dtype
    assert all(each.dtype == ("float64" if policy == "float64" else "float32") for each in weights)
    inputs, memory = (np.array(tf.cast(each, "float64")) for each in (inputs, memory))
    expected = expected_of(numpy_transformer, layer, inputs, memory, "paper", MASK, MEMORY_MASK)
    for result, each in zip((outputs, *weights), expected, strict=True):
        np.testing.assert_allclose(tf.cast(result, "float64"), each, atol=tolerance * np.abs(each).max())


def test_hand_computed():
    # What is added: the biases, and of the memory the values of heads that attend evenly.
    layer = TransformerDecoderLayer(1, 1, norm_first=True)
    inputs, memory = np.array([[[3.0, 1.0], [0.0, 5.0]]]), np.array([[[10.0], [20.0], [60.0]]])
    layer(inputs, memory)
    for weight in layer.weights:
        weight.assign(np.zeros(weight.shape))
    layer.self_attention.output_dense.bias.assign([100.0, 200.0])
    layer.memory_attention.value_dense.kernel.assign([[[1.0, 2.0]]])
    layer.memory_attention.output_dense.kernel.assign([[[1.0, 0.0], [0.0, 1.0]]])
    layer.feed_forward.output_projection.bias.assign([1000.0, 2000.0])
    np.testing.assert_allclose(layer(inputs, memory), [[[1133, 2261], [1130, 2265]]], rtol=1e-6)
    masked = layer(inputs, memory, memory_mask=np.array([[True, True, False]]))
    np.testing.assert_allclose(masked, [[[1118, 2231], [1115, 2235]]], rtol=1e-6)


def weights_of(kind, cross_attention):
    attention = {"query": (2, 4), "key": (1, 4), "value": (1, 4)}
    weights = {}
    parts = {"self_attention": 8, **({"memory_attention": 6} if cross_attention else {})}
    for part, width in parts.items():
        for name, heads in attention.items():
            weights[f"{part}/{name}/kernel"] = (8 if name == "query" else width, *heads)
        weights[f"{part}/attention_output/kernel"] = (2, 4, 8)
    weights |= {"feed_forward/input/kernel": (8, 7), "feed_forward/output/kernel": (7, 8)}
    weights |= {"feed_forward/gate/kernel": (8, 7)} if kind == "llama" else {}
    if kind != "llama":
        weights |= {
            name.replace("kernel", "bias"): shape[-1:] if "feed" in name or "output" in name else shape[1:]
            for name, shape in weights.items()
        }
    gains = ["scale"] if kind == "llama" else ["gamma", "beta"]
    return weights | {f"{part}_norm/{gain}": (8,) for part in (*parts, "feed_forward") for gain in gains}


@pytest.mark.parametrize("cross_attention", [True, False], ids=["memory", "no memory"])
@pytest.mark.parametrize("kind", ["paper", "llama"])
def test_layer_check(layer_check, x, kind, cross_attention):
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
        "cross_attention": cross_attention,
        **KINDS[kind],
        **({"rotary_embedding": RotaryEmbedding()} if kind == "llama" else {}),
    }
    inputs = {"inputs": x.inputs, "memory": x.memory, "inputs_mask": MASK, "memory_mask": MEMORY_MASK}
    outputs = [SHAPE, (3, 2, 5, 5), (3, 2, 5, 4)]
    layer_check(
        TransformerDecoderLayer,
        arguments,
        inputs if cross_attention else {"inputs": x.inputs, "inputs_mask": MASK},
        weights=weights_of(kind, cross_attention),
        outputs=outputs if cross_attention else outputs[:2],
        options={"return_attention_scores": True},
    )


@pytest.mark.parametrize("norm_first", [False, True], ids=["norm last", "norm first"])
@pytest.mark.parametrize("normalization", ["layer", "rms"])
def test_keras_layers_put_together_give_the_same(x, make, norm_first, normalization):
    layer = make(norm_first=norm_first, normalization=normalization)
    norm = {"layer": keras.layers.LayerNormalization, "rms": keras.layers.RMSNormalization}[normalization]
    norms = [norm(epsilon=1e-5) for _ in range(3)]
    attentions = [keras.layers.MultiHeadAttention(HEADS, 4) for _ in range(2)]
    dense = [keras.layers.Dense(UNITS, "relu"), keras.layers.Dense(8)]
    memory_mask = MEMORY_MASK | ~MEMORY_MASK.any(1, keepdims=True)  # with nothing to attend to Keras takes the mean

    def peer(total):
        parts = (
            lambda y: attentions[0](y, y, use_causal_mask=True),
            lambda y: attentions[1](y, x.memory, attention_mask=memory_mask[:, None]),
            lambda y: dense[1](dense[0](y)),
        )
        for part, norm in zip(parts, norms, strict=True):
            total = total + part(norm(total)) if norm_first else norm(total + part(total))
        return total

    peer(x.inputs)
    for theirs, ours in (
        (attentions[0], layer.self_attention),
        (attentions[1], layer.memory_attention),
        (norms[0], layer.self_attention_norm),
        (norms[1], layer.memory_attention_norm),
        (norms[2], layer.feed_forward_norm),
        (dense[0], layer.feed_forward.input_projection),
        (dense[1], layer.feed_forward.output_projection),
    ):
        theirs.set_weights(ours.get_weights())
    np.testing.assert_allclose(layer(x.inputs, x.memory, memory_mask=memory_mask), peer(x.inputs), atol=2e-5)


@pytest.mark.peers
@pytest.mark.parametrize("norm_first", [False, True], ids=["norm last", "norm first"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_torch_layer_gives_the_same(norm_first, activation):
    import torch

    random = np.random.default_rng(0)
    inputs, memory = random.normal(size=SHAPE), random.normal(size=(3, 4, 8))
    mask = np.array([[True, True, True, False, False], [True] * 5, [True, True, True, True, False]])
    memory_mask = np.array([[True, True, False, False], [True] * 4, [True, False, True, True]])
    layer = TransformerDecoderLayer(**SIZES, norm_first=norm_first, activation=activation, dtype="float64")
    layer.build(inputs.shape, memory.shape)
    layer.set_weights([random.normal(0, 0.5, weight.shape) for weight in layer.weights])
    peer = torch.nn.TransformerDecoderLayer(
        8, HEADS, UNITS, 0.0, activation, batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    copy_to_torch(layer, peer)
    ours = [tf.constant(inputs), tf.constant(memory)]
    with tf.GradientTape() as tape:
        tape.watch(ours)
        outputs = layer(*ours, inputs_mask=mask, memory_mask=memory_mask)
        loss = tf.reduce_sum(outputs**3)
    theirs = [torch.tensor(each, requires_grad=True) for each in (inputs, memory)]
    expected = peer(
        *theirs,
        tgt_mask=torch.ones(5, 5, dtype=torch.bool).triu(1),
        tgt_key_padding_mask=torch.from_numpy(~mask),
        memory_key_padding_mask=torch.from_numpy(~memory_mask),
    )
    # Keras on TensorFlow rounds the root in gelu to float32.
    tolerance = 1e-7 if activation == "gelu" else 1e-11
    np.testing.assert_allclose(outputs, expected.detach().numpy(), rtol=tolerance, atol=tolerance)
    (expected**3).sum().backward()
    for gradient, tensor in zip(tape.gradient(loss, ours), theirs, strict=True):
        scale = tolerance * np.abs(gradient).max()
        np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=tolerance, atol=10 * scale)


def copy_to_torch(layer, peer):
    """The layer's weights into those of `torch.nn.TransformerDecoderLayer`."""
    import torch

    network, arrays = layer.feed_forward, {}
    for theirs, attention in (("self_attn", layer.self_attention), ("multihead_attn", layer.memory_attention)):
        parts = attention.query_dense, attention.key_dense, attention.value_dense
        arrays |= {
            f"{theirs}.in_proj_weight": np.concatenate([np.array(part.kernel).reshape(8, -1).T for part in parts]),
            f"{theirs}.in_proj_bias": np.concatenate([np.array(part.bias).reshape(-1) for part in parts]),
            f"{theirs}.out_proj.weight": np.array(attention.output_dense.kernel).reshape(-1, 8).T,
            f"{theirs}.out_proj.bias": attention.output_dense.bias,
        }
    for theirs, dense in (("linear1", network.input_projection), ("linear2", network.output_projection)):
        arrays |= {f"{theirs}.weight": np.array(dense.kernel).T, f"{theirs}.bias": dense.bias}
    norms = layer.self_attention_norm, layer.memory_attention_norm, layer.feed_forward_norm
    for i, norm in enumerate(norms, 1):
        arrays |= {f"norm{i}.weight": norm.gamma, f"norm{i}.bias": norm.beta}
    peer.load_state_dict({name: torch.tensor(np.array(array)) for name, array in arrays.items()})


@settings(max_examples=10, deadline=None)
@given(place=st.integers(1, 4), kind=st.sampled_from(list(KINDS)), seed=st.integers(1, 9))
def test_what_stands_after_a_token_changes_nothing_at_it(arrays, randomize, place, kind, seed):
    x, layer = arrays(inputs=SHAPE, memory=MEMORY), made(randomize, **KINDS[kind])
    before = np.array(layer(x.inputs, x.memory))
    other = arrays(seed, inputs=SHAPE).inputs
    after = np.array(layer(np.concatenate([x.inputs[:, :place], other[:, place:]], axis=1), x.memory))
    np.testing.assert_array_equal(after[:, :place], before[:, :place])
    assert np.abs(after[:, place:] - before[:, place:]).max() > 1e-3


@pytest.mark.parametrize("kind", ["paper", "llama"])
def test_masked_tokens_influence_no_other(x, make, kind):
    layer, masks = make(**KINDS[kind]), dict(inputs_mask=MASK, memory_mask=MEMORY_MASK)
    before = np.array(layer(x.inputs, x.memory, **masks))
    inputs = np.where(MASK[..., None], x.inputs, 1e2).astype("float32")
    memory = np.where(MEMORY_MASK[..., None], x.memory, 1e2).astype("float32")
    np.testing.assert_array_equal(np.array(layer(inputs, memory, **masks))[MASK], before[MASK])


def stepped(layer, inputs, portions, memory=None, mask=None, memory_mask=None, **options):
    """The outputs and weights of all steps, the weights with zeros for what is still to come."""
    prepared = None if memory is None else layer.prepare(memory)
    cache, first, results = None, 0, []
    for portion in portions:
        last = first + portion
        output, cache, *weights = layer.step(
            inputs[:, first:last],
            cache,
            prepared,
            mask=None if mask is None else mask[:, :last],
            memory_mask=memory_mask,
            return_attention_scores=True,
            **{name: value[:, first:last] for name, value in options.items()},
        )
        weights[0] = np.pad(weights[0], [(0, 0)] * 3 + [(0, inputs.shape[1] - last)])
        results.append([output, *weights])
        first = last
    outputs, *weights = zip(*results, strict=True)
    return [np.concatenate(outputs, axis=1), *(np.concatenate(each, axis=2) for each in weights)]


@settings(max_examples=15, deadline=None)
@given(
    portions=st.sampled_from([(1, 1, 1, 1, 1), (5,), (2, 3), (3, 1, 1), (1, 4), (2, 2, 1)]),
    kind=st.sampled_from(list(KINDS)),
    cross_attention=st.booleans(),
    masked=st.booleans(),
)
def test_stepping_by_any_portions_gives_the_whole(arrays, randomize, portions, kind, cross_attention, masked):
    x = arrays(inputs=SHAPE, memory=MEMORY)
    layer = made(randomize, cross_attention, **KINDS[kind])
    memory = [x.memory] if cross_attention else []
    masks = dict(inputs_mask=MASK) if masked else {}
    expected = layer(
        x.inputs,
        *memory,
        **masks,
        **(dict(memory_mask=MEMORY_MASK) if masked and cross_attention else {}),
        return_attention_scores=True,
    )
    results = stepped(
        layer, x.inputs, portions, *memory, mask=MASK if masked else None, memory_mask=MEMORY_MASK if masked else None
    )
    for result, each in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, each, atol=1e-5)


@pytest.mark.parametrize("kind", ["paper", "llama"])
def test_a_step_gives_the_same_without_the_weights(x, make, kind):
    layer = make(**KINDS[kind])
    prepared = layer.prepare(x.memory)
    _, cache = layer.step(x.inputs[:, :2], prepared=prepared)
    options = dict(mask=MASK, memory_mask=MEMORY_MASK)
    output, new_cache = layer.step(x.inputs[:, 2:], cache, prepared, **options)
    whole = layer.step(x.inputs[:, 2:], cache, prepared, **options, return_attention_scores=True)
    assert [each.shape for each in (*whole[1], *whole[2:])] == [(3, (1, 2)[kind == "paper"], 5, 4)] * 2 + [
        (3, 2, 3, 5),
        (3, 2, 3, 4),
    ]
    np.testing.assert_array_equal(output, whole[0])
    for one, other in zip(new_cache, whole[1], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", ["paper", "llama"])
def test_prompts_padded_on_the_left_count_their_own_positions(x, make, kind):
    layer = make(cross_attention=False, **KINDS[kind])
    pads = np.array([2, 0, 1])
    padded = np.stack(
        [np.concatenate([np.full((pad, 8), 9), row])[:5] for pad, row in zip(pads, x.inputs, strict=True)]
    )
    mask = np.arange(5) >= pads[:, None]
    positions = np.maximum(np.arange(5) - pads[:, None], 0)
    for portions in ((5,), (3, 1, 1)):
        outputs, _ = stepped(layer, padded.astype("float32"), portions, mask=mask, positions=positions)
        for b, pad in enumerate(pads):
            alone = layer(x.inputs[b : b + 1, : 5 - pad])
            np.testing.assert_allclose(outputs[b : b + 1, pad:], alone, atol=1e-5)


def test_positions_that_are_told_are_those_of_the_tokens_among_others(x, make):
    layer = make(cross_attention=False, **KINDS["llama"])
    places = np.array([[0, 3, 4], [1, 2, 4], [0, 1, 3]])
    mask = np.zeros((3, 5), bool)
    np.put_along_axis(mask, places, True, axis=1)
    whole = np.take_along_axis(np.array(layer(x.inputs, inputs_mask=mask)), places[..., None], axis=1)
    tokens = np.take_along_axis(x.inputs, places[..., None], axis=1)
    for portions in ((3,), (1, 2)):
        outputs, _ = stepped(layer, tokens, portions, positions=places)
        np.testing.assert_allclose(outputs, whole, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_hypotheses_of_one_row_share_its_memory(x, arrays, make, kind):
    layer, hypotheses = make(**KINDS[kind]), 4
    inputs = arrays(3, x=(3 * hypotheses, 5, 8)).x
    mask = np.random.default_rng(0).random((3 * hypotheses, 5)) > 0.2
    results = stepped(layer, inputs, (2, 1, 2), x.memory, mask=mask, memory_mask=MEMORY_MASK)
    expected = layer(
        inputs,
        np.repeat(x.memory, hypotheses, axis=0),
        inputs_mask=mask,
        memory_mask=np.repeat(MEMORY_MASK, hypotheses, axis=0),
        return_attention_scores=True,
    )
    for result, each in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, each, atol=1e-5)
    # What is prepared stays of the memory's own size.
    assert [each.shape[0] for each in layer.prepare(x.memory)] == [3, 3]


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "float64"])
def test_steps_in_other_precisions(x, make, policy):
    layer = make(dtype=policy)
    expected = layer(x.inputs, x.memory)
    # Tensors that no other layer has cast before are fine, as in a call.
    cache, prepared, outputs = None, layer.prepare(x.memory), []
    for t in range(5):
        output, cache = layer.step(tf.constant(x.inputs[:, t : t + 1]), cache, prepared)
        assert output.dtype == layer.compute_dtype and cache[0].dtype == prepared[0].dtype == layer.compute_dtype
        outputs.append(tf.cast(output, "float64"))
    tolerance = 1e-12 if policy == "float64" else 2**-5
    np.testing.assert_allclose(tf.concat(outputs, 1), tf.cast(expected, "float64"), atol=tolerance)


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "XLA"])
def test_steps_in_a_graph(x, make, jit_compile):
    layer = make(**KINDS["llama"])

    @tf.function(jit_compile=jit_compile)
    def outputs(inputs, memory):
        prepared = layer.prepare(memory)
        first, cache = layer.step(inputs[:, :3], None, prepared)
        return tf.concat([first, layer.step(inputs[:, 3:], cache, prepared)[0]], 1)

    free = (
        outputs if jit_compile else tf.function(outputs.python_function, [tf.TensorSpec((None, None, 8)), MEMORY_SPEC])
    )
    np.testing.assert_allclose(free(x.inputs, x.memory), layer(x.inputs, x.memory), atol=1e-5)


MEMORY_SPEC = tf.TensorSpec((None, None, 6))


@pytest.mark.parametrize("norm_first", [False, True], ids=["norm last", "norm first"])
@pytest.mark.parametrize("cross_attention", [True, False], ids=["memory", "no memory"])
def test_masks_of_embeddings_are_taken_and_the_inputs_goes_on(make, norm_first, cross_attention):
    layer = make(cross_attention, norm_first=norm_first)
    mask, memory_mask = MASK, np.array([[True, True, False, False], [True] * 4, [True, False, True, True]])
    embedded = keras.layers.Embedding(6, 8, mask_zero=True)(
        np.array([[3, 4, 5, 0, 0], [1, 2, 3, 4, 5], [0, 2, 3, 4, 5]])
    )
    memory = keras.layers.Embedding(6, 6, mask_zero=True)(np.array([[3, 4, 0, 0], [1, 2, 3, 4], [2, 0, 4, 5]]))
    theirs = [memory] if cross_attention else []
    plain = [np.array(each) for each in (embedded, *theirs)]
    options = dict(return_attention_scores=True)

    def masks(mask, memory_mask):
        return {"inputs_mask": mask, **({"memory_mask": memory_mask} if cross_attention else {})}

    # To the last token too: one that is masked gets what it gets with a mask that is given.
    results = layer(embedded, *theirs, **options)
    for result, each in zip(results, layer(*plain, **masks(mask, memory_mask), **options), strict=True):
        np.testing.assert_array_equal(result, each)
    np.testing.assert_array_equal(results[0]._keras_mask, mask)
    assert not any(hasattr(each, "_keras_mask") for each in results[1:])
    # Other masks are preferred, for the queries as well.
    results = layer(embedded, *theirs, **masks(~mask, ~memory_mask), **options)
    for result, each in zip(results, layer(*plain, **masks(~mask, ~memory_mask), **options), strict=True):
        np.testing.assert_array_equal(result, each)


def seq2seq():
    """A model of one encoder and one decoder layer, masked on both sides."""
    source, target = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    rotary = dict(rotary_embedding=RotaryEmbedding(), dropout=0.1)
    memory = keras.layers.Embedding(9, 6, mask_zero=True)(source)
    memory = TransformerEncoderLayer(2, 16, key_dim=4, **rotary)(memory)
    hidden = keras.layers.Embedding(9, 8, mask_zero=True)(target)
    hidden = TransformerDecoderLayer(2, 16, norm_first=True, **rotary)(hidden, memory)
    return keras.Model([source, target], keras.layers.Dense(9)(hidden))


SOURCE, TARGET = np.array([[1, 2, 3, 4, 0], [5, 6, 0, 0, 0]]), np.array([[1, 4, 3, 2], [1, 6, 5, 0]])


def test_padding_of_either_side_changes_nothing_in_a_model(randomize):
    model = randomize(seq2seq())
    before = model([SOURCE, TARGET])
    longer = model([np.pad(SOURCE, [(0, 0), (0, 3)]), np.pad(TARGET, [(0, 0), (0, 2)])])
    np.testing.assert_allclose(np.array(longer[:, :4])[TARGET > 0], np.array(before)[TARGET > 0], atol=1e-5)
    np.testing.assert_array_equal(before._keras_mask, TARGET > 0)


@pytest.mark.long
def test_a_compiled_model_learns():
    model = seq2seq()
    model.compile(keras.optimizers.Adam(0.03), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    labels = np.array([[4, 3, 2, 7], [6, 5, 7, 0]])
    losses = model.fit([SOURCE, TARGET], labels, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 4


def test_symbolic_shapes_and_types():
    layer = TransformerDecoderLayer(**SIZES, dtype="float64")
    results = layer(keras.Input((None, 8)), keras.Input((4, 6)), return_attention_scores=True)
    assert [each.shape for each in results] == [(None, None, 8), (None, 2, None, None), (None, 2, None, 4)]
    assert {each.dtype for each in results} == {"float64"}
    alone = TransformerDecoderLayer(**SIZES, cross_attention=False, dtype="mixed_float16")(keras.Input((5, 8)))
    assert (alone.shape, alone.dtype) == ((None, 5, 8), "float16")
    assert layer.compute_output_shape((2, 5, 8), (2, 4, 6)) == (2, 5, 8)


@pytest.mark.parametrize("rate", ["dropout", "attention_dropout", "feed_forward_dropout"])
def test_each_dropout_is_for_training_only_and_seeded(x, make, rate):
    layers = [make(**{rate: 0.5}, seed=seed) for seed in (1, 1, 2)]
    expected = make()(x.inputs, x.memory)
    for training in (None, False):
        np.testing.assert_array_equal(layers[0](x.inputs, x.memory, training=training), expected)
    # A step is never one of training.
    np.testing.assert_allclose(stepped(layers[0], x.inputs, (5,), x.memory)[0], expected, atol=1e-5)
    first, again, other = (layer(x.inputs, x.memory, training=True) for layer in layers)
    np.testing.assert_array_equal(first, again)
    for different in (expected, other, layers[0](x.inputs, x.memory, training=True)):
        assert np.abs(first - different).max() > 1e-2


def test_dropout_falls_on_what_is_added_in_all_places(make):
    layer = make(norm_first=True, dropout=0.5, seed=1)
    for weight in layer.weights:
        weight.assign(np.zeros(weight.shape))
    layer.self_attention.output_dense.bias.assign(np.ones(8))
    layer.memory_attention.output_dense.bias.assign(np.full(8, 10.0))
    layer.feed_forward.output_projection.bias.assign(np.full(8, 100.0))
    inputs, memory = np.zeros((1, 50, 8)), np.zeros((1, 4, 6))
    values, counts = np.unique(layer(inputs, memory, training=True), return_counts=True)
    np.testing.assert_array_equal(values, [0, 2, 20, 22, 200, 202, 220, 222])
    assert (counts > 20).all()  # of 400; about 50 each, but never few


def test_attention_dropout_falls_on_both_attentions(x, make):
    layer = make(attention_dropout=0.5)
    assert layer.self_attention.dropout == layer.memory_attention.dropout == 0.5
    # Window and rotary positions are of the self-attention, where positions mean the same on both sides.
    layer = make(sliding_window=2, rotary_embedding=RotaryEmbedding(), flash_attention=True, num_key_value_heads=1)
    assert (layer.memory_attention.sliding_window, layer.memory_attention.rotary_embedding) == (None, None)
    assert layer.memory_attention.flash_attention and layer.memory_attention.num_key_value_heads == 1


def test_without_the_rest_of_a_configuration_the_defaults_hold():
    layer = TransformerDecoderLayer.from_config(dict(SIZES))
    assert layer.cross_attention and layer.rotary_embedding is None


MISSING = r"`memory` is missing; a layer without one has cross_attention=False\."
PLACELESS = r"`memory` was given to a layer with cross_attention=False\."


def test_refuses_a_memory_that_is_missing_or_has_no_place(x, make):
    inputs, memory = keras.Input((None, 8)), keras.Input((None, 6))
    with_one, without = make(), make(cross_attention=False)
    for layer in (with_one, TransformerDecoderLayer(**SIZES)):
        with pytest.raises(ValueError, match=MISSING):
            layer(x.inputs)
        with pytest.raises(ValueError, match=MISSING):
            layer(inputs)
    for layer in (without, TransformerDecoderLayer(**SIZES, cross_attention=False)):
        with pytest.raises(ValueError, match=PLACELESS):
            layer(x.inputs, x.memory)
        with pytest.raises(ValueError, match=PLACELESS):
            layer(inputs, memory)
    with pytest.raises(ValueError, match=f"^{MISSING}$"):
        with_one.step(x.inputs)
    with pytest.raises(ValueError, match=f"^{PLACELESS}$"):
        without.step(x.inputs, prepared=with_one.prepare(x.memory))


def test_refuses_what_does_not_fit(x, make):
    with pytest.raises(ValueError, match=r"^`num_heads` must be a positive integer\. Received: num_heads=-1$"):
        TransformerDecoderLayer(-1, UNITS)
    with pytest.raises(ValueError, match=r"^The width D must be a multiple of `num_heads`.*D=8, num_heads=3$"):
        TransformerDecoderLayer(3, UNITS).build(SHAPE, MEMORY)
    for masks in (dict(inputs_mask=MEMORY_MASK), dict(memory_mask=MASK)):
        with pytest.raises(ValueError, match="must have the first axes of its input"):
            make()(x.inputs, x.memory, **masks)
    with pytest.raises(ValueError, match=r"Query and value must be equal in the axes \(0,\)"):
        make()(x.inputs, x.memory[:2])


def test_every_part_drops_by_a_seed_of_its_own():
    layer = TransformerDecoderLayer(2, 8, dropout=0.1, attention_dropout=0.1, feed_forward_dropout=0.1, seed=5)
    layer(np.ones((2, 3, 4)), np.ones((2, 3, 4)))
    parts = layer, layer.self_attention, layer.memory_attention, layer.feed_forward
    seeds = [int(part._dropout_layer.seed_generator.state[0]) for part in parts]
    assert len(set(seeds)) == 4 and seeds[0] == 5
    assert TransformerDecoderLayer.from_config(layer.get_config()).seed == 5


def test_inputs_of_another_rank_are_refused():
    with pytest.raises(ValueError, match="expected ndim=3, found ndim=4"):
        TransformerDecoderLayer(2, 8, cross_attention=False)(np.ones((2, 3, 5, 4)))
