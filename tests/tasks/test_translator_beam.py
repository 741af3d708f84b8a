"""A translator's beam: its own and a call's, several results of a text, and what attended to what in each head."""

import functools
import json
import math

import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo import Translator
from zoo.models import RNNSeq2Seq, Transformer
from zoo.text import CharacterTokenizer

TEXTS = ["cab", "", "4321 abcd", "é 1", " ", "?", "dd", "a", "cab"]
SIZES = dict(
    num_heads=2, feed_forward_units=12, encoder_layers=1, decoder_layers=2, tied_embeddings="none", dropout=0.0
)


@functools.cache  # a translator is traced once for each pair of sizes, which is most of the time here
def build(family=Transformer, **arguments):
    """Random weights with which texts differ, some end early, and neither beam nor penalty is without effect."""
    source, target = CharacterTokenizer("abcdé 1234😀"), CharacterTokenizer("zyxwü 987😀")
    model = family(source.size, target.size, units=8, **(SIZES if family is Transformer else {}))
    seed, scale = (28, 0.7) if family is Transformer else (4, 0.5)
    random = np.random.default_rng(seed)
    values = [scale * random.normal(size=weight.shape) for weight in model.weights if not weight.path.endswith("gamma")]
    values = iter(values)
    model.set_weights(
        [np.ones(weight.shape) if weight.path.endswith("gamma") else next(values) for weight in model.weights]
    )
    return Translator(model, source, target, **{"max_target_length": 12, **arguments})


def again(translator, **arguments):
    """The same model with other defaults."""
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    return Translator(translator.model, *tokenizers, max_target_length=12, **arguments)


@pytest.fixture(scope="module", params=[Transformer, RNNSeq2Seq])
def translator(request):
    return build(request.param)


@pytest.fixture(scope="module")
def transformer():
    return build()


def log_probabilities(translator, found):
    """What the model gives each text, and its end if it has one, by teacher forcing."""
    source = translator.source_tokenizer.tokenize([each.source.strip() for each in found], add_end=True)
    target = translator.target_tokenizer.tokenize([each.text for each in found], add_start=True, add_end=True)
    chances = tf.nn.log_softmax(translator.model({"source": source, "target": target[:, :-1]}))
    of_labels = np.array(tf.gather(chances, target[:, 1:], batch_dims=2))
    return [float(row[: length(each)].sum()) for row, each in zip(of_labels, found, strict=True)]


def length(translation):
    """In tokens: a text of less than the limit has ended."""
    return min(len(translation.text) + 1, 12)


