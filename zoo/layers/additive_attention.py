"""Additive attention: Bahdanau, Cho and Bengio 2014."""

from typing import Any

import keras
from keras import ops

from zoo.layers.checks import check_built_width, check_positive
from zoo.layers.functions.tensors import Shape, Tensor, at_least_float32
from zoo.layers.projection import fresh
from zoo.layers.scored_attention import ScoredAttention


@keras.saving.register_keras_serializable(package="zoo")
class AdditiveAttention(ScoredAttention):
    """A one-layer network scores each pair of query and key.

    With query q and key h (appendix A.1.2 of the paper; there q is the previous decoder state s_{i-1}):

        e = v^T tanh(W q + U h)
        weights = softmax(e) over the keys,  context = sum of weights * value

    Unlike `keras.layers.AdditiveAttention`, which has neither W nor U, queries and keys may differ in width.
    `U h` does not depend on the query: `project_key` computes it once for each sentence.

    Args:
        units: width of the hidden layer, the length of v.
        kernel_initializer: initializer of W, U and v.
        **kwargs: the arguments of every Keras layer.

    Call arguments: `query (B, T, Q)`, `value (B, S, D)`, `key (B, S, K)` or None for the values, `mask` boolean
    `(B, S)` or `(B, T, S)` with True where a key may be attended to, `return_attention_scores`.

    Returns: the context `(B, T, D)`, and if asked for, the weights `(B, T, S)` in float32. A query that may
    attend to nothing gets zero weights and a zero context.

    Raises:
        ValueError: `units` is not a positive integer, or shapes of inputs and masks that do not fit each other.

    Example:
        >>> import numpy as np
        >>> attention = AdditiveAttention(units=8)
        >>> context, weights = attention(np.ones((2, 3, 4)), np.ones((2, 5, 6)), return_attention_scores=True)
        >>> tuple(context.shape), tuple(weights.shape)
        ((2, 3, 6), (2, 3, 5))

    Reference: https://arxiv.org/abs/1409.0473
    """

    def __init__(self, units: int, kernel_initializer: Any = "glorot_uniform", **kwargs: Any):
        super().__init__(**kwargs)
        self.units = check_positive("units", units)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> None:
        """Creates W `(Q, units)`, U `(K, units)` and v `(units, 1)`."""
        key_shape = value_shape if key_shape is None else key_shape
        self.query_kernel = self._kernel("query_kernel", (query_shape[-1], self.units))
        self.key_kernel = self._kernel("key_kernel", (key_shape[-1], self.units))
        self.score_kernel = self._kernel("score_kernel", (self.units, 1))

    def _kernel(self, name: str, shape: Shape) -> Any:
        return self.add_weight(name=name, shape=shape, initializer=fresh(self.kernel_initializer))

    def project_key(self, key: Tensor) -> Tensor:
        """U h for every key: `(B, S, K)` -> `(B, S, units)`."""
        kernel = self.key_kernel
        check_built_width("key", key, kernel.shape[0])
        return ops.matmul(key, ops.cast(kernel, self.compute_dtype))

    def scores(self, query: Tensor, projected_key: Tensor) -> Tensor:
        """v^T tanh(W q + U h): `(B, T, Q)` and `(B, S, units)` -> `(B, T, S)`."""
        kernel = self.query_kernel
        check_built_width("query", query, kernel.shape[0])
        query, key = at_least_float32(self._product(query, kernel)), at_least_float32(projected_key)
        hidden = ops.tanh(ops.expand_dims(query, 2) + ops.expand_dims(key, 1))  # (B, T, S, units)
        return ops.squeeze(self._product(hidden, self.score_kernel), -1)  # (B, T, S)

    def _product(self, inputs: Tensor, kernel: Tensor) -> Tensor:
        kernel = ops.cast(ops.cast(kernel, self.compute_dtype), inputs.dtype)  # as `__call__` rounds it
        # A product of rank 2: XLA differentiates it with a batch of unknown size, inside a loop too.
        flat = ops.matmul(ops.reshape(inputs, (-1, inputs.shape[-1] or kernel.shape[0])), kernel)  # (rows, units)
        return ops.reshape(flat, (*ops.shape(inputs)[:-1], kernel.shape[-1]))

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "units": self.units,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
