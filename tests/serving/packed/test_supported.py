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
from zoo.serving.packed.layers import ACTIVATIONS, PackedFeedForward, PackedLayer
from zoo.serving.packed.products import Norm, Unmoved, Unnormalized

# Without effect after training, tried with all others.
TRAINING = dict.fromkeys(("dropout", "attention_dropout", "feed_forward_dropout"), 0.2)
TRAINING |= dict.fromkeys(("kernel_regularizer", "bias_regularizer", "activity_regularizer"), "l2")
TRAINING |= dict.fromkeys(("kernel_constraint", "bias_constraint"), "non_neg")
TRAINING |= {"kernel_initializer": "he_normal", "bias_initializer": "ones", "seed": 3}
# Values of every other argument that are not the default. Those of a row are tried together: a packed form that leaves
# one of them out gives other numbers. What would hide the effect of another one is in another row.
OF_BOTH_LAYERS = [
    dict(
        num_heads=6,
        feed_forward_units=7,
        activation="swiglu",
        normalization="rms",
        use_bias=False,
        flash_attention=True,
        epsilon=0.3,
        score_scale=0.7,
    ),
    dict(
        norm_first=True,
        key_dim=6,
        rotary_embedding=layers.RotaryEmbedding(),
        use_qkv_bias=False,
        use_query_key_norm=True,
    ),
]
SCALING = {"rope_type": "linear", "factor": 3.0}
OPTIONS = {
    layers.TransformerDecoderLayer: [
        *OF_BOTH_LAYERS,
        dict(num_heads=2, sliding_window=2),
        dict(norm_first=True, parallel_residual=True, num_key_value_heads=1, cross_attention=False),
    ],
    layers.TransformerEncoderLayer: OF_BOTH_LAYERS,
    layers.MultiHeadAttention: [
        dict(num_heads=2, key_dim=6, use_bias=False, flash_attention=True, score_scale=0.7),
        dict(use_qkv_bias=False, flash_attention=False),
        dict(
            num_key_value_heads=1,
            rotary_embedding=layers.RotaryEmbedding(pairs="adjacent", max_wavelength=50.0),
            sliding_window=2,
            use_query_key_norm=True,
            norm_epsilon=0.3,
        ),
    ],
    layers.RotaryEmbedding: [dict(max_wavelength=20.0, pairs="adjacent", scaling=SCALING), dict(rotary_dim=2)],
    layers.FeedForward: [dict(units=5, activation="geglu", use_bias=False)],
    GPT: [
        dict(
            vocabulary_size=11,
            units=24,
            num_heads=6,
            num_layers=2,
            context_length=5,
            feed_forward_units=7,
            activation="swiglu",
            normalization="rms",
            tied_embeddings=False,
            unused_ids=(0, 4),
            use_qkv_bias=False,
            score_scale=0.7,
            sliding_window=2,
            epsilon=0.3,
        ),
        dict(
            context_length=40,
            num_key_value_heads=1,
            positions="rotary",
            use_bias=False,
            key_dim=6,
            use_query_key_norm=True,
            max_wavelength=20.0,
            rotary_dim=4,
            rotary_scaling=SCALING,
            parallel_residual=True,
        ),
    ],
    Transformer: [
        dict(
            source_vocabulary_size=11,
            units=24,
            num_heads=6,
            feed_forward_units=7,
            encoder_layers=2,
            decoder_layers=2,
            activation="swiglu",
            normalization="rms",
            norm_first=True,
            positions="learned",
            max_length=17,
            tied_embeddings="none",
            unused_ids=(0, 4),
            epsilon=0.3,
        ),
        dict(positions="rotary", tied_embeddings="all", use_bias=False, use_output_bias=True, scale_embeddings=False),
        dict(target_vocabulary_size=11, position_pairs="halves"),
    ],
    Encoder: [
        dict(
            vocabulary_size=11,
            units=24,
            num_heads=6,
            num_layers=2,
            feed_forward_units=7,
            max_length=7,
            num_segments=2,
            activation="swiglu",
            normalization="rms",
            epsilon=0.3,
        ),
        dict(norm_first=True, positions="sinusoidal", use_bias=False),
        dict(positions="rotary"),
    ],
    Classifier: [
        dict(num_classes=4, pooling="first", hidden_units=5, activation="gelu"),
        dict(pooling="attention", multi_label=True),
    ],
    SentenceEmbedder: [dict(pooling="max", normalize=False, embedding_units=5)],
    MaskedLanguageModel: [dict(activation="tanh", epsilon=0.3, unused_ids=(0, 4))],
    layers.SequencePooling: [dict(kind="first"), dict(kind="max")],
}
REFUSED = [
    (layers.MultiHeadAttention, dict(value_dim=5)),
    (layers.MultiHeadAttention, dict(output_shape=12)),
    (layers.MultiHeadAttention, dict(attention_axes=1)),
    (layers.MultiHeadAttention, dict(use_gate=True)),
    (layers.FeedForward, dict(activation="tanh")),
    (layers.FeedForward, dict(activation=keras.ops.relu6)),
]
# Those that attention to a source does not know.
ALSO_ALONE = {"num_key_value_heads", "rotary_embedding", "sliding_window", "use_query_key_norm"}
NOT_OF_AN_ENCODER = {"num_key_value_heads", "sliding_window", "parallel_residual"}
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


