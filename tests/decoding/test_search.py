"""Greedy decoding and beam search: by hand, against the models' own probabilities, and against all texts there are."""

import itertools
import re

import numpy as np
import pytest
import tensorflow as tf

from zoo.decoding import Hypotheses, WithMasks, WithPrefix, WithShortlist, beam_search, greedy
from zoo.models import Masks, RNNSeq2Seq, Transformer

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


def eager(model, **options):
    return lambda source, limits: greedy(model, source, tf.constant(limits, tf.int32), **options)


def compiled(model, **options):
    """The loop in a graph that knows no size but the width of the vocabulary."""
    signature = [tf.TensorSpec([None, None, VOCABULARY]), tf.TensorSpec([None], tf.int32)]
    return tf.function(
        lambda source, limits: greedy(model, source, limits, **options), input_signature=signature, autograph=False
    )


class TestGreedy:
    @pytest.mark.parametrize("call", [eager, compiled])
    def test_takes_the_likeliest_until_the_end_or_the_limit_and_then_pads(self, call):
        model = Table()
        run = call(model, return_weights=True)
        logits = table((A, END, B, B), (B, A, END, C), (END, C, C, C), (C, C, C, C), (A, B, C, A), (A, A, A, A))
        found = run(logits, [4, 4, 4, 3, 2, 0])
        assert isinstance(found, Hypotheses) and model.steps == 3
        ids = np.array([[A, END, 0], [B, A, END], [END, 0, 0], [C, C, C], [A, B, 0], [0, 0, 0]])
        np.testing.assert_array_equal(found.ids, ids)
        np.testing.assert_allclose(found.token_log_probabilities, LIKELY * (ids != 0), rtol=1e-6)
        np.testing.assert_allclose(found.log_probabilities, LIKELY * np.array([2, 3, 1, 3, 2, 0]), rtol=1e-6)
        np.testing.assert_array_equal(found.weights, np.eye(LENGTH)[[0, 1, 2]] * (ids != 0)[..., None])
        assert [each.dtype.name for each in found] == ["int32", "float32", "float32"]
        none = run(tf.zeros((0, 4, VOCABULARY)), [])
        assert [each.shape for each in none] == [(0, 1), (0, 1), (0, 1, LENGTH)]

    @pytest.mark.parametrize(("limits", "steps"), [([4, 4], 3), ([1, 4], 2), ([4, 1], 3), ([2, 2], 2), ([0, 0], 1)])
    def test_stops_as_soon_as_every_row_has_ended(self, limits, steps):
        """At least one step, so that the result has a column."""
        model = Table()
        found = eager(model)(table((A, B, END, A), (A, END, A, A)), limits)
        assert model.steps == steps
        assert found.ids.shape == found.token_log_probabilities.shape == (2, steps)

    def test_never_produces_padding_unknown_or_start_and_counts_their_probability(self):
        logits = np.zeros((4, 1, VOCABULARY), "float32")
        for row in range(3):
            logits[row, 0, [row, A + row]] = 9, 1
        logits[3, 0] = -1e4  # has no exponential in float32
        logits[3, 0, [A, B]] = 1e4
        found = eager(Table())(tf.constant(logits), [1] * 4)
        np.testing.assert_array_equal(found.ids, [[A], [B], [C], [A]])
        # The model's own probability: what the three may not hold is not shared out.
        expected = [1 - np.log(np.exp(9) + np.exp(1) + 5)] * 3
        np.testing.assert_allclose(found.log_probabilities[:3], expected, rtol=1e-6)
        np.testing.assert_allclose(found.log_probabilities[3], np.log(0.5), atol=1e-3)  # the spacing of float32 at 1e4

    def test_feeds_start_and_then_what_it_produced_to_a_cache_that_grows(self):
        """The next token is 4 + (the sum of position times token, and of the source) modulo 3; after four the end."""

        class Remembering:
            def begin(self, source):
                return {"offset": source}, {"tokens": tf.zeros((tf.shape(source)[0], 1, 0, 1), tf.int32)}

            def step(self, tokens, position, memory, cache):
                tokens = tf.concat([cache["tokens"], tokens[:, :, None, None]], axis=2)
                count = tf.shape(tokens)[2]
                tf.debugging.assert_equal(count, position + 1)
                history = tf.reduce_sum(tf.range(1, count + 1) * tokens[..., 0], -1)  # (B, 1)
                following = tf.where(count > 4, END, 4 + (history + memory["offset"][:, None]) % 3)
                return 5.0 * tf.one_hot(following, VOCABULARY), {"tokens": tokens}, None

        def expected(offset):
            tokens = [START]
            while len(tokens) < 5:
                tokens.append(4 + (sum(i * token for i, token in enumerate(tokens, 1)) + offset) % 3)
            return [*tokens[1:], END]

        signature = [tf.TensorSpec([None], tf.int32)] * 2
        run = tf.function(lambda *inputs: greedy(Remembering(), *inputs), input_signature=signature, autograph=False)
        rows = [expected(offset) for offset in range(3)]
        assert len({tuple(row) for row in rows}) == 3
        np.testing.assert_array_equal(run(tf.constant([0, 1, 2]), tf.constant([9, 9, 9])).ids, rows)


