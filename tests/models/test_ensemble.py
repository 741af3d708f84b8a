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


@pytest.fixture(scope="module")
def make(randomize):
    """A function that makes an ensemble of models, with random weights that differ from model to model."""

    def make(*models):
        return Ensemble([randomize(model, seed) for seed, model in enumerate(models)])

    return make


@pytest.fixture(scope="module")
def both(make):
    """A recurrent model and a transformer. Tests leave it as it is."""
    return make(recurrent(readout_units=5), transformer())


class TestFamily(FamilyTests):
    test_the_last_product_can_be_taken_off = None  # there is one of each model: `test_vectors_give_the_logits`
    test_it_learns = None  # its models are trained before
    test_a_saved_model_is_loaded_as_it_was = None  # `test_it_is_loaded_as_it_was_saved` tests more
    without_gradient = ("key/bias",)  # it adds the same to all scores of a row

    @pytest.mark.long
    def test_an_export_says_the_same(self):
        super().test_an_export_says_the_same()

    @pytest.fixture(scope="class", autouse=True)
    def under_test(self, request, both):
        request.cls.model = both


# What it computes.


def probabilities(model):
    logits = keras.ops.convert_to_numpy(model(BATCH)).astype("float64")
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def test_the_probabilities_are_the_mean(both):
    mean = sum(map(probabilities, both.models)) / 2  # (B, T, V)
    np.testing.assert_allclose(np.exp(both(BATCH)), mean, rtol=1e-5)
    tokens = np.array([[4, 5, 3], [6, 7, 0], [8, 3, 0]])
    expected = np.where(tokens == 0, 0, np.log(np.take_along_axis(mean, tokens[:, :, None], 2)[:, :, 0]))
    np.testing.assert_allclose(score_tokens(both, BATCH, tokens), expected, rtol=1e-5)


def test_of_three_models_each_counts_a_third_and_a_token_that_none_predicts_stays_finite():
    logits = [[0.0, np.log(3), -1e9], [5.0, 5.0, -1e9], [2.0, 2.0, -1e9]]
    found = keras.ops.convert_to_numpy(log_of_mean([np.array([each], "float32") for each in logits]))
    np.testing.assert_allclose(np.exp(found), [[5 / 12, 7 / 12, 0]], rtol=1e-6)
    assert np.isfinite(found).all()


def test_vectors_give_the_logits(both):
    vectors = both.without_logits()(BATCH)
    assert vectors.shape == (3, 3, 5 + 8)
    np.testing.assert_allclose(both.logits_of(vectors), both(BATCH), rtol=1e-5)


def test_attention_is_the_mean_of_a_step(both):
    memory, cache = both.begin(SOURCE)
    weights = both.step(TARGET[:, :1], 0, memory, cache)[2]
    steps = [
        each.step(TARGET[:, :1], 0, read, cached) for each, read, cached in zip(both.models, memory, cache, strict=True)
    ]
    np.testing.assert_allclose(weights, (steps[0][2] + steps[1][2]) / 2, rtol=1e-6)
    blind = Ensemble([both.models[0], recurrent(attention=None)])
    assert not blind.has_attention
    assert blind.step(TARGET[:, :1], 0, *blind.begin(SOURCE))[2] is None


def test_hidden_tokens_are_left_out(both):
    shown = np.ones_like(SOURCE, bool)
    shown[0, 1] = False
    masks = Masks(shown)
    expected = log_of_mean([each.logits_of(each.vectors(BATCH, masks)) for each in both.models])
    found = both.logits_of(both.vectors(BATCH, masks))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert not np.allclose(found[0], both(BATCH)[0])


# Its models.


