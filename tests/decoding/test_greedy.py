import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.decoding import Hypotheses, greedy
from zoo.models import RNNSeq2Seq

PADDING, START, END = 0, 2, 3
A, B, C = 4, 5, 6
VOCABULARY, LENGTH = 7, 4  # V, and S of the weights


class Table:
    """A model without a network: what is given as the source is its logits `(B, position, V)`.

    Its attention at a position is on the source token of that position. It counts its steps.
    """

    def __init__(self, attentive=True):
        self.attentive = attentive
        self.steps = tf.Variable(0, trainable=False)

    def begin(self, source):
        return {"logits": source}, (tf.zeros((tf.shape(source)[0], 1, 1)),)

    def step(self, tokens, position, memory, cache):
        assert tokens.dtype == "int32" and tokens.shape[1:] == (1,)
        self.steps.assign_add(1)
        weights = None
        if self.attentive:
            weights = tf.tile(tf.one_hot(position, LENGTH)[None, None], (tf.shape(tokens)[0], 1, 1))
        return memory["logits"][:, position, None], cache, weights


def table(*rows):
    """Logits under which each row's tokens are the likeliest: 2 for the token, 0 for the six others."""
    return tf.constant(np.stack([2 * np.eye(VOCABULARY)[list(row)] for row in rows]), tf.float32)


LIKELY = 2 - np.log(np.exp(2) + 6)  # log softmax of that


def compiled(model, **options):
    """The loop in a graph that knows no size but the width of the vocabulary."""

    @tf.function(input_signature=[tf.TensorSpec([None, None, VOCABULARY]), tf.TensorSpec([None], tf.int32)])
    def run(source, limits):
        return greedy(model, source, limits, **options)

    return run


def eager(model, **options):
    return lambda source, limits: greedy(model, source, tf.constant(limits, tf.int32), **options)


@pytest.fixture(params=[eager, compiled], ids=["eager", "graph"])
def run(request):
    return request.param


def test_takes_the_likeliest_until_the_end_and_then_pads(run):
    logits = table((A, END, B, B), (B, A, END, C), (END, C, C, C))
    hypotheses = run(Table())(logits, [4, 4, 4])
    assert isinstance(hypotheses, Hypotheses)
    assert hypotheses.ids.dtype == "int32"
    np.testing.assert_array_equal(hypotheses.ids, [[A, END, 0], [B, A, END], [END, 0, 0]])
    expected = LIKELY * np.array([[1, 1, 0], [1, 1, 1], [1, 0, 0]])
    np.testing.assert_allclose(hypotheses.token_log_probabilities, expected, rtol=1e-6)
    np.testing.assert_allclose(hypotheses.log_probabilities, LIKELY * np.array([2, 3, 1]), rtol=1e-6)
    assert hypotheses.weights is None


def test_each_row_stops_at_its_own_limit(run):
    model = Table()
    hypotheses = run(model)(table(*[(A, B, C, A)] * 4, (A, B, END, C)), [2, 0, 3, 1, 3])
    np.testing.assert_array_equal(hypotheses.ids, [[A, B, 0], [0, 0, 0], [A, B, C], [A, 0, 0], [A, B, END]])
    np.testing.assert_allclose(hypotheses.log_probabilities, LIKELY * np.array([2, 0, 3, 1, 3]), rtol=1e-6)
    assert model.steps == 3


@pytest.mark.parametrize(
    ("limits", "steps"), [([4, 4], 3), ([1, 4], 2), ([4, 1], 3), ([2, 2], 2), ([0, 0], 1), ([0, 4], 2)]
)
def test_stops_as_soon_as_every_row_has_ended(run, limits, steps):
    # At least one step, so that the result has a column.
    model = Table()
    hypotheses = run(model)(table((A, B, END, A), (A, END, A, A)), limits)
    assert model.steps == steps
    assert hypotheses.ids.shape == hypotheses.token_log_probabilities.shape == (2, steps)


def test_never_produces_padding_unknown_or_start_and_counts_their_probability(run):
    logits = np.zeros((3, 1, VOCABULARY), "float32")
    for row, special in enumerate((0, 1, 2)):
        logits[row, 0, special] = 9
        logits[row, 0, 4 + row] = 1
    hypotheses = run(Table())(tf.constant(logits), [1, 1, 1])
    np.testing.assert_array_equal(hypotheses.ids, [[4], [5], [6]])
    # The model's own probability: what the three may not hold is not shared out.
    np.testing.assert_allclose(hypotheses.log_probabilities, [1 - np.log(np.exp(9) + np.exp(1) + 5)] * 3, rtol=1e-6)


def test_log_probabilities_of_huge_logits_are_finite(run):
    logits = np.full((1, 1, VOCABULARY), -1e4, "float32")
    logits[0, 0, [A, B]] = 1e4
    hypotheses = run(Table())(tf.constant(logits), [1])
    np.testing.assert_allclose(hypotheses.log_probabilities, [np.log(0.5)], atol=1e-3)  # the spacing of float32 at 1e4


def test_an_empty_batch_gives_an_empty_result(run):
    hypotheses = run(Table(), return_weights=True)(tf.zeros((0, 4, VOCABULARY)), [])
    assert hypotheses.ids.shape == hypotheses.token_log_probabilities.shape == (0, 1)
    assert hypotheses.weights.shape == (0, 1, LENGTH)
    assert hypotheses.log_probabilities.shape == (0,)


