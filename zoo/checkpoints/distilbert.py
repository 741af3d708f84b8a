"""DistilBERT, BERT with half the layers: Sanh et al. 2019.

Reference: https://huggingface.co/docs/transformers/model_doc/distilbert
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from zoo.checkpoints.config import ACTIVATIONS, Config
from zoo.checkpoints.tensors import Tensor, dense, norm

PREFIX = "distilbert."
IGNORED: tuple[str, ...] = ()
CLASSIFIER = {"hidden": "pre_classifier", "logits": "classifier"}
CLASSIFIER_ACTIVATION = "relu"
MASKED = {"transform": "vocab_transform", "transform_norm": "vocab_layer_norm"}
MASKED_ACTIVATION = None  # that of the encoder
MASKED_BIAS, MASKED_COPIES = "vocab_projector.bias", ("vocab_projector.weight",)
_EPSILON = 1e-12  # not in the configuration


def renamed(name: str) -> str:
    """The current name of a tensor, which here is always its name."""
    return name


def arguments(config: Config) -> dict[str, Any]:
    """The arguments of `zoo.models.Encoder`, all but the number of ids."""
    return {
        "units": config.whole("dim"),
        "num_heads": config.whole("n_heads"),
        "num_layers": config.layers("n_layers"),
        "feed_forward_units": config.whole("hidden_dim"),
        "max_length": config.whole("max_position_embeddings", 512),
        "num_segments": 0,
        "activation": config.one_of("activation", ACTIVATIONS, "gelu"),
        "dropout": config.get("dropout", 0.1),
        "attention_dropout": config.get("attention_dropout", 0.1),
        "epsilon": _EPSILON,
    }


def tensors(made: dict[str, Any], size: int, rows: Callable[[np.ndarray], np.ndarray]) -> Iterator[Tensor]:
    """What the checkpoint holds of the encoder, see `bert.tensors`. Sinusoidal positions are stored as learned ones."""
    width, hidden = made["units"], made["feed_forward_units"]
    yield Tensor("embeddings.word_embeddings.weight", (size, width), "token_embedding/embeddings", rows)
    yield Tensor("embeddings.position_embeddings.weight", (made["max_length"], width), "positions/embeddings")
    yield from norm("embeddings.LayerNorm", "embedding_norm", width)
    for index in range(made["num_layers"]):
        theirs, ours = f"transformer.layer.{index}", f"layer_{index + 1}"
        for name, part in (("q_lin", "query"), ("k_lin", "key"), ("v_lin", "value"), ("out_lin", "attention_output")):
            yield from dense(f"{theirs}.attention.{name}", f"{ours}/self_attention/{part}", (width, width))
        yield from norm(f"{theirs}.sa_layer_norm", f"{ours}/self_attention_norm", width)
        yield from dense(f"{theirs}.ffn.lin1", f"{ours}/feed_forward/input", (hidden, width))
        yield from dense(f"{theirs}.ffn.lin2", f"{ours}/feed_forward/output", (width, hidden))
        yield from norm(f"{theirs}.output_layer_norm", f"{ours}/feed_forward_norm", width)
