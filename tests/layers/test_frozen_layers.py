"""A frozen layer keeps all its weights, also those of the layers inside it: as it is, and after a `.keras` file.

So do single layers inside, and what else is changed in them.
"""

import keras
import numpy as np
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
def test_no_weight_of_a_frozen_layer_is_trained(kind, tmp_path):
    """Frozen by its constructor, before it is built, or after that; three layers of one model."""
    options, sizes, call = CASES[kind]
    config = kind(**options).get_config()  # no layer inside is shared with another test
    frozen, before, after = (
        kind.from_config({**config, "name": name, "trainable": name != "frozen"})
        for name in ("frozen", "before", "after")
    )
    inputs = [keras.Input(size) for size in sizes]
    before.trainable = False
    outputs = [call(layer, *inputs) if call else layer(*inputs) for layer in (frozen, before, after)]
    after.trainable = False
    heads = [keras.layers.Dense(2, name=f"head_{number}")(output) for number, output in enumerate(outputs)]
    model = keras.Model(inputs, heads)
    assert frozen.weights and before.weights and after.weights
    model.save(tmp_path / "model.keras")
    for each in (model, keras.models.load_model(tmp_path / "model.keras")):
        paths = [f"head_{number}/{name}" for number in range(3) for name in ("kernel", "bias")]
        assert [weight.path for weight in each.trainable_weights] == paths


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


@pytest.mark.usefixtures("no_collection")
def test_what_is_changed_inside_a_layer_is_saved(tmp_path):
    """Frozen, quantised and LoRA layers inside others, one and two levels down; also in a clone."""
    inputs = [keras.Input((3, 6)), keras.Input((5, 2)), keras.Input((4,))]
    transformer, decoder = TransformerDecoderLayer(3, 4), AttentionDecoder(4, AdditiveAttention(3))
    model = keras.Model(inputs, decoder(transformer(inputs[0], inputs[1]), [inputs[2]], inputs[1])[0])
    transformer.memory_attention.key_dense.trainable = False
    decoder.attention.trainable = False
    transformer.feed_forward.input_projection.quantize("int8")
    query = transformer.self_attention.query_dense
    query.enable_lora(2, lora_alpha=3)
    query.lora_kernel_b.assign(np.ones(query.lora_kernel_b.shape))
    arrays = [np.random.default_rng(0).normal(size=(2, *each.shape[1:])).astype("float32") for each in inputs]
    model.save(tmp_path / "model.keras")
    loaded, clone = keras.models.load_model(tmp_path / "model.keras"), keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    for each in (loaded, clone):
        outputs, expected = (keras.ops.convert_to_numpy(m(arrays)) for m in (each, model))
        np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)
        found, expected = ([(weight.name, weight.shape) for weight in m.trainable_weights] for m in (each, model))
        assert found == expected
        assert each.get_layer(transformer.name).self_attention.query_dense.lora_alpha == 3
    config = transformer.get_config()
    assert TransformerDecoderLayer.from_config(config).get_config() == config  # also of a layer without weights


@pytest.mark.usefixtures("no_collection")
def test_a_frozen_layer_of_which_lora_alone_is_trained(tmp_path):
    inputs = [keras.Input((3, 6)), keras.Input((5, 2))]
    layer = TransformerDecoderLayer(3, 4, trainable=False)
    model = keras.Model(inputs, layer(*inputs))
    layer.self_attention.query_dense.trainable = True
    layer.self_attention.query_dense.enable_lora(2)
    model.save(tmp_path / "model.keras")
    for each in (model, keras.models.load_model(tmp_path / "model.keras")):
        assert [weight.name for weight in each.trainable_weights] == ["bias", "lora_kernel_a", "lora_kernel_b"]


def test_every_layer_with_weights_is_here():
    without = {"Dropout", "RotaryEmbedding", "SequencePooling", "SimpleSelfAttention", "SinusoidalPositionalEncoding"}
    classes = {name for name in zoo.layers.__all__ if isinstance(getattr(zoo.layers, name), type)}
    assert {kind.__name__ for kind in CASES} == classes - without - {"ScoredAttention"}
