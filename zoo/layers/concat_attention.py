"""Concat attention: the third score of Luong, Pham and Manning 2015."""

import keras

from zoo.layers.additive_attention import AdditiveAttention
from zoo.layers.checks import check_width
from zoo.layers.functions.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="zoo")
class ConcatAttention(AdditiveAttention):
    """One kernel over the query and the key side by side (equation 8 of the paper, "concat").

        e = v^T tanh(W [q; h])
        weights = softmax(e) over the keys,  context = sum of weights * value

    W [q; h] is W_q q + W_h h with the two halves of W, so this computes what `AdditiveAttention` does; what differs
    is that W is one weight, drawn as one. The halves are used apart, which saves the `(B, T, S, Q + K)` tensor of
    all pairs.

    Args, call arguments, returns and errors: as `AdditiveAttention`. The widths of query and key must be known.

    Example:
        >>> import numpy as np
        >>> attention = ConcatAttention(units=8)
        >>> tuple(attention(np.ones((2, 3, 4)), np.ones((2, 5, 6))).shape)
        (2, 3, 6)

    Reference: https://arxiv.org/abs/1508.04025
    """

    def build(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> None:
        """Creates W `(Q + K, units)`, query rows first, and v `(units, 1)`."""
        key_shape = value_shape if key_shape is None else key_shape
        self.query_width = check_width("query", query_shape)
        self.kernel = self._kernel("kernel", (self.query_width + check_width("key", key_shape), self.units))
        self.score_kernel = self._kernel("score_kernel", (self.units, 1))

    @property
    def query_kernel(self) -> Tensor:
        """The rows of W that meet the query, `(Q, units)`."""
        return self.kernel[: self.query_width]

    @property
    def key_kernel(self) -> Tensor:
        """The rows of W that meet the key, `(K, units)`."""
        return self.kernel[self.query_width :]
