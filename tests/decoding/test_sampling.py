"""Sampling: what is drawn how often, what ends a row, and what a row's text depends on."""

import numpy as np
import pytest
import tensorflow as tf

from zoo.decoding import Sampling, generate, greedy, sample
from zoo.decoding.token_choice import _STEP, _mixed, counted_uniform, draw, random_streams
from zoo.models import GPT, RNNSeq2Seq

END = 3
NAN = float("nan")


def settings(rows, temperature=1.0, top_k=0, top_p=1.0, repetition_penalty=1.0, seed=None):
    """The same for all rows, or a list of each; other seeds for all rows if not given."""
    seed = np.arange(rows) if seed is None else seed

    def filled(value, dtype):
        return tf.constant(np.broadcast_to(value, (rows,)), dtype)

    return Sampling(
        filled(temperature, tf.float32),
        filled(top_k, tf.int32),
        filled(top_p, tf.float32),
        filled(repetition_penalty, tf.float32),
        filled(seed, tf.int64),
    )


def drawn(logits, position=0, history=(), **arguments):
    """Ids drawn from one row of logits or from one each."""
    rows = arguments.pop("rows", None) or len(np.atleast_2d(logits))
    logits = tf.constant(np.broadcast_to(logits, (rows, np.shape(logits)[-1])), tf.float32)
    history = tf.constant(np.broadcast_to(history, (rows, np.shape(history)[-1])), tf.int32)
    sampling = settings(rows, **arguments)
    return draw(logits, counted_uniform(random_streams(sampling.seed), position), sampling, history).numpy()


def exact(logits, temperature=1.0, top_k=0, top_p=1.0):
    """The probabilities by the definition, in float64: of ids from the end token on."""
    scores = np.array(logits, "float64")[END:] / temperature
    probabilities = np.exp(scores - scores.max())
    order = np.argsort(-probabilities, kind="stable")
    if 0 < top_k < len(order):
        probabilities[order[top_k:]] = 0
    probabilities /= probabilities.sum()
    if top_p < 1:
        above = np.cumsum(probabilities[order]) - probabilities[order]
        probabilities[order[(above >= top_p) & (np.arange(len(order)) > 0)]] = 0
    return probabilities / probabilities.sum()


LOGITS = np.array([9.0, 9.0, 9.0, 0.3, 1.2, -0.7, 2.1, 0.0, 1.1, -3.0, 0.9, 1.6])  # the first three are forbidden


class TestDistribution:
    @pytest.mark.parametrize(
        ("temperature", "top_k", "top_p"),
        [(1.0, 0, 1.0), (0.4, 4, 1.0), (0.4, 0, 0.6), (1.0, 0, 0.97), (3.0, 5, 0.7), (3.0, 8, 0.999)],
    )
    def test_is_the_exact_one(self, temperature, top_k, top_p):
        """By a chi-square that one honest sampler in 10,000 would fail."""
        number = 20_000
        options = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        counts = np.bincount(drawn(LOGITS, rows=number, **options), minlength=len(LOGITS))
        expected = exact(LOGITS, **options) * number
        assert not counts[:END].any()
        assert not counts[END:][expected == 0].any()
        often = expected >= 5
        statistic = ((counts[END:] - expected)[often] ** 2 / expected[often]).sum()
        degrees = max(often.sum() - 1, 1)
        assert statistic < degrees + 3.72 * (2 * degrees) ** 0.5 + 9

    @pytest.mark.parametrize("top_p", [0.5, 0.9999])
    def test_of_many_more_tokens_than_are_sorted_at_first(self, top_p):
        """Nearly equal logits, so the tokens that are sorted first are not enough."""
        logits, rows = np.random.default_rng(0).normal(0, 0.1, 600), 4_000
        probabilities = exact(logits, top_p=top_p)
        ids = drawn(logits, rows=rows, top_p=top_p) - END
        assert probabilities[ids].all()
        assert len(np.unique(ids)) > 0.95 * (probabilities > 0).sum()
        shares = np.cumsum(np.bincount(ids, minlength=len(probabilities)))[::60] / rows
        np.testing.assert_allclose(shares, np.cumsum(probabilities)[::60], atol=0.035)  # some four deviations

    @pytest.mark.parametrize(("spread", "top_p"), [(1.5, 1.0), (1.5, 0.6), (0.7, 0.999), (4.0, 0.9999), (0.0, 0.9)])
    def test_each_chance_draws_the_token_that_it_falls_on(self, spread, top_p):
        """In the order of ranks where only the likeliest are left, else in that of ids; 9 blocks of tokens.

        Without a spread, all tokens are in one bin of the histogram.
        """
        # Rounded, so that logits are equal or differ by more than rounding does.
        logits, rows = np.random.default_rng(1).normal(0, spread, 2_200).round(4).astype("float32"), 1_500
        chances = np.linspace(0, 1, rows, endpoint=False, dtype="float32")
        order = np.argsort(-logits[END:], kind="stable") if top_p < 1 else np.arange(len(logits) - END)
        sums = np.cumsum(exact(logits, top_p=top_p)[order])
        several = tf.constant(np.tile(logits, (rows, 1)))
        ids = draw(several, tf.constant(chances), settings(rows, top_p=top_p), tf.zeros([rows, 0], tf.int32))
        places = np.argsort(order)[ids.numpy() - END]
        assert (chances < sums[places] + 1e-5).all()
        assert (chances > np.append(0, sums)[places] - 1e-5).all()
        assert len(set(places)) > 15

    def test_along_the_steps_of_one_seed(self):
        ids = np.concatenate([drawn(LOGITS, position, rows=100) for position in range(17, 117)])
        np.testing.assert_allclose(np.bincount(ids, minlength=12)[END:] / 10_000, exact(LOGITS), atol=0.02)


