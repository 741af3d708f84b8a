"""Models with Keras' attention, exchanged for ours."""

import keras
import numpy as np
import pytest

from zoo.layers import MultiHeadAttention, swap_attention

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


def test_the_old_model_stays(theirs):
    before = theirs.get_weights()
    ours = swap_attention(theirs)
    ours.set_weights([weight + 1 for weight in before])
    assert not any(type(layer) is MultiHeadAttention for layer in attentions(theirs))
    for weight, old in zip(theirs.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)


def test_a_file_swaps_in_one_line(theirs, tmp_path):
    theirs.save(tmp_path / "theirs.keras")
    ours = swap_attention(keras.models.load_model(tmp_path / "theirs.keras"))
    ours.save(tmp_path / "ours.keras")
    again = keras.models.load_model(tmp_path / "ours.keras")
    np.testing.assert_array_equal(again(IDS), ours(IDS))
    expected = np.array(theirs(IDS)[1])
    np.testing.assert_allclose(again(IDS)[1], expected, rtol=0, atol=100 * 2**-24 * np.abs(expected).max())


def test_a_sequential_model_swaps_too():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    np.testing.assert_array_equal(swap_attention(model)(np.ones((2, 4))), model(np.ones((2, 4))))


@pytest.mark.parametrize("kind", ["functional", "sequential"])
def test_what_is_compiled_is_compiled_alike(kind, arrays):
    x = arrays(x=(2, 3, 4)).x
    inputs = keras.Input((3, 4))
    hidden = keras.layers.MultiHeadAttention(2, 2)(inputs, inputs)
    model = keras.Model(inputs, hidden) if kind == "functional" else keras.Sequential([inputs, keras.layers.Dense(4)])
    assert not swap_attention(model).compiled
    model.compile(keras.optimizers.SGD(0.25, momentum=0.5), "mae", metrics=["mse"])
    model.fit(x, x, verbose=0)
    ours = swap_attention(model)
    assert ours.compiled and ours.optimizer is not model.optimizer
    assert ours.optimizer.get_config() == model.optimizer.get_config()
    assert (int(ours.optimizer.iterations), int(model.optimizer.iterations)) == (0, 1)
    np.testing.assert_allclose(ours.evaluate(x, x, verbose=0), model.evaluate(x, x, verbose=0), rtol=1e-5)
    ours.fit(x, x, verbose=0)
    assert int(model.optimizer.iterations) == 1


def test_a_subclassed_model_is_refused():
    class Own(keras.Model):
        def call(self, inputs):
            return inputs

    with pytest.raises(ValueError, match=r"only supported for Sequential models or Functional models.*Own"):
        swap_attention(Own())
