"""Reads other people's models, and writes ours in their format: a file for each family.

`loading.load_checkpoint` chooses the family, and `saving.save_checkpoint` is the way back. What the families share:

- `config`: the configuration;
- `tensors`: the weights, whose shapes are checked before a model is built; `pytorch_file` reads those of older
  checkpoints;
- `tokenizer_json`, `word_piece_json`: the tokenizer, from `tokenizer_components` and from `tokenizer_files`, which are
  the files beside it; `special_tokens` says what its special tokens are for.
"""

from __future__ import annotations

import pathlib

MODULES_FILE = "modules.json"  # of sentence-transformers
CONFIG_FILE, GENERATION_FILE = "config.json", "generation_config.json"
TOKENIZER_CONFIG_FILE, ADDED_TOKENS_FILE = "tokenizer_config.json", "added_tokens.json"
ADAPTER_FILE = "adapter_config.json"  # of PEFT
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_OTHER_WEIGHTS = {
    "*.gguf": "llama.cpp",
    "tf_model*.h5": "TensorFlow",
    "flax_model*.msgpack": "Flax",
    "*.onnx": "ONNX",
    "onnx/*.onnx": "ONNX",
    "openvino_model.xml": "OpenVINO",
    "model.bin": "CTranslate2",
    "consolidated*.pth": "Llama",
}
_UNFINISHED = ("*.incomplete", "*.crdownload", "*.part", ".cache/huggingface/download/*.incomplete")
_WHOLE = {".safetensors": "model.safetensors", ".bin": "pytorch_model.bin"}


def is_checkpoint(path: pathlib.Path) -> bool:
    """Whether a folder looks like a checkpoint of Hugging Face, if perhaps not a whole one.

    It has a `config.json` that names a `model_type`, or that has weights or a tokenizer beside it.
    """
    beside = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin", "tokenizer.json", "vocab.json")
    config = path / CONFIG_FILE
    return config.is_file() and (
        b'"model_type"' in config.read_bytes() or any(next(path.glob(name), None) for name in beside)
    )


def hub_name(path: pathlib.Path) -> str | None:
    """The hub's name of a checkpoint in its cache, from the folder `models--ORG--NAME/snapshots/HASH`; None elsewhere.

    Returns:
        ORG/NAME, or NAME of a model without an organisation.
    """
    snapshots, model = path.resolve().parent, path.resolve().parent.parent.name
    if snapshots.name != "snapshots" or not model.startswith("models--"):
        return None
    return model.removeprefix("models--").replace("--", "/")


def hub_hint(path: pathlib.Path) -> str:
    """What to do about a missing folder, if its name looks like that of a model on the hub: ORGANISATION/MODEL."""
    if path.is_absolute() or len(path.parts) != 2 or path.parent.exists() or path.parts[0] in ("runs", "saved_models"):
        return ""
    return f"; a model of the Hugging Face Hub must be downloaded first: hf download {path} --local-dir FOLDER"


def other_format(path: pathlib.Path) -> str | None:
    """What a folder holds in place of a checkpoint that can be read, and what to do about it; None for nothing known.

    For folders without weights of their own.
    """
    if (path / ADAPTER_FILE).is_file():
        return (
            "an adapter of PEFT, without the model that it belongs to; merge the two with PEFT's `merge_and_unload` "
            "and save the result"
        )
    for pattern in _UNFINISHED:
        if file := next(path.glob(pattern), None):
            return f"{file.relative_to(path)}, a download that has not ended; start it again"
    for pattern, name in _OTHER_WEIGHTS.items():
        if file := next(path.glob(pattern), None):
            shown = file.relative_to(path)
            return f"{shown}, the weights in {name}'s format; the zoo reads model.safetensors or pytorch_model.bin"
    if file := next((file for name in _WEIGHTS for file in path.glob(name)), None):
        lacks = CONFIG_FILE if not (path / CONFIG_FILE).is_file() else f"index and no {_WHOLE[file.suffix]}"
        return f"{file.name}, but no {lacks}"
    # The cache of the hub has a folder for each version; a repository may have the checkpoint in a subfolder.
    if below := next(
        (file.parent for name in ("*", "snapshots/*") for file in path.glob(f"{name}/{CONFIG_FILE}")), None
    ):
        return f"no checkpoint, but {below} may be one"
    return None