# Beam search by hand.


class Bigrams:
    """A model whose next token depends on the last one alone: the source is its probabilities `(B, V, V)`.

    Its cache counts the steps of a hypothesis, and its attention is on the token read. It counts its steps.
    """

    def __init__(self):
        self.steps = tf.Variable(0, trainable=False)

    def begin(self, source):
        return {"logits": tf.math.log(source)}, (tf.zeros((tf.shape(source)[0], 1, 1)),)

    def step(self, tokens, position, memory, cache):
        self.steps.assign_add(1)
        logits = tf.gather(memory["logits"], tokens, batch_dims=1)
        return logits, (cache[0] + 1,), tf.one_hot(tokens, VOCABULARY)


def bigrams(**rows):
    """Probabilities by last token, as `{last: {next: probability}}`; a millionth where nothing is given."""
    found = np.full((VOCABULARY, VOCABULARY), 1e-6)
    numbers = {"start": START, "end": END, "a": A, "b": B, "c": C}
    for last, following in rows.items():
        for token, probability in following.items():
            found[numbers[last], numbers[token]] = probability
    return tf.constant(found[None], tf.float32)


# Where the likeliest first token leads nowhere: a beam finds "b end" (0.36), greedy takes "a ..." (0.5 x 0.4).
GARDEN_PATH = bigrams(
    start={"a": 0.5, "b": 0.4, "end": 0.1},
    a={"a": 0.3, "b": 0.3, "end": 0.4},
    b={"a": 0.05, "b": 0.05, "end": 0.9},
)


def trimmed(ids):
    return tuple(int(token) for token in ids if token)


