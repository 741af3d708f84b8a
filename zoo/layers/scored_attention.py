"""The base of additive, concat and dot-product attention: score, normalise, average."""

import abc
from typing import Any

import keras
from keras import ops

from zoo.layers.checks import check_inputs
from zoo.layers.functions.axes import AttentionAxes, check_rows, fit, memory_mask
from zoo.layers.functions.masks import AttentionMask, both, masked_softmax
from zoo.layers.functions.tensors import Shape, Tensor, attached_mask, scores_dtype

_AXES = AttentionAxes(3)


class ScoredAttention(keras.layers.Layer, abc.ABC):
    """Attention by a score between each query and each key.

    `weights = softmax(score(query, key))` over the keys that the masks allow, `context = weights value`.
    A subclass defines how keys are projected and how a query scores them. The two are separate because a decoder sends
    many queries to the same keys: it calls `project_key` once for each sentence, and `attend` in each step. Such calls
    bypass `__call__`, where Keras casts weights to the compute dtype, so these methods cast themselves.

    Axes: B batch, T queries, S keys, Q query width, K key width, P projected key width, D value width.
    """

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_masking = True

    @abc.abstractmethod
    def project_key(self, key: Tensor) -> Tensor:
        """The part of the score that depends on the keys alone: `(B, S, K)` -> `(B, S, P)`."""

    @abc.abstractmethod
    def scores(self, query: Tensor, projected_key: Tensor) -> Tensor:
        """Scores `(B, T, S)`, in float32 at least, of queries `(B, T, Q)` against projected keys `(B, S, P)`."""

    def attend(
        self, query: Tensor, projected_key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Attention over keys that `project_key` has seen already.

        Args:
            query: `(B, T, Q)`.
            projected_key: `(B, S, P)`, from `project_key`.
            value: `(B, S, D)`.
            mask: boolean `(B, S)` or `(B, T, S)`, True where a key may be attended to; None allows all.

        Returns:
            The context `(B, T, D)` and the attention weights `(B, T, S)` in float32. A query that may attend to
            nothing gets zero weights and a zero context.

        Raises:
            ValueError: the values have other rows than the queries (one row is for all) or are not as many as the keys,
                or a mask has another shape.
        """
        if value.shape[0] != 1:
            check_rows("value", value, query)
        if mask is not None:
            mask = memory_mask(mask, query, value.shape[1])
            mask = mask[:, None] if len(mask.shape) == 2 else mask  # (B, 1, S): the same keys for every query
        scores = self.scores(query, projected_key)  # (B, T, S)
        if not fit(scores.shape[2:], value.shape[1:2]):
            raise ValueError(f"Keys and values must be equally many. Received: {scores.shape[2]} and {value.shape[1]}")
        weights = masked_softmax(scores, mask)  # (B, T, S)
        context = ops.matmul(ops.cast(weights, value.dtype), value)  # (B, T, D)
        return context, weights

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As `call`; refuses arguments in the form that other attention layers take."""
        check_inputs(self, args, kwargs)
        return super().__call__(*args, **kwargs)

    def call(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None = None,
        mask: Tensor | None = None,
        return_attention_scores: bool = False,
        query_mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
    ) -> Any:
        """Attends from each query to the values.

        Args:
            query: `(B, T, Q)`.
            value: `(B, S, D)`.
            key: `(B, S, K)`; the values themselves if None.
            mask: boolean `(B, S)` or `(B, T, S)`, with 1 in place of B for all rows, True where a key may be attended
                to; None allows all. It holds together with the next three.
            return_attention_scores: whether to return the attention weights too.
            query_mask: boolean `(B, T)`; a masked query attends to nothing. This one and the next two are taken from
                the tensors if they carry a Keras mask and none is given.
            value_mask: boolean `(B, S)`.
            key_mask: boolean `(B, S)`.

        Returns:
            The context `(B, T, D)`, and if asked for, the weights `(B, T, S)` in float32.

        Raises:
            ValueError: inputs or masks whose shapes do not fit each other.
        """
        if isinstance(mask, list | tuple):
            raise ValueError(
                "`mask` must be one tensor. Give the masks of query and value, which Keras' layers take as a list, as "
                "`query_mask` and `value_mask`."
            )
        # Keras casts floats alone; weights rounded to integers, as those of the values, would be zeros.
        query, value = ops.cast(query, self.compute_dtype), ops.cast(value, self.compute_dtype)
        key = value if key is None else ops.cast(key, self.compute_dtype)
        _AXES.check_shapes(query.shape, value.shape, key.shape)
        pairs = keys = None
        if mask is not None and len(mask.shape) == 2:
            keys = _AXES.fold_mask(mask, value)
        else:
            pairs = _AXES.fold_pairs(mask, query, key, name="mask")
        for name, each in (("value_mask", value_mask), ("key_mask", key_mask)):
            keys = both(keys, _AXES.fold_mask(each, value, name))  # (B, S)
        queries = _AXES.fold_mask(query_mask, query, "query_mask")
        mask = AttentionMask(pairs, queries, keys).of_one_head(ops.shape(query)[1], ops.shape(key)[1])
        context, weights = self.attend(query, self.project_key(key), value, mask)
        return (context, weights) if return_attention_scores else context

    def compute_mask(self, query: Tensor, previous_mask: Tensor | None) -> Tensor | None:
        """The query's implicit mask, for the context."""
        # Not `previous_mask`, which is `mask` if one was given.
        return attached_mask(query)

    def compute_output_shape(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> Shape:
        """The context's shape `(B, T, D)`."""
        _AXES.check_shapes(query_shape, value_shape, value_shape if key_shape is None else key_shape)
        return (*query_shape[:-1], value_shape[-1])

    def compute_output_spec(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None = None,
        mask: Tensor | None = None,
        return_attention_scores: bool = False,
        **masks: Any,
    ) -> Any:
        """The symbolic context, and the weights if asked for."""
        key_shape = None if key is None else key.shape
        shape = self.compute_output_shape(query.shape, value.shape, key_shape)
        context = keras.KerasTensor(shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return context
        weights_shape = (*query.shape[:-1], value.shape[1])
        return context, keras.KerasTensor(weights_shape, dtype=scores_dtype(self.compute_dtype))
