import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.layers.functions.masks import AttentionMask, masked_softmax

SHAPE = (2, 3, 5, 7)  # B, H, T, S
RANDOM = np.random.default_rng(0)


def bools(*shape):
    return RANDOM.random(shape) < 0.6


PAIRS, QUERIES, KEYS = bools(*SHAPE), bools(2, 5), bools(2, 7)
PARTS = {
    "pairs": (dict(pairs=PAIRS), SHAPE),
    "pairs for all heads": (dict(pairs=PAIRS[:, :1]), (2, 1, 5, 7)),
    "pairs for all queries": (dict(pairs=PAIRS[:1, :, :1]), (1, 3, 1, 7)),
    "pairs for all keys": (dict(pairs=PAIRS[..., :1]), (2, 3, 5, 1)),
    "keys": (dict(keys=KEYS), (2, 1, 1, 7)),
    "causal with a cache": (dict(causal=True, offset=2), (1, 1, 5, 7)),
    "window of one": (dict(window=1, offset=1), (1, 1, 5, 7)),
    "keys and causal": (dict(keys=KEYS, causal=True), (2, 1, 5, 7)),
    "all": (dict(pairs=PAIRS[:1], keys=KEYS, causal=True, window=4, offset=1), SHAPE),
}


@pytest.fixture(params=PARTS)
def case(request):
    return PARTS[request.param]


@st.composite
def runs(draw):
    """A rule of position, and the first and the last of a run of queries or keys."""
    causal, window, offset = draw(st.tuples(st.booleans(), st.none() | st.integers(1, 9), st.integers(0, 9)))
    first = draw(st.integers(0, 11))
    return AttentionMask(causal=causal, window=window, offset=offset), first, draw(st.integers(first, 11))


