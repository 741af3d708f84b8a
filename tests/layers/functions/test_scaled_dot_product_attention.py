"""Attention in one piece and in blocks, both by way of the function that chooses between them."""

import importlib
import itertools
import re

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
    pairs[:, :, 3 % length] = False
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


def assert_zeros(results, allowed):
    """Contexts of queries with nothing to attend to, and their gradients, are zero and not nearly zero."""
    nothing = np.swapaxes(~allowed.any(axis=-1), 1, 2)  # (B, T, H)
    for result in results[:2]:
        np.testing.assert_array_equal(np.array(tf.cast(result, "float32"))[nothing], 0)


MASKS = {
    "none": {},
    "no key for a sentence": dict(queries=bools(B, T), keys=np.stack([np.zeros(S, bool), bools(S)])),
    "no query in a sentence": dict(queries=np.stack([bools(T), np.zeros(T, bool)]), causal=True),
    "causal after a cache": dict(causal=True, offset=16),
    "window of one": dict(window=1),
    "window beyond all keys": dict(window=9, offset=41),
    "causal window after a cache": dict(causal=True, window=5, offset=13),
    "pairs for all sentences": dict(pairs=bools(1, H, T, S)),
    "pairs for all queries": dict(pairs=bools(B, H, 1, S), queries=bools(B, T)),
    "rare pairs": dict(pairs=bools(B, H, T, S, share=0.03)),
    "everything, and an offset of 64 bits": {**everything(), "offset": tf.constant(7, "int64")},
}


@pytest.mark.parametrize("name", MASKS)
def test_is_attention_with_its_gradients_for_any_mask(x, way, name, numpy_allowed, numpy_attention):
    parts = MASKS[name]
    allowed = numpy_allowed((B, H, T, S), **{**parts, "offset": int(parts.get("offset", 0))})
    results = differentiated(x, mask=AttentionMask(**parts) if parts else None, **way)
    assert_close(results, numpy_attention(*x[:3], allowed, x[3]))
    assert_zeros(results, allowed)


@pytest.mark.parametrize(
    ("lengths", "masked", "way"),
    [
        *(((length, memory_length), True, way) for length, memory_length in ((1, 53), (37, 1)) for way in WAYS),
        ((16, 16), False, "in blocks"),
        ((40, 40), True, "in blocks"),
        ((53, 37), False, "in blocks"),
        ((48, 64), True, "in blocks"),
        ((3, 5), False, "in blocks"),
    ],
    ids=str,
)
def test_any_lengths(arrays, lengths, masked, way, numpy_allowed, numpy_attention):
    x, parts = inputs_of(arrays, *lengths), {}
    if masked:
        parts = everything(*lengths, offset=max(lengths[1] - lengths[0], 0))
    expected = numpy_attention(*x[:3], numpy_allowed(shape_of(x), **parts), x[3])
    assert_close(differentiated(x, mask=AttentionMask(**parts), **WAYS[way]), expected)


@pytest.mark.parametrize("groups", [1, 12])
def test_keys_and_values_serve_the_heads_of_their_group(arrays, way, groups, numpy_allowed, numpy_attention):
    x = inputs_of(arrays, groups=groups)
    expected = numpy_attention(*x[:3], numpy_allowed((B, H, T, S), **everything()), x[3])
    assert_close(differentiated(x, mask=AttentionMask(**everything()), **way), expected)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2**-9), ("bfloat16", 2**-6), ("float32", 2**-20)])
def test_results_have_the_type_of_the_inputs(x, way, dtype, tolerance, numpy_allowed, numpy_attention):
    x = [np.array(tf.cast(tf.cast(each, dtype), "float64")) for each in x]
    results = differentiated(x, dtype, mask=AttentionMask(**everything()), **way)
    assert [result.dtype.name for result in results] == [dtype] * 4
    allowed = numpy_allowed((B, H, T, S), **everything())
    assert_close(results, numpy_attention(*x[:3], allowed, x[3]), tolerance)
    assert_zeros(results, allowed)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_in_float32_whatever_the_inputs(way, dtype, monkeypatch):
    monkeypatch.setattr(blockwise_attention, "BLOCK", 512)
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


def test_nan_comes_through_in_every_way(x, way):
    """Blocks gave zeros, so that a loss stayed finite while its gradients were NaN."""
    x[1][0, 20, 1] = np.nan  # a key of the second group, heads 4 to 7, of the first sentence
    context = np.array(scaled_dot_product_attention(*x[:3], AttentionMask(causal=True), **way))
    expected = np.zeros(context.shape, bool)
    expected[0, 20:, 4:8] = True
    np.testing.assert_array_equal(np.isnan(context), expected)


EMPTY = ((0, 3, 5), (2, 0, 5), (2, 3, 0))  # B, T, S


def empty_inputs(batch, length, memory_length):
    """As `inputs_of`, in float64."""
    sizes = ((length, H, D), (memory_length, K, D), (memory_length, K, E), (length, H, E))
    return [np.ones((batch, *size)) for size in sizes]


