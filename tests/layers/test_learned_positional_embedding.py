"""What this layer has for itself; functions/test_positions.py has what all layers of positions share."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.layers.learned_positional_embedding import LearnedPositionalEmbedding


def test_hand_computed():
    embedding = LearnedPositionalEmbedding(max_length=4)
    inputs = np.array([[[1.0, 2.0]] * 3, [[3.0, 4.0]] * 3])  # B=2, T=3, D=2
    embedding(inputs)
    embedding.set_weights([np.array([[0.0, 10], [20, 30], [40, 50], [60, 70]])])
    expected = [[[1, 12], [21, 32], [41, 52]], [[3, 14], [23, 34], [43, 54]]]
    np.testing.assert_array_equal(embedding(inputs), expected)
    expected = [[[1, 12], [1, 12], [21, 32]], [[63, 74], [23, 34], [43, 54]]]
    np.testing.assert_array_equal(embedding(inputs, positions=np.array([[0, 0, 1], [3, 1, 2]])), expected)


@pytest.mark.parametrize("positions", [None, (5,), (2, 5)], ids=["counted", "shared", "rows"])
def test_layer_check(layer_check, arrays, positions):
    given = {} if positions is None else {"positions": np.arange(np.prod(positions)).reshape(positions) % 7}
    layer_check(
        LearnedPositionalEmbedding,
        {"max_length": 7, "embeddings_initializer": "glorot_normal"},
        {"inputs": arrays(x=(2, 5, 6)).x, **given},
        weights={"embeddings": (7, 6)},
        outputs=[(2, 5, 6)],
    )


def test_starts_as_an_embedding_of_keras_does():
    values = [np.array(LearnedPositionalEmbedding(100)(np.zeros((1, 100, 30)))) for _ in range(2)]
    assert 0.049 < np.abs(values).max() <= 0.05
    assert np.abs(values[0] - values[1]).max() > 0.01
    np.testing.assert_array_equal(LearnedPositionalEmbedding(4, embeddings_initializer="ones")(np.zeros((1, 3, 2))), 1)


def test_lower_precision_rounds_the_rows_alone(randomize):
    layer, inputs = LearnedPositionalEmbedding(7, dtype="mixed_bfloat16"), np.zeros((1, 5, 6))
    layer(inputs)
    randomize(layer)
    assert layer.embeddings.dtype == "float32"
    rows = tf.cast(layer.get_weights()[0][:5], layer.compute_dtype)
    for positions in (None, np.arange(5)):
        np.testing.assert_array_equal(layer(inputs, positions=positions)[0], rows)
        graph = tf.function(lambda inputs, positions=positions: layer(inputs, positions=positions))
        operations = graph.get_concrete_function(tf.TensorSpec((1, 5, 6), layer.compute_dtype)).graph.get_operations()
        assert [op.outputs[0].shape for op in operations if op.type == "Cast" and 6 in op.outputs[0].shape] == [(5, 6)]


@pytest.mark.parametrize("max_length", [1, 4])
def test_inputs_longer_than_the_table(arrays, max_length):
    x, layer = arrays(x=(2, 5, 6)).x, LearnedPositionalEmbedding(max_length)
    message = (
        r"^Inputs must be no longer than `max_length`, unless positions are given\. Received: inputs of length 5, "
        rf"max_length={max_length}$"
    )
    for inputs in (x, keras.Input((5, 6))):
        with pytest.raises(ValueError, match=message.replace("^", "").replace("$", "")):
            layer(inputs)
    with pytest.raises(ValueError, match=message):
        layer.compute_output_shape((2, 5, 6))
    # As many positions as the table has are fine, and any number of them if they are given.
    assert layer(x[:, :max_length]).shape == (2, max_length, 6)
    assert layer.compute_output_shape((None, max_length, 6)) == (None, max_length, 6)
    assert layer(x, positions=np.arange(5) % max_length).shape == (2, 5, 6)
    assert layer(keras.Input((5, 6)), positions=keras.Input((5,), dtype="int32")).shape == (None, 5, 6)
    # A length not known before run time is refused then, and not broadcast.
    unknown = tf.function(layer, input_signature=[tf.TensorSpec((None, None, 6))], autograph=False)
    assert unknown(x[:, :max_length]).shape == (2, max_length, 6)
    with pytest.raises(tf.errors.InvalidArgumentError):
        unknown(x)


def test_refuses_lengths_heads_and_other_widths():
    with pytest.raises(ValueError, match=r"^`max_length` must be a positive integer\. Received: max_length=2.5$"):
        LearnedPositionalEmbedding(2.5)
    layer = LearnedPositionalEmbedding(7)
    with pytest.raises(ValueError, match=r"expected ndim=3, found ndim=4.*\(2, 5, 3, 6\)"):
        layer(np.zeros((2, 5, 3, 6)))
    layer(np.zeros((2, 5, 6)))
    with pytest.raises(ValueError, match=r"expected axis -1 of input shape to have value 6.*\(2, 5, 1\)"):
        layer(np.zeros((2, 5, 1)))
