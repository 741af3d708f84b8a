"""Normalisations inside the weights around them, against Keras' own and by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.serving.packed import products
from zoo.serving.packed.products import Norm, Unnormalized, normalized

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal(2, 3, (5, 6))
KERNEL, BIAS = RANDOM.normal(size=(6, 4)), RANDOM.normal(size=4)


@pytest.fixture(params=[keras.layers.LayerNormalization, keras.layers.RMSNormalization])
def layer(request):
    """A norm of random scale and shift, with an epsilon that counts."""
    layer = request.param(epsilon=0.5)
    layer.build((None, 6))
    for weight in layer.weights:
        weight.assign(RANDOM.normal(1, 0.5, weight.shape))
    return layer


def carried(norm, rows=ROWS):
    """Rows as packed layers pass them on: without their mean if the norm removes it, and with the constant."""
    rows = np.pad(rows - rows.mean(-1, keepdims=True) if norm.centered else rows, [[0, 0], [0, 1]])
    return tf.constant(rows + np.eye(7)[-1] * norm.constant, tf.float32)


def test_by_hand():
    """Of (3, -1, 4) the mean is 2 and the variance 14 / 3; with epsilon 4 / 3 the denominator is the root of 6."""
    layer = keras.layers.LayerNormalization(epsilon=4 / 3)
    layer.build((None, 3))
    norm = Norm(layer)
    np.testing.assert_allclose(norm.constant, 2)
    found = norm.reading(np.array([[1.0], [10.0], [100.0]]), np.array([7.0]))(
        normalized(tf.constant([[1.0, -3, 2, 2]]))
    )
    np.testing.assert_allclose(found, [[7 + (1 - 30 + 200) / 6**0.5]], rtol=1e-6)


@pytest.mark.parametrize("bias", [BIAS, None], ids=["bias", "no bias"])
def test_reading_is_the_norm_times_the_kernel(layer, bias):
    norm = Norm(layer)
    found = norm.reading(KERNEL, bias)(normalized(carried(norm)))
    expected = np.array(layer(ROWS)) @ KERNEL + (0 if bias is None else bias)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_written_row_is_carried_on(layer):
    norm, written = Norm(layer), RANDOM.normal(size=(5, 3))
    kernel, bias = RANDOM.normal(size=(3, 6)), RANDOM.normal(size=6)
    found = carried(norm) + norm.writing(kernel, bias)(tf.constant(written, tf.float32))
    np.testing.assert_allclose(found, carried(norm, ROWS + written @ kernel + bias), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [products.Product, products.Rescaling])
def test_the_residual_is_the_carried_norm(layer, kind, monkeypatch):
    monkeypatch.setattr(products, "_WIDE", 7 if kind is products.Product else 6)
    norm = Norm(layer)
    assert isinstance(norm.residual(), kind)
    expected = carried(norm, np.array(layer(ROWS)))
    np.testing.assert_allclose(norm.residual()(normalized(carried(norm))), expected, rtol=1e-5, atol=1e-5)


def test_outside_is_the_norm(layer):
    norm = Norm(layer)
    scale, shift = norm.outside()
    found = normalized(carried(norm)) * scale + (0 if shift is None else shift)
    np.testing.assert_allclose(found[:, :6], layer(ROWS), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found[:, 6], np.zeros(5))


def test_of_rows_without_a_norm(layer):
    norm = Norm(layer)
    rows = tf.constant(np.pad(ROWS, [[0, 0], [0, 1]], constant_values=norm.constant), tf.float32)
    found = Unnormalized(norm).reading(KERNEL, BIAS)(rows)
    np.testing.assert_allclose(found, ROWS @ KERNEL + BIAS, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(Unnormalized(norm).residual()(rows), carried(norm), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [None, np.arange(5)], ids=["no bias", "bias"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("centered", [False, True])
def test_embeddings_are_the_tables_rows_times_the_factor(layer, tied, centered, bias):
    norm = Norm(layer)
    centered = centered and norm.centered
    output = products.PackedOutput(norm, None, bias, ROWS, norm.constant / 3) if tied else None
    found = products.Embedding(ROWS, norm, centered, 3.0, output)(tf.constant([4, 0, 4, 1]))
    expected = 3 * (ROWS - ROWS.mean(axis=1, keepdims=True) if centered else ROWS)[[4, 0, 4, 1]]
    np.testing.assert_allclose(found, np.pad(expected, [[0, 0], [0, 1]], constant_values=norm.constant), rtol=1e-5)


@pytest.mark.parametrize("wide", [False, True], ids=["one part", "two parts"])
@pytest.mark.parametrize("bias", [BIAS, None], ids=["bias", "no bias"])
def test_logits_are_the_norm_times_the_kernel(layer, bias, wide):
    """Only a bias, or the shift of a norm, takes a further row of weights and a further feature in each step."""
    norm = Norm(layer)
    output = products.PackedOutput(norm, KERNEL, bias, wide=wide)
    assert output.size == (7 if bias is None and not norm.centered else 8)
    expected = np.array(layer(ROWS)) @ KERNEL + (0 if bias is None else bias)
    np.testing.assert_allclose(output.logits(normalized(carried(norm))), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("transposed", [False, True])
def test_large_and_small_products_are_the_same(transposed, monkeypatch):
    rows, kernel = tf.constant(ROWS, tf.float32), tf.constant(KERNEL.T if transposed else KERNEL, tf.float32)
    for limit in (24, 25):
        monkeypatch.setattr(products, "LARGE", limit)
        np.testing.assert_allclose(products.product(rows, kernel, transposed), ROWS @ KERNEL, rtol=1e-5, atol=1e-5)
