"""MultiHeadAttention in place of Keras' layers, and against PyTorch."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.layers import MultiHeadAttention

Theirs = keras.layers.MultiHeadAttention
Grouped = keras.layers.GroupQueryAttention

# B, T, S and the widths of query, value and key; then H, the widths of a head's keys and values, and the output's.
QUERY, VALUE, KEY = (2, 3, 5), (2, 4, 6), (2, 4, 7)
HEADS, KEY_DIM, VALUE_DIM, OUTPUT = 8, 9, 10, 11
SIZES = dict(num_heads=HEADS, key_dim=KEY_DIM)
IMAGES = dict(query=(2, 3, 4, 5), value=(2, 3, 4, 6), key=(2, 3, 4, 7))
# Whatever holds together leaves each query something.
KEY_MASK = np.array([[True, True, True, False], [True, False, True, True]])
VALUE_MASK = np.array([[True, True, True, True], [True, True, True, False]])
PAIRS = np.array([[True, False, True, True], [True, False, False, True], [False, False, True, False]])


def pair(shapes, theirs=Theirs, their_arguments=None, seed=0, **arguments):
    """Both layers with the same random weights, none of them zero."""
    ours = MultiHeadAttention(**arguments)
    theirs = theirs(**(their_arguments or arguments))
    for layer in (ours, theirs):
        layer.build(*shapes)
    random = np.random.default_rng(seed)
    theirs.set_weights([random.normal(0, 0.4, weight.shape).astype("float32") for weight in theirs.weights])
    ours.set_weights(theirs.get_weights())
    return ours, theirs


def paths(layer):
    return [(weight.path.removeprefix(f"{layer.name}/"), tuple(weight.shape)) for weight in layer.weights]


def assert_same_call(ours, theirs, *inputs, atol=2e-6, **options):
    for scores in (False, True):
        expected = theirs(*inputs, return_attention_scores=scores, **options)
        result = ours(*inputs, return_attention_scores=scores, **options)
        for each, other in zip(*((x if scores else (x,)) for x in (result, expected)), strict=True):
            assert each.shape == other.shape and each.dtype == other.dtype
            np.testing.assert_allclose(each, other, rtol=1e-5, atol=atol * max(1, np.abs(other).max()))


@pytest.mark.parametrize(
    ("arguments", "with_key"),
    [
        ({}, True),
        ({}, False),
        ({"output_shape": OUTPUT, "sliding_window": 2}, True),
        ({"output_shape": (OUTPUT, 12, 13), "value_dim": VALUE_DIM, "use_gate": True}, True),
        ({"use_bias": False, "use_gate": True}, False),
        ({"attention_axes": -2, "flash_attention": False}, True),
    ],
    ids=str,
)
def test_same_weights_give_the_same(arrays, arguments, with_key):
    x = arrays(query=QUERY, value=VALUE, key=KEY)
    inputs = (x.query, x.value, x.key) if with_key else (x.query, x.value)
    ours, theirs = pair([each.shape for each in inputs], **SIZES, **arguments)
    assert paths(ours) == paths(theirs)
    # The other way about as well.
    theirs.set_weights(ours.get_weights())
    assert_same_call(ours, theirs, *inputs)
    shapes = [each.shape for each in inputs]
    assert ours.compute_output_shape(*shapes) == tuple(theirs.compute_output_shape(*shapes))


@pytest.mark.parametrize(
    "options",
    [
        {"attention_mask": PAIRS},
        {"attention_mask": np.stack([PAIRS, ~PAIRS])},
        {"attention_mask": np.random.default_rng(1).random((2, HEADS, 3, 4)) > 0.3},
        {"attention_mask": np.random.default_rng(1).random((1, HEADS, 1, 4)) > 0.3},
        {"attention_mask": KEY_MASK[:, None]},
        {"attention_mask": PAIRS.astype("float32")},
        {"attention_mask": PAIRS.tolist()},
        {"value_mask": VALUE_MASK},
        {"value_mask": VALUE_MASK[:1], "key_mask": KEY_MASK[1:]},
        {"use_causal_mask": True, "key_mask": KEY_MASK, "value_mask": VALUE_MASK, "attention_mask": PAIRS[None]},
    ],
    ids=lambda options: " ".join(f"{k}{np.shape(v)}" for k, v in options.items()),
)
def test_same_masks_give_the_same(arrays, options):
    x = arrays(query=QUERY, value=VALUE, key=KEY)
    ours, theirs = pair([QUERY, VALUE, KEY], sliding_window=3, **SIZES)
    assert_same_call(ours, theirs, x.query, x.value, x.key, **options)
    assert np.abs(ours(x.query, x.value, x.key, **options) - ours(x.query, x.value, x.key)).max() > 1e-3


@pytest.mark.parametrize(
    "query, value, axes",
    [
        ((2, 3, 4, 5), (2, 6, 7, 5), None),
        ((2, 3, 4, 5), (2, 6, 7, 5), (2, 1)),
        ((2, 3, 4, 5), (2, 7, 4, 6), 1),
        ((2, 3, 4, 5, 6), (2, 7, 4, 8, 6), (-2, 1)),
    ],
    ids=str,
)
def test_same_attention_axes_give_the_same(arrays, query, value, axes):
    x = arrays(query=query, value=value)
    arguments = {**SIZES, "num_heads": 2, "value_dim": VALUE_DIM, "use_gate": True, "output_shape": (OUTPUT, 12)}
    ours, theirs = pair([query, value], attention_axes=axes, **arguments)
    weights = ours(x.query, x.value, return_attention_scores=True)[1]
    mask = np.random.default_rng(1).random(weights.shape) > 0.2
    assert_same_call(ours, theirs, x.query, x.value, attention_mask=mask)
    assert ours.compute_output_shape(query, value) == tuple(theirs.compute_output_shape(query, value))


def test_axes_of_one_give_the_same(arrays):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Keras warns of a softmax over one score
        for batch, length, memory_length in ((1, 1, 1), (1, 3, 1), (2, 1, 4)):
            x = arrays(query=(batch, length, 5), value=(batch, memory_length, 6))
            assert_same_call(*pair([x.query.shape, x.value.shape], **SIZES), x.query, x.value)


def test_rules_of_position_along_the_first_axis_of_images(arrays):
    x = arrays(**IMAGES)
    ours, theirs = pair(IMAGES.values(), attention_axes=1, sliding_window=2, **SIZES)
    assert_same_call(ours, theirs, x.query, x.value, x.key, use_causal_mask=True)


def test_arrays_in_the_graph_give_the_same(arrays):
    x = arrays(**IMAGES)
    ours, theirs = pair(IMAGES.values(), attention_axes=1, use_gate=True, **SIZES)
    shapes = [tf.TensorSpec([None, None, None, shape[-1]]) for shape in IMAGES.values()]
    result = tf.function(ours, input_signature=shapes, autograph=False)(x.query, x.value, x.key)
    np.testing.assert_allclose(result, theirs(x.query, x.value, x.key), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seeded", [True, False], ids=["seeded initializer", "seed of all"])
def test_same_initial_weights(seeded):
    kernels, layers = keras.initializers.HeNormal(seed=3) if seeded else "glorot_uniform", []
    for cls in (MultiHeadAttention, Theirs):
        keras.utils.set_random_seed(3)
        arguments = dict(kernel_initializer=kernels, bias_initializer="random_normal")
        layers.append(cls(**SIZES, **arguments, use_gate=True, dropout=0.1))
        layers[-1].build(QUERY, QUERY)
    ours, theirs = (layer.get_weights() for layer in layers)
    for weight, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(weight, other)
    # Of equal shapes, but not of equal values.
    assert not np.allclose(ours[1], ours[3])
    assert seeded or not np.allclose(ours[0], ours[2])


def test_same_regularisation(arrays):
    shapes = (2, 3, 4, 5), (2, 6, 4, 5)
    x = arrays(query=shapes[0], value=shapes[1])
    ours, theirs = pair(
        shapes,
        attention_axes=1,
        use_gate=True,
        kernel_regularizer=keras.regularizers.L2(0.1),
        bias_regularizer=keras.regularizers.L1(0.2),
        activity_regularizer=keras.regularizers.L1L2(0.3, 0.4),
        **SIZES,
    )
    ours(x.query, x.value), theirs(x.query, x.value)
    assert len(ours.losses) == len(theirs.losses) == 15
    # In any order: ours projects the query's gate last.
    np.testing.assert_allclose(sorted(ours.losses), sorted(theirs.losses), rtol=1e-5)


def models(layers, query=(None, 5), value=(None, 6), head=2):
    """A user's model with each of the layers, after and before others."""
    for layer in layers:
        inputs = keras.Input(query), keras.Input(value)
        hidden = layer(keras.layers.Dense(5, name="before")(inputs[0]), inputs[1])
        yield keras.Model(inputs, keras.layers.Dense(head, name="after")(hidden))