class TestBeamByHand:
    def test_finds_what_greedy_decoding_misses(self):
        beams = beam_search(Bigrams(), GARDEN_PATH, [5], beam_size=2, length_penalty=0.0, n_best=2, return_weights=True)
        assert [trimmed(ids) for ids in beams.ids[0]] == [(B, END), (A, END)]
        np.testing.assert_allclose(beams.log_probabilities, [np.log([0.36, 0.2])], rtol=1e-5)
        np.testing.assert_array_equal(beams.scores, beams.log_probabilities)
        # What was read at each step: the start, then b (or a).
        np.testing.assert_array_equal(np.argmax(beams.weights[0], -1), [[START, B], [START, A]])
        np.testing.assert_array_equal(greedy(Bigrams(), GARDEN_PATH, tf.constant([5])).ids, [[A, END]])

    def test_scores_are_divided_by_the_papers_length_penalty(self):
        beams = beam_search(Bigrams(), GARDEN_PATH, [5], beam_size=3, length_penalty=0.6, n_best=2)
        assert [trimmed(ids) for ids in beams.ids[0]] == [(B, END), (A, END)]
        np.testing.assert_allclose(beams.scores[0], np.log([0.36, 0.2]) / (7 / 6) ** 0.6, rtol=1e-5)

    def test_goes_on_while_an_open_hypothesis_may_win_by_its_length(self):
        """After one step "end" has ln 0.5 = -0.69, and "a" ln 0.4 = -0.92, which -0.92 / (7 / 6) does not put above.

        At the limit of six tokens it is -0.92 / (11 / 6) = -0.50.
        """
        source = bigrams(start={"end": 0.5, "a": 0.4, "b": 0.1}, a={"a": 0.9989, "b": 0.001}, b={"b": 0.9999})
        beams = beam_search(Bigrams(), source, [6], beam_size=2, length_penalty=1.0)
        assert trimmed(beams.ids[0, 0]) == (A,) * 6
        np.testing.assert_allclose(beams.scores, [[np.log(0.4 * 0.9989**5) * 6 / 11]], rtol=1e-3)

    def test_goes_on_while_an_open_hypothesis_may_win_by_being_short(self):
        """With a penalty below 0: "end" has ln 0.42 = -0.87, and "a", -0.60, becomes -1.10 at the limit.

        With the next token it is -0.60 x 7 / 6 = -0.70.
        """
        of_a = {"end": 0.98, "a": 0.01, "b": 0.01}
        source = bigrams(start={"end": 0.42, "a": 0.55, "b": 0.03}, a=of_a, b={"b": 0.9999})
        beams = beam_search(Bigrams(), source, [6], beam_size=2, length_penalty=-1.0)
        assert trimmed(beams.ids[0, 0]) == (A, END)
        np.testing.assert_allclose(beams.scores, [[np.log(0.55 * 0.98) * 7 / 6]], rtol=1e-3)

    @pytest.mark.parametrize("penalty", [1.0, -1.0])
    def test_stops_when_no_open_hypothesis_can_win(self, penalty):
        """At once "end" has 0.9. What follows "a" has at most 0.1, and no penalty up to 50 tokens brings that above."""
        source = bigrams(start={"end": 0.9, "a": 0.1}, a={"a": 0.5, "b": 0.5}, b={"b": 0.5, "a": 0.5})
        one, two = Bigrams(), Bigrams()
        beams = beam_search(one, source, [50], beam_size=2, length_penalty=penalty)
        assert (trimmed(beams.ids[0, 0]), int(one.steps)) == ((END,), 1)
        # The second best is not known so soon.
        assert len(trimmed(beam_search(two, source, [15], 2, 1.0, n_best=2).ids[0, 1])) > 1
        assert two.steps > 10

    def test_stops_when_as_many_are_finished_as_are_followed(self):
        """After "end" and "a end" the search is over, though "a a a a a a" would win by its length."""
        model, source = Bigrams(), bigrams(start={"end": 0.5, "a": 0.5}, a={"a": 0.5, "end": 0.5})
        beams = beam_search(model, source, [6], beam_size=2, length_penalty=3.0, n_best=2, early_stopping=True)
        assert [trimmed(ids) for ids in beams.ids[0]] == [(END,), (A, END)]
        assert model.steps == 2

    @pytest.mark.parametrize(
        ("stays", "early_stopping", "steps"),
        [(0.4, True, 2), (0.4, False, 2), (0.4, "never", 5), (0.9, True, 2), (0.9, False, 6), (0.9, "never", 6)],
    )
    def test_without_early_stopping_goes_on_while_an_open_hypothesis_would_count_if_it_ended_now(
        self, stays, early_stopping, steps
    ):
        """After two steps "end" and "a end" are finished. The score of "a end" is above that of "a a", or below it.

        Then 0.5 x 0.4^4 of five times "a" is too little even for the penalty of the limit: -4.36 / 6.16 = -0.71, and
        "end" has -0.69.
        """
        model, source = Bigrams(), bigrams(start={"end": 0.5, "a": 0.5}, a={"a": stays, "end": 1 - stays})
        beams = beam_search(model, source, [6], 2, length_penalty=3.0, early_stopping=early_stopping)
        best = (A,) * 6 if steps == 6 else (END,)
        assert (trimmed(beams.ids[0, 0]), int(model.steps)) == (best, steps)

    def test_by_default_unlikely_short_texts_do_not_end_the_search(self):
        """A model that is sure of each token: 0.97 for the next "a", 0.02 for an early end.

        "end" and "a end" are finished first, and "a a a a a a" is still the best.
        """
        source = bigrams(start={"a": 0.97, "end": 0.02}, a={"a": 0.97, "end": 0.02})
        best = trimmed(beam_search(Bigrams(), source, [6], beam_size=2).ids[0, 0])
        early = trimmed(beam_search(Bigrams(), source, [6], beam_size=2, early_stopping=True).ids[0, 0])
        assert (best, early) == ((A,) * 6, (A, END))

    def test_never_stops_early(self):
        """Of the same, five times "a" and one token more have 6 ln 0.5 / (11 / 6)^3 = -0.67, and "end" has -0.69."""
        model, source = Bigrams(), bigrams(start={"end": 0.5, "a": 0.5}, a={"a": 0.5, "end": 0.5})
        beams = beam_search(model, source, [6], beam_size=2, length_penalty=3.0, early_stopping="never")
        assert trimmed(beams.ids[0, 0])[:5] == (A,) * 5
        np.testing.assert_allclose(beams.scores, [[6 * np.log(0.5) * (6 / 11) ** 3]], rtol=1e-5)

    @pytest.mark.parametrize("unknown", ["always", 1, None, np.array([1, 2]), tf.constant([1, 2])])
    def test_an_unknown_rule_for_the_end_is_refused(self, unknown):
        message = re.escape(f"`early_stopping` must be True, False or 'never'. Received: {unknown!r}")
        with pytest.raises(ValueError, match=message):
            beam_search(Bigrams(), GARDEN_PATH, [3], early_stopping=unknown)

    @pytest.mark.parametrize(("power", "best"), [(1.0, (A,) * 6), (0.0, (END,))])
    def test_the_mean_is_the_log_probability_by_the_length(self, power, best):
        """With the power 1 a token of "a a a a a a" counts, ln(0.4) / 6 = -0.15; with 0 the whole, ln 0.5 of "end"."""
        source = bigrams(start={"end": 0.5, "a": 0.4, "b": 0.1}, a={"a": 0.9989, "b": 0.001}, b={"b": 0.9999})
        beams = beam_search(Bigrams(), source, [6], 2, power, length_normalization="mean")
        assert trimmed(beams.ids[0, 0]) == best
        expected = np.log(0.4 * 0.9989**5) / 6 if power else np.log(0.5)
        np.testing.assert_allclose(beams.scores, [[expected]], rtol=1e-3)

    @pytest.mark.parametrize("unknown", ["sum", [], np.array(["wu", "mean"])])
    def test_an_unknown_normalisation_is_refused(self, unknown):
        message = re.escape(f"`length_normalization` must be 'wu' or 'mean'. Received: {unknown!r}")
        with pytest.raises(ValueError, match=message):
            beam_search(Bigrams(), GARDEN_PATH, [3], length_normalization=unknown)

    def test_fewer_texts_than_asked_for_leave_the_rest_empty(self):
        """With a limit of 1 there are as many texts as tokens that may be produced, four; with one of 0 none."""
        two = tf.repeat(GARDEN_PATH, 2, axis=0)
        beams = beam_search(Bigrams(), two, [1, 0], 6, length_penalty=0.0, n_best=6, return_weights=True)
        assert [trimmed(ids) for ids in beams.ids[0, :3]] == [(A,), (B,), (END,)]
        np.testing.assert_array_equal(np.isfinite(beams.scores), [[True] * 4 + [False] * 2, [False] * 6])
        assert (np.array(beams.scores)[1] == -np.inf).all()
        for each in (beams.ids, beams.weights):
            assert not np.any(each[0, 4:]) and not np.any(each[1])

    def test_texts_with_tokens_that_are_never_written_do_not_fill_the_rest(self):
        """Of three tokens and the end, two are forbidden: with a limit of 1 there are "a" and "end"."""

        class Forbidding(Bigrams):
            def step(self, *inputs):
                logits, *others = super().step(*inputs)
                return tf.maximum(logits, -1e9), *others

        source = bigrams(start={"a": 0.7, "end": 0.3, "b": 0.0, "c": 0.0})
        beams = beam_search(Forbidding(), source, [1], 4, n_best=4, return_weights=True)
        assert [trimmed(ids) for ids in beams.ids[0]] == [(A,), (END,), (), ()]
        np.testing.assert_array_equal(np.isfinite(beams.scores[0]), [True, True, False, False])
        np.testing.assert_array_equal(np.isfinite(beams.log_probabilities[0]), [True, True, False, False])
        assert not np.any(beams.weights[0, 2:])


