"""`TextClassifier`, `TextEmbedder` and `MaskFiller`."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo.models import Classifier, Encoder, MaskedLanguageModel, NgramEncoder, RNNEncoder, SentenceEmbedder
from zoo.tasks.encoder_tasks import MaskFiller, TextClassifier, TextEmbedder
from zoo.testing import TaskTests
from zoo.text import CharacterTokenizer, WordPieceTokenizer

CHARACTERS = CharacterTokenizer("abcd é?|")
PIECES = WordPieceTokenizer(["[MASK]", *"abcdé?", *(f"##{letter}" for letter in "abcdé"), "cab", "##ab", "dab"])
LABELS = ["low", "middling", "high"]
SIZES = dict(units=6, num_heads=3, num_layers=1, feed_forward_units=10, max_length=20)


@pytest.fixture(scope="session")
def make(randomize):
    """The tasks by their kind, with random weights; each is made once, since each traces its functions anew."""

    def encoder(tokenizer, **more):
        return Encoder(tokenizer.size, **SIZES, **more)

    @functools.cache
    def make(kind):
        if kind == "recurrent":
            model = Classifier(RNNEncoder(CHARACTERS.size, units=3), 3, pooling="attention", hidden_units=5)
            return TextClassifier(randomize(model), CHARACTERS, LABELS, max_length=12)
        if kind == "votes":
            model = Classifier(NgramEncoder(CHARACTERS.size, units=6, buckets=64), 3, pooling="votes")
            return TextClassifier(randomize(model), CHARACTERS, LABELS, max_length=12)
        if kind == "pairs":
            model = Classifier(encoder(CHARACTERS, num_segments=2), 3, pooling="first", multi_label=True)
            return TextClassifier(randomize(model), CHARACTERS, LABELS, pairs=True)
        if kind == "embedder":
            return TextEmbedder(randomize(SentenceEmbedder(encoder(CHARACTERS))), CHARACTERS)
        return MaskFiller(randomize(MaskedLanguageModel(encoder(PIECES))), PIECES, num_candidates=3)

    return make


class EncoderTaskTests(TaskTests):
    kind: str

    @pytest.fixture(autouse=True)
    def made(self, make):
        if "_task" not in vars(type(self)):
            type(self)._task = make(self.kind)

    @pytest.mark.usefixtures("eager")
    def test_broken_utf_8_is_answered_in_valid_utf_8(self):
        super().test_broken_utf_8_is_answered_in_valid_utf_8()


class TestRecurrentClassifier(EncoderTaskTests):
    kind = "recurrent"

    def calls(self):
        return {
            "classify": lambda task, texts, **options: task.classify(texts, **options),
            "attend": lambda task, texts, **options: task.attend(texts, **options),
        }


class TestVotesOfNgrams(EncoderTaskTests):
    kind = "votes"

    def calls(self):
        return {"classify": lambda task, texts, **options: task.classify(texts, **options)}


class TestEmbedder(EncoderTaskTests):
    kind = "embedder"

    def calls(self):
        return {
            "embed": lambda task, texts, **options: list(task.embed(texts, **options)),
            "attend": lambda task, texts, **options: task.attend(texts, **options),
            "attend_by_head": lambda task, texts, **options: task.attend_by_head(texts, **options),
        }


class TestFiller(EncoderTaskTests):
    kind = "filler"
    texts = ("cab [MASK]", "", "[MASK] dab [MASK]?", "dab", "d[MASK]é")

    def calls(self):
        return {"fill": lambda task, texts, **options: task.fill(texts, **options)}


class TestPairs(EncoderTaskTests):
    kind = "pairs"
    texts = (("cab", "dab"), ("", ""), ("dab", "cab"), ("a", "cab dab cab dab cab dab"), ("", "é"))
    # Of a list of pairs: below.
    test_any_iterable_of_strings = test_what_is_no_list_of_strings_is_refused = None
    test_half_of_a_surrogate_pair_is_a_question_mark = None

    def calls(self):
        return {
            "classify": lambda task, texts, **options: task.classify(texts, **options),
            "attend": lambda task, texts, **options: task.attend(texts, **options),
        }


# Answers are those of the model.


def test_a_classifier_ranks_the_models_probabilities(make):
    task, text = make("recurrent"), "cab d"
    logits = task.model({"ids": task.tokenizer.tokenize([text], add_start=True, add_end=True)}).numpy()[0]
    odds = np.exp(logits.astype("float64"))
    expected = sorted(zip(odds / odds.sum(), LABELS, strict=True), reverse=True)
    (found,) = task.classify([text])
    assert list(found.probabilities) == [label for _, label in expected]
    np.testing.assert_allclose(list(found.probabilities.values()), [p for p, _ in expected], atol=1e-6)
    assert (found.text, found.label) == (text, expected[0][1])
    assert found.probability == found.probabilities[found.label]
    assert task([text]) == [found.label]
    default = task.signatures()["serving_default"](text=tf.constant([text]))
    assert default["label"].numpy()[0].decode() == found.label
    assert float(default["probability"][0]) == pytest.approx(found.probability)


def test_of_several_labels_each_has_a_probability_of_its_own(make):
    task = make("pairs")
    ids, segments = task.tokenizer.tokenize_pairs(["cab"], ["d"])
    logits = task.model({"ids": ids, "segments": segments}).numpy()[0].astype("float64")
    (found,) = task.classify([("cab", "d")])
    assert found.probabilities == pytest.approx(dict(zip(LABELS, 1 / (1 + np.exp(-logits)), strict=True)), abs=1e-6)
    assert found.text == ("cab", "d")


def test_the_weights_of_pooling_are_those_of_its_tokens(make):
    (found,) = make("recurrent").attend(["cab"])
    assert found.source_tokens == ["<s>", "c", "a", "b", "</s>"]
    assert found.target_tokens == make("recurrent")(["cab"])
    assert found.weights.shape == (1, 5)
    assert found.weights.sum() == pytest.approx(1)


def test_embeddings_are_the_models_and_of_length_one(make):
    task = make("embedder")
    vectors = task(["cab", "", "a b c"])
    ids = task.tokenizer.tokenize(["a b c"], add_start=True, add_end=True)
    np.testing.assert_allclose(vectors[2], task.model({"ids": ids})[0], atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert (vectors.dtype, task([]).shape) == (np.float32, (0, 6))


def test_masks_are_filled_with_what_the_model_expects(make):
    task, text = make("filler"), "cab [MASK] [MASK]"
    ids = task.tokenizer.tokenize([text], add_start=True, add_end=True, special_tokens=True)
    assert ids.numpy()[0].tolist()[2:4] == [task.tokenizer.mask_id] * 2
    odds = np.exp(task.model({"ids": ids}).numpy()[0, 2:4].astype("float64"))
    probabilities = odds / odds.sum(-1, keepdims=True)
    (found,) = task.fill([text])
    for of_model, candidates in zip(probabilities, found.candidates, strict=True):
        best = [id_ for id_ in np.argsort(-of_model) if id_ > 3 and id_ != task.tokenizer.mask_id][:3]
        assert list(candidates) == [piece.decode() for piece in task.tokenizer.tokens([best]).numpy()[0]]
        np.testing.assert_allclose(list(candidates.values()), of_model[best], atol=1e-6)
    filled = ids.numpy().copy()
    filled[0, 2:4] = [
        next(i for i in np.argsort(-row) if i > 3 and i != task.tokenizer.mask_id) for row in probabilities
    ]
    assert found.filled == task.tokenizer.detokenize(filled).numpy()[0].decode()
    default = task.signatures()["serving_default"](text=tf.constant([text, "cab"]))
    best = [next(iter(each.values())) for each in found.candidates]
    np.testing.assert_allclose(default["probability"], [np.prod(best), 1], rtol=1e-5)


def test_a_mask_that_no_token_fits_has_no_probability(make, monkeypatch):
    """The model is sure of an end token, which is never written."""
    task = make("filler")
    monkeypatch.setattr(
        task.model, "logits_of", lambda rows: tf.one_hot(tf.fill(tf.shape(rows)[:1], 3), PIECES.size, 200.0)
    )
    found = task._filled(task.encode(tf.constant(["cab [MASK]", "cab"])))
    assert found["probability"].numpy().tolist() == [0.0, 1.0]


def test_a_text_without_a_mask_stays_as_the_tokenizer_writes_it(make):
    (found,) = make("filler").fill(["Cab  dab?"])
    assert (found.filled, found.candidates) == ("cab dab?", ())


def test_a_longer_text_is_cut_off(make, eager):
    task = make("embedder")
    np.testing.assert_array_equal(task(["a" * 50]), task(["a" * 18]))
    short = TextEmbedder(task.model, task.tokenizer, max_length=7)
    np.testing.assert_array_equal(short(["abcab" + "d" * 9]), short(["abcab"]))


# What they refuse.


def test_a_model_without_attention_shows_none():
    model = Classifier(RNNEncoder(CHARACTERS.size, units=3), 3, pooling="max")
    task = TextClassifier(model, CHARACTERS, LABELS)
    with pytest.raises(ValueError, match=r"^This model has no attention to show\.$"):
        task.attend(["cab"])
    with pytest.raises(ValueError, match=r"^This model has no attention of layers and heads to show\.$"):
        task.attend_by_head(["cab"])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("cab", "must be a list of pairs of strings. Received: 'cab'"),
        (None, "must be a list of pairs of strings. Received: None"),
        ({("a", "b"): 1}, r"must be a list of pairs of strings. Received: \{\('a', 'b'\): 1\}"),
        (["cab"], "must hold pairs of strings. Received: 'cab' at position 0"),
        ([("a", "b"), ("a", 3)], r"must hold pairs of strings. Received: \('a', 3\) at position 1"),
    ],
)
def test_what_is_no_list_of_pairs(make, texts, message):
    with pytest.raises(ValueError, match=message):
        make("pairs").classify(texts)


@pytest.fixture(scope="module")
def untrained():
    return Classifier(Encoder(CHARACTERS.size, **SIZES), 3)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda m: TextClassifier(m, CHARACTERS, ["a", "b"]), "`labels` must be 3 different names"),
        (lambda m: TextClassifier(m, CHARACTERS, ["a", "b", "a"]), "`labels` must be 3 different names"),
        (lambda m: TextClassifier(m, CHARACTERS, [1, 2, 3]), "`labels` must be 3 different names"),
        (lambda m: TextClassifier(m, CHARACTERS, LABELS, max_length=8.5), "`max_length` must be an integer"),
        (lambda m: TextClassifier(m, CHARACTERS, LABELS, max_length=21), "`max_length` must be from 5 to 20"),
        (lambda m: TextClassifier(m, CHARACTERS, LABELS, max_length=0), "from 5 to 20. Received: max_length=0"),
        (lambda m: TextClassifier(m, CharacterTokenizer("abcdefghijkl"), LABELS), "`tokenizer` has 16 ids"),
        (lambda m: TextEmbedder(m, CHARACTERS), "must be a zoo.models.SentenceEmbedder. Received: a Classifier"),
        (lambda m: MaskFiller(MaskedLanguageModel(m.encoder), CHARACTERS), "`tokenizer` must have a mask"),
        (
            lambda m: MaskFiller(MaskedLanguageModel(Encoder(PIECES.size, **SIZES)), PIECES, num_candidates=99),
            "`num_candidates` must be from 1 to",
        ),
    ],
)
def test_arguments_that_do_not_fit(untrained, build, message):
    with pytest.raises(ValueError, match=message):
        build(untrained)


def test_an_encoder_of_other_layers(tmp_path, eager):
    """A head takes any model with an input `ids`; this one has no `vocabulary_size` and no `num_segments`."""
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in ("ids", "segments")}
    ids, segments = (keras.layers.Embedding(CHARACTERS.size, 4)(each) for each in inputs.values())
    encoder = keras.Model(inputs, ids + segments)
    classifier = TextClassifier(Classifier(encoder, 3), CHARACTERS, LABELS, pairs=True)
    loaded = TextClassifier.load(classifier.save(tmp_path / "classifier"))
    assert loaded([("ab", "é")]) == classifier([("ab", "é")])


def test_a_small_vocabulary_has_fewer_candidates_by_default():
    few = WordPieceTokenizer(["[MASK]", "a", "b"])
    for tokenizer, candidates in ((PIECES, 5), (few, 2)):
        model = MaskedLanguageModel(Encoder(tokenizer.size, **SIZES))
        assert MaskFiller(model, tokenizer).num_candidates == candidates


def test_settings_of_numpy_are_saved_as_pythons(make, tmp_path):
    filler = make("filler").with_settings(max_length=np.int64(9), num_candidates=np.int32(2))
    loaded = MaskFiller.load(filler.save(tmp_path / "filler"))
    assert (loaded.max_length, loaded.num_candidates) == (9, 2)


def test_a_run_holds_them_in_folders_of_their_own(make, tmp_path):
    make("embedder").save(tmp_path / "run" / "embedder")
    assert isinstance(zoo.load(tmp_path / "run"), TextEmbedder)
    make("recurrent").save(tmp_path / "run" / "classifier")
    with pytest.raises(ValueError, match=r"holds models of several kinds; give .*classifier or .*embedder"):
        zoo.load(tmp_path / "run")
