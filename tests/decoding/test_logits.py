"""What is read from logits: the largest values, and log-probabilities."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zoo.decoding import logits_after, score, score_in_windows, score_tokens
from zoo.decoding.logits import log_normalizer, top_k
from zoo.models import GPT, RNNSeq2Seq, Transformer


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(1, 3000),
    rows=st.integers(1, 3),
    k=st.integers(1, 9),
    first=st.integers(0, 200),
    adds=st.booleans(),
    seed=st.integers(0, 100),
)
@example(size=2560, rows=1, k=1, first=130, adds=False, seed=0)
@example(size=2999, rows=1, k=1, first=130, adds=True, seed=0)
@example(size=256, rows=2, k=1, first=200, adds=True, seed=0)
@example(size=2557, rows=3, k=9, first=3, adds=True, seed=0)  # a prime number
def test_finds_what_a_sort_finds(size, rows, k, first, adds, seed):
    generator = np.random.default_rng(seed)
    first = min(first, size - 1)
    k = min(k, rows * (size - first))
    values = generator.permutation(2 * rows * size).reshape(2, rows, size).astype("float32")
    added = generator.integers(-size, size, (2, rows)).astype("float32") + np.linspace(0, 0.5, rows, dtype="float32")
    added = added if adds else np.zeros_like(added)
    largest, found, places = top_k(tf.constant(values), k, first, tf.constant(added) if adds else None)
    sums = values + added[..., None]
    sums[..., :first] = -np.inf
    order = np.argsort(-sums.reshape(2, -1))[:, :k]
    np.testing.assert_array_equal(largest, np.take_along_axis(sums.reshape(2, -1), order, 1))
    np.testing.assert_array_equal(found, order // size)
    np.testing.assert_array_equal(places, order % size)


@pytest.mark.parametrize("size", [100, 1000, 2057])
def test_the_likeliest_of_one_row_is_that_of_its_logits(size):
    """Two logits that differ by one rounding are equal as log-probabilities, whose numbers are larger."""
    logits = np.full((1, 1, size), 1.0, "float32")
    logits[..., size - 7] = np.nextafter(np.float32(1.0), np.float32(2.0))
    values, _, places = top_k(tf.constant(logits), 1, 3, tf.constant([[-30.0]]), as_log_probabilities=True)
    assert places.numpy().tolist() == [[size - 7]]
    np.testing.assert_allclose(values, [[-30.0 - np.log(size)]], rtol=1e-6)


@pytest.mark.parametrize("size", [100, 1000, 1009])
@pytest.mark.parametrize("added", [None, [[0.5, -1.0], [3.0, 2.0]]])
def test_log_probabilities_are_found(size, added):
    """Also beside an ignored value that is larger than all others."""
    logits = np.random.default_rng(0).normal(0, 5, (2, 2, size))
    logits[0, 1, 2] = 40
    exact = (
        logits - np.log(np.exp(logits).sum(-1, keepdims=True)) + (0 if added is None else np.array(added)[..., None])
    )
    exact[..., :3] = -np.inf
    order = np.argsort(-exact.reshape(2, -1))[:, :5]
    logits = tf.constant(logits, tf.float32)
    values, rows, places = top_k(logits, 5, 3, None if added is None else tf.constant(added), as_log_probabilities=True)
    np.testing.assert_allclose(values, np.take_along_axis(exact.reshape(2, -1), order, 1), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(rows.numpy() * size + places, order)


@pytest.mark.parametrize("rows", [1, 3])
def test_no_place_is_beyond_the_values_where_few_of_them_are_possible(rows):
    """2,053 is a prime number, so the last chunk of values is filled up."""
    values = np.full((2, rows, 2053), -np.inf, "float32")
    values[:, 0, 2052] = 1.0
    largest, found, places = top_k(tf.constant(values), 8)
    np.testing.assert_array_equal(largest, [[1.0] + [-np.inf] * 7] * 2)
    assert places.numpy().max() == places.numpy()[0, 0] == 2052
    assert found.numpy().max() < rows


@pytest.mark.parametrize("size", [100, 1000, 1009, 2057])
@pytest.mark.parametrize("rows", [1, 2])
def test_of_equal_values_the_first_is_the_largest(size, rows):
    """Like argmax, on every code path: otherwise a text would depend on its neighbours in the batch."""
    values = np.random.default_rng(0).integers(0, 3, (50, rows, size)).astype("float32")
    _, found, places = top_k(tf.constant(values), 1, first=3)
    expected = values[..., 3:].reshape(50, -1).argmax(-1)
    np.testing.assert_array_equal(found[:, 0], expected // (size - 3))
    np.testing.assert_array_equal(places[:, 0], expected % (size - 3) + 3)


def test_ignored_places_displace_no_other_value():
    values = np.arange(2000.0, dtype="float32").reshape(1, 2, 1000)
    values[0, :, :3] = 5000, 4000, 3000
    largest, rows, places = top_k(tf.constant(values), 2, first=3)
    assert [each.numpy().tolist() for each in (largest, rows, places)] == [[[1999, 1998]], [[1, 1]], [[999, 998]]]


@pytest.mark.parametrize("size", [8, 1000])
def test_several_of_the_largest_stand_side_by_side_in_the_only_row_in_question(size):
    """As all hypotheses but one are out of the question at the first step of a beam."""
    values = np.zeros((1, 3, size), "float32")
    values[0, :, 3:7] = [[9, 9, 9, 9], [4, 1, 3, 2], [9, 9, 9, 9]]
    added = tf.constant([[float("-inf"), 5.0, float("-inf")]])
    found = top_k(tf.constant(values), 4, added=added)
    assert [each.numpy().tolist() for each in found] == [[[9, 8, 7, 6]], [[1] * 4], [[3, 5, 6, 4]]]


def test_takes_infinities_and_rows_of_unknown_number():
    values = np.full((2, 1, 1000), -np.inf, "float32")
    values[0, 0, 7], values[1, 0, 999] = 1, 2
    run = tf.function(
        lambda values: top_k(values, 2), input_signature=[tf.TensorSpec([None, 1, 1000])], autograph=False
    )
    largest, _, places = run(values)
    np.testing.assert_array_equal(largest[:, 0], [1, 2])
    np.testing.assert_array_equal(places[:, 0], [7, 999])
    assert run(values[:0])[0].shape == (0, 2)


def test_the_normalizer_is_the_log_of_the_summed_exponentials():
    logits = np.random.default_rng(0).normal(0, 20, (2, 3, 1000)).astype("float32")
    expected = np.logaddexp.reduce(logits.astype("float64"), axis=-1)
    np.testing.assert_allclose(log_normalizer(tf.constant(logits)), expected, rtol=1e-6, atol=1e-5)
    # None of these has an exponential in float32.
    logits = np.array([[500.0, 499.0], [-500.0, -510.0], [0.0, float("-inf")]], "float32")
    expected = [500 + np.log1p(np.exp(-1)), -500 + np.log1p(np.exp(-10)), 0]
    np.testing.assert_allclose(log_normalizer(tf.constant(logits)), expected, rtol=1e-6)


# Long texts.

CONTEXT = 8
IDS = np.random.default_rng(3).integers(4, 13, (4, 21)).astype("int32")
for row, length in enumerate([21, 3, 9, 0]):
    IDS[row, length:] = 0
READ = np.pad(IDS[:, :-1], [(0, 0), (1, 0)], constant_values=2)


@pytest.fixture(scope="module")
def gpt(randomize):
    return randomize(GPT(13, units=12, num_heads=3, num_layers=1, context_length=CONTEXT), scale=0.4)


def test_a_long_text_is_scored_in_windows_each_token_once(gpt):
    """By hand, one row at a time: window after window, of which the last `stride` tokens are new.

    The model reads all windows in one call: what is behind a text's end changes no logits before it.
    """
    signature = [tf.TensorSpec([None, None], tf.int32)] * 2 + [tf.TensorSpec([], tf.int32)]

    @tf.function(input_signature=signature, autograph=False)
    def run(read, ids, stride):
        return score_in_windows(gpt, read, ids, CONTEXT, stride)

    windows = np.lib.stride_tricks.sliding_window_view(np.pad(READ, [(0, 0), (0, CONTEXT)]), CONTEXT, axis=1)
    log_softmax = tf.nn.log_softmax(gpt(windows.reshape(-1, CONTEXT))).numpy().reshape(*windows.shape, -1)
    for stride in (1, 3, 8):
        expected = []
        for of_windows, ids in zip(log_softmax, IDS, strict=True):
            length, total, counted = np.count_nonzero(ids), 0.0, 0
            for begin in range(0, length, stride):
                scores, end = of_windows[begin], min(begin + CONTEXT, length)
                total += sum(scores[place - begin, ids[place]] for place in range(counted, end))
                counted = max(counted, end)
            expected.append(total)
        found = run(READ, IDS, stride)
        np.testing.assert_allclose(found["log_probability"], expected, rtol=1e-5, atol=1e-4)
        np.testing.assert_array_equal(found["tokens"], [21, 3, 9, 0])
        assert run(READ[:0], IDS[:0], stride)["tokens"].shape == (0,)


@pytest.mark.parametrize("stride", [0, -1, CONTEXT + 1])
def test_a_stride_that_would_never_end_or_skip_tokens_is_refused(gpt, stride):
    for each in (stride, tf.constant(stride)):
        with pytest.raises(ValueError, match=rf"`stride` must be from 1 to .*{CONTEXT}\. Received: stride={stride}$"):
            score_in_windows(gpt, READ, IDS, CONTEXT, each)


def test_a_text_that_fits_is_scored_at_once(gpt):
    one, windows = score(gpt, READ[:, :8], IDS[:, :8]), score_in_windows(gpt, READ[:, :8], IDS[:, :8], CONTEXT, 2)
    np.testing.assert_array_equal(one["log_probability"], windows["log_probability"])


# Quantised models.

QUANTISED = {
    "GPT": lambda: GPT(13, units=12, num_heads=3, num_layers=1, context_length=CONTEXT, unused_ids=(5,)),
    "GPT, untied": lambda: GPT(13, units=12, num_heads=3, num_layers=1, context_length=CONTEXT, tied_embeddings=False),
    "RNNSeq2Seq": lambda: RNNSeq2Seq(13, 13, units=6),
    "RNNSeq2Seq, tied": lambda: RNNSeq2Seq(13, 13, units=6, readout_units=6, tied_embeddings="all"),
    "Transformer": lambda: Transformer(13, 13, 12, 3, 8, 1, 1, tied_embeddings="none", unused_ids=(5,)),
    "Transformer, tied": lambda: Transformer(13, 13, 12, 3, 8, 1, 1, tied_embeddings="target", use_output_bias=True),
}


# What a mode changes is inside Keras' layers, so one model suffices for int4.
@pytest.mark.parametrize(("name", "mode"), [*((name, "int8") for name in QUANTISED), ("GPT", "int4")])
@pytest.mark.usefixtures("no_collection")
def test_a_quantised_model_is_scored_by_its_own_logits(name, mode, randomize):
    model = randomize(QUANTISED[name]())
    model.quantize(mode)
    read, ids = READ[:3, :7], IDS[:3, :7]
    inputs = read if isinstance(model, GPT) else {"source": ids[:, :4], "target": read}
    logits = np.array(model(inputs), "float64")
    expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = np.where(ids > 0, np.take_along_axis(expected, ids[..., None], 2)[..., 0], 0)
    np.testing.assert_allclose(score_tokens(model, inputs, ids), expected, rtol=1e-4, atol=1e-3)
    lengths = tf.constant([7, 1, 3])
    np.testing.assert_allclose(
        logits_after(model, inputs, lengths), logits[range(3), lengths - 1], rtol=1e-4, atol=1e-3
    )
    with pytest.raises(
        ValueError, match=f"`output_weights` needs weights that are not quantised; .* has {mode} weights"
    ):
        model.output_weights()


def test_quantised_weights_without_a_function_of_logits_are_refused():
    class Model:
        output_weights = staticmethod(lambda: (tf.ones([3, 2], tf.int8), None))

        def without_logits(self):
            return tf.identity

    with pytest.raises(ValueError, match=r"`output_weights` must be floats.* `logits_of`.* Received: int8 weights"):
        score(Model(), tf.ones([1, 1, 2]), tf.constant([[1]]))