@pytest.mark.parametrize("blockwise", [None, True], ids=["whole", "in blocks"])
def test_empty_axes_give_zeros(blockwise):
    """With sizes that are known; `test_sizes_may_be_unknown` has the others."""
    for sizes in EMPTY:
        query, key, value, grad_output = empty_inputs(*sizes)
        results = differentiated([query, key, value, grad_output], blockwise=blockwise)
        for result, like in zip(results, (grad_output, query, key, value), strict=True):
            np.testing.assert_array_equal(result, np.zeros(like.shape))


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


@settings(max_examples=15, deadline=None)
@given(problems())
def test_all_ways_agree(problem):
    x, mask, block = problem
    expected = differentiated(x, mask=mask, **WAYS["plain"])
    assert_close(differentiated(x, mask=mask), expected, 1e-9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blockwise_attention, "BLOCK", block)
        assert_close(differentiated(x, mask=mask, blockwise=True), expected, 1e-9)


# Strips of queries, behind a causal mask.

N = 31  # tokens; the strips have 15 and 16 of them


@pytest.fixture
def strips(monkeypatch):
    """The queries and keys of each matrix that a forward pass computes; two strips from eight tokens on."""
    monkeypatch.setattr(MODULE, "STRIPS", 2)
    monkeypatch.setattr(MODULE, "SHORTEST", 8)
    monkeypatch.setattr(MODULE, "SHORTEST_UNDER_XLA", 8)
    monkeypatch.setattr(MODULE, "MANY", 0)
    sizes, forward = [], MODULE._forward

    def counting(query, key, *others):
        sizes.append((query.shape[2], key.shape[2]))
        return forward(query, key, *others)

    monkeypatch.setattr(MODULE, "_forward", counting)
    return sizes


def compiled(x, jit_compile=True, **arguments):
    return tf.function(lambda *x: differentiated(x, **arguments), jit_compile=jit_compile, autograph=False)(*x)


def traced(x, **arguments):
    """The graph that XLA would compile."""
    function = tf.function(lambda *x: differentiated(x, **arguments), jit_compile=True, autograph=False)
    return function.get_concrete_function(*x)


STRIPPED = {
    "causal": {},
    "and a window": dict(window=5),
    "and pairs": dict(pairs=bools(B, H, N, N)),
    "and pairs for all queries": dict(pairs=bools(B, 1, 1, N)),
    "and pairs for all keys": dict(pairs=bools(1, H, N, 1), queries=bools(B, N)),
    "and one of all queries": dict(queries=np.array([[True], [False]])),
    "and one of all keys": dict(keys=np.array([[True], [False]])),
    "and everything": {**everything(N, N), "offset": 0},
}


# The cuts are made while a graph is traced, by XLA or not, and whoever writes the gradient. So the mask with all parts
# suffices for XLA, and with the causal one for TensorFlow's own gradient.
@pytest.mark.parametrize(
    ("name", "hand_gradient", "jit_compile"),
    [
        *((name, True, False) for name in STRIPPED),
        *((name, False, False) for name in ("causal", "and everything")),
        ("and everything", True, True),
    ],
)
def test_strips_are_attention_with_its_gradients(
    arrays, strips, name, hand_gradient, jit_compile, numpy_allowed, numpy_attention
):
    x, parts = inputs_of(arrays, N, N), {"causal": True, **STRIPPED[name]}
    results = compiled(x, jit_compile, mask=AttentionMask(**parts), hand_gradient=hand_gradient)
    allowed = numpy_allowed((B, H, N, N), **parts)
    assert_close(results, numpy_attention(*x[:3], allowed, x[3]))
    assert_zeros(results, allowed)
    assert strips == [(15, 15), (16, 31)]


def drawn_in_strips():
    """The numbers of `dropout_of()` for all weights: each strip draws by a number of its own."""
    dropout_mask, numbers = dropout_of(), np.zeros((B, H, N, N))
    for number, (begin, end) in enumerate([(0, 15), (15, 31)]):
        numbers[:, :, begin:end, :end] = dropout_mask((B, H, end - begin, end), number)
    return numbers


def test_strips_drop_the_same_weights_in_forward_and_gradient(arrays, strips, numpy_allowed, numpy_attention):
    x, allowed = inputs_of(arrays, N, N), numpy_allowed((B, H, N, N), causal=True)
    results = compiled(x, False, mask=AttentionMask(causal=True), dropout_mask=dropout_of())
    assert_close(results, numpy_attention(*x[:3], allowed, x[3], dropout_mask=drawn_in_strips()), 1e-7)
    assert len(strips) == 2


