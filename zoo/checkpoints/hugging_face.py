"""What the importers share: the files of a Hugging Face checkpoint, checked as they are read."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np

from zoo.checkpoints import CONFIG_FILE

_WEIGHTS_FILE, _INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
# Of the published ones Gemma's tokenizer.json is among the largest, with 35 MB.
_LARGEST_JSON = 2**27


def read_json(file: pathlib.Path) -> Any:
    """The content of a JSON file.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: it cannot be read.
    """
    if not file.is_file():
        raise FileNotFoundError(f"{file.parent} is not a whole checkpoint: it has no {file.name}.")
    size = file.stat().st_size
    if size > _LARGEST_JSON:
        raise ValueError(f"{file} cannot be read: it has {size:,} bytes, and more than {_LARGEST_JSON:,} are refused")
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} cannot be read: {error}") from None
    except RecursionError:
        raise ValueError(f"{file} cannot be read: its brackets are nested too deeply") from None


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
