import itertools
import re

import numpy as np
import pytest
import tensorflow as tf

from zoo.layers.functions.axes import AttentionAxes

QUERY, KEY = (2, 3, 4, 5, 6), (2, 7, 8, 9, 10)
AXES = {(2,): (2,), (3, 1): (3, 1), None: (1, 2, 3), (-2, 1): (3, 1), (1, 3): (1, 3)}  # and what they stand for


def places(shape, axes):
    """All indices along these axes, in the order in which they are folded."""
    return list(itertools.product(*(range(shape[axis]) for axis in axes)))


def others_of(axes):
    return [axis for axis in range(4) if axis not in AXES[axes]]


def key_shape(axes):
    """A key of other sizes than the query in the axes attended over."""
    return tuple(KEY[i] if i in (*AXES[axes], 4) else QUERY[i] for i in range(5))


@pytest.fixture(params=AXES, ids=str)
def axes(request):
    return request.param


@pytest.fixture
def image(arrays):
    return arrays(x=QUERY).x


def test_folds_the_axes_attended_over_into_one_and_the_others_into_the_batch_and_back(axes, image):
    order = (*others_of(axes), *AXES[axes])
    batches, positions = places(QUERY, others_of(axes)), places(QUERY, AXES[axes])

    def at(*index):
        return image[tuple(place for _, place in sorted(zip(order, index, strict=True)))]

    both = AttentionAxes(5, axes)
    folded = np.array(both.fold(image))
    np.testing.assert_array_equal(folded, [[at(*batch, *position) for position in positions] for batch in batches])
    np.testing.assert_array_equal(both.unfold(folded, image), image)
    # With further axes behind, and a query of another width.
    heads = np.stack([folded, 2 * folded, 3 * folded], axis=2)  # (B', T, H, D)
    expected = np.stack([image, 2 * image, 3 * image], axis=4)
    np.testing.assert_array_equal(both.unfold(heads, image[..., :1]), expected)


def test_a_sequence_stays_as_it_is():
    axes, x = AttentionAxes(3), tf.ones((2, 4, 5))
    mask, pairs, weights = tf.ones((2, 4), "bool"), tf.ones((1, 1, 4, 3), "bool"), tf.ones((2, 3, 4, 4))
    assert axes.fold(x) is axes.unfold(x, x) is x
    assert axes.fold_mask(mask, x).shape == (2, 4)
    assert axes.fold_pairs(pairs, x, tf.ones((2, 3, 6)), heads=5).shape == (1, 1, 4, 3)
    assert axes.unfold_weights(weights, x, x) is weights


@pytest.mark.parametrize("rank", [0, 1, 3, 4])
def test_a_mask_of_positions_folds_as_its_input_and_holds_for_all_along_the_axes_it_leaves_out(axes, rank):
    both, mask = AttentionAxes(5, axes), np.random.default_rng(1).random(QUERY[:rank]) < 0.5
    for given in (mask, mask[:1]) if rank else (mask,):
        whole = np.broadcast_to(given.reshape(given.shape + (1,) * (4 - rank)), QUERY[:-1])
        folded = both.fold_mask(given, np.zeros(QUERY))
        assert folded.dtype == "bool"
        np.testing.assert_array_equal(folded, np.array(both.fold(whole[..., None]))[..., 0])


def test_a_mask_of_sentences_holds_for_all_their_positions():
    folded = AttentionAxes(3).fold_mask(np.array([True, False]), np.zeros((2, 3, 5)))
    np.testing.assert_array_equal(folded, [[True] * 3, [False] * 3])


@pytest.mark.parametrize("rank", [3, 4])
def test_a_mask_may_be_of_numbers_and_may_be_none(rank):
    axes, mask = AttentionAxes(rank), np.array([[0.0, 0.5, 2.0], [1.0, 0.0, 0.0]])
    x = np.zeros((2, 3, 5) if rank == 3 else (2, 3, 1, 5))
    np.testing.assert_array_equal(axes.fold_mask(mask, x), mask != 0)
    assert axes.fold_mask(None, x) is axes.fold_pairs(None, x, x) is None
    pairs = axes.fold_pairs(mask.reshape(2, 1, 3, *(1,) * (2 * rank - 5)), x, x, heads=5)
    assert pairs.dtype == "bool" and not pairs[1, 0, -1, -1] and pairs[0, 0, -1, -1]


