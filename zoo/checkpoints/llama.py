"""Llama and its relatives: SmolLM, Mistral, Qwen2, Qwen3.

They differ in biases, in norms of queries and keys, and in windows.

Reference: https://huggingface.co/docs/transformers/model_doc/llama
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zoo.checkpoints.config import Config
from zoo.checkpoints.tensors import Tensor, transposed
from zoo.layers.functions.positions import check_scaling

PREFIX = "model."
RENAMED: dict[str, str] = {}
_GATED = {"silu": "swiglu", "swish": "swiglu", "gelu": "geglu", "gelu_python": "geglu"}
IGNORED = (r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",)


def arguments(config: Config) -> dict[str, Any]:
    """The arguments of `zoo.models.GPT`."""
    kind = config.get("model_type")
    # The activation belongs to the gate: silu(x W_gate) * x W_up.
    activation = config.one_of("hidden_act", _GATED, "silu")
    if kind in ("mistral", "qwen2", "qwen3"):  # they have no such biases
        config.only(mlp_bias=False)
    if kind == "mistral":
        config.only(attention_bias=False)
    # Qwen2 has its biases whatever this key says.
    attention_bias = kind != "qwen2" and config.flag("attention_bias", False)
    width, heads = config.whole("hidden_size"), config.whole("num_attention_heads")
    key_dim = config.whole("head_dim", max(width // heads, 1))
    key_value_heads = 8 if kind == "mistral" and "num_key_value_heads" not in config else heads
    positions = rotary(config, key_dim)
    if positions["rotary_dim"] is not None:  # in `transformers` these families rotate all features, whatever it says
        raise ValueError(
            f"{config.file}: partial_rotary_factor must be 1; only GPT-NeoX rotates a part of the features."
        )
    return {
        "units": width,
        "num_heads": heads,
        "num_layers": config.layers("num_hidden_layers"),
        "context_length": config.whole("max_position_embeddings"),
        "feed_forward_units": config.whole("intermediate_size"),
        "num_key_value_heads": config.whole("num_key_value_heads", key_value_heads),
        "key_dim": key_dim,
        "normalization": "rms",
        "activation": activation,
        "use_bias": attention_bias or config.flag("mlp_bias", False),
        "use_qkv_bias": attention_bias or kind == "qwen2",
        "use_query_key_norm": kind == "qwen3",
        "sliding_window": _windows(config),
        "tied_embeddings": config.flag("tie_word_embeddings", False),
        "epsilon": config.number("rms_norm_eps", 1e-6),
        **positions,
    }


def rotary(
    config: Config, width: int, theta: str = "rope_theta", share: tuple[str, float] = ("partial_rotary_factor", 1.0)
) -> dict[str, Any]:
    """The arguments of rotary positions: one table in `transformers` 5, several keys before.

    Args:
        config: the configuration.
        width: of a head.
        theta: the key of the longest wavelength before version 5.
        share: the key of the share of features that are rotated before version 5, and its default.
    """
    # If both are there, `transformers` takes the older one.
    name = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    table = config.get(name, {})
    if not isinstance(table, dict):
        raise config.wrong(name, "an object")
    table = dict(table)
    kind = table.pop("rope_type", None) or table.pop("type", None) or "default"
    table.pop("type", None)
    wavelength = table.pop("rope_theta", None) or config.number(theta, 10_000.0)
    part = table.pop("partial_rotary_factor", None)
    part = config.number(*share) if part is None else part
    if not all(isinstance(value, int | float) and 0 < value < 1e30 for value in (wavelength, part)) or part > 1:
        raise ValueError(
            f"{config.file}: {theta} and {share[0]} (in {name}: rope_theta and partial_rotary_factor) must be positive "
            f"numbers, the second one at most 1. They are {wavelength!r} and {part!r}."
        )
    if kind == "default" and table:
        raise config.wrong(name, f"only without {', '.join(map(repr, table))} can be read")
    if kind == "llama3":  # versions of `transformers` differ in which of two numbers they take
        config.only(original_max_position_embeddings=table.get("original_max_position_embeddings"))
    try:
        scaling = None if kind == "default" else check_scaling({"rope_type": kind, **table})
    except (ValueError, TypeError) as error:
        raise ValueError(f"{config.file}: {name} cannot be read: {error}") from None
    size = int(width * part)
    return {
        "positions": "rotary",
        "max_wavelength": wavelength,
        "rotary_dim": None if size == width else size,
        "rotary_scaling": scaling,
    }


def _windows(config: Config) -> Any:
    """The sliding window of each layer, or None."""
    kind, layers = config.get("model_type"), config.layers("num_hidden_layers")
    if kind == "llama":  # it has none, whatever its configuration says
        return None
    if kind != "mistral" and not config.flag("use_sliding_window", False):
        return None
    if "sliding_window" in config and config.get("sliding_window") is None:  # null is none
        return None
    window, kinds = config.whole("sliding_window", 4096), config.get("layer_types")  # the default of `transformers`
    if kinds is None and kind == "mistral":  # in all layers
        return window
    if kinds is None:
        # The first layers are without a window; none of them may be.
        first = 0 if config.get("max_window_layers") == 0 else config.whole("max_window_layers", 28)
        kinds = ["full_attention" if index < first else "sliding_attention" for index in range(layers)]
    known = ("full_attention", "sliding_attention")
    if not isinstance(kinds, list) or len(kinds) != layers or not all(each in known for each in kinds):
        raise config.wrong("layer_types", f"'full_attention' or 'sliding_attention' for each of the {layers} layers")
    windows = [window if kind == "sliding_attention" else None for kind in kinds]
    return windows if any(windows) else None


def tensors(made: dict[str, Any], size: int, rows: Any) -> Iterator[Tensor]:
    """What the checkpoint holds; see `zoo.checkpoints.gpt2.tensors`."""
    width, hidden, d = made["units"], made["feed_forward_units"], made["key_dim"]
    queries, keys = made["num_heads"] * d, made["num_key_value_heads"] * d
    yield Tensor("embed_tokens.weight", (size, width), "embedding/embeddings", rows)
    if not made["tied_embeddings"]:
        yield Tensor("lm_head.weight", (size, width), "logits/kernel", lambda array: rows(array).T)
    yield Tensor("norm.weight", (width,), "norm/scale")
    for index in range(made["num_layers"]):
        theirs, ours = f"layers.{index}", f"layer_{index + 1}"
        yield Tensor(f"{theirs}.input_layernorm.weight", (width,), f"{ours}/self_attention_norm/scale")
        yield Tensor(f"{theirs}.post_attention_layernorm.weight", (width,), f"{ours}/feed_forward_norm/scale")
        for name, weight, shape in (
            ("self_attn.q_proj", "self_attention/query", (queries, width)),
            ("self_attn.k_proj", "self_attention/key", (keys, width)),
            ("self_attn.v_proj", "self_attention/value", (keys, width)),
            ("self_attn.o_proj", "self_attention/attention_output", (width, queries)),
            ("mlp.gate_proj", "feed_forward/input", (hidden, width)),
            ("mlp.up_proj", "feed_forward/gate", (hidden, width)),
            ("mlp.down_proj", "feed_forward/output", (width, hidden)),
        ):
            yield Tensor(f"{theirs}.{name}.weight", shape, f"{ours}/{weight}/kernel", transposed)
            of_input = name[-6:] in ("q_proj", "k_proj", "v_proj")
            if made["use_qkv_bias" if of_input else "use_bias"]:
                # With `use_bias`, either the attention or the feed-forward network may have none.
                yield Tensor(f"{theirs}.{name}.bias", shape[:1], f"{ours}/{weight}/bias", optional=not of_input)
        if made["use_query_key_norm"]:
            for name, weight in (("q_norm", "query_norm"), ("k_norm", "key_norm")):
                yield Tensor(f"{theirs}.self_attn.{name}.weight", (d,), f"{ours}/self_attention/{weight}/scale")
