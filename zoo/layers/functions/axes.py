"""Attention along any axes of inputs of any rank: the inputs are reshaped to the usual `(B, T, D)`."""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from zoo.layers.functions.tensors import Shape, Tensor


class AttentionAxes:
    """Folds the axes attended over into one axis and all others into the batch, and unfolds the results.

    For an image `(B, rows, columns, D)`, axis 1 attends within each column, axis 2 within each row, (1, 2) from
    every pixel to every pixel. Query and key may differ in the axes attended over, not in the others.

    Args:
        rank: of the inputs, with batch and features.
        axes: the axes attended over, without batch and features; None for all axes except these two.

    Raises:
        ValueError: an axis that the inputs do not have, or that cannot be attended over.
    """

    def __init__(self, rank: int, axes: Sequence[int] | None = None):
        axes = tuple(range(1, rank - 1)) if axes is None else axes
        self.rank = rank
        self.axes = tuple(axis if axis >= 0 else rank + axis for axis in axes)
        if rank < 3:
            raise ValueError(
                "Inputs of attention must be (batch, length, features), or have several axes in place of the length. "
                f"Received: inputs of rank {rank}"
            )
        if not all(0 < axis < rank - 1 for axis in self.axes) or len(set(self.axes)) < len(self.axes) or not self.axes:
            raise ValueError(
                f"`attention_axes` must be different axes between the first (batch) and the last (features) of inputs "
                f"of rank {rank}. Received: attention_axes={tuple(axes)}"
            )
        self.others = tuple(axis for axis in range(rank - 1) if axis not in self.axes)
        self.order = (*self.others, *self.axes)
        self.trivial = rank == 3

    def check_shapes(self, query_shape: Shape, value_shape: Shape, key_shape: Shape) -> None:
        """Refuses inputs that do not fit each other.

        Raises:
            ValueError: wrong ranks, keys and values of unequal numbers, or other axes of unequal sizes.
        """
        shapes = f"query {tuple(query_shape)}, value {tuple(value_shape)}, key {tuple(key_shape)}"
        if not all(len(shape) == self.rank for shape in (query_shape, value_shape, key_shape)):
            raise ValueError(f"Query, value and key must all be of rank {self.rank}. Received shapes: {shapes}")
        if not fit(value_shape[:-1], key_shape[:-1]):
            raise ValueError(f"All axes of value and key but the last must be equal. Received shapes: {shapes}")
        if not fit([query_shape[axis] for axis in self.others], [value_shape[axis] for axis in self.others]):
            raise ValueError(
                f"Query and value must be equal in the axes {self.others}, which are not attended over. "
                f"Received shapes: {shapes}"
            )

    def fold(self, tensor: Tensor) -> Tensor:
        """`(B, ..., D)` -> `(B', T, D)`."""
        return tensor if self.trivial else self._fold(tensor, ops.shape(tensor))

    def fold_mask(self, mask: Tensor | None, like: Tensor, name: str = "mask") -> Tensor | None:
        """A mask of positions, `(B, ...)`, which may lack last axes of its input -> `(B', T)`.

        Args:
            mask: boolean, or numbers, where any nonzero number means True; 1 in place of B for all rows. None stays
                None.
            like: the input.
            name: what the mask is called, for the message.

        Raises:
            ValueError: a mask that does not fit the input, or has negative numbers.
        """
        if mask is None:
            return None
        mask = allowed(mask, name)
        sizes = tuple(like.shape[: len(mask.shape)])
        if len(mask.shape) > self.rank - 1 or not (fit(mask.shape, sizes) or fit(mask.shape, (1, *sizes[1:]))):
            raise ValueError(
                f"`{name}` must have the first axes of its input, {tuple(like.shape)[:-1]}. "
                f"Received: {name} of shape {tuple(mask.shape)}"
            )
        if self.trivial and len(mask.shape) == 2:
            return mask
        while len(mask.shape) < self.rank - 1:
            mask = ops.expand_dims(mask, -1)  # (B, ..., 1)
        return self._fold(ops.broadcast_to(mask, ops.shape(like)[:-1]), ops.shape(like)[:-1])

    def _fold(self, tensor: Tensor, sizes: Sequence[Any]) -> Tensor:
        features = range(self.rank - 1, len(sizes))
        batch, length = (math.prod(sizes[axis] for axis in axes) for axes in (self.others, self.axes))
        tensor = ops.transpose(tensor, (*self.order, *features))  # (B, others, attended over, D)
        return ops.reshape(tensor, (batch, length, *(sizes[axis] for axis in features)))  # (B', T, D)

    def unfold(self, tensor: Tensor, query: Tensor) -> Tensor:
        """`(B', T, ...)` -> `(B, ..., ...)` with the axes of the query."""
        if self.trivial:
            return tensor
        sizes = ops.shape(query)
        tensor = ops.reshape(tensor, (*(sizes[axis] for axis in self.order), *ops.shape(tensor)[2:]))  # as `order` says
        back = sorted(range(self.rank - 1), key=self.order.__getitem__)
        return ops.transpose(tensor, (*back, *range(self.rank - 1, len(tensor.shape))))

    def fold_pairs(
        self, mask: Tensor | None, query: Tensor, key: Tensor, name: str = "attention_mask", heads: int | None = None
    ) -> Tensor | None:
        """A mask of pairs -> `(B', H, T, S)`, where axes may be 1.

        Its last axes are those attended over: first of the query, then of the key. Before them are the axes that are
        folded into the batch, and then the heads. These may be left out, the last ones first.

        Args:
            mask: boolean, or numbers, where any nonzero number means True; None stays None.
            query: the query.
            key: the key.
            name: what the mask is called, for the message.
            heads: the number of heads; None for a mask that has no axis of them.

        Raises:
            ValueError: a mask with a wrong number of axes, with wrong sizes, or with negative numbers.
        """
        if mask is None:
            return None
        mask = ops.convert_to_tensor(mask)
        count = len(self.axes)
        highest = len(self.others) + 1 + 2 * count
        most = highest if heads else highest - 1
        given = tuple(mask.shape)
        if not 2 * count <= len(given) <= most:
            raise ValueError(
                f"`{name}` must have {2 * count} to {most} axes for {self}: the queries' and the keys', "
                f"before them {'the heads, before them ' if heads else ''}the batch. "
                f"Received: {name} of shape {given}"
            )
        mask = allowed(mask, name)
        while len(mask.shape) < highest:
            mask = ops.expand_dims(mask, -2 * count - 1)  # an axis of 1 for each one that was left out
        expected = self.weights_shape(query.shape, key.shape, heads)
        if not all(size == 1 or fit([size], [other]) for size, other in zip(mask.shape, expected, strict=True)):
            place = len(self.others)  # of the heads
            shown = expected if heads else (*expected[:place], *expected[place + 1 :])
            raise ValueError(
                f"`{name}` must fit (batch, {'heads, ' if heads else ''}queries, keys), here {shown}, or have axes of "
                f"1. Received: {name} of shape {given}"
            )
        if self.trivial:
            return mask
        of_query, of_key, shape = ops.shape(query), ops.shape(key), ops.shape(mask)
        batch = [of_query[axis] for axis in self.others]
        targets, sources = ([sizes[axis] for axis in self.axes] for sizes in (of_query, of_key))
        heads = shape[len(self.others)]
        mask = ops.broadcast_to(mask, (*batch, heads, *targets, *sources))
        return ops.reshape(mask, (math.prod(batch), heads, math.prod(targets), math.prod(sources)))  # (B', H, T, S)

    def unfold_weights(self, weights: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """`(B', H, T, S)` -> `(B, ..., H, axes of the query, axes of the key)`."""
        if self.trivial:
            return weights
        of_query, of_key = ops.shape(query), ops.shape(key)
        return ops.reshape(weights, self.weights_shape(of_query, of_key, ops.shape(weights)[1]))

    def weights_shape(self, query_shape: Shape, key_shape: Shape, heads: Any) -> tuple:
        """The shape of unfolded weights."""
        batch = (query_shape[axis] for axis in self.others)
        return (*batch, heads, *(query_shape[axis] for axis in self.axes), *(key_shape[axis] for axis in self.axes))

    def __str__(self) -> str:
        return f"attention over the axes {self.axes} of inputs of rank {self.rank}"


def token_mask(mask: Tensor | None, inputs: Tensor, name: str = "mask") -> Tensor | None:
    """A mask of the tokens of `(B, T, D)` -> booleans `(B, T)`; None stays None.

    Args:
        mask: `(B, T)`, or `(1, T)` for all rows.
        inputs: `(B, T, D)`.
        name: what the mask is called, for the message.

    Raises:
        ValueError: a mask that does not fit the inputs, or has negative numbers.
    """
    if mask is None:
        return None
    mask = allowed(mask, name, "at tokens")
    rows, length = inputs.shape[:2]
    if not (fit(mask.shape, (rows, length)) or fit(mask.shape, (1, length))):
        raise ValueError(
            f"`{name}` must have the shape of the tokens, {(rows, length)}. "
            f"Received: {name} of shape {tuple(mask.shape)}"
        )
    if mask.shape[0] == 1:  # not by the inputs' shape, which a functional model does not know
        mask = ops.logical_and(mask, ops.ones_like(inputs[:, :, 0], dtype="bool"))
    return mask


def memory_mask(mask: Tensor, query: Tensor, memory_length: int | None) -> Tensor:
    """A mask of keys `(B, S)` or of pairs `(B, T, S)` -> booleans of the same shape.

    Args:
        mask: the mask; 1 in place of B for all, and in one of pairs also in place of T or S.
        query: `(B, T, D)`.
        memory_length: S; None where it is not known.

    Raises:
        ValueError: a mask that does not fit, such as one of the newest key alone, or has negative numbers.
    """
    mask = allowed(mask, "mask")
    given, (rows, length) = tuple(mask.shape), query.shape[:2]
    keys, pairs = (rows, memory_length), (rows, length, memory_length)
    sizes = tuple(None if size == 1 else size for size in given)
    if not (fit(sizes, pairs) or (fit(sizes, keys) and fit(given[1:], keys[1:]))):
        raise ValueError(
            f"`mask` must be (batch, keys) or (batch, queries, keys), here {keys} or {pairs}. "
            f"Received: mask of shape {given}"
        )
    return mask


def allowed(mask: Tensor, name: str, where: str = "where attention is allowed") -> Tensor:
    """The mask as booleans. Numbers that are added to scores, 0 and -inf as in PyTorch, would mean the opposite."""
    mask = ops.convert_to_tensor(mask)
    known = hasattr(mask, "numpy")  # not so in a graph
    if known and keras.backend.is_float_dtype(mask.dtype) and (ops.convert_to_numpy(mask) < 0).any():
        raise ValueError(
            f"`{name}` must be True, or 1, {where}. A mask with negative numbers, such as PyTorch "
            f"adds to scores, means the opposite: pass `{name} == 0` instead. "
            f"Received: {name} with the lowest number {float(ops.min(ops.cast(mask, 'float32')))}"
        )
    return ops.cast(mask, "bool")


def check_rows(name: str, tensor: Tensor, others: Tensor, axes: int = 1) -> None:
    """Refuses a tensor of other rows than those that it is used with.

    Args:
        name: what the tensor is called.
        tensor: `(B, ...)`.
        others: `(B, ...)`.
        axes: how many first axes must be equal.

    Raises:
        ValueError: one differs; the message names the tensor.
    """
    found, wanted = tuple(tensor.shape), tuple(others.shape[:axes])
    if not fit(found[:axes], wanted):
        raise ValueError(f"The shape of `{name}` must begin with {wanted}. Received: {name} of shape {found}")


def fit(sizes: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether shapes are equal as far as they are known."""
    pairs = zip(sizes, others, strict=True)
    return len(sizes) == len(others) and all(None in pair or pair[0] == pair[1] for pair in pairs)
