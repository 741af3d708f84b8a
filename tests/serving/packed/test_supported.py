"""Every option of every layer and family: its packed form gives the model's own numbers, or is refused.

Options follow from the constructors' signatures: a new argument fails here until it has a value to be tried with.
"""

import inspect
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo import layers
from zoo.layers.functions import forward_only
from zoo.models import GPT, Classifier, Encoder, MaskedLanguageModel, RNNEncoder, SentenceEmbedder, Transformer
from zoo.serving.packed import layers as packed_layers
from zoo.serving.packed import pack, unsupported
from zoo.serving.packed.layers import ACTIVATIONS, PackedLayer
from zoo.serving.packed.products import Norm, Unnormalized

# Without effect after training, tried together.
TRAINING = dict.fromkeys(("dropout", "attention_dropout", "feed_forward_dropout"), 0.2)
TRAINING |= dict.fromkeys(("kernel_regularizer", "bias_regularizer", "activity_regularizer"), "l2")
TRAINING |= dict.fromkeys(("kernel_constraint", "bias_constraint"), "non_neg")
TRAINING |= {"kernel_initializer": "he_normal", "bias_initializer": "ones", "seed": 3}
# Of every other argument values that are not the default.
OF_BOTH_LAYERS = {
    "num_heads": [2, 6],
    "feed_forward_units": [7],
    "activation": ["swiglu", "tanh"],  # all are tried with FeedForward
    "normalization": ["rms"],
    "norm_first": [True],
    "use_bias": [False],
    "key_dim": [6],
    "num_key_value_heads": [1],
    "rotary_embedding": [layers.RotaryEmbedding()],
    "sliding_window": [2],
    "flash_attention": [True],
    "epsilon": [0.3],
    "use_qkv_bias": [False],
    "use_query_key_norm": [True],
    "score_scale": [0.7],
    "parallel_residual": [True],
}
SCALING = {"rope_type": "linear", "factor": 3.0}
OF_A_FAMILY = {
    "units": [24],
    "num_heads": [6],
    "feed_forward_units": [7],
    "activation": ["swiglu"],
    "normalization": ["rms"],
    "use_bias": [False],
    "epsilon": [0.3],
    "unused_ids": [(0, 4)],
}
OPTIONS = {
    layers.TransformerDecoderLayer: {**OF_BOTH_LAYERS, "cross_attention": [False]},
    layers.TransformerEncoderLayer: OF_BOTH_LAYERS,
    layers.MultiHeadAttention: {
        "num_heads": [2],
        "key_dim": [6],
        "value_dim": [5],
        "use_bias": [False],
        "output_shape": [12],
        "attention_axes": [1],
        "sliding_window": [2],
        "flash_attention": [True, False],
        "use_gate": [True],
        "num_key_value_heads": [1],
        "rotary_embedding": [layers.RotaryEmbedding(pairs="adjacent", max_wavelength=50.0)],
        "use_qkv_bias": [False],
        "use_query_key_norm": [True],
        "norm_epsilon": [0.3],
        "score_scale": [0.7],
    },
    layers.RotaryEmbedding: {"max_wavelength": [20.0], "pairs": ["adjacent"], "rotary_dim": [2], "scaling": [SCALING]},
    layers.FeedForward: {"units": [5], "activation": [*ACTIVATIONS, "tanh", keras.ops.relu6], "use_bias": [False]},
    GPT: {
        **OF_A_FAMILY,
        "vocabulary_size": [11],
        "num_layers": [2],
        "context_length": [5, 40],
        "num_key_value_heads": [1],
        "positions": ["rotary"],
        "tied_embeddings": [False],
        "key_dim": [6],
        "use_qkv_bias": [False],
        "use_query_key_norm": [True],
        "score_scale": [0.7],
        "sliding_window": [2],
        "max_wavelength": [20.0],
        "rotary_dim": [2],
        "rotary_scaling": [SCALING],
        "parallel_residual": [True],
    },
    Transformer: {
        **OF_A_FAMILY,
        "source_vocabulary_size": [11],
        "target_vocabulary_size": [11],
        "encoder_layers": [2],
        "decoder_layers": [2],
        "norm_first": [True],
        "positions": ["learned", "rotary"],
        "max_length": [17],
        "tied_embeddings": ["none", "all"],
        "use_output_bias": [True],
        "scale_embeddings": [False],
        "position_pairs": ["halves"],
    },
    Encoder: {
        **{name: values for name, values in OF_A_FAMILY.items() if name != "unused_ids"},
        "vocabulary_size": [11],
        "num_layers": [2],
        "max_length": [7],
        "num_segments": [2],
        "norm_first": [True],
        "positions": ["sinusoidal", "rotary"],
    },
    Classifier: {
        "num_classes": [4],
        "pooling": ["first", "max", "attention"],
        "hidden_units": [5],
        "activation": ["gelu"],
        "multi_label": [True],
    },
    SentenceEmbedder: {"pooling": ["first", "max", "attention"], "normalize": [False], "embedding_units": [5]},
    MaskedLanguageModel: {"activation": ["tanh"], "epsilon": [0.3], "unused_ids": [(0, 4)]},
    layers.SequencePooling: {"kind": ["first", "max"]},
}
# Options that others need.
WITH = {"parallel_residual": {"norm_first": True, "cross_attention": False}}
REFUSED = {"value_dim", "output_shape", "attention_axes", "use_gate"}
# Those that attention to a source does not know.
ALSO_ALONE = {"num_key_value_heads", "rotary_embedding", "sliding_window", "use_query_key_norm"}
FAMILIES = {
    GPT: dict(vocabulary_size=13, units=12, num_heads=3, num_layers=1, context_length=16),
    Transformer: dict(
        source_vocabulary_size=13,
        target_vocabulary_size=13,
        units=12,
        num_heads=3,
        feed_forward_units=10,
        encoder_layers=1,
        decoder_layers=1,
        max_length=16,
    ),
}
SOURCE = np.array([[4, 5, 6, 7, 3], [9, 3, 0, 0, 0], [0, 0, 0, 0, 0]], "int32")
TOKENS = np.array([[7], [8], [6]], "int32")


