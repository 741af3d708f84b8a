"""Self-attention without learned parameters: stage 3 of the layers' page."""

from typing import Any

import keras
from keras import ops

from zoo.layers.functions.masks import masked_softmax, pairs_mask, tokens_mask, weights_spec
from zoo.layers.functions.tensors import Shape, Tensor, at_least_float32
from zoo.layers.masked_layer import MaskedLayer


@keras.saving.register_keras_serializable(package="zoo")
class SimpleSelfAttention(MaskedLayer):
    """Each token becomes an average of all tokens, weighted by their similarity.

        scores = x x^T,  weights = softmax(scores) over the tokens attended to,  context = weights x

    No weights are learnt: a token attends most to tokens whose vectors point in its direction, usually to itself. The
    layer shows the bare idea of attention; models use `SelfAttention`.

    Axes: B batch, T length, D width.

    Args:
        **kwargs: the arguments of every Keras layer.

    Call arguments:
        inputs: `(B, T, D)`.
        mask: boolean `(B, T)`, or `(1, T)` for all rows, True at real tokens: the others attend to nothing and are not
            attended to. Or `(B, T, T)`, True where the first token may attend to the second. It replaces the mask that
            Keras attached to the inputs; None takes that one, or allows all.
        return_attention_scores: whether to return the attention weights too.

    Returns:
        The context `(B, T, D)`, and if asked for, the weights `(B, T, T)` in float32. A token that may attend to
        nothing gets zero weights and a zero context.

    Raises:
        ValueError: inputs or a mask of another shape.

    Example:
        >>> import numpy as np
        >>> x = np.array([[[3.0, 0.0], [0.0, 3.0]]])
        >>> context, weights = SimpleSelfAttention()(x, return_attention_scores=True)
        >>> np.array(weights[0], "float64").round(4).tolist()
        [[0.9999, 0.0001], [0.0001, 0.9999]]
    """

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def call(self, inputs: Tensor, mask: Tensor | None = None, return_attention_scores: bool = False) -> Any:
        """Attends from each token to all; see the class."""
        inputs = ops.cast(inputs, self.compute_dtype)  # Keras casts floats alone; weights as integers would be zeros
        scores = ops.matmul(at_least_float32(inputs), ops.swapaxes(at_least_float32(inputs), 1, 2))  # (B, T, T)
        weights = masked_softmax(scores, pairs_mask(mask, inputs))
        context = ops.matmul(ops.cast(weights, inputs.dtype), inputs)  # (B, T, D)
        return (context, weights) if return_attention_scores else context

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None) -> Any:
        """The mask of the tokens, for the context."""
        return tokens_mask(inputs, previous_mask)

    def compute_output_shape(self, inputs_shape: Shape, mask_shape: Shape | None = None) -> Shape:
        """The inputs' shape."""
        return inputs_shape

    def compute_output_spec(
        self, inputs: Tensor, mask: Tensor | None = None, return_attention_scores: bool = False
    ) -> Any:
        """The symbolic context, and the weights if asked for."""
        context = keras.KerasTensor(self.compute_output_shape(inputs.shape), dtype=self.compute_dtype)
        return (context, weights_spec(self, inputs)) if return_attention_scores else context
