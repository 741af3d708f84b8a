import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.layers import AdditiveAttention
from zoo.layers.projection import Projection

# (contracted, output shape, input shape, the same as an equation)
CASES = [
    (1, (5, 6), (2, 3, 4), "abc,cde->abde", "de"),
    (2, (7,), (2, 3, 5, 6), "abcd,cde->abe", "e"),
    (2, (7, 8), (2, 3, 5, 6), "abcd,cdef->abef", "ef"),
    (1, (5, 6), (2, 3, 9, 4), "abcd,def->abcef", "ef"),
    (2, (7, 8, 9), (2, 3, 4, 5, 6), "abcde,defgh->abcfgh", "fgh"),
]


def pair(case, **arguments):
    contracted, output_shape, input_shape, equation, bias_axes = case
    ours = Projection(contracted, output_shape, **arguments)
    use_bias = arguments.pop("use_bias", True)
    free = len(input_shape) - contracted
    theirs = keras.layers.EinsumDense(
        equation, (*[None] * (free - 1), *output_shape), bias_axes=bias_axes if use_bias else None, **arguments
    )
    for layer in (ours, theirs):
        layer.build(input_shape)
    random = np.random.default_rng(0)
    theirs.set_weights([random.normal(size=weight.shape) for weight in theirs.weights])
    ours.set_weights(theirs.get_weights())
    return ours, theirs, random.normal(size=input_shape).astype("float32")


@pytest.mark.parametrize(
    ("case", "arguments"),
    [*((case, {}) for case in CASES), (CASES[0], {"use_bias": False}), (CASES[0], {"activation": "sigmoid"})],
    ids=lambda each: each[3] if isinstance(each, tuple) else str(each),
)
def test_computes_what_einsum_does(case, arguments):
    ours, theirs, x = pair(case, **arguments)
    assert [w.path.split("/", 1)[1] for w in ours.weights] == [w.path.split("/", 1)[1] for w in theirs.weights]
    results = []
    for layer in (ours, theirs):
        inputs = tf.Variable(x)
        with tf.GradientTape() as tape:
            output = layer(inputs)
            loss = tf.reduce_sum(output**2)
        results.append([output, *tape.gradient(loss, [inputs, *layer.weights])])
    for result, expected in zip(*results, strict=True):
        assert result.shape == expected.shape
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    assert ours.compute_output_shape(x.shape) == theirs.compute_output_shape(x.shape)


@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[4]], ids=lambda case: case[3])
def test_unknown_sizes(case):
    ours, _, x = pair(case)
    free = x.ndim - case[0]
    inputs = keras.Input((*[None] * (free - 1), *x.shape[free:]))
    output = ours(inputs)
    assert output.shape == (*[None] * free, *case[1])
    np.testing.assert_array_equal(keras.Model(inputs, output)(x), ours(x))
    graph = tf.function(ours, input_signature=[tf.TensorSpec([*[None] * free, *x.shape[free:]])], autograph=False)
    np.testing.assert_array_equal(graph(x), ours(x))


@pytest.mark.parametrize("case", [CASES[0], CASES[1]], ids=lambda case: case[3])
def test_the_width_may_be_unknown_and_must_be_that_of_the_kernel(case):
    ours, _, x = pair(case, use_bias=False)
    graph = tf.function(ours, input_signature=[tf.TensorSpec([None] * x.ndim)], autograph=False)
    np.testing.assert_array_equal(graph(x), ours(x))
    twice = np.concatenate([x, x], -1)
    whole = tf.function(ours, input_signature=[tf.TensorSpec([None, *twice.shape[1:]])], autograph=False)
    for call in (ours, whole):
        with pytest.raises(ValueError, match=rf"The last axes of the input must be \({x.shape[-case[0]]},"):
            call(twice)


@pytest.mark.long
@pytest.mark.parametrize(
    ("case", "mode"),
    [(CASES[0], "int8"), (CASES[1], "int4"), (CASES[2], "int8"), (CASES[3], "int4")],
    ids=lambda each: each[3] if isinstance(each, tuple) else each,
)
@pytest.mark.usefixtures("no_collection")
def test_quantised_as_einsum_is(case, mode):
    ours, theirs, x = pair(case)
    exact = ours(x)
    for layer in (ours, theirs):
        layer.quantize(mode)
    for weight, expected in zip(ours.weights, theirs.weights, strict=True):
        assert weight.dtype == expected.dtype
        np.testing.assert_array_equal(weight, expected)
    np.testing.assert_array_equal(ours(x), theirs(x))
    assert np.abs(ours(x) - exact).max() > 1e-3


@pytest.mark.usefixtures("no_collection")
def test_quantisation_takes_a_configuration():
    ours, theirs, x = pair(CASES[0])
    for layer in (ours, theirs):
        layer.quantize("int8", config=keras.quantizers.Int8QuantizationConfig(activation_quantizer=None))
    np.testing.assert_array_equal(ours(x), theirs(x))
    other, _, _ = pair(CASES[0])
    other.quantize("int8")
    assert np.abs(other(x) - ours(x)).max() > 1e-4


def test_the_mask_goes_with_the_output():
    ours, _, x = pair(CASES[0])
    mask = np.array([[True, True, False], [True, False, False]])
    inputs = tf.constant(x)
    inputs._keras_mask = tf.constant(mask)
    np.testing.assert_array_equal(ours(inputs)._keras_mask, mask)


class Tenths(keras.initializers.Initializer):
    """An initializer that Keras cannot find by its name: it is not registered."""

    def __call__(self, shape, dtype=None):
        return keras.ops.full(shape, 0.1, dtype)


@pytest.mark.parametrize("initializer", [Tenths(), Tenths, lambda shape, dtype=None: keras.ops.full(shape, 0.1, dtype)])
@pytest.mark.parametrize(
    "make", [lambda each: Projection(1, (5, 6), True, each, each), lambda each: AdditiveAttention(5, each)]
)
def test_an_initializer_may_be_a_class_that_is_not_registered_or_a_function(make, initializer):
    layer = make(initializer)
    layer.build((2, 3, 4)) if isinstance(layer, Projection) else layer.build((2, 3, 4), (2, 5, 4))
    assert all(np.allclose(weight, 0.1) for weight in layer.get_weights())


def test_weights_of_one_initializer_are_different():
    initializer = keras.initializers.RandomNormal()
    one, other = (Projection(1, (5,), kernel_initializer=initializer) for _ in range(2))
    for layer in (one, other):
        layer.build((2, 4))
    assert (np.array(one.kernel) != np.array(other.kernel)).any()
