"""Dot-product attention: Luong, Pham and Manning 2015; scaled as in Vaswani et al. 2017."""

import math
from typing import Any

import keras
from keras import ops

from zoo.layers.checks import check_built_width, check_choice
from zoo.layers.functions.tensors import Shape, Tensor, at_least_float32
from zoo.layers.scored_attention import ScoredAttention

_SCORES = ("dot", "scaled", "general")


@keras.saving.register_keras_serializable(package="zoo")
class DotProductAttention(ScoredAttention):
    """Attention that scores a query and a key by their product.

        dot:      e = q . h                     (equation 8 of Luong et al.)
        scaled:   e = q . h / sqrt(Q)           (equation 1 of Vaswani et al.)
        general:  e = q^T W h                   (equation 8 of Luong et al.)
        weights = softmax(e) over the keys,  context = sum of weights * value

    `dot` and `scaled` have no weights and need queries and keys of one width.

    Args:
        score: "dot", "scaled" or "general".
        kernel_initializer: initializer of W, for "general".
        **kwargs: the arguments of every Keras layer.

    Call arguments: `query (B, T, Q)`, `value (B, S, D)`, `key (B, S, K)` or None for the values, `mask` boolean
    `(B, S)` or `(B, T, S)` with True where a key may be attended to, `return_attention_scores`.

    Returns: the context `(B, T, D)`, and if asked for, the weights `(B, T, S)` in float32. A query that may
    attend to nothing gets zero weights and a zero context.

    Raises:
        ValueError: an unknown score, widths that do not fit it, or shapes of inputs and masks that do not fit each
            other.

    Example:
        >>> import numpy as np
        >>> attention = DotProductAttention(score="general")
        >>> tuple(attention(np.ones((2, 3, 4)), np.ones((2, 5, 6))).shape)
        (2, 3, 6)

    References: https://arxiv.org/abs/1508.04025, https://arxiv.org/abs/1706.03762
    """

    def __init__(self, score: str = "scaled", kernel_initializer: Any = "glorot_uniform", **kwargs: Any):
        super().__init__(**kwargs)
        self.score = check_choice("score", score, _SCORES)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> None:
        """Creates W `(K, Q)` for "general"; checks the widths for the others."""
        query_width, key_width = query_shape[-1], (key_shape or value_shape)[-1]
        if self.score == "general":
            self.kernel = self.add_weight(
                name="kernel", shape=(key_width, query_width), initializer=self.kernel_initializer
            )
        else:
            self._check_widths(query_width, key_width)

    def _check_widths(self, query_width: int | None, key_width: int | None) -> None:
        if query_width != key_width:
            raise ValueError(
                f"score={self.score!r} needs queries and keys of one width; 'general' has a kernel between "
                f"them. Received: query width {query_width}, key width {key_width}"
            )

    def project_key(self, key: Tensor) -> Tensor:
        """W h for "general", else the keys as they are: `(B, S, K)` -> `(B, S, Q)`."""
        if self.score != "general":
            return key
        check_built_width("key", key, self.kernel.shape[0])
        return ops.matmul(key, ops.cast(self.kernel, self.compute_dtype))

    def scores(self, query: Tensor, projected_key: Tensor) -> Tensor:
        """Q . h, scaled if asked for: `(B, T, Q)` and `(B, S, Q)` -> `(B, T, S)`."""
        if self.score == "general":
            check_built_width("query", query, self.kernel.shape[1])
        elif None not in (query.shape[-1], projected_key.shape[-1]):
            self._check_widths(query.shape[-1], projected_key.shape[-1])
        query, key = at_least_float32(query), at_least_float32(projected_key)
        if self.score == "scaled":
            query = query * (1.0 / math.sqrt(query.shape[-1]))
        return ops.matmul(query, ops.swapaxes(key, 1, 2))  # (B, T, S)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "score": self.score,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