# With real models.

SOURCE = np.array([[4, 5, 6, 4, 3], [6, 3, 0, 0, 0], [5, 5, 6, 3, 0]], "int32")
LIMITS = tf.constant([6, 2, 6])


@pytest.fixture(scope="module", params=[Transformer, RNNSeq2Seq])
def model(request, randomize):
    """With seeds by which rows differ, and some end and some meet their limit."""
    sizes = dict(source_vocabulary_size=7, target_vocabulary_size=VOCABULARY, units=8)
    if request.param is RNNSeq2Seq:
        return randomize(RNNSeq2Seq(**sizes), seed=3, scale=1.0)
    more = dict(num_heads=2, feed_forward_units=5, encoder_layers=1, decoder_layers=1)
    return randomize(Transformer(**sizes, **more), seed=12, scale=1.0)


def teacher_forced(model, source, ids):
    """What the model gives each of the ids `(B, T)` if it reads those before; 0 at padding."""
    previous = np.pad(ids[:, :-1], [(0, 0), (1, 0)], constant_values=START)
    log_softmax = np.array(tf.nn.log_softmax(model({"source": source, "target": previous})))
    return np.take_along_axis(log_softmax, ids[..., None], -1)[..., 0] * (ids != PADDING)


def test_a_wide_beam_is_an_exhaustive_search(model):
    """Every row with a penalty of its own."""
    limit, n_best = 4, 5
    texts = [(*text, END) for n in range(limit) for text in itertools.product((A, B, C), repeat=n)]
    texts += itertools.product((A, B, C), repeat=limit)
    ids = np.array([np.pad(text, (0, limit - len(text))) for text in texts], "int32")
    penalties = [0.0, 0.6, -1.0]
    beams = beam_search(model, SOURCE, tf.fill([3], limit), 120, tf.constant(penalties), n_best)
    for row, (source, penalty) in enumerate(zip(SOURCE, penalties, strict=True)):
        of_tokens = teacher_forced(model, np.tile(source, (len(texts), 1)), ids)
        scores = of_tokens.sum(-1) / ((5 + (ids != 0).sum(-1)) / 6) ** penalty
        best = np.argsort(-scores)[:n_best]
        assert [trimmed(each) for each in beams.ids[row]] == [texts[index] for index in best]
        np.testing.assert_allclose(beams.scores[row], scores[best], atol=1e-4)


