"""GPT-NeoX, Pythia among them: Black et al. 2022.

Reference: https://huggingface.co/docs/transformers/model_doc/gpt_neox
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from zoo.checkpoints.config import ACTIVATIONS, Config
from zoo.checkpoints.llama import rotary
from zoo.checkpoints.tensors import Tensor, norm, transposed

PREFIX = "gpt_neox."
# The output is called lm_head.weight by `transformers` 5, except in safetensors files.
RENAMED = {"lm_head.weight": "embed_out.weight"}
IGNORED = (r"layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",)  # masks and constants


def arguments(config: Config) -> dict[str, Any]:
    """The arguments of `zoo.models.GPT`."""
    width, heads = config.whole("hidden_size"), config.whole("num_attention_heads")
    config.only(attention_bias=True, head_dim=width // heads)
    return {
        "units": width,
        "num_heads": heads,
        "num_layers": config.layers("num_hidden_layers"),
        "context_length": config.whole("max_position_embeddings"),
        "feed_forward_units": config.whole("intermediate_size"),
        "activation": config.one_of("hidden_act", ACTIVATIONS, "gelu"),
        "tied_embeddings": config.flag("tie_word_embeddings", False),
        "parallel_residual": config.flag("use_parallel_residual", True),
        "epsilon": config.number("layer_norm_eps", 1e-5),
        **rotary(config, width // heads, theta="rotary_emb_base", share=("rotary_pct", 0.25)),
    }


def tensors(made: dict[str, Any], size: int, rows: Any) -> Iterator[Tensor]:
    """What the checkpoint holds; see `zoo.checkpoints.gpt2.tensors`."""
    width, hidden, heads = made["units"], made["feed_forward_units"], made["num_heads"]
    yield Tensor("embed_in.weight", (size, width), "embedding/embeddings", rows)
    if not made["tied_embeddings"]:
        yield Tensor("embed_out.weight", (size, width), "logits/kernel", lambda array: rows(array).T)
    yield from norm("final_layer_norm", "norm", width)
    for index in range(made["num_layers"]):
        theirs, ours = f"layers.{index}", f"layer_{index + 1}"
        yield from norm(f"{theirs}.input_layernorm", f"{ours}/self_attention_norm", width)
        yield from norm(f"{theirs}.post_attention_layernorm", f"{ours}/feed_forward_norm", width)
        for part, name in enumerate(("query", "key", "value")):
            together, weight = f"{theirs}.attention.query_key_value", f"{ours}/self_attention/{name}"
            change = _of_heads(part, heads)
            yield Tensor(f"{together}.weight", (3 * width, width), f"{weight}/kernel", change)
            yield Tensor(f"{together}.bias", (3 * width,), f"{weight}/bias", change)
        for name, weight, shape in (
            ("attention.dense", "self_attention/attention_output", (width, width)),
            ("mlp.dense_h_to_4h", "feed_forward/input", (hidden, width)),
            ("mlp.dense_4h_to_h", "feed_forward/output", (width, hidden)),
        ):
            yield Tensor(f"{theirs}.{name}.weight", shape, f"{ours}/{weight}/kernel", transposed)
            yield Tensor(f"{theirs}.{name}.bias", shape[:1], f"{ours}/{weight}/bias")


def _of_heads(part: int, heads: int) -> Callable[[np.ndarray], np.ndarray]:
    """Query, key or value of all heads, out of rows that hold the three of the first head, then of the second ..."""

    def change(array: np.ndarray) -> np.ndarray:
        rows = array.reshape(heads, 3, -1, *array.shape[1:])[:, part]  # (H, d) or (H, d, D)
        return rows.reshape(-1, *array.shape[1:]).T  # (D,) or (D, D)

    return change