def test_it_is_loaded_as_it_was_saved(make, tmp_path):
    model = make(recurrent(), transformer(decoder_layers=1))
    model.models[0].trainable = False
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert [type(each) for each in loaded.models] == [RNNSeq2Seq, Transformer]
    assert loaded.get_config() == model.get_config()
    np.testing.assert_array_equal(loaded(BATCH), model(BATCH))
    step = loaded.step(TARGET[:, :1], 0, *loaded.begin(SOURCE))[0]
    np.testing.assert_allclose(step, model(BATCH)[:, :1], rtol=1e-5, atol=1e-5)
    assert [each.path for each in loaded.trainable_weights] == [each.path for each in model.trainable_weights]
    assert 0 < len(loaded.trainable_weights) == len(model.weights) - len(model.models[0].weights)
    clone = keras.models.clone_model(model)  # layer by layer, as where it is a part of another functional model
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(clone(BATCH), model(BATCH))


def test_the_fewest_learned_positions_count(both):
    assert both.most_positions is None
    longer, shorter = (transformer(positions="learned", max_length=length, decoder_layers=1) for length in (7, 6))
    assert Ensemble([longer, both.models[0], shorter]).most_positions == 6


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (lambda: GPT(9, units=4, num_heads=2), "Received: a `GPT`"),
        (lambda: keras.Sequential(), "Received: a `Sequential`"),
        (lambda: RNNSeq2Seq(12, 9, units=4), "Received: source vocabularies of 11, 12 ids"),
        (lambda: RNNSeq2Seq(11, 8, units=4), "Received: target vocabularies of 9, 8 ids"),
    ],
)
def test_what_it_refuses(both, other, told):
    with pytest.raises(ValueError, match=rf"{told}$"):
        Ensemble([both.models[0], other()])


def test_fewer_than_two_models_are_no_ensemble(both):
    model = both.models[0]
    for models, number in (([], 0), ([model], 1), ([model, model], 2), (model, 1)):
        with pytest.raises(ValueError, match=rf"must be two or more different models. Received: {number}$"):
            Ensemble(models)


# As it is served.


class TestPacked:
    @pytest.fixture(scope="class")
    def forms(self, make):
        """A model as it is, and packed."""
        model = make(transformer(), transformer(units=12, positions="rotary", norm_first=False))
        return model, pack(model, 7, 5)

    def test_it_searches_and_scores_as_the_model(self, forms):
        model, packed = forms
        one, other = (beam_search(each, SOURCE, 7, 3, n_best=3, return_weights=True) for each in forms)
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_allclose(one.log_probabilities, other.log_probabilities, rtol=1e-4)
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-4)
        np.testing.assert_allclose(packed.logits_of(packed.vectors(BATCH)), model(BATCH), rtol=1e-4)
        assert len(packed.weights) == len({each.ref() for each in packed.weights}) > 0

    def test_a_shortlist_takes_the_mean_among_its_tokens(self, forms):
        model = forms[0]
        packed = pack(model, 7, 5)
        packed.prepare_output_columns()
        ids = tf.constant([[0, 1, 2, 3, 7, 5]] * 3)  # (B, C)
        first = np.array([[2], [7], [5]])
        steps = [each.step(first, 0, *each.begin(SOURCE))[0] for each in model.models]
        expected = log_of_mean([np.asarray(step)[:, 0][:, ids[0].numpy()] for step in steps])
        for each in (model, packed):
            few = WithShortlist(each, ids)
            found = few.step(tf.constant([[2], [4], [5]]), 0, *few.begin(SOURCE))[0][:, 0]  # (B, C)
            np.testing.assert_allclose(found, expected, rtol=1e-4)

    def test_one_model_without_a_packed_form_leaves_all_as_they_are(self, both):
        assert unsupported(both) == "RNNSeq2Seq has no packed form"
        assert pack(both, 7, 5) is both


def test_a_shortlist_is_refused_where_the_models_have_no_packed_form(both, tmp_path):
    sizes = [zoo.text.CharacterTokenizer(letters) for letters in ("abcdefg", "stuvw")]
    table, counts = np.zeros([11, 1], "int32"), np.ones(9)
    task = zoo.Translator(both, *sizes, shortlist=Shortlist(table, counts, 6))
    with pytest.raises(ValueError, match=r"A shortlist needs a packed .*: RNNSeq2Seq has no packed form$"):
        zoo.serving.export(task, tmp_path)