class TestBeam:
    def test_a_beam_of_one_is_greedy(self, translator):
        greedy = translator.translate(TEXTS)
        assert translator.translate(TEXTS, beam_size=1, length_penalty=3.0) == greedy
        assert translator.beam_size == 1

    def test_many_texts_are_decoded_in_halves_and_find_what_few_find(self, translator):
        few = translator.translate(TEXTS, beam_size=4, n_best=2)
        many = translator.translate(TEXTS * 5, beam_size=4, n_best=2)
        assert [each.text for each in many] == 5 * [each.text for each in few]
        alternatives = [[each.text for each in best.alternatives] for best in many]
        assert alternatives == 5 * [[each.text for each in best.alternatives] for best in few]
        np.testing.assert_allclose([each.score for each in many], 5 * [each.score for each in few], rtol=1e-5)

    def test_scores_are_log_probabilities_and_the_order_is_the_penaltys(self, translator):
        for penalty in (0.0, 0.6):
            for best in translator.translate(["cab", "?", "dd"], beam_size=4, length_penalty=penalty, n_best=3):
                every = (best, *best.alternatives)
                assert 2 <= len({each.text for each in every}) <= len(every) <= 3
                assert {each.source for each in every} == {best.source}
                assert all(each.alternatives == () for each in every[1:])
                np.testing.assert_allclose(
                    [each.score for each in every], log_probabilities(translator, every), atol=1e-4
                )
                ranks = [each.score / ((5 + length(each)) / 6) ** penalty for each in every]
                assert ranks == sorted(ranks, reverse=True)

    def test_a_beam_finds_what_is_likelier(self, translator):
        greedy = translator.translate(TEXTS)
        beam = translator.translate(TEXTS, beam_size=4, length_penalty=0.0, n_best=3)
        assert any(b.score > a.score + 1e-2 for a, b in zip(greedy, beam, strict=True))

    def test_batched_and_padded_is_each_alone(self, translator):
        alone = [translator.translate([text], beam_size=4, n_best=3)[0] for text in TEXTS]
        for batch_size in (2, 64):
            together = translator.translate(TEXTS, batch_size, beam_size=4, n_best=3)
            for ours, theirs in zip(together, alone, strict=True):
                ours, theirs = (ours, *ours.alternatives), (theirs, *theirs.alternatives)
                assert [each.text for each in ours] == [each.text for each in theirs]
                np.testing.assert_allclose([e.score for e in ours], [e.score for e in theirs], atol=1e-4)

    def test_one_result_has_no_alternatives(self, translator):
        one = translator.translate(TEXTS, beam_size=4)
        assert all(each.alternatives == () for each in one)
        assert translator(TEXTS, beam_size=4) == [each.text for each in one]

    def test_the_penalty_is_of_each_call(self, translator):
        favored = {p: translator.translate(TEXTS, 64, 4, p, 3) for p in (0.0, 3.0)}
        short, long = (sum(len(each.text) for each in found) for found in favored.values())
        assert short < long

    def test_nothing_has_one_translation_and_that_is_nothing(self, translator):
        for found in translator.translate(["", " \t", "cab"], beam_size=4, n_best=3)[:2]:
            assert (found.text, found.score, found.alternatives) == ("", 0.0, ())

    def test_fewer_texts_than_asked_for(self):
        short = build(RNNSeq2Seq, max_target_length=1)
        every = short.translate(["cab"], beam_size=30, n_best=30)[0]
        # As many texts of one token as there are ids from the end on.
        assert len(every.alternatives) + 1 == short.target_tokenizer.size - 3
        total = sum(math.exp(each.score) for each in (every, *every.alternatives))
        assert 0.5 < total <= 1 + 1e-5

    def test_traced_once_for_each_pair_of_sizes(self):
        translator = build.__wrapped__(RNNSeq2Seq)
        traces = []
        begin = type(translator.model).begin
        translator.model.begin = lambda source: traces.append(1) or begin(translator.model, source)
        for texts, penalty in ((["a"], 0.0), (TEXTS, 0.6), (["cab", "dd"], 1)):
            translator.translate(texts, beam_size=2, length_penalty=penalty, n_best=2)
        assert len(traces) == 1
        for _ in range(2):
            translator.translate(["a"], beam_size=2)
        assert len(traces) == 2

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"beam_size": 0}, r"`beam_size` must be a positive integer\. Received: beam_size=0$"),
            ({"beam_size": 2.0}, r"`beam_size` must be a positive integer\. Received: beam_size=2\.0$"),
            ({"beam_size": True}, r"`beam_size` must be a positive integer\. Received: beam_size=True$"),
            ({"length_penalty": -0.1}, r"`length_penalty` must be from 0 to 10\. Received: length_penalty=-0\.1$"),
            ({"length_penalty": math.nan}, r"`length_penalty` must be from 0 to 10\. Received: length_penalty=nan$"),
            ({"length_penalty": "1"}, r"`length_penalty` must be a number\. Received: length_penalty='1'$"),
        ],
    )
    @pytest.mark.parametrize("of", ["a call", "the translator"])
    def test_refuses(self, translator, arguments, message, of):
        with pytest.raises(ValueError, match=f"^{message}"):
            translator.translate([], **arguments) if of == "a call" else again(translator, **arguments)

    @pytest.mark.parametrize("sizes", [{"n_best": 2}, {"n_best": 4, "beam_size": 3}])
    def test_more_results_than_hypotheses(self, translator, sizes):
        received = f"n_best={sizes['n_best']}, beam_size={sizes.get('beam_size', 1)}"
        with pytest.raises(ValueError, match=rf"^`n_best` must be at most `beam_size`\. Received: {received}$"):
            translator.translate(["a"], **sizes)
        with pytest.raises(ValueError, match=r"^`n_best` must be a positive integer"):
            translator.translate(["a"], n_best=0)


