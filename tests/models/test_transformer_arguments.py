"""The arguments of `Transformer` that Marian's translators need."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.layers import SinusoidalPositionalEncoding
from zoo.models import Transformer
from zoo.serving.packed import pack, unsupported

SOURCE, TARGET, D = 11, 9, 6
INPUTS = {"source": np.array([[4, 5, 3, 0], [7, 10, 8, 3]]), "target": np.array([[2, 5, 8], [2, 4, 0]])}
SMALL = {"units": D, "num_heads": 2, "feed_forward_units": 10, "encoder_layers": 1, "decoder_layers": 2}


def make(seed=3, **arguments):
    """A small model whose weights are random, biases included."""
    model = Transformer(SOURCE, TARGET, **SMALL, **arguments)
    random = np.random.default_rng(seed)
    model.set_weights([random.normal(size=w.shape, scale=0.5) for w in model.get_weights()])
    return model


@pytest.fixture(scope="module", params=["target", "none"])
def marian(request):
    return make(
        tied_embeddings=request.param,
        use_output_bias=True,
        unused_ids=[0, 6],
        scale_embeddings=False,
        position_pairs="halves",
        epsilon=0.2,
        activation="silu",
    )


def test_sines_stand_before_cosines():
    """With the width 5 there are three frequencies: 1, 1/100^(2/5) and 1/100^(4/5), the last without a cosine."""
    encoding = SinusoidalPositionalEncoding(max_wavelength=100.0, pairs="halves")(np.zeros((1, 3, 5)))
    speeds = [1.0, 100**-0.4, 100**-0.8]
    expected = [
        [*(np.sin(speed * t) for speed in speeds), *(np.cos(speed * t) for speed in speeds[:2])] for t in range(3)
    ]
    np.testing.assert_allclose(encoding[0], expected, atol=1e-6)


def test_positions_of_a_model_are_in_halves():
    for pairs in ("adjacent", "halves"):
        model = make(position_pairs=pairs)
        assert (model.source_positions.pairs, model.target_positions.pairs) == (pairs, pairs)


def test_the_bias_is_added_to_logits_of_tied_embeddings():
    with_bias, without = make(use_output_bias=True), make()
    bias = np.arange(TARGET) / 7
    for theirs in without.weights:
        next(weight for weight in with_bias.weights if weight.path == theirs.path).assign(theirs)
    with_bias.output_bias.bias.assign(bias)
    np.testing.assert_allclose(with_bias(INPUTS), without(INPUTS) + bias, atol=1e-5)


def test_logits_of_untied_embeddings_may_have_no_bias():
    model = make(tied_embeddings="none", use_output_bias=False)
    assert model.output_weights()[1] is None
    hidden = model.without_logits()(INPUTS)
    np.testing.assert_allclose(model(INPUTS), hidden @ model.output_layer.kernel, atol=1e-5)


def test_unused_ids_are_never_likely(marian):
    logits = marian(INPUTS).numpy()
    assert (logits[..., [0, 6]] < -1e8).all()
    assert (np.abs(np.delete(logits, [0, 6], axis=-1)) < 100).all()


def test_embeddings_may_stay_as_they_are():
    scaled, plain = make(tied_embeddings="none"), make(tied_embeddings="none", scale_embeddings=False)
    for embedding in (plain.source_embedding, plain.target_embedding):
        embedding.embeddings.assign(embedding.embeddings * D**0.5)
    np.testing.assert_allclose(plain(INPUTS), scaled(INPUTS), atol=1e-5)


def test_epsilon_reaches_every_normalisation():
    model = make(epsilon=0.2, norm_first=True)
    norms = [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.LayerNormalization)]
    assert len(norms) == 2 + 2 * 3 + 2
    assert {norm.epsilon for norm in norms} == {0.2}


def test_the_last_product_gives_the_logits(marian):
    weights, bias = marian.output_weights()
    logits = tf.einsum("btd,vd->btv", marian.without_logits()(INPUTS), weights) + bias
    np.testing.assert_allclose(logits, marian(INPUTS), rtol=1e-5, atol=1e-4)


def test_steps_and_the_packed_form_give_the_logits_of_the_call(marian):
    assert unsupported(marian) is None
    whole = marian(INPUTS).numpy()
    for form in (marian, pack(marian, 5)):
        memory, cache = form.begin(tf.constant(INPUTS["source"]))
        for position in range(3):
            tokens = tf.constant(INPUTS["target"][:, position : position + 1])
            logits, cache, _ = form.step(tokens, tf.constant(position), memory, cache)
            np.testing.assert_allclose(logits[:, 0], whole[:, position], rtol=1e-4, atol=1e-4)


def test_the_config_gives_the_same_model_again(marian):
    again = Transformer.from_config(marian.get_config())
    again.set_weights(marian.get_weights())
    np.testing.assert_array_equal(again(INPUTS), marian(INPUTS))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"position_pairs": "thirds"}, "`position_pairs` must be one of 'adjacent', 'halves'"),
        ({"unused_ids": [TARGET]}, "`unused_ids` must be integers from 0 to 8"),
        ({"epsilon": -1.0}, "`epsilon` must be a positive number"),
    ],
)
def test_arguments_out_of_their_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Transformer(SOURCE, TARGET, **SMALL, **arguments)
