"""A translator: the suite of all tasks, what it answers, its beam, and what attended to what."""

import functools
import json
import math
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo import TextGenerator, Translator
from zoo.models import GPT, RNNSeq2Seq, Transformer
from zoo.tasks.results import Translation
from zoo.testing import TaskTests
from zoo.testing.tasks import eagerly
from zoo.text import CharacterTokenizer

TEXTS = ["cab", "", "4321 abcd", "é 1", " ", "?", "dd", "a", "cab"]
MOST = 12  # tokens of a target
NO_LISTS = (str, bytes, dict, set, type(None))  # what the suite passes on as it is
# Tracing a search takes most of the time here. So few translators are made, tests use these sizes of a beam, and what
# is asked once runs `eagerly`.
BEAM = dict(beam_size=4, n_best=3)


def build(family=RNNSeq2Seq, **arguments):
    """Random weights with which texts differ, some end early, and neither beam nor penalty is without effect."""
    source, target = CharacterTokenizer("abcdé 1234😀"), CharacterTokenizer("zyxwü 987😀")
    sizes = dict(num_heads=2, feed_forward_units=12, encoder_layers=1, decoder_layers=2, tied_embeddings="none")
    sizes = {**sizes, "dropout": 0.0} if family is Transformer else {}
    of_model = {name: arguments.pop(name) for name in ("attention", "cell") if name in arguments}
    model = family(source.size, target.size, units=8, **sizes, **of_model)
    random = np.random.default_rng(28 if family is Transformer else 4)
    for weight in model.weights:
        is_scale = weight.path.endswith("gamma")
        weight.assign(np.ones(weight.shape) if is_scale else 0.7 * random.normal(size=weight.shape))
    return Translator(model, source, target, **{"max_target_length": MOST, **arguments})


@pytest.fixture(scope="module")
def translator():
    """A recurrent one that is greedy."""
    return build()


@pytest.fixture(scope="module")
def without_attention():
    return build(attention=None, cell="lstm")


@pytest.fixture(scope="module")
def transformer():
    return build(Transformer)


@functools.cache
def with_a_beam():
    """With a penalty between those that give shorter and longer texts."""
    return build(max_source_length=6, max_target_length=9, beam_size=3, length_penalty=1.4)


def again(translator, **arguments):
    """The same model with other settings."""
    return Translator(translator.model, translator.source_tokenizer, translator.target_tokenizer, **arguments)


def length(translation):
    """In tokens: a text of less than the limit has ended."""
    return min(len(translation.text) + 1, MOST)


def chances(translator, every):
    """What the model gives the tokens of texts, and their ends if they have one, by teacher forcing; and the tokens.

    Shapes: float32 (B, T, V) and int32 (B, T), which is 0 behind a shorter text.
    """
    source = translator.source_tokenizer.tokenize([each.source.strip() for each in every], add_end=True)
    target = translator.target_tokenizer.tokenize([each.text for each in every], add_start=True, add_end=True)
    target = target[:, : MOST + 1]
    logits = translator.model({"source": source, "target": target[:, :-1]})
    return np.array(tf.nn.log_softmax(logits)), target[:, 1:].numpy()


def log_probabilities(translator, every):
    log_softmax, labels = chances(translator, every)
    return np.sum(np.take_along_axis(log_softmax, labels[..., None], axis=2)[..., 0] * (labels != 0), axis=1)


class TestTask(TaskTests):
    def make_task(self):
        return with_a_beam()

    def calls(self):
        def attend(task, texts, **options):
            """An empty text has no translation whose attention could be shown."""
            if not isinstance(texts, NO_LISTS):
                texts = [" a" if text == "" else text for text in texts]
            return task.attend(texts, **options)

        def score(task, texts, **options):
            texts = list(texts) if not isinstance(texts, NO_LISTS) else texts
            return task.score(texts, texts, **options)

        return {
            "attend": attend,  # first, because `zoo.testing` calls the first of a loaded task, eagerly; the next traces
            "translate": lambda task, texts, **options: task.translate(texts, **options),
            "score": score,
            "complete": lambda task, texts, **options: task.complete(texts, **options),
            "next_tokens": lambda task, texts, **options: task.next_tokens(texts, **options),
        }