@pytest.mark.parametrize("ones", [(), (0, 1), (2, 4), (0, 1, 2, 3, 4, 5, 6, 7)], ids=str)
@pytest.mark.parametrize("axes", [(2,), (3, 1)], ids=str)
def test_a_mask_of_pairs_folds_axis_by_axis(axes, ones):
    both, heads, key = AttentionAxes(5, axes), 11, key_shape(axes)
    shape = both.weights_shape(QUERY, key, heads)
    assert shape == (*(QUERY[axis] for axis in others_of(axes)), 11, *(s[axis] for s in (QUERY, KEY) for axis in axes))
    mask = np.random.default_rng(2).random([1 if i in ones else size for i, size in enumerate(shape)]) < 0.5
    whole = np.broadcast_to(mask, shape)
    batches, targets, sources = places(QUERY, others_of(axes)), places(QUERY, axes), places(key, axes)
    picked = [[[[whole[(*b, h, *t, *s)] for s in sources] for t in targets] for h in range(11)] for b in batches]
    folded = both.fold_pairs(mask, np.zeros(QUERY), np.zeros(key), heads=heads)
    np.testing.assert_array_equal(np.broadcast_to(folded, np.shape(picked)), picked)
    np.testing.assert_array_equal(both.unfold_weights(np.array(picked), np.zeros(QUERY), np.zeros(key)), whole)


@pytest.mark.parametrize(("left_out", "given"), [(1, (2, 4)), (2, (2,)), (3, ())])
def test_a_mask_of_pairs_may_leave_out_the_heads_then_the_last_of_the_batch(left_out, given):
    axes, query, key = AttentionAxes(4, (1,)), np.zeros((2, 3, 4, 6)), np.zeros((2, 7, 4, 6))
    mask = np.random.default_rng(3).random((*given, 3, 7)) < 0.5
    whole = np.broadcast_to(mask.reshape((*given, *(1,) * left_out, 3, 7)), (2, 4, 1, 3, 7))
    for heads in (5, None):
        np.testing.assert_array_equal(axes.fold_pairs(mask, query, key, heads=heads), whole.reshape((8, 1, 3, 7)))


def test_a_mask_of_pairs_of_sequences_may_be_of_all_or_of_each_sentence_or_head():
    axes, query, key = AttentionAxes(3), np.zeros((2, 3, 6)), np.zeros((2, 7, 6))
    for shape, full in (((3, 7), (1, 1, 3, 7)), ((2, 3, 7), (2, 1, 3, 7)), ((2, 5, 3, 1), (2, 5, 3, 1))):
        mask = np.random.default_rng(4).random(shape) < 0.5
        np.testing.assert_array_equal(axes.fold_pairs(mask, query, key, heads=5), mask.reshape(full))


