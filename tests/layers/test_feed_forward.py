import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.layers import FeedForward

# B, T, D, units: all different.
SHAPE, UNITS = (2, 3, 5), 7
ACTIVATIONS = ["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"]
GATED = ["swiglu", "geglu"]


@pytest.fixture
def make(randomize):
    def make(activation="relu", units=UNITS, shape=SHAPE, **arguments):
        layer = FeedForward(units, activation, **arguments)
        layer.build(shape)
        return randomize(layer)

    return make


@pytest.mark.parametrize(
    ("activation", "use_bias", "path"),
    [*((activation, True, "eager") for activation in ACTIVATIONS), ("swiglu", False, "eager"), ("geglu", True, "XLA")],
)
def test_computes_what_the_papers_say(arrays, make, called, numpy_transformer, activation, use_bias, path):
    x, layer = arrays(x=SHAPE).x, make(activation, use_bias=use_bias)
    expected = [numpy_transformer.feed_forward(row, numpy_transformer.weights(layer), activation) for row in x]
    np.testing.assert_allclose(called(path, layer, x), expected, atol=1e-5)


@pytest.mark.parametrize("activation", ["gelu_tanh", "swiglu"])
@pytest.mark.parametrize(
    # Keras on TensorFlow rounds the root in gelu to float32.
    ("policy", "tolerance"),
    [("float64", 1e-8), ("mixed_bfloat16", 2**-4)],
)
def test_in_other_precisions(arrays, make, numpy_transformer, activation, policy, tolerance):
    layer = make(activation, dtype=policy)
    x = tf.cast(arrays(x=SHAPE).x, layer.compute_dtype)
    outputs = layer(x)
    assert outputs.dtype == layer.compute_dtype
    weights = numpy_transformer.weights(layer)
    expected = [numpy_transformer.feed_forward(row, weights, activation) for row in np.array(tf.cast(x, "float64"))]
    np.testing.assert_allclose(tf.cast(outputs, "float64"), expected, atol=tolerance * np.abs(expected).max())


def test_hand_computed():
    x = np.array([[[1.0, -2.0]]])  # B=1, T=1, D=2
    first, first_bias = np.array([[1.0, 0, 2], [0, 1, 1]]), np.array([3.0, 0, 1])  # [4, -2, 1] before the activation
    last, last_bias = np.array([[1.0, 0], [10, 0], [0, 5]]), np.array([0.5, 0])
    layer = FeedForward(3)
    layer(x)
    layer.set_weights([first, first_bias, last, last_bias])
    np.testing.assert_allclose(layer(x), [[[4.5, 5]]])
    # Gates of [1, 7, -2]: silu(4) and -2 silu(1), and silu(-2) seven times.
    layer = FeedForward(3, "swiglu")
    layer(x)
    gate, gate_bias = np.array([[0.0, 1, 1], [0, -3, 1]]), np.array([1.0, 0, -1])
    layer.set_weights([first, first_bias, gate, gate_bias, last, last_bias])
    silu = {n: n / (1 + np.exp(-n)) for n in (4, -2, 1)}
    np.testing.assert_allclose(layer(x), [[[silu[4] + 70 * silu[-2] + 0.5, -10 * silu[1]]]], rtol=1e-6)


@pytest.mark.parametrize(("activation", "use_bias"), [("gelu", False), ("geglu", True)])
def test_layer_check(layer_check, arrays, activation, use_bias):
    shapes = {"input": (5, 7), **({"gate": (5, 7)} if activation in GATED else {}), "output": (7, 5)}
    weights = {f"{name}/kernel": shape for name, shape in shapes.items()}
    weights |= {f"{name}/bias": shape[1:] for name, shape in shapes.items()} if use_bias else {}
    layer_check(
        FeedForward,
        {
            "units": UNITS,
            "activation": activation,
            "dropout": 0.1,
            "use_bias": use_bias,
            "kernel_initializer": "he_normal",
            "seed": 3,
        },
        {"inputs": arrays(x=SHAPE).x},
        weights=weights,
        outputs=[SHAPE],
    )


@keras.saving.register_keras_serializable(package="tests")
def squared_relu(x):
    return keras.ops.square(keras.ops.relu(x))


@pytest.mark.parametrize("activation", ["sigmoid", keras.ops.tanh, squared_relu, keras.activations.elu])
def test_takes_any_activation_of_keras_and_functions(arrays, make, activation):
    layer, x = make(activation=activation), arrays(x=(2, 3, 5)).x
    function = keras.activations.get(activation)
    expected = layer.output_projection(function(layer.input_projection(x)))
    np.testing.assert_allclose(layer(x), expected, atol=1e-6)
    if activation is not keras.ops.tanh:  # which Keras does not serialise
        again = FeedForward.from_config(json.loads(json.dumps(layer.get_config())))
        assert again.activation == layer.activation


def test_each_kernel_is_drawn_for_itself_as_told():
    layer = FeedForward(5, "swiglu", kernel_initializer=keras.initializers.RandomUniform(7, 8))
    layer.build(SHAPE)
    kernels = [np.array(weight) for weight in layer.weights if weight.name == "kernel"]
    assert all(((kernel >= 7) & (kernel <= 8)).all() for kernel in kernels)
    assert len({kernel.tobytes() for kernel in kernels}) == 3


@pytest.mark.parametrize("activation", ["swiglu"])
def test_dropout_falls_on_the_features_in_between_in_training_only(arrays, make, activation):
    x = arrays(x=(2, 20, 40)).x
    layer, plain = (make(activation, 40, x.shape, use_bias=False, dropout=rate, seed=1) for rate in (0.25, 0))
    # What comes out is what is in between.
    for each in (layer, plain):
        each.output_projection.kernel.assign(np.eye(40))
    hidden = np.array(plain(x))
    np.testing.assert_array_equal(plain(x, training=True), hidden)
    for training in (None, False):
        np.testing.assert_array_equal(layer(x, training=training), hidden)
    dropped = np.array(layer(x, training=True))
    kept = dropped != 0
    np.testing.assert_allclose(dropped, np.where(kept, hidden / 0.75, 0), rtol=1e-6)
    assert 0.68 < kept.mean() < 0.82  # of 1600, more than 6 standard deviations either side
    # Each call draws anew, and a layer of the same seed draws the same.
    assert (np.array(layer(x, training=True)) != dropped).any()
    twin = make(activation, 40, x.shape, use_bias=False, dropout=0.25, seed=1)
    twin.set_weights(layer.get_weights())
    np.testing.assert_array_equal(twin(x, training=True), dropped)


def test_a_mask_goes_on(make):
    embedded = keras.layers.Embedding(6, 5, mask_zero=True)(np.array([[3, 4, 0], [1, 2, 3]]))
    np.testing.assert_array_equal(make()(embedded)._keras_mask, [[True, True, False], [True, True, True]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"units": 0}, r"^`units` must be a positive integer\. Received: units=0$"),
        (
            {"units": 2, "activation": "gelu_fast"},
            r"^`activation` must be one of 'gelu', 'gelu_tanh', 'silu', 'swiglu', 'geglu', a name of "
            r"`keras\.activations`, .* or a function\. Received: activation='gelu_fast'$",
        ),
        ({"units": 2, "dropout": 1}, r"^`dropout` must be at least 0 and below 1\. Received: dropout=1$"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        FeedForward(**arguments)
