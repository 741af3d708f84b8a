"""What additive, concat and dot-product attention share: score, normalise, average."""

import abc

import keras
from keras import ops

from zoo.layers.masking import masked_softmax


class ScoredAttention(keras.layers.Layer, abc.ABC):
    """Attention by a score between each query and each key.

    `weights = softmax(score(query, key))` over the keys that the mask allows, `context = weights value`.
    A subclass says how keys are projected and how a query scores them. Projecting is a step of its own because a
    decoder asks many queries of the same keys: `project_key` once a sentence, `attend` once a step. Such calls go past
    `__call__`, where Keras casts weights to the compute dtype, so these methods cast for themselves.

    Axes: B batch, T queries, S keys, Q query width, K key width, P projected key width, D value width.
    """

    @abc.abstractmethod
    def project_key(self, key):
        """The part of the score that depends on the keys alone: `(B, S, K)` -> `(B, S, P)`."""

    @abc.abstractmethod
    def scores(self, query, projected_key):
        """Unnormalised scores `(B, T, S)` of queries `(B, T, Q)` against projected keys `(B, S, P)`."""

    def attend(self, query, projected_key, value, mask=None):
        """Attention over keys that `project_key` has seen already.

        Args:
            query: `(B, T, Q)`.
            projected_key: `(B, S, P)`, from `project_key`.
            value: `(B, S, D)`.
            mask: boolean `(B, S)` or `(B, T, S)`, True where a key may be attended to; None allows all.

        Returns:
            The context `(B, T, D)` and the attention weights `(B, T, S)` in float32. A query that may attend to
            nothing gets zero weights and a zero context.
        """
        if mask is not None and len(mask.shape) == 2:
            mask = ops.expand_dims(mask, 1)  # (B, 1, S): the same keys for every query
        weights = masked_softmax(self.scores(query, projected_key), mask)
        return ops.matmul(ops.cast(weights, value.dtype), value), weights

    def call(self, query, value, key=None, mask=None, return_attention_scores=False):
        """Attends from each query to the values.

        Args:
            query: `(B, T, Q)`.
            value: `(B, S, D)`.
            key: `(B, S, K)`; the values themselves if None.
            mask: boolean `(B, S)` or `(B, T, S)`, True where a key may be attended to; None allows all.
            return_attention_scores: whether to return the attention weights too.

        Returns:
            The context `(B, T, D)`, and if asked for, the weights `(B, T, S)` in float32.
        """
        key = value if key is None else key
        context, weights = self.attend(query, self.project_key(key), value, mask)
        return (context, weights) if return_attention_scores else context

    def compute_mask(self, *args, **kwargs):
        """None: masks go to each layer that needs one as tensors, never attached to other tensors."""
        return None

    def compute_output_shape(self, query_shape, value_shape, key_shape=None):
        """The context's shape `(B, T, D)`."""
        return (*query_shape[:-1], value_shape[-1])

    def compute_output_spec(self, query, value, key=None, mask=None, return_attention_scores=False):
        """The symbolic context, and the weights if asked for."""
        context = keras.KerasTensor(self.compute_output_shape(query.shape, value.shape), dtype=self.compute_dtype)
        if not return_attention_scores:
            return context
        return context, keras.KerasTensor((*query.shape[:-1], value.shape[1]), dtype="float32")