@pytest.mark.parametrize(
    ("lengths", "parts"),
    [
        ((N, N), {}),
        ((N, N), dict(causal=True, offset=3)),
        ((N, N), dict(causal=True, offset=tf.constant(0))),
        ((N, N + 1), dict(causal=True)),
        ((7, 7), dict(causal=True)),
    ],
    ids=["not causal", "an offset", "an unknown offset", "other keys", "few tokens"],
)
def test_no_strips_where_they_would_be_wrong_or_slow(arrays, strips, lengths, parts):
    traced(inputs_of(arrays, *lengths), mask=AttentionMask(**parts))
    assert strips == [lengths]


def test_twice_as_many_strips_of_many_tokens(arrays, strips, monkeypatch, numpy_allowed, numpy_attention):
    monkeypatch.setattr(MODULE, "LONG", N)
    x = inputs_of(arrays, N, N)
    expected = numpy_attention(*x[:3], numpy_allowed((B, H, N, N), causal=True), x[3])
    assert_close(compiled(x, False, mask=AttentionMask(causal=True)), expected)
    assert strips == [(7, 7), (8, 15), (8, 23), (8, 31)]


@pytest.mark.parametrize(("jit_compile", "shortest"), [(True, 128), (False, 256)], ids=["XLA", "graph"])
def test_a_graph_needs_more_tokens_for_strips(arrays, jit_compile, shortest):
    for length, number in ((shortest - 1, 0), (shortest, 4), (1024, 8)):
        query = tf.TensorSpec((None, H, length, D))

        def count(query, number=number):
            assert len(MODULE._strips_of(query, query, AttentionMask(causal=True))) == number
            return query

        tf.function(count, [query], jit_compile=jit_compile, autograph=False).get_concrete_function()


def test_strips_may_be_differentiated_twice(arrays, strips, monkeypatch):
    """Not so blocks: see `test_each_gradient_in_blocks_refuses_to_be_differentiated_by_each_of_the_inputs`."""
    x, mask = inputs_of(arrays, N, N), AttentionMask(causal=True)

    @tf.function(autograph=False)
    def second():
        query, key, value = (tf.cast(each, "float64") for each in x[:3])
        with tf.GradientTape() as outer:
            outer.watch([query, key, value])
            with tf.GradientTape() as inner:
                inner.watch([query, key, value])
                loss = tf.reduce_sum(scaled_dot_product_attention(query, key, value, mask) ** 2)
            squares = tf.add_n([tf.reduce_sum(each**2) for each in inner.gradient(loss, [query, key, value])])
        return outer.gradient(squares, [query, key, value])

    assert_close(second(), second.python_function())
    assert strips == [(15, 15), (16, 31), (N, N)]  # without a graph there are no strips


def test_gradients_of_strips_are_added_in_float32(arrays, strips, monkeypatch, numpy_allowed, numpy_attention):
    """Eight gradients of the first key that were rounded one by one had twice the error."""
    monkeypatch.setattr(MODULE, "STRIPS", 8)
    dtype = "bfloat16"
    x = [np.array(tf.cast(tf.cast(each, dtype), "float64")) for each in inputs_of(arrays, 64, 64)]
    results = compiled(x, False, dtype=dtype, mask=AttentionMask(causal=True))
    expected = numpy_attention(*x[:3], numpy_allowed((B, H, 64, 64), causal=True), x[3])
    whole = differentiated(x, dtype, mask=AttentionMask(causal=True))
    for result, other, right in zip(results[2:], whole[2:], expected.gradients[1:], strict=True):
        errors = [
            np.sqrt(np.mean((np.array(tf.cast(each, "float64")) - right)[:, :8] ** 2)) for each in (result, other)
        ]
        assert errors[0] < 1.5 * errors[1]
    assert len(strips) == 9


def test_strips_where_the_batch_is_unknown(arrays, strips, monkeypatch, numpy_allowed, numpy_attention):
    """As under `fit` with a smaller last batch: the graph then holds blocks, too."""
    monkeypatch.setattr(MODULE, "BLOCK", 10)
    x, allowed = inputs_of(arrays, N, N), numpy_allowed((B, H, N, N), causal=True)
    specs = [tf.TensorSpec((None, *each.shape[1:]), "float64") for each in x]
    arguments = dict(mask=AttentionMask(causal=True), dropout_mask=dropout_of())
    attend = tf.function(lambda *x: differentiated(x, **arguments), specs, autograph=False)
    assert_close(attend(*x), numpy_attention(*x[:3], allowed, x[3], dropout_mask=drawn_in_strips()), 1e-7)
    assert strips == 2 * [(15, 15), (16, 31)]  # the gradient computes them again


def test_no_strips_of_a_mask_whose_axes_of_1_are_not_known(arrays, strips):
    """An axis of unknown size was cut like one that has a number for each token."""
    x = inputs_of(arrays, N, N)
    for part, shape in (("pairs", (B, 1, 1, N)), ("pairs", (B, 1, N, 1)), ("queries", (B, 1)), ("keys", (B, 1))):
        given = np.ones(shape, bool)
        spec = tf.TensorSpec([None] * len(shape), "bool")

        @tf.function(input_signature=[spec], autograph=False)
        def attend(given, part=part):
            return scaled_dot_product_attention(*x[:3], AttentionMask(causal=True, **{part: given}))

        mask = AttentionMask(causal=True, **{part: given})
        np.testing.assert_allclose(attend(given), scaled_dot_product_attention(*x[:3], mask), rtol=0, atol=1e-5)
    assert set(strips) == {(N, N)}