def test_fit_ends_at_the_same_weights(arrays):
    x = arrays(query=QUERY, value=VALUE, labels=(2, 3, 2))
    arguments = dict(
        **SIZES,
        use_gate=True,
        kernel_regularizer="l2",
        activity_regularizer="l2",
        kernel_constraint=keras.constraints.MaxNorm(0.9),
        bias_constraint="non_neg",
        bias_initializer="random_normal",
    )
    results = []
    for model in models(cls(name="attention", **arguments) for cls in (MultiHeadAttention, Theirs)):
        random = np.random.default_rng(0)
        model.set_weights([random.normal(0, 0.4, weight.shape) for weight in model.weights])
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
        model.optimizer.build(model.trainable_variables)  # otherwise the first step is traced twice
        start = model.get_weights()
        history = model.fit([x.query, x.value], x.labels, epochs=3, verbose=0, shuffle=False)
        results.append((history.history["loss"], model.get_weights()))
        assert all(np.abs(weight - before).max() > 1e-4 for weight, before in zip(results[-1][1], start, strict=True))
        assert np.min(model.get_layer("attention").query_dense.bias) == 0
    (losses, ours), (their_losses, theirs) = results
    np.testing.assert_allclose(losses, their_losses, rtol=1e-5)
    for weight, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("file", "to"), [("x.weights.h5", "theirs to ours"), ("x.keras", "ours to theirs")])
