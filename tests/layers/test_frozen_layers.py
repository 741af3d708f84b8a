"""A frozen layer keeps all its weights, also those of the layers inside it: as it is, and after a `.keras` file."""

import keras
import pytest

import zoo.layers
from zoo.layers import (
    AdditiveAttention,
    AttentionDecoder,
    AttentionPooling,
    BidirectionalEncoder,
    CausalSelfAttention,
    ConcatAttention,
    DotProductAttention,
    FeedForward,
    LearnedPositionalEmbedding,
    MaxoutReadout,
    MultiHeadAttention,
    ReversibleEmbedding,
    RotaryEmbedding,
    SelfAttention,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
)

CASES = {  # the layer, the sizes of its inputs without the batch, and how it is called
    AdditiveAttention: (dict(units=4), [(3, 6), (5, 2)], None),
    AttentionDecoder: (
        dict(units=4, attention=AdditiveAttention(3), cell="lstm", conditional=True),
        [(3, 6), (5, 2), (4,), (4,)],
        lambda layer, x, memory, hidden, cell: layer(x, initial_states=[hidden, cell], memory=memory)[0],
    ),
    AttentionPooling: (dict(units=4), [(3, 6)], None),
    BidirectionalEncoder: (dict(units=4), [(3, 6)], lambda layer, x: layer(x)[0]),
    CausalSelfAttention: (dict(units=4), [(3, 6)], None),
    ConcatAttention: (dict(units=4), [(3, 6), (5, 2)], None),
    DotProductAttention: (dict(score="general"), [(3, 6), (5, 2)], None),
    FeedForward: (dict(units=4, activation="swiglu"), [(3, 6)], None),
    LearnedPositionalEmbedding: (dict(max_length=4), [(3, 6)], None),
    MaxoutReadout: (dict(units=4), [(3, 6), (3, 2)], lambda layer, *inputs: layer(list(inputs))),
    MultiHeadAttention: (
        dict(num_heads=3, key_dim=2, use_query_key_norm=True, use_gate=True, rotary_embedding=RotaryEmbedding()),
        [(3, 6), (5, 2)],
        None,
    ),
    ReversibleEmbedding: (dict(input_dim=9, output_dim=4), [(3,)], None),
    SelfAttention: (dict(units=4, use_bias=True), [(3, 6)], None),
    TransformerDecoderLayer: (dict(num_heads=3, feed_forward_units=4), [(3, 6), (5, 2)], None),
    TransformerEncoderLayer: (dict(num_heads=3, feed_forward_units=4), [(3, 6)], None),
}


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("when", ["constructor", "before build", "after build"])
def test_no_weight_of_a_frozen_layer_is_trained(kind, when, tmp_path):
    options, sizes, call = CASES[kind]
    config = kind(**options).get_config()  # no layer inside is shared with another test
    layer = kind.from_config({**config, "trainable": when != "constructor"})
    inputs = [keras.Input(size) for size in sizes]
    if when == "before build":
        layer.trainable = False
    outputs = call(layer, *inputs) if call else layer(*inputs)
    if when == "after build":
        layer.trainable = False
    model = keras.Model(inputs, keras.layers.Dense(2, name="head")(outputs))
    assert layer.weights
    model.save(tmp_path / "model.keras")
    for each in (model, keras.models.load_model(tmp_path / "model.keras")):
        assert [weight.path for weight in each.trainable_weights] == ["head/kernel", "head/bias"]


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
def test_the_flag_of_a_layer_is_that_of_all_layers_inside(kind):
    """Also where the layer has the value already, and a layer inside has another one."""
    options, sizes, call = CASES[kind]
    layer = kind.from_config(kind(**options).get_config())
    inputs = [keras.Input(size) for size in sizes]
    call(layer, *inputs) if call else layer(*inputs)
    number = len(layer.trainable_weights)
    for value in (True, False):
        layer.trainable = value
        for inner in layer._flatten_layers(include_self=False):
            inner.trainable = not value
        layer.trainable = value
        assert len([weight for weight in layer.weights if weight.trainable]) == number * value


def test_every_layer_with_weights_is_here():
    without = {"Dropout", "RotaryEmbedding", "SequencePooling", "SimpleSelfAttention", "SinusoidalPositionalEncoding"}
    classes = {name for name in zoo.layers.__all__ if isinstance(getattr(zoo.layers, name), type)}
    assert {kind.__name__ for kind in CASES} == classes - without - {"ScoredAttention"}