def arguments(kind):
    """The named arguments of a constructor, those for its parent included."""
    parameters = [*inspect.signature(kind.__init__).parameters.values()]
    if any(each.kind == each.VAR_POSITIONAL for each in parameters):
        parameters = [*inspect.signature(kind.__mro__[1].__init__).parameters.values(), *parameters]
    named = (each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD))
    return [name for name in dict.fromkeys(named) if name != "self"]


def cases(*classes):
    """Each option of classes, as `(class, {name: value})`, and all those of training together."""
    for kind in classes:
        for name, values in OPTIONS[kind].items():
            for value in values:
                shown = getattr(value, "__name__", value)  # a function's address differs from process to process
                needed = {} if kind in FAMILIES else WITH.get(name, {})
                needed = {each: value for each, value in needed.items() if each in arguments(kind)}
                yield pytest.param(kind, {name: value, **needed}, id=f"{kind.__name__} {name} {shown}")
        if training := {name: TRAINING[name] for name in arguments(kind) if name in TRAINING}:
            yield pytest.param(kind, training, id=f"{kind.__name__} training")


@pytest.fixture
def changed(monkeypatch):
    """A function that makes a class build its objects with other values of some arguments, wherever it is built."""

    def change(kind, option):
        init, names = kind.__init__, arguments(kind)

        def with_option(self, *args, **kwargs):
            init(self, **{**dict(zip(names, args, strict=False)), **kwargs, **option})

        with_option.__signature__ = inspect.signature(init)
        monkeypatch.setattr(kind, "__init__", with_option)

    return change


@pytest.mark.parametrize("kind", OPTIONS, ids=lambda kind: kind.__name__)
def test_every_argument_is_tried(kind):
    missing = {*arguments(kind)} - {*OPTIONS[kind], *TRAINING, "dtype", "name", "trainable", "encoder"}
    assert not missing, f"Decide in zoo/serving/packed/supported.py whether these are packed: {missing}"


