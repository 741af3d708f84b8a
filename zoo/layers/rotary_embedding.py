"""Rotary position embedding: Su et al. 2021."""

from typing import Any

import keras
from keras import ops

from zoo.layers.checks import check_choice, check_positive, check_positive_number
from zoo.layers.functions.positions import frequencies, position_angles
from zoo.layers.functions.tensors import Shape, Tensor

_PAIRS = ("halves", "adjacent")


@keras.saving.register_keras_serializable(package="zoo")
class RotaryEmbedding(keras.layers.Layer):
    """Turns pairs of features by angles that grow with the position, so that products depend on distances.

        a_i = position * max_wavelength^(-2i/D)                 for the i-th pair of features (x, y)
        (x, y) -> (x cos a_i - y sin a_i, y cos a_i + x sin a_i)               (equation 34 of Su et al.)

    It is for queries and keys: the product of a query turned for position m and a key turned for n depends on m - n
    alone. It has no weights and serves any length and any even width. Angles are float32 under lower precisions, with
    an error below `position * 2^-23`, and so are the products with their sines; only the sum is rounded.

    Axes: B batch, T length, H heads, D width.

    Args:
        max_wavelength: 10,000 in the paper; models for long texts take more.
        pairs: which features make a pair. "adjacent": (2i, 2i + 1), as in the paper and in GPT-J. "halves":
            (i, i + D/2), as in GPT-NeoX and Llama; cheaper, and the same up to the order of the features.
        rotary_dim: how many features are turned, counted from the first; the others stay as they are, as in GPT-J and
            GPT-NeoX. None for all.
        **kwargs: the arguments of every Keras layer.

    Call arguments:
        inputs: `(B, T, ..., D)`, usually `(B, T, H, D)`.
        positions: integers `(T,)`, or `(B, T)` for rows that differ, as with padding on the left; None counts from 0.

    Returns: the shape of the inputs.

    Raises:
        ValueError: an argument out of its range, inputs with fewer axes, with an odd or unknown width or one below
            `rotary_dim`, positions that do not fit.

    Example:
        >>> import numpy as np
        >>> turned = RotaryEmbedding()(np.array([[[1.0, 0.0], [1.0, 0.0]]]))  # the same at positions 0 and 1
        >>> np.array(turned, "float64").round(2).tolist()
        [[[1.0, 0.0], [0.54, 0.84]]]

    Reference: https://arxiv.org/abs/2104.09864
    """

    def __init__(
        self, max_wavelength: float = 10_000.0, pairs: str = "halves", rotary_dim: int | None = None, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.max_wavelength = check_positive_number("max_wavelength", max_wavelength)
        self.pairs = check_choice("pairs", pairs, _PAIRS)
        self.rotary_dim = rotary_dim
        if rotary_dim is not None and check_positive("rotary_dim", rotary_dim) % 2:
            raise ValueError(f"`rotary_dim` must be even. Received: rotary_dim={rotary_dim}")
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(min_ndim=3)

    def build(self, inputs_shape: Shape, positions_shape: Shape | None = None) -> None:
        """Checks the width."""
        self._turned_width(inputs_shape)

    def _turned_width(self, inputs_shape: Shape) -> int:
        """How many features turn."""
        width = inputs_shape[-1]
        if self.rotary_dim is None:
            if width is None or width % 2:
                raise ValueError(f"The width D must be even, to turn all features. Received: D={width}")
            return width
        if width is None or width < self.rotary_dim:
            raise ValueError(
                f"The width D must be at least `rotary_dim`. Received: D={width}, rotary_dim={self.rotary_dim}"
            )
        return self.rotary_dim

    def call(self, inputs: Tensor, positions: Tensor | None = None) -> Tensor:
        """Turn each pair of features."""
        width = self._turned_width(inputs.shape)
        turned, rest = (inputs, None) if width == inputs.shape[-1] else ops.split(inputs, [width], axis=-1)
        # One angle a feature: -a for the first of a pair, a for the second, for cos -a = cos a and sin -a = -sin a.
        turns = frequencies(width, self.max_wavelength)
        if self.pairs == "halves":
            turns = [*(-turn for turn in turns), *turns]
        else:
            turns = [signed for turn in turns for signed in (-turn, turn)]
        angles = position_angles(positions, inputs, turns)
        turned = ops.cast(turned, angles.dtype)
        turned = turned * ops.cos(angles) + self._partners(turned) * ops.sin(angles)
        turned = ops.cast(turned, self.compute_dtype)
        return turned if rest is None else ops.concatenate([turned, rest], axis=-1)

    def _partners(self, features: Tensor) -> Tensor:
        """In the place of each feature, the other one of its pair."""
        if self.pairs == "halves":
            first, second = ops.split(features, 2, axis=-1)
            return ops.concatenate([second, first], axis=-1)
        shape = ops.shape(features)
        return ops.reshape(ops.flip(ops.reshape(features, (*shape[:-1], shape[-1] // 2, 2)), axis=-1), shape)

    def compute_output_shape(self, inputs_shape: Shape, positions_shape: Shape | None = None) -> Shape:
        """The inputs'."""
        self._turned_width(inputs_shape)
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "max_wavelength": self.max_wavelength,
            "pairs": self.pairs,
            "rotary_dim": self.rotary_dim,
        }
