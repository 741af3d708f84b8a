"""What the base of all families adds to `zoo.testing.FamilyTests`: state of single layers, and replicas."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.models import (
    GPT,
    Classifier,
    Encoder,
    MaskedLanguageModel,
    NgramEncoder,
    RNNEncoder,
    RNNSeq2Seq,
    SentenceEmbedder,
    Transformer,
)

SIZES = dict(vocabulary_size=13, units=12, num_heads=6, num_layers=2, context_length=16, feed_forward_units=10)
TOKENS = np.array([[4, 5, 6, 7, 8, 9], [5, 9, 3, 0, 0, 0]], "int32")


def saved_and_loaded(model, tmp_path):
    model.save(tmp_path / "model.keras")
    return keras.models.load_model(tmp_path / "model.keras")


def trainable_paths(model):
    return [weight.path for weight in model.trainable_weights]


def test_frozen_layers_are_remembered_by_files_and_copies(tmp_path):
    model = GPT(**SIZES)
    model.get_layer("embedding").trainable = False
    model.get_layer("layer_2").trainable = False
    model.get_layer("layer_2").feed_forward.trainable = True  # inside a frozen layer
    copy = GPT.from_config(model.get_config())
    for other in (saved_and_loaded(model, tmp_path), copy):
        assert type(other) is GPT and other.get_config() == model.get_config()
        assert not other.get_layer("embedding").trainable
        assert other.get_layer("layer_2").feed_forward.output_projection.trainable
        assert trainable_paths(other) == trainable_paths(model)


def test_a_model_that_is_frozen_from_the_start_stays_so_inside_another(tmp_path):
    """Keras' `Model(trainable=False)` freezes no layer."""
    frozen = GPT(**SIZES, trainable=False)
    inputs = keras.Input((6,), dtype="int32")
    model = keras.Model(inputs, keras.layers.Dense(3, name="head")(frozen(inputs)))
    assert trainable_paths(model) == trainable_paths(saved_and_loaded(model, tmp_path)) == ["head/kernel", "head/bias"]
    frozen.get_layer("layer_2").trainable = True
    paths = [*trainable_paths(frozen.get_layer("layer_2")), "head/kernel", "head/bias"]
    assert trainable_paths(model) == trainable_paths(saved_and_loaded(model, tmp_path)) == paths


def test_the_flag_of_a_model_is_that_of_all_its_layers():
    """Also where the model has the value already, and a layer inside has another one."""
    encoder = Encoder(20, units=8, num_heads=2, num_layers=1)
    everything = trainable_paths(Classifier(encoder, num_classes=3))
    encoder.encoder[0].self_attention.trainable = False
    model = Classifier(encoder, num_classes=3)
    assert len(trainable_paths(model)) == len(everything) - 8  # a new head leaves what is frozen
    model.get_layer("logits").trainable = False
    model.trainable = True
    assert trainable_paths(model) == everything
    model.trainable = False
    model.encoder.encoder[0].self_attention.trainable = True
    model.trainable = False
    assert trainable_paths(model) == []