def of_packed(layer, inputs, memory):
    """A packed layer's outputs of `(B, T, D)`: all tokens at once, and the last as a step after the others."""
    norm = Norm(layer.self_attention_norm)
    packed = PackedLayer(layer, None if layer.norm_first else Unnormalized(norm))
    batch, length, width = inputs.shape
    rows = norm.part(inputs) if layer.norm_first else np.pad(inputs, [(0, 0), (0, 0), (0, 1)])
    rows = tf.constant(rows + norm.constant * np.eye(width + 1)[-1], tf.float32)
    attention, source = packed.self_attention[0], None
    if memory is not None:  # keys and values (B, 1, H, S, d) of each part
        heads = [part.heads for part in packed.cross_attention]
        source = [*zip(*(tf.split(each[:, None], heads, 2) for each in layer.prepare(memory)), strict=True)]
    source = source, tf.zeros([batch, 1, 1, 1, 1])

    def outputs(rows):
        """Without the constant; of a post-norm layer also scaled and shifted, which the next layer would do."""
        if not layer.norm_first:
            scale, shift = packed.last.outside()
            rows = rows * scale + (0 if shift is None else shift)
        return tf.reshape(rows[:, :-1], [batch, -1, width])

    def prefill(length):
        rotations = attention.rotations(tf.broadcast_to(tf.range(length), [batch, length]))
        flat = tf.reshape(rows[:, :length], [-1, width + 1])
        return packed.prefill(flat, [batch, length], rotations, None, *source)[:2]

    rotations = attention.rotations(tf.fill([batch, 1], length - 1))
    last = packed.decode_step(rows[:, -1], 1, rotations, prefill(length - 1)[1], None, *source)[0]
    return outputs(prefill(length)[0]), outputs(last)


@pytest.mark.parametrize(
    ("kind", "option", "to_a_source", "parts"),
    [
        pytest.param(*case.values, to_a_source, parts, id=f"{case.id}{'' if to_a_source else ' alone'} in {parts}")
        for case in cases(
            layers.TransformerDecoderLayer, layers.MultiHeadAttention, layers.RotaryEmbedding, layers.FeedForward
        )
        for to_a_source in ([True, False] if ALSO_ALONE & {*case.values[1]} else [True])
        for parts in ([1, 2] if case.values[0] is layers.TransformerDecoderLayer else [1])
    ],
)
def test_a_decoder_layer(kind, option, to_a_source, parts, changed, randomize, arrays, monkeypatch):
    """In one part with an odd number of heads; and the layer's own options also in two parts.

    Parts divide heads and inner units. How the layers inside turn a head or which function an inner unit has, is the
    same in each. Of two parts, an odd number of heads, as of keys and values here, and of inner units, stays in one.
    """
    monkeypatch.setattr(packed_layers, "WIDE", 1 if parts == 2 else math.inf)
    changed(kind, option)
    rotary = {"rotary_embedding": layers.RotaryEmbedding()} if kind is layers.RotaryEmbedding else {}
    alone = {} if to_a_source else {"cross_attention": False}
    layer = layers.TransformerDecoderLayer({1: 3, 2: 2}[parts], 10, **alone, **rotary)
    data = arrays(inputs=(2, 4, 12), memory=(2, 5, 8))
    memory = data.memory if layer.cross_attention else None
    layer.build(data.inputs.shape, None if memory is None else memory.shape)
    randomize(layer)
    reason, name = unsupported(layer), next(iter(option))
    source = layer.memory_attention if layer.cross_attention else None
    unknown_activation = layer.feed_forward.activation not in ACTIVATIONS
    unknown_to_source = source and any(getattr(source, each) for each in ALSO_ALONE)
    assert bool(reason) == bool(name in REFUSED or unknown_activation or unknown_to_source), reason
    if reason:
        assert name in reason
        return
    expected = layer(data.inputs, memory).numpy()
    if layer.norm_first:
        expected -= expected.mean(-1, keepdims=True)  # which the next norm would do
    tolerance = 1e-5 * np.abs(expected).max()
    for found, wanted in zip(of_packed(layer, data.inputs, memory), (expected, expected[:, -1:]), strict=True):
        np.testing.assert_allclose(found, wanted, atol=tolerance)


