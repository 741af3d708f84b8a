"""MultiHeadAttention; test_multi_head_attention_dropin.py compares it with Keras' layer."""

import importlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.layers import MultiHeadAttention
from zoo.layers.functions import blockwise_attention
from zoo.layers.rotary_embedding import RotaryEmbedding

# The function of this name hides its module from an ordinary import.
sdpa = importlib.import_module("zoo.layers.functions.scaled_dot_product_attention")

# B, T, S and the widths of query, value and key; then H and its groups, and the widths of a head's keys and values.
QUERY, VALUE, KEY = (2, 3, 5), (2, 4, 6), (2, 4, 7)
SIZES = dict(num_heads=8, key_dim=9)
KEY_MASK = np.array([[True, True, True, False], [True, False, True, True]])
PAIRS = np.array([[True, False, True, True], [True, False, False, True], [False, False, True, False]])


def randomized(*shapes, **arguments):
    """A built layer, none of its weights zero."""
    layer = MultiHeadAttention(**{**SIZES, **arguments})
    layer.build(*shapes)
    random = np.random.default_rng(0)
    layer.set_weights([random.normal(0, 0.4, weight.shape) for weight in layer.weights])
    return layer


def close(results, expected, tolerance=3e-6):
    assert results.shape == expected.shape
    np.testing.assert_allclose(results, expected, rtol=tolerance, atol=tolerance * max(1, np.abs(expected).max()))


def identity_layer(width, **arguments):
    """One head, all projections identities."""
    layer = MultiHeadAttention(1, width, use_bias=False, **arguments)
    layer.build((None, None, width), (None, None, width))
    layer.set_weights([np.eye(width).reshape(weight.shape) for weight in layer.weights])
    return layer


def test_hand_computed():
    layer = identity_layer(4)
    query, value = np.array([[[2.0, 0, 0, 0]]]), np.array([[[np.log(3.0), 4, 0, 0], [0.0, 8, 0, 0]]])
    # Scores 2 log 3 and 0, divided by the root of 4: 3 to 1.
    output, weights = layer(query, value, return_attention_scores=True)
    np.testing.assert_allclose(weights, [[[[0.75, 0.25]]]], rtol=1e-6)
    np.testing.assert_allclose(output[0, 0, 1], 5, rtol=1e-6)
    # With a key of its own.
    output = layer(query, value, key=value[:, ::-1])
    np.testing.assert_allclose(output[0, 0, 1], 7, rtol=1e-6)


def test_layer_check(layer_check, arrays):
    x = arrays(query=QUERY, value=VALUE, key=KEY)
    layer_check(
        MultiHeadAttention,
        {
            **SIZES,
            "value_dim": 10,
            "dropout": 0.25,
            "use_bias": True,
            "output_shape": (11, 12),
            "attention_axes": (1,),
            "sliding_window": 3,
            "flash_attention": False,
            "kernel_initializer": "he_normal",
            "bias_initializer": "ones",
            "kernel_regularizer": "l2",
            "bias_regularizer": "l1",
            "activity_regularizer": "l1l2",
            "kernel_constraint": "max_norm",
            "bias_constraint": "non_neg",
            "use_gate": True,
            "seed": 3,
            "num_key_value_heads": 4,
            "rotary_embedding": RotaryEmbedding(rotary_dim=4),
            "use_qkv_bias": True,
            "use_query_key_norm": True,
            "norm_epsilon": 1e-3,
            "score_scale": 0.5,
        },
        {
            "query": x.query,
            "value": x.value,
            "key": x.key,
            "query_mask": np.array([[True, True, False], [True, True, True]]),
            "value_mask": KEY_MASK[::-1],
            "key_mask": KEY_MASK,
        },
        weights={
            "query/kernel": (5, 8, 9),
            "query/bias": (8, 9),
            "key/kernel": (7, 4, 9),
            "key/bias": (4, 9),
            "gate/kernel": (5, 8, 10),
            "gate/bias": (8, 10),
            "value/kernel": (6, 4, 10),
            "value/bias": (4, 10),
            "attention_output/kernel": (8, 10, 11, 12),
            "attention_output/bias": (11, 12),
            "query_norm/scale": (9,),
            "key_norm/scale": (9,),
        },
        outputs=[(2, 3, 11, 12), (2, 8, 3, 4)],
        options={"return_attention_scores": True},
    )


