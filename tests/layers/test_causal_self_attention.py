"""What `CausalSelfAttention` has beyond `SelfAttention`; what they share is in test_self_attention.py."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.layers import CausalSelfAttention, SelfAttention

# B, T, D, units: all different.
SHAPE, UNITS = (3, 4, 5), 6
TOKENS = np.array([[True, True, False, False], [False, True, True, True], [False, False, False, False]])


@pytest.fixture
def make(randomize):
    def make(shape=SHAPE, **arguments):
        layer = CausalSelfAttention(UNITS, **arguments)
        layer.build(shape)
        return randomize(layer)

    return make


def test_hand_computed():
    layer = CausalSelfAttention(1)
    x = np.array([[[1.0], [2.0], [3.0]]])
    layer(x)
    layer.set_weights([np.array([[1.0]]), np.array([[np.log(2.0)]]), np.array([[12.0]])])
    context, weights = layer(x, return_attention_scores=True)
    # Token i has the odds (2^i)^j: 4 to 16 for the second, 8 to 64 to 512 for the third.
    np.testing.assert_allclose(weights, [[[1, 0, 0], [1 / 5, 4 / 5, 0], [1 / 73, 8 / 73, 64 / 73]]], rtol=1e-5)
    np.testing.assert_allclose(context, [[[12], [12 * 9 / 5], [12 * 209 / 73]]], rtol=1e-5)


@pytest.mark.parametrize("use_bias", [False, True], ids=["no bias", "bias"])
def test_layer_check(layer_check, arrays, use_bias):
    weights = {f"{name}/kernel": (5, 6) for name in ("query", "key", "value")}
    weights |= {f"{name}/bias": (6,) for name in ("query", "key", "value")} if use_bias else {}
    arguments = {"dropout": 0.1, "seed": 3, "kernel_initializer": "he_normal"}
    layer_check(
        CausalSelfAttention,
        {"units": UNITS, "use_bias": use_bias, **arguments},
        {"inputs": arrays(x=SHAPE).x, "mask": TOKENS},
        weights=weights,
        outputs=[(3, 4, 6), (3, 4, 4)],
        options={"return_attention_scores": True},
        mask_goes_on=True,
    )


@settings(max_examples=10, deadline=None)
@given(place=st.integers(1, 3), seed=st.integers(0, 9))
def test_what_stands_after_a_token_changes_nothing_at_it(arrays, randomize, place, seed):
    layer, x = CausalSelfAttention(UNITS), arrays(seed, x=SHAPE, other=SHAPE)
    layer.build(SHAPE)
    before = np.array(randomize(layer)(x.x))
    after = np.array(layer(np.concatenate([x.x[:, :place], x.other[:, place:]], axis=1)))
    np.testing.assert_array_equal(after[:, :place], before[:, :place])
    assert (np.abs(after[:, place:] - before[:, place:]).max(-1) > 1e-4).all()


def test_the_causal_mask_is_one_of_pairs(arrays, make):
    x, layer = arrays(x=SHAPE).x, make(use_bias=True)
    free = SelfAttention(UNITS, use_bias=True)
    free.build(SHAPE)
    free.set_weights(layer.get_weights())
    np.testing.assert_array_equal(layer(x), free(x, mask=np.tril(np.ones((1, 4, 4), bool))))


def test_dropout_is_for_training_and_leaves_the_weights_returned_as_they_are(arrays, make):
    x = arrays(x=(3, 40, 5)).x
    layer, plain = make(x.shape, dropout=0.25, seed=1), make(x.shape)
    for training in (None, False):
        np.testing.assert_array_equal(layer(x, training=training), plain(x))
    context, weights = layer(x, training=True, return_attention_scores=True)
    np.testing.assert_array_equal(weights, plain(x, return_attention_scores=True)[1])
    assert np.abs(context - plain(x)).max() > 0.1


def test_dropout_takes_away_weights_and_makes_the_others_larger():
    # With a value for each token that stands at a place of its own, the context shows the weights after dropout.
    layer = CausalSelfAttention(40, dropout=0.25, seed=1)
    x = np.eye(40)[None]
    layer(x)
    layer.set_weights([np.zeros((40, 40)), np.zeros((40, 40)), np.eye(40)])
    dropped = np.array(layer(x, training=True))[0]
    before = np.tril(np.ones((40, 40))) / np.arange(1, 41)[:, None]
    kept = dropped != 0
    np.testing.assert_allclose(dropped, np.where(kept, before / 0.75, 0), rtol=1e-6)
    assert 0.65 < kept.sum() / 820 < 0.85  # more than 6 standard deviations either side
    # Each call draws anew, and a layer of the same seed draws the same.
    again = np.array(layer(x, training=True))[0]
    assert (again != dropped).any()
    twin = CausalSelfAttention(40, dropout=0.25, seed=1)
    twin.build(x.shape)
    twin.set_weights(layer.get_weights())
    np.testing.assert_array_equal(twin(x, training=True)[0], dropped)
    np.testing.assert_array_equal(twin(x, training=True)[0], again)


def test_dropout_keeps_float64(arrays, make):
    x = arrays(x=SHAPE).x.astype("float64")
    layer, plain = (make(dropout=rate, dtype="float64") for rate in (0.5, 0))
    np.testing.assert_array_equal(layer(x), plain(x))
    layer = CausalSelfAttention(1, dropout=0.5, dtype="float64", seed=0)
    ones = np.ones((1, 30, 1))
    layer(ones)
    layer.set_weights([np.ones((1, 1))] * 3)
    # The token at i has a whole number of (i + 1)ths, twice.
    counts = np.array(layer(ones, training=True))[0, :, 0] * np.arange(1, 31) / 2
    assert 0 < counts.sum() < 465
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-13)


def test_the_configuration_tells_the_dropout():
    config = CausalSelfAttention(UNITS, dropout=0.25, seed=7).get_config()
    assert (config["dropout"], config["seed"]) == (0.25, 7)


def test_learns_in_a_model_with_padding(randomize):
    ids = keras.Input((None,), dtype="int32")
    embedded = keras.layers.Embedding(9, 8, mask_zero=True)(ids)
    attended = CausalSelfAttention(8, dropout=0.1)(embedded)
    model = keras.Model(ids, keras.layers.Dense(9)(attended))
    model.compile(keras.optimizers.Adam(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    tokens = np.array([[1, 2, 3, 4, 5, 0, 0], [6, 7, 8, 0, 0, 0, 0]])
    targets = np.roll(tokens, 1, axis=1) * (tokens > 0)
    targets[:, 0] = tokens[:, 0]  # the token before each
    losses = model.fit(tokens, targets, epochs=30, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("dropout", [-0.1, 1.0, None])
def test_refuses(dropout):
    message = rf"^`dropout` must be at least 0 and below 1\. Received: dropout={dropout}$"
    with pytest.raises(ValueError, match=message):
        CausalSelfAttention(UNITS, dropout=dropout)
