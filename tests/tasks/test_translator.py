"""A model that speaks text: what it answers, what it refuses, and how it is saved."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo import Translator
from zoo.models import RNNSeq2Seq
from zoo.text import CharacterTokenizer

TEXTS = ["cab", "", "4321 abcd", "é 1", " ", "?", "dd", "a", "cab"]


def build(attention="additive", cell="gru", **lengths):
    """Random weights, large enough that different texts give different outputs, of which some end early."""
    source, target = CharacterTokenizer("abcdé 1234😀"), CharacterTokenizer("zyxwü 987😀")
    model = RNNSeq2Seq(source.size, target.size, attention=attention, cell=cell, units=8)
    random = np.random.default_rng(4)
    model.set_weights([0.7 * random.normal(size=weight.shape) for weight in model.get_weights()])
    return Translator(model, source, target, **{"max_target_length": 12, **lengths})


@pytest.fixture(scope="module")
def translator():
    return build()


def with_lengths(translator, **lengths):
    return Translator(translator.model, translator.source_tokenizer, translator.target_tokenizer, **lengths)


class TestLists:
    def test_one_answer_a_text_in_their_order_over_several_batches(self, translator):
        alone = [translator([text])[0] for text in TEXTS]
        assert len(set(alone)) >= 6
        for batch_size in (1, 2, 64):
            assert translator(TEXTS, batch_size) == alone

    def test_a_translation_holds_the_source_as_given_the_text_and_its_score(self, translator):
        for text, translation in zip(TEXTS, translator.translate(TEXTS, batch_size=2), strict=True):
            assert translation.source == text
            assert translation.text == translator([text])[0]
            assert isinstance(translation.score, float)
            assert translation.score <= 0

    def test_white_space_around_a_text_is_none_of_it(self, translator):
        around = ["\u3000cab\u00a0\n", "cab", "\u2028cab\x1f "]
        assert translator(around) == translator(["cab"] * 3)

    def test_no_texts(self, translator):
        assert translator([]) == translator.translate([]) == translator.attend([]) == []

    @pytest.mark.parametrize("texts", [("cab", "a"), np.array(["cab", "a"]), (text for text in ("cab", "a"))])
    def test_any_sequence_of_strings(self, translator, texts):
        assert translator(texts) == translator(["cab", "a"])

    @pytest.mark.parametrize("texts", ["cab", "", None, 3])
    @pytest.mark.parametrize("method", ["__call__", "translate", "attend"])
    def test_what_is_no_list(self, translator, method, texts):
        with pytest.raises(ValueError, match=r"must be a list of strings; for one text, give a list of one\. Rec"):
            getattr(translator, method)(texts)

    @pytest.mark.parametrize(
        ("texts", "received"),
        [(["a", 3], "3 at position 1"), ([b"a"], "b'a' at position 0"), (["a", "b", None], "None at position 2")],
    )
    @pytest.mark.parametrize("method", ["__call__", "translate", "attend"])
    def test_what_is_no_string(self, translator, method, texts, received):
        with pytest.raises(ValueError, match=f"`texts` must hold strings. Received: {received}$"):
            getattr(translator, method)(texts)

    @pytest.mark.parametrize("batch_size", [0, -1])
    def test_a_batch_of_nothing(self, translator, batch_size):
        with pytest.raises(ValueError, match=rf"`batch_size` must be at least 1\. Received: batch_size={batch_size}"):
            translator(["a"], batch_size)

    def test_a_lone_surrogate_is_answered(self, translator):
        assert translator(["\ud800"]) == translator(["?"])


class TestAnswers:
    def test_nothing_becomes_nothing(self, translator):
        for translation in translator.translate(["", " ", "\t\r\n"]):
            assert (translation.text, translation.score) == ("", 0.0)

    def test_white_space_around_a_text_does_not_count(self, translator):
        assert translator(["  cab\n"]) == translator(["cab"])

    @pytest.mark.parametrize("arguments", [{}, {"attention": None}, {"attention": "scaled", "cell": "lstm"}])
    def test_the_score_is_what_the_model_gives_the_text_and_its_end(self, arguments):
        """Against teacher forcing, which shares no code with the loop."""
        translator = build(**arguments)
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


class TestAttention:
    def test_tokens_without_padding_and_weights_between_them(self, translator):
        texts = ["cab", "4321 abcd", "é"]
        for text, alignment in zip(texts, translator.attend(texts), strict=True):
            assert alignment.source_tokens == [*text, "</s>"]
            assert alignment.source_text == text
            written = [token for token in alignment.target_tokens if token != "</s>"]
            assert "".join(written) == translator([text])[0]
            assert alignment.weights.shape == (len(alignment.target_tokens), len(alignment.source_tokens))
            np.testing.assert_allclose(alignment.weights.sum(axis=1), 1, atol=1e-5)

    def test_order_is_kept_over_several_batches(self, translator):
        texts = ["4321 abcd", "a", "dd", "cab", "b"]
        for text, alignment in zip(texts, translator.attend(texts, batch_size=2), strict=True):
            (alone,) = translator.attend([text])
            assert (alignment.source_tokens, alignment.target_tokens) == (alone.source_tokens, alone.target_tokens)
            np.testing.assert_allclose(alignment.weights, alone.weights, atol=1e-5)

    def test_weights_are_the_models(self, translator):
        """The first step attends from the initial state, whatever was written."""
        source = translator.source_tokenizer.tokenize(["cab"], add_end=True)
        memory, cache = translator.model.begin(source)
        weights = translator.model.step(tf.constant([[2]]), 0, memory, cache)[2]
        np.testing.assert_allclose(translator.attend(["cab"])[0].weights[0], weights[0, 0], atol=1e-6)

    def test_without_attention_there_is_nothing_to_show(self):
        translator = build(attention=None)
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
    @pytest.mark.parametrize("arguments", [{}, {"attention": None, "cell": "lstm"}])
    def test_what_is_loaded_answers_as_what_was_saved(self, tmp_path, arguments):
        translator = build(max_source_length=6, max_target_length=9, **arguments)
        assert translator.save(str(tmp_path / "runs" / "saved")) == tmp_path / "runs" / "saved"
        loaded = zoo.load(tmp_path / "runs" / "saved")
        assert isinstance(loaded, Translator)
        assert loaded.translate(TEXTS) == translator.translate(TEXTS)
        assert (loaded.max_source_length, loaded.max_target_length) == (6, 9)
        if translator.has_attention:
            assert np.array_equal(loaded.attend(["cab"])[0].weights, translator.attend(["cab"])[0].weights)

    @pytest.mark.long
    def test_what_is_loaded_can_be_trained_on(self, translator, tmp_path):
        loaded = Translator.load(translator.save(tmp_path / "saved"))
        assert isinstance(loaded.model, RNNSeq2Seq)
        before = loaded.translate(["cab"])
        loaded.model.compile(keras.optimizers.SGD(1.0), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        ids = np.full((1, 3), 5)
        loaded.model.fit({"source": ids, "target": ids}, ids, verbose=0)
        assert Translator.load(loaded.save(tmp_path / "saved")).translate(["cab"]) != before

    def test_the_folder_holds_two_files_and_nothing_lies_beside_it(self, translator, tmp_path):
        for _ in range(2):
            translator.save(tmp_path / "saved")
        assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == ["model.keras", "translator.json"]
        assert [path.name for path in tmp_path.iterdir()] == ["saved"]
        config = json.loads((tmp_path / "saved" / "translator.json").read_text(encoding="utf-8"))
        assert config["source_tokenizer"]["vocabulary"] == "abcdé 1234😀"

    def test_its_own_folder_is_replaced(self, translator, tmp_path):
        build(attention=None).save(tmp_path / "saved")
        translator.save(tmp_path / "saved")
        assert zoo.load(tmp_path / "saved").has_attention

    def test_a_foreign_folder_is_refused(self, translator, tmp_path):
        (tmp_path / "thesis.tex").write_text("ten years' work")
        with pytest.raises(FileExistsError, match=r"holds something else \(no translator\.json\); choose another"):
            translator.save(tmp_path)
        assert [path.read_text() for path in tmp_path.iterdir()] == ["ten years' work"]

    @pytest.mark.parametrize("fails", ["model", "tokenizer"])
    def test_saving_that_fails_leaves_the_old_one(self, translator, tmp_path, monkeypatch, fails):
        build(attention=None).save(tmp_path / "saved")

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
