"""Models with Keras' attention, exchanged for ours."""

import keras
import numpy as np
import pytest

from zoo.layers import MultiHeadAttention, TransformerDecoderLayer, swap_attention

IDS = np.array([[1, 2, 3, 4, 0], [4, 5, 6, 7, 8]])


@pytest.fixture
def theirs(randomize):
    inner = keras.Input((None, 12))
    grouped = keras.layers.GroupQueryAttention(4, 6, 2, use_gate=True, sliding_window=3)
    nested = keras.Model(inner, grouped(inner, inner), name="nested")
    ids = keras.Input((None,))
    embedded = keras.layers.Embedding(20, 12, mask_zero=True)(ids)
    hidden = keras.layers.MultiHeadAttention(3, 4, dropout=0.1, name="causal")(embedded, embedded, use_causal_mask=True)
    outputs = keras.layers.MultiHeadAttention(2, 5)(nested(keras.layers.Dense(12)(hidden)), hidden)
    return randomize(keras.Model(ids, outputs))


def attentions(model):
    return [layer for layer in model._flatten_layers() if "Attention" in type(layer).__name__]


def test_every_attention_is_ours_and_computes_the_same(theirs):
    ours = swap_attention(theirs)
    assert len(attentions(ours)) == 3
    assert all(type(layer) is MultiHeadAttention for layer in attentions(ours))
    # Keras names the inputs anew when it clones.
    assert [layer.name for layer in ours.layers[1:]] == [layer.name for layer in theirs.layers[1:]]
    # Rows of padding may attend to nothing in Keras' as well, and differ.
    real = IDS != 0
    expected = np.array(theirs(IDS))[real]
    # 2^-24 of the largest, for each of some 100 roundings on the way through three attentions.
    np.testing.assert_allclose(np.array(ours(IDS))[real], expected, rtol=0, atol=100 * 2**-24 * np.abs(expected).max())
    # The old model stays.
    ours.set_weights([weight + 1 for weight in ours.get_weights()])
    assert not any(type(layer) is MultiHeadAttention for layer in attentions(theirs))
    np.testing.assert_array_equal(np.array(theirs(IDS))[real], expected)


def test_a_file_swaps_in_one_line(theirs, tmp_path):
    theirs.save(tmp_path / "theirs.keras")
    ours = swap_attention(keras.models.load_model(tmp_path / "theirs.keras"))
    ours.save(tmp_path / "ours.keras")
    again = keras.models.load_model(tmp_path / "ours.keras")
    np.testing.assert_array_equal(again(IDS), ours(IDS))
    expected = np.array(theirs(IDS)[1])
    np.testing.assert_allclose(again(IDS)[1], expected, rtol=0, atol=100 * 2**-24 * np.abs(expected).max())


@pytest.mark.parametrize("kind", ["functional", "sequential"])
def test_what_is_compiled_is_compiled_alike(kind, arrays):
    x = arrays(x=(2, 3, 4)).x
    inputs = keras.Input((3, 4))
    hidden = keras.layers.MultiHeadAttention(2, 2)(inputs, inputs)
    model = keras.Model(inputs, hidden) if kind == "functional" else keras.Sequential([inputs, keras.layers.Dense(4)])
    assert not swap_attention(model).compiled
    model.compile(keras.optimizers.SGD(0.25, momentum=0.5), "mae", metrics=["mse"], run_eagerly=True)
    model.fit(x, x, verbose=0)
    ours = swap_attention(model)
    assert ours.compiled and ours.run_eagerly and ours.optimizer is not model.optimizer
    assert ours.optimizer.get_config() == model.optimizer.get_config()
    assert (int(ours.optimizer.iterations), int(model.optimizer.iterations)) == (0, 1)
    np.testing.assert_allclose(ours.evaluate(x, x, verbose=0), model.evaluate(x, x, verbose=0), rtol=1e-5)
    ours.fit(x, x, verbose=0)
    assert int(model.optimizer.iterations) == 1


def test_a_subclassed_model_is_refused():
    class Own(keras.Model):
        def call(self, inputs):
            return inputs

    with pytest.raises(ValueError, match=r"functional or sequential .* write `zoo\.layers\..*: model of type Own"):
        swap_attention(Own())
    with pytest.raises(ValueError, match="Received: model of type MultiHeadAttention"):
        swap_attention(keras.layers.MultiHeadAttention(2, 3))


class Biased(keras.layers.MultiHeadAttention):
    """Keras' attention with less weight on later keys, as ALiBi has it."""

    def _masked_softmax(self, scores, mask=None):
        return super()._masked_softmax(scores - keras.ops.arange(scores.shape[-1], dtype=scores.dtype), mask)


