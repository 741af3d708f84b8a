"""GPT-2 as Hugging Face keeps it: a folder with its weights and its vocabulary."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

from zoo.checkpoints.hugging_face import CONFIG_FILE, assign, read_config, read_weights
from zoo.checkpoints.tokenizer_json import read_tokenizer
from zoo.models import GPT
from zoo.tasks.text_generator import TextGenerator
from zoo.text import END, START

_END_PIECE = "<|endoftext|>"
_ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
_ACTIVATIONS |= {name: name for name in ("gelu", "relu", "silu")}
# What changes the computation, and its value here. All else in a config concerns training or generation.
_ONLY = {
    "model_type": "gpt2",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "layer_norm_epsilon": 1e-5,
}
_NEEDED = ("vocab_size", "n_embd", "n_head", "n_layer", "n_positions")


def load_gpt2(path: str | pathlib.Path) -> TextGenerator:
    """Reads a GPT-2 checkpoint of Hugging Face, of any size.

    The folder holds `config.json`; `model.safetensors`, or its parts with their index; and the tokenizer, as
    `tokenizer.json` or as `vocab.json` and `merges.txt`. As there, a prompt is read as it is, and only an empty one
    begins with the end-of-text token. The zoo's ids are the checkpoint's ids plus 4. `<|endoftext|>` in a text
    is text, not the token. Rows of the embeddings beyond the vocabulary (padding) are never written.

    Returns:
        A `TextGenerator` of a `zoo.models.GPT`.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file cannot be read, is of another kind of model, or does not fit the others; the tokenizer has
            more pieces than the model; or a weight is not finite.
    """
    path = pathlib.Path(path)
    config = read_config(path, _ONLY, _NEEDED)  # first, because it names the checkpoint's family
    tokenizer = read_tokenizer(path, {_END_PIECE}, config["vocab_size"])
    weights = read_weights(path)
    vocabulary = tokenizer.get_config()["vocabulary"]
    if len(vocabulary) > config["vocab_size"]:
        raise ValueError(
            f"{path}: the tokenizer has {len(vocabulary)} pieces, and {CONFIG_FILE} a vocab_size of"
            f" {config['vocab_size']}."
        )
    if _END_PIECE not in vocabulary:
        raise ValueError(f"{path}: the tokenizer has no piece {_END_PIECE!r}.")
    first, end = tokenizer.size - len(vocabulary), vocabulary.index(_END_PIECE)
    size = first + config["vocab_size"]
    # The end of text has its own id in the checkpoint, which the zoo's end replaces; padded rows mean nothing.
    unused = [*range(END), first + end, *range(tokenizer.size, size)]
    model = GPT(
        size,
        units=config["n_embd"],
        num_heads=config["n_head"],
        num_layers=config["n_layer"],
        context_length=config["n_positions"],
        feed_forward_units=config.get("n_inner"),
        activation=_activation(config, path),
        unused_ids=unused,
        name="gpt2",
    )
    arrays = _renamed(weights, config["n_layer"])
    if "embedding/embeddings" in arrays:
        embeddings = arrays["embedding/embeddings"]  # (rows of the checkpoint, D)
        special = np.zeros((first, *embeddings.shape[1:]), embeddings.dtype)
        special[[START, END]] = embeddings[end]
        arrays["embedding/embeddings"] = np.concatenate([special, embeddings])  # the zoo's own ids stand before
    assign(model, arrays, path)
    return TextGenerator(model, tokenizer, add_start=False)


def _activation(config: dict[str, Any], path: pathlib.Path) -> str:
    name = config.get("activation_function", "gelu_new")
    if name not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise ValueError(f"{path / CONFIG_FILE}: activation_function is {name!r}; only {known} can be read.")
    return _ACTIVATIONS[name]


def _renamed(weights: dict[str, np.ndarray], layers: int) -> dict[str, np.ndarray]:
    """The checkpoint's arrays by the paths of our weights, of shapes that may differ."""
    weights = {name.removeprefix("transformer."): array for name, array in weights.items()}
    names = {"embedding/embeddings": "wte.weight", "positions/embeddings": "wpe.weight"}
    names |= {"norm/gamma": "ln_f.weight", "norm/beta": "ln_f.bias"}
    for index in range(layers):
        ours, theirs = f"layer_{index + 1}", f"h.{index}"
        for norm, ln in (("self_attention_norm", "ln_1"), ("feed_forward_norm", "ln_2")):
            names |= {f"{ours}/{norm}/gamma": f"{theirs}.{ln}.weight", f"{ours}/{norm}/beta": f"{theirs}.{ln}.bias"}
        for dense, projection in (
            ("self_attention/attention_output", "attn.c_proj"),
            ("feed_forward/input", "mlp.c_fc"),
            ("feed_forward/output", "mlp.c_proj"),
        ):
            names |= {
                f"{ours}/{dense}/kernel": f"{theirs}.{projection}.weight",
                f"{ours}/{dense}/bias": f"{theirs}.{projection}.bias",
            }
        for part, ending in (("kernel", "weight"), ("bias", "bias")):
            together = weights.get(f"{theirs}.attn.c_attn.{ending}")
            if together is not None and together.shape[-1] % 3 == 0:
                for name, third in zip(("query", "key", "value"), np.split(together, 3, axis=-1), strict=True):
                    weights[f"{ours}/self_attention/{name}/{part}"] = third
                    names[f"{ours}/self_attention/{name}/{part}"] = f"{ours}/self_attention/{name}/{part}"
    return {ours: weights[theirs] for ours, theirs in names.items() if theirs in weights}