def test_weights_are_those_of_each_step_and_zero_at_padding(run):
    hypotheses = run(Table(), return_weights=True)(table((A, B, END, A), (A, END, A, A), (A, A, A, A)), [4, 4, 0])
    one, two, three = np.eye(LENGTH)[:3]
    none = np.zeros(LENGTH)
    assert hypotheses.weights.dtype == "float32"
    np.testing.assert_array_equal(hypotheses.weights, [[one, two, three], [one, two, none], [none] * 3])


def test_weights_of_a_model_without_attention_are_refused(run):
    with pytest.raises(ValueError, match="`return_weights` needs a model with attention; this one returns no weights"):
        run(Table(attentive=False), return_weights=True)(table((A, END)), [2])
    np.testing.assert_array_equal(run(Table(attentive=False))(table((A, END)), [2]).ids, [[A, END]])


class Remembering:
    """A model whose cache grows by a token a step, and whose next token is made of all tokens before.

    It is 4 + (the sum of position times token) modulo 3, after four tokens the end. The source is an offset a row.
    """

    def begin(self, source):
        return {"offset": source}, {"tokens": tf.zeros((tf.shape(source)[0], 1, 0, 1), tf.int32)}

    def step(self, tokens, position, memory, cache):
        tokens = tf.concat([cache["tokens"], tokens[:, :, None, None]], axis=2)
        count = tf.shape(tokens)[2]
        tf.debugging.assert_equal(count, position + 1)
        history = tf.reduce_sum(tf.range(1, count + 1) * tokens[..., 0], -1)  # (B, 1)
        following = tf.where(count > 4, END, 4 + (history + memory["offset"][:, None]) % 3)
        return 5.0 * tf.one_hot(following, VOCABULARY), {"tokens": tokens}, None


def remembered(offset):
    tokens = [START]
    while len(tokens) < 5:
        tokens.append(4 + (sum(i * token for i, token in enumerate(tokens, 1)) + offset) % 3)
    return [*tokens[1:], END]


@pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "graph"])
def test_feeds_start_and_then_what_it_produced_to_a_cache_that_grows(in_graph):
    def run(source, limits):
        return greedy(Remembering(), source, limits)

    call = tf.function(run, input_signature=[tf.TensorSpec([None], tf.int32)] * 2) if in_graph else run
    hypotheses = call(tf.constant([0, 1, 2]), tf.constant([9, 9, 9]))
    expected = [remembered(offset) for offset in range(3)]
    assert len({tuple(row) for row in expected}) == 3
    np.testing.assert_array_equal(hypotheses.ids, expected)


# With a real model.

SOURCE = np.array([[4, 5, 6, 7, 3], [8, 3, 0, 0, 0], [10, 9, 3, 0, 0], [5, 5, 5, 3, 0], [6, 8, 7, 4, 3]], "int32")
LIMITS = np.array([6, 6, 2, 6, 6], "int32")


@pytest.fixture(scope="module", params=[("additive", "gru"), ("dot", "lstm")], ids=str)
def model(request, randomize):
    attention, cell = request.param
    # Such that rows differ, and some end and some meet their limit.
    return randomize(RNNSeq2Seq(11, 9, attention=attention, cell=cell, units=6), seed=23, scale=0.7)


def in_graph(model, **options):
    signature = [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)]
    return tf.function(lambda source, limits: greedy(model, source, limits, **options), input_signature=signature)


def test_scores_are_the_teacher_forced_log_probabilities_of_what_is_produced(model):
    hypotheses = in_graph(model)(SOURCE, LIMITS)
    ids = np.array(hypotheses.ids)
    assert len({tuple(row) for row in ids}) >= 3
    assert (ids == END).any() and (ids[:, -1] > END).any()  # some end, some are cut
    target = np.concatenate([np.full((5, 1), START), ids[:, :-1]], 1)
    log_softmax = np.array(tf.nn.log_softmax(model({"source": SOURCE, "target": target})))
    expected = np.take_along_axis(log_softmax, ids[..., None], -1)[..., 0] * (ids != PADDING)
    np.testing.assert_allclose(hypotheses.token_log_probabilities, expected, atol=1e-5)
    np.testing.assert_allclose(hypotheses.log_probabilities, expected.sum(1), atol=1e-5)
    # No other token would have been likelier.
    likeliest = log_softmax[..., END:].argmax(-1) + END
    np.testing.assert_array_equal(ids, np.where(ids != PADDING, likeliest, 0))


@pytest.mark.parametrize(("policy", "precision"), [("mixed_bfloat16", 2**-8), ("mixed_float16", 2**-11)])
def test_a_model_of_lower_precision_decodes(model, policy, precision):
    low = RNNSeq2Seq(**{**model.get_config(), "dtype": keras.DTypePolicy(policy)})
    low.set_weights(model.get_weights())
    hypotheses = in_graph(low)(SOURCE, LIMITS)
    assert hypotheses.token_log_probabilities.dtype == "float32"
    ids = np.array(hypotheses.ids)
    target = np.concatenate([np.full((5, 1), START), ids[:, :-1]], 1)
    log_softmax = tf.nn.log_softmax(low({"source": SOURCE, "target": target}))
    expected = np.take_along_axis(np.array(log_softmax), ids[..., None], -1)[..., 0] * (ids != PADDING)
    # Of logits up to 8 both passes keep 8 or 11 bits.
    np.testing.assert_allclose(hypotheses.token_log_probabilities, expected, atol=8 * precision)