class TestEdges:
    def test_the_hottest_temperature_draws_nothing_that_is_forbidden(self):
        """Even an infinite one; a model's forbidden tokens have the logit -1e9."""

        class Forbidding:
            context_length = 8

            def begin(self, ids):
                rows = tf.shape(ids)[0]
                return (), tf.zeros([rows, 1])

            def step(self, tokens, position, memory, cache):
                logits = tf.constant([0.0, 0, 0, -1e9, 1, -1e9, 2])
                return tf.broadcast_to(logits, [*tf.shape(tokens), 7]), cache, None

        ids = generate(Forbidding(), [[4]] * 50, max_new_tokens=6, temperature=float("inf")).ids
        assert set(np.unique(ids)) == {4, 6}

    @pytest.mark.parametrize("length", [1, 9])
    def test_a_context_that_the_model_does_not_have(self, length):
        model = GPT(13, 4, num_heads=1, num_layers=1, context_length=8)
        with pytest.raises(
            ValueError, match=rf"^`context_length` must be from 2 to the model's 8\. Received: {length}"
        ):
            generate(model, [[4, 5]], context_length=length)
        with pytest.raises(ValueError, match=r"^`context_length` must be an integer\. Received: context_length=8\.0$"):
            generate(model, [[4, 5]], context_length=8.0)

    def test_only_the_likeliest(self):
        for temperature in (0.0, -1.0, NAN, -float("inf"), 1e-6, 1e-19, 1e-30, 1e-40):
            assert set(drawn(LOGITS, rows=500, temperature=temperature)) == {6}, temperature
        for options in ({"top_k": 1}, {"top_p": 0.0}, {"top_p": -1.0}, {"top_p": 1e-9}, {"top_k": 1, "top_p": 0.5}):
            assert set(drawn(LOGITS, rows=500, **options)) == {6}, options

    def test_all(self):
        every = drawn(LOGITS, rows=500)
        for options in ({"top_k": -1}, {"top_k": 9}, {"top_k": 2**31 - 1}, {"top_p": 1.5}, {"top_p": NAN}):
            np.testing.assert_array_equal(drawn(LOGITS, rows=500, **options), every, err_msg=str(options))
        few = drawn(LOGITS, rows=500, top_k=3)
        assert len(set(few)) == 3
        np.testing.assert_array_equal(drawn(LOGITS, rows=500, top_k=3, top_p=NAN), few)

    def test_a_hot_temperature_makes_all_alike(self):
        counts = np.bincount(drawn(LOGITS, rows=9000, temperature=1e9), minlength=12)[END:]
        assert abs(counts - 1000).max() < 200

    def test_of_equally_likely_ones_as_many_are_left_as_the_settings_say(self):
        assert len(set(drawn(np.zeros(50), rows=2000, top_k=3))) == 3
        assert len(set(drawn(np.zeros(50), rows=2000, top_p=0.5))) == 24  # of 47
        assert set(drawn(np.zeros(5), rows=100, top_k=1, top_p=0.5)) <= {3, 4}

    def test_a_chance_at_a_border_draws_what_stands_behind_it(self):
        """Two tokens of one half each: chances from 0 to below 0.5 draw the first; impossible ones are passed over."""
        logits = tf.constant([[0, 0, 0, -np.inf, 0, -np.inf, 0]] * 3, tf.float32)
        for options in ({}, {"top_k": 3}):
            found = draw(logits, tf.constant([0.0, 0.4999, 0.5]), settings(3, **options), tf.zeros([3, 0], tf.int32))
            assert found.numpy().tolist() == [4, 4, 6], options

    def test_what_is_impossible_is_never_drawn(self):
        logits = np.where(np.arange(12) % 2, LOGITS, -np.inf)
        for options in ({}, {"top_k": 8}, {"top_p": 0.999}, {"temperature": 1e6}):
            assert set(drawn(logits, rows=3000, **options)) == {3, 5, 7, 9, 11}, options


