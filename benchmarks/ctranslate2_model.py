"""A transformer of the zoo in CTranslate2's format, with the same weights."""

from __future__ import annotations

import pathlib

import ctranslate2
import numpy as np
from ctranslate2.specs import common_spec, transformer_spec

SPECIAL = {0: "<blank>", 1: "<unk>", 2: "<s>", 3: "</s>"}


def write(model, folder: str, longest: int = 512) -> None:
    """Writes a `zoo.models.Transformer` with sinusoidal or rotary positions, ReLU or SwiGLU, biases and norms first.

    Its tokens are ids. Its embeddings may be tied.
    """
    rotary, gated = model.positions == "rotary", model.activation == "swiglu"
    kind = dict(
        pre_norm=True,
        activation=common_spec.Activation.SWISH if gated else common_spec.Activation.RELU,
        ffn_glu=gated,
        rms_norm=model.normalization == "rms",
        rotary_dim=model.units // model.num_heads if rotary else None,
        rotary_interleave=False,
    )
    spec = transformer_spec.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(model.encoder_layers, model.num_heads, **kind),
        transformer_spec.TransformerDecoderSpec(model.decoder_layers, model.num_heads, **kind),
    )
    if rotary:
        del spec.encoder.position_encodings
    else:
        positions = np.array(model.get_layer("source_positions")(np.zeros((1, longest, model.units), "float32")))[0]
    for side, part in (("source", spec.encoder), ("target", spec.decoder)):
        embeddings = part.embeddings[0] if side == "source" else part.embeddings
        table = model.target_embedding if model.tied_embeddings == "all" else model.get_layer(f"{side}_embedding")
        embeddings.weight = _array(table.embeddings)
        embeddings.multiply_by_sqrt_depth = True
        if not rotary:
            part.position_encodings.encodings = positions
        stack = "encoder" if side == "source" else "decoder"
        _norm(part.layer_norm, model.get_layer(f"{stack}_norm"))
        for number, to in enumerate(part.layer):
            layer = model.get_layer(f"{stack}_layer_{number + 1}")
            attention = layer.self_attention
            _linear(to.self_attention.linear[0], attention.query_dense, attention.key_dense, attention.value_dense)
            _linear(to.self_attention.linear[1], attention.output_dense, contracted=2)
            _norm(to.self_attention.layer_norm, layer.self_attention_norm)
            if stack == "decoder":
                attention = layer.memory_attention
                _linear(to.attention.linear[0], attention.query_dense)
                _linear(to.attention.linear[1], attention.key_dense, attention.value_dense)
                _linear(to.attention.linear[2], attention.output_dense, contracted=2)
                _norm(to.attention.layer_norm, layer.memory_attention_norm)
            _linear(to.ffn.linear_0, layer.feed_forward.input_projection)
            if gated:
                _linear(to.ffn.linear_0_noact, layer.feed_forward.gate_projection)
            _linear(to.ffn.linear_1, layer.feed_forward.output_projection)
            _norm(to.ffn.layer_norm, layer.feed_forward_norm)
    if model.tied_embeddings == "none":
        _linear(spec.decoder.projection, model.get_layer("logits"))
    else:
        spec.decoder.projection.weight = _array(model.target_embedding.embeddings)
    tokens = [SPECIAL.get(number, str(number)) for number in range(model.target_vocabulary_size)]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.layer_norm_epsilon = 1e-5
    spec.validate()
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    spec.save(folder)


def translator(folder: str, requests: int, threads: int) -> ctranslate2.Translator:
    """A translator for `requests` requests at once, each with `threads` threads."""
    return ctranslate2.Translator(folder, "cpu", compute_type="float32", inter_threads=requests, intra_threads=threads)


def _linear(to, *projections, contracted: int = 1) -> None:
    kernels = [_array(each.kernel) for each in projections]
    width = int(np.prod(kernels[0].shape[:contracted]))
    to.weight = np.ascontiguousarray(np.concatenate([each.reshape(width, -1) for each in kernels], axis=1).T)
    to.bias = np.concatenate([_array(each.bias).reshape(-1) for each in projections])


def _norm(to, layer) -> None:
    if hasattr(layer, "beta"):
        to.gamma, to.beta = _array(layer.gamma), _array(layer.beta)
    else:  # RMS
        to.gamma = _array(layer.scale)


def _array(weight) -> np.ndarray:
    return np.array(weight, "float32")