def test_a_causal_mask_looks_at_itself_and_back():
    dense = AttentionMask(causal=True).dense(3, 4)
    assert np.array(dense).astype(int).tolist() == [[[[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]]]


def test_a_window_of_two_is_oneself_and_a_neighbour_on_either_side():
    dense = AttentionMask(window=2).dense(4, 3)
    assert np.array(dense).astype(int).tolist() == [[[[1, 1, 0], [1, 1, 1], [0, 1, 1], [0, 0, 1]]]]


def test_after_a_cache_the_first_query_stands_behind_it():
    dense = AttentionMask(causal=True, window=3, offset=3).dense(2, 6)
    assert np.array(dense).astype(int).tolist() == [[[[0, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 0]]]]


def test_dense_is_what_every_part_allows_and_no_larger_than_it_varies(case, numpy_allowed):
    parts, shape = case
    dense = AttentionMask(**parts).dense(5, 7)
    assert (dense.shape, dense.dtype) == (shape, "bool")
    np.testing.assert_array_equal(np.broadcast_to(dense, SHAPE), numpy_allowed(SHAPE, **parts))


def test_nothing_forbidden_is_no_mask():
    mask = AttentionMask(offset=3)
    assert mask.dense(5, 7) is mask.any_allowed(None) is mask.of_one_head(5, 7) is None
    assert AttentionMask(queries=QUERIES).dense(5, 7) is None


@pytest.mark.parametrize("queries", [None, QUERIES], ids=["all queries", "masked queries"])
def test_any_allowed_says_which_queries_may_attend_to_anything(case, queries, numpy_allowed):
    parts, _ = case
    mask = AttentionMask(**parts, queries=queries)
    allowed = mask.any_allowed(mask.dense(5, 7))
    expected = numpy_allowed(SHAPE, **parts, **({} if queries is None else {"queries": queries}))
    expected = expected.any(axis=-1, keepdims=True)
    if allowed is None:
        assert expected.all()
    else:
        np.testing.assert_array_equal(np.broadcast_to(allowed, expected.shape), expected)


def test_with_a_causal_mask_alone_every_query_may_attend_to_something():
    mask = AttentionMask(causal=True, offset=1)
    assert mask.any_allowed(mask.dense(5, 7)) is None
    allowed = AttentionMask(queries=QUERIES, causal=True).any_allowed(mask.dense(5, 7))
    np.testing.assert_array_equal(allowed, QUERIES[:, None, :, None])


@pytest.mark.parametrize(
    ("name", "queries"), [("pairs for all heads", QUERIES), ("keys", QUERIES), ("keys and causal", None)]
)
def test_for_one_head_queries_are_in_it_and_no_axis_of_heads(name, queries, numpy_allowed):
    parts = {**PARTS[name][0], **({} if queries is None else {"queries": queries})}
    allowed = AttentionMask(**parts).of_one_head(5, 7)
    assert len(allowed.shape) == 3
    np.testing.assert_array_equal(np.broadcast_to(allowed, (2, 5, 7)), numpy_allowed((2, 1, 5, 7), **parts)[:, 0])


def test_for_one_head_queries_alone():
    np.testing.assert_array_equal(AttentionMask(queries=QUERIES).of_one_head(5, 7), QUERIES[:, :, None])


@pytest.mark.parametrize(
    ("queries", "extra"),
    [(None, (0, 2)), (QUERIES, (0, 0)), (QUERIES, (3, 4))],
    ids=["all queries", "masked queries", "both padded"],
)
def test_blocks_of_the_padded_mask_are_cut_out_of_the_whole(case, queries, extra, numpy_allowed):
    parts = {**case[0], **({} if queries is None else {"queries": queries})}
    expected = np.zeros((2, 3, 5, 7 + extra[1]), bool)
    expected[..., :7] = numpy_allowed(SHAPE, **parts)
    mask = AttentionMask(**parts).padded(5, 7, *extra)
    for first_query, count, first_key, key_count in (
        (0, 5 + extra[0], 0, 7 + extra[1]),
        (2, 3, 1 + extra[1], 6),
        (1 + extra[0], 4, 3, 4),
    ):
        block = mask.block(tf.constant(first_query), count, tf.constant(first_key), key_count)
        block = np.broadcast_to(True if block is None else block, (2, 3, count, key_count))
        part = expected[:, :, first_query : first_query + count, first_key : first_key + key_count]
        np.testing.assert_array_equal(block[:, :, : part.shape[2]], part)  # the others are padding


def test_masked_queries_do_not_make_the_padded_pairs_larger():
    """Of 16,384 tokens and a batch of 8, they would be 2 GiB."""
    mask = AttentionMask(pairs=PAIRS[:1, :1], queries=QUERIES).padded(5, 7, 3, 4)
    assert (mask.pairs.shape, mask.queries.shape) == ((1, 1, 8, 11), (2, 8))
    mask = AttentionMask(causal=True, queries=QUERIES).padded(5, 7, 3, 4)
    assert mask.pairs is None and mask.allows_all(2, 1, 0, 1) is None


def test_without_padding_nothing_is_made_up():
    mask = AttentionMask(causal=True, window=4, offset=2)
    assert mask.padded(5, 7, 0, 0) == mask
    assert AttentionMask().padded(5, 7, 0, 0).block(0, 5, 0, 7) is None


@settings(max_examples=150, deadline=None)
@given(runs(), st.integers(1, 14))
def test_ranges_are_the_keys_and_the_queries_that_position_leaves_to_a_run_of_the_others(run, length):
    mask, first, last = run

    def check(found, allowed):
        """`allowed (run, length)`: which places each of the run may meet."""
        begin, end = (int(each) for each in found)
        assert begin >= 0 and end <= length
        places = [place for place in range(length) if allowed[:, place].any()]
        assert list(range(begin, min(length, end))) == places

    def rule(queries, keys):
        distance = queries + mask.offset - keys
        return ((distance >= 0) | (not mask.causal)) & (abs(distance) < (mask.window or 99))

    members, places = np.arange(first, last + 1)[:, None], np.arange(length)[None]
    check(mask.key_range(first, last, length), rule(members, places))
    check(mask.query_range(first, last, length), rule(places, members))


@settings(max_examples=150, deadline=None)
@given(runs(), st.integers(1, 5), st.integers(0, 11), st.integers(1, 5))
def test_a_block_allows_all_or_has_a_forbidden_pair(run, queries, first_key, keys):
    mask, first_query, _ = run
    block = first_query, queries, first_key, keys
    allowed, whole = mask.block(*block), mask.allows_all(*block)
    assert (allowed is None) == (whole is None)
    if allowed is not None:
        assert bool(whole) == np.all(allowed)


def test_only_positions_tell_in_advance_whether_a_block_allows_all():
    assert AttentionMask(causal=True, keys=np.ones((1, 9), bool)).allows_all(4, 2, 0, 2) is None
    assert AttentionMask(causal=True, pairs=np.ones((1, 1, 9, 9), bool)).allows_all(4, 2, 0, 2) is None


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_offset_may_be_a_tensor(dtype):
    mask = AttentionMask(causal=True, window=3, offset=2)
    lazy = AttentionMask(causal=True, window=3, offset=tf.constant(2, dtype))
    np.testing.assert_array_equal(lazy.dense(5, 7), mask.dense(5, 7))
    np.testing.assert_array_equal(lazy.block(1, 3, 2, 4), mask.block(1, 3, 2, 4))
    one = tf.constant(1)
    assert [int(each) for each in lazy.key_range(one, one + 1, 7)] == [1, 5]
    assert [int(each) for each in lazy.query_range(one + 3, one + 4, 5)] == [2, 5]


@pytest.mark.parametrize("name", ["pairs", "pairs for all queries", "all"])
def test_lengths_may_be_unknown_in_a_graph(name):
    mask = AttentionMask(**PARTS[name][0], queries=QUERIES)

    def call(length, memory_length, extra_queries, extra_keys):
        dense = mask.dense(length, memory_length)
        padded = mask.padded(length, memory_length, extra_queries, extra_keys)
        return dense, mask.any_allowed(dense), padded.block(length - 2, 3, memory_length - 3, 5)

    graph = tf.function(call, input_signature=[tf.TensorSpec((), tf.int32)] * 4, autograph=False)
    for result, expected in zip(graph(5, 7, 1, 2), call(5, 7, 1, 2), strict=True):
        np.testing.assert_array_equal(result, expected)


# The softmax.

FORBIDDEN_ROW = [[True, True, False], [False, False, False]]


def test_forbidden_positions_weigh_nothing_and_the_others_share():
    scores = np.log([[1.0, 2.0, 3.0, 99.0], [5.0, 1.0, 1.0, 3.0]])
    weights = masked_softmax(scores, np.array([[True, True, True, False], [False, True, False, True]]))
    np.testing.assert_allclose(weights, [[1 / 6, 2 / 6, 3 / 6, 0], [0, 1 / 4, 0, 3 / 4]], rtol=1e-6)
    assert weights[0, 3] == weights[1, 0] == weights[1, 2] == 0.0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_row_without_allowed_position_is_zero_and_the_result_float32(dtype):
    weights = masked_softmax(tf.constant([[1.0, 1.0, 5.0], [1.0, 2.0, 3.0]], dtype), np.array(FORBIDDEN_ROW))
    assert weights.dtype == "float32"
    np.testing.assert_array_equal(weights, [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]])