class TestAnswers:
    def test_nothing_becomes_nothing_and_white_space_around_a_text_is_none_of_it(self, translator):
        for found in translator.translate(["", " ", "\t\r\n"]):
            assert (found.text, found.score, found.alternatives) == ("", 0.0, ())
        assert translator(["\u3000cab\u00a0\n", "cab", "\u2028cab\x1f "]) == translator(["cab"] * 3)

    @pytest.mark.parametrize("name", ["translator", "without_attention"])
    def test_the_score_is_what_the_model_gives_the_likeliest_text_and_its_end(self, name, request):
        """Against teacher forcing, which shares no code with the loop."""
        translator = request.getfixturevalue(name)
        texts = [text for text in TEXTS if text.strip()]
        ends = []
        every = translator.translate(texts, batch_size=2)
        for text, found, log_softmax, labels in zip(texts, every, *chances(translator, every), strict=True):
            assert (found.source, isinstance(found.score, float)) == (text, True)
            labels = labels[labels != 0]
            log_softmax = log_softmax[: len(labels)]
            assert found.score == pytest.approx(log_softmax[np.arange(len(labels)), labels].sum(), abs=1e-4)
            assert (np.argmax(log_softmax[:, 3:], axis=1) + 3).tolist() == labels.tolist()
            ends.append(labels[-1] == 3)
        assert translator.has_attention is (name == "translator")
        assert any(ends) or not translator.has_attention, "the first of these models ends some texts of itself"

    def test_sources_and_results_are_cut_at_their_longest_the_end_included(self):
        short = with_a_beam()
        texts = ["abcd1234", "abcd1", "abcd"]
        long, as_long, shorter = short.attend(texts)
        assert long.source_tokens == [*"abcd1", "</s>"] and len(long.source_tokens) == short.max_source_length
        assert long.target_tokens == as_long.target_tokens != shorter.target_tokens
        assert len(long.target_tokens) == short.max_target_length and "</s>" not in long.target_tokens
        assert short(texts[:2]) == ["".join(long.target_tokens)] * 2


