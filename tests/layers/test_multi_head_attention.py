"""MultiHeadAttention; test_multi_head_attention_dropin.py compares it with Keras' layer."""

import importlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

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


def randomized(*shapes, weights_seed=0, **arguments):
    """A built layer, none of its weights zero."""
    layer = MultiHeadAttention(**{**SIZES, **arguments})
    layer.build(*shapes)
    random = np.random.default_rng(weights_seed)
    layer.set_weights([random.normal(0, 0.4, weight.shape) for weight in layer.weights])
    return layer


def close(results, expected, tolerance=3e-6):
    assert results.shape == expected.shape
    np.testing.assert_allclose(results, expected, rtol=tolerance, atol=tolerance * max(1, np.abs(expected).max()))


def by_the_paper(layer, softmax, query, value, key, mask=True):
    """Output and weights in NumPy, head by head."""
    names = {"/".join(weight.path.split("/")[-2:]): weight.numpy().astype("float64") for weight in layer.weights}

    def projected(name, inputs):
        return np.einsum("btd,dhx->bhtx", inputs, names[f"{name}/kernel"]) + names[f"{name}/bias"][:, None]

    queries, keys, values = projected("query", query), projected("key", key), projected("value", value)
    shared = layer.num_heads // keys.shape[1]
    contexts, weights = [], []
    for head in range(layer.num_heads):
        scores = queries[:, head] @ keys[:, head // shared].swapaxes(1, 2) / np.sqrt(layer.key_dim)
        allowed = mask if np.ndim(mask) < 4 else np.broadcast_to(mask, (len(query), layer.num_heads, *scores.shape[1:]))
        weights.append(softmax(scores, allowed if np.ndim(mask) < 4 else allowed[:, head]))
        contexts.append(weights[-1] @ values[:, head // shared])
    context = np.stack(contexts, 2)
    if layer.use_gate:
        gate = np.einsum("btd,dhx->bthx", query, names["gate/kernel"]) + names["gate/bias"]
        context = context / (1 + np.exp(-gate))
    output = np.einsum("bthx,hxo->bto", context, names["attention_output/kernel"]) + names["attention_output/bias"]
    return output, np.stack(weights, 1)


def identity_layer(width, **arguments):
    """One head, all projections identities."""
    layer = MultiHeadAttention(1, width, use_bias=False, **arguments)
    layer.build((None, None, width), (None, None, width))
    layer.set_weights([np.eye(width).reshape(weight.shape) for weight in layer.weights])
    return layer


@pytest.mark.parametrize("groups", [None, 4, 1])
@pytest.mark.parametrize("use_gate", [False, True], ids=["plain", "gate"])
def test_computes_what_the_paper_says(arrays, numpy_softmax, groups, use_gate):
    x = arrays(query=QUERY, value=VALUE, key=KEY)
    layer = randomized(QUERY, VALUE, KEY, value_dim=10, num_key_value_heads=groups, use_gate=use_gate)
    shapes = [tuple(weight.shape) for weight in layer.weights]
    assert shapes[2] == (7, groups or 8, 9) and shapes[-4] == (6, groups or 8, 10)
    mask = PAIRS & KEY_MASK[:, None]
    output, weights = layer(
        x.query, x.value, x.key, attention_mask=PAIRS, key_mask=KEY_MASK, return_attention_scores=True
    )
    expected, expected_weights = by_the_paper(layer, numpy_softmax, x.query, x.value, x.key, mask)
    close(weights, expected_weights)
    close(output, expected)


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


@pytest.mark.parametrize("flash_attention", [None, False])
def test_layer_check(layer_check, arrays, flash_attention):
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
            "flash_attention": flash_attention,
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
        },
        outputs=[(2, 3, 11, 12), (2, 8, 3, 4)],
        options={"return_attention_scores": True},
    )


def test_configuration_is_plain_and_complete():
    layer = MultiHeadAttention(4, 6, output_shape=[7, 8], attention_axes=[1], rotary_embedding=RotaryEmbedding(7.0))
    config = layer.get_config()
    assert config["output_shape"] == (7, 8) and config["attention_axes"] == (1,)
    copy = MultiHeadAttention.from_config(config)
    assert copy.rotary_embedding.max_wavelength == 7.0 and copy.rotary_embedding is not layer.rotary_embedding
    assert MultiHeadAttention(4, 6).get_config()["value_dim"] == 6
    assert MultiHeadAttention(4, 6).get_config()["rotary_embedding"] is None
    plain = dict(
        num_heads=4, key_dim=6, value_dim=7, dropout=0.5, use_bias=False, sliding_window=3, flash_attention=False,
        use_gate=True, seed=9, num_key_value_heads=2,
    )  # fmt: skip
    assert plain.items() <= MultiHeadAttention(**plain).get_config().items()
    # Not in Keras' configuration, and as good as None.
    del config["rotary_embedding"], config["num_key_value_heads"]
    assert MultiHeadAttention.from_config(config).rotary_embedding is None


# Nothing to attend to


NOTHING = {
    "pairs": {"attention_mask": np.array([[[True] * 4, [False] * 4, [True] * 4]] * 2)},
    "pairs of one head": {"attention_mask": np.arange(3)[None, None, :, None].repeat(8, 1) != 1},
    "keys": {"key_mask": np.array([[True] * 4, [False] * 4])},
    "values": {"value_mask": np.array([[True] * 4, [False] * 4])},
    "keys and values": {
        "key_mask": np.array([[True] * 4, [True, False, True, False]]),
        "value_mask": np.array([[True] * 4, [False, True, False, True]]),
    },
    "queries": {"query_mask": np.array([[True, False, True], [True, True, True]])},
    "all": {"query_mask": np.zeros((2, 3), bool), "use_causal_mask": True},
    "causal": {"attention_mask": np.array([[[False, True, True, True]]]), "use_causal_mask": True},
}
EMPTY = {
    "pairs": [[False, True, False]] * 2,
    "pairs of one head": [[False, True, False]] * 2,
    "keys": [[False] * 3, [True] * 3],
    "values": [[False] * 3, [True] * 3],
    "keys and values": [[False] * 3, [True] * 3],
    "queries": [[False, True, False], [False] * 3],
    "all": [[True] * 3] * 2,
    "causal": [[True, False, False]] * 2,
}


@pytest.mark.parametrize("reason", NOTHING)
def test_a_query_with_nothing_to_attend_to_gives_the_bias(arrays, numpy_softmax, reason):
    """Which masks make it so; that every way of attention obeys them is proved for the function."""
    x = arrays(query=QUERY, value=VALUE, key=KEY)
    layer = randomized(QUERY, VALUE, KEY)
    options, empty = NOTHING[reason], np.array(EMPTY[reason])
    output, weights = layer(x.query, x.value, x.key, return_attention_scores=True, **options)
    np.testing.assert_array_equal(np.any(weights, (1, 3)), ~empty)
    np.testing.assert_array_equal(output.numpy()[empty], np.tile(layer.output_dense.bias, (empty.sum(), 1)))
    close(layer(x.query, x.value, x.key, **options), output)
    # And the others as ever.
    free = [options.get(name, np.ones((2, 4), bool)) for name in ("key_mask", "value_mask")]
    pairs = options.get("attention_mask", np.ones((1, 1), bool))
    mask = (free[0] & free[1])[:, None, None] & (pairs[:, None] if pairs.ndim == 3 else pairs)
    mask = mask & (np.tri(3, 4, dtype=bool) if "use_causal_mask" in options else True) & ~empty[:, None, :, None]
    expected, _ = by_the_paper(layer, numpy_softmax, x.query, x.value, x.key, np.broadcast_to(mask, (2, 8, 3, 4)))
    close(output, expected)


def test_a_window_may_leave_queries_after_the_last_key_nothing(arrays):
    x = arrays(query=(2, 6, 5), value=(2, 3, 4))
    layer = randomized((2, 6, 5), (2, 3, 4), sliding_window=2)
    output, weights = layer(x.query, x.value, return_attention_scores=True)
    allowed = np.abs(np.arange(6)[:, None] - np.arange(3)) < 2
    np.testing.assert_array_equal(weights > 0, np.broadcast_to(allowed, weights.shape))
    np.testing.assert_array_equal(output[:, 4:], np.tile(layer.output_dense.bias, (2, 2, 1)))
    close(layer(x.query, x.value), output)


# Masks that Keras attaches


def embedded(ids, width=5):
    normal = keras.initializers.RandomNormal(stddev=1, seed=width)
    return keras.layers.Embedding(9, width, mask_zero=True, embeddings_initializer=normal)(ids)


@pytest.mark.filterwarnings("error::UserWarning")
def test_implicit_masks_do_what_explicit_ones_do():
    ids, other_ids = np.array([[1, 2, 3, 0], [4, 5, 0, 0]]), np.array([[7, 8, 0], [6, 0, 0]])
    query, value = embedded(ids), embedded(other_ids, 6)
    layer = randomized(query.shape, value.shape)
    bare_query, bare_value = tf.identity(query), tf.identity(value)
    expected = layer(bare_query, bare_value, query_mask=ids != 0, value_mask=other_ids != 0)
    assert np.abs(expected - layer(bare_query, bare_value))[:, 0].max() > 1e-3
    result = layer(query, value)
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(result._keras_mask, ids != 0)
    # The inputs keep theirs, for whatever takes them next.
    np.testing.assert_array_equal(query._keras_mask, ids != 0)
    np.testing.assert_array_equal(value._keras_mask, other_ids != 0)
    # Of a key too, which may have another.
    key = embedded(np.array([[7, 0, 2], [6, 2, 0]]), 6)
    with_key = layer(bare_query, bare_value, tf.identity(key), query_mask=ids != 0, key_mask=key._keras_mask)
    np.testing.assert_array_equal(layer(query, tf.identity(value), key), with_key)
    both = layer(
        bare_query,
        bare_value,
        tf.identity(key),
        query_mask=ids != 0,
        value_mask=other_ids != 0,
        key_mask=key._keras_mask,
    )
    np.testing.assert_array_equal(layer(query, value, key), both)
    assert np.abs(both - with_key).max() > 1e-4


def test_explicit_masks_are_preferred():
    ids, other_ids = np.array([[1, 2, 3, 0], [4, 5, 0, 0]]), np.array([[7, 8, 0], [6, 0, 0]])
    query, value, key = embedded(ids), embedded(other_ids, 6), embedded(other_ids, 7)
    layer = randomized(query.shape, value.shape, key.shape)
    bare = [tf.identity(each) for each in (query, value, key)]
    masks = {
        "query_mask": np.array([[False, True, True, True], [True, True, True, False]]),
        "value_mask": np.array([[True, True, True], [False, True, True]]),
        "key_mask": np.array([[False, True, True], [True, False, True]]),
    }
    np.testing.assert_array_equal(layer(query, value, key, **masks), layer(*bare, **masks))
    for name, mask in masks.items():
        implicit = {"query_mask": ids != 0, "value_mask": other_ids != 0, "key_mask": other_ids != 0}
        expected = layer(*bare, **{**implicit, name: mask})
        np.testing.assert_array_equal(layer(query, value, key, **{name: mask}), expected)
        assert np.abs(expected - layer(*bare, **implicit)).max() > 1e-4


@pytest.mark.filterwarnings("error::UserWarning")
def test_models_pass_the_querys_mask_on(arrays):
    ids = np.array([[1, 2, 3, 0, 0], [4, 5, 6, 7, 8]])
    inputs = keras.Input((None,), dtype="int32")
    vectors = keras.layers.Embedding(9, 6, mask_zero=True)(inputs)
    attended = MultiHeadAttention(2, 3, use_gate=True, name="attention")(vectors, vectors, use_causal_mask=True)
    pooled = keras.layers.GlobalAveragePooling1D()(attended)
    model = keras.Model(inputs, [attended, pooled, keras.layers.Dense(1)(pooled)])
    assert attended.shape == (None, None, 6)
    outputs = model(ids)
    np.testing.assert_allclose(outputs[1][0], np.mean(outputs[0][0, :3], 0), atol=1e-6)
    np.testing.assert_allclose(outputs[1][1], np.mean(outputs[0][1], 0), atol=1e-6)
    # So padding changes nothing, in the gradients of a compiled fit neither.
    final = keras.Model(inputs, model.outputs[2])
    random = np.random.default_rng(0)
    start, ends = [random.normal(0, 0.5, weight.shape) for weight in final.weights], []
    for padding in (0, 3):
        final.set_weights(start)
        final.compile(keras.optimizers.SGD(0.1), "mse")
        final.fit(np.pad(ids, ((0, 0), (0, padding))), np.ones((2, 1)), epochs=2, verbose=0)
        ends.append(final.get_weights())
    for weight, padded in zip(*ends, strict=True):
        np.testing.assert_allclose(weight, padded, atol=1e-5)
    assert np.abs(ends[0][1] - start[1]).max() > 1e-3


# Properties

SEEDS = st.integers(0, 2**16)
FEW = settings(max_examples=8, deadline=None)


def layers(**fixed):
    """Arguments, for `made`."""
    arguments = {
        "value_dim": st.sampled_from([3, 4]),
        "num_key_value_heads": st.sampled_from([None, 1, 2]),
        "use_gate": st.booleans(),
        "sliding_window": st.sampled_from([None, 1, 2, 4]),
        "rotary": st.booleans(),
        "weights_seed": SEEDS,
    }
    return st.fixed_dictionaries({**arguments, **{name: st.just(value) for name, value in fixed.items()}})


def made(rotary, dtype=None, **arguments):
    if rotary:
        arguments["rotary_embedding"] = RotaryEmbedding(20.0, dtype=dtype)
    return randomized((None, None, 6), (None, None, 6), num_heads=4, key_dim=4, dtype=dtype, **arguments)


@FEW
@given(layers(), st.data())
def test_causal_attention_does_not_see_the_future(arguments, data):
    layer = made(**arguments)
    length = data.draw(st.integers(2, 7))
    position = data.draw(st.integers(1, length - 1))
    x = np.random.default_rng(data.draw(SEEDS)).normal(size=(2, length, 6)).astype("float32")
    changed = x.copy()
    changed[:, position:] += 1
    before, after = layer(x, x, use_causal_mask=True), layer(changed, changed, use_causal_mask=True)
    np.testing.assert_allclose(before[:, :position], after[:, :position], atol=1e-6)
    assert np.abs(before[:, position] - after[:, position]).min() > 0


@FEW
@given(layers(sliding_window=None, rotary=False), SEEDS)
def test_the_order_of_keys_changes_nothing_and_that_of_queries_the_order(arguments, seed):
    layer = made(**arguments)
    random = np.random.default_rng(seed)
    query, value = (random.normal(size=(2, n, 6)).astype("float32") for n in (3, 5))
    mask, query_mask = random.random((2, 3, 5)) > 0.4, random.random((2, 3)) > 0.4
    expected = layer(query, value, attention_mask=mask, query_mask=query_mask)
    order, places = random.permutation(3), random.permutation(5)
    result = layer(
        query[:, order], value[:, places], attention_mask=mask[:, order][..., places], query_mask=query_mask[:, order]
    )
    close(result, np.array(expected)[:, order])


@FEW
@given(layers(), st.booleans(), SEEDS)
def test_padded_rows_are_as_alone(arguments, use_causal_mask, seed):
    layer = made(**arguments)
    random = np.random.default_rng(seed)
    lengths, memory_lengths = random.integers(1, 6, 3), random.integers(1, 8, 3)
    query, value = (random.normal(size=(3, n, 6)).astype("float32") for n in (5, 7))
    masks = {"query_mask": np.arange(5) < lengths[:, None], "value_mask": np.arange(7) < memory_lengths[:, None]}
    batch, weights = layer(query, value, **masks, use_causal_mask=use_causal_mask, return_attention_scores=True)
    close(layer(query, value, **masks, use_causal_mask=use_causal_mask), batch)
    for row, (t, s) in enumerate(zip(lengths, memory_lengths, strict=True)):
        alone, weights_alone = layer(
            query[row : row + 1, :t],
            value[row : row + 1, :s],
            use_causal_mask=use_causal_mask,
            return_attention_scores=True,
        )
        close(batch[row, :t], alone[0])
        close(weights[row, :, :t, :s], weights_alone[0])
        assert not np.any(weights[row, :, t:]) and not np.any(weights[row, :, :, s:])


@FEW
@given(layers(), st.data())
def test_steps_give_what_the_whole_gives(arguments, data):
    layer = made(**arguments)
    length = data.draw(st.integers(1, 8))
    x = np.random.default_rng(data.draw(SEEDS)).normal(size=(3, length, 6)).astype("float32")
    mask = data.draw(st.sampled_from([None, "keys", "pairs"]))
    random = np.random.default_rng(data.draw(SEEDS))
    whole, given = {}, None
    if mask == "keys":
        whole["key_mask"] = given = np.arange(length) < random.integers(1, length + 1, (3, 1))
    elif mask == "pairs":
        whole["attention_mask"] = given = random.random((3, length, length)) > 0.3
    expected, expected_weights = layer(x, x, use_causal_mask=True, return_attention_scores=True, **whole)
    cache, done = None, 0
    while done < length:
        end = data.draw(st.integers(done + 1, length))
        part = None if given is None else given[:, :end] if mask == "keys" else given[:, done:end, :end]
        output, new_cache, weights = layer.step(x[:, done:end], cache, mask=part, return_attention_scores=True)
        close(output, expected[:, done:end], 1e-5)
        close(weights, expected_weights[:, :, done:end, :end], 1e-5)
        keys, values = new_cache
        assert keys.shape == (3, layer.num_key_value_heads or 4, end, 4) and values.shape[3] == layer.value_dim
        assert len(layer.step(x[:, done:end], cache, mask=part)) == 2
        cache, done = new_cache, end


@FEW
@given(layers(), st.integers(1, 3), SEEDS)
def test_steps_after_prompts_padded_on_the_left_are_as_without_padding(arguments, portion, seed):
    layer = made(**arguments)
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 4, 3)  # of prompts, padded to 3, and 4 tokens more
    padding = 3 - lengths[:, None]
    x = random.normal(size=(3, 7, 6)).astype("float32")
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