def test_configuration_is_plain_and_complete():
    layer = MultiHeadAttention(4, 6, output_shape=[7, 8], attention_axes=[1], rotary_embedding=RotaryEmbedding(7.0))
    config = layer.get_config()
    assert config["output_shape"] == (7, 8) and config["attention_axes"] == (1,) and config["value_dim"] == 6
    copy = MultiHeadAttention.from_config(config)
    assert copy.rotary_embedding.max_wavelength == 7.0 and copy.rotary_embedding is not layer.rotary_embedding
    # Not in Keras' configuration, and as good as None.
    del config["rotary_embedding"], config["num_key_value_heads"]
    assert MultiHeadAttention.from_config(config).rotary_embedding is None
    # Numbers of NumPy are saved as Python's.
    options = dict(dropout=np.float32(0.25), output_shape=np.int64(7), attention_axes=np.int64(1))
    config = MultiHeadAttention(np.int64(4), np.int32(6), **options).get_config()
    numbers = [*(config[name] for name in ("num_heads", "key_dim", "dropout")), *config["output_shape"]]
    numbers += config["attention_axes"]
    assert numbers == [4, 6, 0.25, 7, 1] and [type(number) for number in numbers] == [int, int, float, int, int]


# Nothing to attend to: the masks that make it so, and the queries that they leave nothing.
NOTHING = {
    "pairs of one head": (
        {"attention_mask": np.arange(3)[None, None, :, None].repeat(8, 1) != 1},
        [[False, True, False]] * 2,
    ),
    "keys and values": (
        {
            "key_mask": np.array([[True] * 4, [True, False, True, False]]),
            "value_mask": np.array([[True] * 4, [False, True, False, True]]),
        },
        [[False] * 3, [True] * 3],
    ),
    "queries": (
        {"query_mask": np.array([[True, False, True], [True, True, True]])},
        [[False, True, False], [False] * 3],
    ),
    "all": ({"query_mask": np.zeros((2, 3), bool), "use_causal_mask": True}, [[True] * 3] * 2),
    "causal": (
        {"attention_mask": np.array([[[False, True, True, True]]]), "use_causal_mask": True},
        [[True, False, False]] * 2,
    ),
}


@pytest.mark.parametrize("reason", NOTHING)
def test_a_query_with_nothing_to_attend_to_gives_the_bias(arrays, reason):
    """Which masks make it so; that every way of attention obeys them is proved for the function."""
    x = arrays(query=QUERY, value=VALUE, key=KEY)
    layer = randomized(QUERY, VALUE, KEY)
    options, empty = NOTHING[reason]
    empty = np.array(empty)
    output, weights = layer(x.query, x.value, x.key, return_attention_scores=True, **options)
    np.testing.assert_array_equal(np.any(weights, (1, 3)), ~empty)
    np.testing.assert_array_equal(output.numpy()[empty], np.tile(layer.output_dense.bias, (empty.sum(), 1)))
    close(layer(x.query, x.value, x.key, **options), output)
    # And the others as with one mask of all pairs, (B, H, T, S), which the queries with nothing obey as well.
    free = [options.get(name, np.ones((2, 4), bool)) for name in ("key_mask", "value_mask")]
    pairs = options.get("attention_mask", np.ones((1, 1), bool))
    mask = (free[0] & free[1])[:, None, None] & (pairs[:, None] if pairs.ndim == 3 else pairs)
    mask = mask & (np.tri(3, 4, dtype=bool) if "use_causal_mask" in options else True) & ~empty[:, None, :, None]
    mask = np.broadcast_to(mask, (2, 8, 3, 4))
    np.testing.assert_array_equal(np.array(weights) > 0, mask)
    close(output, layer(x.query, x.value, x.key, attention_mask=mask))


def test_a_window_may_leave_queries_after_the_last_key_nothing(arrays):
    x = arrays(query=(2, 6, 5), value=(2, 3, 4))
    layer = randomized((2, 6, 5), (2, 3, 4), sliding_window=2)
    output, weights = layer(x.query, x.value, return_attention_scores=True)
    allowed = np.abs(np.arange(6)[:, None] - np.arange(3)) < 2
    np.testing.assert_array_equal(weights > 0, np.broadcast_to(allowed, weights.shape))
    np.testing.assert_array_equal(output[:, 4:], np.tile(layer.output_dense.bias, (2, 2, 1)))
    close(layer(x.query, x.value), output)


# Masks that Keras attaches.


def embedded(ids, width=5):
    normal = keras.initializers.RandomNormal(stddev=1, seed=width)
    return keras.layers.Embedding(9, width, mask_zero=True, embeddings_initializer=normal)(ids)