class TestPenalty:
    def test_by_hand(self):
        """Id 6 falls from 2.1 to 0.7, id 9 from -3 to -9; twice before counts as once, and padding as nothing."""
        logits = LOGITS.copy()
        logits[[6, 9]] = 0.7, -9.0
        history = [6, 9, 6, 0, 0]
        penalized = drawn(LOGITS, rows=3000, history=history, repetition_penalty=3.0)
        np.testing.assert_array_equal(penalized, drawn(logits, rows=3000))

    def test_greedy_rows_too_and_below_one_it_favours(self):
        assert drawn(LOGITS, history=[6], repetition_penalty=2.0, temperature=0.0).tolist() == [11]
        assert drawn(LOGITS, history=[4], repetition_penalty=0.5, temperature=0.0).tolist() == [4]

    def test_one_that_is_out_of_range_changes_nothing(self):
        """Dividing by it would give infinities: one token and an empty text, for every model."""
        penalties = [1.0, NAN, 0.0, -2.0, 1e-38, 1e38, float("inf")]
        logits = tf.constant(np.tile(LOGITS, (7, 1, 1)), tf.float32)
        options = settings(7, repetition_penalty=penalties, seed=9)
        found = sample(Table(), logits, [4] * 7, [1] * 7, options, before=[[6, 9]] * 7).ids.numpy().tolist()
        assert found == [found[0]] * 7 != [[6]] * 7


class TestRows:
    def test_a_row_does_not_depend_on_its_neighbours(self):
        """Rows of all kinds together, and each alone."""
        random = np.random.default_rng(1)
        rows = 60
        logits = random.normal(0, 2, (rows, 300))
        options = {
            "temperature": random.choice([0.0, 0.5, 1.0, 2.0], rows),
            "top_k": random.choice([0, 1, 7, 200, 300], rows),
            "top_p": random.choice([0.0, 0.3, 0.9, 0.9999, 1.0], rows),
            "repetition_penalty": random.choice([1.0, 1.3], rows),
            "seed": random.integers(-(2**63), 2**63, rows),
        }
        history = random.integers(0, 300, (rows, 5))
        together = drawn(logits, 4, history, **options)
        for row in range(rows):
            alone = {name: values[row : row + 1] for name, values in options.items()}
            assert drawn(logits[row : row + 1], 4, history[row : row + 1], **alone)[0] == together[row]

    def test_seed_and_step_decide(self):
        same = drawn(LOGITS, rows=200, seed=5)
        assert len(set(same)) == 1
        steps = {tuple(drawn(LOGITS, position, rows=200)) for position in range(5)}
        assert len(steps) == 5


# The loop.


class Table:
    """A model without a network: the source is the logits `(B, position, V)`; it records its inputs."""

    def __init__(self):
        self.given = []

    def begin(self, source):
        return {"logits": source}, (tf.zeros((tf.shape(source)[0], 1, 1)),)

    def step(self, tokens, position, memory, cache):
        self.given.append((int(position), tokens.numpy()[:, 0].tolist()))
        return memory["logits"][:, position, None], cache, None