@FEW
@given(layers(), st.sampled_from([None, "keys", "pairs"]), st.booleans(), SEEDS)
def test_attention_to_a_projected_memory_is_the_call(arguments, mask, with_key, seed):
    layer = made(**arguments)
    random = np.random.default_rng(seed)
    query, value, key = (random.normal(size=(3, n, 6)).astype("float32") for n in (4, 5, 5))
    given, whole = None, {}
    if mask == "keys":
        whole["key_mask"] = given = random.random((3, 5)) > 0.4
    elif mask == "pairs":
        whole["attention_mask"] = given = random.random((3, 4, 5)) > 0.4
    memory = layer.project_memory(value, key if with_key else None)
    assert [each.shape[1:3] for each in memory] == [(layer.num_key_value_heads or 4, 5)] * 2
    output, weights = layer.attend(query, memory, given, return_attention_scores=True)
    expected, expected_weights = layer(query, value, key if with_key else None, return_attention_scores=True, **whole)
    close(output, expected, 1e-5)
    close(weights, expected_weights, 1e-5)
    np.testing.assert_array_equal(layer.attend(query, memory, given), output)


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


@FEW
@given(layers(dtype="float64"), st.sampled_from([None, True]), st.booleans(), SEEDS)
def test_gradients_are_finite_differences(arguments, flash_attention, use_causal_mask, seed):
    layer = made(**arguments, flash_attention=flash_attention)
    random = np.random.default_rng(seed)
    values = [random.normal(size=(2, n, 6)) for n in (3, 4, 4)]
    kernels = [np.array(weight) for weight in layer.weights]
    direction = [random.normal(size=each.shape) for each in (*values, *kernels)]
    linear = random.normal(size=(2, 3, 6))
    options = dict(key_mask=random.random((2, 4)) > 0.3, query_mask=random.random((2, 3)) > 0.3)

    def loss(inputs):
        return tf.reduce_sum(layer(*inputs, use_causal_mask=use_causal_mask, training=True, **options) * linear)

    def shifted(epsilon):
        moved = [each + epsilon * step for each, step in zip((*values, *kernels), direction, strict=True)]
        layer.set_weights(moved[3:])
        return float(loss(moved[:3]))

    inputs = [tf.Variable(each) for each in values]
    with tf.GradientTape() as tape:
        total = loss(inputs)
    changes = tape.gradient(total, [*inputs, *layer.trainable_weights], unconnected_gradients="zero")
    slope = sum(np.sum(change * step) for change, step in zip(changes, direction, strict=True))
    numeric = (shifted(1e-5) - shifted(-1e-5)) / 2e-5
    np.testing.assert_allclose(slope, numeric, rtol=1e-6, atol=1e-6)


