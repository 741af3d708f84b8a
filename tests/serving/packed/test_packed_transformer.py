"""A transformer whose decoder is packed against the model that it was made of."""

import numpy as np
import pytest
import tensorflow as tf

from zoo.layers.functions import forward_only
from zoo.models import Transformer
from zoo.serving.packed import pack

SIZES = dict(units=12, num_heads=3, feed_forward_units=10, encoder_layers=1, decoder_layers=2)
KINDS = {
    "as in the paper": {},
    "norm first, one table": dict(norm_first=True, tied_embeddings="all"),
    "norm first, learned": dict(norm_first=True, positions="learned", max_length=16, tied_embeddings="none"),
    "modern": dict(
        positions="rotary",
        norm_first=True,
        use_bias=False,
        normalization="rms",
        activation="swiglu",
    ),
    "post-norm, rotary": dict(positions="rotary", normalization="rms", tied_embeddings="none"),
}
# Rows of all lengths, one without any token.
SOURCE = np.array([[4, 5, 6, 7, 3], [9, 3, 0, 0, 0], [0, 0, 0, 0, 0], [12, 8, 3, 0, 0]], "int32")
TARGET = np.array([[2, 7, 5], [2, 8, 4], [2, 6, 11], [2, 4, 10]], "int32")


@pytest.fixture(scope="module", params=KINDS)
def model(request, randomize):
    """Of each kind one, with random weights."""
    return randomize(Transformer(13, 13, **{**SIZES, **KINDS[request.param]}))


@pytest.fixture(scope="module")
def packed(model):
    return pack(model, 16)


def stepped(model, source, hypotheses=1):
    """The logits and weights of steps, each hypothesis with tokens of its own."""
    memory, cache = model.begin(tf.constant(source))
    cache = tf.nest.map_structure(lambda each: tf.repeat(each, hypotheses, axis=1), cache)
    found = []
    for i in range(TARGET.shape[1]):
        ids = [np.roll(TARGET, number, axis=0)[: len(source), i] for number in range(hypotheses)]
        logits, cache, weights = model.step(tf.constant(np.stack(ids, 1)), tf.constant(i), memory, cache)
        found.append(np.concatenate([logits, weights], axis=-1))
    return np.stack(found)


def test_steps_of_several_hypotheses_are_the_models(model, packed):
    with forward_only(16):
        np.testing.assert_allclose(stepped(packed, SOURCE, 3), stepped(model, SOURCE, 3), atol=2e-5)


def test_steps_without_rows(packed):
    with forward_only(16):
        assert stepped(packed, SOURCE[:0]).shape == (3, 0, 1, 13 + 5)


def test_what_logits_are_made_of_is_the_models(model, packed):
    weights, bias = packed.output_weights()
    inputs = {"source": tf.constant(SOURCE), "target": tf.constant(TARGET)}
    with forward_only(16):
        logits = packed.without_logits()(inputs) @ tf.transpose(weights) + (0 if bias is None else bias)
    np.testing.assert_allclose(logits, model(inputs), atol=2e-5)


def test_attention_maps_are_the_models(model, packed):
    with forward_only(16):
        found = packed.attention_maps(tf.constant(SOURCE), tf.constant(TARGET))
        for maps, expected in zip(found, model.attention_maps(SOURCE, TARGET), strict=True):
            np.testing.assert_allclose(maps, expected, atol=1e-5)


def test_every_weight_is_stored_once(model, packed):
    """The numbers beyond the model's own are constants next to features, positions, centring and residuals."""
    sizes = [int(np.prod(weight.shape)) for weight in packed.weights]
    ours, more = sum(sizes), sum(int(np.prod(weight.shape)) for weight in model.weights)
    assert len({id(weight) for weight in packed.weights}) == len(sizes)
    assert more < ours < 1.5 * more


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_positions_reach_as_far_as_the_longest_target(positions, randomize):
    model = randomize(Transformer(13, 13, **SIZES, positions=positions, max_length=7))
    short = pack(model, 3)
    assert [3, 13] in [each.shape for each in short.variables]
    with forward_only(16):
        np.testing.assert_allclose(stepped(short, SOURCE), stepped(model, SOURCE), atol=2e-5)
    if positions == "learned":
        with pytest.raises(ValueError, match=r"A target may have 8 tokens, more than the 7 learned positions"):
            pack(model, 8)


def test_mixed_precision_is_packed_in_float32(randomize):
    model = randomize(Transformer(13, 13, **SIZES, dtype="mixed_bfloat16"))
    exact = Transformer(13, 13, **SIZES)
    exact.set_weights(model.get_weights())
    with forward_only(16):
        np.testing.assert_allclose(stepped(pack(model, 16), SOURCE), stepped(exact, SOURCE), atol=0.1)  # of the encoder
