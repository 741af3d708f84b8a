"""A translator: the suite of all tasks, what it answers, its beam, and what attended to what."""

import functools
import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo import Translator
from zoo.models import RNNSeq2Seq, Transformer
from zoo.testing import TaskTests
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
def of_family(request):
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


def recurrent(attention="additive", cell="gru", **lengths):
    """Random weights, large enough that different texts give different outputs, of which some end early."""
    source, target = CharacterTokenizer("abcdé 1234😀"), CharacterTokenizer("zyxwü 987😀")
    model = RNNSeq2Seq(source.size, target.size, attention=attention, cell=cell, units=8)
    random = np.random.default_rng(4)
    model.set_weights([0.7 * random.normal(size=weight.shape) for weight in model.get_weights()])
    return Translator(model, source, target, **{"max_target_length": 12, **lengths})


@pytest.fixture(scope="module")
def translator():
    return recurrent()


def with_lengths(translator, **lengths):
    return Translator(translator.model, translator.source_tokenizer, translator.target_tokenizer, **lengths)


@pytest.mark.long
class TestTransformerTask(TaskTests):
    def make_task(self):
        return again(build(), beam_size=3, length_penalty=1.0)

    def calls(self):
        return {
            "translate": lambda task, texts, **options: task.translate(texts, **options),
            "attend": lambda task, texts, **options: task.attend(no_empty(texts), **options),
            "attend_by_head": lambda task, texts, **options: task.attend_by_head(no_empty(texts), **options),
            "score": scored_itself,
        }


class TestRecurrentTask(TestTransformerTask):
    def make_task(self):
        return recurrent(max_source_length=6, max_target_length=9)

    def calls(self):
        return {name: call for name, call in super().calls().items() if name != "attend_by_head"}


class TestWithoutAttention(TestRecurrentTask):
    def make_task(self):
        return recurrent(attention=None, cell="lstm", max_target_length=9)

    def calls(self):
        return {name: call for name, call in super().calls().items() if name != "attend"}


def no_empty(texts):
    """An empty text has no translation whose attention could be shown."""
    return texts if isinstance(texts, (str, type(None))) else [" a" if text == "" else text for text in texts]


def scored_itself(task, texts, **options):
    texts = list(texts) if not isinstance(texts, (str, type(None))) else texts
    return task.score(texts, texts, **options)


class TestLists:
    def test_a_translation_holds_the_source_as_given_the_text_and_its_score(self, translator):
        for text, translation in zip(TEXTS, translator.translate(TEXTS, batch_size=2), strict=True):
            assert translation.source == text
            assert translation.text == translator([text])[0]
            assert isinstance(translation.score, float)
            assert translation.score <= 0

    def test_white_space_around_a_text_is_none_of_it(self, translator):
        around = ["\u3000cab\u00a0\n", "cab", "\u2028cab\x1f "]
        assert translator(around) == translator(["cab"] * 3)


class TestAnswers:
    def test_nothing_becomes_nothing(self, translator):
        for translation in translator.translate(["", " ", "\t\r\n"]):
            assert (translation.text, translation.score) == ("", 0.0)

    @pytest.mark.parametrize("arguments", [{}, {"attention": None}, {"attention": "scaled", "cell": "lstm"}])
    def test_the_score_is_what_the_model_gives_the_text_and_its_end(self, arguments):
        """Against teacher forcing, which shares no code with the loop."""
        translator = recurrent(**arguments)
        ended = 0
        for translation in translator.translate([text for text in TEXTS if text.strip()]):
            source = translator.source_tokenizer.tokenize([translation.source], add_end=True)
            target = translator.target_tokenizer.tokenize([translation.text], add_start=True, add_end=True)[:, :13]
            logits = translator.model({"source": source, "target": target[:, :-1]})
            chances = tf.nn.log_softmax(logits)[0]
            labels = target[0, 1:]
            wanted = sum(float(chances[step, label]) for step, label in enumerate(labels))
            assert translation.score == pytest.approx(wanted, abs=1e-4)
            # Greedy: each is the likeliest of those that may be written.
            assert (np.argmax(chances[:, 3:], axis=1) + 3).tolist() == labels.numpy().tolist()
            ended += int(labels[-1] == 3)
        assert ended or arguments, "the first of these models ends some texts of itself"

    def test_a_source_is_cut_at_its_longest_the_end_included(self, translator):
        short = with_lengths(translator, max_source_length=4, max_target_length=12)
        assert short.attend(["abcd1234"])[0].source_tokens == ["a", "b", "c", "</s>"]
        assert short(["abcd1234", "abc", "ab"]) == translator(["abc", "abc", "ab"])
        assert translator(["abcd1234"]) != translator(["abc"])

    @pytest.mark.parametrize("length", [1, 3])
    def test_a_result_is_cut_at_its_longest_the_end_included(self, translator, length):
        short = with_lengths(translator, max_target_length=length)
        texts = ["cab", "?", "dd", "a", "4321 abcd"]
        assert max(map(len, translator(texts))) > length
        for alignment in short.attend(texts):
            assert 1 <= len(alignment.target_tokens) <= length
        assert short(texts) == [text[:length] for text in translator(texts)]