# Blocks


@pytest.fixture
def blocks(monkeypatch):
    """The number of times that attention was computed in blocks."""
    calls, forward = [], blockwise_attention.forward

    def counted(*args):
        calls.append(args)
        return forward(*args)

    monkeypatch.setattr(blockwise_attention, "forward", counted)
    return calls


def test_blocks_are_chosen_for_many_scores(arrays, blocks, monkeypatch):
    x = arrays(query=QUERY, value=VALUE)
    layer = randomized(QUERY, VALUE)
    expected = layer(x.query, x.value)
    assert not blocks
    monkeypatch.setattr(sdpa, "BLOCK", 2)
    monkeypatch.setattr(sdpa, "LARGE", 2 * 8 * 3 * 4)
    layer(x.query, x.value)
    assert not blocks
    monkeypatch.setattr(sdpa, "LARGE", 2 * 8 * 3 * 4 - 1)
    close(layer(x.query, x.value), expected)
    assert len(blocks) == 1
    # Never when weights are asked for, or blocks refused.
    close(layer(x.query, x.value, return_attention_scores=True)[0], expected)
    close(randomized(QUERY, VALUE, flash_attention=False)(x.query, x.value), expected)
    assert len(blocks) == 1


def test_blocks_are_taken_when_told(arrays, blocks):
    x = arrays(query=QUERY, value=VALUE)
    randomized(QUERY, VALUE, flash_attention=True)(x.query, x.value)
    assert len(blocks) == 1


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