IDS = {
    "query": np.array([[1, 2, 3, 0], [4, 5, 0, 0]]),
    "value": np.array([[7, 8, 0], [6, 0, 0]]),
    "key": np.array([[7, 0, 2], [6, 2, 0]]),
}
IMPLICIT = {f"{name}_mask": ids != 0 for name, ids in IDS.items()}


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("norm", [False, True])  # a norm that knew no masks would warn that it drops them
def test_implicit_masks_do_what_explicit_ones_do_and_the_querys_goes_on(norm):
    query, value, key = (embedded(ids, width) for ids, width in zip(IDS.values(), (5, 6, 6), strict=True))
    layer = randomized(query.shape, value.shape, use_query_key_norm=norm)
    bare = [tf.identity(each) for each in (query, value, key)]
    without_key = {name: mask for name, mask in IMPLICIT.items() if name != "key_mask"}
    result = layer(query, value)
    np.testing.assert_array_equal(result, layer(*bare[:2], **without_key))
    np.testing.assert_array_equal(result._keras_mask, IDS["query"] != 0)
    # Of a key too, which may have another.
    np.testing.assert_array_equal(layer(query, value, key), layer(*bare, **IMPLICIT))
    # The inputs keep theirs, for whatever takes them next.
    for each, ids in zip((query, value, key), IDS.values(), strict=True):
        np.testing.assert_array_equal(each._keras_mask, ids != 0)


def test_explicit_masks_are_preferred_and_every_mask_matters():
    query, value, key = (embedded(ids, width) for ids, width in zip(IDS.values(), (5, 6, 7), strict=True))
    layer = randomized(query.shape, value.shape, key.shape)
    bare = [tf.identity(each) for each in (query, value, key)]
    masks = {
        "query_mask": np.array([[False, True, True, True], [True, True, True, False]]),
        "value_mask": np.array([[True, True, True], [False, True, True]]),
        "key_mask": np.array([[False, True, True], [True, False, True]]),
    }
    np.testing.assert_array_equal(layer(query, value, key, **masks), layer(*bare, **masks))
    for name, mask in masks.items():
        expected = layer(*bare, **{**IMPLICIT, name: mask})
        np.testing.assert_array_equal(layer(query, value, key, **{name: mask}), expected)
        assert np.abs(expected - layer(*bare, **IMPLICIT)).max() > 1e-4


@pytest.mark.filterwarnings("error::UserWarning")
def test_models_pass_the_querys_mask_on_in_a_graph_too():
    ids = np.array([[1, 2, 3, 0, 0], [4, 5, 6, 7, 8]])
    inputs = keras.Input((None,), dtype="int32")
    vectors = keras.layers.Embedding(9, 6, mask_zero=True)(inputs)
    attended = MultiHeadAttention(2, 3, use_gate=True, name="attention")(vectors, vectors, use_causal_mask=True)
    pooled = keras.layers.GlobalAveragePooling1D()(attended)
    model = keras.Model(inputs, [attended, pooled])
    assert attended.shape == (None, None, 6)
    graph = tf.function(
        lambda ids: model(ids), input_signature=[tf.TensorSpec((None, None), tf.int32)], autograph=False
    )
    for each in (ids, np.pad(ids, ((0, 0), (0, 3)))):
        outputs = graph(each)
        np.testing.assert_allclose(outputs[1][0], np.mean(outputs[0][0, :3], 0), atol=1e-6)
        np.testing.assert_allclose(outputs[1][1], np.mean(outputs[0][1, :5], 0), atol=1e-6)
    np.testing.assert_allclose(outputs[1], model(ids)[1], atol=1e-6)


# Steps, and attention to a memory that is projected once.
KINDS = {
    "plain": {},
    "grouped, gate": dict(num_key_value_heads=2, use_gate=True, value_dim=3),
    "rotary, one group": dict(num_key_value_heads=1, rotary_embedding=RotaryEmbedding(20.0)),
    "rotary, window": dict(sliding_window=2, rotary_embedding=RotaryEmbedding(20.0), value_dim=3),
}


@pytest.fixture(params=KINDS, scope="module")
def layer(request):
    return randomized((None, None, 6), (None, None, 6), **{"num_heads": 4, "key_dim": 4, **KINDS[request.param]})


@pytest.mark.parametrize(
    ("mask", "portions"), [(None, (1, 1, 1, 1, 1)), ("keys", (2, 1, 2)), ("pairs", (3, 1, 1))], ids=str
)
def test_steps_give_what_the_whole_gives(layer, arrays, mask, portions):
    x, random = arrays(x=(3, 5, 6)).x, np.random.default_rng(1)
    whole, given = {}, None
    if mask == "keys":
        whole["key_mask"] = given = np.arange(5) < np.array([[2], [5], [4]])
    elif mask == "pairs":
        whole["attention_mask"] = given = random.random((3, 5, 5)) > 0.3
    expected, expected_weights = layer(x, x, use_causal_mask=True, return_attention_scores=True, **whole)
    cache, done = None, 0
    for portion in portions:
        end = done + portion
        part = None if given is None else given[:, :end] if mask == "keys" else given[:, done:end, :end]
        output, new_cache, weights = layer.step(x[:, done:end], cache, mask=part, return_attention_scores=True)
        close(output, expected[:, done:end], 1e-5)
        close(weights, expected_weights[:, :, done:end, :end], 1e-5)
        keys, values = new_cache
        assert keys.shape == (3, layer.num_key_value_heads or 4, end, 4) and values.shape[3] == layer.value_dim
        assert len(layer.step(x[:, done:end], cache, mask=part)) == 2
        cache, done = new_cache, end