class TestSaving:
    def test_its_own_beam_is_the_default_and_is_saved(self, translator, tmp_path):
        own = again(translator, beam_size=4, length_penalty=1)
        assert (own.beam_size, own.length_penalty) == (4, 1.0)
        loaded = zoo.load(own.save(tmp_path / "saved"))
        assert (loaded.beam_size, loaded.length_penalty) == (4, 1.0)
        assert loaded.translate(TEXTS, n_best=3) == translator.translate(TEXTS, 64, 4, 1.0, 3)
        assert loaded.translate(TEXTS, n_best=3) != translator.translate(TEXTS, 64, 4, 3.0, 3)
        assert loaded.translate(TEXTS, 64, 4, 3.0, 3) == translator.translate(TEXTS, 64, 4, 3.0, 3)

    def test_an_older_folder_without_it_still_loads(self, translator, tmp_path):
        file = translator.save(tmp_path / "saved") / "translator.json"
        config = json.loads(file.read_text(encoding="utf-8"))
        assert (config.pop("beam_size"), config.pop("length_penalty")) == (1, 0.6)
        file.write_text(json.dumps(config), encoding="utf-8")
        loaded = zoo.load(tmp_path / "saved")
        assert (loaded.beam_size, loaded.length_penalty) == (1, 0.6)


class TestAttention:
    @pytest.mark.parametrize("beam_size", [1, 4])
    def test_of_what_is_translated(self, translator, beam_size):
        other = translator if beam_size == 1 else again(translator, beam_size=beam_size)
        texts = ["cab", "4321 abcd", "é"]
        wanted = translator(texts, beam_size=beam_size)
        for text, alignment in zip(wanted, other.attend(texts), strict=True):
            assert "".join(token for token in alignment.target_tokens if token != "</s>") == text
            np.testing.assert_allclose(alignment.weights.sum(axis=1), 1, atol=1e-5)

    def test_a_transformers_is_the_mean_of_the_last_layers_heads_of_the_steps(self, transformer):
        """By the steps of decoding, which compute their weights one by one."""
        texts = ["cab", "4321 abcd"]
        source = transformer.source_tokenizer.tokenize(texts, add_end=True)
        target = transformer.target_tokenizer.tokenize(transformer(texts), add_start=True)
        memory, cache = transformer.model.begin(source)
        alignments = transformer.attend(texts)
        for row in range(max(len(each.target_tokens) for each in alignments)):
            _, cache, weights = transformer.model.step(target[:, row : row + 1], row, memory, cache)
            for alignment, wanted in zip(alignments, weights[:, 0], strict=True):
                if row < len(alignment.target_tokens):
                    wanted = wanted[: len(alignment.source_tokens)]
                    np.testing.assert_allclose(alignment.weights[row], wanted, atol=1e-5)

    def test_by_head_is_what_the_model_says_without_padding(self, transformer):
        texts = ["4321 abcd", "a", "cab"]
        for text, grid in zip(texts, transformer.attend_by_head(texts), strict=True):
            (alignment,) = transformer.attend([text])
            to_source, within = grid.kinds
            assert (grid.source_text, grid.target_text) == (text, transformer([text])[0])
            assert to_source.source_tokens == within.source_tokens == within.target_tokens == [*text, "</s>"]
            assert to_source.target_tokens == alignment.target_tokens
            source = transformer.source_tokenizer.tokenize([text], add_end=True)
            target = transformer.target_tokenizer.tokenize(transformer([text]), add_start=True)
            maps, source_maps = transformer.model.attention_maps(source, target)
            rows = len(to_source.target_tokens)
            np.testing.assert_allclose(to_source.weights, maps[0, :, :, :rows], atol=1e-5)
            np.testing.assert_allclose(within.weights, source_maps[0], atol=1e-5)
            chosen = grid.choose("last", "mean", [0]).kinds[0].weights
            np.testing.assert_allclose(chosen[0, 0], alignment.weights, atol=1e-5)

    def test_no_texts(self, transformer):
        assert transformer.attend_by_head([]) == []

    def test_one_attention_has_no_heads(self):
        with pytest.raises(ValueError, match="has one attention, without layers and heads to choose from"):
            build(RNNSeq2Seq).attend_by_head(["a"])