def test_no_strips_of_few_scores(arrays, strips, monkeypatch):
    x, mask = inputs_of(arrays, N, N), AttentionMask(causal=True)
    for many, number in ((B * H * N * N + 1, 1), (B * H * N * N, 2)):
        monkeypatch.setattr(MODULE, "MANY", many)
        strips.clear()
        traced(x, mask=mask)
        assert len(strips) == number


def test_no_strips_for_an_unknown_length(arrays, strips):
    x, mask = inputs_of(arrays, N, N), AttentionMask(causal=True)
    specs = [tf.TensorSpec((B, None, *each.shape[2:]), "float64") for each in x[:3]]
    tf.function(
        lambda *x: scaled_dot_product_attention(*x, mask, blockwise=False), specs, autograph=False
    ).get_concrete_function()
    assert strips == [(None, None)]


@pytest.mark.parametrize("around", ["a function", "a loop"])
def test_strips_in_what_xla_compiles_with_what_is_around_it(arrays, strips, monkeypatch, around):
    """As in `fit`, whose step calls functions."""
    monkeypatch.setattr(MODULE, "SHORTEST", N + 1)
    query, key, value, _ = inputs_of(arrays, N, N)

    def attend(query):
        return scaled_dot_product_attention(query, key, value, AttentionMask(causal=True))

    @tf.function(jit_compile=True, autograph=False)
    def outer(query):
        if around == "a function":
            return tf.function(attend, autograph=False)(query)
        return tf.while_loop(lambda i, _: i < 1, lambda i, _: (i + 1, attend(query)), (0, tf.zeros((B, N, H, E))))[1]

    outer.get_concrete_function(query)  # the choice is made while the graph is traced
    assert strips == [(15, 15), (16, 31)]


# Weights.


@pytest.mark.parametrize(("dtype", "weights_dtype"), [("bfloat16", "float32"), ("float64", "float64")])
def test_weights_come_out_in_float32_at_least(x, dtype, weights_dtype, numpy_allowed, numpy_attention):
    x = [np.array(tf.cast(tf.cast(each, dtype), "float64")) for each in x]
    inputs, mask = [tf.cast(each, dtype) for each in x[:3]], AttentionMask(**everything())
    context, weights = scaled_dot_product_attention(*inputs, mask, return_weights=True)
    assert (context.dtype, weights.dtype) == (dtype, weights_dtype)
    expected = numpy_attention(*x[:3], numpy_allowed((B, H, T, S), **everything()))
    np.testing.assert_allclose(weights, expected.weights, rtol=0, atol=1e-13 if dtype == "float64" else 1e-6)
    np.testing.assert_array_equal(np.array(weights)[expected.weights == 0], 0)
    alone = scaled_dot_product_attention(*inputs, mask, blockwise=False)
    np.testing.assert_array_equal(tf.cast(context, "float64"), tf.cast(alone, "float64"))


def test_weights_are_those_before_dropout(x):
    dropout_mask = DropoutMask(0.3, keras.random.SeedGenerator(5))
    _, expected = scaled_dot_product_attention(*x[:3], return_weights=True)
    context, weights = scaled_dot_product_attention(*x[:3], dropout_mask=dropout_mask, return_weights=True)
    np.testing.assert_array_equal(weights, expected)
    np.testing.assert_array_equal(
        context, scaled_dot_product_attention(*x[:3], dropout_mask=dropout_mask, blockwise=False)
    )


def test_blocks_have_no_weights_to_return(x):
    message = r"never has all weights at once to return\. Received: blockwise=True, return_weights=True$"
    with pytest.raises(ValueError, match=message):
        scaled_dot_product_attention(*x[:3], return_weights=True, blockwise=True)


# Dropout, compiled, and with sizes that are known at run time only.


def dropout_of(seed=5):
    return DropoutMask(0.3, keras.random.SeedGenerator(seed))


def drawn(length=T, memory_length=S, block=None):
    """The numbers of `dropout_of()` for all weights, of the whole matrix or of blocks of a size."""
    dropout_mask = dropout_of()
    if block is None:
        return np.array(dropout_mask((B, H, length, memory_length)))
    rows, columns = -(-length // block), -(-memory_length // block)
    blocks = [[dropout_mask((B, H, block, block), i * columns + j) for j in range(columns)] for i in range(rows)]
    return np.block([[np.array(each) for each in row] for row in blocks])[:, :, :length, :memory_length]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-7), ("bfloat16", 2**-6)])