class TestOneAttention:
    def test_tokens_without_padding_and_weights_between_them(self, translator):
        texts = ["cab", "4321 abcd", "é"]
        for text, alignment in zip(texts, translator.attend(texts), strict=True):
            assert alignment.source_tokens == [*text, "</s>"]
            assert alignment.source_text == text
            written = [token for token in alignment.target_tokens if token != "</s>"]
            assert "".join(written) == translator([text])[0]
            assert alignment.weights.shape == (len(alignment.target_tokens), len(alignment.source_tokens))
            np.testing.assert_allclose(alignment.weights.sum(axis=1), 1, atol=1e-5)

    def test_weights_are_the_models(self, translator):
        """The first step attends from the initial state, whatever was written."""
        source = translator.source_tokenizer.tokenize(["cab"], add_end=True)
        memory, cache = translator.model.begin(source)
        weights = translator.model.step(tf.constant([[2]]), 0, memory, cache)[2]
        np.testing.assert_allclose(translator.attend(["cab"])[0].weights[0], weights[0, 0], atol=1e-6)

    def test_without_attention_there_is_nothing_to_show(self):
        translator = recurrent(attention=None)
        assert not translator.has_attention
        assert len(translator(["cab"])) == 1
        with pytest.raises(ValueError, match="no attention to show: it was built with attention=None"):
            translator.attend(["cab"])


class TestArguments:
    @pytest.mark.parametrize("side", ["source", "target"])
    def test_a_tokenizer_with_more_ids_than_the_model(self, translator, side):
        tokenizers = {"source": translator.source_tokenizer, "target": translator.target_tokenizer}
        tokenizers[side] = CharacterTokenizer("".join(map(chr, range(0x4E00, 0x4E00 + 40))))
        with pytest.raises(
            ValueError, match=rf"`{side}_tokenizer` has 44 ids, more than .* {side}_vocabulary_size=1\d"
        ):
            Translator(translator.model, *tokenizers.values())

    @pytest.mark.parametrize(("name", "length"), [("max_source_length", 1), ("max_target_length", 0)])
    def test_a_length_without_room_for_a_token(self, translator, name, length):
        with pytest.raises(ValueError, match=rf"`{name}` must be at least {length + 1}\. Received: {name}={length}$"):
            with_lengths(translator, **{name: length})

    def test_the_shortest_lengths_work(self, translator):
        assert len(with_lengths(translator, max_source_length=2, max_target_length=1)(["cab", "a", ""])) == 3