@pytest.mark.parametrize("portion", [1, 3])
def test_steps_after_prompts_padded_on_the_left_are_as_without_padding(layer, arrays, portion):
    padding = np.array([[2], [0], [1]])  # of prompts of 3, with 4 tokens more
    x = arrays(x=(3, 7, 6)).x
    positions, mask = np.maximum(np.arange(7) - padding, 0), np.arange(7) >= padding
    _, cache = layer.step(x[:, :3], mask=mask[:, :3], positions=positions[:, :3])
    outputs = []
    for first in range(3, 7, portion):
        end = min(first + portion, 7)
        output, cache = layer.step(x[:, first:end], cache, mask=mask[:, :end], positions=positions[:, first:end])
        outputs.append(output)
    for row, (n,) in enumerate(padding):
        alone = x[row : row + 1, n:]
        close(np.concatenate(outputs, 1)[row], layer(alone, alone, use_causal_mask=True)[0, 3 - n :], 1e-5)


@pytest.mark.parametrize(("mask", "with_key"), [(None, False), ("key_mask", True), ("attention_mask", True)])
def test_attention_to_a_projected_memory_is_the_call(layer, arrays, mask, with_key):
    x, random = arrays(query=(3, 4, 6), value=(3, 5, 6), key=(3, 5, 6)), np.random.default_rng(1)
    key = x.key if with_key else None
    given = None if mask is None else random.random((3, 5) if mask == "key_mask" else (3, 4, 5)) > 0.4
    memory = layer.project_memory(x.value, key)
    assert [each.shape[1:3] for each in memory] == [(layer.num_key_value_heads or 4, 5)] * 2
    output, weights = layer.attend(x.query, memory, given, return_attention_scores=True)
    whole = {} if mask is None else {mask: given}
    expected, expected_weights = layer(x.query, x.value, key, return_attention_scores=True, **whole)
    close(output, expected, 1e-5)
    close(weights, expected_weights, 1e-5)
    close(layer.attend(x.query, memory, given), output)


def test_memory_at_given_positions(arrays):
    x = arrays(query=(2, 3, 6), value=(2, 4, 6))
    rotary = RotaryEmbedding(20.0)
    layer = randomized((2, 3, 6), (2, 4, 6), num_key_value_heads=2, key_dim=4, rotary_embedding=rotary)
    counted, shifted = layer.project_memory(x.value), layer.project_memory(x.value, positions=np.arange(4) + 5)
    np.testing.assert_array_equal(layer.project_memory(x.value, positions=np.arange(4))[0], counted[0])
    assert np.abs(shifted[0] - counted[0]).max() > 0.1
    np.testing.assert_array_equal(shifted[1], counted[1])
    # Products tell distances alone.
    mask = np.ones((2, 3), bool)
    far = layer.step(x.query, mask=mask, positions=np.arange(3) + 100)
    close(far[0], layer.step(x.query)[0], 1e-5)
    assert np.abs(layer.step(x.query, positions=np.arange(3) * 2)[0] - far[0]).max() > 1e-4


def test_rotary_positions_are_those_of_the_embedding(arrays, numpy_softmax):
    x = arrays(query=(2, 3, 4))
    rotary = RotaryEmbedding(20.0)
    layer = identity_layer(4, rotary_embedding=rotary)
    _, weights = layer(x.query, x.query, return_attention_scores=True)
    turned = rotary(x.query[:, :, None])[:, :, 0].numpy()
    expected = numpy_softmax(turned @ turned.swapaxes(1, 2) / 2)
    close(weights, expected[:, None])
    assert np.abs(weights[:, 0] - numpy_softmax(x.query @ x.query.swapaxes(1, 2) / 2)).max() > 1e-3


def test_steps_of_unknown_sizes_in_a_graph(arrays):
    x = arrays(inputs=(2, 5, 6))
    layer = randomized((2, 5, 6), (2, 5, 6), num_key_value_heads=2, key_dim=4, rotary_embedding=RotaryEmbedding(9.0))

    @tf.function(
        input_signature=[tf.TensorSpec([None, None, 6]), *[tf.TensorSpec([None, 2, None, 4])] * 2], autograph=False
    )
    def step(inputs, keys, values):
        return layer.step(inputs, (keys, values))

    cache, outputs = (np.zeros((2, 2, 0, 4), "float32"),) * 2, []
    for part in (x.inputs[:, :3], x.inputs[:, 3:4], x.inputs[:, 4:]):
        output, cache = step(part, *cache)
        outputs.append(output)
    close(np.concatenate(outputs, 1), layer(x.inputs, x.inputs, use_causal_mask=True), 1e-5)


