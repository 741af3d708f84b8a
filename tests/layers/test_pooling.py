"""From a vector for each token to one for each text."""

import re

import numpy as np
import pytest
import tensorflow as tf

from zoo.layers import AttentionPooling, SequencePooling

# B, T, D, units: all different. Padding behind and between tokens, no padding, nothing but padding.
SHAPE, UNITS = (4, 3, 5), 6
MASK = np.array([[True, True, False], [True, False, True], [True, True, True], [False, False, False]])


@pytest.fixture
def x(arrays):
    return arrays(x=SHAPE).x


@pytest.mark.parametrize(
    ("kind", "of_tokens"),
    [("mean", lambda rows: rows.mean(0)), ("max", lambda rows: rows.max(0)), ("first", lambda rows: rows[0])],
)
def test_mean_max_and_first_are_of_the_tokens(x, kind, of_tokens):
    expected = [of_tokens(rows[mask]) if mask.any() else np.zeros(5) for rows, mask in zip(x, MASK, strict=True)]
    np.testing.assert_allclose(SequencePooling(kind)(x, MASK), expected, atol=1e-6)
    np.testing.assert_allclose(SequencePooling(kind)(x), [of_tokens(rows) for rows in x], atol=1e-6)


def test_what_stands_at_padding_does_not_count(x, randomize):
    spoilt = np.where(MASK[..., None], x, np.nan).astype("float32")
    for layer in (SequencePooling("mean"), SequencePooling("max"), SequencePooling("first")):
        np.testing.assert_array_equal(layer(spoilt, MASK), layer(x, MASK))
    attention = AttentionPooling(UNITS)
    attention.build(SHAPE)
    randomize(attention)
    np.testing.assert_array_equal(attention(np.where(MASK[..., None], x, 9.0), MASK), attention(x, MASK))


@pytest.mark.parametrize("layer", [*map(SequencePooling, ("mean", "max", "first")), AttentionPooling(UNITS)])
def test_no_texts_have_no_vectors(layer):
    assert layer(np.zeros((0, 3, 5), "float32"), np.zeros((0, 3), bool)).shape == (0, 5)


@pytest.mark.parametrize("layer", [*map(SequencePooling, ("mean", "max", "first")), AttentionPooling(UNITS)])
def test_integers_are_vectors_like_floats(layer):
    x = np.array([[[1, 0, 2], [0, 1, 3]]])
    assert layer(x).dtype == "float32"
    np.testing.assert_array_equal(layer(x), layer(x.astype("float32")))


def test_attention_computes_the_equations(x, randomize):
    """Yang et al. 2016, equations 5 to 7, token by token."""
    layer = AttentionPooling(UNITS)
    layer.build(SHAPE)
    kernel, bias, v = randomize(layer).get_weights()
    expected, shares = np.zeros((4, 5)), np.zeros((4, 3))
    for b in range(4):
        odds = {t: np.exp(np.tanh(x[b, t] @ kernel + bias) @ v[:, 0]) for t in range(3) if MASK[b, t]}
        for t, odd in odds.items():
            shares[b, t] = odd / sum(odds.values())
            expected[b] += shares[b, t] * x[b, t]
    pooled, weights = layer(x, MASK, return_attention_scores=True)
    np.testing.assert_allclose(weights, shares, atol=1e-6)
    np.testing.assert_allclose(pooled, expected, atol=1e-6)


def test_scores_are_computed_in_float32_under_a_lower_precision(x, randomize):
    layer = AttentionPooling(UNITS, dtype="mixed_bfloat16")
    layer.build(SHAPE)
    randomize(layer, scale=4.0)  # so that a rounded score would change its weight by percents
    inputs = tf.cast(x, tf.bfloat16)
    hidden = np.tanh(np.array(layer.key(inputs), "float64"))  # (B, T, units), the key's product rounded to bfloat16
    odds = np.exp((hidden @ np.array(layer.score.kernel))[..., 0])  # (B, T)
    _, weights = layer(inputs, return_attention_scores=True)
    np.testing.assert_allclose(weights, odds / odds.sum(1, keepdims=True), rtol=1e-5, atol=1e-6)


def test_they_are_layers(layer_check, x):
    outputs = dict(outputs=[(4, 5)])
    for kind in ("mean", "max"):
        layer_check(SequencePooling, {"kind": kind}, {"inputs": x, "mask": MASK}, {}, **outputs)
    weights = {"key/kernel": (5, 6), "key/bias": (6,), "score/kernel": (6, 1)}
    arguments = {"units": UNITS, "kernel_initializer": "he_normal"}
    options = {"return_attention_scores": True}
    layer_check(AttentionPooling, arguments, {"inputs": x, "mask": MASK}, weights, [(4, 5), (4, 3)], options)


def test_what_they_refuse(x):
    with pytest.raises(ValueError, match="`kind` must be one of"):
        SequencePooling("sum")
    with pytest.raises(ValueError, match="`units` must be"):
        AttentionPooling(0)
    with pytest.raises(ValueError, match="expected ndim=3, found ndim=2"):
        SequencePooling()(x[0])


@pytest.mark.parametrize("layer", [*map(SequencePooling, ("mean", "max", "first")), AttentionPooling(UNITS)])
def test_a_mask_that_does_not_fit_is_refused(layer, x):
    for mask in (MASK[:, :2], MASK[:1, :2], MASK[:3], np.ones((4, 3, 3), bool)):
        message = f"`mask` must have the shape of the tokens, (4, 3). Received: mask of shape {mask.shape}"
        with pytest.raises(ValueError, match=re.escape(message)):
            layer(x, mask)
    with pytest.raises(ValueError, match="`mask` must be True, or 1, at tokens"):
        layer(x, np.where(MASK, 0.0, -1e9))
    np.testing.assert_array_equal(layer(x, MASK.astype("int32")), layer(x, MASK))
    np.testing.assert_array_equal(layer(x, MASK[:1]), layer(x, np.tile(MASK[:1], (4, 1))))


@pytest.mark.parametrize("layer", [*map(SequencePooling, ("mean", "max", "first")), AttentionPooling(UNITS)])
def test_texts_of_no_length_give_zeros(layer):
    np.testing.assert_array_equal(layer(np.zeros((2, 0, 3), "float32")), np.zeros((2, 3)))