def step(model, beginning=SOURCE):
    """The logits of the first step after a source or a prompt."""
    with forward_only(16):
        memory, cache = model.begin(tf.constant(beginning))
        return model.step(tf.constant(TOKENS), tf.constant(0), memory, cache)[0].numpy()


@pytest.mark.parametrize(("kind", "option"), cases(GPT, Transformer))
def test_a_family(kind, option, randomize):
    model = randomize(kind(**{**FAMILIES[kind], **option}))
    packed = pack(model, 16)
    assert unsupported(model) is None
    assert packed is not model
    expected = step(model)
    np.testing.assert_allclose(step(packed), expected, atol=1e-5 * np.abs(expected[expected > -1e6]).max())


OF_AN_ENCODER = dict(vocabulary_size=13, units=12, num_heads=3, num_layers=1, max_length=16, positions="rotary")
OF_ALL_LAYERS = {"normalization", "norm_first", "epsilon"}
NOT_OF_AN_ENCODER = {"num_key_value_heads", "sliding_window", "parallel_residual"}


def assert_packed_alike(model):
    inputs = {name: SOURCE % 11 if name == "ids" else SOURCE % 2 for name in model.input}
    inputs = {name: tf.constant(ids) for name, ids in inputs.items()}
    packed = pack(model, 7)
    assert unsupported(model) is None
    assert packed is not model
    expected, found = model(inputs).numpy(), packed(inputs).numpy()
    if isinstance(model, MaskedLanguageModel):  # logits at padding mean nothing
        expected, found = (np.where(SOURCE[..., None] != 0, each, 0) for each in (expected, found))
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(("kind", "option"), cases(Encoder))
def test_an_encoder(kind, option, randomize):
    arguments = {**OF_AN_ENCODER, "positions": "learned", **option}
    assert_packed_alike(randomize(SentenceEmbedder(Encoder(**arguments), normalize=False)))


@pytest.mark.parametrize(("kind", "option"), cases(Classifier, SentenceEmbedder, MaskedLanguageModel))
def test_a_head(kind, option, randomize):
    more = {"num_classes": 3, "hidden_units": 6} if kind is Classifier else {}
    assert_packed_alike(randomize(kind(Encoder(**OF_AN_ENCODER), **{**more, **option})))


@pytest.mark.parametrize(
    ("kind", "option"),
    cases(
        layers.TransformerEncoderLayer,
        layers.MultiHeadAttention,
        layers.RotaryEmbedding,
        layers.FeedForward,
        layers.SequencePooling,
    ),
)
def test_a_layer_of_an_encoder(kind, option, changed, randomize):
    changed(kind, option)
    model = randomize(SentenceEmbedder(Encoder(**OF_AN_ENCODER), normalize=False))
    name, layer = next(iter(option)), model.encoder.encoder[0]
    unknown_activation = layer.feed_forward.activation not in ACTIVATIONS
    reason = unsupported(model)
    assert bool(reason) == bool(name in REFUSED | NOT_OF_AN_ENCODER or unknown_activation), reason
    if reason:
        assert name in reason
        assert pack(model, 7) is model
    else:
        assert_packed_alike(model)


def test_a_recurrent_encoder_stays_as_it_is():
    model = Classifier(RNNEncoder(13, units=3), 4)
    assert pack(model, 16) is model
    assert unsupported(model) == "RNNEncoder has no packed form"


def test_a_classifier_whose_tokens_vote_stays_as_it_is():
    model = Classifier(Encoder(**OF_AN_ENCODER), 4, pooling="votes")
    assert pack(model, 7) is model
    assert unsupported(model) == "the packed Classifier does not know pooling='votes'"