def test_an_export_has_no_custom_gradients(tmp_path, caplog):
    inputs = keras.Input((5, 6))
    model = keras.Model(inputs, MultiHeadAttention(2, 3)(inputs, inputs))
    model.export(tmp_path / "1", verbose=False)
    tf.saved_model.load(tmp_path / "1")
    assert "custom gradient" not in caplog.text


def test_gradients_can_be_differentiated_but_in_blocks(arrays):
    x = arrays(query=QUERY, value=VALUE)
    query = tf.Variable(x.query)

    def second(flash_attention):
        layer = randomized(QUERY, VALUE, flash_attention=flash_attention)
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                loss = tf.reduce_sum(layer(query, x.value, training=True) ** 2)
            change = tf.reduce_sum(inner.gradient(loss, query) ** 2)
        return outer.gradient(change, query)

    assert np.abs(second(False)).max() > 1e-3
    close(second(None), second(False), 1e-5)
    with pytest.raises(NotImplementedError, match="With `flash_attention=False` attention is computed as a whole"):
        second(True)


# Dropout


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
    np.testing.assert_array_equal(plain[0], expected[0])
    first, second = call(training=True), call(training=True)
    assert np.abs(first[0] - plain[0]).max() > 0.05 and np.abs(first[0] - second[0]).max() > 0.05
    np.testing.assert_array_equal(again(training=True)[0], first[0])
    np.testing.assert_array_equal(again(training=True)[0], second[0])
    assert np.abs(other(training=True)[0] - first[0]).max() > 0.05
    if scores:  # those before dropout
        close(first[1], plain[1])