def test_an_optimizer_goes_on_after_loading_a_model_with_a_frozen_layer(tmp_path):
    model = GPT(**SIZES)
    model.get_layer("embedding").trainable = False
    model.compile(keras.optimizers.Adam(0.01), jit_compile=False)
    for _ in range(2):
        model.optimizer.apply([tf.ones(weight.shape) for weight in model.trainable_weights], model.trainable_weights)
    loaded = saved_and_loaded(model, tmp_path)
    assert int(loaded.optimizer.iterations) == 2
    for theirs, ours in zip(loaded.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(theirs, ours)


@pytest.mark.long
@pytest.mark.parametrize("family", [GPT, RNNSeq2Seq])
@pytest.mark.usefixtures("no_collection")
def test_a_quantised_model_is_loaded_as_it_was(family, tmp_path, randomize):
    if family is GPT:
        model, inputs = randomize(GPT(**SIZES)), TOKENS
    else:
        model, inputs = randomize(RNNSeq2Seq(13, 11, units=6)), {"source": TOKENS, "target": TOKENS[:, :3]}
    full = np.array(model(inputs))
    model.quantize("int8")
    quantised = np.array(model(inputs))
    assert 0 < np.abs(quantised - full).max() < np.abs(full).max() / 4
    np.testing.assert_allclose(saved_and_loaded(model, tmp_path)(inputs), quantised, rtol=1e-5, atol=1e-5)


def test_a_model_is_quantised_after_it_is_made():
    with pytest.raises(ValueError, match=r"`model\.quantize\('int8'\)`\. Received: dtype='int8_from_float32'$"):
        GPT(**SIZES, dtype="int8_from_float32")


def test_all_layers_of_a_model_are_built_before_its_first_call(tmp_path):
    """Keras quantises no layer that is not."""
    model = saved_and_loaded(GPT(**SIZES, positions="rotary", use_query_key_norm=True), tmp_path)
    assert [layer.name for layer in model._flatten_layers() if not layer.built] == []


def test_lora_is_remembered(tmp_path, randomize):
    model = GPT(**SIZES)
    model.get_layer("layer_1").feed_forward.output_projection.enable_lora(2, lora_alpha=16)
    randomize(model)
    loaded = saved_and_loaded(model, tmp_path)
    assert trainable_paths(loaded) == trainable_paths(model)
    np.testing.assert_allclose(loaded(TOKENS), model(TOKENS), rtol=1e-6, atol=1e-6)
    found = loaded.get_layer("layer_1").feed_forward.output_projection
    assert (found.lora_rank, found.lora_alpha) == (2, 16)


@pytest.mark.parametrize(
    "head",
    [lambda encoder: Classifier(encoder, 5), MaskedLanguageModel, SentenceEmbedder],
    ids=["class", "mask", "embed"],
)
def test_lora_in_the_encoder_of_a_head_is_remembered(head, tmp_path, randomize):
    """Both the encoder's configuration and the head's hold it."""
    model = head(Encoder(13, units=12, num_heads=3, num_layers=1, max_length=8))
    for layer in (model.encoder.encoder[0].feed_forward.input_projection, model.encoder.token_embedding):
        layer.enable_lora(2, lora_alpha=16)
    randomize(model)
    loaded, inputs = saved_and_loaded(model, tmp_path), {"ids": TOKENS}
    assert loaded.get_config() == model.get_config()
    assert trainable_paths(loaded) == trainable_paths(model)
    np.testing.assert_allclose(loaded(inputs), model(inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["hidden", "logits"])
def test_a_layer_of_the_encoder_may_be_called_as_one_of_the_head(name, tmp_path):
    """Keras gives both the same path."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    vectors = keras.layers.Dense(6, name=name)(keras.layers.Embedding(13, 4, name="tokens")(ids))
    for of_encoder in (True, False):
        model = Classifier(keras.Model({"ids": ids}, vectors, name="encoder"), 5, hidden_units=7)
        layer = model.encoder.get_layer(name) if of_encoder else model.get_layer(name)
        layer.trainable = False
        loaded = saved_and_loaded(model, tmp_path)
        frozen = [weight.shape for weight in loaded.non_trainable_weights]
        assert frozen == [weight.shape for weight in layer.weights]
        layer.trainable = True


@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        (GPT, {**SIZES, "unused_ids": (2, 3)}),
        (Encoder, dict(vocabulary_size=13, units=12, num_heads=3, num_layers=2, max_length=8, num_segments=2)),
        (RNNEncoder, dict(vocabulary_size=13, units=12, num_layers=2, embedding_units=8)),
        (NgramEncoder, dict(vocabulary_size=13, units=12, longest=2, buckets=64)),
        (RNNSeq2Seq, dict(source_vocabulary_size=13, target_vocabulary_size=11, units=6, embedding_dim=4)),
        (
            Transformer,
            dict(
                source_vocabulary_size=13,
                target_vocabulary_size=11,
                units=12,
                num_heads=3,
                encoder_layers=2,
                decoder_layers=1,
                feed_forward_units=8,
                max_length=9,
                positions="learned",
            ),
        ),
    ],
)
def test_sizes_may_be_numpys(family, sizes, tmp_path):
    def of_numpy(value):
        if isinstance(value, tuple):
            return tuple(map(of_numpy, value))
        return np.int64(value) if isinstance(value, int) else value

    model = family(**{name: of_numpy(value) for name, value in sizes.items()})
    config = saved_and_loaded(model, tmp_path).get_config()
    assert {name: config[name] for name in sizes} == sizes


@pytest.mark.parametrize(
    "make",
    [
        lambda: GPT(**SIZES, tied_embeddings=False),
        lambda: Encoder(13, units=12, num_heads=3, num_layers=2, max_length=8, num_segments=2),
        lambda: Encoder(13, units=12, num_heads=3, num_layers=1, num_segments=2, positions="sinusoidal"),
        lambda: RNNEncoder(13, units=12, num_layers=2),
        lambda: RNNSeq2Seq(13, 13, units=8, tied_embeddings="none"),
        lambda: Transformer(13, 13, 12, 3, 8, 1, 1, positions="learned", max_length=9, tied_embeddings="none"),
    ],
    ids=["GPT", "Encoder", "sinusoidal", "RNNEncoder", "RNNSeq2Seq", "Transformer"],
)
def test_every_weight_starts_with_random_numbers_of_its_own(make):
    """A Keras initializer that two layers share gives both the same: positions would start equal to tokens."""
    starts = {weight.path: np.ravel(weight)[:8] for weight in make().weights}
    random = {path: start for path, start in starts.items() if np.std(start) > 0}
    for (one, first), (other, second) in itertools.combinations(random.items(), 2):
        assert np.corrcoef(first, second)[0, 1] < 0.9999, (one, other)


def test_segments_and_tokens_start_as_large_as_sinusoidal_positions():
    model = Encoder(64, units=64, num_heads=2, num_layers=1, num_segments=9, positions="sinusoidal")
    for layer in (model.token_embedding, model.segment_embedding):
        assert np.std(layer.embeddings) == pytest.approx(1.0, abs=0.2)


def test_an_untouched_model_has_its_arguments_as_configuration():
    assert "layer_states" not in GPT(**SIZES).get_config()
    assert "layer_states" not in GPT(**SIZES, trainable=False).get_config()


def test_a_look_up_and_a_product_together_have_a_dense_gradient():
    """What replicas can add up; the gradient of Keras' own layer is `IndexedSlices` of more rows than the table."""
    model = GPT(**SIZES)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(TOKENS) ** 2)
    assert isinstance(tape.gradient(loss, model.embedding.embeddings.value), tf.Tensor)


class WithTheRest(GPT):
    def __init__(self, size, **rest):
        super().__init__(size, units=12, num_heads=6, num_layers=1, context_length=16, **rest)
        self.size = size


class WithItsOwn(WithTheRest):
    def get_config(self):
        return {"size": self.size}


def test_a_constructor_that_takes_the_rest_warns_before_anything_is_trained():
    problem = r"`WithTheRest` cannot be saved: its `__init__` takes `\*\*rest`.* Name every argument.*`get_config`"
    with pytest.warns(UserWarning, match=problem) as warned:
        model = WithTheRest(13)
    assert [each.filename for each in warned] == [__file__]
    with pytest.raises(ValueError, match=problem):
        model.get_config()
    assert WithItsOwn(13).get_config() == {"size": 13}


class WithoutAnAttribute(NgramEncoder):
    def __init__(self, size, depth):
        super().__init__(size, units=4, longest=depth)
        self.size = size


def test_an_argument_that_is_no_attribute_is_named():
    message = r"^`WithoutAnAttribute` cannot be saved: every argument .* as in `self\.depth = depth`\. Missing: depth$"
    with pytest.raises(ValueError, match=message):
        WithoutAnAttribute(13, 2).get_config()
