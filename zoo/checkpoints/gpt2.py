"""GPT-2: Radford et al. 2019.

Reference: https://huggingface.co/docs/transformers/model_doc/gpt2
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from zoo.checkpoints.config import ACTIVATIONS, Config, activation_name
from zoo.checkpoints.tensors import Tensor, norm

PREFIX = "transformer."
RENAMED: dict[str, str] = {}
IGNORED = (r"h\.\d+\.attn\.(bias|masked_bias)",)  # masks


def arguments(config: Config) -> dict[str, Any]:
    """The arguments of `zoo.models.GPT`."""
    config.only(add_cross_attention=False, tie_word_embeddings=True)
    layers, heads = config.layers("n_layer"), config.whole("n_head")
    is_scaled = config.flag("scale_attn_weights", True)
    scales: Any = None if is_scaled else 1.0  # None is the usual scale
    if config.flag("scale_attn_by_inverse_layer_idx", False):
        scale = (config.whole("n_embd") / heads) ** -0.5 if is_scaled else 1.0
        scales = [scale / (index + 1) for index in range(layers)]
    return {
        "units": config.whole("n_embd"),
        "num_heads": heads,
        "num_layers": layers,
        "context_length": config.whole("n_positions"),
        "feed_forward_units": config.whole("n_inner", 4 * config.whole("n_embd")),
        "activation": config.one_of("activation_function", ACTIVATIONS, "gelu_new"),
        "score_scale": scales,
        "epsilon": config.number("layer_norm_epsilon", 1e-5),
    }


def configuration(model: Any) -> dict[str, Any]:
    """The keys of `config.json` for a `zoo.models.GPT`.

    Raises:
        ValueError: no key can say what the model's activation is. Other arguments are not checked.
    """
    scales = explicit(model.get_config())["score_scale"]
    return {
        "n_embd": model.units,
        "n_head": model.num_heads,
        "n_layer": model.num_layers,
        "n_positions": model.context_length,
        "n_inner": model.feed_forward_units or 4 * model.units,
        "activation_function": activation_name("GPT-2", model),
        "layer_norm_epsilon": model.epsilon,
        "scale_attn_weights": scales[0] != 1.0,
        "scale_attn_by_inverse_layer_idx": scales[-1] != scales[0],
        "embd_pdrop": model.dropout,
        "resid_pdrop": model.dropout,
        "attn_pdrop": model.attention_dropout,
        "tie_word_embeddings": True,
    }


def explicit(made: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `zoo.models.GPT`, without None where None stands for a number that follows from the others."""
    heads, layers = made["num_heads"], made["num_layers"]
    width = made["key_dim"] or made["units"] // heads
    scales = made["score_scale"] or width**-0.5
    scales = [scales] if isinstance(scales, int | float) else scales
    return made | {
        "key_dim": width,
        "feed_forward_units": made["feed_forward_units"] or 4 * made["units"],
        "num_key_value_heads": made["num_key_value_heads"] or heads,
        "score_scale": [scales[index % len(scales)] for index in range(layers)],
    }


def tensors(made: dict[str, Any], size: int, rows: Any) -> Iterator[Tensor]:
    """What the checkpoint holds. Kernels are `(in, out)`; one kernel holds query, key and value.

    Args:
        made: the arguments of the model.
        size: the number of ids in the checkpoint.
        rows: a function from its embeddings to ours.
    """
    width, hidden = made["units"], made["feed_forward_units"]
    yield Tensor("wte.weight", (size, width), "embedding/embeddings", rows)
    yield Tensor("wpe.weight", (made["context_length"], width), "positions/embeddings")
    yield from norm("ln_f", "norm", width)
    for index in range(made["num_layers"]):
        theirs, ours = f"h.{index}", f"layer_{index + 1}"
        yield from norm(f"{theirs}.ln_1", f"{ours}/self_attention_norm", width)
        yield from norm(f"{theirs}.ln_2", f"{ours}/feed_forward_norm", width)
        for part, name in enumerate(("query", "key", "value")):

            def third(array: np.ndarray, part: int = part) -> np.ndarray:
                return np.split(array, 3, axis=-1)[part]

            together, weight = f"{theirs}.attn.c_attn", f"{ours}/self_attention/{name}"
            yield Tensor(f"{together}.weight", (width, 3 * width), f"{weight}/kernel", third)
            yield Tensor(f"{together}.bias", (3 * width,), f"{weight}/bias", third)
        for name, weight, shape in (
            ("attn.c_proj", "self_attention/attention_output", (width, width)),
            ("mlp.c_fc", "feed_forward/input", (width, hidden)),
            ("mlp.c_proj", "feed_forward/output", (hidden, width)),
        ):
            yield Tensor(f"{theirs}.{name}.weight", shape, f"{ours}/{weight}/kernel")
            yield Tensor(f"{theirs}.{name}.bias", shape[1:], f"{ours}/{weight}/bias")
