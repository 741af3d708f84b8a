"""GPT-Neo, TinyStories among them: Black et al. 2021.

Reference: https://huggingface.co/docs/transformers/model_doc/gpt_neo
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zoo.checkpoints.config import ACTIVATIONS, Config
from zoo.checkpoints.tensors import Tensor, norm, transposed

PREFIX = "transformer."
RENAMED: dict[str, str] = {}
IGNORED = (r"h\.\d+\.attn\.attention\.(bias|masked_bias)",)  # masks


def arguments(config: Config) -> dict[str, Any]:
    """The arguments of `zoo.models.GPT`."""
    config.only(tie_word_embeddings=True)
    layers, window = config.layers("num_layers"), config.whole("window_size", 256)
    windows = [window if kind == "local" else None for kind in _kinds(config, layers)]
    return {
        "units": config.whole("hidden_size"),
        "num_heads": config.whole("num_heads"),
        "num_layers": layers,
        "context_length": config.whole("max_position_embeddings"),
        "feed_forward_units": config.whole("intermediate_size", 4 * config.whole("hidden_size")),
        "activation": config.one_of("activation_function", ACTIVATIONS, "gelu_new"),
        "use_qkv_bias": False,
        "score_scale": 1.0,
        "sliding_window": windows if any(windows) else None,
        "epsilon": config.number("layer_norm_epsilon", 1e-5),
    }


def _kinds(config: Config, layers: int) -> list[str]:
    """The kind of each layer: in `attention_layers`, else in `attention_types` with how often kinds are repeated."""
    name, kinds = "attention_layers", config.get("attention_layers")
    if kinds is None:
        name, kinds = "attention_types", _repeated(config, layers)
    if not isinstance(kinds, list) or len(kinds) != layers or not all(kind in ("global", "local") for kind in kinds):
        raise config.wrong(name, f"'global' or 'local' for each of the {layers} layers")
    return kinds


def _repeated(config: Config, layers: int) -> list[str]:
    """The kinds that `attention_types` lists, each list with how often it is repeated."""
    kinds: list[str] = []
    try:
        for repeated, number in config.get("attention_types", [[["global", "local"], layers // 2]]):
            if len(repeated) * number > layers:
                raise ValueError
            kinds += list(repeated) * number
    except (TypeError, ValueError):
        raise config.wrong("attention_types", "a list such as [[['global', 'local'], 6]]") from None
    return kinds


def tensors(made: dict[str, Any], size: int, rows: Any) -> Iterator[Tensor]:
    """What the checkpoint holds; see `zoo.checkpoints.gpt2.tensors`."""
    width, hidden = made["units"], made["feed_forward_units"]
    yield Tensor("wte.weight", (size, width), "embedding/embeddings", rows)
    yield Tensor("wpe.weight", (made["context_length"], width), "positions/embeddings")
    yield from norm("ln_f", "norm", width)
    for index in range(made["num_layers"]):
        theirs, ours = f"h.{index}", f"layer_{index + 1}"
        yield from norm(f"{theirs}.ln_1", f"{ours}/self_attention_norm", width)
        yield from norm(f"{theirs}.ln_2", f"{ours}/feed_forward_norm", width)
        for name, weight in (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value")):
            weight = f"{ours}/self_attention/{weight}/kernel"
            yield Tensor(f"{theirs}.attn.attention.{name}.weight", (width, width), weight, transposed)
        for name, weight, shape in (
            ("attn.attention.out_proj", "self_attention/attention_output", (width, width)),
            ("mlp.c_fc", "feed_forward/input", (hidden, width)),
            ("mlp.c_proj", "feed_forward/output", (width, hidden)),
        ):
            yield Tensor(f"{theirs}.{name}.weight", shape, f"{ours}/{weight}/kernel", transposed)
            yield Tensor(f"{theirs}.{name}.bias", shape[:1], f"{ours}/{weight}/bias")