class TestArguments:
    @pytest.mark.parametrize("side", ["source", "target"])
    def test_a_tokenizer_with_more_ids_than_the_model(self, translator, side):
        tokenizers = {"source": translator.source_tokenizer, "target": translator.target_tokenizer}
        tokenizers[side] = CharacterTokenizer("".join(map(chr, range(0x4E00, 0x4E00 + 40))))
        message = rf"`{side}_tokenizer` has 44 ids, more than .* {side}_vocabulary_size=1\d"
        with pytest.raises(ValueError, match=message):
            Translator(translator.model, *tokenizers.values())

    def test_a_model_of_the_other_task(self, translator):
        tokenizer = translator.source_tokenizer
        writing = GPT(tokenizer.size, units=8, num_heads=2, num_layers=1, context_length=8)
        with pytest.raises(ValueError, match=r"`model` must read a source and a target.* Received: a `GPT`, which"):
            Translator(writing, tokenizer, tokenizer)
        with pytest.raises(ValueError, match=r"`model` must read one text.* Received: a `RNNSeq2Seq`$"):
            TextGenerator(translator.model, tokenizer, context_length=8)

    @pytest.mark.parametrize(("name", "length"), [("max_source_length", 1), ("max_target_length", 0)])
    def test_a_length_without_room_for_a_token(self, translator, name, length):
        with pytest.raises(ValueError, match=rf"`{name}` must be at least {length + 1}\. Received: {name}={length}$"):
            again(translator, **{name: length})

    @pytest.mark.parametrize("name", ["max_source_length", "max_target_length"])
    @pytest.mark.parametrize("length", [2.5, True, "8"])
    def test_a_length_that_is_no_integer(self, translator, name, length):
        with pytest.raises(ValueError, match=rf"^`{name}` must be an integer\. Received: {name}={length!r}$"):
            again(translator, **{name: length})

    def test_settings_of_numpy_are_saved_as_pythons(self, translator, tmp_path):
        numbers = dict(max_source_length=np.int32(9), max_target_length=np.int64(7), beam_size=np.int64(3))
        task = again(translator, **numbers, length_penalty=np.float32(0.5))
        loaded = Translator.load(task.save(tmp_path / "saved"))
        assert loaded._settings() == task._settings() == {**translator._settings(), **numbers, "length_penalty": 0.5}
        assert again(translator, length_penalty=np.int64(1)).length_penalty == 1.0

    def test_no_text_is_longer_than_the_learned_positions(self, translator, eager):
        tokenizer = translator.source_tokenizer
        sizes = dict(units=8, num_heads=2, encoder_layers=1, decoder_layers=1, feed_forward_units=4)
        model = Transformer(tokenizer.size, tokenizer.size, positions="learned", max_length=8, **sizes)
        task = Translator(model, tokenizer, tokenizer)
        assert (task.max_source_length, task.max_target_length) == (8, 8)
        assert task._translate(tf.constant(["abcd" * 9, ""]))["text"].shape == [2]
        for name in ("max_source_length", "max_target_length"):
            with pytest.raises(ValueError, match=rf"^`{name}` must be at most 8, .* learned positions. Received: 9$"):
                again(task, **{name: 9})

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"beam_size": 0}, r"`beam_size` must be a positive integer\. Received: beam_size=0$"),
            ({"length_penalty": -0.1}, r"`length_penalty` must be from 0 to 10\. Received: length_penalty=-0\.1$"),
            ({"length_penalty": math.nan}, r"`length_penalty` must be from 0 to 10\. Received: length_penalty=nan$"),
            ({"length_penalty": "1"}, r"`length_penalty` must be a number\. Received: length_penalty='1'$"),
        ],
    )
    def test_a_beam_out_of_range_of_a_call_and_of_the_translator(self, translator, arguments, message):
        for call in (lambda: translator.translate([], **arguments), lambda: again(translator, **arguments)):
            with pytest.raises(ValueError, match=f"^{message}"):
                call()

    @pytest.mark.parametrize("sizes", [{"n_best": 2}, {"n_best": 4, "beam_size": 3}])
    def test_more_results_than_hypotheses(self, translator, sizes):
        received = f"n_best={sizes['n_best']}, beam_size={sizes.get('beam_size', 1)}"
        with pytest.raises(ValueError, match=rf"^`n_best` must be at most `beam_size`\. Received: {received}$"):
            translator.translate(["a"], **sizes)

    def test_a_long_text_that_is_not_in_a_list_is_not_repeated_in_full(self, translator):
        with pytest.raises(ValueError, match=r"for one text, give a list of one\. Received: 'abc .{,40}abc '$"):
            translator.translate("abc " * 10_000)

    @pytest.mark.parametrize("text", [np.array("a"), tf.constant("a")])
    def test_an_array_of_one_text_is_no_list(self, translator, text):
        with pytest.raises(ValueError, match=r"^`texts` must be a list of strings; for one text, give a list of one\."):
            translator.translate(text)

    def test_scores_of_nothing_and_of_what_does_not_fit(self, translator):
        assert translator.score([], []) == []
        for texts, targets, message in (
            (["a", "b"], ["a"], r"`targets` must be as many as `texts`, 2\. Received: 1"),
            (["a"], [b"a"], "must hold strings"),
        ):
            with pytest.raises(ValueError, match=message):
                translator.score(texts, targets)


class TestSaving:
    def test_its_own_folder_is_replaced_or_stays_if_saving_fails(
        self, translator, without_attention, tmp_path, monkeypatch
    ):
        def fail(*_):
            raise OSError("no space left on device")

        without_attention.save(tmp_path / "saved")
        for broken, method in ((RNNSeq2Seq, "save"), (CharacterTokenizer, "get_config")):
            with monkeypatch.context() as patched:
                patched.setattr(broken, method, fail)
                with pytest.raises(OSError, match="no space left"):
                    translator.save(tmp_path / "saved")
            assert not zoo.load(tmp_path / "saved").has_attention
            assert [path.name for path in tmp_path.iterdir()] == ["saved"]
        translator.save(tmp_path / "saved")
        assert zoo.load(tmp_path / "saved").has_attention

    def test_an_older_folder_without_a_beam_still_loads(self, translator, tmp_path):
        file = translator.save(tmp_path / "saved") / "translator.json"
        config = json.loads(file.read_text(encoding="utf-8"))
        assert (config.pop("beam_size"), config.pop("length_penalty")) == (1, 0.6)
        file.write_text(json.dumps(config), encoding="utf-8")
        loaded = zoo.load(tmp_path / "saved")
        assert (loaded.beam_size, loaded.length_penalty) == (1, 0.6)

    def test_keras_on_another_backend_is_refused(self, translator, tmp_path, monkeypatch):
        saved = translator.save(tmp_path / "saved")
        monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
        for call in (lambda: again(translator), lambda: zoo.load(saved)):
            with pytest.raises(ValueError, match=r"^Translator decodes .* KERAS_BACKEND=tensorflow .* on torch$"):
                call()