def test_probabilities_and_weights_are_those_of_the_hypotheses(model):
    beams = beam_search(model, SOURCE, LIMITS, 4, 0.6, 3, return_weights=True)
    for n in range(3):
        ids = np.array(beams.ids[:, n])
        expected = teacher_forced(model, SOURCE, ids).sum(-1)
        np.testing.assert_allclose(beams.log_probabilities[:, n], expected, atol=1e-4)
        memory, cache = model.begin(SOURCE)
        previous = np.pad(ids[:, :-1], [(0, 0), (1, 0)], constant_values=START)
        for t in range(ids.shape[1]):
            _, cache, weights = model.step(previous[:, t : t + 1], t, memory, cache)
            expected = np.array(weights)[:, 0] * (ids[:, t] != 0)[:, None]
            np.testing.assert_allclose(beams.weights[:, n, t], expected, atol=1e-5)


def test_greedy_is_a_beam_of_one_and_takes_what_the_model_finds_likeliest(model):
    found = greedy(model, SOURCE, LIMITS, return_weights=True)
    ids = np.array(found.ids)
    assert len({tuple(row) for row in ids}) == 3
    assert (ids == END).any() and (ids[:, -1] > END).any()
    expected = teacher_forced(model, SOURCE, ids)
    np.testing.assert_allclose(found.token_log_probabilities, expected, atol=1e-5)
    previous = np.pad(ids[:, :-1], [(0, 0), (1, 0)], constant_values=START)
    likeliest = np.array(model({"source": SOURCE, "target": previous}))[..., END:].argmax(-1) + END
    np.testing.assert_array_equal(ids, np.where(ids != PADDING, likeliest, PADDING))
    beams = beam_search(model, SOURCE, LIMITS, 1, 0.6, return_weights=True)
    np.testing.assert_array_equal(beams.ids[:, 0], ids)
    np.testing.assert_allclose(beams.log_probabilities[:, 0], found.log_probabilities, atol=1e-5)
    np.testing.assert_allclose(beams.weights[:, 0], found.weights, atol=1e-6)


def test_a_graph_where_the_number_of_limits_alone_is_known(randomize):
    """And a model of lower precision, whose cache goes through the loop as bfloat16."""
    model = randomize(RNNSeq2Seq(7, VOCABULARY, units=8, dtype="mixed_bfloat16"), scale=1.0)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def run(source):
        limits = tf.constant([4])
        return beam_search(model, source, limits, 1).ids[:, 0], greedy(model, source, limits)

    ids, found = run(SOURCE[:1])
    np.testing.assert_array_equal(ids, found.ids)
    # Of logits up to 8 both passes keep 8 bits.
    expected = teacher_forced(model, SOURCE[:1], np.array(ids))
    np.testing.assert_allclose(found.token_log_probabilities, expected, atol=8 * 2**-8)


# A user's mistakes.


@pytest.fixture(scope="module")
def small():
    return Transformer(VOCABULARY, VOCABULARY, 8, 2, 8, 1, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beam_size": 0}, r"^`beam_size` must be a positive integer\. Received: beam_size=0$"),
        ({"beam_size": True}, r"^`beam_size` must be an integer\. Received: beam_size=True$"),
        ({"n_best": 1.5}, r"^`n_best` must be an integer\. Received: n_best=1\.5$"),
        ({"beam_size": 2, "n_best": 3}, r"^`n_best` must be at most `beam_size`\. Received: n_best=3, beam_size=2$"),
    ],
)
def test_sizes_of_a_beam_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        beam_search(Bigrams(), GARDEN_PATH, [3], **arguments)


