"""Reads other people's models, and writes ours in their format: a file for each family.

`loading.load_checkpoint` chooses the family, and `saving.save_checkpoint` is the way back. What all share is in
`hugging_face`: the configuration, and the weights, whose shapes are checked before a model is built. `pytorch_file`
reads the weights of older checkpoints, `tokenizer_json` the tokenizer of any family, and `tokenizer_files` the files
beside it.
"""

from __future__ import annotations

import pathlib

MODULES_FILE = "modules.json"  # of sentence-transformers
CONFIG_FILE, GENERATION_FILE = "config.json", "generation_config.json"
TOKENIZER_CONFIG_FILE, ADDED_TOKENS_FILE = "tokenizer_config.json", "added_tokens.json"


def is_checkpoint(path: pathlib.Path) -> bool:
    """Whether a folder looks like a checkpoint of Hugging Face: a `config.json` with weights or a tokenizer."""
    beside = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin", "tokenizer.json", "vocab.json")
    return (path / CONFIG_FILE).is_file() and any(next(path.glob(name), None) for name in beside)


def other_format(path: pathlib.Path) -> str | None:
    """What a folder holds in place of weights that can be read, and what to do about it; None for nothing known."""
    if (path / "adapter_config.json").is_file():
        return (
            "an adapter of PEFT, without the model that it belongs to; merge the two with PEFT's `merge_and_unload` "
            "and save the result"
        )
    for pattern, name in (("*.gguf", "llama.cpp"), ("tf_model*.h5", "TensorFlow"), ("flax_model*.msgpack", "Flax")):
        if file := next(path.glob(pattern), None):
            return f"{file.name}, the weights in {name}'s format; the zoo reads model.safetensors or pytorch_model.bin"
    return None