# What is given: settings of each row, and translations to be scored.


def test_scores_are_those_of_the_search(translator):
    texts = [text for text in TEXTS if text.strip()]
    found = translator.translate(texts, beam_size=3, n_best=2)
    found = [each for best in found for each in (best, *best.alternatives)]
    scored = translator.score([each.source for each in found], [each.text for each in found], batch_size=4)
    assert [each.text for each in scored] == [each.text for each in found]
    assert [each.tokens for each in scored] == [length(each) for each in found]
    expected = log_probabilities(translator, found)
    np.testing.assert_allclose([each.log_probability for each in scored], expected, atol=1e-4)
    np.testing.assert_allclose([each.score for each in found], expected, atol=1e-4)


def test_scores_of_nothing_and_of_what_does_not_fit(translator):
    assert translator.score([], []) == []
    for texts, targets, message in (
        (["a", "b"], ["a"], r"`targets` must be as many as `texts`, 2\. Received: 1"),
        ("a", ["a"], "must be a list of strings"),
        (["a"], [b"a"], "must hold strings"),
    ):
        with pytest.raises(ValueError, match=message):
            translator.score(texts, targets)


def test_settings_of_each_row(translator):
    """A row with its settings beside others is what it is alone with them."""
    beam = again(translator, beam_size=3)
    lengths, penalties = [12, 3, 0, 99, -5, 12, 2**31 - 1], [0.0, 1.0, 0.6, 2.0, 0.6, math.nan, -1.0]
    texts = ["cab", "4321 abcd", "dd", "a", "cab", "é 1", "cab"]

    def generate(rows):
        columns = [tf.constant([column[row] for row in rows]) for column in (texts, lengths, penalties)]
        result = [beam._generate(*columns)[name].numpy() for name in ("text", "score")]
        return [(text.decode(), float(score)) for text, score in zip(*result, strict=True)]

    found = generate(range(len(texts)))
    alone = [generate([row])[0] for row in range(len(texts))]
    assert [text for text, _ in found] == [text for text, _ in alone]
    assert [len(text) <= max(limit, 0) for (text, _), limit in zip(found, lengths, strict=True)] == [True] * 7
    assert found[2] == found[4] == ("", 0.0)
    for row, penalty in ((0, 0.0), (3, 2.0), (5, beam.length_penalty), (6, beam.length_penalty)):
        assert found[row][0] == beam([texts[row]], length_penalty=penalty)[0]


def test_settings_of_another_number_than_the_texts_are_an_error(transformer):
    """Whether so many texts are decoded in halves or not."""
    beam = again(transformer, beam_size=3)
    for texts in (2, 60):
        for other in (1, 3, 61):
            for limits, penalties in ((other, texts), (texts, other)):
                with pytest.raises(tf.errors.InvalidArgumentError, match="must be one for each text"):
                    beam._generate(tf.fill([texts], "a"), tf.fill([limits], 5), tf.fill([penalties], 0.6))