def test_a_mask_of_heads_of_unknown_sizes_in_a_graph(arrays):
    x = arrays(inputs=(2, 5, 6))
    layer = randomized((2, 5, 6), (2, 5, 6))
    head_mask = np.array([[0.5] + [1.0] * (layer.num_heads - 1)], "float32")
    call = tf.function(
        lambda inputs, head_mask: layer(inputs, inputs, head_mask=head_mask, return_attention_scores=True),
        input_signature=[tf.TensorSpec([None, None, 6]), tf.TensorSpec([None, None])],
        autograph=False,
    )
    options = dict(head_mask=head_mask, return_attention_scores=True)
    for result, expected in zip(call(x.inputs, head_mask), layer(x.inputs, x.inputs, **options), strict=True):
        close(result, expected)


# Blocks.


@pytest.fixture
def blocks(monkeypatch):
    """The number of times that attention was computed in blocks."""
    calls, forward = [], blockwise_attention.forward

    def counted(*args):
        calls.append(args)
        return forward(*args)

    monkeypatch.setattr(blockwise_attention, "forward", counted)
    return calls


def test_blocks_are_chosen_for_many_scores_or_when_told(arrays, blocks, monkeypatch):
    x = arrays(query=QUERY, value=VALUE)
    layer = randomized(QUERY, VALUE)
    expected = layer(x.query, x.value)
    assert not blocks
    monkeypatch.setattr(sdpa, "BLOCK", 2)
    monkeypatch.setattr(sdpa, "LARGE", 2 * 8 * 3 * 4)
    layer(x.query, x.value)
    assert not blocks
    randomized(QUERY, VALUE, flash_attention=True)(x.query, x.value)
    assert len(blocks) == 1
    monkeypatch.setattr(sdpa, "LARGE", 2 * 8 * 3 * 4 - 1)
    close(layer(x.query, x.value), expected)
    assert len(blocks) == 2
    # Never when weights are asked for, or blocks refused.
    close(layer(x.query, x.value, return_attention_scores=True)[0], expected)
    close(randomized(QUERY, VALUE, flash_attention=False)(x.query, x.value), expected)
    assert len(blocks) == 2


@pytest.mark.parametrize("flash_attention", [None, True, False])
def test_a_prompt_is_prefilled_in_blocks_as_the_call_is(arrays, blocks, monkeypatch, flash_attention):
    monkeypatch.setattr(blockwise_attention, "BLOCK", 16)
    monkeypatch.setattr(sdpa, "BLOCK", 16)
    monkeypatch.setattr(sdpa, "LARGE", 1000)
    x = arrays(x=(2, 40, 6)).x
    arguments = dict(num_heads=4, key_dim=4, num_key_value_heads=2, sliding_window=30)
    layer = randomized(x.shape, x.shape, flash_attention=flash_attention, **arguments)
    expected = layer(x, x, use_causal_mask=True)
    blocks.clear()
    first, cache = layer.step(x[:, :21])
    second, cache = layer.step(x[:, 21:39], cache)
    assert len(blocks) == (0 if flash_attention is False else 2)
    # The scores of one token are a row already.
    last, _ = layer.step(x[:, 39:], cache)
    assert len(blocks) == (0 if flash_attention is False else 2)
    close(np.concatenate([first, second, last], 1), expected)
    layer.attend(x, layer.project_memory(x))
    assert len(blocks) == (0 if flash_attention is False else 3)


def test_keras_setting_decides_where_the_layer_does_not(arrays, blocks, monkeypatch):
    x = arrays(query=QUERY, value=VALUE)
    monkeypatch.setattr(sdpa, "BLOCK", 2)
    monkeypatch.setattr(sdpa, "LARGE", 1)
    undecided, told = randomized(QUERY, VALUE), randomized(QUERY, VALUE, flash_attention=True)
    assert keras.config.is_flash_attention_enabled() is None
    try:
        keras.config.disable_flash_attention()
        undecided(x.query, x.value)
        assert not blocks
        told(x.query, x.value)
        assert len(blocks) == 1
        undecided(x.query, x.value, return_attention_scores=True)
    finally:
        keras.config.enable_flash_attention()  # Keras' own choice
    undecided(x.query, x.value)
    assert len(blocks) == 2


def test_weights_do_not_come_with_blocks(arrays):
    x = arrays(query=QUERY, value=VALUE)
    layer = randomized(QUERY, VALUE, flash_attention=True)
    message = r"`return_attention_scores` needs the whole matrix.*return_attention_scores=True, flash_attention=True"
    for inputs in ((x.query, x.value), (keras.Input(QUERY[1:]), keras.Input(VALUE[1:]))):
        with pytest.raises(ValueError, match=message):
            layer(*inputs, return_attention_scores=True)


