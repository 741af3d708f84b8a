"""Self-attention with learned projections: stage 4 of the layers' page."""

from typing import Any

import keras
from keras import ops

from zoo.layers.checks import check_positive
from zoo.layers.functions.masks import masked_softmax, pairs_mask, tokens_mask, weights_spec
from zoo.layers.functions.tensors import Shape, Tensor, at_least_float32
from zoo.layers.masked_layer import MaskedLayer
from zoo.layers.outer_layer import keep_states
from zoo.layers.projection import Projection


@keras.saving.register_keras_serializable(package="zoo")
class SelfAttention(MaskedLayer):
    """Scaled dot-product attention of a sequence to itself, with one head.

        Q = x W_q,  K = x W_k,  V = x W_v
        weights = softmax(Q K^T / sqrt(units)),  context = weights V               (equation 1 of Vaswani et al. 2017)

    What a token looks for (its query), what it is found by (its key) and what it then gives (its value) are learnt
    apart from each other. Without the root, products of wide vectors would be so large that the softmax is nearly
    one-hot and passes no gradient.

    Axes: B batch, T length, D width of the inputs.

    Args:
        units: width of queries, keys and values.
        use_bias: whether the three projections have biases.
        kernel_initializer: of W_q, W_k and W_v.
        **kwargs: the arguments of every Keras layer.

    Call arguments:
        inputs: `(B, T, D)`.
        mask: boolean `(B, T)`, or `(1, T)` for all rows, True at real tokens: the others attend to nothing and are not
            attended to. Or `(B, T, T)`, True where the first token may attend to the second. It replaces the mask that
            Keras attached to the inputs; None takes that one, or allows all.
        return_attention_scores: whether to return the attention weights too.

    Returns:
        The context `(B, T, units)`, and if asked for, the weights `(B, T, T)` in float32. A token that may attend to
        nothing gets zero weights and a zero context.

    Raises:
        ValueError: an argument out of its range, inputs or a mask of another shape.

    Example:
        >>> import numpy as np
        >>> context, weights = SelfAttention(8)(np.ones((2, 3, 4)), return_attention_scores=True)
        >>> tuple(context.shape), tuple(weights.shape)
        ((2, 3, 8), (2, 3, 3))

    Reference: https://arxiv.org/abs/1706.03762
    """

    causal = False

    def __init__(self, units: int, use_bias: bool = False, kernel_initializer: Any = "glorot_uniform", **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.units = check_positive("units", units)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, inputs_shape: Shape, mask_shape: Shape | None = None) -> None:
        """Creates W_q, W_k and W_v, each `(D, units)`, and the biases."""
        self.query, self.key, self.value = (self._projection(name, inputs_shape) for name in ("query", "key", "value"))
        keep_states(self)

    def _projection(self, name: str, inputs_shape: Shape) -> Projection:
        options = dict(kernel_initializer=self.kernel_initializer, dtype=self.dtype_policy, name=name)
        projection = Projection(1, (self.units,), self.use_bias, **options)
        projection.build(inputs_shape)
        return projection

    def call(
        self,
        inputs: Tensor,
        mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        """Attends from each token to all; see the class."""
        query, key, value = self.query(inputs), self.key(inputs), self.value(inputs)  # (B, T, units) each
        query, key = at_least_float32(query), at_least_float32(key)
        scores = ops.matmul(query, ops.swapaxes(key, 1, 2)) * self.units**-0.5  # (B, T, T)
        weights = masked_softmax(scores, pairs_mask(mask, inputs, self.causal))
        context = ops.matmul(ops.cast(self._dropped(weights, training), value.dtype), value)  # (B, T, units)
        return (context, weights) if return_attention_scores else context

    def _dropped(self, weights: Tensor, training: bool | None) -> Tensor:
        return weights

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None) -> Any:
        """The mask of the tokens, for the context."""
        return tokens_mask(inputs, previous_mask)

    def compute_output_shape(self, inputs_shape: Shape, mask_shape: Shape | None = None) -> Shape:
        """The context's shape `(B, T, units)`."""
        return (*inputs_shape[:-1], self.units)

    def compute_output_spec(
        self,
        inputs: Tensor,
        mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        """The symbolic context, and the weights if asked for."""
        context = keras.KerasTensor(self.compute_output_shape(inputs.shape), dtype=self.compute_dtype)
        return (context, weights_spec(self, inputs)) if return_attention_scores else context

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "units": self.units,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
