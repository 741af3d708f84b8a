"""What the importers share: the files of a Hugging Face checkpoint, checked as they are read."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np

from zoo.checkpoints import CONFIG_FILE
from zoo.text import BytePairTokenizer

_WEIGHTS_FILE, _INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
_TOKENIZER_FILE, _VOCABULARY_FILE, _MERGES_FILE = "tokenizer.json", "vocab.json", "merges.txt"


def read_json(file: pathlib.Path) -> Any:
    """The content of a JSON file.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: it cannot be read.
    """
    if not file.is_file():
        raise FileNotFoundError(f"{file.parent} is not a whole checkpoint: it has no {file.name}.")
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} cannot be read: {error}") from None


def read_config(path: pathlib.Path, only: Mapping[str, Any], needed: Iterable[str]) -> dict[str, Any]:
    """The checkpoint's `config.json`.

    Args:
        path: the checkpoint's folder.
        only: entries that change the computation, and the only value of each that can be read.
        needed: entries that must be there.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it cannot be read, has another value, or lacks an entry.
    """
    file = path / CONFIG_FILE
    config = read_json(file)
    for name, value in only.items():
        if config.get(name, value) != value:
            raise ValueError(f"{file}: {name} is {config[name]!r}; only {value!r} can be read.")
    missing = [name for name in needed if name not in config]
    if missing:
        raise ValueError(f"{file} lacks {', '.join(missing)}.")
    return config


def read_weights(path: pathlib.Path) -> dict[str, np.ndarray]:
    """The arrays of `model.safetensors`, or of the files that `model.safetensors.index.json` lists, by name.

    Raises:
        FileNotFoundError: a file is missing, or the weights are in no safetensors.
        ValueError: a file cannot be read, or an array holds NaN or infinity.
    """
    import safetensors
    import safetensors.numpy

    files = [_WEIGHTS_FILE]
    if not (path / _WEIGHTS_FILE).is_file() and (path / _INDEX_FILE).is_file():
        files = sorted(set(read_json(path / _INDEX_FILE).get("weight_map", {}).values()))
        outside = [name for name in files if pathlib.PurePath(name).name != name]
        if outside or not files:
            raise ValueError(f"{path / _INDEX_FILE} must name files of its folder. It names {outside or 'none'}.")
    weights: dict[str, np.ndarray] = {}
    for name in files:
        if not (path / name).is_file():
            advice = ""
            if next(path.glob("pytorch_model*.bin"), None):
                advice = " Its weights are in pytorch_model*.bin; save it with transformers, as safetensors."
            raise FileNotFoundError(f"{path} is not a whole checkpoint: it has no {name}.{advice}")
        try:
            weights |= safetensors.numpy.load_file(path / name)
        except (safetensors.SafetensorError, TypeError) as error:
            raise ValueError(f"{path / name} cannot be read: {error}") from None
    for name, array in weights.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"{path}: {name} holds NaN or infinity; the checkpoint is broken.")
    return weights


def read_byte_pairs(path: pathlib.Path, known: Iterable[str]) -> BytePairTokenizer:
    """The byte-level vocabulary in `vocab.json` and `merges.txt`, or in `tokenizer.json`.

    An added token is cut out of a text before all else, which the graph does not do. So a checkpoint that has one
    besides those that are `known`, and the one for padding, is refused: its texts would silently get other ids.

    Args:
        path: the checkpoint's folder.
        known: added tokens that the importer handles.

    Raises:
        FileNotFoundError: there is neither.
        ValueError: a file cannot be read, it is not a byte-level vocabulary, or tokens were added.
    """
    content = read_json(path / _TOKENIZER_FILE) if (path / _TOKENIZER_FILE).is_file() else None
    added = set() if content is None else {token["content"] for token in content.get("added_tokens", ())}
    if (path / "added_tokens.json").is_file():
        added |= read_json(path / "added_tokens.json").keys()
    settings = read_json(path / "tokenizer_config.json") if (path / "tokenizer_config.json").is_file() else {}
    added |= {token["content"] for token in settings.get("added_tokens_decoder", {}).values()}
    padding = settings.get("pad_token")
    unknown = sorted(added - {*known, padding["content"] if isinstance(padding, dict) else padding})
    if unknown:
        raise ValueError(
            f"{path}: the tokenizer has the added tokens {', '.join(map(repr, unknown))}, which cannot be read. "
            "If the model never saw them, remove them from the tokenizer's files."
        )
    try:
        if content is not None:
            _check_pipeline(content)
        if content is None or (path / _VOCABULARY_FILE).is_file():
            for name in (_VOCABULARY_FILE, _MERGES_FILE):
                if not (path / name).is_file():
                    instead = f" (and no {_TOKENIZER_FILE})" if content is None else ""
                    raise FileNotFoundError(f"{path} is not a whole checkpoint: it has no {name}{instead}.")
            return BytePairTokenizer.from_files(path / _VOCABULARY_FILE, path / _MERGES_FILE)
        ids = content["model"]["vocab"] | {
            token["content"]: token["id"] for token in content.get("added_tokens", ()) if token["content"] in known
        }
        vocabulary = sorted(ids, key=ids.get)
        if [ids[piece] for piece in vocabulary] != list(range(len(ids))):
            raise ValueError(f"its ids must be 0 to {len(ids) - 1}, each once")
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in content["model"]["merges"]]
        return BytePairTokenizer(vocabulary, merges)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path}: the vocabulary cannot be read: {error}") from None


def _check_pipeline(content: dict[str, Any]) -> None:
    """Refuses a `tokenizer.json` that cuts texts in another way than GPT-2."""
    if content["model"].get("type") != "BPE":
        raise ValueError(f"its model is {content['model'].get('type')!r}; only 'BPE' can be read")
    if content.get("normalizer") is not None:
        raise ValueError("it has a normalizer, which cannot be read")
    cut = content.get("pre_tokenizer") or {}
    if (cut.get("type"), cut.get("add_prefix_space"), cut.get("use_regex", True)) != ("ByteLevel", False, True):
        raise ValueError("its pre_tokenizer is not GPT-2's: ByteLevel without a space before the text")


def assign(model: keras.Model, arrays: Mapping[str, np.ndarray], path: pathlib.Path) -> None:
    """Gives each weight of a model the array with its path, in the weight's shape.

    Raises:
        ValueError: there is none, or it is of another size.
    """
    for weight in model.weights:
        array = arrays.get(weight.path)
        if array is None:
            raise ValueError(f"{path}: the weights lack what is {weight.path} here.")
        if array.size != np.prod(weight.shape):
            raise ValueError(f"{path}: {weight.path} has the shape {array.shape}, which does not fit {weight.shape}.")
        weight.assign(array.reshape(weight.shape))