class TestBeam:
    def test_a_beam_of_one_is_greedy_and_one_result_has_no_alternatives(self, transformer):
        found = transformer.translate(TEXTS)
        assert transformer.beam_size == 1
        assert transformer.translate(TEXTS, beam_size=1, length_penalty=3.0) == found
        assert all(each.alternatives == () for each in found)
        assert transformer(TEXTS) == [each.text for each in found]

    def test_a_beam_finds_what_is_likelier_and_nothing_has_one_translation(self, transformer):
        beam = transformer.translate(TEXTS, length_penalty=0.0, **BEAM)
        better = [b.score > a.score + 1e-2 for a, b in zip(transformer.translate(TEXTS), beam, strict=True)]
        assert any(better)
        assert [(beam[row].text, beam[row].score, beam[row].alternatives) for row in (1, 4)] == [("", 0.0, ())] * 2

    def test_scores_are_log_probabilities_and_the_order_is_the_penaltys(self, transformer):
        texts, lengths = ["cab", "?", "dd"], []
        for penalty in (0.0, 0.6, 10.0):
            found = transformer.translate(texts, length_penalty=penalty, **BEAM)
            everything = [each for best in found for each in (best, *best.alternatives)]
            scores = [each.score for each in everything]
            np.testing.assert_allclose(scores, log_probabilities(transformer, everything), atol=1e-4)
            for best in found:
                every = (best, *best.alternatives)
                assert 2 <= len({each.text for each in every}) <= len(every) <= 3
                assert {(each.source, each.alternatives) for each in every[1:]} == {(best.source, ())}
                ranks = [each.score / ((5 + length(each)) / 6) ** penalty for each in every]
                assert ranks == sorted(ranks, reverse=True)
            lengths.append(sum(map(length, found)))
        assert lengths[0] < lengths[2]

    def test_many_texts_are_decoded_in_halves_and_find_what_few_find(self, transformer):
        few, many = transformer.translate(TEXTS, **BEAM), transformer.translate(TEXTS * 5, **BEAM)
        for found, expected in zip(many, 5 * few, strict=True):
            for ours, theirs in zip((found, *found.alternatives), (expected, *expected.alternatives), strict=True):
                assert ours.text == theirs.text
                assert ours.score == pytest.approx(theirs.score, rel=1e-5)

    def test_a_text_for_which_a_beam_finds_nothing_has_an_empty_translation(self, transformer, monkeypatch):
        """Of NaN as logits."""
        found = {"text": tf.fill([1, 2], ""), "score": tf.fill([1, 2], float("-inf"))}
        monkeypatch.setattr(transformer, "_search", lambda *_: lambda text: found)
        assert transformer.translate(["cab"], n_best=2) == [Translation("cab", "", float("-inf"))]

    def test_the_shortest_lengths_have_fewer_texts_than_are_asked_for(self):
        """As many texts of one token as there are ids from the end on. Any penalty and any number of texts is traced
        once."""
        short, traces = build(attention=None, max_source_length=2, max_target_length=1), []
        begin = type(short.model).begin
        short.model.begin = lambda source: traces.append(1) or begin(short.model, source)
        for texts, penalty in ((["cab"], 0.0), (["a", "cab", "dd"], 0.6), (["cab", "dd"], 1)):
            for every in short.translate(texts, beam_size=30, n_best=30, length_penalty=penalty):
                assert len(every.alternatives) + 1 == short.target_tokenizer.size - 3
                total = sum(math.exp(each.score) for each in (every, *every.alternatives))
                assert 0.5 < total <= 1 + 1e-5
        assert len(traces) == 1