def test_forward_and_gradient_drop_the_same_weights(x, way, dtype, tolerance, numpy_allowed, numpy_attention):
    x = [np.array(tf.cast(tf.cast(each, dtype), "float64")) for each in x]
    results = differentiated(x, dtype, mask=AttentionMask(**everything()), dropout_mask=dropout_of(), **way)
    allowed = numpy_allowed((B, H, T, S), **everything())
    numbers = drawn(block=16 if way["blockwise"] else None)
    assert_close(results, numpy_attention(*x[:3], allowed, x[3], dropout_mask=numbers), tolerance)


def test_xla_drops_the_same_weights_in_forward_and_gradient_in_blocks(arrays, numpy_allowed, numpy_attention):
    # XLA may draw other numbers. With one-hot values the context shows which.
    query, key, _, _ = inputs_of(arrays, 20, 30)
    value = np.tile(np.eye(30, dtype="float32")[None, :, None], (B, 1, K, 1))
    grad_output = arrays(grad_output=(B, 20, H, 30)).grad_output
    dropout_mask = dropout_of()

    @tf.function(jit_compile=True, autograph=False)
    def call(*x):
        return differentiated(x, "float32", dropout_mask=dropout_mask, blockwise=True)

    results = call(query, key, value, grad_output)
    allowed = numpy_allowed((B, H, 20, 30))
    weights = numpy_attention(query, key, value, allowed).weights
    seen = np.swapaxes(results[0], 1, 2) / weights
    kept = seen > 0.5
    np.testing.assert_allclose(seen, np.where(kept, 1 / 0.7, 0), rtol=1e-4)
    np.testing.assert_allclose(kept.mean(), 0.7, atol=0.03)
    assert_close(results, numpy_attention(query, key, value, allowed, grad_output, dropout_mask=kept / 0.7), 2**-18)


PARTS = {"pairs": (None, 1, None, None), "queries": (None, None), "keys": (None, None)}


def with_unknown_sizes(blockwise, dtype="float64", dropout_mask=None, **options):
    """`differentiated` of x and a mask with all parts, for any sizes."""
    specs = [tf.TensorSpec((None, None, heads, width), dtype) for heads, width in ((H, D), (K, D), (K, E), (H, E))]
    parts = {name: tf.TensorSpec(shape, "bool") for name, shape in PARTS.items()}

    @tf.function(input_signature=[specs, {**parts, "offset": tf.TensorSpec((), tf.int32)}], **options, autograph=False)
    def call(x, parts):
        mask = AttentionMask(**parts, causal=True, window=20)
        return differentiated(x, dtype, mask=mask, blockwise=blockwise, dropout_mask=dropout_mask)

    return call


@pytest.mark.parametrize("known", [(1, None), (None, 1)], ids=str)
def test_the_batch_of_one_side_may_be_unknown(arrays, known, monkeypatch, numpy_allowed, numpy_attention):
    monkeypatch.setattr(blockwise_attention, "BLOCK", 10)
    x = [each[:1] for each in inputs_of(arrays, 37, 23)]  # a batch of 1: TensorFlow could not know what it fits
    of_queries, of_keys = known
    sides = ((of_queries, H, D), (of_keys, K, D), (of_keys, K, E), (of_queries, H, E))
    specs = [tf.TensorSpec((batch, None, heads, width), "float64") for batch, heads, width in sides]
    call = tf.function(lambda *x: differentiated(x, blockwise=True), input_signature=specs, autograph=False)
    expected = numpy_attention(*x[:3], numpy_allowed(shape_of(x)), x[3])
    assert_close(call(*(tf.cast(each, "float64") for each in x)), expected)


@pytest.mark.parametrize("blockwise", [False, True, None], ids=["whole", "in blocks", "by size"])
def test_sizes_may_be_unknown(arrays, blockwise, monkeypatch, numpy_allowed, numpy_attention):
    monkeypatch.setattr(MODULE, "LARGE", B * H * 20 * 20)
    monkeypatch.setattr(blockwise_attention, "BLOCK", 10)
    dropped = blockwise is None
    call = with_unknown_sizes(blockwise, dropout_mask=dropout_of() if dropped else None)
    # An axis of a mask that the graph does not know may also be 1.
    for lengths, block, pairs in (
        ((37, 53), 10, np.s_[:]),
        ((12, 7), None, np.s_[:, :, :1]),
        ((37, 53), 10, np.s_[..., :1]),
    ):
        x, parts = inputs_of(arrays, *lengths), everything(*lengths)
        parts["pairs"] = parts["pairs"][pairs]
        numbers = drawn(*lengths, block=block) if dropped else None
        expected = numpy_attention(*x[:3], numpy_allowed(shape_of(x), **parts), x[3], dropout_mask=numbers)
        given = {name: tf.constant(parts[name]) for name in (*PARTS, "offset")}
        assert_close(call([tf.cast(each, "float64") for each in x], given), expected, 1e-7 if dropped else 1e-10)
    for batch, length, memory_length in EMPTY:
        query, key, value, grad_output = x = empty_inputs(batch, length, memory_length)
        shapes = dict(pairs=(batch, 1, length, memory_length), queries=(batch, length), keys=(batch, memory_length))
        results = call(x, {**{name: tf.ones(shape, "bool") for name, shape in shapes.items()}, "offset": 0})
        for result, like in zip(results, (grad_output, query, key, value), strict=True):
            np.testing.assert_array_equal(result, np.zeros(like.shape))
    assert call.experimental_get_tracing_count() == 1


