"""The maxout layer before the output: Bahdanau, Cho and Bengio 2014, appendix A.2.2."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from zoo.layers.checks import check_positive, check_rate, check_width
from zoo.layers.dropout import Dropout
from zoo.layers.functions.tensors import Shape, Tensor, attached_mask
from zoo.layers.outer_layer import OuterLayer, keep_states


@keras.saving.register_keras_serializable(package="zoo")
class MaxoutReadout(OuterLayer):
    """Gathers what the next token depends on into one vector: the deep output of Pascanu et al. 2014.

        t~ = U s + V E y + C c + b          one dense layer over [state; embedding; context]
        t  = the larger of each neighbouring pair of t~

    It needs no loop, so teacher forcing applies it to all steps at once.

    Axes: B batch, T length.

    Args:
        units: width of t, half the width of t~.
        dropout: rate, on t.
        **kwargs: the arguments of every Keras layer.

    Call arguments:
        inputs: a list of tensors `(B, T, *)`: the states s_i, the embedded previous tokens, the contexts.

    Returns: `(B, T, units)`.

    Raises:
        ValueError: an argument out of its range, or one tensor in place of a list.

    Example:
        >>> import numpy as np
        >>> tuple(MaxoutReadout(units=4)([np.ones((2, 3, 5)), np.ones((2, 3, 6))]).shape)
        (2, 3, 4)

    References: https://arxiv.org/abs/1409.0473, https://arxiv.org/abs/1302.4389
    """

    def __init__(self, units: int, dropout: float = 0.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.units = check_positive("units", units)
        self.dropout = check_rate("dropout", dropout)
        self.dense = keras.layers.Dense(2 * self.units, dtype=self.dtype_policy, name="dense")
        self.dropout_layer = Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, input_shapes: Sequence[Shape]) -> None:
        """Creates the kernel over all inputs side by side, and the bias."""
        if not isinstance(input_shapes[0], (list, tuple)):
            _refuse_one(input_shapes)
        self.dense.build((*input_shapes[0][:-1], sum(check_width("inputs", shape) for shape in input_shapes)))
        keep_states(self)

    def call(self, inputs: Any, training: bool | None = False) -> Tensor:
        """Concatenate, project, take the larger of each pair."""
        if not isinstance(inputs, (list, tuple)):
            _refuse_one(inputs.shape)
        projected = self.dense(ops.concatenate(inputs, axis=-1))  # (B, T, 2 units)
        pairs = ops.reshape(projected, (*ops.shape(projected)[:-1], self.units, 2))  # (B, T, units, 2)
        larger = ops.maximum(pairs[..., 0], pairs[..., 1])  # (B, T, units)
        return self.dropout_layer(larger, training=training)

    def compute_mask(self, inputs: list, previous_mask: Any = None) -> Any:
        """The first mask that an input has."""
        masks = [attached_mask(each) for each in inputs]
        return next((mask for mask in masks if mask is not None), None)

    def compute_output_shape(self, input_shapes: Sequence[Shape]) -> Shape:
        """`(B, T, units)`."""
        return (*input_shapes[0][:-1], self.units)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "units": self.units, "dropout": self.dropout}


def _refuse_one(shape: Shape) -> None:
    raise ValueError(f"`inputs` must be a list of tensors. Received: a tensor of shape {tuple(shape)}")