def cases(*classes, without=()):
    """Each row of options of these classes, as `(class, {name: value})`, with those of training."""
    for kind in classes:
        training = {name: TRAINING[name] for name in arguments(kind) if name in TRAINING}
        for number, row in enumerate(OPTIONS[kind]):
            options = {name: value for name, value in row.items() if name not in without}
            yield pytest.param(kind, options | training, id=f"{kind.__name__} {number}")


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
    tried = {name for row in OPTIONS[kind] for name in row}
    refused = {name for of_kind, option in REFUSED for name in option if of_kind is kind}
    refused |= NOT_OF_AN_ENCODER if kind is layers.TransformerEncoderLayer else set()
    missing = {*arguments(kind)} - tried - refused - {*TRAINING, "dtype", "name", "trainable", "encoder"}
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


def decoder_layer(parts=1, **options):
    """A layer that is not built: in one part with an odd number of heads, which two parts cannot divide."""
    return layers.TransformerDecoderLayer({1: 3, 2: 2}[parts], 10, **options)


@pytest.mark.parametrize(
    ("kind", "option", "parts"),
    [
        pytest.param(*case.values, parts, id=f"{case.id} in {parts}")
        for case in cases(
            layers.TransformerDecoderLayer, layers.MultiHeadAttention, layers.RotaryEmbedding, layers.FeedForward
        )
        for parts in ([1, 2] if case.values[0] is layers.TransformerDecoderLayer else [1])
    ],
)
def test_a_decoder_layer(kind, option, parts, changed, randomize, arrays, monkeypatch):
    """In one part; and with the layer's own options also in two.

    Parts divide heads and inner units. How the layers inside turn a head or which function an inner unit has, is the
    same in each. Of two parts, an odd number of heads, as of keys and values here, and of inner units, stays in one.
    """
    monkeypatch.setattr(packed_layers, "WIDE", 1 if parts == 2 else math.inf)
    changed(kind, option)
    more = {"rotary_embedding": layers.RotaryEmbedding()} if kind is layers.RotaryEmbedding else {}
    more |= {"cross_attention": False} if kind is layers.MultiHeadAttention and ALSO_ALONE & {*option} else {}
    layer = decoder_layer(parts, **more)
    data = arrays(inputs=(2, 4, 12), memory=(2, 5, 8))
    memory = data.memory if layer.cross_attention else None
    layer.build(data.inputs.shape, None if memory is None else memory.shape)
    randomize(layer)
    assert unsupported(layer) is None
    expected = layer(data.inputs, memory).numpy()
    if layer.norm_first:
        expected -= expected.mean(-1, keepdims=True)  # which the next norm would do
    tolerance = 1e-5 * np.abs(expected).max()
    for found, wanted in zip(of_packed(layer, data.inputs, memory), (expected, expected[:, -1:]), strict=True):
        np.testing.assert_allclose(found, wanted, atol=tolerance)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_feed_forward_network(activation, randomize, arrays):
    network = layers.FeedForward(5, activation)
    inputs = arrays(inputs=(7, 4)).inputs
    network.build(inputs.shape)
    randomize(network)
    assert unsupported(network) is None
    found = PackedFeedForward(network, Unmoved(), Unmoved())(tf.constant(inputs))
    np.testing.assert_allclose(found, network(inputs), atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        *REFUSED,
        *(
            (layers.MultiHeadAttention, {name: OPTIONS[layers.MultiHeadAttention][2][name]})
            for name in sorted(ALSO_ALONE)
        ),
        (layers.TransformerDecoderLayer, dict(num_key_value_heads=1)),
    ],
)
def test_a_decoder_layer_with_an_unknown_option(kind, option, changed):
    """The last ones are unknown to the attention to a source alone."""
    changed(kind, option)
    layer = decoder_layer()
    layer.build((2, 4, 12), (2, 5, 8))
    assert next(iter(option)) in unsupported(layer)


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
        without=NOT_OF_AN_ENCODER,
    ),
)
def test_a_layer_of_an_encoder(kind, option, changed, randomize):
    changed(kind, option)
    assert_packed_alike(randomize(SentenceEmbedder(Encoder(**OF_AN_ENCODER), normalize=False)))


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        REFUSED[0],
        (layers.MultiHeadAttention, dict(num_key_value_heads=1)),
        (layers.MultiHeadAttention, dict(sliding_window=2)),
        (layers.TransformerEncoderLayer, dict(parallel_residual=True, norm_first=True)),
    ],
)
def test_an_encoder_with_a_layer_of_an_unknown_option_stays_as_it_is(kind, option, changed):
    changed(kind, option)
    model = SentenceEmbedder(Encoder(**OF_AN_ENCODER), normalize=False)
    assert next(iter(option)) in unsupported(model)
    assert pack(model, 7) is model