class Following:
    """A model without a network, for graphs too: `(V, V)` logits of what follows each token."""

    def __init__(self, logits):
        self.logits = tf.constant(logits, tf.float32)

    def begin(self, source):
        return (), (tf.zeros([tf.shape(source)[0], 1]),)

    def step(self, tokens, position, memory, cache):
        return tf.gather(self.logits, tokens), cache, None  # (B, 1, V)


def certain(*rows):
    """Logits with which each row's ids are almost certain."""
    return tf.constant(np.stack([50 * np.eye(9)[list(row)] for row in rows]), tf.float32)


class TestLoop:
    def test_until_the_end_or_the_limit(self):
        source = certain([5, 6, END, 7], [8, 4, 5, 6], [4, 4, 4, 4])
        model = Table()
        found = sample(model, source, [7, 8, 7], [4, 3, 0], settings(3))
        assert found.ids.numpy().tolist() == [[5, 6, END], [8, 4, 5], [0, 0, 0]]
        assert found.weights is None
        assert model.given[0] == (0, [7, 8, 7])
        assert model.given[1] == (1, [5, 8, 0])

    def test_log_probabilities_are_the_models_own(self):
        source = tf.constant(LOGITS, tf.float32)[None, None]
        found = sample(Table(), source, [4], [1], settings(1, temperature=0.0, repetition_penalty=5.0), before=[[6, 6]])
        assert found.ids.numpy().tolist() == [[11]]
        expected = LOGITS[11] - np.log(np.exp(LOGITS).sum())
        np.testing.assert_allclose(found.token_log_probabilities, [[expected]], rtol=1e-5)

    def test_what_was_there_before_and_what_is_drawn_is_penalised(self):
        logits = np.zeros((2, 4, 9))
        logits[..., 4:] = [8, 7, 6, 5, 4]
        options = settings(2, temperature=0.0, repetition_penalty=100.0)
        found = sample(Table(), tf.constant(logits, tf.float32), [8, 8], 4, options, before=[[], [5]])
        assert found.ids.numpy().tolist() == [[4, 5, 6, 7], [4, 6, 7, 8]]

    def test_a_source_may_be_whatever_the_model_reads(self):
        class Named(Table):
            """Its source is no tensor, so the rows are those of the first tokens."""

            def begin(self, source):
                return super().begin({"b and c": certain([5, 6, 4], [7, 4, 4])}[source])

        found = sample(Named(), "b and c", [4, 4], 2, settings(2, temperature=0.0))
        assert found.ids.numpy().tolist() == [[5, 6], [7, 4]]
        with pytest.raises(ValueError, match=r"^`limits` must be one integer, or one for each of the 2 rows"):
            sample(Named(), "b and c", [4, 4], [2, 2, 2], settings(2))

    def test_a_watch_ends_rows(self):
        class SumOver:
            """Ends a row whose ids add up to ten or more, that last one kept."""

            is_needed = tf.constant(True)

            def start(self):
                return {"sum": tf.zeros(3, tf.int32), "text": tf.fill([3], "")}

            def step(self, tokens, open_rows, state):
                total = state["sum"] + tf.where(open_rows, tokens, 0)
                text = state["text"] + tf.where(open_rows, tf.strings.as_string(tokens), "")
                return total >= 10, {"sum": total, "text": text}

        source = certain([5, 6, 4, 7], [4, 4, 4, 6], [4, END, 7, 7])
        found, state = sample(Table(), source, [4, 4, 4], [4, 4, 4], settings(3), watch=SumOver())
        assert found.ids.numpy().tolist() == [[5, 6, 0], [4, 4, 4], [4, END, 0]]
        assert state["sum"].numpy().tolist() == [11, 12, 7]
        assert state["text"].numpy().tolist() == [b"56", b"444", b"43"]

    def test_a_watch_that_is_not_needed_is_not_asked(self):
        class Nothing:
            is_needed = tf.constant(False)

            def start(self):
                return {"state": tf.constant([7])}

            def step(self, tokens, open_rows, state):
                raise AssertionError

        found, state = sample(Table(), certain([5, 6, END]), [4], [4], settings(1, temperature=0.0), watch=Nothing())
        assert found.ids.numpy().tolist() == [[5, 6, END]]
        assert state["state"].numpy().tolist() == [7]


