import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo.decoding import Shortlist, WithShortlist, beam_search, score_tokens
from zoo.models import GPT, Ensemble, Masks, RNNSeq2Seq, Transformer
from zoo.models.ensemble import log_of_mean
from zoo.serving.packed import pack, unsupported
from zoo.testing import FamilyTests

SIZES = dict(source_vocabulary_size=11, target_vocabulary_size=9)
SOURCE = np.array([[4, 5, 6, 7, 3], [8, 3, 0, 0, 0], [0, 0, 0, 0, 0]], "int32")
TARGET = np.array([[2, 4, 5], [2, 6, 7], [2, 8, 0]], "int32")
BATCH = {"source": SOURCE, "target": TARGET}


def recurrent(**options):
    return RNNSeq2Seq(**SIZES, **{"units": 6, **options})


def transformer(**options):
    sizes = dict(units=8, num_heads=2, encoder_layers=1, decoder_layers=2, dropout=0.0)
    return Transformer(**SIZES, **{**sizes, **options})


@pytest.fixture
def make(randomize):
    """An ensemble of models, with random weights that differ from model to model."""

    def make(*models):
        return Ensemble([randomize(model, seed) for seed, model in enumerate(models)])

    return make


class TestFamily(FamilyTests):
    test_the_last_product_can_be_taken_off = None  # there is one of each model: `test_vectors_give_the_logits`
    test_it_learns = None  # its models are trained before
    without_gradient = ("key/bias",)  # it adds the same to all scores of a row

    @pytest.mark.long
    def test_an_export_says_the_same(self):
        super().test_an_export_says_the_same()

    @pytest.fixture(scope="class", autouse=True)
    def under_test(self, request, randomize):
        request.cls.model = randomize(Ensemble([recurrent(), transformer()]))


# What it computes.


def probabilities(model):
    logits = keras.ops.convert_to_numpy(model(BATCH)).astype("float64")
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def test_the_probabilities_are_the_mean(make):
    model = make(recurrent(), recurrent(encoder_layers=2, units=4), transformer())
    mean = sum(map(probabilities, model.models)) / 3  # (B, T, V)
    np.testing.assert_allclose(np.exp(model(BATCH)), mean, rtol=1e-5)
    tokens = np.array([[4, 5, 3], [6, 7, 0], [8, 3, 0]])
    expected = np.where(tokens == 0, 0, np.log(np.take_along_axis(mean, tokens[:, :, None], 2)[:, :, 0]))
    np.testing.assert_allclose(score_tokens(model, BATCH, tokens), expected, rtol=1e-5)


def test_a_token_that_no_model_predicts_stays_finite():
    logits = [np.array([[0.0, np.log(3), -1e9]], "float32"), np.array([[5.0, 5.0, -1e9]], "float32")]
    found = keras.ops.convert_to_numpy(log_of_mean(logits))
    np.testing.assert_allclose(np.exp(found), [[3 / 8, 5 / 8, 0]], rtol=1e-6)
    assert np.isfinite(found).all()


def test_vectors_give_the_logits(make):
    model = make(recurrent(readout_units=5), transformer())
    vectors = model.without_logits()(BATCH)
    assert vectors.shape == (3, 3, 5 + 8)
    np.testing.assert_allclose(model.logits_of(vectors), model(BATCH), rtol=1e-5)


def test_attention_is_the_mean_of_a_step(make):
    model = make(recurrent(), transformer())
    memory, cache = model.begin(SOURCE)
    weights = model.step(TARGET[:, :1], 0, memory, cache)[2]
    steps = [
        each.step(TARGET[:, :1], 0, read, cached)
        for each, read, cached in zip(model.models, memory, cache, strict=True)
    ]
    np.testing.assert_allclose(weights, (steps[0][2] + steps[1][2]) / 2, rtol=1e-6)
    blind = make(recurrent(), recurrent(attention=None))
    assert not blind.has_attention
    assert blind.step(TARGET[:, :1], 0, *blind.begin(SOURCE))[2] is None


def test_hidden_tokens_are_left_out(make):
    model = make(recurrent(), transformer())
    shown = np.ones_like(SOURCE, bool)
    shown[0, 1] = False
    masks = Masks(shown)
    expected = log_of_mean([each.logits_of(each.vectors(BATCH, masks)) for each in model.models])
    found = model.logits_of(model.vectors(BATCH, masks))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert not np.allclose(found[0], model(BATCH)[0])