@pytest.mark.parametrize("axes", [(1,), (2, 1)], ids=str)
def test_sizes_may_be_unknown_in_a_graph(axes, arrays):
    both = AttentionAxes(4, axes)
    x = arrays(query=(2, 3, 4, 5), key=(2, 6, 7 if 2 in axes else 4, 5))
    shape = both.weights_shape(x.query.shape, x.key.shape, 8)
    pairs, mask = np.random.default_rng(5).random((*shape[:-1], 1)) < 0.5, x.query[..., 0] > 0

    def everything(query, key, pairs, mask):
        folded = both.fold(query)
        pairs = both.fold_pairs(pairs, query, key, heads=8)
        weights = both.unfold_weights(tf.cast(pairs, "float32"), query, key)
        return folded, both.unfold(folded, query), both.fold_mask(mask, query), pairs, weights

    specs = [tf.TensorSpec((None, None, None, 5))] * 2
    specs += [tf.TensorSpec((None,) * (pairs.ndim - 1) + (1,), "bool"), tf.TensorSpec((None,) * 3, "bool")]
    given = x.query, x.key, pairs, mask
    for result, expected in zip(
        tf.function(everything, specs, autograph=False)(*given), everything(*given), strict=True
    ):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("rank", "axes", "received"),
    [
        (3, (0,), "(0,)"),
        (4, (3,), "(3,)"),
        (4, (-1,), "(-1,)"),
        (4, (-4,), "(-4,)"),
        (4, [1, 1], "(1, 1)"),
        (4, (1, -3), "(1, -3)"),
    ],
)
def test_axes_that_there_are_not(rank, axes, received):
    message = (
        f"`attention_axes` must be different axes between the first (batch) and the last (features) of inputs of rank "
        f"{rank}. Received: attention_axes={received}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        AttentionAxes(rank, axes)


def test_inputs_without_a_batch_axis_are_named():
    with pytest.raises(ValueError, match=r"^Inputs of attention must be \(batch, length, features\).* of rank 2$"):
        AttentionAxes(2)


def test_shapes_that_fit():
    AttentionAxes(4, (1,)).check_shapes((2, 3, 4, 5), (2, 6, 4, 7), (2, 6, 4, 8))
    AttentionAxes(4, (1,)).check_shapes((None, 3, 4, 5), (2, 6, None, 7), (None, None, 4, 8))
    AttentionAxes(3).check_shapes((2, 3, 5), (2, 6, 7), (2, 6, 8))


RANKS = "Query, value and key must all be of rank 4."
KEYS = "All axes of value and key but the last must be equal."
OTHERS = "Query and value must be equal in the axes (0, 2), which are not attended over."


@pytest.mark.parametrize(
    ("query", "value", "key", "message"),
    [
        ((2, 3, 5), (2, 6, 4, 7), (2, 6, 4, 8), RANKS),
        ((2, 3, 4, 5), (2, 6, 7), (2, 6, 4, 8), RANKS),
        ((2, 3, 4, 5), (2, 6, 4, 7), (2, 6, 4, 8, 9), RANKS),
        ((2, 3, 4, 5), (2, 6, 4, 7), (2, 1, 4, 8), KEYS),
        ((2, 3, 4, 5), (1, 6, 4, 7), (2, 6, 4, 8), KEYS),
        ((2, 3, 4, 5), (2, 6, 9, 7), (2, 6, 9, 8), OTHERS),
        ((None, 3, 1, 5), (2, 6, 9, 7), (2, 6, None, 8), OTHERS),
    ],
)
def test_shapes_that_do_not_fit(query, value, key, message):
    message = re.escape(f"{message} Received shapes: query {query}, value {value}, key {key}")
    with pytest.raises(ValueError, match=f"^{message}$"):
        AttentionAxes(4, (1,)).check_shapes(list(query), value, key)


@pytest.mark.parametrize("shape", [(3,), (2, 4), (2, 1), (2, 3, 4, 5), (2, 3, 4, 5, 1)], ids=str)
def test_a_mask_of_positions_that_does_not_fit(shape):
    message = re.escape(
        f"`key_mask` must have the first axes of its input, (2, 3, 4). Received: key_mask of shape {shape}"
    )
    with pytest.raises(ValueError, match=f"^{message}$"):
        AttentionAxes(4).fold_mask(np.ones(shape), np.zeros((2, 3, 4, 5)), "key_mask")


@pytest.mark.parametrize(
    ("heads", "said"),
    [
        (5, "2 to 5 axes for {}: the queries' and the keys', before them the heads, before them the batch"),
        (None, "2 to 4 axes for {}: the queries' and the keys', before them the batch"),
    ],
    ids=["with heads", "without"],
)
def test_a_mask_of_pairs_with_too_few_or_too_many_axes(heads, said):
    axes, query, key = AttentionAxes(4, (-3,)), np.zeros((2, 3, 4, 5)), np.zeros((2, 7, 4, 6))
    for shape in ((3,), (2, 4, 5, 6, 3, 7)[not heads :]):
        said = said.format("attention over the axes (1,) of inputs of rank 4")
        message = re.escape(f"`attention_mask` must have {said}. Received: attention_mask of shape {shape}")
        with pytest.raises(ValueError, match=f"^{message}$"):
            axes.fold_pairs(np.ones(shape), query, key, heads=heads)


@pytest.mark.parametrize(
    ("shape", "heads"), [((7, 3), 6), ((4, 3, 7), None), ((2, 3, 9, 3, 7), 9), ((2, 4, 5, 3, 7), 6)], ids=str
)
def test_a_mask_of_pairs_of_other_sizes(shape, heads):
    said = (
        f"(batch, heads, queries, keys), here (2, 4, {heads}, 3, 7)"
        if heads
        else "(batch, queries, keys), here (2, 4, 3, 7)"
    )
    message = re.escape(f"`mask` must fit {said}, or have axes of 1. Received: mask of shape {shape}")
    query, key = np.zeros((2, 3, 4, 5)), np.zeros((2, 7, 4, 6))
    with pytest.raises(ValueError, match=f"^{message}$"):
        AttentionAxes(4, (1,)).fold_pairs(np.ones(shape), query, key, "mask", heads)


@pytest.mark.parametrize("lowest", [-1e9, -np.inf], ids=str)
@pytest.mark.parametrize("make", [np.array, tf.constant], ids=["NumPy", "a tensor"])
def test_a_mask_that_is_added_to_scores_would_mean_the_opposite(make, lowest):
    """As PyTorch's causal mask: 0 where attention is allowed."""
    x, mask = np.zeros((2, 3, 5)), make(np.triu(np.full((3, 3), lowest), 1))
    message = re.escape(f"pass `attention_mask == 0` instead. Received: attention_mask with the lowest number {lowest}")
    with pytest.raises(ValueError, match=f"{message}$"):
        AttentionAxes(3).fold_pairs(mask, x, x)
    with pytest.raises(ValueError, match=r"^`key_mask` must be True, or 1, where attention is allowed\."):
        AttentionAxes(3).fold_mask(mask[:2], x, "key_mask")
    np.testing.assert_array_equal(AttentionAxes(3).fold_pairs(mask == 0, x, x)[0, 0], np.tril(np.ones((3, 3))) > 0)
