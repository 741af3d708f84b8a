"""From a row of data, such as a line of text or of a table, to the inputs of a signature. Needs only NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.serving.clients.client import to_array
from zoo.serving.clients.messages import TensorSpec
from zoo.tasks.settings import SETTINGS, generates

Row = str | bytes | Mapping[str, Any]


def row_inputs(row: Row, specs: Mapping[str, TensorSpec], settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The inputs of a row `(1, ...)`.

    Args:
        row: a string, or a dict of inputs; what a signature of numbers takes may also come as text.
        specs: the inputs of the signature.
        settings: values for inputs that the row does not have.

    Raises:
        ValueError: an input is missing, has another type or shape, or a setting of a generator is out of its range.
    """
    if isinstance(row, str | bytes):
        row = {text_input(specs): row}
    if not isinstance(row, Mapping):
        raise ValueError(f"a row must be a string or a dict of the inputs {', '.join(specs)}. Received: {row!r}")
    found = {}
    for name in specs:
        value = row[name] if row.get(name) is not None else settings.get(name)
        if value is None:
            known = [repr(key) for key in row if row[key] is not None]
            raise ValueError(f"a row must have {name!r}; it has {', '.join(known) or 'nothing'}")
        found[name] = row_input(name, value, specs)
    return found


def row_input(name: str, value: Any, specs: Mapping[str, TensorSpec]) -> np.ndarray:
    """One input of a row `(1, ...)`; see `row_inputs` for the errors."""
    spec = specs[name]
    if spec.dtype != "string" and isinstance(value, str):
        value = _number(name, value, spec.dtype)
    found = to_array(name, [value], spec)  # (1, ...)
    setting = SETTINGS.get(name)
    if setting and generates(specs) and not ((found >= setting.least) & (found <= setting.most)).all():
        raise ValueError(f"`{name}` must be from {setting.least} to {setting.most}. Received: {name}={value}")
    return found


def text_input(specs: Mapping[str, TensorSpec]) -> str:
    """The input that a row means if it is only a string.

    Raises:
        ValueError: the signature has no input `text`, and not exactly one of strings.
    """
    names = [name for name, spec in specs.items() if spec.dtype == "string"]
    if "text" in names:
        return "text"
    if len(names) != 1:
        raise ValueError(f"a row must be a dict of the inputs {', '.join(specs)}. Received: a string")
    return names[0]


def _number(name: str, text: str, dtype: str) -> int | float:
    try:
        return int(text) if np.dtype(dtype).kind in "iu" else float(text)
    except (TypeError, ValueError):  # also of a type that NumPy does not have
        raise ValueError(f"`{name}` must hold {dtype}. Received: {name}={text!r}") from None