def test_a_custom_gradient_is_there_unless_a_call_is_not_for_training():
    """An export calls with `training=False`, and a SavedModel could not keep it."""
    layer = randomized(QUERY, VALUE)

    def has_custom_gradient(training):
        call = tf.function(lambda query, value: layer(query, value, training=training), autograph=False)
        definition = call.get_concrete_function(tf.TensorSpec(QUERY), tf.TensorSpec(VALUE)).graph.as_graph_def()
        found = [*definition.node, *(node for each in definition.library.function for node in each.node_def)]
        return any("_gradient_op_type" in node.attr for node in found)

    assert [has_custom_gradient(training) for training in (True, None, False)] == [True, True, False]


# Dropout.


@pytest.mark.parametrize("path", ["whole", "blockwise", "weights"])
def test_dropout(arrays, path):
    """For training only, from the layer's seed; the numbers are those of the function."""
    x = arrays(query=QUERY, value=VALUE)
    scores = path == "weights"

    def fresh(**arguments):
        layer = randomized(QUERY, VALUE, dropout=0.4, flash_attention=path == "blockwise" or None, **arguments)

        def call(**options):
            result = layer(x.query, x.value, return_attention_scores=scores, **options)
            return [np.array(each) for each in result] if scores else [np.array(result)]

        return call

    call, again, other = fresh(seed=1), fresh(seed=1), fresh(seed=2)
    plain, expected = call(), fresh()(training=False)
    np.testing.assert_allclose(plain[0], expected[0], atol=1e-6)
    first, second = call(training=True), call(training=True)
    assert np.abs(first[0] - plain[0]).max() > 0.05 and np.abs(first[0] - second[0]).max() > 0.05
    np.testing.assert_array_equal(again(training=True)[0], first[0])
    np.testing.assert_array_equal(again(training=True)[0], second[0])
    assert np.abs(other(training=True)[0] - first[0]).max() > 0.05
    if scores:  # those before dropout
        close(first[1], plain[1])


# Precision.


@pytest.mark.parametrize(("policy", "size"), [("mixed_bfloat16", 48), ("mixed_float16", 96)])
def test_scores_are_computed_in_float32(policy, size):
    """Scores that their compute type would round, of inputs that it holds exactly."""
    # With key_dim 2 the scale, a root of one half, is not exact either.
    layer = identity_layer(2, dtype=policy)
    query = np.array([[[size + 0.25, size + 0.5]]])
    keys = np.array([[[size, -size], [size, -size + 0.25], [size + 0.5, -size]]])
    expected = np.exp(query @ keys.swapaxes(1, 2) / np.sqrt(2))
    expected /= expected.sum()
    # The values, not the keys, in the type's range.
    values = np.array([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]])
    memory = layer.project_memory(values, keys)
    assert memory[0].dtype == memory[1].dtype == layer.compute_dtype
    for output, weights in (
        layer(query, values, keys, return_attention_scores=True),
        layer.attend(query, memory, return_attention_scores=True),
        (layer(query, values, keys), expected[None]),
    ):
        assert output.dtype == layer.compute_dtype
        np.testing.assert_allclose(weights[0, 0], expected[0], rtol=1e-3)
        np.testing.assert_allclose(tf.cast(output[0, 0], "float32"), expected[0, 0, :2], atol=2**-8)


def test_a_cache_has_the_compute_dtype_whatever_the_rotary_embedding_has():
    layer = randomized((2, 3, 6), (2, 3, 6), key_dim=4, dtype="mixed_bfloat16", rotary_embedding=RotaryEmbedding())
    output, cache = layer.step(np.ones((2, 3, 6)))
    assert [each.dtype for each in (output, *cache)] == ["bfloat16"] * 3
    assert layer(np.ones((2, 3, 6)), np.ones((2, 3, 6))).dtype == "bfloat16"


@pytest.mark.parametrize("head_mask", [np.ones(8), np.ones((2, 3)), np.ones((2, 1, 8)), np.ones((3, 8))])
def test_a_mask_of_other_heads_is_refused(arrays, head_mask):
    x = arrays(query=(2, 3, 5), value=(2, 4, 6))
    with pytest.raises(ValueError, match=r"`head_mask` must have the shape \(2, 8\) or \(1, 8\)\. Received: \("):
        MultiHeadAttention(**SIZES)(x.query, x.value, head_mask=head_mask)


# Shapes.


