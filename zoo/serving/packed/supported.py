"""Which layers and arguments the packed forms reproduce.

A packed model uses only the weights. A layer that computes something else with them would give wrong results without an
error. So this module lists what is known to be right: exact types, and the arguments that may have any value. A new
type of layer or a new argument is exported unpacked until it is listed.
"""

from __future__ import annotations

import inspect
from typing import Any

import keras

from zoo.layers import (
    Dropout,
    FeedForward,
    LearnedPositionalEmbedding,
    MultiHeadAttention,
    ReversibleEmbedding,
    RotaryEmbedding,
    SequencePooling,
    SinusoidalPositionalEncoding,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
)
from zoo.layers.projection import Projection
from zoo.models import GPT, Classifier, Encoder, Ensemble, MaskedLanguageModel, SentenceEmbedder, Transformer
from zoo.models.family import OutputBias
from zoo.serving.packed.layers import ACTIVATIONS

# Without effect once the model is trained.
_TRAINING = (
    "dropout attention_dropout feed_forward_dropout rate noise_shape seed kernel_initializer bias_initializer "
    "embeddings_initializer initializer beta_initializer gamma_initializer kernel_regularizer bias_regularizer "
    "embeddings_regularizer beta_regularizer gamma_regularizer activity_regularizer kernel_constraint bias_constraint "
    "embeddings_constraint beta_constraint gamma_constraint dtype name trainable layer_states"
)
_LAYER = (
    "num_heads feed_forward_units activation normalization norm_first use_bias key_dim num_key_value_heads "
    "rotary_embedding flash_attention epsilon cross_attention sliding_window use_qkv_bias use_query_key_norm "
    "score_scale parallel_residual"
)
# Of each type the arguments that may have any value. All others must have their defaults.
_REPRODUCED = {
    GPT: "vocabulary_size units num_heads num_layers context_length feed_forward_units num_key_value_heads positions "
    "normalization activation tied_embeddings use_bias unused_ids key_dim use_qkv_bias use_query_key_norm score_scale "
    "sliding_window max_wavelength rotary_dim rotary_scaling parallel_residual epsilon",
    Transformer: "source_vocabulary_size target_vocabulary_size units num_heads feed_forward_units encoder_layers "
    "decoder_layers activation normalization norm_first positions max_length tied_embeddings use_bias "
    "use_output_bias unused_ids scale_embeddings position_pairs epsilon",
    Ensemble: "models",
    Encoder: "vocabulary_size units num_heads num_layers feed_forward_units max_length num_segments activation "
    "normalization norm_first positions use_bias epsilon",
    Classifier: "encoder num_classes pooling hidden_units activation multi_label",
    SentenceEmbedder: "encoder pooling normalize embedding_units",
    MaskedLanguageModel: "encoder activation epsilon unused_ids",
    TransformerDecoderLayer: _LAYER,
    TransformerEncoderLayer: "num_heads feed_forward_units activation normalization norm_first use_bias key_dim "
    "rotary_embedding flash_attention epsilon use_qkv_bias use_query_key_norm score_scale",
    SequencePooling: "kind",
    MultiHeadAttention: "num_heads key_dim use_bias flash_attention num_key_value_heads rotary_embedding "
    "sliding_window use_qkv_bias use_query_key_norm norm_epsilon score_scale",
    FeedForward: "units activation use_bias",
    Projection: "contracted equation output_shape bias_axes use_bias lora_rank lora_alpha",
    RotaryEmbedding: "max_wavelength pairs rotary_dim scaling",
    LearnedPositionalEmbedding: "max_length",
    SinusoidalPositionalEncoding: "max_wavelength pairs",
    Dropout: "",
    OutputBias: "autocast",
    keras.layers.Dropout: "",
    keras.layers.Dense: "units use_bias lora_rank lora_alpha",
    keras.layers.Embedding: "input_dim output_dim",
    ReversibleEmbedding: "input_dim output_dim tie_weights",
    keras.layers.LayerNormalization: "axis epsilon",  # the last axis, or their weights would not fit a row
    keras.layers.RMSNormalization: "axis epsilon",
}
_COMMON = ("normalization", "norm_first", "epsilon")  # arguments of a family that reach all its layers
_HEADS = (Classifier, SentenceEmbedder, MaskedLanguageModel)