@pytest.mark.parametrize(
    ("length_penalty", "message"),
    [
        (float("nan"), r"^`length_penalty` must be finite\. Received: length_penalty=nan$"),
        ([1.0, float("inf")], r"^`length_penalty` must be finite\. Received: length_penalty=\[1\.0, inf\]$"),
        ([1.0, 2.0, 3.0], r"^`length_penalty` must be one number, or one for each of the 2 rows\."),
        ("1", r"^`length_penalty` must be one number, or one for each row\. Received: length_penalty='1'$"),
    ],
)
def test_length_penalties_are_refused(small, length_penalty, message):
    with pytest.raises(ValueError, match=message):
        beam_search(small, [[4, 5, 3], [6, 3, 0]], 3, length_penalty=length_penalty)


def test_sizes_may_be_numpys():
    found = beam_search(Bigrams(), GARDEN_PATH, [3], beam_size=np.int64(3), n_best=np.int32(2))
    np.testing.assert_array_equal(found.ids, beam_search(Bigrams(), GARDEN_PATH, [3], beam_size=3, n_best=2).ids)


@pytest.mark.parametrize("search", [greedy, beam_search])
def test_weights_need_attention(search):
    model = RNNSeq2Seq(7, VOCABULARY, units=8, attention=None)
    with pytest.raises(ValueError, match="`return_weights` needs a model with attention; this one returns no weights"):
        search(model, SOURCE, LIMITS, return_weights=True)


@pytest.mark.parametrize("search", [greedy, beam_search])
class TestLimits:
    SOURCE = ([4, 5, 6, 3], [5, 4, 3, 0], [6, 3, 0, 0])

    def test_one_number_is_the_limit_of_all_rows_and_lists_are_ids(self, search, small):
        one, each = search(small, [*self.SOURCE], 2), search(small, np.array(self.SOURCE), [2, 2, 2])
        assert one.ids.shape[0] == 3
        np.testing.assert_array_equal(one.ids, each.ids)

    @pytest.mark.parametrize("limits", [[5], [5, 5], [5, 5, 5, 5]])
    def test_others_than_one_for_each_row_are_refused(self, search, small, limits):
        with pytest.raises(ValueError, match=rf"each of the 3 rows.* limits of shape \({len(limits)},\)"):
            search(small, [*self.SOURCE], limits)

    def test_weights_of_a_model_in_float64_are_float32(self, search):
        model = Transformer(VOCABULARY, VOCABULARY, 8, 2, 8, 1, 1, dtype="float64")
        found = search(model, [*self.SOURCE], 2, return_weights=True)
        assert found.weights.dtype == "float32"
        np.testing.assert_allclose(tf.reduce_sum(found.weights, axis=-1), found.ids != PADDING, rtol=1e-6)


def test_sources_and_limits_are_checked_also_of_what_is_around_a_model():
    model = Transformer(9, 9, 4, 2, 6, 1, 1, positions="learned", max_length=3)
    source = np.array([[4, 5, 3], [6, 3, 0]])
    for search in (greedy, beam_search):
        with pytest.raises(ValueError, match=r"`limits` must be at most 3, .* Received: limits=\[3, 4\]$"):
            search(model, source, [3, 4])
        assert search(model, source, 3).ids.shape[0] == 2
    graph = tf.function(lambda limits: greedy(model, tf.constant(source), limits).ids, autograph=False)
    assert graph(tf.constant([5, 5])).shape[0] == 2  # steps with the last position again
    for other in (
        WithMasks(model, Masks()),
        WithPrefix(model, tf.constant([[4], [5]])),
        WithShortlist(WithMasks(model, Masks()), tf.constant([range(5)] * 2)),
    ):
        with pytest.raises(ValueError, match="`limits` must be at most 3"):
            greedy(other, source, 4)
        with pytest.raises(ValueError, match="`source` must hold ids from 0 to 8"):
            greedy(other, [[9], [4, 5]], 3)
        rows, padded = ([[], [4, 5, 3]], [[0, 0, 0], [4, 5, 3]])
        found, expected = (greedy(other, each, 3).token_log_probabilities for each in (rows, padded))
        np.testing.assert_array_equal(found, expected)
