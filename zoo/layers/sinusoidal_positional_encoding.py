"""Sinusoidal positional encoding: Vaswani et al. 2017, section 3.5."""

from typing import Any

import keras
from keras import ops

from zoo.layers.checks import check_choice, check_positive_number, check_width
from zoo.layers.functions.positions import frequencies, position_angles
from zoo.layers.functions.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="zoo")
class SinusoidalPositionalEncoding(keras.layers.Layer):
    """Adds waves of the position to the inputs, from wavelength 2 pi up to nearly `2 pi max_wavelength`.

        PE(pos, 2i)     = sin(pos / max_wavelength^(2i/D))
        PE(pos, 2i + 1) = cos(pos / max_wavelength^(2i/D))
        output = inputs + PE

    It has no weights and works for any length. With an odd width, the last frequency has a sine and no cosine. The
    paper multiplies the embeddings by the root of D first; this layer does not. Under a lower precision, angles are
    float32: their error, and so the error of the encoding, is below `position * 2^-23`, for example 0.012 at position
    100,000.

    Axes: B batch, T length, D width.

    Args:
        max_wavelength: 10,000 in the paper.
        pairs: where the sine and the cosine of a frequency stand. "adjacent": at 2i and 2i + 1, as in the paper.
            "halves": all sines in the first half, all cosines in the second, as in Tensor2Tensor and Marian.
        **kwargs: the arguments of every Keras layer.

    Call arguments:
        inputs: `(B, T, D)`.
        positions: integers `(T,)`, or `(B, T)` for rows that differ, as with padding on the left; None counts from 0.

    Returns: `(B, T, D)`.

    Raises:
        ValueError: an argument out of its range, inputs of another rank or unknown width, positions that do not
            fit.

    Example:
        >>> import numpy as np
        >>> encoding = SinusoidalPositionalEncoding()
        >>> np.array(encoding(np.zeros((1, 3, 2))), "float64").round(2).tolist()
        [[[0.0, 1.0], [0.84, 0.54], [0.91, -0.42]]]

    Reference: https://arxiv.org/abs/1706.03762
    """

    def __init__(self, max_wavelength: float = 10_000.0, pairs: str = "adjacent", **kwargs: Any):
        super().__init__(**kwargs)
        self.max_wavelength = check_positive_number("max_wavelength", max_wavelength)
        self.pairs = check_choice("pairs", pairs, ("adjacent", "halves"))
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def build(self, inputs_shape: Shape, positions_shape: Shape | None = None) -> None:
        """Checks that the width is known."""
        check_width("inputs", inputs_shape)

    def call(self, inputs: Tensor, positions: Tensor | None = None) -> Tensor:
        """Add the encoding of each position."""
        width = inputs.shape[-1]
        angles = position_angles(positions, inputs, frequencies(width, self.max_wavelength))  # (T or B, T, D / 2)
        if self.pairs == "halves":
            encoding = ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)  # (T or B, T, D or D + 1)
        else:
            waves = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # (T or B, T, D / 2, 2)
            encoding = ops.reshape(waves, (*ops.shape(angles)[:-1], 2 * angles.shape[-1]))  # (T or B, T, D or D + 1)
        return inputs + ops.cast(encoding[..., :width], self.compute_dtype)

    def compute_output_shape(self, inputs_shape: Shape, positions_shape: Shape | None = None) -> Shape:
        """The shape of the inputs."""
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "max_wavelength": self.max_wavelength, "pairs": self.pairs}
