"""Rotary position embedding: Su et al. 2021."""

from typing import Any

import keras
from keras import ops

from zoo.layers.checks import check_choice, check_positive, check_positive_number
from zoo.layers.functions.positions import check_scaling, frequencies, position_angles, scaled_frequencies
from zoo.layers.functions.tensors import Shape, Tensor

_PAIRS = ("halves", "adjacent")


@keras.saving.register_keras_serializable(package="zoo")
class RotaryEmbedding(keras.layers.Layer):
    """Rotates pairs of features by angles that grow with the position, so that products depend on distances.

        a_i = position * max_wavelength^(-2i/D)                 for the i-th pair of features (x, y)
        (x, y) -> (x cos a_i - y sin a_i, y cos a_i + x sin a_i)               (equation 34 of Su et al.)

    It is for queries and keys: the product of a query rotated for position m and a key rotated for position n depends
    only on m - n. It has no weights and works for any length and any even width. Under a lower precision, angles and
    their products with the features are float32, and only the sum is rounded; the error of an angle is below
    `position * 2^-23`.

    Axes: B batch, T length, H heads, D width.

    Args:
        max_wavelength: 10,000 in the paper; models for long texts take more.
        pairs: which two features are a pair. "adjacent": (2i, 2i + 1), as in the paper and in GPT-J. "halves":
            (i, i + D/2), as in GPT-NeoX and Llama; cheaper, and the same up to the order of the features.
        rotary_dim: how many features are rotated, counted from the first; the others stay as they are, as in GPT-J and
            GPT-NeoX. None for all.
        scaling: how the angles are made smaller for texts longer than those of the first training, in the words of
            Hugging Face: `{"rope_type": "linear", "factor": 4.0}`, or "llama3" with `factor`, `low_freq_factor`,
            `high_freq_factor` and `original_max_position_embeddings`. None changes nothing.
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
        >>> rotated = RotaryEmbedding()(np.array([[[1.0, 0.0], [1.0, 0.0]]]))  # the same at positions 0 and 1
        >>> np.array(rotated, "float64").round(2).tolist()
        [[[1.0, 0.0], [0.54, 0.84]]]

    Reference: https://arxiv.org/abs/2104.09864
    """

    def __init__(
        self,
        max_wavelength: float = 10_000.0,
        pairs: str = "halves",
        rotary_dim: int | None = None,
        scaling: dict[str, Any] | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.max_wavelength = check_positive_number("max_wavelength", max_wavelength)
        self.pairs = check_choice("pairs", pairs, _PAIRS)
        self.rotary_dim = rotary_dim
        if rotary_dim is not None and check_positive("rotary_dim", rotary_dim) % 2:
            raise ValueError(f"`rotary_dim` must be even. Received: rotary_dim={rotary_dim}")
        self.scaling = check_scaling(scaling)
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(min_ndim=3)

    def build(self, inputs_shape: Shape, positions_shape: Shape | None = None) -> None:
        """Checks the width."""
        self._rotated_width(inputs_shape)

    def _rotated_width(self, inputs_shape: Shape) -> int:
        """How many features are rotated."""
        width = inputs_shape[-1]
        if self.rotary_dim is None:
            if width is None or width % 2:
                raise ValueError(f"The width D must be even, to rotate all features. Received: D={width}")
            return width
        if width is None or width < self.rotary_dim:
            raise ValueError(
                f"The width D must be at least `rotary_dim`. Received: D={width}, rotary_dim={self.rotary_dim}"
            )
        return self.rotary_dim

    def frequencies(self, width: int) -> list[float]:
        """By how many radians each pair of `width` features rotates from one position to the next: `width / 2`."""
        return scaled_frequencies(frequencies(width, self.max_wavelength), self.scaling)

    def call(self, inputs: Tensor, positions: Tensor | None = None) -> Tensor:
        """Rotate each pair of features."""
        width = self._rotated_width(inputs.shape)
        rotated, rest = (inputs, None) if width == inputs.shape[-1] else ops.split(inputs, [width], axis=-1)
        # One angle a feature, -a for the first of a pair and a for the second: since cos -a = cos a and
        # sin -a = -sin a, one expression then serves both lines of the equation.
        steps = self.frequencies(width)  # width / 2 numbers
        if self.pairs == "halves":
            steps = [*(-step for step in steps), *steps]  # width numbers
        else:
            steps = [signed for step in steps for signed in (-step, step)]
        angles = position_angles(positions, inputs, steps)  # (T, 1, ..., width) or (B, T, 1, ..., width)
        rotated = ops.cast(rotated, angles.dtype)  # (B, T, ..., width)
        rotated = rotated * ops.cos(angles) + self._partners(rotated) * ops.sin(angles)
        rotated = ops.cast(rotated, self.compute_dtype)
        return rotated if rest is None else ops.concatenate([rotated, rest], axis=-1)  # (B, T, ..., D)

    def _partners(self, features: Tensor) -> Tensor:
        """The other feature of each pair, in place of the first: the same shape as `features`."""
        if self.pairs == "halves":
            first, second = ops.split(features, 2, axis=-1)  # (..., width / 2)
            return ops.concatenate([second, first], axis=-1)
        shape = ops.shape(features)
        pairs = ops.reshape(features, (*shape[:-1], shape[-1] // 2, 2))  # (..., width / 2, 2)
        return ops.reshape(ops.flip(pairs, axis=-1), shape)

    def compute_output_shape(self, inputs_shape: Shape, positions_shape: Shape | None = None) -> Shape:
        """The shape of the inputs."""
        self._rotated_width(inputs_shape)
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "max_wavelength": self.max_wavelength,
            "pairs": self.pairs,
            "rotary_dim": self.rotary_dim,
            "scaling": self.scaling,
        }