@pytest.fixture(scope="module")
def gpt(randomize):
    return randomize(GPT(13, units=12, num_heads=3, num_layers=1, context_length=32, positions="rotary"), scale=0.4)


PROMPTS = np.array([[4, 5, 6, 7], [9, 0, 0, 0], [8, 12, 0, 0], [5, 5, 11, 0]], "int32")


SETTINGS = {
    "temperature": [0.0, 0.8, 1.0, 1.5],
    "top_k": [0, 5, 0, 3],
    "top_p": [1.0, 1.0, 0.9, 0.8],
    "repetition_penalty": [1.0, 1.2, 1.0, 1.0],
    "seed": [1, 2, 3, 4],
}


def test_each_row_of_a_model_is_drawn_as_alone_with_the_models_own_log_probabilities(gpt):
    """In a graph of unknown sizes; against one pass with the whole text."""
    specs = Sampling(*(tf.TensorSpec([None], each.dtype) for each in settings(1)))

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32), specs], autograph=False)
    def run(tokens, sampling):
        rows = tf.shape(tokens)[0]
        found = sample(gpt, tokens, tf.fill([rows], 4), tf.fill([rows], 9), sampling, before=tokens)
        return found.ids, found.token_log_probabilities

    ids, log_probabilities = run(PROMPTS, settings(4, **SETTINGS))
    for row in range(4):
        prompt = PROMPTS[row][PROMPTS[row] != 0]
        alone, scores = run(prompt[None], settings(1, **{name: values[row] for name, values in SETTINGS.items()}))
        length = alone.shape[1]
        np.testing.assert_array_equal(ids[row, :length], alone[0])
        assert not np.any(ids[row, length:])
        np.testing.assert_allclose(log_probabilities[row, :length], scores[0], atol=1e-5)
        found = alone[0].numpy()
        logits = np.array(gpt(np.concatenate([prompt, [4], found])[None]), "float64")[0, len(prompt) : -1]
        expected = logits[np.arange(length), found] - np.log(np.exp(logits).sum(-1))
        np.testing.assert_allclose(scores[0], expected, atol=1e-4)


def test_cold_is_greedy(gpt):
    found = sample(gpt, PROMPTS, tf.fill([4], 2), [9] * 4, settings(4, temperature=0.0))
    likeliest = greedy(gpt, PROMPTS, [9] * 4)
    np.testing.assert_array_equal(found.ids, likeliest.ids)
    np.testing.assert_allclose(found.token_log_probabilities, likeliest.token_log_probabilities, atol=1e-5)


def test_in_a_graph_with_static_sizes():
    """The history grows, even if its width is known."""
    model, prompts = Following(np.random.default_rng(0).normal(0, 2, (13, 13))), tf.constant(PROMPTS)
    options, limits = settings(4, repetition_penalty=1.5), tf.fill([4], 5)
    expected = sample(model, prompts, tf.fill([4], 4), limits, options).ids

    @tf.function(autograph=False)
    def run(before=None):
        return sample(model, prompts, tf.fill([4], 4), limits, options, before=before).ids

    np.testing.assert_array_equal(run(), expected)
    before = sample(model, prompts, tf.fill([4], 4), limits, options, before=PROMPTS).ids
    np.testing.assert_array_equal(run(tf.constant(PROMPTS)), before)