class TestAttention:
    @pytest.mark.parametrize("beam_size", [1, 3])
    def test_of_what_is_translated(self, translator, beam_size):
        translator = translator if beam_size == 1 else with_a_beam()
        texts = ["cab", "é 1", "é"]
        for text, found, alignment in zip(texts, translator(texts), translator.attend(texts), strict=True):
            assert (alignment.source_text, alignment.source_tokens) == (text, [*text, "</s>"])
            assert "".join(token for token in alignment.target_tokens if token != "</s>") == found
            assert alignment.weights.shape == (len(alignment.target_tokens), len(alignment.source_tokens))
            np.testing.assert_allclose(alignment.weights.sum(axis=1), 1, atol=1e-5)

    def test_weights_are_the_models(self, translator):
        """The first step attends from the initial state, whatever was written."""
        source = translator.source_tokenizer.tokenize(["cab"], add_end=True)
        memory, cache = translator.model.begin(source)
        weights = translator.model.step(tf.constant([[2]]), 0, memory, cache)[2]
        np.testing.assert_allclose(translator.attend(["cab"])[0].weights[0], weights[0, 0], atol=1e-6)

    def test_what_there_is_not_cannot_be_shown(self, translator, without_attention):
        with pytest.raises(ValueError, match="no attention to show: it was built with attention=None"):
            without_attention.attend(["cab"])
        with pytest.raises(ValueError, match="has one attention, without layers and heads to choose from"):
            translator.attend_by_head(["a"])
        with pytest.raises(ValueError, match=r"^The text at position 1 has no tokens whose attention could be shown"):
            translator.attend(["cab", " "])

    def test_by_head_is_what_the_model_says_without_padding(self, transformer):
        """And the attention of a text is the mean of the last layer's heads."""
        texts = ["4321 abcd", "a", "cab"]
        found = zip(
            texts, transformer(texts), transformer.attend_by_head(texts), transformer.attend(texts), strict=True
        )
        for text, target_text, grid, alignment in found:
            to_source, within, past = grid.kinds
            assert (grid.source_text, grid.target_text) == (text, target_text)
            assert to_source.source_tokens == within.source_tokens == within.target_tokens == [*text, "</s>"]
            assert to_source.target_tokens == alignment.target_tokens
            source = transformer.source_tokenizer.tokenize([text], add_end=True)
            target = transformer.target_tokenizer.tokenize([target_text], add_start=True)
            maps, source_maps, past_maps = transformer.model.attention_maps(source, target)
            rows = len(to_source.target_tokens)
            assert past.target_tokens == to_source.target_tokens
            assert past.source_tokens == ["<s>", *to_source.target_tokens[:-1]]
            np.testing.assert_allclose(past.weights, past_maps[0, :, :, :rows, :rows], atol=1e-5)
            np.testing.assert_allclose(to_source.weights, maps[0, :, :, :rows], atol=1e-5)
            np.testing.assert_allclose(within.weights, source_maps[0], atol=1e-5)
            np.testing.assert_allclose(alignment.weights, np.mean(maps, axis=2)[0, -1, :rows], atol=1e-5)
            chosen = grid.choose("last", "mean", [0]).kinds[0].weights
            np.testing.assert_allclose(chosen[0, 0], alignment.weights, atol=1e-5)


# What is given: settings of each row, and translations to be scored.


def test_scores_of_given_translations_are_those_of_the_search(transformer):
    found = transformer.translate(["cab", "4321 abcd", "é 1", "?"], **BEAM)
    found = [each for best in found for each in (best, *best.alternatives)]
    with eagerly():
        scored = transformer.score([each.source for each in found], [each.text for each in found], batch_size=4)
    assert [(each.text, each.tokens) for each in scored] == [(each.text, length(each)) for each in found]
    expected = [each.score for each in found]  # the model's, see `TestBeam`
    np.testing.assert_allclose([each.log_probability for each in scored], expected, atol=1e-4)


