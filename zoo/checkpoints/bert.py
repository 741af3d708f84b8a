"""BERT and the models of its shape, such as MiniLM: Devlin et al. 2019.

Reference: https://huggingface.co/docs/transformers/model_doc/bert
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from zoo.checkpoints.config import ACTIVATIONS, Config
from zoo.checkpoints.tensors import Tensor, dense, norm

PREFIX = "bert."
# Ids of positions, a pooler that the model's task does not use, and the head for the order of two sentences.
IGNORED = (r"embeddings\.position_ids", r"pooler\.dense\.(weight|bias)", r"cls\.seq_relationship\.(weight|bias)")
# Where a classifier has its layers, and the activation between them.
CLASSIFIER = {"hidden": "pooler.dense", "logits": "classifier"}
CLASSIFIER_ACTIVATION = "tanh"
# Where a masked language model has its layers and its bias.
MASKED = {"transform": "cls.predictions.transform.dense", "transform_norm": "cls.predictions.transform.LayerNorm"}
MASKED_ACTIVATION = None  # that of the encoder
MASKED_BIAS, MASKED_COPIES = "cls.predictions.bias", ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")


def renamed(name: str) -> str:
    """The current name of a tensor. The first checkpoints have the names of TensorFlow for norms."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def arguments(config: Config) -> dict[str, Any]:
    """The arguments of `zoo.models.Encoder`, all but the number of ids."""
    config.only(position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    return {
        "units": config.whole("hidden_size"),
        "num_heads": config.whole("num_attention_heads"),
        "num_layers": config.layers("num_hidden_layers"),
        "feed_forward_units": config.whole("intermediate_size"),
        "max_length": config.whole("max_position_embeddings", 512),
        "num_segments": config.whole("type_vocab_size", 2),
        "activation": config.one_of("hidden_act", ACTIVATIONS, "gelu"),
        "dropout": config.get("hidden_dropout_prob", 0.1),
        "attention_dropout": config.get("attention_probs_dropout_prob", 0.1),
        "epsilon": config.number("layer_norm_eps", 1e-12),
    }


def tensors(made: dict[str, Any], size: int, rows: Callable[[np.ndarray], np.ndarray]) -> Iterator[Tensor]:
    """What the checkpoint holds of the encoder.

    Args:
        made: the arguments of the model.
        size: the number of ids in the checkpoint.
        rows: a function from its embeddings to ours.
    """
    width, hidden = made["units"], made["feed_forward_units"]
    yield Tensor("embeddings.word_embeddings.weight", (size, width), "token_embedding/embeddings", rows)
    yield Tensor("embeddings.position_embeddings.weight", (made["max_length"], width), "positions/embeddings")
    yield Tensor(
        "embeddings.token_type_embeddings.weight", (made["num_segments"], width), "segment_embedding/embeddings"
    )
    yield from norm("embeddings.LayerNorm", "embedding_norm", width)
    for index in range(made["num_layers"]):
        theirs, ours = f"encoder.layer.{index}", f"layer_{index + 1}"
        for name in ("query", "key", "value"):
            yield from dense(f"{theirs}.attention.self.{name}", f"{ours}/self_attention/{name}", (width, width))
        yield from dense(f"{theirs}.attention.output.dense", f"{ours}/self_attention/attention_output", (width, width))
        yield from norm(f"{theirs}.attention.output.LayerNorm", f"{ours}/self_attention_norm", width)
        yield from dense(f"{theirs}.intermediate.dense", f"{ours}/feed_forward/input", (hidden, width))
        yield from dense(f"{theirs}.output.dense", f"{ours}/feed_forward/output", (width, hidden))
        yield from norm(f"{theirs}.output.LayerNorm", f"{ours}/feed_forward_norm", width)
