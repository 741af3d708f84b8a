import itertools

import numpy as np
import pytest
import tensorflow as tf

from zoo.decoding import beam_search, greedy
from zoo.models import RNNSeq2Seq, Transformer

END = 3
A, B, C = 4, 5, 6
VOCABULARY = 7
SIZES = dict(source_vocabulary_size=7, target_vocabulary_size=VOCABULARY, units=8)
SOURCE = np.array([[4, 5, 6, 4, 3], [6, 3, 0, 0, 0], [5, 5, 6, 3, 0]], "int32")


class Bigrams:
    """A model whose next token depends on the last one alone: the source is its probabilities `(B, V, V)`.

    Its cache counts the steps of a hypothesis, and its attention is on the token read.
    """

    def begin(self, source):
        return {"logits": tf.math.log(source)}, (tf.zeros((tf.shape(source)[0], 1, 1)),)

    def step(self, tokens, position, memory, cache):
        logits = tf.gather(memory["logits"], tokens, batch_dims=1)
        return logits, (cache[0] + 1,), tf.one_hot(tokens, VOCABULARY)


def bigrams(**rows):
    """Probabilities by last token, as `{last: {next: probability}}`; a millionth where nothing is given."""
    table = np.full((VOCABULARY, VOCABULARY), 1e-6)
    numbers = {"start": 2, "end": END, "a": A, "b": B, "c": C}
    for last, following in rows.items():
        for token, probability in following.items():
            table[numbers[last], numbers[token]] = probability
    return tf.constant(table[None], tf.float32)


# Where the likeliest first token leads nowhere: a b-beam finds "b end" (0.36), greedy takes "a ..." (0.5 x 0.4).
GARDEN_PATH = bigrams(
    start={"a": 0.5, "b": 0.4, "end": 0.1},
    a={"a": 0.3, "b": 0.3, "end": 0.4},
    b={"a": 0.05, "b": 0.05, "end": 0.9},
)


@pytest.fixture(scope="module", params=[Transformer, RNNSeq2Seq])
def model(request, randomize):
    family = request.param
    more = dict(num_heads=2, feed_forward_units=5, encoder_layers=1, decoder_layers=1) if family is Transformer else {}
    return randomize(family(**SIZES, **more), scale=1.0)


def limits(rows, limit):
    return tf.fill([rows], limit)


def trimmed(ids):
    return tuple(int(token) for token in ids if token)


def test_finds_what_greedy_decoding_misses():
    beams = beam_search(Bigrams(), GARDEN_PATH, [5], beam_size=2, length_penalty=0.0, n_best=2, return_weights=True)
    assert [trimmed(ids) for ids in beams.ids[0]] == [(B, END), (A, END)]
    np.testing.assert_allclose(beams.log_probabilities, [np.log([0.36, 0.2])], rtol=1e-5)
    np.testing.assert_array_equal(beams.scores, beams.log_probabilities)
    # What was read at each step: the start, then b (or a).
    np.testing.assert_array_equal(np.argmax(beams.weights[0], -1), [[2, B], [2, A]])
    model = Bigrams()
    np.testing.assert_array_equal(greedy(model, GARDEN_PATH, tf.constant([5])).ids, [[A, END]])


def test_scores_are_divided_by_the_papers_length_penalty():
    beams = beam_search(Bigrams(), GARDEN_PATH, [5], beam_size=3, length_penalty=0.6, n_best=3)
    for ids, score, log_probability in zip(beams.ids[0], beams.scores[0], beams.log_probabilities[0], strict=True):
        assert float(score) == pytest.approx(float(log_probability) / ((5 + len(trimmed(ids))) / 6) ** 0.6, rel=1e-6)


def test_a_larger_penalty_finds_longer_texts():
    # "a" goes on with 0.9 a step: against "end" at once (0.5), six tokens have 0.5 x 0.9^4 x 0.1.
    source = bigrams(start={"a": 0.5, "end": 0.5 - 1e-3}, a={"a": 0.9, "end": 0.1})
    lengths = {}
    for penalty in (0.0, 3.0):
        beams = beam_search(Bigrams(), source, [6], beam_size=60, length_penalty=penalty)
        lengths[penalty] = len(trimmed(beams.ids[0, 0]))
    assert lengths == {0.0: 1, 3.0: 6}


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
def test_a_wide_beam_is_an_exhaustive_search(model, penalty):
    limit, n_best = 4, 5
    texts = [(*text, END) for n in range(limit) for text in itertools.product((A, B, C), repeat=n)]
    texts += itertools.product((A, B, C), repeat=limit)
    ids = np.zeros((len(texts), limit), "int32")
    for row, text in enumerate(texts):
        ids[row, : len(text)] = text
    previous = np.pad(ids[:, :-1], [(0, 0), (1, 0)], constant_values=2)
    beams = beam_search(model, SOURCE, limits(3, limit), 120, penalty, n_best)
    for row, source in enumerate(SOURCE):
        logits = model({"source": np.tile(source, (len(texts), 1)), "target": previous})
        log_softmax = np.array(tf.nn.log_softmax(logits))
        of_tokens = np.take_along_axis(log_softmax, ids[..., None], -1)[..., 0] * (ids != 0)
        scores = of_tokens.sum(-1) / ((5 + (ids != 0).sum(-1)) / 6) ** penalty
        best = np.argsort(-scores)[:n_best]
        assert [trimmed(each) for each in beams.ids[row]] == [texts[index] for index in best]
        np.testing.assert_allclose(beams.scores[row], scores[best], atol=1e-4)


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_beam_of_one_is_greedy_decoding(model, penalty):
    beams = beam_search(model, SOURCE, tf.constant([2, 9, 9]), 1, penalty, return_weights=True)
    hypotheses = greedy(model, SOURCE, tf.constant([2, 9, 9]), return_weights=True)
    np.testing.assert_array_equal(beams.ids[:, 0], hypotheses.ids)
    np.testing.assert_allclose(beams.log_probabilities[:, 0], hypotheses.log_probabilities, atol=1e-5)
    np.testing.assert_allclose(beams.weights[:, 0], hypotheses.weights, atol=1e-6)