def unsupported(layer: keras.layers.Layer) -> str | None:
    """Why the packed forms would not reproduce a layer or a model, as the end of a sentence; None if they do.

    Args:
        layer: built, with its weights.
    """
    reproduced = _REPRODUCED.get(type(layer))
    if reproduced is None:
        return f"{type(layer).__name__} has no packed form"
    if dtypes := {weight.dtype for weight in layer.weights} - {"float32"}:
        return f"the weights of {layer.name} are {' and '.join(sorted(map(str, dtypes)))}, not float32"
    if getattr(layer, "quantization_mode", None):  # float8 keeps float32 weights
        return f"{layer.name} is quantised"
    config, defaults = layer.get_config(), _defaults(type(layer))
    for name in sorted({*config, *defaults} - {*reproduced.split(), *_TRAINING.split()}):
        # An argument that only `**kwargs` takes has no known default: any value that switches something on is refused.
        value, default = config.get(name, defaults.get(name)), defaults.get(name)
        same = value == default or (name not in defaults and not value) or (default is None and value == "linear")
        if not same and not (name == "value_dim" and value == layer.key_dim):
            return f"the packed {type(layer).__name__} does not know {name}={value!r}"
    if isinstance(layer, TransformerDecoderLayer) and layer.cross_attention:
        memory = layer.memory_attention
        if memory.rotary_embedding is not None or memory.num_key_value_heads not in (None, memory.num_heads):
            return "the packed attention to a source knows neither rotary_embedding nor num_key_value_heads"
        if memory.sliding_window is not None or memory.use_query_key_norm:
            return "the packed attention to a source knows neither sliding_window nor use_query_key_norm"
    if isinstance(layer, MultiHeadAttention) and layer.rotary_embedding is not None and layer.key_dim % 2:
        return f"the packed MultiHeadAttention rotates an even key_dim, not key_dim={layer.key_dim}"
    if isinstance(layer, FeedForward) and layer.activation not in ACTIVATIONS:
        name = getattr(layer.activation, "__name__", None)  # of a function, whose own text has an address
        shown = f"{name}, a function; it knows names such as 'gelu'" if name else repr(layer.activation)
        return f"the packed FeedForward does not know activation={shown}"
    if isinstance(layer, Classifier) and layer.pooling == "votes":
        return "the packed Classifier does not know pooling='votes'"
    if isinstance(layer, TransformerEncoderLayer):
        attention = layer.self_attention
        if attention.sliding_window is not None or attention.num_key_value_heads not in (None, attention.num_heads):
            return "the packed encoder knows neither sliding_window nor num_key_value_heads"
    if isinstance(layer, Transformer):
        for part in _parts(layer):
            for name in _COMMON if isinstance(part, TransformerEncoderLayer | TransformerDecoderLayer) else ():
                if getattr(part, name) != getattr(layer, name):
                    return f"{part.name} has another {name} than the packed Transformer has in all layers"
    return next(filter(None, map(unsupported, _parts(layer))), None)


def _defaults(kind: type) -> dict[str, Any]:
    """The arguments of a class, those that it passes on to its parents included, and their defaults."""
    found: dict[str, Any] = {}
    for parent in kind.__mro__[: kind.__mro__.index(keras.layers.Layer)]:
        if init := vars(parent).get("__init__"):
            parameters = inspect.signature(init).parameters.values()
            named = (each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD))
            found = {each.name: each.default for each in named} | found
    return {name: default for name, default in found.items() if name != "self"}


def _parts(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """The layers that a layer or model is made of, without those that an export calls as they are."""
    if isinstance(layer, Ensemble):
        return layer.models
    if isinstance(layer, _HEADS):
        pooling = getattr(layer, "pooling_layer", None)
        return [layer.encoder, *([pooling] if isinstance(pooling, SequencePooling) else ())]
    if isinstance(layer, keras.Model):
        return [part for part in layer.layers if not isinstance(part, keras.layers.InputLayer)]
    return [part for part in vars(layer).values() if isinstance(part, keras.layers.Layer)]