def test_dropout_drops_its_share():
    size = 40
    layer = identity_layer(size, dropout=0.25, seed=0)
    # Equal scores; values that show which weights are there.
    output = layer(np.zeros((4, 30, size)), np.tile(np.eye(size), (4, 1, 1)), training=True)
    shares = np.array(output) * size  # 4800 numbers: a share of 0.25 has a standard deviation of 0.006
    np.testing.assert_allclose(np.unique(np.round(shares, 4)), [0, 1.3333])
    np.testing.assert_allclose(np.mean(shares == 0), 0.25, atol=0.03)


def test_numbers_of_numpy_are_taken_and_saved_as_pythons():
    layer = MultiHeadAttention(np.int64(4), np.int32(6), dropout=np.float32(0.25))
    config = layer.get_config()
    assert (config["num_heads"], config["key_dim"], config["dropout"]) == (4, 6, 0.25)
    assert [type(config[name]) for name in ("num_heads", "key_dim", "dropout")] == [int, int, float]


def test_dropout_of_zero_is_none(arrays):
    x = arrays(query=QUERY, value=VALUE)
    layer = randomized(QUERY, VALUE)
    np.testing.assert_array_equal(layer(x.query, x.value, training=True), layer(x.query, x.value))


# Precision


@pytest.mark.parametrize("path", ["whole", "weights", "attend"])
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_scores_are_computed_in_float32(policy, path):
    """Scores that their compute type would round, of inputs that it holds exactly."""
    # Two features more or less: with key_dim 2 the scale, a root of one half, is not exact either.
    layer = identity_layer(2, dtype=policy)
    size = 48 if policy == "mixed_bfloat16" else 96
    query = np.array([[[size + 0.25, size + 0.5]]])
    keys = np.array([[[size, -size], [size, -size + 0.25], [size + 0.5, -size]]])
    expected = np.exp(query @ keys.swapaxes(1, 2) / np.sqrt(2))
    expected /= expected.sum()
    # The values, not the keys, in the type's range.
    values = np.array([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]])
    if path == "attend":
        memory = layer.project_memory(values, keys)
        assert memory[0].dtype == memory[1].dtype == layer.compute_dtype
        output, weights = layer.attend(query, memory, return_attention_scores=True)
        np.testing.assert_allclose(weights[0, 0], expected[0], rtol=1e-3)
    elif path == "weights":
        output, weights = layer(query, values, keys, return_attention_scores=True)
        assert weights.dtype == "float32"
        np.testing.assert_allclose(weights[0, 0], expected[0], rtol=1e-3)
    else:
        output = layer(query, values, keys)
    assert output.dtype == layer.compute_dtype
    np.testing.assert_allclose(tf.cast(output[0, 0], "float32"), expected[0, 0, :2], atol=2**-8)


