"""What decoding and scores are given: ids, limits and settings in every form that people have them in, and mistakes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.decoding import Sampling, beam_search, greedy, sample, score, score_in_windows, score_tokens
from zoo.decoding.inputs import checked_rows, one_for_each_row, rows_of_ids
from zoo.models import GPT, RNNSeq2Seq

CONTEXT = 8
ROWS, PADDED = [[4, 5, 6], [], [7]], [[4, 5, 6], [0, 0, 0], [7, 0, 0]]


@pytest.fixture(scope="module")
def translator(randomize):
    return randomize(RNNSeq2Seq(9, 11, units=4), scale=1.0)


@pytest.fixture(scope="module")
def gpt(randomize):
    return randomize(GPT(13, 8, num_heads=2, num_layers=1, context_length=CONTEXT), scale=0.8)


class TestIds:
    @pytest.mark.parametrize(
        "ids",
        [
            ROWS,
            tuple(map(tuple, ROWS)),
            [np.array(row, "int64") for row in ROWS],
            [tf.constant(row, tf.int64) for row in ROWS],
            np.array(ROWS, dtype=object),
            tf.ragged.constant(ROWS, tf.int64),
            np.array(PADDED, "uint8"),
            tf.constant(PADDED, tf.int64),
        ],
    )
    def test_rows_of_any_form(self, ids):
        found = rows_of_ids("ids", ids, 9)
        assert found.dtype == "int32"
        assert found.numpy().tolist() == PADDED

    @pytest.mark.parametrize(("ids", "shape"), [([], (0, 1)), ([[], []], (2, 1)), (np.zeros([0, 3], "int8"), (0, 3))])
    def test_no_ids(self, ids, shape):
        assert rows_of_ids("ids", ids).shape == shape

    @pytest.mark.parametrize(
        ("ids", "received"),
        [
            ([4, 5], r"int32 of shape \(2,\)"),
            (np.ones([1, 2, 3], "int8"), r"int8 of shape \(1, 2, 3\)"),
            ([[4.0]], r"float32 of shape \(1, 1\)"),
            ({"source": [[4]]}, "a dict"),
            ([[[4], [5, 6]]], "a list"),
            (None, "a NoneType"),
        ],
    )
    def test_no_rows_of_ids(self, ids, received):
        with pytest.raises(ValueError, match=rf"^`ids` must be rows of ids, .* Received: {received}$"):
            rows_of_ids("ids", ids)

    def test_a_graph_that_knows_no_shape(self):
        signature = [tf.TensorSpec(None, tf.int64)]
        found = tf.function(lambda ids: rows_of_ids("ids", ids), input_signature=signature, autograph=False)
        assert found.get_concrete_function().structured_outputs.shape.rank == 2


class TestSettings:
    ROWS = tf.zeros([2, 3])

    @pytest.mark.parametrize("value", [3, np.int64(3), [3, 3], np.array([3, 3], "int8"), tf.constant(3, tf.int64)])
    @pytest.mark.parametrize("dtype", [tf.int32, tf.float32])
    def test_numbers_of_any_form(self, value, dtype):
        found = one_for_each_row("x", value, dtype, self.ROWS)
        assert (found.dtype, found.numpy().tolist()) == (dtype, [3, 3])

    def test_a_huge_number_is_no_limit(self):
        """As int32, 2**63 - 1 would be -1, and every text empty."""
        assert one_for_each_row("x", 2**63 - 1, tf.int32, self.ROWS).numpy().tolist() == [2**31 - 1] * 2
        assert one_for_each_row("x", [-(2**40), 5], tf.int32, self.ROWS).numpy().tolist() == [-(2**31), 5]
        assert one_for_each_row("x", np.uint64(2**40), tf.int32, self.ROWS).numpy().tolist() == [2**31 - 1] * 2

    def test_none_for_no_rows(self):
        assert one_for_each_row("x", [], tf.int32, self.ROWS[:0]).shape == (0,)

    @pytest.mark.parametrize("value", [None, "3", True, {}])
    @pytest.mark.parametrize(("dtype", "kind"), [(tf.int64, "integer"), (tf.float32, "number")])
    def test_no_numbers(self, value, dtype, kind):
        with pytest.raises(ValueError, match=rf"^`x` must be one {kind}, or one for each row\. Received: x={value!r}$"):
            one_for_each_row("x", value, dtype, self.ROWS)

    @pytest.mark.parametrize("value", [2.5, [1.0, 2.0], 2**63])
    def test_no_integers(self, value):
        with pytest.raises(ValueError, match=r"^`x` must be one integer, or one for each row\. Received: x="):
            one_for_each_row("x", value, tf.int64, self.ROWS)

    def test_of_a_sample_numbers_and_lists_are_those_of_tensors(self, gpt):
        tensors = Sampling(*(tf.constant([each] * 2) for each in (0.7, 4, 0.9, 1.5)), tf.constant([6, 7], tf.int64))
        expected = sample(gpt, [[4, 5], [6]], tf.constant([7, 8]), tf.constant([3, 3]), tensors)
        found = sample(gpt, [[4, 5], [6]], [7, 8], 3, Sampling(np.float64(0.7), 4, [0.9, 0.9], 1.5, [6, 7]))
        np.testing.assert_array_equal(found.ids, expected.ids)
        with pytest.raises(ValueError, match=r"^`top_p` must be one number, or one for each of the 2 rows\."):
            sample(gpt, [[4, 5], [6]], [7, 8], 3, Sampling(1.0, 0, [1.0], 1.0, 0))
        with pytest.raises(ValueError, match=r"^`sampling` must be a `Sampling`\. Received: 0\.7$"):
            sample(gpt, [[4, 5], [6]], [7, 8], 3, 0.7)

    @pytest.mark.parametrize("first", [[7], [7, 8, 9], [[7], [8]], [7.0, 8.5], ["a", "b"], [True, False]])
    def test_the_first_tokens_of_other_rows(self, gpt, first):
        with pytest.raises(ValueError, match=r"^`first` must be an id for each of the 2 rows\. Received: first of"):
            sample(gpt, [[4, 5], [6]], first, 3, Sampling(1.0, 0, 1.0, 1.0, 0))

    @pytest.mark.parametrize("wrong", [-1, 13, 2**40])
    def test_of_a_sample_tokens_that_the_model_does_not_have(self, gpt, wrong):
        settings = Sampling(1.0, 0, 1.0, 2.0, 0)
        for name, first, before in (("first", [7, wrong], None), ("before", [7, 8], [[4], [5, wrong]])):
            with pytest.raises(ValueError, match=rf"^`{name}` must hold ids from 0 to 12, .* Received: {wrong}$"):
                sample(gpt, [[4, 5], [6]], first, 3, settings, before)

    @pytest.mark.parametrize("before", [[], [[4]], [[4], [5], [6]]])
    def test_what_was_there_before_other_rows(self, gpt, before):
        with pytest.raises(ValueError, match=r"^`before` must have as many rows as `source`, 2\. Received: before of"):
            sample(gpt, [[4, 5], [6]], [7, 8], 3, Sampling(1.0, 0, 1.0, 2.0, 0), before)


@pytest.mark.parametrize("search", [greedy, beam_search])
class TestSearch:
    def test_rows_of_any_length(self, translator, search):
        found, padded = search(translator, ROWS, [4, 2, 0]), search(translator, np.array(PADDED), [4, 2, 0])
        np.testing.assert_array_equal(found.ids, padded.ids)
        assert search(translator, [], 3).ids.shape[0] == 0

    @pytest.mark.parametrize("wrong", [-1, 9])
    def test_ids_that_the_model_does_not_have(self, translator, search, wrong):
        """The model of Keras reads -1, which some pad with, as the last id."""
        with pytest.raises(ValueError, match=rf"^`source` must hold ids from 0 to 8, .* Received: {wrong}$"):
            search(translator, [[4, wrong]], 3)

    def test_fractions_are_no_limits(self, translator, search):
        with pytest.raises(ValueError, match=r"^`limits` must be one integer, .* Received: limits=2\.5$"):
            search(translator, [[4, 5]], 2.5)

    def test_sources_that_are_no_ids(self, search):
        """Of a family that reads images, `vocabulary_size` is that of its texts; of several sources, one has ids."""

        class OfImages:
            vocabulary_size = 9

            def begin(self, images):
                return tf.reduce_mean(images, axis=1), ()

            def step(self, tokens, position, memory, cache):
                return memory[:, None] + tf.zeros([1, tokens.shape[1], 1]), cache, None  # (B, K, V)

        class OfSeveral(OfImages):
            source_vocabulary_size = 9

            def begin(self, several):
                return super().begin(several["images"])

        images = 9 * np.eye(9, dtype="float32")[[[4, 4], [7, 7]]]  # (B, S, V)
        for model, source in ((OfImages(), images), (OfSeveral(), {"images": tf.constant(images)})):
            found = search(model, source, 2).ids
            assert np.reshape(found, [2, 2]).tolist() == [[4, 4], [7, 7]]

    def test_rows_for_a_model_that_does_not_tell_its_vocabulary(self, translator, search):
        """TensorFlow makes an empty tensor of a list whose first row is empty, whatever the others hold."""

        class Own:
            begin, step = translator.begin, translator.step

        rows = [[], [4, 5, 6], [7]]
        np.testing.assert_array_equal(search(Own(), rows, 4).ids, search(translator, rows, 4).ids)
        assert checked_rows(Own(), [tf.constant([4, 5], tf.int64)] * 2, 4)[0].dtype == tf.int64

    @pytest.mark.parametrize("source", [{}, {"source": [[4, 5]]}])
    def test_a_dict_without_tensors(self, translator, search, source):
        with pytest.raises(ValueError, match=r"^`source` must be a list of rows of ids, or tensors .* Received: \{"):
            search(translator, source, 3)

    def test_a_text_longer_than_the_context(self, gpt, search):
        """Without an error, the last tokens would all be read at the last position."""
        assert search(gpt, ROWS, [5, 8, 7]).ids.shape[0] == 3
        with pytest.raises(ValueError, match=r"at most 8 tokens together, .*`context_length`.* Received: 9 tokens$"):
            search(gpt, ROWS, 6)
        with pytest.raises(ValueError, match=r"at most 8 tokens together"):
            search(gpt, ROWS, 2**63 - 1)  # with the prompt, int64 would overflow

    def test_a_copy_that_is_a_plain_model(self, translator, search):
        message = r"^`model` must have the methods `begin` and `step`.* Received: model of type Functional$"
        with pytest.raises(ValueError, match=message):
            search(keras.models.clone_model(translator), [[4, 5]], 3)


def test_the_context_of_a_model_without_a_vocabulary_size():
    class Repeating:
        context_length = 4

        def begin(self, source):
            return (), ()

        def step(self, tokens, position, memory, cache):
            return tf.one_hot(tokens, 9), cache, None

    settings = Sampling(0.0, 0, 1.0, 1.0, 0)
    assert sample(Repeating(), [[5, 6]], [7], 2, settings).ids.numpy().tolist() == [[7, 7]]
    with pytest.raises(ValueError, match=r"at most 4 tokens together, .* Received: 5 tokens$"):
        sample(Repeating(), [[5, 6]], [7], 3, settings)


class TestScores:
    INPUTS, TOKENS = [[2, 4, 5], [2, 6]], [[4, 5, 3], [6, 3]]

    def test_rows_of_any_length(self, gpt, translator):
        inputs, tokens = np.array([[2, 4, 5], [2, 6, 0]]), np.array([[4, 5, 3], [6, 3, 0]])
        one, other = score(gpt, self.INPUTS, self.TOKENS), score(gpt, inputs, tokens)
        for name in ("log_probability", "tokens"):
            np.testing.assert_array_equal(one[name], other[name])
        of_windows = score_in_windows(gpt, self.INPUTS, self.TOKENS, CONTEXT, np.int64(4))
        np.testing.assert_allclose(of_windows["log_probability"], one["log_probability"], rtol=1e-5)
        listed = {"source": ROWS[::2], "target": tf.ragged.constant(self.INPUTS)}
        found = score_tokens(translator, listed, self.TOKENS)
        expected = score_tokens(translator, {"source": np.array(PADDED[::2]), "target": inputs}, tokens)
        np.testing.assert_array_equal(found, expected)

    @pytest.mark.parametrize("tokens", [[[4, 5, 3]], [[4, 5], [6, 3]], [[4, 5, 6, 3], [6, 3]]])
    def test_tokens_of_other_inputs(self, gpt, tokens):
        """Fewer were scored as if they were the first."""
        with pytest.raises(ValueError, match=r"^`tokens` must have an id for each vector that the model gives"):
            score(gpt, self.INPUTS, tokens)

    @pytest.mark.parametrize(("sources", "targets"), [(1, 2), (3, 2), (2, 1)])
    def test_inputs_of_other_rows(self, translator, sources, targets):
        name, number = ("source", sources) if sources != 2 else ("target", targets)
        message = rf"^`{name}` must have as many rows as `tokens`, 2\. Received: {name} of shape \({number}, 2\)$"
        with pytest.raises(ValueError, match=message):
            score(translator, {"source": [[4, 5]] * sources, "target": [[2, 4]] * targets}, [[4, 3]] * 2)

    @pytest.mark.parametrize("wrong", [-2, 13])
    def test_ids_that_the_model_does_not_have(self, gpt, wrong):
        for inputs, tokens, name in (([[2]], [[wrong]], "tokens"), ([[wrong]], [[3]], "inputs")):
            with pytest.raises(ValueError, match=rf"^`{name}` must hold ids from 0 to 12, .* Received: {wrong}$"):
                score_tokens(gpt, inputs, tokens)

    @pytest.mark.parametrize("wrong", [4.0, None, "4", True])
    def test_lengths_are_integers(self, gpt, wrong):
        for name, given in (("stride", (CONTEXT, wrong)), ("context_length", (wrong, 1))):
            with pytest.raises(ValueError, match=rf"^`{name}` must be an integer\. Received: {name}="):
                score_in_windows(gpt, self.INPUTS, self.TOKENS, *given)