def test_sums_in_float32_whatever_the_scores():
    # 4097 equal weights: bfloat16 holds neither their sum nor 1/4097 to better than a 256th.
    weights = masked_softmax(tf.zeros((1, 4100), "bfloat16"), tf.range(4100)[None] < 4097)
    np.testing.assert_allclose(weights[0, :4097], np.full(4097, 1 / 4097), rtol=1e-6)


@pytest.mark.parametrize("huge", [1e4, 6e4, 1e38])
def test_huge_scores_neither_overflow_nor_vanish(huge):
    dtype = "float16" if huge < 65504 else "float32"
    scores = tf.constant([[huge, -huge, huge, huge], [-huge, -huge, huge, -huge]], dtype)
    mask = np.array([[True, True, True, False], [True, True, False, False]])
    np.testing.assert_array_equal(masked_softmax(scores, mask), [[0.5, 0, 0.5, 0], [0.5, 0.5, 0, 0]])


@pytest.mark.parametrize("garbage", [3.4e38, np.inf, -np.inf, np.nan])
def test_whatever_stands_at_forbidden_positions_is_without_effect(garbage):
    scores = tf.constant([[0.0, garbage, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        weights = masked_softmax(scores, np.array([[True, False, True]]))
        first = weights[0, 0]
    np.testing.assert_array_equal(weights, [[0.5, 0.0, 0.5]])
    np.testing.assert_array_equal(tape.gradient(first, scores), [[0.25, 0.0, -0.25]])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-13)])
def test_agrees_with_numpy_for_any_mask_and_keeps_float64(numpy_softmax, dtype, tolerance):
    random = np.random.default_rng(0)
    scores, mask = random.normal(0, 5, (3, 4, 5)).astype(dtype), random.random((3, 4, 5)) < 0.3
    assert (~mask.any(-1)).any()  # some rows may attend to nothing
    for allowed in (None, mask):
        weights = masked_softmax(scores, allowed)
        assert weights.dtype == dtype
        np.testing.assert_allclose(weights, numpy_softmax(scores, True if allowed is None else mask), rtol=tolerance)


@pytest.mark.parametrize("queries", [None, QUERIES], ids=["all queries", "masked queries"])
def test_a_strip_is_a_part_of_the_mask(case, queries, numpy_allowed):
    """Of queries 1 to 3 and keys 0 to 3; the offset keeps the queries at their positions."""
    parts, _ = case
    strip = AttentionMask(**parts, queries=queries).strip(1, 4)
    dense = strip.dense(3, 4)
    found = np.broadcast_to(dense, (2, 3, 3, 4)) & (True if queries is None else strip.queries[:, None, :, None])
    expected = numpy_allowed(SHAPE, **parts, **({} if queries is None else {"queries": queries}))
    np.testing.assert_array_equal(found, expected[:, :, 1:4, :4])
