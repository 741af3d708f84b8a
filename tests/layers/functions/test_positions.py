"""What all layers of positions have in common."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.layers.learned_positional_embedding import LearnedPositionalEmbedding
from zoo.layers.rotary_embedding import RotaryEmbedding
from zoo.layers.sinusoidal_positional_encoding import SinusoidalPositionalEncoding

MAKERS = {
    "sinusoidal": SinusoidalPositionalEncoding,
    "learned": lambda **kwargs: LearnedPositionalEmbedding(9, **kwargs),
    "halves": RotaryEmbedding,
    "adjacent": lambda **kwargs: RotaryEmbedding(pairs="adjacent", rotary_dim=4, **kwargs),
}
SHAPE = (2, 5, 6)  # B, T, D
ROWS = np.array([[0, 0, 0, 1, 2], [3, 8, 1, 0, 4]])  # the first as with padding on the left
MESSAGE = (
    "`positions` must be integers (T,) or (B, T) for inputs (B, T, ...). Received: positions {} of {}, inputs (2, 5, 6)"
)


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


@pytest.fixture
def x(arrays):
    return arrays(x=SHAPE).x


def test_counts_from_zero_by_default(make, x):
    layer = make()
    np.testing.assert_array_equal(layer(x), layer(x, positions=np.arange(5)))
    assert np.abs(layer(x) - x)[:, 1:].max() > 1e-3


def test_positions_may_be_of_each_row(make, x):
    layer = make()
    outputs = layer(x, positions=ROWS)
    for row in range(2):
        np.testing.assert_allclose(outputs[row : row + 1], layer(x[row : row + 1], positions=ROWS[row]), atol=1e-6)
    for shared in (ROWS[1:], np.tile(ROWS[1], (2, 1))):
        np.testing.assert_allclose(layer(x, positions=ROWS[1]), layer(x, positions=shared), atol=1e-6)
    assert np.abs(outputs - layer(x)).max() > 1e-3


def test_any_integers_are_positions(x):
    layer = SinusoidalPositionalEncoding()
    expected = layer(x, positions=ROWS[1])
    for positions in (ROWS[1].tolist(), ROWS[1].astype("uint8"), ROWS[1].astype("int32")):
        np.testing.assert_array_equal(layer(x, positions=positions), expected)


@pytest.mark.parametrize("compiled", [False, True], ids=["graph", "XLA"])
def test_the_graph_computes_the_same_for_unknown_sizes(make, x, compiled):
    layer = make(dtype="float32" if compiled else "mixed_bfloat16")

    given = [] if compiled else [tf.constant(ROWS)]
    specs = [tf.TensorSpec((None, None, 6)), *(tf.TensorSpec((None, None), each.dtype) for each in given)]

    @tf.function(jit_compile=compiled, input_signature=specs, autograph=False)
    def call(inputs, *positions):
        return layer(inputs, *positions)

    result, expected = call(x, *given), layer(x, *given)
    assert result.dtype == expected.dtype == layer.compute_dtype
    # XLA multiplies and adds in one rounding.
    tolerance = 1e-6 if compiled else 2**-6
    np.testing.assert_allclose(tf.cast(result, "float64"), tf.cast(expected, "float64"), rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("inputs", "positions"), [(SHAPE, (None, None)), ((None, None, 6), ROWS.shape)], ids=["inputs", "positions"]
)
def test_the_graph_may_know_the_sizes_of_one_alone(x, inputs, positions):
    layer = SinusoidalPositionalEncoding()
    call = tf.function(
        layer.__call__, input_signature=[tf.TensorSpec(inputs), tf.TensorSpec(positions, tf.int64)], autograph=False
    )
    np.testing.assert_allclose(call(x, ROWS), layer(x, positions=ROWS), atol=1e-6)


def test_a_mask_passes_through(make):
    tokens = np.array([[0, 0, 3, 4], [1, 0, 2, 8], [5, 6, 7, 0]])
    embedding = keras.layers.Embedding(9, 6, mask_zero=True)
    layer = make()
    model = keras.Sequential([embedding, layer, keras.layers.GlobalAveragePooling1D()])
    outputs = np.array(layer(np.array(embedding(tokens))))
    means = [row[real].mean(axis=0) for row, real in zip(outputs, tokens != 0, strict=True)]
    np.testing.assert_allclose(model(tokens), means, atol=1e-6)
    positions = np.maximum(np.cumsum(tokens != 0, axis=1) - 1, 0)
    np.testing.assert_array_equal(layer(embedding(tokens), positions=positions)._keras_mask, tokens != 0)


@pytest.mark.parametrize("shape", [(), (4,), (1,), (2, 1), (3, 5), (5, 1), (2, 5, 1)], ids=str)
def test_positions_that_do_not_fit(x, shape):
    with pytest.raises(ValueError, match=re.escape(MESSAGE.format(shape, "int64"))):
        SinusoidalPositionalEncoding()(x, positions=np.zeros(shape, "int64"))


@pytest.mark.parametrize(("dtype", "name"), [("float64", "float32"), ("bool", "bool")], ids=["float", "bool"])
def test_positions_that_are_not_integers(x, dtype, name):
    with pytest.raises(ValueError, match=re.escape(MESSAGE.format((5,), name))):
        SinusoidalPositionalEncoding()(x, positions=np.ones(5, dtype))


def test_every_layer_checks_positions_and_neither_length_nor_batch_grow_with_them(make, x):
    for inputs, positions in ((x[:, :1], np.arange(5)), (x[:1], ROWS)):
        with pytest.raises(ValueError, match=r"`positions` must be.*Received: positions .*, inputs \("):
            make()(inputs, positions=positions)


def test_too_few_axes(make):
    with pytest.raises(ValueError, match=r"expected (min_)?ndim=3, found ndim=2.*\(5, 6\)"):
        make()(np.zeros((5, 6)))


def test_unknown_width(make):
    with pytest.raises(ValueError, match=r"width.*Received: (inputs of shape \(None, None, None\)|D=None)"):
        make()(keras.Input((None, None)))
