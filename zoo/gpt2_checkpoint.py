"""GPT-2 as Hugging Face keeps it: a folder with its weights and its vocabulary."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np

from zoo.models import GPT
from zoo.tasks.text_generator import TextGenerator
from zoo.text import END, START, BytePairTokenizer

CONFIG_FILE, _WEIGHTS_FILE = "config.json", "model.safetensors"
_FILES = (CONFIG_FILE, _WEIGHTS_FILE, "vocab.json", "merges.txt")
_END_PIECE = "<|endoftext|>"
_ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
_ACTIVATIONS |= {name: name for name in ("gelu", "relu", "silu")}
# What changes the computation, and the value that it is here. All else of a config concerns training or generation.
_ONLY = {
    "model_type": "gpt2",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "layer_norm_epsilon": 1e-5,
}


def is_gpt2(path: pathlib.Path) -> bool:
    """Whether a folder looks like a checkpoint of `load_gpt2`."""
    return (path / CONFIG_FILE).is_file() and any((path / name).is_file() for name in _FILES[1:])


def load_gpt2(path: str | pathlib.Path) -> TextGenerator:
    """Reads a GPT-2 checkpoint of Hugging Face, of any size.

    The folder holds `config.json`, `model.safetensors`, `vocab.json` and `merges.txt`. As there, a prompt is read as it
    is, and only an empty one begins with the end-of-text token. Ids are those of the zoo: the checkpoint's are 4 less.
    `<|endoftext|>` in a text is text, not the token.

    Returns:
        A `TextGenerator` of a `zoo.models.GPT`.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file cannot be read, is of another kind of model, or does not fit the others.
    """
    import safetensors
    import safetensors.numpy

    path = pathlib.Path(path)
    for name in _FILES:
        if not (path / name).is_file():
            raise FileNotFoundError(f"{path} is not a whole GPT-2 checkpoint: it has no {name}.")
    config = _config(path / CONFIG_FILE)
    try:
        weights = safetensors.numpy.load_file(path / _WEIGHTS_FILE)
    except (safetensors.SafetensorError, TypeError) as error:
        raise ValueError(f"{path / _WEIGHTS_FILE} cannot be read: {error}") from None
    try:
        tokenizer = BytePairTokenizer.from_files(path / "vocab.json", path / "merges.txt")
    except ValueError as error:
        raise ValueError(f"{path}: the vocabulary cannot be read: {error}") from None
    vocabulary = tokenizer.get_config()["vocabulary"]
    if len(vocabulary) > config["vocab_size"]:
        raise ValueError(
            f"{path}: vocab.json has {len(vocabulary)} pieces, and {CONFIG_FILE} a vocab_size of"
            f" {config['vocab_size']}."
        )
    if _END_PIECE not in vocabulary:
        raise ValueError(f"{path}: vocab.json has no piece {_END_PIECE!r}.")
    first, end = tokenizer.size - len(vocabulary), vocabulary.index(_END_PIECE)
    size = first + config["vocab_size"]
    # What the zoo's end token stands for has an id of its own in the checkpoint; the rows beyond the vocabulary none.
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
    _assign(model, _renamed(weights, config["n_layer"]), first, end, path / _WEIGHTS_FILE)
    return TextGenerator(model, tokenizer, add_start=False)


def _config(file: pathlib.Path) -> dict[str, Any]:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} cannot be read: {error}") from None
    for name, value in _ONLY.items():
        if config.get(name, value) != value:
            raise ValueError(f"{file}: {name} is {config[name]!r}; only {value!r} can be read.")
    missing = [name for name in ("vocab_size", "n_embd", "n_head", "n_layer", "n_positions") if name not in config]
    if missing:
        raise ValueError(f"{file} lacks {', '.join(missing)}.")
    return config


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


def _assign(model: GPT, arrays: dict[str, np.ndarray], first: int, end: int, file: pathlib.Path) -> None:
    """Gives the model its weights, the embeddings with rows for the zoo's own ids before them."""
    if "embedding/embeddings" in arrays:
        embeddings = arrays["embedding/embeddings"]
        special = np.zeros((first, *embeddings.shape[1:]), embeddings.dtype)
        special[[START, END]] = embeddings[end]
        arrays["embedding/embeddings"] = np.concatenate([special, embeddings])
    for weight in model.weights:
        array = arrays.get(weight.path)
        if array is None:
            raise ValueError(f"{file} lacks what is {weight.path} here.")
        if array.size != np.prod(weight.shape):
            raise ValueError(f"{file}: {weight.path} has the shape {array.shape}, which does not fit {weight.shape}.")
        weight.assign(array.reshape(weight.shape))