def test_a_cache_has_the_compute_dtype_whatever_the_rotary_embedding_has():
    layer = randomized((2, 3, 6), (2, 3, 6), key_dim=4, dtype="mixed_bfloat16", rotary_embedding=RotaryEmbedding())
    output, cache = layer.step(np.ones((2, 3, 6)))
    assert [each.dtype for each in (output, *cache)] == ["bfloat16"] * 3
    assert layer(np.ones((2, 3, 6)), np.ones((2, 3, 6))).dtype == "bfloat16"


@pytest.mark.parametrize("flash_attention", [None, True, False])
def test_float64_is_computed_in_float64(numpy_softmax, flash_attention):
    random = np.random.default_rng(0)
    query, value, key = (random.normal(size=shape) for shape in (QUERY, VALUE, KEY))
    layer = randomized(QUERY, VALUE, KEY, dtype="float64", flash_attention=flash_attention)
    output, weights = by_the_paper(layer, numpy_softmax, query, value, key)
    result = layer(query, value, key)
    assert result.dtype == "float64"
    np.testing.assert_allclose(result, output, rtol=1e-11)
    if not flash_attention:
        results = layer(query, value, key, return_attention_scores=True)
        assert results[1].dtype == "float64"
        np.testing.assert_allclose(results[1], weights, rtol=1e-11)
        inputs = (keras.Input(shape[1:], dtype="float64") for shape in (QUERY, VALUE, KEY))
        assert [each.dtype for each in layer(*inputs, return_attention_scores=True)] == ["float64"] * 2


# Shapes


@pytest.mark.parametrize("flash_attention", [None, True])
@pytest.mark.parametrize("batch, length, memory_length", [(1, 1, 1), (1, 3, 1), (1, 1, 4), (2, 1, 1)])
def test_axes_of_one(arrays, numpy_softmax, batch, length, memory_length, flash_attention):
    x = arrays(query=(batch, length, 5), value=(batch, memory_length, 6))
    layer = randomized(x.query.shape, x.value.shape, flash_attention=flash_attention, num_key_value_heads=1)
    expected, weights = by_the_paper(layer, numpy_softmax, x.query, x.value, x.value)
    close(layer(x.query, x.value), expected)
    if not flash_attention:
        close(layer(x.query, x.value, return_attention_scores=True)[1], weights)