class Holding(keras.layers.Layer):
    """A custom layer that contains attention."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attention = keras.layers.MultiHeadAttention(2, 3, name="held")

    def call(self, x):
        return self.attention(x, x)


def test_only_keras_own_layers_are_exchanged_and_a_report_says_which(arrays, randomize):
    x = arrays(x=(2, 5, 6)).x
    inputs = keras.Input((5, 6))
    hidden = keras.layers.MultiHeadAttention(2, 3, name="plain")(inputs, inputs)
    inner = keras.Input((5, 6))
    nested = keras.Model(inner, keras.layers.MultiHeadAttention(3, 2, name="inner")(inner, inner), name="nested")
    hidden = Holding(name="holding")(Biased(2, 4, name="biased")(nested(hidden), hidden))
    theirs = randomize(keras.Model(inputs, hidden))
    ours, report = swap_attention(theirs, return_report=True)
    assert report.exchanged == ("plain", "nested/inner")
    assert report.left == {
        "biased": "Biased is a subclass of Keras' layer and may compute something else",
        "holding/held": "it is inside Holding, which is not a functional or sequential model",
    }
    assert type(ours.get_layer("biased")) is Biased and type(ours.get_layer("plain")) is MultiHeadAttention
    expected = np.array(theirs(x))
    np.testing.assert_allclose(ours(x), expected, rtol=0, atol=100 * 2**-24 * np.abs(expected).max())
    with pytest.warns(
        UserWarning, match=r"left 2 attention layers as they are\. biased: Biased is a subclass.*; holding"
    ):
        swap_attention(theirs)


def test_wrapped_attention_is_left(randomize):
    inputs = keras.Input((3, 5, 6))
    inner = keras.Input((5, 6))
    model = keras.Model(inner, keras.layers.MultiHeadAttention(2, 3, name="inner")(inner, inner), name="wrapped")
    theirs = keras.Model(inputs, keras.layers.TimeDistributed(model, name="each")(inputs))
    _, report = swap_attention(theirs, return_report=True)
    assert report == (
        (),
        {"each/wrapped/inner": "it is inside TimeDistributed, which is not a functional or sequential model"},
    )


def test_lora_goes_along(arrays, randomize):
    x = arrays(x=(2, 5, 6)).x
    inputs = keras.Input((5, 6))
    attention = keras.layers.MultiHeadAttention(2, 3, name="attention")
    dense = keras.layers.Dense(4, name="dense")
    theirs = keras.Model(inputs, dense(attention(inputs, inputs)))
    attention.query_dense.enable_lora(2, lora_alpha=3)
    attention.output_dense.enable_lora(1)
    dense.enable_lora(3)
    randomize(theirs)
    ours = swap_attention(theirs)
    assert [weight.shape for weight in ours.trainable_weights] == [weight.shape for weight in theirs.trainable_weights]
    expected = np.array(theirs(x))
    np.testing.assert_allclose(ours(x), expected, rtol=0, atol=100 * 2**-24 * np.abs(expected).max())


@pytest.mark.usefixtures("no_collection")
def test_a_quantised_model_is_refused():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    model.quantize("int8")
    with pytest.raises(ValueError, match=r"exchange its attention first, then quantise .* quantised layers"):
        swap_attention(model)


def test_what_is_frozen_stays_frozen():
    x = keras.Input((3, 8))
    frozen, half = (keras.layers.MultiHeadAttention(2, 4, name=name) for name in ("frozen", "half"))
    outputs = keras.layers.Dense(1)(half(frozen(x, x), x))
    theirs = keras.Model(x, outputs)
    frozen.trainable = half.query_dense.trainable = False
    ours = swap_attention(theirs)
    assert [weight.shape for weight in ours.trainable_weights] == [weight.shape for weight in theirs.trainable_weights]
    assert not ours.get_layer("frozen").trainable_weights and len(ours.get_layer("half").trainable_weights) == 6


def test_one_of_two_attentions_of_a_layer_may_be_frozen():
    """Their projections have the same names."""
    inputs, memory = keras.Input((3, 8)), keras.Input((4, 8))
    layer = TransformerDecoderLayer(2, 6, name="layer")
    theirs = keras.Model([inputs, memory], layer(inputs, memory))
    layer.self_attention.trainable = False
    layer.memory_attention.query_dense.enable_lora(2)
    ours = swap_attention(theirs)
    assert [weight.path for weight in ours.trainable_weights] == [weight.path for weight in theirs.trainable_weights]


class Unnamed(keras.layers.Layer):
    """A custom layer whose parts have automatic names."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.frozen, self.adapted, self.free = (keras.layers.Dense(units) for units in (3, 4, 5))

    def call(self, x):
        return self.free(self.adapted(self.frozen(x)))


@pytest.mark.parametrize("is_frozen", [False, True], ids=["trained", "frozen"])
def test_layers_without_names_of_their_own_keep_their_state(is_frozen):
    inputs = keras.Input((3, 8))
    layer = Unnamed(name="layer")
    theirs = keras.Model(inputs, layer(inputs))
    layer.adapted.enable_lora(2)
    layer.frozen.trainable = False
    if is_frozen:
        layer.trainable = False
        layer.free.trainable = True
    ours = swap_attention(theirs)
    copy = ours.get_layer("layer")
    assert copy.adapted.lora_rank == 2
    assert [each.trainable for each in (copy, copy.frozen, copy.free)] == [not is_frozen, False, True]
    assert [weight.shape for weight in ours.trainable_weights] == [weight.shape for weight in theirs.trainable_weights]