def test_xla_compiles_the_choice_between_the_two(arrays, monkeypatch):
    monkeypatch.setattr(MODULE, "LARGE", B * H * 20 * 20)
    call = with_unknown_sizes(None, "float32", jit_compile=True)
    x, parts = inputs_of(arrays, 20, 33), everything(20, 33)  # in blocks
    given = {name: tf.constant(parts[name]) for name in (*PARTS, "offset")}
    expected = differentiated(x, mask=AttentionMask(**parts), blockwise=False)
    assert_close(call(x, given), expected, 2**-18)
    # Comparisons must not hide NaN.
    x[1][0, 20, 1] = np.nan
    expected = differentiated(x, mask=AttentionMask(**parts), blockwise=False)
    assert np.isnan(expected[0]).any()
    np.testing.assert_array_equal(np.isnan(call(x, given)[0]), np.isnan(expected[0]))


# The choice between the whole matrix and blocks.


def test_takes_blocks_for_more_scores_than_large(arrays, monkeypatch):
    """Blocks skip keys that no query may attend to; a whole matrix spreads their NaN.

    `test_sizes_may_be_unknown` has sizes that are known at run time only.
    """
    query, key, value, _ = inputs_of(arrays, 16, 48)
    value[:, 16:] = np.nan
    monkeypatch.setattr(MODULE, "BLOCK", 15)
    for large, in_blocks in ((B * H * 16 * 48 - 1, True), (B * H * 16 * 48, False)):
        monkeypatch.setattr(MODULE, "LARGE", large)
        context = scaled_dot_product_attention(query, key, value, AttentionMask(causal=True))
        assert np.isfinite(context).all() if in_blocks else np.isnan(context).all()


def has_devices(monkeypatch, *devices):
    """Keras lists these. As on JAX, it is an error to ask for a kind that is missing."""

    def list_devices(kind=None):
        found = [device for device in devices if kind is None or device.startswith(kind)]
        if not found:
            raise RuntimeError(f"Unknown backend: '{kind}' requested")
        return found

    monkeypatch.setattr(keras.distribution, "list_devices", list_devices)


@pytest.mark.parametrize(
    ("jit_compile", "gpu", "length", "in_blocks"),
    [(True, False, 32, True), (True, False, 31, False), (True, True, 32, False), (False, False, 32, False)],
    ids=["XLA", "fewer tokens", "with a GPU", "graph"],
)
def test_xla_for_a_cpu_takes_blocks_from_so_many_tokens_on(monkeypatch, jit_compile, gpu, length, in_blocks):
    """Also where the batch is unknown: this is known while the graph is traced, or the size decides at run time."""
    monkeypatch.setattr(MODULE, "LONG_UNDER_XLA", 32)
    monkeypatch.setattr(MODULE, "BLOCK", 16)
    has_devices(monkeypatch, "gpu:0" if gpu else "cpu:0")

    def check(query, key):
        assert (MODULE._is_large(query, key, None) is True) == in_blocks
        return query

    specs = [tf.TensorSpec((None, heads, size, D)) for heads, size in ((H, length), (K, 48))]
    tf.function(check, specs, jit_compile=jit_compile, autograph=False).get_concrete_function()


@pytest.mark.parametrize("unknown", [False, True], ids=["known sizes", "unknown sizes"])
def test_a_gpu_takes_blocks_for_more_scores_than_a_processor(monkeypatch, unknown):
    has_devices(monkeypatch, "gpu:0")

    def is_large(*sizes):
        batch, heads, length = sizes
        spec = tf.TensorSpec((None, heads, None, 1) if unknown else (batch, heads, length, 1))
        call = tf.function(lambda q, k: MODULE._is_large(q, k, None), input_signature=[spec] * 2, autograph=False)
        return bool(call(*[tf.zeros((batch, heads, length, 1))] * 2))

    assert not is_large(4, 16, 2048)  # 2**28 scores
    assert is_large(4, 17, 2048)