@pytest.mark.parametrize("axes", [(1,), (2,), (1, 3), (3, 1)], ids=str)
def test_attention_axes_are_those_of_rows_alone(arrays, axes):
    """Rank 5, slice by slice through the layer for sequences; Keras' softmax has no room for the first two."""
    x = arrays(query=(2, 3, 4, 5, 6), value=(2, *(7 if 1 in axes else 3, 8 if 2 in axes else 4), 5, 6))
    layer = randomized(x.query.shape, x.value.shape, attention_axes=axes, num_heads=2, use_gate=True)
    flat = randomized((2, 3, 6), (2, 3, 6), num_heads=2, use_gate=True)
    others = [axis for axis in (1, 2, 3) if axis not in axes]
    query_mask = np.random.default_rng(0).random(x.query.shape[:-1]) > 0.2
    value_mask = np.random.default_rng(1).random(x.value.shape[:-1]) > 0.2
    output, weights = layer(
        x.query, x.value, query_mask=query_mask, value_mask=value_mask, return_attention_scores=True
    )
    for place in np.ndindex(*(x.query.shape[axis] for axis in others)):

        def part(array, place=place):
            array = np.moveaxis(array, others, range(1, 1 + len(others)))[:, *place]
            if axes == (3, 1):
                array = array.swapaxes(1, 2)
            return array.reshape(2, -1, *array.shape[1 + len(axes) :])

        expected, expected_weights = flat(
            part(x.query), part(x.value), query_mask=part(query_mask), value_mask=part(value_mask),
            return_attention_scores=True,
        )  # fmt: skip
        close(part(np.array(output)), expected)
        close(np.array(weights)[:, *place].reshape(expected_weights.shape), expected_weights)


def test_symbolic_weights_have_the_lengths_of_query_and_key():
    layer = MultiHeadAttention(**SIZES)
    _, weights = layer(keras.Input((3, 5)), keras.Input((4, 6)), return_attention_scores=True)
    assert weights.shape == (None, 8, 3, 4)
    layer = MultiHeadAttention(**SIZES, attention_axes=2)
    _, weights = layer(keras.Input((3, 4, 5)), keras.Input((3, 7, 5)), return_attention_scores=True)
    assert weights.shape == (None, 3, 8, 4, 7)


def test_a_mask_of_an_image_may_leave_out_its_last_axes(arrays):
    x = arrays(image=(2, 3, 4, 5))
    layer = randomized(x.image.shape, x.image.shape)
    mask = np.array([[True, True, False], [False, True, True]])
    whole = np.broadcast_to(mask[:, :, None], (2, 3, 4))
    expected = layer(x.image, x.image, value_mask=whole)
    np.testing.assert_array_equal(layer(x.image, x.image, value_mask=mask), expected)
    assert np.abs(expected - layer(x.image, x.image)).max() > 1e-3


@pytest.mark.parametrize("rule", ["causal", "window", "rotary"])
def test_positions_count_along_the_axis_attended_over(arrays, rule):
    x = arrays(image=(2, 3, 4, 5))
    arguments = {
        "causal": {},
        "window": {"sliding_window": 2},
        "rotary": {"rotary_embedding": RotaryEmbedding(9.0), "key_dim": 4},
    }[rule]
    options = {"use_causal_mask": rule == "causal"}
    shape = x.image.shape
    layer, flat = randomized(shape, shape, attention_axes=2, **arguments), randomized((2, 4, 5), (2, 4, 5), **arguments)
    output = layer(x.image, x.image, **options)
    for row in range(3):
        close(output[:, row], flat(x.image[:, row], x.image[:, row], **options))
    assert (
        np.abs(
            output - randomized(shape, shape, attention_axes=2, key_dim=arguments.get("key_dim", 9))(x.image, x.image)
        ).max()
        > 1e-3
    )


def test_steps_of_unknown_sizes_in_a_graph(arrays):
    x = arrays(inputs=(2, 5, 6))
    layer = randomized((2, 5, 6), (2, 5, 6), num_key_value_heads=2, key_dim=4, rotary_embedding=RotaryEmbedding(9.0))

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None, 6]), tf.TensorSpec([None, 2, None, 4]), tf.TensorSpec([None, 2, None, 4]),
        ],
    )  # fmt: skip
    def step(inputs, keys, values):
        return layer.step(inputs, (keys, values))

    cache, outputs = (np.zeros((2, 2, 0, 4), "float32"),) * 2, []
    for part in (x.inputs[:, :3], x.inputs[:, 3:4], x.inputs[:, 4:]):
        output, cache = step(part, *cache)
        outputs.append(output)
    close(np.concatenate(outputs, 1), layer(x.inputs, x.inputs, use_causal_mask=True), 1e-5)


