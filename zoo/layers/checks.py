"""Checks of constructor arguments, worded the same everywhere."""

import math
import numbers
from collections.abc import Collection
from typing import Any


def check_positive(name: str, value: Any, subject: str | None = None) -> int:
    """The value, if it is a positive integer.

    Args:
        name: the argument's name.
        value: its value.
        subject: how the message calls it; None for the name.

    Raises:
        ValueError: it is not; the message names the argument.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{subject or f'`{name}`'} must be a positive integer. Received: {name}={value!r}")
    return int(value)


def check_inputs(layer: Any, args: Any, kwargs: Any) -> None:
    """Refuses a list of query and value, which some of Keras' attention layers take in place of two arguments.

    Raises:
        ValueError: the layer was called with such a list.
    """
    if len(args) == 1 and isinstance(args[0], (list, tuple)) and "value" not in kwargs:
        raise ValueError(
            f"{type(layer).__name__} takes its inputs one by one, layer(query, value) or layer(query, value, key). "
            f"Received: a {type(args[0]).__name__} of {len(args[0])}"
        )


def check_built(layer: Any) -> None:
    """Refuses a layer whose parts are called before it has weights.

    Raises:
        ValueError: the layer is not built.
    """
    if not layer.built:
        raise ValueError(f"{layer.name} has no weights yet; call it once, or `build` it, before its parts.")


def check_width(name: str, shape: Any) -> int:
    """The size of the last axis, if it is known: weights depend on it.

    Raises:
        ValueError: it is not; the message names the input.
    """
    if shape[-1] is None:
        raise ValueError(f"`{name}` must have a known width. Received: {name} of shape {tuple(shape)}")
    return shape[-1]


def check_built_width(name: str, inputs: Any, width: int) -> None:
    """Refuses inputs of another width than that of the weights.

    Raises:
        ValueError: the last axis is another; the message names the input.
    """
    if inputs.shape[-1] not in (None, width):
        raise ValueError(
            f"`{name}` must have the width {width}, which the layer was built for. "
            f"Received: {name} of shape {tuple(inputs.shape)}"
        )


def check_choice(name: str, value: Any, choices: Collection[Any]) -> Any:
    """The value, if it is one of the choices.

    Raises:
        ValueError: it is not; the message names the argument and the choices.
    """
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"`{name}` must be one of {listed}. Received: {name}={value!r}")
    return value


def check_rate(name: str, value: Any) -> float:
    """The value, if it is a dropout rate, at least 0 and below 1.

    Raises:
        ValueError: it is not; the message names the argument.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 <= float(value) < 1:
        raise ValueError(f"`{name}` must be at least 0 and below 1. Received: {name}={value!r}")
    return _plain(value)


def check_positive_number(name: str, value: Any) -> float:
    """The value, if it is a positive, finite number.

    Raises:
        ValueError: it is not; the message names the argument.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < math.inf:
        raise ValueError(f"`{name}` must be a positive number. Received: {name}={value!r}")
    return _plain(value)


def _plain(number: Any) -> float:
    """NumPy's numbers as Python's, which a configuration in JSON can hold."""
    return number if isinstance(number, (int, float)) else float(number)