def test_attention_axes_are_those_of_rows_alone(arrays):
    """Rank 5, slice by slice through the layer for sequences; Keras' layer takes no masks of so many axes."""
    x = arrays(query=(2, 3, 4, 5, 6), value=(2, 7, 4, 5, 6))
    layer = randomized(x.query.shape, x.value.shape, attention_axes=(3, 1), num_heads=2, use_gate=True)
    flat = randomized((2, 3, 6), (2, 3, 6), num_heads=2, use_gate=True)
    query_mask = np.random.default_rng(0).random(x.query.shape[:-1]) > 0.2
    value_mask = np.random.default_rng(1).random(x.value.shape[:-1]) > 0.2
    common = dict(head_mask=np.array([[1.0, 0.0], [0.5, 1.0]]), return_attention_scores=True)
    output, weights = layer(x.query, x.value, query_mask=query_mask, value_mask=value_mask, **common)
    for place in range(4):

        def part(array, place=place):
            array = array[:, :, place].swapaxes(1, 2)  # axis 3, then axis 1
            return array.reshape(2, -1, *array.shape[3:])

        masks = dict(query_mask=part(query_mask), value_mask=part(value_mask))
        expected, expected_weights = flat(part(x.query), part(x.value), **masks, **common)
        close(part(np.array(output)), expected)
        close(np.array(weights)[:, place].reshape(expected_weights.shape), expected_weights)


def test_symbolic_weights_have_the_lengths_of_query_and_key():
    layer = MultiHeadAttention(**SIZES)
    _, weights = layer(keras.Input((3, 5)), keras.Input((4, 6)), return_attention_scores=True)
    assert weights.shape == (None, 8, 3, 4)
    layer = MultiHeadAttention(**SIZES, attention_axes=2)
    _, weights = layer(keras.Input((3, 4, 5)), keras.Input((3, 7, 5)), return_attention_scores=True)
    assert weights.shape == (None, 3, 8, 4, 7)


def test_rotary_positions_count_along_the_axis_attended_over(arrays):
    x, shape, arguments = arrays(image=(2, 3, 4, 5)), (2, 3, 4, 5), {"key_dim": 4}
    free = randomized(shape, shape, attention_axes=2, **arguments)
    arguments["rotary_embedding"] = RotaryEmbedding(9.0)
    layer, flat = randomized(shape, shape, attention_axes=2, **arguments), randomized((2, 4, 5), (2, 4, 5), **arguments)
    output = layer(x.image, x.image)
    for row in range(3):
        close(output[:, row], flat(x.image[:, row], x.image[:, row]))
    assert np.abs(output - free(x.image, x.image)).max() > 1e-3


# Refusals.

POSITIVE = "must be a positive integer."
SEVERAL = "must be an integer or several."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": 0}, f"The argument `num_heads` {POSITIVE}"),
        ({"key_dim": 2.0}, f"The argument `key_dim` {POSITIVE}"),
        ({"value_dim": 0}, f"The argument `value_dim` {POSITIVE}"),
        (
            {"rotary_embedding": True},
            "`rotary_embedding` must be a layer that rotates heads, such as `RotaryEmbedding()`, or None.",
        ),
        ({"dropout": 1}, "`dropout` must be at least 0 and below 1."),
        ({"sliding_window": 0}, f"`sliding_window` {POSITIVE}"),
        ({"output_shape": 0}, f"`output_shape` {POSITIVE}"),
        ({"output_shape": ()}, f"Invalid `output_shape`: it {SEVERAL}"),
        ({"output_shape": "5"}, f"Invalid `output_shape`: it {SEVERAL}"),
        ({"attention_axes": "1"}, f"`attention_axes` {SEVERAL}"),
        ({"attention_axes": ()}, f"`attention_axes` {SEVERAL}"),
        ({"attention_axes": (1, 2.0)}, f"`attention_axes` {SEVERAL}"),
        ({"num_key_value_heads": 0}, f"`num_key_value_heads` {POSITIVE}"),
        ({"num_key_value_heads": 3, "num_heads": 8}, "`num_key_value_heads` must divide `num_heads`."),
    ],
    ids=lambda each: str(each) if isinstance(each, dict) else "",
)
def test_refuses_arguments(arguments, message):
    received = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    with pytest.raises(ValueError, match=f"^{re.escape(f'{message} Received: {received}')}$"):
        MultiHeadAttention(**{**SIZES, **arguments})


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([QUERY, VALUE, (2, 9, 7)], r"All axes of value and key but the last must be equal.*key \(2, 9, 7\)"),
        ([(2, 5), (2, 6)], r"Inputs of attention must be \(batch, length, features\).*of rank 2"),
    ],
    ids=str,
)
def test_refuses_shapes_that_do_not_fit(shapes, message):
    for check in (MultiHeadAttention(**SIZES).build, MultiHeadAttention(**SIZES).compute_output_shape):
        with pytest.raises(ValueError, match=message):
            check(*shapes)
    with pytest.raises(ValueError, match=message if len(shapes) == 3 else "rank 3"):
        randomized(QUERY, VALUE, KEY)(*map(np.zeros, shapes))


def test_attending_and_stepping_refuse_a_mask_that_is_added_to_scores(arrays):
    layer, x = randomized((None, None, 6), (None, None, 6)), arrays(x=(3, 5, 6)).x
    added = np.array([[0, 0, -np.inf, 0, 0]] * 3, np.float32)
    for call in (lambda mask: layer.attend(x, layer.project_memory(x), mask), lambda mask: layer.step(x, mask=mask)):
        call(added == 0)
        with pytest.raises(ValueError, match=r"A mask with negative numbers.*pass `mask == 0` instead"):
            call(added)