def test_files_of_weights_fit_both_ways(arrays, tmp_path, file, to):
    x = arrays(query=QUERY, value=VALUE)
    classes = (MultiHeadAttention, Theirs) if to == "ours to theirs" else (Theirs, MultiHeadAttention)
    made, other = models(cls(name="attention", dropout=0.5, seed=7, use_gate=True, **SIZES) for cls in classes)
    random = np.random.default_rng(0)
    made.set_weights([random.normal(0, 0.4, weight.shape) for weight in made.weights])
    (made.save if file.endswith(".keras") else made.save_weights)(tmp_path / file)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other.load_weights(tmp_path / file)
    assert [variable.path for variable in other.weights] == [variable.path for variable in made.weights]
    assert len(other.variables) == len(made.variables) == len(made.weights) + 1  # with the state of the dropout
    for weight, saved in zip(other.weights, made.weights, strict=True):
        np.testing.assert_array_equal(weight, saved)
    np.testing.assert_allclose(other([x.query, x.value]), made([x.query, x.value]), rtol=1e-5, atol=1e-5)


def test_their_configuration_makes_our_layer():
    theirs = Theirs(
        **SIZES, value_dim=VALUE_DIM, output_shape=OUTPUT, use_bias=False, use_gate=True, sliding_window=2, seed=4,
        kernel_regularizer="l2", kernel_initializer="he_normal", bias_constraint="non_neg", dropout=0.5,
        activity_regularizer="l1", name="one", dtype="mixed_bfloat16", attention_axes=-2,
    )  # fmt: skip
    config = theirs.get_config()
    ours = MultiHeadAttention.from_config(config)
    assert {key: value for key, value in ours.get_config().items() if key in config} == {
        **config,
        "attention_axes": (-2,),
    }
    added = (
        "num_key_value_heads rotary_embedding flash_attention use_qkv_bias use_query_key_norm norm_epsilon score_scale"
    )
    assert ours.get_config().keys() - config.keys() == set(added.split())


def gradients(layer, query, value):
    query, value = tf.Variable(query), tf.Variable(value)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(query, value) ** 2)
    return tape.gradient(loss, [query, value])


def test_lora(arrays):
    x = arrays(query=QUERY, value=VALUE)
    ours, theirs = pair([QUERY, VALUE], **SIZES)
    plain = ours(x.query, x.value)
    for layer in (ours, theirs):
        for dense in (layer.query_dense, layer.key_dense, layer.value_dense, layer.output_dense):
            dense.enable_lora(2)
            random = np.random.default_rng(0)
            dense.lora_kernel_a.assign(random.normal(0, 1, dense.lora_kernel_a.shape))
            dense.lora_kernel_b.assign(random.normal(0, 1, dense.lora_kernel_b.shape))
    assert paths(ours) == paths(theirs) and len(ours.trainable_weights) == len(theirs.trainable_weights) == 12
    assert np.abs(ours(x.query, x.value) - plain).max() > 0.1
    assert_same_call(ours, theirs, x.query, x.value)