@pytest.mark.parametrize("lengths", [(16, 48), (48, 16)])
@pytest.mark.parametrize("unknown", [(), (0,), (1,), (2,), (0, 1, 2)], ids=lambda axes: f"unknown {axes}")
def test_many_scores_are_large_but_not_where_one_length_fits_a_block(lengths, unknown, monkeypatch):
    sizes = (B, *lengths)
    batch, length, memory_length = (None if axis in unknown else size for axis, size in enumerate(sizes))
    specs = [tf.TensorSpec((batch, H, length, 1)), tf.TensorSpec((batch, K, memory_length, 1))]
    arrays = [tf.zeros((B, H, lengths[0], 1)), tf.zeros((B, K, lengths[1], 1))]

    def is_large(large, block):
        monkeypatch.setattr(MODULE, "LARGE", large)
        monkeypatch.setattr(MODULE, "BLOCK", block)
        return bool(
            tf.function(lambda q, k: MODULE._is_large(q, k, None), input_signature=specs, autograph=False)(*arrays)
        )

    scores = B * H * 16 * 48
    assert is_large(scores - 1, block=15) and not is_large(scores, block=15)
    short_is_unknown = (1 if lengths[0] == 16 else 2) in unknown
    assert is_large(0, block=16) == short_is_unknown


def test_counts_more_scores_than_an_integer_holds():
    @tf.function(input_signature=[tf.TensorSpec((None, 2, None, 1))] * 2, autograph=False)
    def is_large(query, key):
        return MODULE._is_large(query, key, None)

    # 2 x 50,000^2 is 5e9, and 705,032,704 of 32 bits; 2 x 40,000^2 is negative.
    for length, large in ((50_000, True), (40_000, True), (5_000, False)):
        assert bool(is_large(*[tf.zeros((1, 2, length, 1))] * 2)) == large


def nodes(function):
    """Every operation of the function's graph, and of the functions that it calls."""
    definition = function.get_concrete_function().graph.as_graph_def()
    return [*definition.node, *(node for each in definition.library.function for node in each.node_def)]