class TestPrompts:
    def test_rows_of_any_length(self, short):
        found = generate(short, [[4, 5], [], [6]], 6, temperature=0.0)
        padded = generate(short, np.array([[4, 5], [0, 0], [0, 6]], "int8"), 6, temperature=0.0)
        np.testing.assert_array_equal(found.ids, padded.ids)

    def test_rows_without_tokens(self, short):
        np.testing.assert_array_equal(generate(short, [[], []], 3).ids, generate(short, [[0], [0]], 3).ids)

    def test_no_rows(self, short):
        assert generate(short, [], 3).ids.shape[0] == 0
        assert sample(short, [], [], 3, settings(0)).ids.shape[0] == 0

    @pytest.mark.parametrize(
        ("prompts", "received"), [([[4], [25, 5]], 25), ([[4, -1]], -1), ([[2**32 + 4]], 2**32 + 4)]
    )
    def test_ids_that_the_model_does_not_have(self, short, prompts, received):
        with pytest.raises(ValueError, match=rf"^`prompts` must hold ids from 0 to \d+, .* Received: {received}$"):
            generate(short, prompts)

    @pytest.mark.parametrize("name", ["max_new_tokens", "temperature", "top_k", "top_p", "repetition_penalty", "seed"])
    @pytest.mark.parametrize("number", [1, 3])
    def test_settings_of_other_rows(self, short, name, number):
        message = rf"^`{name}` must be one (number|integer), or .* 2 rows\. Received: .* \({number},\)$"
        with pytest.raises(ValueError, match=message):
            generate(short, [[4], [5]], **{name: [1] * number})

    def test_limits_of_a_sample(self, short):
        source, first = tf.constant([[4], [5]]), tf.constant([5, 6])
        found = [sample(short, source, first, limits, settings(2)).ids for limits in (3, [3, 3])]
        np.testing.assert_array_equal(*found)
        with pytest.raises(ValueError, match=r"`limits` must be one integer, or .* 2 rows\. Received: .* \(3,\)$"):
            sample(short, source, first, [3, 3, 3], settings(2))

    def test_a_sample_longer_than_the_context(self, short):
        """Of `CONTEXT` = 8 tokens: without an error, the last tokens would all be read at the last position."""
        prompts, first = [[4, 5, 6, 0, 0], [0, 4, 5, 6, 7]], tf.constant([5, 6])
        assert sample(short, prompts, first, [5, 4], settings(2)).ids.shape == (2, 5)
        message = r"at most 8 tokens together, .*`context_length`.* Received: 9 tokens$"
        for limits in (5, [5, 5], [6, 1]):
            with pytest.raises(ValueError, match=message):
                sample(short, tf.constant(prompts), first, limits, settings(2))

    def test_a_model_that_reads_a_source(self):
        with pytest.raises(ValueError, match=r"^`model` must be a language model.*Received: RNNSeq2Seq$"):
            generate(RNNSeq2Seq(7, 7, units=4), [[4, 5]])


# Texts longer than the context.

CONTEXT = 8
LONG = np.array([[4, 5, 6, 7, 0, 0, 0, 0, 0, 0, 0], [*range(4, 13), 5, 6], [0] * 11, [9, 8, 7, 6, 5, 4, 9, 9, 0, 0, 0]])


@pytest.fixture(scope="module")
def short(randomize):
    """Without an end, so that texts are long."""
    return randomize(GPT(13, 12, num_heads=3, num_layers=1, context_length=CONTEXT, unused_ids=(END,)), scale=0.8)


