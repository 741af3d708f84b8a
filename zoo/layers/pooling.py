"""Pooling: from a vector for each token to one vector for the text."""

from typing import Any

import keras
from keras import ops

from zoo.layers.checks import check_choice, check_positive
from zoo.layers.functions.axes import token_mask
from zoo.layers.functions.masks import masked_softmax
from zoo.layers.functions.tensors import Shape, Tensor, at_least_float32, scores_dtype
from zoo.layers.outer_layer import OuterLayer, keep_states
from zoo.layers.projection import Projection


class _Pooling(OuterLayer):
    """What both kinds share: `(B, T, D)` and a mask `(B, T)` go in, `(B, D)` comes out."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None = None) -> None:
        """None: a vector for the whole text has no padding."""
        return

    def compute_output_shape(self, inputs_shape: Shape, mask_shape: Shape | None = None) -> Shape:
        """`(B, D)`."""
        return inputs_shape[0], inputs_shape[-1]


@keras.saving.register_keras_serializable(package="zoo")
class SequencePooling(_Pooling):
    """The mean, the largest or the first of a text's vectors, without its padding.

    Axes: B batch, T length, D width.

    Args:
        kind: "mean"; "max", for each feature; or "first", the vector at position 0, which is the `[CLS]` of BERT.
        **kwargs: the arguments of every Keras layer.

    Call arguments:
        inputs: `(B, T, D)`.
        mask: boolean `(B, T)`, or `(1, T)` for all rows, True at tokens. None takes the mask that Keras
            attached to the inputs, or all tokens.

    Returns:
        `(B, D)`; zeros for a text without tokens, and with "first" for one that begins with padding.

    Raises:
        ValueError: an unknown kind, inputs that do not have three axes, or a mask that does not fit them or has
            negative numbers.

    Example:
        >>> import numpy as np
        >>> x, mask = np.array([[[1.0, 6.0], [3.0, 2.0], [9.0, 9.0]]]), np.array([[True, True, False]])
        >>> [np.array(SequencePooling(kind)(x, mask)).tolist() for kind in ("mean", "max", "first")]
        [[[2.0, 4.0]], [[3.0, 6.0]], [[1.0, 6.0]]]
    """

    def __init__(self, kind: str = "mean", **kwargs: Any):
        super().__init__(**kwargs)
        self.kind = check_choice("kind", kind, ("mean", "max", "first"))

    def call(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """One vector for each text; see the class."""
        inputs = ops.cast(inputs, self.compute_dtype)  # Keras casts floats alone
        mask = token_mask(mask, inputs)
        if mask is None:
            mask = ops.ones(ops.shape(inputs)[:2], "bool")
        mask = mask[..., None]  # (B, T, 1)
        if self.kind == "first":
            return ops.sum(ops.where(mask[:, :1], inputs[:, :1], 0), axis=1)  # (B, D): 0 if T is 0, too
        if self.kind == "max":
            if 0 in inputs.shape:  # which `ops.max` refuses; with its `initial`, it fails on a GPU with PyTorch
                return ops.sum(inputs, axis=1)  # (B, D): nothing, or zeros
            largest = ops.max(ops.where(mask, inputs, -float("inf")), axis=1)  # (B, D)
            return ops.where(ops.any(mask, axis=1), largest, 0)
        tokens = ops.maximum(ops.sum(ops.cast(mask, "float32"), axis=1), 1.0)  # (B, 1)
        total = ops.sum(ops.where(mask, at_least_float32(inputs), 0), axis=1)  # (B, D)
        return ops.cast(total / ops.cast(tokens, total.dtype), self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "kind": self.kind}


@keras.saving.register_keras_serializable(package="zoo")
class AttentionPooling(_Pooling):
    """Additive attention of a learned query to a text: the query learns which tokens matter for the task.

        scores_t = v . tanh(W h_t + b),    weights = softmax(scores) over the tokens,    output = sum of weights_t h_t

    This is the attention of Bahdanau et al. without a decoder. Its weights show which words decided, for example that a
    review is positive.

    Axes: B batch, T length, D width.

    Args:
        units: width of W h, the rows that v scores.
        kernel_initializer: of W and v.
        **kwargs: the arguments of every Keras layer.

    Call arguments:
        inputs: `(B, T, D)`.
        mask: boolean `(B, T)`, or `(1, T)` for all rows, True at tokens. None takes the mask that Keras
            attached to the inputs, or all tokens.
        return_attention_scores: whether to return the attention weights too.

    Returns:
        `(B, D)`, and if asked for, the weights `(B, T)` in float32. A text without tokens has zero weights and a zero
        vector.

    Raises:
        ValueError: an argument out of its range, inputs that do not have three axes, or a mask that does not fit them
            or has negative numbers.

    Example:
        >>> import numpy as np
        >>> pooled, weights = AttentionPooling(8)(np.ones((2, 5, 4)), return_attention_scores=True)
        >>> np.array(weights[0], "float64").round(4).tolist()
        [0.2, 0.2, 0.2, 0.2, 0.2]

    References: https://aclanthology.org/N16-1174 (Yang et al. 2016, equations 5 to 7), https://arxiv.org/abs/1703.03130
    """

    def __init__(self, units: int, kernel_initializer: Any = "glorot_uniform", **kwargs: Any):
        super().__init__(**kwargs)
        self.units = check_positive("units", units)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, inputs_shape: Shape, mask_shape: Shape | None = None) -> None:
        """Creates W `(D, units)`, b `(units,)` and v `(units, 1)`."""
        options = dict(kernel_initializer=self.kernel_initializer, dtype=self.dtype_policy)
        self.key = Projection(1, (self.units,), use_bias=True, name="key", **options)
        self.key.build(inputs_shape)
        # Without a bias: it would add the same number to all scores of a row, and the softmax would not change.
        options["dtype"] = scores_dtype(self.compute_dtype)
        self.score = Projection(1, (1,), use_bias=False, name="score", **options)
        self.score.build((*inputs_shape[:-1], self.units))
        keep_states(self)

    def call(self, inputs: Tensor, mask: Tensor | None = None, return_attention_scores: bool = False) -> Any:
        """The weighted sum; see the class."""
        inputs = ops.cast(inputs, self.compute_dtype)  # Keras casts floats alone; weights as integers would be zeros
        scores = self.score(ops.tanh(at_least_float32(self.key(inputs))))[..., 0]  # (B, T)
        weights = masked_softmax(scores, token_mask(mask, inputs))  # (B, T)
        pooled = ops.matmul(ops.cast(weights, inputs.dtype)[:, None], inputs)[:, 0]  # (B, D)
        return (pooled, weights) if return_attention_scores else pooled

    def compute_output_spec(
        self, inputs: Tensor, mask: Tensor | None = None, return_attention_scores: bool = False
    ) -> Any:
        """The symbolic vector, and the weights if asked for."""
        pooled = keras.KerasTensor(self.compute_output_shape(inputs.shape), dtype=self.compute_dtype)
        weights = keras.KerasTensor(inputs.shape[:2], dtype=scores_dtype(self.compute_dtype))
        return (pooled, weights) if return_attention_scores else pooled

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "units": self.units,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