# Its models.


def test_it_is_loaded_as_it_was_saved(make, tmp_path):
    model = make(recurrent(), recurrent(units=4), transformer())
    model.models[1].trainable = False
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert [type(each) for each in loaded.models] == [RNNSeq2Seq, RNNSeq2Seq, Transformer]
    np.testing.assert_array_equal(loaded(BATCH), model(BATCH))
    assert [each.path for each in loaded.trainable_weights] == [each.path for each in model.trainable_weights]
    assert 0 < len(loaded.trainable_weights) == len(model.weights) - len(model.models[1].weights)
    clone = keras.models.clone_model(model)  # layer by layer, as where it is a part of another functional model
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(clone(BATCH), model(BATCH))


def test_the_fewest_learned_positions_count(make):
    assert make(recurrent(), recurrent()).most_positions is None
    longer, shorter = (transformer(positions="learned", max_length=length) for length in (7, 6))
    assert make(longer, recurrent(), shorter).most_positions == 6


@pytest.mark.parametrize(
    ("models", "told"),
    [
        ([], "must be two or more different models. Received: 0"),
        ([recurrent], "must be two or more different models. Received: 1"),
        ([recurrent, lambda: GPT(9, units=4, num_heads=2)], "Received: a `GPT`"),
        ([recurrent, lambda: keras.Sequential()], "Received: a `Sequential`"),
        ([recurrent, lambda: RNNSeq2Seq(12, 9, units=4)], "Received: source vocabularies of 11, 12 ids"),
        ([recurrent, lambda: RNNSeq2Seq(11, 8, units=4)], "Received: target vocabularies of 9, 8 ids"),
    ],
)
def test_what_it_refuses(models, told):
    with pytest.raises(ValueError, match=rf"{told}$"):
        Ensemble([each() for each in models])


def test_one_model_is_no_ensemble():
    model = recurrent()
    for models, number in (([model, model], 2), (model, 1)):
        with pytest.raises(ValueError, match=rf"must be two or more different models. Received: {number}$"):
            Ensemble(models)


# As it is served.


class TestPacked:
    @pytest.fixture
    def both(self, make):
        model = make(transformer(), transformer(units=12, positions="rotary", norm_first=False))
        return model, pack(model, 7, 5)

    def test_it_searches_and_scores_as_the_model(self, both):
        model, packed = both
        one, other = (beam_search(each, SOURCE, 7, 3, n_best=3, return_weights=True) for each in both)
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_allclose(one.log_probabilities, other.log_probabilities, rtol=1e-4)
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-4)
        np.testing.assert_allclose(packed.logits_of(packed.vectors(BATCH)), model(BATCH), rtol=1e-4)
        assert len(packed.weights) == len({each.ref() for each in packed.weights}) > 0

    def test_a_shortlist_takes_the_mean_among_its_tokens(self, both):
        model, packed = both
        packed.prepare_output_columns()
        ids = tf.constant([[0, 1, 2, 3, 7, 5]] * 3)  # (B, C)
        few = WithShortlist(packed, ids)
        found = few.step(tf.constant([[2], [4], [5]]), 0, *few.begin(SOURCE))[0][:, 0]  # (B, C)
        first = np.array([[2], [7], [5]])
        steps = [each.step(first, 0, *each.begin(SOURCE))[0] for each in model.models]
        expected = log_of_mean([np.asarray(step)[:, 0][:, ids[0].numpy()] for step in steps])
        np.testing.assert_allclose(found, expected, rtol=1e-4)

    def test_one_model_without_a_packed_form_leaves_all_as_they_are(self, make):
        model = make(transformer(), recurrent())
        assert unsupported(model) == "RNNSeq2Seq has no packed form"
        assert pack(model, 7, 5) is model


def test_a_shortlist_is_refused_where_the_models_have_no_packed_form(make, tmp_path):
    sizes = [zoo.text.CharacterTokenizer(letters) for letters in ("abcdefg", "stuvw")]
    table, counts = np.zeros([11, 1], "int32"), np.ones(9)
    task = zoo.Translator(make(recurrent(), recurrent()), *sizes, shortlist=Shortlist(table, counts, 6))
    with pytest.raises(ValueError, match=r"A shortlist needs a packed .*: RNNSeq2Seq has no packed form$"):
        zoo.serving.export(task, tmp_path)