def test_an_encoder_layer_of_a_transformer(changed, randomize):
    """With all options at once that it can have alone."""
    kind, left = layers.TransformerEncoderLayer, NOT_OF_AN_ENCODER | OF_ALL_LAYERS
    changed(kind, {name: TRAINING[name] for name in arguments(kind) if name in TRAINING})
    changed(kind, {name: values[0] for name, values in OPTIONS[kind].items() if name not in left})
    model = randomize(Transformer(**FAMILIES[Transformer]))
    packed, expected = pack(model, 16), step(model)
    assert packed is not model
    np.testing.assert_allclose(step(packed), expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", sorted(NOT_OF_AN_ENCODER | OF_ALL_LAYERS))
def test_a_transformer_with_an_unknown_encoder_layer_stays_as_it_is(name, changed):
    kind = layers.TransformerEncoderLayer
    changed(kind, {name: OPTIONS[kind][name][-1]})
    changed(kind, {"norm_first": True} if name == "parallel_residual" else {})
    model = Transformer(**FAMILIES[Transformer])
    assert pack(model, 16) is model
    assert ("norm_first" if name == "parallel_residual" else name) in unsupported(model)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (layers.MultiHeadAttention, "use_gate", True),
        (layers.ReversibleEmbedding, "logit_soft_cap", 3.0),
        (keras.layers.LayerNormalization, "center", False),
        (keras.layers.LayerNormalization, "rms_scaling", True),
        (keras.layers.Dense, "activation", "tanh"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_family_with_an_unknown_option_stays_as_it_is(kind, name, value, family, changed):
    changed(kind, {name: value})
    tied = {GPT: (True, False), Transformer: ("target", "none")}[family][kind is keras.layers.Dense]
    model = family(**FAMILIES[family], positions="learned", tied_embeddings=tied)
    assert pack(model, 16) is model
    assert unsupported(model) == f"the packed {kind.__name__} does not know {name}={value!r}"


@pytest.mark.usefixtures("no_collection")
def test_what_has_no_packed_form_stays_as_it_is():
    class Own(GPT):
        pass

    quantized = GPT(**FAMILIES[GPT])
    quantized.get_layer("layer_1").feed_forward.output_projection.quantize("int8")
    rounded = GPT(**FAMILIES[GPT])  # its weights stay float32
    rounded.get_layer("layer_1").feed_forward.output_projection.quantize("float8")
    for model, reason in (
        (Own(**FAMILIES[GPT]), "Own has no packed form"),
        (GPT(**FAMILIES[GPT], dtype="bfloat16"), "are bfloat16, not float32"),
        (quantized, "are int8, not float32"),
        (rounded, "output is quantised"),
        (keras.Sequential(), "Sequential has no packed form"),
    ):
        assert pack(model, 16) is model
        assert unsupported(model).endswith(reason)


def test_a_reason_names_a_function_without_its_address():
    model = GPT(**FAMILIES[GPT], activation=keras.ops.relu6)
    reason = "the packed FeedForward does not know activation=relu6, a function; it knows names such as 'gelu'"
    assert unsupported(model) == reason


def test_low_rank_adaptations_are_in_the_weights(randomize):
    model = randomize(GPT(**FAMILIES[GPT]))
    before, layer = step(model), model.get_layer("layer_1")
    for projection in (layer.self_attention.query_dense, layer.feed_forward.output_projection):
        projection.enable_lora(2)
        projection.lora_kernel_b.assign(tf.ones_like(projection.lora_kernel_b))
    expected, packed = step(model), pack(model, 16)
    assert np.abs(expected - before).max() > 0.1
    assert packed is not model
    np.testing.assert_allclose(step(packed), expected, atol=1e-5 * np.abs(expected).max())


def test_frozen_layers_are_packed_as_others(randomize):
    model = randomize(GPT(**FAMILIES[GPT]))
    model.get_layer("layer_1").trainable = False
    packed = pack(model, 16)
    assert packed is not model
    np.testing.assert_allclose(step(packed), step(model), atol=1e-5)