class TestSaving:
    @pytest.mark.long
    def test_what_is_loaded_can_be_trained_on(self, translator, tmp_path):
        loaded = Translator.load(translator.save(tmp_path / "saved"))
        assert isinstance(loaded.model, RNNSeq2Seq)
        before = loaded.translate(["cab"])
        loaded.model.compile(keras.optimizers.SGD(1.0), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        ids = np.full((1, 3), 5)
        loaded.model.fit({"source": ids, "target": ids}, ids, verbose=0)
        assert Translator.load(loaded.save(tmp_path / "saved")).translate(["cab"]) != before

    def test_its_own_folder_is_replaced(self, translator, tmp_path):
        recurrent(attention=None).save(tmp_path / "saved")
        translator.save(tmp_path / "saved")
        assert zoo.load(tmp_path / "saved").has_attention

    @pytest.mark.parametrize("fails", ["model", "tokenizer"])
    def test_saving_that_fails_leaves_the_old_one(self, translator, tmp_path, monkeypatch, fails):
        recurrent(attention=None).save(tmp_path / "saved")

        def fail(*_):
            raise OSError("no space left on device")

        broken = with_lengths(translator)
        if fails == "model":
            monkeypatch.setattr(RNNSeq2Seq, "save", fail)
        else:
            monkeypatch.setattr(CharacterTokenizer, "get_config", fail)
        with pytest.raises(OSError, match="no space left"):
            broken.save(tmp_path / "saved")
        monkeypatch.undo()
        assert not zoo.load(tmp_path / "saved").has_attention
        assert [path.name for path in tmp_path.iterdir()] == ["saved"]

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
        for call in (lambda: with_lengths(translator), lambda: zoo.load(saved)):
            with pytest.raises(ValueError, match=r"^Translator decodes .* KERAS_BACKEND=tensorflow .* on torch$"):
                call()


class TestBeam:
    def test_a_beam_of_one_is_greedy(self, of_family):
        greedy = of_family.translate(TEXTS)
        assert of_family.translate(TEXTS, beam_size=1, length_penalty=3.0) == greedy
        assert of_family.beam_size == 1

    def test_many_texts_are_decoded_in_halves_and_find_what_few_find(self, of_family):
        few = of_family.translate(TEXTS, beam_size=4, n_best=2)
        many = of_family.translate(TEXTS * 5, beam_size=4, n_best=2)
        assert [each.text for each in many] == 5 * [each.text for each in few]
        alternatives = [[each.text for each in best.alternatives] for best in many]
        assert alternatives == 5 * [[each.text for each in best.alternatives] for best in few]
        np.testing.assert_allclose([each.score for each in many], 5 * [each.score for each in few], rtol=1e-5)

    def test_scores_are_log_probabilities_and_the_order_is_the_penaltys(self, of_family):
        for penalty in (0.0, 0.6):
            for best in of_family.translate(["cab", "?", "dd"], beam_size=4, length_penalty=penalty, n_best=3):
                every = (best, *best.alternatives)
                assert 2 <= len({each.text for each in every}) <= len(every) <= 3
                assert {each.source for each in every} == {best.source}
                assert all(each.alternatives == () for each in every[1:])
                np.testing.assert_allclose(
                    [each.score for each in every], log_probabilities(of_family, every), atol=1e-4
                )
                ranks = [each.score / ((5 + length(each)) / 6) ** penalty for each in every]
                assert ranks == sorted(ranks, reverse=True)

    def test_a_beam_finds_what_is_likelier(self, of_family):
        greedy = of_family.translate(TEXTS)
        beam = of_family.translate(TEXTS, beam_size=4, length_penalty=0.0, n_best=3)
        assert any(b.score > a.score + 1e-2 for a, b in zip(greedy, beam, strict=True))

    def test_one_result_has_no_alternatives(self, of_family):
        one = of_family.translate(TEXTS, beam_size=4)
        assert all(each.alternatives == () for each in one)
        assert of_family(TEXTS, beam_size=4) == [each.text for each in one]

    def test_the_penalty_is_of_each_call(self, of_family):
        favored = {p: of_family.translate(TEXTS, 64, 4, p, 3) for p in (0.0, 3.0)}
        short, long = (sum(len(each.text) for each in found) for found in favored.values())
        assert short < long

    def test_nothing_has_one_translation_and_that_is_nothing(self, of_family):
        for found in of_family.translate(["", " \t", "cab"], beam_size=4, n_best=3)[:2]:
            assert (found.text, found.score, found.alternatives) == ("", 0.0, ())

    def test_fewer_texts_than_asked_for(self):
        short = build(RNNSeq2Seq, max_target_length=1)
        every = short.translate(["cab"], beam_size=30, n_best=30)[0]
        # As many texts of one token as there are ids from the end on.
        assert len(every.alternatives) + 1 == short.target_tokenizer.size - 3
        total = sum(math.exp(each.score) for each in (every, *every.alternatives))
        assert 0.5 < total <= 1 + 1e-5

    def test_traced_once_for_each_pair_of_sizes(self):
        own = build.__wrapped__(RNNSeq2Seq)
        traces = []
        begin = type(own.model).begin
        own.model.begin = lambda source: traces.append(1) or begin(own.model, source)
        for texts, penalty in ((["a"], 0.0), (TEXTS, 0.6), (["cab", "dd"], 1)):
            own.translate(texts, beam_size=2, length_penalty=penalty, n_best=2)
        assert len(traces) == 1
        for _ in range(2):
            own.translate(["a"], beam_size=2)
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
    def test_refuses(self, of_family, arguments, message, of):
        with pytest.raises(ValueError, match=f"^{message}"):
            of_family.translate([], **arguments) if of == "a call" else again(of_family, **arguments)

    @pytest.mark.parametrize("sizes", [{"n_best": 2}, {"n_best": 4, "beam_size": 3}])
    def test_more_results_than_hypotheses(self, of_family, sizes):
        received = f"n_best={sizes['n_best']}, beam_size={sizes.get('beam_size', 1)}"
        with pytest.raises(ValueError, match=rf"^`n_best` must be at most `beam_size`\. Received: {received}$"):
            of_family.translate(["a"], **sizes)
        with pytest.raises(ValueError, match=r"^`n_best` must be a positive integer"):
            of_family.translate(["a"], n_best=0)


class TestAttention:
    @pytest.mark.parametrize("beam_size", [1, 4])
    def test_of_what_is_translated(self, of_family, beam_size):
        other = of_family if beam_size == 1 else again(of_family, beam_size=beam_size)
        texts = ["cab", "4321 abcd", "é"]
        wanted = of_family(texts, beam_size=beam_size)
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

    def test_one_attention_has_no_heads(self):
        with pytest.raises(ValueError, match="has one attention, without layers and heads to choose from"):
            build(RNNSeq2Seq).attend_by_head(["a"])


# What is given: settings of each row, and translations to be scored.


def test_scores_are_those_of_the_search(of_family):
    texts = [text for text in TEXTS if text.strip()]
    found = of_family.translate(texts, beam_size=3, n_best=2)
    found = [each for best in found for each in (best, *best.alternatives)]
    scored = of_family.score([each.source for each in found], [each.text for each in found], batch_size=4)
    assert [each.text for each in scored] == [each.text for each in found]
    assert [each.tokens for each in scored] == [length(each) for each in found]
    expected = log_probabilities(of_family, found)
    np.testing.assert_allclose([each.log_probability for each in scored], expected, atol=1e-4)
    np.testing.assert_allclose([each.score for each in found], expected, atol=1e-4)


def test_scores_of_nothing_and_of_what_does_not_fit(of_family):
    assert of_family.score([], []) == []
    for texts, targets, message in (
        (["a", "b"], ["a"], r"`targets` must be as many as `texts`, 2\. Received: 1"),
        ("a", ["a"], "must be a list of strings"),
        (["a"], [b"a"], "must hold strings"),
    ):
        with pytest.raises(ValueError, match=message):
            of_family.score(texts, targets)


def test_settings_of_each_row(of_family):
    """A row with its own settings gives the same in a batch as alone."""
    beam = again(of_family, beam_size=3)
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
    """Both for few texts and for a batch that is decoded in halves."""
    beam = again(transformer, beam_size=3)
    for texts in (2, 60):
        for other in (1, 3, 61):
            for limits, penalties in ((other, texts), (texts, other)):
                with pytest.raises(tf.errors.InvalidArgumentError, match="must be one for each text"):
                    beam._generate(tf.fill([texts], "a"), tf.fill([limits], 5), tf.fill([penalties], 0.6))
