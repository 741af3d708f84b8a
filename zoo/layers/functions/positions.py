"""Functions for layers of positions: checks of positions, and their angles."""

import math
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from zoo.layers.checks import check_positive_number
from zoo.layers.functions.tensors import Tensor, scores_dtype


def check_positions(positions: Tensor, inputs: Tensor) -> Tensor:
    """The positions as a tensor, if they fit the inputs.

    Args:
        positions: integers `(T,)`, `(B, T)` or `(1, T)`.
        inputs: `(B, T, ...)`.

    Raises:
        ValueError: they do not fit, or are not integers. (A layer casts floats to its compute dtype, and bfloat16
            cannot hold 257.)
    """
    positions = ops.convert_to_tensor(positions)
    shape, inputs_shape = tuple(positions.shape), tuple(inputs.shape)
    whole = (inputs_shape[1],) if len(shape) == 1 else inputs_shape[:2]
    fits = len(shape) == len(whole) and all(
        None in (size, expected) or size == expected or (size == 1 and axis < len(whole) - 1)
        for axis, (size, expected) in enumerate(zip(shape, whole, strict=True))
    )
    dtype = keras.backend.standardize_dtype(positions.dtype)
    if not fits or not keras.backend.is_int_dtype(dtype):
        raise ValueError(
            f"`positions` must be integers (T,) or (B, T) for inputs (B, T, ...). Received: positions {shape} of "
            f"{dtype}, inputs {inputs_shape}"
        )
    return positions


def frequencies(width: int, max_wavelength: float) -> Any:
    """The radians by which each pair of features rotates from one position to the next: `max_wavelength^(-2i/width)`.

    With an odd width, the last feature is a pair of one.
    """
    return [max_wavelength ** (-2 * i / width) for i in range((width + 1) // 2)]


_SCALING = {
    "linear": {"factor"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
}


def check_scaling(scaling: Any) -> dict[str, Any] | None:
    """The scaling of rotary positions as a dict, if `scaled_frequencies` knows it; None for None.

    Raises:
        ValueError: an unknown kind, a missing or unknown key, or a number that is not positive.
    """
    if scaling is None:
        return None
    if not isinstance(scaling, Mapping) or scaling.get("rope_type") not in _SCALING:
        raise ValueError(
            f"`scaling` must be None or a dict with the `rope_type` {' or '.join(map(repr, _SCALING))}. "
            f"Received: scaling={scaling!r}"
        )
    names = _SCALING[scaling["rope_type"]]
    numbers = {name: value for name, value in scaling.items() if name != "rope_type"}
    if numbers.keys() != names:
        raise ValueError(
            f"`scaling` of the `rope_type` {scaling['rope_type']!r} has the keys {', '.join(sorted(names))}. "
            f"Received: scaling={scaling!r}"
        )
    numbers = {name: check_positive_number(name, value) for name, value in numbers.items()}
    if numbers.get("low_freq_factor", 0) >= numbers.get("high_freq_factor", 1):
        raise ValueError(f"`low_freq_factor` must be below `high_freq_factor`. Received: scaling={scaling!r}")
    return {"rope_type": scaling["rope_type"], **numbers}


def scaled_frequencies(frequencies: list[float], scaling: Mapping[str, Any] | None) -> list[float]:
    """The frequencies of rotary positions of a model that was trained further on longer texts.

    "linear" divides all by `factor` (Chen et al. 2023). "llama3" divides only the slow ones: those that rotate fewer
    than `low_freq_factor` times over `original_max_position_embeddings` positions. The fast ones, above
    `high_freq_factor` times, stay, and between the two limits the divisor changes linearly.

    Args:
        frequencies: radians per position.
        scaling: checked by `check_scaling`; None changes nothing.

    References: https://arxiv.org/abs/2306.15595 (linear), https://arxiv.org/abs/2407.21783 (llama3)
    """
    if scaling is None:
        return frequencies
    factor = scaling["factor"]
    if scaling["rope_type"] == "linear":
        return [frequency / factor for frequency in frequencies]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    scaled = []
    for frequency in frequencies:
        rotations = scaling["original_max_position_embeddings"] * frequency / (2 * math.pi)
        kept = min(max((rotations - low) / (high - low), 0.0), 1.0)  # 0 for slow ones, 1 for fast ones
        scaled.append((1 - kept) * frequency / factor + kept * frequency)
    return scaled


def position_angles(positions: Tensor, inputs: Tensor, frequencies: Any) -> Tensor:
    """Position times frequency, in float32, or in float64 if the inputs are.

    Args:
        positions: integers `(T,)` or `(B, T)`; None counts from 0.
        inputs: `(B, T, ..., D)`.
        frequencies: numbers.

    Returns:
        `(T, 1, ..., F)`, or `(B, T, 1, ..., F)` for positions of each row: it broadcasts over the inputs' axes.
    """
    dtype = scores_dtype(keras.backend.standardize_dtype(inputs.dtype))
    if positions is None:
        positions = ops.arange(ops.shape(inputs)[1], dtype=dtype)
    else:
        positions = ops.cast(check_positions(positions, inputs), dtype)
    positions = positions[(..., *(None for _ in inputs.shape[2:]))]
    return positions * ops.convert_to_tensor(frequencies, dtype)