# Refusals


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_heads": 0}, "The argument `num_heads` must be a positive integer. Received: num_heads=0"),
        ({"num_heads": True}, "The argument `num_heads` must be a positive integer. Received: num_heads=True"),
        ({"key_dim": 2.0}, "The argument `key_dim` must be a positive integer. Received: key_dim=2.0"),
        ({"value_dim": 0}, "The argument `value_dim` must be a positive integer. Received: value_dim=0"),
        (
            {"rotary_embedding": True},
            "`rotary_embedding` must be a layer that rotates heads, such as `RotaryEmbedding()`, or None. "
            "Received: rotary_embedding=True",
        ),
        ({"dropout": 1}, "`dropout` must be at least 0 and below 1. Received: dropout=1"),
        ({"sliding_window": 0}, "`sliding_window` must be a positive integer. Received: sliding_window=0"),
        ({"output_shape": 0}, "`output_shape` must be a positive integer. Received: output_shape=0"),
        ({"output_shape": (3, 0)}, "`output_shape` must be a positive integer. Received: output_shape=0"),
        ({"output_shape": ()}, "Invalid `output_shape`: it must be an integer or several. Received: output_shape=()"),
        ({"output_shape": "5"}, "Invalid `output_shape`: it must be an integer or several. Received: output_shape='5'"),
        ({"attention_axes": "1"}, "`attention_axes` must be an integer or several. Received: attention_axes='1'"),
        ({"attention_axes": ()}, "`attention_axes` must be an integer or several. Received: attention_axes=()"),
        (
            {"attention_axes": (1, 2.0)},
            "`attention_axes` must be an integer or several. Received: attention_axes=(1, 2.0)",
        ),
        (
            {"num_key_value_heads": 0},
            "`num_key_value_heads` must be a positive integer. Received: num_key_value_heads=0",
        ),
        (
            {"num_key_value_heads": 3},
            "`num_key_value_heads` must divide `num_heads`. Received: num_key_value_heads=3, num_heads=8",
        ),
        (
            {"num_key_value_heads": 16},
            "`num_key_value_heads` must divide `num_heads`. Received: num_key_value_heads=16, num_heads=8",
        ),
    ],
    ids=str,
)
def test_refuses_arguments(arguments, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        MultiHeadAttention(**{**SIZES, **arguments})


@pytest.mark.parametrize(
    "arguments, shapes, message",
    [
        (
            {},
            [(2, 3, 5), (2, 3, 4, 6)],
            r"must all be of rank 3\. Received shapes: query \(2, 3, 5\), value \(2, 3, 4, 6\)",
        ),
        ({}, [(2, 3, 5), (2, 4, 6), (2, 4)], r"must all be of rank 3"),
        (
            {},
            [(2, 3, 5), (2, 4, 6), (2, 9, 7)],
            r"All axes of value and key but the last must be equal.*key \(2, 9, 7\)",
        ),
        ({}, [(2, 3, 5), (9, 4, 6)], r"Query and value must be equal in the axes \(0,\).*value \(9, 4, 6\)"),
        ({"attention_axes": 2}, [(2, 3, 4, 5), (2, 9, 4, 5)], r"must be equal in the axes \(0, 1\)"),
        ({"attention_axes": 0}, [QUERY, VALUE], r"`attention_axes` must be different axes.*attention_axes=\(0,\)"),
        ({"attention_axes": 2}, [QUERY, VALUE], r"between the first \(batch\) and the last.*rank 3.*=\(2,\)"),
        ({"attention_axes": (1, -2)}, [QUERY, VALUE], r"`attention_axes` must be different axes.*=\(1, -2\)"),
        ({}, [(2, 5), (2, 6)], r"`attention_axes` must be different axes.*of inputs of rank 2"),
    ],
    ids=str,
)
def test_refuses_shapes(arguments, shapes, message):
    layer = MultiHeadAttention(**SIZES, **arguments)
    with pytest.raises(ValueError, match=message):
        layer.build(*shapes)
    with pytest.raises(ValueError, match=message):
        layer.compute_output_shape(*shapes)


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
    "options, message",
    [
        ({"query_mask": np.ones((2, 4), bool)}, r"`query_mask` must have the first axes of .*\(2, 4\)"),
        ({"value_mask": np.ones((2, 3), bool)}, r"`value_mask` must have the first axes of .*\(2, 3\)"),
        (
            {"key_mask": np.ones((3, 4), bool)},
            r"`key_mask` must have the first axes of .*\(3, 4\)",
        ),
        ({"key_mask": np.ones((2, 4, 7), bool)}, r"`key_mask` must have the first axes of .*\(2, 4, 7\)"),
        ({"attention_mask": np.ones(4, bool)}, r"`attention_mask` must have 2 to 4 axes.*of shape \(4,\)"),
        ({"attention_mask": np.ones((1,) * 5, bool)}, r"`attention_mask` must have 2 to 4 axes"),
        ({"attention_mask": np.ones((2, 4, 3), bool)}, r"`attention_mask` must fit \(batch, heads, queries, keys\)"),
        ({"attention_mask": np.ones((3, 1, 3, 4), bool)}, r"`attention_mask` must fit.*\(3, 1, 3, 4\)"),
    ],
    ids=lambda each: str(each)[:20] if isinstance(each, str) else " ".join(f"{k}{v.shape}" for k, v in each.items()),
)
def test_refuses_masks(arrays, options, message):
    x = arrays(query=QUERY, value=VALUE, key=KEY)
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(**SIZES)(x.query, x.value, x.key, **options)


def test_refuses_inputs_that_do_not_fit_each_other(arrays):
    x = arrays(query=QUERY, value=VALUE, key=(2, 9, 7))
    layer = randomized(QUERY, VALUE, KEY)
    with pytest.raises(ValueError, match="All axes of value and key but the last must be equal"):
        layer(x.query, x.value, x.key)


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
