"""Attention in one piece and in blocks, both by way of the function that chooses between them."""

import functools
import importlib
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.layers.functions import blockwise_attention, forward_only, scaled_dot_product_attention
from zoo.layers.functions.masks import AttentionMask
from zoo.layers.functions.random import DropoutMask
from zoo.layers.functions.tensors import heads_first

# The function of this name hides its module from an ordinary import.
MODULE = importlib.import_module("zoo.layers.functions.scaled_dot_product_attention")

WAYS = {
    "plain": dict(blockwise=False, hand_gradient=False),
    "by hand": dict(blockwise=None),
    "in blocks": dict(blockwise=True),
}
B, T, S, H, K, D, E = 2, 37, 53, 12, 3, 5, 7  # in blocks of 16: 3 of queries and 4 of keys, of which 11 are padding


@pytest.fixture(autouse=True, scope="module")
def small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blockwise_attention, "BLOCK", 16)
        yield


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


@pytest.fixture
def x(arrays):
    return inputs_of(arrays)


def inputs_of(arrays, length=T, memory_length=S, groups=K):
    """Query, key, value and the gradient of their context."""
    shapes = dict(query=(B, length, H, D), key=(B, memory_length, groups, D))
    return list(vars(arrays(**shapes, value=(B, memory_length, groups, E), grad_output=(B, length, H, E))).values())


def bools(*shape, share=0.6, seed=0):
    return np.random.default_rng((*shape, seed)).random(shape) < share