@pytest.mark.parametrize(
    ("blockwise", "max_length", "loops"), [(None, None, True), (None, 16, False), (None, 17, True), (True, 16, True)]
)
def test_forward_only_leaves_out_gradients_and_what_only_longer_sequences_need(
    x, blockwise, max_length, loops, monkeypatch
):
    monkeypatch.setattr(MODULE, "BLOCK", 16)

    def outside(key):
        query = tf.repeat(key, H // K, axis=2)
        return scaled_dot_product_attention(query, key, key, AttentionMask(causal=True), blockwise=blockwise)

    def inside(key):
        with forward_only(max_length):
            return outside(key)

    graph_outside, graph_inside = (
        tf.function(function, [tf.TensorSpec([None, None, K, D])], autograph=False) for function in (outside, inside)
    )
    if max_length is None:
        assert any("_gradient_op_type" in node.attr for node in nodes(graph_outside)), "or this test says nothing"
    found = nodes(graph_inside)
    assert not any("_gradient_op_type" in node.attr for node in found)
    assert any("While" in node.op for node in found) == loops
    np.testing.assert_allclose(graph_inside(x[1]), outside(x[1]), atol=1e-6)


def test_forward_only_ends_also_by_an_error():
    with pytest.raises(KeyError), forward_only(10):
        with forward_only():
            assert MODULE._MAX_LENGTH.get() is None and MODULE._FORWARD_ONLY.get()
        assert MODULE._MAX_LENGTH.get() == 10
        raise KeyError
    assert MODULE._MAX_LENGTH.get() is None and not MODULE._FORWARD_ONLY.get()


@pytest.mark.parametrize(
    ("query", "key", "value"),
    [
        ((2, 3, 3, 4), (2, 5, 2, 4), (2, 5, 2, 6)),  # two groups of three heads
        ((2, 3, 2, 4), (2, 5, 2, 5), (2, 5, 2, 6)),
        ((2, 3, 2, 4), (2, 5, 2, 4), (2, 6, 2, 6)),
        ((2, 3, 2, 4), (1, 5, 2, 4), (1, 5, 2, 6)),
        ((2, 3, 4), (2, 5, 4), (2, 5, 6)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(query, key, value):
    message = rf"where G divides H\. Received shapes: {re.escape(f'{query}, {key}, {value}')}$"
    with pytest.raises(ValueError, match=message):
        scaled_dot_product_attention(np.zeros(query), np.zeros(key), np.zeros(value))


# Gradients of gradients.


def test_a_persistent_tape_gives_the_gradients_again_and_again(x, way):
    expected = differentiated(x, mask=AttentionMask(**everything()), **way)
    inputs, grad_output = [tf.cast(each, "float64") for each in x[:3]], tf.cast(x[3], "float64")
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(inputs)
        context = scaled_dot_product_attention(*inputs, AttentionMask(**everything()), **way)
    for _ in range(2):
        assert_close([context, *tape.gradient(context, inputs, output_gradients=grad_output)], expected, 1e-14)


def plainly(query, key, value):
    """Attention as everyone writes it, with one group for each head, causal after 16."""
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


def test_a_whole_matrix_can_be_differentiated_twice(arrays):
    """In a graph too: `test_strips_may_be_differentiated_twice`."""
    x, mask = inputs_of(arrays, groups=H), AttentionMask(causal=True, offset=16)
    assert_close(twice(lambda *x: scaled_dot_product_attention(*x, mask), x), twice(plainly, x))


REFUSAL = r"gradient of attention in blocks cannot be differentiated again.*`flash_attention=False`"


def test_each_gradient_in_blocks_refuses_to_be_differentiated_by_each_of_the_inputs(arrays):
    *inputs, grad_output = map(tf.constant, inputs_of(arrays, 5, 4))
    with tf.GradientTape(persistent=True) as outer:
        outer.watch([*inputs, grad_output])
        with tf.GradientTape() as inner:
            inner.watch(inputs)
            context = scaled_dot_product_attention(*inputs, blockwise=True)
        gradients = inner.gradient(context, inputs, output_gradients=grad_output)
    for gradient, source in itertools.product(gradients, [*inputs, grad_output]):
        with pytest.raises(NotImplementedError, match=REFUSAL):
            outer.gradient(gradient, source)


def test_in_blocks_it_refuses_in_a_graph_where_the_first_gradient_starts_from_constants(arrays):
    @tf.function(autograph=False)
    def call(*inputs):
        with tf.GradientTape() as outer:
            outer.watch(inputs)
            with tf.GradientTape() as inner:
                inner.watch(inputs)
                total = tf.reduce_sum(scaled_dot_product_attention(*inputs, blockwise=True))
            size = tf.reduce_sum(inner.gradient(total, inputs)[0] ** 2)
        return outer.gradient(size, inputs)

    with pytest.raises(NotImplementedError, match=REFUSAL):
        call(*map(tf.constant, inputs_of(arrays, 5, 4)[:3]))


def test_a_graph_that_does_not_know_its_lengths_gives_gradients_under_two_tapes(arrays):
    """There TensorFlow differentiates all branches that it records, and loops in blocks have no such gradient."""
    x = inputs_of(arrays, 5, 4)[:3]

    def call(*inputs):
        with tf.GradientTape() as outer, tf.GradientTape() as inner:
            outer.watch(inputs)
            inner.watch(inputs)
            total = tf.reduce_sum(scaled_dot_product_attention(*inputs))
        return inner.gradient(total, inputs)

    specs = [tf.TensorSpec((None, None, *each.shape[2:])) for each in x]
    assert_close(tf.function(call, specs, autograph=False)(*x), call(*map(tf.constant, x)), 1e-6)
    with pytest.raises(NotImplementedError, match=REFUSAL):
        tf.function(lambda *x: twice(scaled_dot_product_attention, (*x, 1)), specs, autograph=False)(*x)


# Blocks.


def blocks_seen(call, monkeypatch):
    """The pairs of blocks, of queries and of keys, whose scores are computed."""
    seen, scores = [], blockwise_attention._Blocks.scores

    def watched(self, query, key, i, j):
        seen.append((int(i), int(j)))
        return scores(self, query, key, i, j)

    with monkeypatch.context() as patch:
        patch.setattr(blockwise_attention._Blocks, "scores", watched)
        call()
    return seen


@pytest.mark.parametrize(
    ("lengths", "rules"),
    [
        ((64, 64), dict(causal=True)),
        ((32, 64), dict(causal=True, offset=15)),
        ((32, 64), dict(causal=True, offset=16)),
        ((64, 64), dict(window=17)),
        ((48, 64), dict(window=18, offset=5)),
        ((64, 64), dict(window=18, causal=True)),
        ((48, 32), dict(window=3, causal=True, offset=17)),
        ((48, 32), dict(window=3, offset=40)),
    ],
    ids=str,
)
def test_computes_each_block_that_position_allows_once_and_no_other(arrays, lengths, rules, monkeypatch, numpy_allowed):
    x = inputs_of(arrays, *lengths)
    allowed = numpy_allowed(shape_of(x), **rules)
    blocks = allowed[0, 0].reshape((lengths[0] // 16, 16, lengths[1] // 16, 16)).any(axis=(1, 3))
    expected = [tuple(block) for block in np.argwhere(blocks).tolist()]
    query, key, value, grad_output = (heads_first(tf.constant(each)) for each in x)
    inputs = query, key, value, AttentionMask(**rules), None
    results = []
    seen = blocks_seen(lambda: results.extend(blockwise_attention.forward(*inputs)), monkeypatch)
    assert seen == expected
    seen = blocks_seen(lambda: blockwise_attention.backward(*inputs, *results, grad_output), monkeypatch)
    assert sorted(seen) == expected


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


def test_blocks_leave_little_over(monkeypatch):
    monkeypatch.setattr(blockwise_attention, "BLOCK", 512)
    for length, size in ((1, 16), (16, 16), (512, 512), (513, 272), (1024, 512), (1030, 352), (2000, 512)):
        assert blockwise_attention._divide(length, length) == (size, -length % size)
        assert blockwise_attention._divide(None, length) == (512, -length % 512)