def test_settings_of_each_row():
    """A row with its own settings gives the same in a batch as alone."""
    beam = with_a_beam()
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
    for row, penalty in ((0, 0.0), (3, 2.0), (5, beam.length_penalty)):
        assert found[row][0] == beam([texts[row]], length_penalty=penalty)[0]
    # In the place of a penalty out of range there is the translator's own, which makes a difference.
    assert beam(TEXTS, length_penalty=0.0) != beam(TEXTS) != beam(TEXTS, length_penalty=10.0)
    for penalty in (-1.0, 11.0, math.nan):
        rows = [len(TEXTS)]
        own = beam._generate(tf.constant(TEXTS), tf.fill(rows, 12), tf.fill(rows, penalty))["text"].numpy()
        assert [text.decode() for text in own] == beam(TEXTS)


def test_settings_of_another_number_than_the_texts_are_an_error():
    """Both for few texts and for a batch that is decoded in halves."""
    for texts in (2, 60):
        for other in (1, texts + 1):
            for limits, penalties in ((other, texts), (texts, other)):
                with pytest.raises(tf.errors.InvalidArgumentError, match="must be one for each text"):
                    with_a_beam()._generate(tf.fill([texts], "a"), tf.fill([limits], 5), tf.fill([penalties], 0.6))