def everything(length=T, memory_length=S, offset=7):
    """All parts of a mask at once, and among them a query and a sentence that may attend to nothing."""
    pairs, queries, keys = bools(B, 1, length, memory_length), bools(B, length), bools(B, memory_length)
    pairs[:, :, 3] = False
    keys[1, : memory_length // 2] = False
    return dict(pairs=pairs, queries=queries, keys=keys, causal=True, window=20, offset=offset)


def differentiated(x, dtype="float64", **arguments):
    """The context and the gradients of query, key and value."""
    inputs, grad_output = [tf.cast(each, dtype) for each in x[:3]], tf.cast(x[3], dtype)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        context = scaled_dot_product_attention(*inputs, **arguments)
    return [context, *tape.gradient(context, inputs, output_gradients=grad_output)]


def shape_of(x):
    """B, H, T, S."""
    return (*x[0].shape[::2], x[0].shape[1], x[1].shape[1])


def assert_close(results, expected, tolerance=1e-10):
    """All of context and gradients, to so much of the greatest number of each."""
    expected = [expected.context, *expected.gradients] if hasattr(expected, "context") else expected
    for result, before in zip(results, expected, strict=True):
        before = np.array(tf.cast(before, "float64"))
        assert result.shape == before.shape
        scale = max(np.abs(before).max(), 1e-3)
        np.testing.assert_allclose(tf.cast(result, "float64"), before, rtol=0, atol=tolerance * scale)


MASKS = {
    "none": {},
    "keys": dict(keys=bools(B, S)),
    "queries": dict(queries=bools(B, T)),
    "queries and keys": dict(queries=bools(B, T), keys=bools(B, S)),
    "no key for a sentence": dict(keys=np.stack([np.zeros(S, bool), bools(S)])),
    "no query in a sentence": dict(queries=np.stack([bools(T), np.zeros(T, bool)]), causal=True),
    "causal": dict(causal=True),
    "causal after a cache": dict(causal=True, offset=16),
    "window": dict(window=9),
    "window of one": dict(window=1),
    "window after a cache": dict(window=9, offset=30),
    "window beyond all keys": dict(window=9, offset=41),
    "causal window": dict(causal=True, window=17),
    "causal window after a cache": dict(causal=True, window=5, offset=13),
    "causal keys": dict(causal=True, keys=bools(B, S)),
    "pairs": dict(pairs=bools(B, H, T, S)),
    "pairs for all sentences": dict(pairs=bools(1, H, T, S)),
    "pairs for all heads": dict(pairs=bools(B, 1, T, S)),
    "pairs for all queries": dict(pairs=bools(B, H, 1, S)),
    "pairs for all keys": dict(pairs=bools(B, H, T, 1)),
    "one pair for all": dict(pairs=np.array([[[[True]]]])),
    "pairs with queries": dict(pairs=bools(B, H, 1, S), queries=bools(B, T)),
    "rare pairs": dict(pairs=bools(B, H, T, S, share=0.03)),
    "everything": everything(),
    "offset as a tensor": {**everything(), "offset": tf.constant(7)},
    "offset of 64 bits": {**everything(), "offset": tf.constant(7, "int64")},
}


@pytest.mark.parametrize("name", MASKS)
def test_is_attention_with_its_gradients_for_any_mask(x, way, name, numpy_allowed, numpy_attention):
    allowed = numpy_allowed((B, H, T, S), **{**MASKS[name], "offset": int(MASKS[name].get("offset", 0))})
    results = differentiated(x, mask=AttentionMask(**MASKS[name]), **way)
    assert_close(results, numpy_attention(*x[:3], allowed, x[3]))


def test_no_mask_allows_all(x, way):
    assert_close(differentiated(x, **way), differentiated(x, mask=AttentionMask(), **way), 0)


@pytest.mark.parametrize("lengths", [(1, 53), (37, 1), (16, 16), (40, 40), (53, 37), (48, 64), (3, 5)], ids=str)
@pytest.mark.parametrize("name", ["none", "causal", "causal window", "everything"])
def test_any_lengths(arrays, way, lengths, name, numpy_allowed, numpy_attention):
    x = inputs_of(arrays, *lengths)
    parts = MASKS[name]
    if name == "everything":
        parts = {**everything(max(lengths[0], 4), lengths[1]), "offset": max(lengths[1] - lengths[0], 0)}
        parts = {**parts, "pairs": parts["pairs"][:, :, : lengths[0]], "queries": parts["queries"][:, : lengths[0]]}
    expected = numpy_attention(*x[:3], numpy_allowed(shape_of(x), **parts), x[3])
    assert_close(differentiated(x, mask=AttentionMask(**parts), **way), expected)


@pytest.mark.parametrize("groups", [1, 2, 6, 12])
def test_keys_and_values_serve_the_heads_of_their_group(arrays, way, groups, numpy_allowed, numpy_attention):
    x = inputs_of(arrays, groups=groups)
    expected = numpy_attention(*x[:3], numpy_allowed((B, H, T, S), **everything()), x[3])
    assert_close(differentiated(x, mask=AttentionMask(**everything()), **way), expected)


@pytest.mark.parametrize("name", ["no key for a sentence", "no query in a sentence", "everything"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_nothing_to_attend_to_gives_zeros_and_no_gradient(x, way, name, dtype, numpy_allowed):
    nothing = ~numpy_allowed((B, H, T, S), **MASKS[name]).any(axis=-1)
    assert nothing.any(axis=1).any() and not nothing.all(axis=2).all()
    context, of_query, of_key, of_value = differentiated(x, dtype, mask=AttentionMask(**MASKS[name]), **way)
    for result in (context, of_query):
        np.testing.assert_array_equal(np.swapaxes(tf.cast(result, "float32"), 1, 2)[nothing], 0)
    for result, row in itertools.product((of_key, of_value), range(B)):
        size = np.abs(tf.cast(result[row], "float32")).max()
        assert size == 0 if nothing[row].all() else 0 < size < 100


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_results_have_the_type_of_the_inputs(arrays, way, dtype, numpy_allowed, numpy_attention):
    x = [np.array(tf.cast(tf.cast(each, dtype), "float64")) for each in inputs_of(arrays)]
    results = differentiated(x, dtype, mask=AttentionMask(**everything()), **way)
    assert [result.dtype.name for result in results] == [dtype] * 4
    expected = numpy_attention(*x[:3], numpy_allowed((B, H, T, S), **everything()), x[3])
    tolerance = {"float16": 2**-9, "bfloat16": 2**-6, "float32": 2**-20, "float64": 2**-48}[dtype]
    assert_close(results, expected, tolerance)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_in_float32_whatever_the_inputs(arrays, way, dtype):
    # Neither scores of 1.2e5 nor the sum of 4100 equal weights fit the narrow types.
    query, key = (np.full((1, 2, 1, 4), number, "float32") for number in (200.0, 300.0))
    key = np.concatenate([key, -key], axis=1)[:, [0, 2, 1, 3]]
    value = np.array([1.0, 2.0, 4.0, 8.0], "float32")[None, :, None, None]
    context = scaled_dot_product_attention(*(tf.cast(each, dtype) for each in (query, key, value)), **way)
    assert context.dtype == dtype
    np.testing.assert_array_equal(tf.cast(context, "float32"), np.full((1, 2, 1, 1), 2.5))
    zeros = tf.zeros((1, 1, 1, 1), dtype)
    many = tf.cast(tf.range(4100) % 4 == 0, dtype)[None, :, None, None]
    context = scaled_dot_product_attention(zeros, tf.zeros_like(many), many, **way)
    np.testing.assert_allclose(tf.cast(context, "float32")[0, 0, 0, 0], 0.25, rtol=2**-7)


def test_queries_and_keys_may_be_finer_than_values(x, way):
    precise, mask = [tf.constant(each) for each in x[:2]], AttentionMask(causal=True, offset=9)
    context = scaled_dot_product_attention(*precise, tf.cast(x[2], "bfloat16"), mask, **way)
    assert context.dtype == "bfloat16"
    expected = scaled_dot_product_attention(*precise, tf.constant(x[2]), mask, **way)
    np.testing.assert_allclose(tf.cast(context, "float32"), expected, atol=2**-6)


def test_huge_scores_neither_overflow_nor_vanish(way):
    query = np.array([1.0, -1.0]).reshape((1, 2, 1, 1))
    key = np.tile([1.0, 1.0, -1.0], 10).reshape((1, 30, 1, 1))
    value = np.tile([1.0, 3.0, 8.0], 10).reshape((1, 30, 1, 1))
    context = scaled_dot_product_attention(
        *((scale * each).astype("float32") for scale, each in ((1e18, query), (1e18, key), (1, value))), **way
    )
    np.testing.assert_allclose(np.array(context).ravel(), [2, 8], rtol=1e-6)
    results = differentiated([100 * query, 100 * key, value, np.ones((1, 2, 1, 1))], "float32", **way)
    # Of 20 keys to the first query and 10 to the second.
    np.testing.assert_allclose(np.array(results[3]).ravel(), [0.05, 0.05, 0.1] * 10, rtol=2e-3)
    np.testing.assert_allclose(np.array(results[1]).ravel(), [0, 0], atol=0.2)


def test_inputs_may_be_arrays(arrays, way):
    x = inputs_of(arrays)[:3]
    result = scaled_dot_product_attention(*x, **way)
    np.testing.assert_array_equal(result, scaled_dot_product_attention(*map(tf.constant, x), **way))


# Weights.


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("blockwise", [None, False])
def test_weights_come_out_in_float32_at_least(arrays, dtype, blockwise, numpy_allowed, numpy_attention):
    x = [np.array(tf.cast(tf.cast(each, dtype), "float64")) for each in inputs_of(arrays)]
    inputs, mask = [tf.cast(each, dtype) for each in x[:3]], AttentionMask(**everything())
    context, weights = scaled_dot_product_attention(*inputs, mask, return_weights=True, blockwise=blockwise)
    assert (context.dtype, weights.dtype) == (dtype, "float64" if dtype == "float64" else "float32")
    expected = numpy_attention(*x[:3], numpy_allowed((B, H, T, S), **everything()))
    np.testing.assert_allclose(weights, expected.weights, rtol=0, atol=1e-13 if dtype == "float64" else 1e-6)
    np.testing.assert_array_equal(np.array(weights)[expected.weights == 0], 0)
    np.testing.assert_array_equal(
        tf.cast(context, "float64"),
        tf.cast(scaled_dot_product_attention(*inputs, mask, blockwise=False), "float64"),
    )


def test_weights_are_those_before_dropout(x):
    dropout_mask = DropoutMask(0.3, keras.random.SeedGenerator(5))
    _, expected = scaled_dot_product_attention(*x[:3], return_weights=True)
    context, weights = scaled_dot_product_attention(*x[:3], dropout_mask=dropout_mask, return_weights=True)
    np.testing.assert_array_equal(weights, expected)
    np.testing.assert_array_equal(
        context, scaled_dot_product_attention(*x[:3], dropout_mask=dropout_mask, blockwise=False)
    )


def test_weights_have_a_gradient(x):
    query = tf.constant(x[0])
    with tf.GradientTape() as tape:
        tape.watch(query)
        _, weights = scaled_dot_product_attention(query, *x[1:3], AttentionMask(causal=True), return_weights=True)
        first = weights[0, 0, 1, 0]
    gradient = tape.gradient(first, query)
    slope = first * (1 - first) * (x[1][0, 0, 0] - x[1][0, 1, 0]) / 5**0.5  # of two keys the first, before the other
    np.testing.assert_allclose(gradient[0, 1, 0], slope, rtol=1e-5)
    assert np.count_nonzero(gradient) == D


def test_blocks_have_no_weights_to_return(x):
    message = r"never has all weights at once to return\. Received: blockwise=True, return_weights=True$"
    with pytest.raises(ValueError, match=message):
        scaled_dot_product_attention(*x[:3], return_weights=True, blockwise=True)


# Compiled, and with sizes that are known at run time only.


@pytest.mark.parametrize(
    ("blockwise", "compiled"), [(False, False), (None, False), (True, False), (None, True), (True, True)]
)
def test_the_graph_computes_the_same(x, blockwise, compiled):
    expected = differentiated(x, "float32", mask=AttentionMask(**everything()), blockwise=blockwise)

    @functools.partial(tf.function, jit_compile=compiled)
    def call(*x):
        return differentiated(x, "float32", mask=AttentionMask(**everything()), blockwise=blockwise)

    assert_close(call(*x), expected, 2**-20)


PARTS = {"pairs": (None, 1, None, None), "queries": (None, None), "keys": (None, None)}


def with_unknown_sizes(blockwise, dtype="float64", **options):
    """`differentiated` of x and a mask with all parts, for any sizes."""
    specs = [tf.TensorSpec((None, None, heads, width), dtype) for heads, width in ((H, D), (K, D), (K, E), (H, E))]
    parts = {name: tf.TensorSpec(shape, "bool") for name, shape in PARTS.items()}

    @tf.function(input_signature=[specs, {**parts, "offset": tf.TensorSpec((), tf.int32)}], **options)
    def call(x, parts):
        mask = AttentionMask(**parts, causal=True, window=20)
        return differentiated(x, dtype, mask=mask, blockwise=blockwise)

    return call


@pytest.mark.parametrize(
    ("blockwise", "large", "block_size"),
    [(False, 0, 16), (True, 0, 10), (None, 0, 10), (None, 2**26, 16)],
    ids=["by operations", "in blocks", "large", "small"],
)
def test_sizes_may_be_unknown(arrays, blockwise, large, block_size, monkeypatch, numpy_allowed, numpy_attention):
    monkeypatch.setattr(MODULE, "LARGE", large)
    monkeypatch.setattr(blockwise_attention, "BLOCK", block_size)
    call = with_unknown_sizes(blockwise)
    for lengths in ((37, 53), (20, 30), (12, 7)):
        x, parts = inputs_of(arrays, *lengths), everything(*lengths)
        expected = numpy_attention(*x[:3], numpy_allowed(shape_of(x), **parts), x[3])
        given = {name: tf.constant(parts[name]) for name in (*PARTS, "offset")}
        assert_close(call([tf.cast(each, "float64") for each in x], given), expected)
    assert call.experimental_get_tracing_count() == 1


def test_xla_compiles_the_choice_between_the_two(arrays, monkeypatch):
    monkeypatch.setattr(MODULE, "LARGE", B * H * 20 * 20)
    call = with_unknown_sizes(None, "float32", jit_compile=True)
    for lengths in ((20, 20), (20, 33)):
        x, parts = inputs_of(arrays, *lengths), everything(*lengths)
        given = {name: tf.constant(parts[name]) for name in (*PARTS, "offset")}
        expected = differentiated(x, mask=AttentionMask(**parts), blockwise=False)
        assert_close(call(x, given), expected, 2**-18)


def went_in_blocks(query, key, value, specs=(None, None, None)):
    """Whether blocks were chosen: they skip keys that no query may attend to, a whole matrix spreads their NaN."""
    value = np.concatenate([value[:, :16], np.full_like(value[:, 16:], np.nan)], axis=1)

    specs = [tf.TensorSpec(shape or each.shape) for shape, each in zip(specs, (query, key, value), strict=True)]

    @tf.function(input_signature=specs)
    def call(query, key, value):
        return scaled_dot_product_attention(query, key, value, AttentionMask(causal=True))

    context = call(query, key, value)
    assert np.isfinite(context).all() or np.isnan(context).all()
    return bool(np.isfinite(context).all())


SPECS = {
    "known": (None, None, None),
    "unknown": ((None, None, H, D), (None, None, K, D), (None, None, K, E)),
    "batch unknown": ((None, 16, H, D), (None, 48, K, D), (None, 48, K, E)),
    "keys unknown": ((B, 16, H, D), (B, None, K, D), (B, None, K, E)),
    "queries unknown": ((B, None, H, D), (B, 48, K, D), (B, 48, K, E)),
}


@pytest.mark.parametrize("specs", SPECS)
def test_takes_blocks_for_more_scores_than_large(arrays, specs, monkeypatch):
    x = inputs_of(arrays, 16, 48)[:3]
    monkeypatch.setattr(MODULE, "BLOCK", 15)
    for large, blocks in ((B * H * 16 * 48 - 1, True), (B * H * 16 * 48, False)):
        monkeypatch.setattr(MODULE, "LARGE", large)
        assert went_in_blocks(*x, SPECS[specs]) == blocks


@pytest.mark.parametrize("specs", ["known", "batch unknown", "keys unknown"])
def test_takes_no_blocks_for_lengths_of_a_block(arrays, specs, monkeypatch):
    monkeypatch.setattr(MODULE, "LARGE", 0)
    monkeypatch.setattr(MODULE, "BLOCK", 16)
    assert not went_in_blocks(*inputs_of(arrays, 16, 48)[:3], SPECS[specs])
    monkeypatch.setattr(MODULE, "BLOCK", 15)
    assert went_in_blocks(*inputs_of(arrays, 16, 48)[:3], SPECS[specs])


def test_takes_no_blocks_for_a_memory_of_a_block(monkeypatch):
    query, key = np.zeros((1, 1, 48, 1)), np.zeros((1, 1, 16, 1))
    monkeypatch.setattr(MODULE, "LARGE", 0)
    monkeypatch.setattr(MODULE, "BLOCK", 16)
    assert MODULE._is_large(query, key, None) is False
    monkeypatch.setattr(MODULE, "BLOCK", 15)
    assert MODULE._is_large(query, key, None) is True


def test_counts_more_scores_than_an_integer_holds():
    @tf.function(input_signature=[tf.TensorSpec((None, 2, None, 1))] * 2)
    def is_large(query, key):
        return MODULE._is_large(query, key, None)

    # 2 x 50,000^2 is 5e9, and 705,032,704 of 32 bits; 2 x 40,000^2 is negative.
    assert is_large(tf.zeros((1, 2, 50_000, 1)), tf.zeros((1, 2, 50_000, 1)))
    assert is_large(tf.zeros((1, 2, 40_000, 1)), tf.zeros((1, 2, 40_000, 1)))
    assert not is_large(tf.zeros((1, 2, 5_000, 1)), tf.zeros((1, 2, 5_000, 1)))


# A graph that is only computed.


def nodes(function, spec):
    """Every operation of the function's graph, and of the functions that it calls."""
    definition = tf.function(function, input_signature=[spec]).get_concrete_function().graph.as_graph_def()
    return [*definition.node, *(node for each in definition.library.function for node in each.node_def)]


@pytest.mark.parametrize("blockwise", [None, True], ids=["by size", "in blocks"])
@pytest.mark.parametrize("max_length", [None, 16, 17])
def test_forward_only_leaves_out_gradients_and_what_only_longer_sequences_need(x, max_length, blockwise, monkeypatch):
    monkeypatch.setattr(MODULE, "BLOCK", 16)

    def outside(key):
        query = tf.repeat(key, H // K, axis=2)
        return scaled_dot_product_attention(query, key, key, AttentionMask(causal=True), blockwise=blockwise)

    def inside(key):
        with forward_only(max_length):
            return outside(key)

    spec = tf.TensorSpec([None, None, K, D])
    assert any("_gradient_op_type" in node.attr for node in nodes(outside, spec)), "or this test says nothing"
    assert not any("_gradient_op_type" in node.attr for node in nodes(inside, spec))
    loops = any("While" in node.op for node in nodes(inside, spec))
    assert loops == (blockwise is True or max_length != 16)
    np.testing.assert_allclose(tf.function(inside, input_signature=[spec])(x[1]), outside(x[1]), atol=1e-6)


def test_forward_only_ends_also_by_an_error():
    with pytest.raises(KeyError), forward_only(10):
        with forward_only():
            assert MODULE._MAX_LENGTH.get() is None and MODULE._FORWARD_ONLY.get()
        assert MODULE._MAX_LENGTH.get() == 10
        raise KeyError
    assert MODULE._MAX_LENGTH.get() is None and not MODULE._FORWARD_ONLY.get()


# Gradients.


def test_a_persistent_tape_gives_the_gradients_again_and_again(x, way):
    expected = differentiated(x, mask=AttentionMask(**everything()), **way)
    inputs, grad_output = [tf.cast(each, "float64") for each in x[:3]], tf.cast(x[3], "float64")
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(inputs)
        context = scaled_dot_product_attention(*inputs, AttentionMask(**everything()), **way)
    for _ in range(2):
        assert_close([context, *tape.gradient(context, inputs, output_gradients=grad_output)], expected, 1e-14)


@st.composite
def problems(draw, most=40):
    """Lengths, groups, a block size and a mask, and a generator for the numbers."""
    length, memory_length = draw(st.integers(1, most)), draw(st.integers(1, most))
    random, heads = np.random.default_rng(draw(st.integers(0, 2**32))), draw(st.sampled_from([(1, 1), (4, 2), (3, 1)]))
    share = draw(st.sampled_from([0.1, 0.5, 0.9]))
    full = (2, heads[0], length, memory_length)
    parts = dict(causal=draw(st.booleans()), window=draw(st.none() | st.integers(1, most)))
    parts["offset"] = draw(st.integers(0, most))
    ones = draw(st.none() | st.tuples(*[st.booleans()] * 4))
    if ones is not None:
        parts["pairs"] = random.random([1 if one else size for one, size in zip(ones, full, strict=True)]) < share
    if draw(st.booleans()):
        parts["queries"] = random.random((2, length)) < share
    if draw(st.booleans()):
        parts["keys"] = random.random((2, memory_length)) < share
    shapes = (2, length, heads[0], 3), (2, memory_length, heads[1], 3), (2, memory_length, heads[1], 2)
    x = [random.normal(size=shape) for shape in (*shapes, (2, length, heads[0], 2))]
    return x, AttentionMask(**parts), draw(st.sampled_from([16, 32]))


@settings(max_examples=40, deadline=None)
@given(problems())
def test_all_ways_agree(problem):
    x, mask, block = problem
    expected = differentiated(x, mask=mask, **WAYS["plain"])
    assert_close(differentiated(x, mask=mask), expected, 1e-9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blockwise_attention, "BLOCK", block)
        assert_close(differentiated(x, mask=mask, blockwise=True), expected, 1e-9)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@settings(max_examples=15, deadline=None)
@given(problem=problems(most=20))
def test_gradients_are_what_small_steps_change(way, problem):
    x, mask, _ = problem
    gradients = differentiated(x, mask=mask, **way)[1:]
    random = np.random.default_rng(0)
    for i, gradient in enumerate(gradients):
        step = 1e-5 * random.normal(size=x[i].shape)

        def total(step, i=i):
            inputs = [each + step if j == i else each for j, each in enumerate(x[:3])]
            context = scaled_dot_product_attention(*inputs, mask, **way)
            return np.sum(context * x[3])

        np.testing.assert_allclose(np.sum(gradient * step), (total(step) - total(-step)) / 2, rtol=1e-6, atol=1e-12)


def plainly(query, key, value):
    """Attention as everyone writes it, for one group a head, causal after 16."""
    scores = tf.einsum("bthd,bshd->bhts", query, key) / query.shape[-1] ** 0.5
    allowed = tf.range(key.shape[1]) <= tf.range(query.shape[1])[:, None] + 16
    weights = tf.nn.softmax(tf.where(allowed, scores, -1e9))
    return tf.einsum("bhts,bshe->bthe", weights, value)


def twice(attend, x):
    inputs = [tf.cast(each, "float64") for each in x[:3]]
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(inputs)
        with tf.GradientTape() as inner:
            inner.watch(inputs)
            total = tf.reduce_sum(attend(*inputs) * tf.cast(x[3], "float64"))
        gradients = inner.gradient(total, inputs)
        size = tf.add_n([tf.reduce_sum(gradient**2) for gradient in gradients])
    return outer.gradient(size, inputs)


@pytest.mark.parametrize("jit_compile", [None, False, True], ids=["eager", "graph", "XLA"])
@pytest.mark.parametrize("way", [{}, WAYS["plain"]], ids=["by hand", "plain"])
def test_a_whole_matrix_can_be_differentiated_twice(arrays, way, jit_compile):
    x = inputs_of(arrays, groups=H)
    mask = AttentionMask(causal=True, offset=16)

    def call(*x):
        return twice(lambda *x: scaled_dot_product_attention(*x, mask, **way), x)

    results = (call if jit_compile is None else tf.function(call, jit_compile=jit_compile))(*x)
    assert_close(results, twice(plainly, x))


def squares(context):
    return tf.reduce_sum(context**2)


REFUSAL = r"gradient of attention in blocks cannot be differentiated again.*`flash_attention=False`"


@pytest.mark.parametrize("total", [tf.reduce_sum, squares], ids=["sum", "squares"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "graph"])
def test_in_blocks_it_refuses_to_be_differentiated_twice(arrays, compiled, total):
    def call(*inputs):
        with tf.GradientTape() as outer:
            outer.watch(inputs)
            with tf.GradientTape() as inner:
                inner.watch(inputs)
                result = total(scaled_dot_product_attention(*inputs, blockwise=True))
            size = squares(inner.gradient(result, inputs)[0])
        return outer.gradient(size, inputs)

    with pytest.raises(NotImplementedError, match=REFUSAL):
        (tf.function(call) if compiled else call)(*map(tf.constant, inputs_of(arrays, 5, 4)[:3]))


@pytest.mark.parametrize("by", range(4), ids=["query", "key", "value", "grad_output"])
@pytest.mark.parametrize("of", range(3), ids=["query", "key", "value"])
def test_each_gradient_in_blocks_refuses_for_each_of_the_inputs(arrays, of, by):
    *inputs, grad_output = map(tf.constant, inputs_of(arrays, 5, 4))
    with tf.GradientTape() as outer:
        outer.watch([*inputs, grad_output])
        with tf.GradientTape() as inner:
            inner.watch(inputs)
            context = scaled_dot_product_attention(*inputs, blockwise=True)
        gradient = inner.gradient(context, inputs, output_gradients=grad_output)[of]
    with pytest.raises(NotImplementedError, match=REFUSAL):
        outer.gradient(gradient, [*inputs, grad_output][by])


# What may be NaN, and what may be empty.


@pytest.mark.parametrize("jit_compile", [None, True], ids=["eager", "XLA"])
def test_nan_comes_through_in_every_way(x, way, jit_compile):
    """Blocks gave zeros, so that a loss stayed finite while its gradients were NaN."""
    x[1][0, 20, 1] = np.nan  # a key of the second group, heads 4 to 7, of the first sentence

    def call(*x):
        return scaled_dot_product_attention(*x, AttentionMask(causal=True), **way)

    context = np.array((call if jit_compile is None else tf.function(call, jit_compile=True))(*x[:3]))
    expected = np.zeros(context.shape, bool)
    expected[0, 20:, 4:8] = True
    np.testing.assert_array_equal(np.isnan(context), expected)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "unknown sizes"])
@pytest.mark.parametrize(("batch", "length", "memory_length"), [(0, 3, 5), (2, 0, 5), (2, 3, 0)])
@pytest.mark.parametrize("blockwise", [None, True], ids=["whole", "in blocks"])
def test_empty_axes(blockwise, batch, length, memory_length, compiled):
    x = [np.ones((batch, n, heads, 4), "float32") for n, heads in ((length, H), (memory_length, K), (memory_length, K))]

    def call(*x):
        return differentiated([*x, tf.ones_like(x[0])], "float32", blockwise=blockwise)

    if compiled:
        call = tf.function(call, input_signature=[tf.TensorSpec((None, None, *each.shape[2:])) for each in x])
    for result, each in zip(call(*x), (x[0], *x), strict=True):
        np.testing.assert_array_equal(result, np.zeros(each.shape))


# Blocks.


def blocks_seen(call, monkeypatch):
    """The pairs of blocks, of queries and of keys, whose scores are computed."""
    seen, scores = [], blockwise_attention._Blocks.scores

    def watched(self, query, key, i, j):
        seen.append((int(i), int(j)))
        return scores(self, query, key, i, j)

    monkeypatch.setattr(blockwise_attention._Blocks, "scores", watched)
    call()
    monkeypatch.undo()
    return seen


@pytest.mark.parametrize(
    ("lengths", "rules"),
    [
        ((64, 64), dict()),
        ((64, 64), dict(causal=True)),
        ((32, 64), dict(causal=True)),
        ((32, 64), dict(causal=True, offset=32)),
        ((32, 64), dict(causal=True, offset=15)),
        ((32, 64), dict(causal=True, offset=16)),
        ((64, 32), dict(causal=True)),
        ((64, 64), dict(window=1)),
        ((64, 64), dict(window=2)),
        ((64, 64), dict(window=17)),
        ((64, 64), dict(window=18)),
        ((48, 64), dict(window=18, offset=5)),
        ((64, 64), dict(window=17, causal=True)),
        ((64, 64), dict(window=18, causal=True)),
        ((32, 64), dict(window=9, causal=True, offset=24)),
        ((48, 32), dict(window=3, causal=True, offset=17)),
        ((48, 32), dict(window=3, offset=40)),
    ],
    ids=str,
)
def test_computes_each_block_that_position_allows_once_and_no_other(
    arrays, lengths, rules, monkeypatch, numpy_allowed, numpy_attention
):
    x = inputs_of(arrays, *lengths)
    allowed = numpy_allowed(shape_of(x), **rules)
    blocks = allowed[0, 0].reshape((lengths[0] // 16, 16, lengths[1] // 16, 16)).any(axis=(1, 3))
    expected = [tuple(block) for block in np.argwhere(blocks).tolist()]
    query, key, value, grad_output = (heads_first(tf.cast(each, "float64")) for each in x)
    inputs = query, key, value, AttentionMask(**rules), None
    context, log_sum = blockwise_attention.forward(*inputs)
    assert blocks_seen(lambda: blockwise_attention.forward(*inputs), monkeypatch) == expected
    monkeypatch.setattr(blockwise_attention, "BLOCK", 16)
    seen = blocks_seen(lambda: blockwise_attention.backward(*inputs, context, log_sum, grad_output), monkeypatch)
    assert sorted(seen) == expected
    assert_close([heads_first(context)], [numpy_attention(*x[:3], allowed).context])


def test_keys_that_no_query_of_a_block_may_see_are_without_effect_whatever_they_are(arrays):
    x = inputs_of(arrays, 48, 64)
    expected = differentiated(x, mask=AttentionMask(causal=True), blockwise=False)
    for each in (x[1], x[2]):
        each[:, 32:] = np.nan
    context, of_query, *_ = differentiated(x, mask=AttentionMask(causal=True), blockwise=True)
    for result, before in ((context, expected[0]), (of_query, expected[1])):
        np.testing.assert_allclose(result[:, :32], before[:, :32], atol=1e-12)


def test_queries_that_may_not_see_a_block_of_keys_do_not_change_its_gradient_whatever_they_are(arrays):
    x = inputs_of(arrays, 48, 64)
    mask = AttentionMask(causal=True, window=9)
    expected = differentiated(x, mask=mask, blockwise=False)
    for each in (x[0], x[3]):
        each[:, :16] = np.nan
    _, _, *changes = differentiated(x, mask=mask, blockwise=True)
    for result, before in zip(changes, expected[2:], strict=True):
        np.testing.assert_allclose(result[:, 16:], before[:, 16:], atol=1e-12)


def test_saves_the_logarithm_of_the_sum_of_exponentials(arrays, numpy_allowed):
    query, key, value, _ = inputs_of(arrays, groups=H)
    allowed = numpy_allowed((B, H, T, S), **everything())
    scores = np.einsum("bthd,bshd->bhts", query.astype("float64"), key) / D**0.5
    sums = np.where(allowed, np.exp(scores), 0).sum(axis=-1, keepdims=True)
    inputs = (heads_first(tf.constant(each)) for each in (query, key, value))
    _, log_sum = blockwise_attention.forward(*inputs, AttentionMask(**everything()))
    np.testing.assert_allclose(np.array(log_sum)[sums > 0], np.log(sums[sums > 0]), rtol=1e-5, atol=1e-5)
    # Where there is nothing, any score's weight comes out as zero.
    assert (sums == 0).any() and (np.exp(scores - np.array(log_sum))[(sums == 0)[..., 0]] == 0).all()


@pytest.mark.parametrize(
    ("length", "size"),
    [(1, 16), (16, 16), (512, 512), (513, 272), (1024, 512), (1030, 352), (2000, 512)],
)
def test_blocks_leave_little_over(length, size, monkeypatch):
    monkeypatch.setattr(blockwise_attention, "BLOCK", 512)
    assert blockwise_attention._divide(length, length) == (size, -length % size)
    assert blockwise_attention._divide(None, length) == (512, -length % 512)


# Dropout.


def dropout_of(seed=5):
    return DropoutMask(0.3, keras.random.SeedGenerator(seed))


def drawn(blockwise, size=16):
    """The dropout_mask of `dropout_of()` for all weights, and none at the padding."""
    if not blockwise:
        return np.array(dropout_of()((B, H, T, S)))
    rows, columns = -(-T // size), -(-S // size)
    dropout_mask = dropout_of()
    blocks = [[dropout_mask((B, H, size, size), i * columns + j) for j in range(columns)] for i in range(rows)]
    return np.block([[np.array(block) for block in row] for row in blocks])[:, :, :T, :S]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_forward_and_gradient_drop_the_same_weights(x, way, dtype, numpy_allowed, numpy_attention):
    x = [np.array(tf.cast(tf.cast(each, dtype), "float64")) for each in x]
    results = differentiated(x, dtype, mask=AttentionMask(**everything()), dropout_mask=dropout_of(), **way)
    allowed = numpy_allowed((B, H, T, S), **everything())
    expected = numpy_attention(*x[:3], allowed, x[3], dropout_mask=drawn(way["blockwise"]))
    assert_close(results, expected, {"float64": 1e-7, "float32": 2**-19, "bfloat16": 2**-6}[dtype])


@pytest.mark.parametrize("large", [0, 2**26], ids=["large", "small"])
def test_forward_and_gradient_drop_the_same_weights_of_unknown_sizes(
    x, large, monkeypatch, numpy_allowed, numpy_attention
):
    monkeypatch.setattr(MODULE, "LARGE", large)
    dropout_mask = dropout_of()
    specs = [tf.TensorSpec((None, None, *each.shape[2:])) for each in x]

    @tf.function(input_signature=specs)
    def call(*x):
        return differentiated(x, mask=AttentionMask(causal=True), dropout_mask=dropout_mask)

    allowed = numpy_allowed((B, H, T, S), causal=True)
    assert_close(call(*x), numpy_attention(*x[:3], allowed, x[3], dropout_mask=drawn(large == 0)), 1e-7)


@pytest.mark.parametrize("blockwise", [None, True], ids=["whole", "in blocks"])
def test_xla_drops_the_same_weights_in_forward_and_gradient(arrays, blockwise, numpy_allowed, numpy_attention):
    # XLA may draw other numbers. With one-hot values the context shows which.
    query, key, _, _ = inputs_of(arrays, 20, 30)
    value = np.tile(np.eye(30, dtype="float32")[None, :, None], (B, 1, K, 1))
    grad_output = arrays(grad_output=(B, 20, H, 30)).grad_output
    dropout_mask = dropout_of()

    @tf.function(jit_compile=True)
    def call(*x):
        return differentiated(x, "float32", dropout_mask=dropout_mask, blockwise=blockwise)

    results = call(query, key, value, grad_output)
    allowed = numpy_allowed((B, H, 20, 30))
    weights = numpy_attention(query, key, value, allowed).weights
    seen = np.swapaxes(results[0], 1, 2) / weights
    kept = seen > 0.5
    np.testing.assert_allclose(seen, np.where(kept, 1 / 0.7, 0), rtol=1e-4)
    np.testing.assert_allclose(kept.mean(), 0.7, atol=0.03)
    assert_close(results, numpy_attention(query, key, value, allowed, grad_output, dropout_mask=kept / 0.7), 2**-18)


@pytest.fixture
def equal_weights():
    """Attention with 36 x 50 equal weights and one-hot values, whose context is the dropout_mask through 50."""
    query, key = np.zeros((B, 36, 2, 1), "float32"), np.zeros((B, 50, 1, 1), "float32")
    value = np.tile(np.eye(50, dtype="float32")[None, :, None], (B, 1, 1, 1))
    return lambda dropout_mask, way: (
        50 * np.array(scaled_dot_product_attention(query, key, value, dropout_mask=dropout_mask, **way))
    )


def test_drops_the_share_and_keeps_the_mean(equal_weights, way):
    dropout_mask = equal_weights(dropout_of(), way)  # 7200 numbers: a share of 0.3 has a standard deviation of 0.0054
    np.testing.assert_allclose(dropout_mask[dropout_mask > 0], 1 / 0.7, rtol=1e-5)
    np.testing.assert_allclose(np.mean(dropout_mask == 0), 0.3, atol=0.025)
    np.testing.assert_allclose(np.mean(dropout_mask), 1, atol=0.035)


def test_each_call_drops_others_and_an_equal_seed_the_same(equal_weights, way):
    generator = keras.random.SeedGenerator(5)
    first, second = (equal_weights(DropoutMask(0.3, generator), way) for _ in range(2))
    np.testing.assert_allclose(np.mean((first > 0) != (second > 0)), 0.42, atol=0.05)
    np.testing.assert_array_equal(equal_weights(dropout_of(), way), first)


def test_each_block_drops_others(equal_weights):
    dropout_mask = np.swapaxes(equal_weights(dropout_of(), dict(blockwise=True)), 1, 2)[:, :, :32, :48] > 0
    blocks = dropout_mask.reshape((B, 2, 2, 16, 3, 16)).transpose((2, 4, 0, 1, 3, 5)).reshape((6, -1))
    for one, other in itertools.combinations(blocks, 2):
        np.testing.assert_allclose(np.mean(one != other), 0.42, atol=0.08)