def test_probabilities_and_weights_are_those_of_the_hypotheses(model):
    beams = beam_search(model, SOURCE, limits(3, 6), 4, 0.6, 3, return_weights=True)
    for n in range(3):
        ids = np.array(beams.ids[:, n])
        previous = np.pad(ids[:, :-1], [(0, 0), (1, 0)], constant_values=2)
        log_softmax = np.array(tf.nn.log_softmax(model({"source": SOURCE, "target": previous})))
        of_tokens = np.take_along_axis(log_softmax, ids[..., None], -1)[..., 0] * (ids != 0)
        np.testing.assert_allclose(beams.log_probabilities[:, n], of_tokens.sum(-1), atol=1e-4)
        memory, cache = model.begin(SOURCE)
        for t in range(ids.shape[1]):
            _, cache, weights = model.step(previous[:, t : t + 1], t, memory, cache)
            expected = np.array(weights)[:, 0] * (ids[:, t] != 0)[:, None]
            np.testing.assert_allclose(beams.weights[:, n, t], expected, atol=1e-5)


def test_runs_in_a_graph_of_unknown_sizes(model):
    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)])
    def run(source, limits):
        return beam_search(model, source, limits, 3, 0.6, 2, return_weights=True)

    expected = beam_search(model, SOURCE, limits(3, 6), 3, 0.6, 2, return_weights=True)
    for result, each in zip(run(SOURCE, limits(3, 6)), expected, strict=True):
        np.testing.assert_allclose(result, each, atol=1e-5)
    assert run(SOURCE[:0], limits(0, 6)).ids.shape[:2] == (0, 2)


def test_runs_in_a_graph_where_the_number_of_limits_alone_is_known(model):
    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def run(source):
        return beam_search(model, source, tf.constant([4]), 3).scores

    np.testing.assert_allclose(run(SOURCE[:1]), beam_search(model, SOURCE[:1], [4], 3).scores, atol=1e-5)


def test_a_row_of_limit_zero_stays_empty(model):
    beams = beam_search(model, SOURCE, tf.constant([0, 4, 0]), 2, return_weights=True)
    assert not np.any(beams.ids[0]) and not np.any(beams.ids[2]) and np.any(beams.ids[1])
    assert not np.any(beams.weights[0])
    assert (np.array(beams.scores[::2]) == -np.inf).all()


def test_it_stops_when_no_open_hypothesis_can_win():
    class Counting(Bigrams):
        def __init__(self):
            self.steps = tf.Variable(0, trainable=False)

        def step(self, *arguments):
            self.steps.assign_add(1)
            return super().step(*arguments)

    # "end" at once has 0.9: whatever follows "a" has at most 0.1, and a penalty of at most (5 + 50)/6 = 9.2 cannot
    # bring it above.
    source = bigrams(start={"end": 0.9, "a": 0.1}, a={"a": 0.5, "b": 0.5}, b={"b": 0.5, "a": 0.5})
    model = Counting()
    beams = beam_search(model, source, [50], beam_size=2, length_penalty=1.0)
    assert trimmed(beams.ids[0, 0]) == (END,)
    assert model.steps == 1
    # The second best is not known so soon.
    model = Counting()
    assert len(trimmed(beam_search(model, source, [50], 2, 1.0, n_best=2).ids[0, 1])) > 1
    assert model.steps > 10


def test_fewer_texts_than_asked_for_leave_the_rest_empty():
    # With a limit of 1 there are as many texts as tokens that may be produced: four.
    beams = beam_search(Bigrams(), GARDEN_PATH, [1], beam_size=6, length_penalty=0.0, n_best=6)
    assert [trimmed(ids) for ids in beams.ids[0, :3]] == [(A,), (B,), (END,)]
    np.testing.assert_array_equal(np.isfinite(beams.scores), [[True] * 4 + [False] * 2])
    assert not np.any(beams.ids[0, 4:])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beam_size": 0}, r"^`beam_size` must be a positive integer\. Received: beam_size=0$"),
        ({"beam_size": True}, r"^`beam_size` must be a positive integer\. Received: beam_size=True$"),
        ({"n_best": 1.5}, r"^`n_best` must be a positive integer\. Received: n_best=1\.5$"),
        ({"beam_size": 2, "n_best": 3}, r"^`n_best` must be at most `beam_size`\. Received: n_best=3, beam_size=2$"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        beam_search(Bigrams(), GARDEN_PATH, [3], **arguments)


def test_weights_need_attention():
    model = RNNSeq2Seq(**SIZES, attention=None)
    with pytest.raises(ValueError, match=r"^`return_weights` needs a model with attention"):
        beam_search(model, SOURCE, limits(3, 2), return_weights=True)