def continued(model, prompt, new):
    """The likeliest tokens one by one, and the logarithms of their probabilities, from the whole model.

    It reads a window that starts over from its last half.
    """
    window, found, scores = [int(each) for each in prompt if each] or [2], [], []
    while len(found) < new:
        window = window if len(window) <= CONTEXT else window[-CONTEXT // 2 :]
        logits = np.array(model(np.array([window])), "float64")[0, -1]
        found.append(END + int(logits[END:].argmax()))
        scores.append(logits[found[-1]] - np.log(np.exp(logits).sum()))
        window.append(found[-1])
    return found, scores


class TestGenerate:
    def test_the_window_slides(self, short):
        limits = [11, 6, 9, 0]  # the first window starts over twice, the others once
        found = generate(short, LONG, tf.constant(limits), temperature=0.0)
        for prompt, ids, scores, limit in zip(LONG, found.ids, found.token_log_probabilities, limits, strict=True):
            expected = np.zeros((2, len(ids)))
            expected[:, :limit] = continued(short, prompt, limit)
            np.testing.assert_array_equal(ids, expected[0])
            np.testing.assert_allclose(scores, expected[1], atol=1e-4)

    def test_in_a_graph_each_row_as_alone(self, short):
        @tf.function(
            input_signature=[tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int64)], autograph=False
        )
        def run(prompts, seeds):
            found = generate(short, prompts, 25, 1.3, top_p=0.95, repetition_penalty=1.2, seed=seeds)
            return found.ids, found.token_log_probabilities

        ids, scores = run(LONG, [5, 6, 7, 8])
        for row, prompt in enumerate(LONG):
            alone, alone_scores = run(prompt[None, prompt != 0], [5 + row])
            length = alone.shape[1]
            np.testing.assert_array_equal(ids[row, :length], alone[0])
            assert not np.any(ids[row, length:])
            np.testing.assert_allclose(scores[row, :length], alone_scores[0], atol=1e-5)
        # One seed for all counts up.
        np.testing.assert_array_equal(generate(short, LONG, 7, 1.3, 0, 0.95, 1.2, seed=5).ids, ids[:, :7])
        assert run(LONG[:0], [])[0].shape == (0, 1)

    def test_what_fits_is_what_sample_draws(self, short):
        options = dict(temperature=0.9, top_k=5, repetition_penalty=1.1)
        prompts = LONG[:1, :4]
        expected = sample(short, prompts[:, :3], prompts[:, 3], [5], settings(1, **options, seed=[3]), before=prompts)
        found = generate(short, prompts, 5, **options, seed=3)
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_array_equal(found.token_log_probabilities, expected.token_log_probabilities)

    def test_numbers_do_not_repeat_in_the_next_window(self):
        """All tokens are alike, so each follows from its number alone."""
        even = Following(np.zeros((1000, 1000)))
        (ids,) = generate(even, [[4]], 20, seed=1, context_length=4).ids.numpy()
        assert len(set(ids)) > 15
        np.testing.assert_array_equal(ids, generate(even, [[4]], 20, seed=1, context_length=32).ids[0])

    def test_a_watch_goes_on_through_the_windows(self, short):
        class Six:
            """Ends a row with its sixth token, which is in the second window of all rows but one."""

            is_needed = tf.constant(True)

            def start(self):
                return tf.zeros([4], tf.int32)

            def step(self, tokens, open_rows, count):
                count += tf.cast(open_rows, tf.int32)
                return count >= 6, count

            def ended(self, count):
                return count >= 6

        found, count = generate(short, LONG, 25, 2.0, seed=1, watch=Six())
        free = generate(short, LONG, 6, 2.0, seed=1).ids
        np.testing.assert_array_equal(found.ids, free)
        np.testing.assert_array_equal(count, np.count_nonzero(free, axis=1))


# Random numbers.


def test_the_finaliser_is_splitmix64s():
    """The first two numbers that the published algorithm gives for the seed 1234567."""
    states = tf.constant(1234567, tf.int64) + tf.constant([1, 2], tf.int64) * _STEP
    assert [int(each) % 2**64 for each in _mixed(states)] == [6457827717110365317, 3203168211198807973]


def by_hand(seed, counter):
    def mixed(state):
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
        return state ^ state >> 31

    step = 0x9E3779B97F4A7C15
    return (mixed((mixed((seed + step) % 2**64) + (counter + 1) * step) % 2**64) >> 40) / 2**24


def test_follows_from_seed_and_counter_alone():
    seeds = [0, 1, -1, 7, 2**63 - 1, -(2**63), 1234567890123]
    for counter in (0, 1, 5, 2**31 - 1):
        found = counted_uniform(random_streams(seeds), counter)
        assert found.dtype == "float32"
        assert found.numpy().tolist() == [by_hand(seed, counter) for seed in seeds]
    counters = tf.constant([3, 4])
    found = counted_uniform(random_streams([5, 5]), counters).numpy().tolist()
    assert found == [by_hand(5, 3), by_hand(5, 4)]


def test_is_even_and_independent_along_seeds_and_counters():
    seeds = tf.range(1000, dtype=tf.int64)
    drawn = np.stack([counted_uniform(random_streams(seeds), counter) for counter in range(100)])
    assert drawn.min() >= 0 and drawn.max() < 1
    counts = np.histogram(drawn, 50, (0, 1))[0]
    assert ((counts - 2000) ** 2 / 2000).sum() < 94  # chi-square of 49 degrees of freedom, 1 in 10,000
    for one, other in ((drawn[1:], drawn[:-1]), (drawn[:, 1:], drawn[:, :-1]), (drawn[1:, :-1], drawn[:-1, 1:])):
        correlation = np.corrcoef(one.ravel(), other.ravel())[0, 1]
        assert abs(correlation) < 5 / one.size**0.5
