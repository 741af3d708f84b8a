"""Values on their way to a server and back: lists, NumPy arrays, JSON."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from zoo.serving.clients.metadata import TensorSpec

_FITTING = {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}  # the kinds of NumPy that become each kind without loss


def to_array(name: str, value: Any, spec: TensorSpec) -> np.ndarray:
    """What is sent as an input: an array of the signature's type, of strings one of `bytes`.

    Args:
        name: the input's, for messages.
        value: a list, nested or not, or anything that NumPy takes for an array; of numbers, or of `str` and `bytes`.
        spec: what the signature takes.

    Raises:
        ValueError: it holds something else, or has another shape.
    """
    array = _strings(name, value) if spec.dtype == "string" else _numbers(name, value, spec.dtype)
    if spec.shape is not None and (
        array.ndim != len(spec.shape)
        or any(size not in (None, given) for size, given in zip(spec.shape, array.shape, strict=True))
    ):
        raise ValueError(f"`{name}` must have the shape {_shown(spec.shape)}. Received: {_shown(array.shape)}")
    return array


def to_json(array: np.ndarray) -> Any:
    """Nested lists for JSON: strings as they are where they are UTF-8, and else as `{"b64": ...}`."""
    if array.dtype != object:
        return array.tolist()
    flat = np.empty(array.size, object)
    flat[:] = [_string_to_json(each) for each in array.ravel()]
    return flat.reshape(array.shape).tolist()


def from_json(value: Any, spec: TensorSpec) -> np.ndarray:
    """The array that nested lists from JSON stand for, of strings one of `bytes`.

    Where an axis has size 0, JSON does not tell the sizes of those behind it; they become 0 as well.

    Raises:
        ValueError: the value is no array of that type.
    """
    array: np.ndarray
    if spec.dtype == "string":
        nested = np.array(value, dtype=object)
        array = np.empty(nested.size, object)
        array[:] = [_string_from_json(each) for each in nested.ravel()]
        array = array.reshape(nested.shape)
    else:
        array = np.array(value, dtype=spec.dtype)
    if not array.size and spec.shape is not None:
        array = array.reshape(array.shape + (0,) * (len(spec.shape) - array.ndim))
    return array


def _strings(name, value):
    given = np.array(value, dtype=object)
    array = np.empty(given.size, object)
    for place, each in enumerate(given.ravel()):
        if not isinstance(each, str | bytes):
            raise ValueError(f"`{name}` must hold strings, in lists of equal lengths. Received: {each!r}")
        array[place] = each.encode("utf-8", "replace") if isinstance(each, str) else bytes(each)
    return array.reshape(given.shape)


def _numbers(name, value, dtype):
    try:
        wanted = np.dtype(dtype)
        fitting = _FITTING[wanted.kind]
    except (TypeError, KeyError):
        raise ValueError(f"`{name}` takes {dtype}, which this client cannot send.") from None
    try:
        array = np.asarray(value)
    except ValueError:  # lists of unequal lengths
        raise ValueError(f"`{name}` must hold {wanted} in lists of equal lengths. Received: {value!r}") from None
    if array.size and array.dtype.kind not in fitting:
        raise ValueError(f"`{name}` must hold {wanted}. Received: {name}={value!r}")
    if array.size and wanted.kind in "iu":
        limits = np.iinfo(wanted)
        if array.min() < limits.min or array.max() > limits.max:
            raise ValueError(f"`{name}` must be from {limits.min} to {limits.max}. Received: {name}={value!r}")
    return array.astype(wanted)


def _shown(shape):
    return f"[{', '.join('any' if size is None else str(size) for size in shape)}]"


def _string_to_json(value: bytes) -> str | dict:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


def _string_from_json(value: str | dict) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    if isinstance(value, dict) and isinstance(value.get("b64"), str):
        return base64.b64decode(value["b64"], validate=True)
    raise ValueError(f"{value!r} is no string")