def test_a_recurrent_encoder_stays_as_it_is():
    model = Classifier(RNNEncoder(13, units=3), 4)
    assert pack(model, 16) is model
    assert unsupported(model) == "RNNEncoder has no packed form"


def test_a_classifier_whose_tokens_vote_stays_as_it_is():
    model = Classifier(Encoder(**OF_AN_ENCODER), 4, pooling="votes")
    assert pack(model, 7) is model
    assert unsupported(model) == "the packed Classifier does not know pooling='votes'"


@pytest.mark.parametrize(
    ("kind", "option"), cases(layers.TransformerEncoderLayer, without=NOT_OF_AN_ENCODER | OF_ALL_LAYERS)
)
def test_an_encoder_layer_of_a_transformer(kind, option, changed, randomize):
    """With all options that it can have alone."""
    changed(kind, option)
    model = randomize(Transformer(**FAMILIES[Transformer]))
    packed, expected = pack(model, 16), step(model)
    assert packed is not model
    np.testing.assert_allclose(step(packed), expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    "option",
    [
        dict(normalization="rms"),
        dict(epsilon=0.3),
        dict(norm_first=True),
        dict(norm_first=True, parallel_residual=True),
        dict(num_key_value_heads=1),
        dict(sliding_window=2),
    ],
)
def test_a_transformer_with_an_unknown_encoder_layer_stays_as_it_is(option, changed):
    changed(layers.TransformerEncoderLayer, option)
    model = Transformer(**FAMILIES[Transformer])
    assert pack(model, 16) is model
    assert next(iter(option)) in unsupported(model)


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
