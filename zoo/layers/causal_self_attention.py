"""Self-attention to the past only: stage 5 of the layers' page."""

from typing import Any

import keras

from zoo.layers.checks import check_rate
from zoo.layers.dropout import Dropout
from zoo.layers.functions.tensors import Tensor, scores_dtype
from zoo.layers.self_attention import SelfAttention


@keras.saving.register_keras_serializable(package="zoo")
class CausalSelfAttention(SelfAttention):
    """`SelfAttention` in which a token attends to itself and to what came before, with dropout of the weights.

        weights = softmax(Q K^T / sqrt(units) + M),  M_ij = 0 if j <= i, -infinity otherwise
        context = dropout(weights) V

    A model that predicts the next token must not see it: later tokens never change the result of a token. Dropout
    (Srivastava et al. 2014) sets weights to zero at random in training and makes the others larger by 1 / (1 - rate),
    so that the model does not rely on a single token.

    Axes: B batch, T length, D width of the inputs.

    Args:
        units: width of queries, keys and values.
        dropout: the share of attention weights dropped in training.
        use_bias: whether the three projections have biases.
        kernel_initializer: of W_q, W_k and W_v.
        seed: of the dropout.
        **kwargs: the arguments of every Keras layer.

    Call arguments: as for `SelfAttention`, and `training`: whether to drop weights.

    Returns:
        The context `(B, T, units)`, and if asked for, the weights `(B, T, T)` in float32, before dropout. A token that
        may attend to nothing gets zero weights and a zero context.

    Raises:
        ValueError: an argument out of its range, inputs or a mask of another shape.

    Example:
        >>> import numpy as np
        >>> _, weights = CausalSelfAttention(8)(np.ones((1, 3, 4)), return_attention_scores=True)
        >>> np.array(weights[0], "float64").round(3).tolist()
        [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.333, 0.333, 0.333]]

    Reference: https://arxiv.org/abs/1706.03762, section 3.2.3
    """

    causal = True

    def __init__(
        self,
        units: int,
        dropout: float = 0.0,
        use_bias: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(units, use_bias, kernel_initializer, **kwargs)
        self.dropout = check_rate("dropout", dropout)
        self.seed = seed
        # In the precision of the weights, not of the layer.
        self._dropout_layer = Dropout(dropout, seed=seed, dtype=scores_dtype(self.compute_dtype))

    def _dropped(self, weights: Tensor, training: bool | None) -> Tensor:
        return self._dropout_layer(weights, training=training) if self.dropout else weights

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "dropout": self.dropout, "seed": self.seed}
