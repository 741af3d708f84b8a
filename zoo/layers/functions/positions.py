"""Functions for layers of positions: checks of positions, and their angles."""

from typing import Any

import keras
from keras import ops

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
    """By how many radians each pair of features rotates from one position to the next: `max_wavelength^(-2i/width)`.

    With an odd width, the last feature is a pair of one.
    """
    return [max_wavelength ** (-2 * i / width) for i in range((width + 1) // 2)]


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
