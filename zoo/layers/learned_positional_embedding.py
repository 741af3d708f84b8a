"""Learned positional embedding: Gehring et al. 2017, section 3.1."""

from typing import Any

import keras
from keras import ops

from zoo.layers.checks import check_positive, check_width
from zoo.layers.functions.positions import check_positions
from zoo.layers.functions.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="zoo")
class LearnedPositionalEmbedding(keras.layers.Layer):
    """Adds a learned vector for each position to the inputs, as GPT and BERT do.

        output_t = inputs_t + P[position_t]

    Axes: B batch, T length, D width.

    Args:
        max_length: the number of positions; longer inputs are refused.
        embeddings_initializer: initializer of P; the default is that of `keras.layers.Embedding`.
        **kwargs: the arguments of every Keras layer.

    Call arguments:
        inputs: `(B, T, D)`.
        positions: integers below `max_length`, `(T,)`, or `(B, T)` for rows that differ, as with padding on the left;
            None counts from 0. Negative positions count from the end of P. The result for positions beyond P depends
            on the backend.

    Returns: `(B, T, D)`.

    Raises:
        ValueError: a length that is not positive, inputs of another rank or width, longer than `max_length` without
            positions, or positions that do not fit.

    Example:
        >>> import numpy as np
        >>> embedding = LearnedPositionalEmbedding(max_length=8, embeddings_initializer="ones")
        >>> np.array(embedding(np.zeros((1, 2, 3)))).tolist()
        [[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]]

    Reference: https://arxiv.org/abs/1705.03122
    """

    def __init__(self, max_length: int, embeddings_initializer: Any = "uniform", **kwargs: Any):
        super().__init__(**kwargs)
        self.max_length = check_positive("max_length", max_length)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def build(self, inputs_shape: Shape, positions_shape: Shape | None = None) -> None:
        """Creates P `(max_length, D)`."""
        width = check_width("inputs", inputs_shape)
        self.input_spec = keras.layers.InputSpec(ndim=3, axes={-1: width})
        # Without autocasting: it would cast the whole table, not only the rows in use.
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.max_length, width),
            initializer=self.embeddings_initializer,
            autocast=False,
        )

    def call(self, inputs: Tensor, positions: Tensor | None = None) -> Tensor:
        """Add the vector of each position."""
        if positions is None:
            self._check_length(inputs.shape)
            # A slice, and not a lookup: it also refuses a length that is too large but known only at run time.
            table = ops.convert_to_tensor(self.embeddings)  # JAX cannot slice a variable
            rows = ops.slice(table, (0, 0), (ops.shape(inputs)[1], inputs.shape[-1]))  # (T, D)
        else:
            rows = ops.take(
                self.embeddings, ops.cast(check_positions(positions, inputs), "int32"), axis=0
            )  # (T, D) or (B, T, D)
        return inputs + ops.cast(rows, self.compute_dtype)

    def _check_length(self, inputs_shape: Shape) -> None:
        length = inputs_shape[1]
        if length is not None and length > self.max_length:
            raise ValueError(
                f"Inputs must be no longer than `max_length`, unless positions are given. Received: inputs of length "
                f"{length}, max_length={self.max_length}"
            )

    def compute_output_shape(self, inputs_shape: Shape, positions_shape: Shape | None = None) -> Shape:
        """The shape of the inputs."""
        if positions_shape is None:
            self._check_length(inputs_shape)
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "max_length": self.max_length,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
        }