class TestPrefixes:
    """Of both families, one greedy and one with a beam, against the model's own logits.

    A search knows a model by its `begin` and `step` alone, so that not each family needs each search.
    """

    @pytest.fixture(scope="class", params=["recurrent with a beam", "transformer"])
    def any_translator(self, request, transformer):
        """The first cuts two of the sources, and has a penalty of its own."""
        return transformer if request.param == "transformer" else with_a_beam()

    def ask(self, translator, name, texts, prefixes, hidden=None, heads=None):
        function = translator.signatures()[name]
        inputs = {"text": texts, "prefix": prefixes, "hidden": hidden, "heads": heads}
        inputs = {each.name: inputs[each.name] or [""] * len(texts) for each in function.input_signature}
        found = function(**{name: tf.constant(values) for name, values in inputs.items()})
        return {key: value.numpy() for key, value in found.items()}

    @pytest.mark.long
    def test_without_a_prefix_it_is_the_translation(self, any_translator):
        found = self.ask(any_translator, "complete", TEXTS, [""] * len(TEXTS))
        assert [text.decode() for text in found["text"]] == any_translator(TEXTS)
        words = [b"".join(token for token in row if token != b"</s>") for row in found["tokens"]]
        assert [text.decode() for text in words] == any_translator(TEXTS)

    def test_all_that_the_beam_has_found(self, any_translator):
        found = self.ask(any_translator, "complete", TEXTS, [""] * len(TEXTS))
        size = any_translator.beam_size
        assert found["best"].shape == found["best_scores"].shape == (len(TEXTS), size)
        with eagerly():
            wanted = any_translator._n_best(
                tf.constant(TEXTS), any_translator.length_penalty, beam_size=size, n_best=size
            )
        np.testing.assert_array_equal(found["best"], wanted["text"])
        assert np.isfinite(found["best_scores"]).all()
        nothing = np.isinf(wanted["score"])
        assert nothing.any() == (size > 1) and not any(found["best"][nothing])
        np.testing.assert_allclose(found["best_scores"][~nothing], wanted["score"][~nothing], atol=1e-4)
        assert all(found["best_scores"][nothing] < -1e38)

    def test_its_own_tokens_as_a_prefix_give_the_same_text_and_the_score_of_each_token(self, any_translator):
        found = self.ask(any_translator, "complete", TEXTS, [""] * len(TEXTS))
        own = [" ".join(str(each) for each in row if each) for row in found["ids"]]
        again = self.ask(any_translator, "complete", TEXTS, own)
        np.testing.assert_array_equal(again["ids"], found["ids"])
        np.testing.assert_allclose(again["log_probabilities"], found["log_probabilities"], atol=1e-5)
        wanted = self.logarithms(any_translator, TEXTS, found["ids"][:, :-1])
        wanted = np.take_along_axis(wanted, found["ids"][..., None], axis=2)[..., 0] * (found["ids"] != 0)
        np.testing.assert_allclose(found["log_probabilities"], wanted, atol=1e-4)

    def logarithms(self, translator, texts, ids):
        """The log-probabilities `(B, T + 1, V)` of all tokens after 0, 1, ... of these ids `(B, T)`."""
        texts = tf.constant([text.strip() for text in texts])
        source = translator.source_tokenizer.tokenize(texts, add_end=True, max_length=translator.max_source_length)
        target = np.pad(ids, [(0, 0), (1, 0)], constant_values=2)
        logits = translator.model({"source": source.numpy(), "target": target}).numpy()
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    def test_the_next_tokens_are_those_of_the_models_logits(self, any_translator):
        found = self.ask(any_translator, "next", ["cab"] * 3, ["", "5 6 7", "7 oops 5"])
        logarithms = self.logarithms(any_translator, ["cab"] * 3, [[0, 0, 0], [5, 6, 7], [7, 0, 0]])
        for row, number in enumerate((0, 3, 1)):
            wanted = np.exp(logarithms[row, number, 3:])
            order = np.argsort(-wanted, kind="stable")
            np.testing.assert_array_equal(found["ids"][row], order[:20] + 3)
            np.testing.assert_allclose(found["probabilities"][row], wanted[order][:20] / wanted.sum(), rtol=1e-4)
        pieces = any_translator.target_tokenizer.tokens(found["ids"]).numpy()
        np.testing.assert_array_equal(found["tokens"], pieces)

    def test_rows_do_not_depend_on_their_neighbours(self, any_translator):
        prefixes = ["", "5", "6 7 8 4", "4 4 3", "x", "5 5", "", "7", "8 8 8"]
        for name in ("complete", "next"):
            together = self.ask(any_translator, name, TEXTS, prefixes)
            for row in range(len(TEXTS)):
                alone = self.ask(any_translator, name, TEXTS[row : row + 1], prefixes[row : row + 1])
                for key, values in alone.items():
                    of_row = together[key][row][: len(values[0])] if values.ndim > 1 else together[key][row]
                    if values.dtype.kind == "f":
                        np.testing.assert_allclose(of_row, values[0], atol=1e-5)
                    else:
                        np.testing.assert_array_equal(of_row, values[0])

    def test_attention_is_that_of_the_completed_text(self, any_translator):
        texts = ["cab", "4321 abcd"]
        whole = self.ask(any_translator, "complete", texts, ["", "5 6"])
        found = self.ask(any_translator, "complete_attention", texts, ["", "5 6"])
        np.testing.assert_array_equal(found["target_tokens"], whole["tokens"])
        name = "attention_by_head" if any_translator.has_heads else "attention"
        with eagerly():
            own = any_translator.signatures()[name](text=tf.constant(texts[:1]))
        for key, values in own.items():
            values = values.numpy()
            place = (0, *(slice(size) for size in values.shape[1:]))
            if values.dtype.kind == "f":
                np.testing.assert_allclose(found[key][place], values[0], atol=1e-5)
            else:
                np.testing.assert_array_equal(found[key][place], values[0])

    def test_masks_of_each_row(self, any_translator):
        """In a batch as alone, whatever the neighbours hide; garbage is ignored; other numbers come out."""
        texts = ["4321 abcd", "cab", "4321 abcd", "dd", "4321 abcd"]
        hidden = ["0 5", "", "oops -1 999999999999 77", "0", ""]
        heads = ["", "", "encoder.9.1 source.1 x.1.1", "", "encoder.1.2 source.2.1 decoder.1.1 decoder.2.2"]

        def same(found, wanted):
            """Up to padding."""
            return np.allclose(found[tuple(slice(size) for size in wanted.shape)], wanted, atol=1e-4)

        for name in ("complete", "next", "complete_attention"):
            together = self.ask(any_translator, name, texts, [""] * 5, hidden, heads)
            number = {"complete": "log_probabilities", "next": "probabilities"}.get(name, "weights")
            for row in range(5):
                text = texts[row : row + 1]
                masked = self.ask(any_translator, name, text, [""], hidden[row : row + 1], heads[row : row + 1])
                assert same(together[number][row], masked[number][0])
                if name == "complete":
                    assert together["text"][row] == masked["text"][0]
                plain = self.ask(any_translator, name, text, [""])[number]
                changes = row in (0, 3) or (row == 4 and any_translator.has_heads)
                assert (masked[number].shape == plain.shape and same(masked[number], plain)) != changes

    def test_calls_with_masks(self, any_translator):
        text = ["4321 abcd"]
        (plain,), (found,) = any_translator.complete(text), any_translator.complete(text, hidden=[[0]])
        wanted = self.ask(any_translator, "complete", text, [""], ["0"])
        assert found.text == wanted["text"][0].decode() and found.log_probabilities != plain.log_probabilities
        (choices,) = any_translator.next_tokens(text, hidden=[np.array([0])])
        (others,) = any_translator.next_tokens(text)
        assert choices[0].probability != others[0].probability
        if any_translator.has_heads:
            (without,) = any_translator.complete(text, heads=[["source.2.1", "encoder.1.1"]])
            assert without.log_probabilities != plain.log_probabilities
        else:
            with pytest.raises(ValueError, match="takes no `heads`"):
                any_translator.complete(text, heads=[["source.2.1"]])
            assert any_translator.complete(text, heads=[[]]) == [plain]

    @pytest.mark.parametrize(
        ("masks", "message"),
        [
            ({"hidden": [[1], [2]]}, "`hidden` must be as many as `texts`, 1. Received: 2"),
            ({"hidden": [["1"]]}, "`hidden` must hold lists of positions. Received: '1' in the one at position 0"),
            ({"hidden": ["1 2"]}, "`hidden` must hold lists of positions. Received: '1 2' in the one at position 0"),
            ({"hidden": [1]}, "`hidden` must hold lists of positions. Received: 1 in the one at position 0"),
            ({"hidden": [[2, -1]]}, "`hidden` must hold positions from 0. Received: -1 in the list at position 0"),
            ({"hidden": 1}, "`hidden` must hold lists of positions, one for each text. Received: 1"),
            ({"hidden": np.array(1)}, r"must hold lists of positions, one for each text\. Received: array\(1\)"),
            ({"hidden": tf.constant([1])}, r"`hidden` must hold lists of positions\. Received: <tf\.Tensor"),
            ({"heads": [[1]]}, "`heads` must hold lists of names of heads. Received: 1"),
            ({"heads": [["bogus"]]}, r"HEADS\. Received: 'bogus' in the list at position 0"),
            ({"heads": [["source.2.2", "source.2.9"]]}, r"HEADS\. Received: 'source.2.9' in the list at position 0"),
        ],
    )
    def test_what_are_no_masks(self, transformer, masks, message):
        heads = [f"{kind}.1.1 to {kind}.{layers}.2" for kind, (layers, _) in transformer.model.head_sizes.items()]
        message = message.replace("HEADS", re.escape(", ".join(heads)))
        for call in (transformer.complete, transformer.next_tokens):
            with pytest.raises(ValueError, match=message):
                call(["cab"], **masks)

    def test_every_row_has_a_prefix(self, transformer):
        with pytest.raises(tf.errors.InvalidArgumentError, match="`prefix` must be one for each text"):
            self.ask(transformer, "complete", ["cab", "d"], ["5"])
        with pytest.raises(tf.errors.InvalidArgumentError, match="`hidden` must be one for each text"):
            self.ask(transformer, "complete", ["cab", "d"], ["5", "5"], ["0"])

    def test_the_calls_take_ids(self, transformer):
        (whole,) = transformer.complete(["cab"])
        (again,) = transformer.complete(["cab"], [np.array(whole.ids)])
        assert again == whole
        assert whole.text == transformer(["cab"])[0]
        assert len(whole.ids) == len(whole.tokens) == len(whole.log_probabilities)
        (choices,) = transformer.next_tokens(["cab"], [whole.ids[:2]])
        (other,) = transformer.complete(["cab"], [(*whole.ids[:2], choices[1].id)])
        assert other.ids[:3] == (*whole.ids[:2], choices[1].id)
        assert other.tokens[2] == choices[1].token

    @pytest.mark.parametrize(
        ("prefixes", "message"),
        [
            ([[4], [5]], "`prefixes` must be as many as `texts`, 1. Received: 2"),
            ([["4"]], "must hold lists of ids. Received: '4' in the one at position 0"),
            ([5], "`prefixes` must hold lists of ids. Received: 5 in the one at position 0"),
            ([[True]], "Received: True"),
        ],
    )
    def test_what_is_no_prefix(self, translator, prefixes, message):
        for call in (translator.complete, translator.next_tokens):
            with pytest.raises(ValueError, match=message):
                call(["cab"], prefixes)
