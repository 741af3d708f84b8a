"""Attention masks (which query may attend to which key), and the softmax over the allowed positions."""

import dataclasses
import functools
from typing import Any, Self

import keras
from keras import ops

from zoo.layers.functions.axes import AttentionAxes, token_mask
from zoo.layers.functions.tensors import Tensor, at_least_float32, attached_mask, scores_dtype

# Used instead of minus infinity, in float32 and float64. For a query that may attend to nothing, minus infinity would
# give inf - inf = NaN.
LOWEST = -3.0e38


def _places(count: int | Tensor) -> Tensor:
    """The numbers 0, 1, 2 and so on. With floatx float64, Keras would make them int64."""
    return ops.arange(count, dtype="int32")


@dataclasses.dataclass(frozen=True)
class AttentionMask:
    """A mask of attention: a query may attend to a key if every part allows it.

    A causal mask of 32,768 tokens has a billion entries. So it is kept as a rule: a block of it is computed when it is
    needed, and the blocks that it forbids are known in advance. True means *may be attended to*.

    Axes: B batch, H heads, T queries, S keys.

    Attributes:
        pairs: boolean `(B, H, T, S)`, where each axis may also be 1.
        queries: boolean `(B, T)`; a query where it is False attends to nothing.
        keys: boolean `(B, S)`.
        causal: whether a query may attend only to keys at its own position and before.
        window: a query may attend only to keys less than this many positions away from its own.
        offset: the position of the first query among the keys, an integer or an integer scalar tensor: with a
            cache, how many keys came before.

    Example:
        >>> import numpy as np
        >>> mask = AttentionMask(keys=np.array([[True, True, False]]), causal=True)
        >>> np.array(mask.dense(2, 3)).astype(int).tolist()
        [[[[1, 0, 0], [1, 1, 0]]]]
    """

    pairs: Any = None
    queries: Any = None
    keys: Any = None
    causal: bool = False
    window: int | None = None
    offset: Any = 0

    def dense(self, length: int | Tensor, memory_length: int | Tensor) -> Tensor | None:
        """The whole mask except `queries`, `(B, H, T, S)` with axes of 1 where nothing varies; None allows all.

        Args:
            length: T, a number or a scalar tensor.
            memory_length: S, likewise.
        """
        return self._allowed(self.pairs, self.keys, _places(length), _places(memory_length))

    def block(self, first_query: Tensor, queries: int, first_key: Tensor, keys: int) -> Tensor | None:
        """All of the mask for one block of `queries` x `keys` pairs that starts at the given query and key.

        Args:
            first_query: number of the first query, an integer scalar tensor.
            queries: how many, a number.
            first_key: number of the first key, an integer scalar tensor.
            keys: how many, a number.
        """
        pairs, key_mask = self.pairs, self.keys
        if pairs is not None:
            pairs = _part(_part(pairs, 2, first_query, queries), 3, first_key, keys)
        if key_mask is not None:
            key_mask = _part(key_mask, 1, first_key, keys)
        whole = self._allowed(pairs, key_mask, first_query + _places(queries), first_key + _places(keys))
        if self.queries is None:
            return whole
        return both(whole, _part(self.queries, 1, first_query, queries)[:, None, :, None])  # (B, H, T, S)

    def allows_all(self, first_query: Tensor, queries: int, first_key: Tensor, keys: int) -> Tensor | None:
        """Whether all pairs of such a block are allowed, a boolean scalar tensor; None if positions do not tell."""
        given = any(each is not None for each in (self.pairs, self.queries, self.keys))
        if given or not (self.causal or self.window is not None):
            return None
        # How far the keys of the block are behind its queries, at least and at most.
        least = first_query + self._offset_as_int32 - (first_key + keys - 1)
        most = first_query + queries - 1 + self._offset_as_int32 - first_key
        parts = [least >= 0] if self.causal else []
        if self.window is not None:
            parts += [most < self.window, least > -self.window]
        return functools.reduce(ops.logical_and, parts)

    @property
    def has_strips(self) -> bool:
        """Whether it allows `strip`: no query may attend to a key after it, and it is known which axes are 1."""
        parts = ((self.pairs, (2, 3)), (self.queries, (1,)), (self.keys, (1,)))
        known = all(part is None or None not in [part.shape[axis] for axis in axes] for part, axes in parts)
        return known and self.causal and _is_zero(self.offset)

    def strip(self, first_query: int, end: int) -> Self:
        """The mask of some queries, and of the keys up to the last of them.

        Args:
            first_query: number of the first query.
            end: number of the last query, plus 1.
        """
        pairs, keys, queries = self.pairs, self.keys, self.queries
        number = end - first_query
        if pairs is not None:
            pairs = _part(_part(pairs, 2, first_query, number), 3, 0, end)
        queries = None if queries is None else _part(queries, 1, first_query, number)
        keys = None if keys is None else _part(keys, 1, 0, end)
        return dataclasses.replace(self, pairs=pairs, queries=queries, keys=keys, offset=self.offset + first_query)

    def _allowed(
        self, pairs: Tensor | None, keys: Tensor | None, query_numbers: Tensor, key_numbers: Tensor
    ) -> Tensor | None:
        parts = [] if pairs is None else [pairs]
        if keys is not None:
            parts.append(keys[:, None, None])  # (B, 1, 1, S)
        positions = ops.expand_dims(query_numbers + self._offset_as_int32, 1)  # (T, 1), against (S,)
        if self.causal:
            parts.append((positions >= key_numbers)[None, None])  # (1, 1, T, S)
        if self.window is not None:
            parts.append((ops.abs(positions - key_numbers) < self.window)[None, None])  # (1, 1, T, S)
        return functools.reduce(both, parts, None)

    @property
    def _of_queries(self) -> Tensor | None:
        """`queries` as a mask of pairs, `(B, 1, T, 1)`."""
        return None if self.queries is None else self.queries[:, None, :, None]

    @property
    def _offset_as_int32(self) -> int | Tensor:
        return self.offset if isinstance(self.offset, int) else ops.cast(self.offset, "int32")

    def any_allowed(self, dense: Tensor | None) -> Tensor | None:
        """Which queries may attend to anything: `(B, H, T, 1)` with axes of 1 where nothing varies; None for all.

        Args:
            dense: the result of `dense`.
        """
        allowed = None
        # With a causal mask alone, every query may attend to at least the first key.
        if self.pairs is not None or self.keys is not None or self.window is not None:
            allowed = ops.any(dense, axis=-1, keepdims=True)  # (B, H, T, 1)
        return both(allowed, self._of_queries)

    def of_one_head(self, length: int | Tensor, memory_length: int | Tensor) -> Tensor | None:
        """All of it, `queries` too, for attention with one head: `(B, T, S)`, where axes may be 1; None allows all."""
        whole = both(self.dense(length, memory_length), self._of_queries)
        return None if whole is None else ops.squeeze(whole, 1)  # (B, T, S)

    def key_range(self, first_query: Tensor, last_query: Tensor, memory_length: int | Tensor) -> tuple[Tensor, Tensor]:
        """The keys that a range of queries may attend to by position: the first, and one past the last."""
        first, end = 0, memory_length
        if self.window is not None:
            first = ops.maximum(0, first_query + self._offset_as_int32 - self.window + 1)
            end = ops.minimum(end, last_query + self._offset_as_int32 + self.window)
        if self.causal:
            end = ops.minimum(end, last_query + self._offset_as_int32 + 1)
        return first, end

    def query_range(self, first_key: Tensor, last_key: Tensor, length: int | Tensor) -> tuple[Tensor, Tensor]:
        """The queries that may attend to a range of keys by position: the first, and one past the last."""
        first, end = 0, length
        if self.window is not None:
            first = ops.maximum(0, first_key - self._offset_as_int32 - self.window + 1)
            end = ops.minimum(end, last_key - self._offset_as_int32 + self.window)
        if self.causal:
            first = ops.maximum(0, first_key - self._offset_as_int32)
        return first, end

    def padded(
        self,
        length: int | Tensor,
        memory_length: int | Tensor,
        extra_queries: int | Tensor,
        extra_keys: int | Tensor,
    ) -> Self:
        """The same mask with more queries and keys at the end, for lengths that are no multiple of the block size.

        The new keys are forbidden. The masks of the new queries do not matter, since their contexts are cut off.
        """
        pairs, queries, keys = self.pairs, self.queries, self.keys
        if queries is not None and queries.shape[1] != 1:
            queries = _extended(queries, 1, extra_queries)
        if pairs is not None:
            if None in pairs.shape[2:]:  # an axis may turn out to be 1, which stands for all entries
                known, lengths = pairs.shape[2:], (length, memory_length)
                sizes = (whole if size is None else size for size, whole in zip(known, lengths, strict=True))
                pairs = ops.broadcast_to(pairs, (*ops.shape(pairs)[:2], *sizes))
            for axis, extra in ((2, extra_queries), (3, extra_keys)):
                pairs = pairs if pairs.shape[axis] == 1 else _extended(pairs, axis, extra)
        if not _is_zero(extra_keys):
            keys = ops.ones((1, memory_length), "bool") if keys is None else keys
            keys = _extended(keys, 1, extra_keys)
        return dataclasses.replace(self, pairs=pairs, queries=queries, keys=keys)


