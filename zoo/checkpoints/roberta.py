"""RoBERTa, BERT with the tokenizer of GPT-2: Liu et al. 2019.

Reference: https://huggingface.co/docs/transformers/model_doc/roberta
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from zoo.checkpoints import bert
from zoo.checkpoints.config import Config
from zoo.checkpoints.tensors import Tensor

PREFIX = "roberta."
IGNORED = bert.IGNORED
CLASSIFIER = {"hidden": "classifier.dense", "logits": "classifier.out_proj"}
CLASSIFIER_ACTIVATION = "tanh"
MASKED = {"transform": "lm_head.dense", "transform_norm": "lm_head.layer_norm"}
MASKED_ACTIVATION = "gelu"  # whatever the encoder has
MASKED_BIAS, MASKED_COPIES = "lm_head.bias", ("lm_head.decoder.weight", "lm_head.decoder.bias")
# The table of positions begins with rows for padding: as many as the id of the padding plus one. They come before the
# first position of a text.
PADDING = 1

renamed = bert.renamed


def arguments(config: Config) -> dict[str, Any]:
    """The arguments of `zoo.models.Encoder`, all but the number of ids."""
    config.only(pad_token_id=PADDING)
    made = bert.arguments(config)
    return made | {"max_length": made["max_length"] - PADDING - 1}


def tensors(made: dict[str, Any], size: int, rows: Callable[[np.ndarray], np.ndarray]) -> Iterator[Tensor]:
    """What the checkpoint holds of the encoder, see `bert.tensors`."""
    for tensor in bert.tensors(made, size, rows):
        if tensor.weight == "positions/embeddings":
            shape = (made["max_length"] + PADDING + 1, made["units"])
            tensor = tensor._replace(shape=shape, change=lambda array: array[PADDING + 1 :])
        yield tensor