@pytest.mark.parametrize("shape", [(3, 1), (3, 2), (5,), (3, 5, 5), (3, 1, 1, 5), (2, 5)], ids=str)
def test_attending_and_stepping_refuse_a_mask_of_another_shape(arrays, shape):
    """Such as the new token's alone: it would count for all keys."""
    layer, x = randomized((None, None, 6), (None, None, 6)), arrays(x=(3, 5, 6)).x
    memory, (_, cache) = layer.project_memory(x), layer.step(x[:, :4])
    message = r"`mask` must be \(batch, keys\) or \(batch, queries, keys\), here \(3, 5\) or \(3, 1, 5\). Received: "
    with pytest.raises(ValueError, match=message + f".* {re.escape(str(shape))}$"):
        layer.attend(x[:, :1], memory, np.ones(shape, bool))
    with pytest.raises(ValueError, match=message):
        layer.step(x[:, 4:], cache, mask=np.ones(shape, bool))


def test_attending_and_stepping_refuse_keys_of_other_rows(arrays):
    layer, x = randomized((None, None, 6), (None, None, 6)), arrays(x=(3, 5, 6)).x
    with pytest.raises(ValueError, match=r"^The shape of `memory` must begin with \(3,\)\. Received: .*\(2, 8, 5, "):
        layer.attend(x, layer.project_memory(x[:2]))
    with pytest.raises(ValueError, match=r"^The shape of `cache` must begin with \(2,\)\. Received: .*\(3, 8, 5, "):
        layer.step(x[:2], layer.step(x)[1])


@pytest.mark.parametrize("name", ["sliding_window", "rotary_embedding"])
def test_refuses_positions_along_several_axes(name):
    layer = MultiHeadAttention(**SIZES, **{name: 2 if name == "sliding_window" else RotaryEmbedding()})
    message = rf"`{name}` needs one axis to count positions along. Received: attention over the axes \(1, 2\) of inputs"
    with pytest.raises(ValueError, match=message):
        layer.build((2, 3, 4, 5), (2, 3, 4, 5))


def test_refuses_a_causal_mask_over_several_axes(arrays):
    x = arrays(image=(2, 3, 4, 5))
    layer = MultiHeadAttention(**SIZES)
    with pytest.raises(ValueError, match=r"`use_causal_mask` needs one axis to count positions along.*\(1, 2\)"):
        layer(x.image, x.image, use_causal_mask=True)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("query_mask", (2, 4), r"`query_mask` must have the first axes of .*\(2, 4\)"),
        ("value_mask", (2, 3), r"`value_mask` must have the first axes of .*\(2, 3\)"),
        ("key_mask", (3, 4), r"`key_mask` must have the first axes of .*\(3, 4\)"),
        ("attention_mask", (4,), r"`attention_mask` must have 2 to 4 axes.*of shape \(4,\)"),
        ("attention_mask", (2, 4, 3), r"`attention_mask` must fit \(batch, heads, queries, keys\)"),
        ("attention_mask", (2, 3, 3, 4), r"`attention_mask` must fit .*, here \(2, 8, 3, 4\).*of shape \(2, 3, 3, 4\)"),
    ],
)
def test_refuses_masks(arrays, name, shape, message):
    x = arrays(query=QUERY, value=VALUE, key=KEY)
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(**SIZES)(x.query, x.value, x.key, **{name: np.ones(shape, bool)})


def test_refuses_rotary_positions_of_odd_heads(arrays):
    x = arrays(query=QUERY, value=VALUE)
    layer = MultiHeadAttention(2, 3, rotary_embedding=RotaryEmbedding())
    with pytest.raises(ValueError, match="must be even"):
        layer(x.query, x.value)


@pytest.mark.parametrize("part", ["project_memory", "step"])
def test_parts_of_a_layer_without_weights_are_refused(part):
    with pytest.raises(ValueError, match=r"^mine has no weights yet; call it once, or `build` it, before its parts\.$"):
        getattr(MultiHeadAttention(2, 3, name="mine"), part)(np.ones((2, 5, 4)))


def test_calls_of_other_layers_are_refused_by_what_this_one_takes(arrays):
    x, layer = arrays(query=(2, 3, 8), value=(2, 5, 8)), MultiHeadAttention(2, 4)
    with pytest.raises(ValueError, match=r"^MultiHeadAttention takes its inputs one by one, .*: a list of 2$"):
        layer([x.query, x.value])
    with pytest.raises(ValueError, match=r"^MultiHeadAttention has no `mask`: give `value_mask` \(B, S\) for the keys"):
        layer(x.query, x.value, mask=np.ones((2, 5), bool))