@pytest.mark.long
@pytest.mark.parametrize(
    ("shapes", "mode"), [((QUERY, VALUE), "int8"), (((2, 3, 4, 5), (2, 6, 4, 5)), "int4")], ids=["sequence", "image"]
)
@pytest.mark.usefixtures("no_collection")
def test_quantised_models_give_the_same(arrays, shapes, mode):
    query, value = shapes
    x = arrays(query=query, value=value)
    layers = [cls(num_heads=2, key_dim=4, attention_axes=1, use_gate=True) for cls in (MultiHeadAttention, Theirs)]
    results, makers = [], models(layers, query[1:], value[1:])
    for layer, model in zip(layers, makers, strict=True):
        random = np.random.default_rng(0)
        model.set_weights([random.normal(0, 0.4, weight.shape) for weight in model.weights])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # Keras lists the layers without weights
            model.quantize(mode)
        assert [weight.dtype for weight in layer.weights].count("int8") >= 5
        results.append([model([x.query, x.value]), *gradients(layer, x.query, x.value)])
    assert paths(layers[0]) == paths(layers[1])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("groups", "arguments", "options"),
    [
        (1, {"use_gate": True}, {"attention_mask": PAIRS[None]}),
        (2, {"sliding_window": 2}, {"use_causal_mask": True}),
        (4, {"use_bias": False}, {"key_mask": KEY_MASK, "value_mask": VALUE_MASK}),
    ],
    ids=["gate, mask", "window, causal", "no bias, keys"],
)
def test_grouped_heads_are_those_of_their_grouped_attention(arrays, groups, arguments, options):
    x = arrays(query=QUERY, value=VALUE, key=KEY)
    ours, theirs = pair(
        [QUERY, VALUE, KEY],
        Grouped,
        dict(head_dim=KEY_DIM, num_query_heads=HEADS, num_key_value_heads=groups, **arguments),
        num_key_value_heads=groups,
        **SIZES,
        **arguments,
    )
    assert paths(ours) == paths(theirs)
    assert_same_call(ours, theirs, x.query, x.value, x.key, **options)


def matrices(layer):
    """Kernels as `(inputs, outputs)` and biases as vectors, by projection."""
    found = {}
    for weight in layer.weights:
        *_, projection, kind = weight.path.split("/")
        value = np.array(weight)
        if kind == "kernel":
            width = int(np.prod(value.shape[:2])) if projection == "attention_output" else value.shape[0]
            value = value.reshape(width, -1)
        found[projection, kind] = value.reshape(-1) if kind == "bias" else value
    return found


@pytest.mark.peers
@pytest.mark.parametrize("use_causal_mask", [False, True], ids=["free", "causal"])
def test_torch_layer_gives_the_same_outputs_weights_and_gradients(use_causal_mask):
    import torch

    heads, key_dim = 4, 5
    width = heads * key_dim  # PyTorch knows no other
    shapes = (2, 3, width), (2, 6, 7), (2, 6, 8)
    random = np.random.default_rng(1)
    layer = MultiHeadAttention(heads, key_dim, dtype="float64")
    layer.build(*shapes)
    layer.set_weights([random.normal(0, 0.4, weight.shape) for weight in layer.weights])
    peer = torch.nn.MultiheadAttention(width, heads, kdim=8, vdim=7, batch_first=True, dtype=torch.float64)
    weights = matrices(layer)
    with torch.no_grad():
        for name, kernel in (("q", "query"), ("k", "key"), ("v", "value")):
            getattr(peer, f"{name}_proj_weight").copy_(torch.from_numpy(weights[kernel, "kernel"].T))
        biases = np.concatenate([weights[name, "bias"] for name in ("query", "key", "value")])
        peer.in_proj_bias.copy_(torch.from_numpy(biases))
        peer.out_proj.weight.copy_(torch.from_numpy(weights["attention_output", "kernel"].T))
        peer.out_proj.bias.copy_(torch.from_numpy(weights["attention_output", "bias"]))
    arrays = [random.normal(size=shape) for shape in shapes]
    key_mask = np.array([[True] * 4 + [False] * 2, [True, False, True, True, True, True]])

    ours = [tf.Variable(array) for array in arrays]
    with tf.GradientTape() as tape:
        options = dict(key_mask=key_mask, use_causal_mask=use_causal_mask)
        output, attention = layer(*ours, return_attention_scores=True, **options)
        loss = tf.reduce_sum(output**3)
    query, value, key = theirs = [torch.tensor(array, requires_grad=True) for array in arrays]
    expected, expected_attention = peer(
        query,
        key,
        value,
        key_padding_mask=torch.from_numpy(~key_mask),
        attn_mask=torch.ones(3, 6, dtype=torch.bool).triu(1) if use_causal_mask else None,
        average_attn_weights=False,
    )
    (expected**3).sum().backward()

    np.testing.assert_allclose(output, expected.detach().numpy(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(attention, expected_attention.detach().numpy(), rtol=1e-12, atol=1e-12)
    with tf.GradientTape() as unasked:
        unasked_loss = tf.reduce_sum(layer(*ours, **options) ** 3)
    for changes in (tape.gradient(loss, ours), unasked.gradient(unasked_loss, ours)):
        for gradient, tensor in zip(changes, theirs, strict=True):
            np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-9, atol=1e-9)