def _part(tensor: Tensor, axis: int, first: int | Tensor, size: int) -> Tensor:
    """`size` entries along the axis, from `first`; an axis of 1 stays, since it stands for all entries."""
    if tensor.shape[axis] == 1:
        return tensor
    start = [0] * len(tensor.shape)
    shape = list(ops.shape(tensor))
    start[axis], shape[axis] = first, size
    return ops.slice(tensor, start, shape)


def _is_zero(number: int | Tensor) -> bool:
    return isinstance(number, int) and number == 0


def _extended(tensor: Tensor, axis: int, extra: int | Tensor) -> Tensor:
    """The tensor with `extra` times False added at the end of the axis."""
    if _is_zero(extra):
        return tensor
    shape = list(ops.shape(tensor))
    shape[axis] = extra
    return ops.concatenate([tensor, ops.zeros(shape, "bool")], axis=axis)


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last axis. For a single score it avoids Keras' warning that the result is always 1."""
    return ops.softmax(scores, axis=-1) if scores.shape[-1] != 1 else ops.exp(scores - scores)


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax over the last axis, in float32, with zero weight wherever the mask forbids.

    A row with nothing to attend to gets zero weights, where a softmax over very negative scores would give the
    mean of the values.

    Args:
        scores: float tensor `(..., S)`.
        mask: boolean tensor that broadcasts to `scores`, True where a position may be attended to; None allows all.

    Returns:
        Tensor of the shape of `scores`, in float32 (float64 if the scores are); each row sums to 1, or is all zeros.
    """
    scores = at_least_float32(ops.convert_to_tensor(scores))
    if mask is None:
        return softmax(scores)
    weights = softmax(ops.where(mask, scores, LOWEST))
    # These are zero already, except in a row where nothing is allowed.
    return ops.where(mask, weights, 0.0)


def both(mask: Tensor | None, other: Tensor | None) -> Tensor | None:
    """What both masks allow; None if there is neither."""
    if mask is None or other is None or mask is other:
        return other if mask is None else mask
    return ops.logical_and(mask, other)


def pairs_mask(mask: Tensor | None, inputs: Tensor, causal: bool = False) -> Tensor | None:
    """Which token may attend to which, `(B, T, T)`; None for all. For the mask of the layers of self-attention.

    Raises:
        ValueError: a mask that does not fit the inputs `(B, T, D)`.
    """
    axes = AttentionAxes(3)
    pairs = tokens = None
    if mask is not None and len(mask.shape) == 2:
        tokens = axes.fold_mask(mask, inputs)
    else:
        pairs = axes.fold_pairs(mask, inputs, inputs, name="mask")
    length = ops.shape(inputs)[1]
    return AttentionMask(pairs, queries=tokens, keys=tokens, causal=causal).of_one_head(length, length)


def tokens_mask(inputs: Tensor, mask: Tensor | None) -> Tensor | None:
    """The mask that the context carries on: a mask of tokens is kept, a mask of pairs is not."""
    is_of_tokens = mask is not None and len(mask.shape) == 2
    return token_mask(mask, inputs) if is_of_tokens else attached_mask(inputs)


def weights_spec(layer: keras.layers.Layer, inputs: Tensor) -> keras.KerasTensor:
    """The symbolic weights `(B, T, T)` of a layer of self-attention."""
    return keras.KerasTensor((*inputs.shape[:-1], inputs.shape[1]), dtype=scores_dtype(layer.compute_dtype))
