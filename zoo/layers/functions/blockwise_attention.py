"""Attention block by block, in memory that grows with the length and not with its square.

Milakov and Gimelshein 2018 (https://arxiv.org/abs/1805.02867) for the running softmax, Rabe and Staats 2021
(https://arxiv.org/abs/2112.05682) and Dao et al. 2022 (https://arxiv.org/abs/2205.14135) for attention with it.

Axes, as in `scaled_dot_product_attention`: B batch, H heads, G heads of keys and values, T queries, S keys, d width of
a key, e width of a value.
"""

import math
from typing import Any

from keras import ops

from zoo.layers.functions.masks import LOWEST, AttentionMask
from zoo.layers.functions.random import DropoutMask
from zoo.layers.functions.tensors import Tensor, at_least_float32

BLOCK = 512  # 512 x 512 scores a head: those of four heads fit into the cache of a CPU, and loops cost little


def attention_in_blocks(
    query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask, dropout_mask: DropoutMask | None = None
) -> Tensor:
    """The context `(B, H, T, e)` in the value's dtype, with a gradient in blocks too.

    Args:
        query: `(B, H, T, d)`.
        key: `(B, G, S, d)`.
        value: `(B, G, S, e)`.
        mask: which queries may attend to which keys.
        dropout_mask: drops weights; None drops none.
    """

    @ops.custom_gradient
    def attend(query, key, value):
        # Without `stop_gradient`, TensorFlow would also record the loops under a persistent tape.
        inputs = (*(ops.stop_gradient(each) for each in (query, key, value)), mask, dropout_mask)
        context, log_sum = forward(*inputs)

        def gradient(*args, upstream=None):
            grad_output = args[0] if upstream is None else upstream
            gradients = backward(*inputs, context, log_sum, ops.stop_gradient(grad_output))
            return tuple(once_differentiable(each, query, key, value, grad_output) for each in gradients)

        return context, gradient

    return attend(query, key, value)


def forward(
    query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask, dropout_mask: DropoutMask | None = None
) -> tuple[Tensor, Tensor]:
    """Context `(B, H, T, e)`, and the logarithm of each softmax's sum `(B, H, T, 1)`, which `backward` needs.

    For a block of queries it goes through the blocks of keys with a running maximum m and sum l: a new block with
    scores s turns them into m' = max(m, max s), l' = l e^(m - m') + sum e^(s - m'), and the context likewise. Blocks
    that position alone forbids are skipped. Only one block of scores for each head is in memory at a time. The result
    is exact, and computed in float32 at least.
    """
    blocks = _Blocks(query, key, mask, dropout_mask)
    context, log_sum = _forward(blocks, *blocks.prepared(query, key, value))
    context, log_sum = context[:, :, : blocks.length], log_sum[:, :, : blocks.length]  # without the padding
    return ops.cast(context, value.dtype), log_sum


def backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: AttentionMask,
    dropout_mask: DropoutMask | None,
    context: Tensor,
    log_sum: Tensor,
    grad_output: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value; computes each block of scores again."""
    blocks = _Blocks(query, key, mask, dropout_mask)
    grad_output = at_least_float32(grad_output)  # (B, H, T, e)
    common = ops.sum(grad_output * at_least_float32(context), axis=-1, keepdims=True)  # (B, H, T, 1)
    # Padded queries are zeros here as well, so they add zeros.
    of_queries = (blocks.padded(each, 0) for each in (grad_output, common, log_sum))
    gradients = _backward(blocks, *blocks.prepared(query, key, value), *of_queries)
    lengths = blocks.length, blocks.memory_length, blocks.memory_length
    grad_query, grad_key, grad_value = (each[:, :, :n] for each, n in zip(gradients, lengths, strict=True))
    grad_query = grad_query * query.shape[-1] ** -0.5
    grad_key, grad_value = _over_members(grad_key, key), _over_members(grad_value, value)  # (B, G, S, d or e)
    return tuple(
        ops.cast(gradient, tensor.dtype)
        for gradient, tensor in ((grad_query, query), (grad_key, key), (grad_value, value))
    )


def once_differentiable(gradient: Tensor, *sources: Tensor) -> Tensor:
    """The same gradient, but an error if it is differentiated again.

    `backward` uses what `forward` has saved. A second differentiation would take these for constants and be silently
    wrong. The sources are the tensors that the gradient really depends on, even if the backend does not see it. Without
    them the backend would take a second gradient for zero, without an error.
    """

    @ops.custom_gradient
    def identity(gradient, *sources):
        def refuse(*args, upstream=None):
            raise NotImplementedError(
                "The gradient of attention in blocks cannot be differentiated again. "
                "With `flash_attention=False` attention is computed as a whole, and can."
            )

        return gradient, refuse

    return identity(gradient, *sources)


def _over_members(gradient: Tensor, like: Tensor) -> Tensor:
    """Summed over the heads that share a group: `(B, H, S, d)` -> `(B, G, S, d)`."""
    batch, heads, length, width = ops.shape(gradient)
    groups = like.shape[1]
    if heads == groups:
        return gradient
    return ops.sum(ops.reshape(gradient, (batch, groups, heads // groups, length, width)), axis=2)


class _Blocks:
    """How the matrix of scores is cut, and what is forbidden and dropped in each block."""

    def __init__(self, query: Tensor, key: Tensor, mask: AttentionMask, dropout_mask: DropoutMask | None):
        self.dropout_mask = dropout_mask
        self.members = query.shape[1] // key.shape[1]
        self.length, self.memory_length = ops.shape(query)[2], ops.shape(key)[2]
        self.queries, extra_queries = _divide(query.shape[2], self.length)
        self.keys, extra_keys = _divide(key.shape[2], self.memory_length)
        self.extra = extra_queries, extra_keys
        self.mask = mask.padded(self.memory_length, extra_queries, extra_keys)
        self.query_count = (self.length + extra_queries) // self.queries
        self.key_count = (self.memory_length + extra_keys) // self.keys

    def prepared(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scaled inputs, in float32 at least, with one head of keys and values for each query head, in whole blocks."""
        query, key, value = (at_least_float32(each) for each in (query, key, value))
        query = query * query.shape[-1] ** -0.5
        key, value = (ops.repeat(each, self.members, axis=1) if self.members > 1 else each for each in (key, value))
        return self.padded(query, 0), self.padded(key, 1), self.padded(value, 1)

    def padded(self, tensor: Tensor, side: int) -> Tensor:
        """Zeros at the end of the third axis, for queries (side 0) or keys (side 1)."""
        extra = self.extra[side]
        if isinstance(extra, int) and extra == 0:
            return tensor
        batch, heads, _, width = ops.shape(tensor)
        return ops.concatenate([tensor, ops.zeros((batch, heads, extra, width), tensor.dtype)], axis=2)

    def scores(self, query: Tensor, key: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """Scores of one block of queries and keys, LOWEST where forbidden."""
        scores = ops.matmul(query, ops.swapaxes(key, 2, 3))  # (B, H, queries, keys)
        allowed = self.mask.block(i * self.queries, self.queries, j * self.keys, self.keys)
        return scores if allowed is None else ops.where(allowed, scores, LOWEST)

    def dropped(self, pairs: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """The block of weights, or of their gradient, after dropout: the same one each time."""
        if self.dropout_mask is None:
            return pairs
        return pairs * ops.cast(self.dropout_mask(ops.shape(pairs), i * self.key_count + j), pairs.dtype)

    def key_blocks(self, i: Tensor) -> tuple[Tensor, Tensor]:
        """The blocks of keys that block i of queries has to look at, as a range."""
        first, end = self.mask.key_range(i * self.queries, (i + 1) * self.queries - 1, self.key_count * self.keys)
        return first // self.keys, _ceil(end, self.keys)

    def query_blocks(self, j: Tensor) -> tuple[Tensor, Tensor]:
        """The blocks of queries that look at block j of keys, as a range."""
        first, end = self.mask.query_range(j * self.keys, (j + 1) * self.keys - 1, self.query_count * self.queries)
        return first // self.queries, _ceil(end, self.queries)


def _forward(blocks: _Blocks, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """The context `(B, H, T, e)` and the logarithm of the softmax's sum `(B, H, T, 1)`."""
    # With a column of ones next to the values, the product also sums the weights, without a separate pass.
    value_and_one = _with_column(value, ops.ones_like(value[..., :1]))

    def over_queries(i, results):
        block = _take(query, i, blocks.queries)

        def over_keys(j, state):
            maximum, total = state
            scores = blocks.scores(block, _take(key, j, blocks.keys), i, j)
            highest = ops.maximum(maximum, ops.max(scores, axis=-1, keepdims=True))
            # For a row that has met only forbidden keys, these are wrong. The first allowed key then multiplies them by
            # zero.
            weights = ops.exp(scores - highest)  # (B, H, queries, keys)
            values = _take(value_and_one, j, blocks.keys)
            return highest, total * ops.exp(maximum - highest) + _summed(blocks, weights, values, i, j)

        rows = (*ops.shape(block)[:3], 1)
        start = ops.full(rows, -math.inf, query.dtype), ops.zeros((*rows[:3], value.shape[-1] + 1), query.dtype)
        maximum, total = _loop(*blocks.key_blocks(i), over_keys, start)
        # If a row has no allowed key, its highest score is LOWEST or, without any block of keys, minus infinity. NaN
        # fails this test and so stays in the result, as in a softmax of the whole row. So do scores that are all minus
        # infinity, whose sum is NaN.
        nothing = ops.logical_and(maximum <= 0.5 * LOWEST, total[..., -1:] >= 0)
        sums = ops.where(nothing, 1.0, total[..., -1:])
        context, log_sum = results
        return (
            _put(context, i, blocks.queries, ops.where(nothing, 0.0, total[..., :-1] / sums)),
            # In a row that may attend to nothing, the sum is so high that each weight becomes zero.
            _put(log_sum, i, blocks.queries, ops.where(nothing, -LOWEST, maximum + ops.log(sums))),
        )

    start = ops.zeros((*ops.shape(query)[:3], value.shape[-1]), query.dtype), ops.zeros_like(query[..., :1])
    return _loop(0, blocks.query_count, over_queries, start)


def _summed(blocks: _Blocks, weights: Tensor, value_and_one: Tensor, i: Tensor, j: Tensor) -> Any:
    """Weighted values, and as a last column the sum of the weights, which dropout does not change."""
    if blocks.dropout_mask is None:
        return ops.matmul(weights, value_and_one)
    values = ops.matmul(blocks.dropped(weights, i, j), value_and_one[..., :-1])
    return _with_column(values, ops.sum(weights, axis=-1, keepdims=True))


def _backward(
    blocks: _Blocks, query: Tensor, key: Tensor, value: Tensor, grad_output: Tensor, common: Tensor, log_sum: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value: Dao et al. 2022, appendix B.2."""
    # With one more column the product also subtracts: [q, -lse] [k, 1]^T = q k^T - lse.
    query_less = _with_column(query, -log_sum)
    key_and_one = _with_column(key, ops.ones_like(key[..., :1]))

    def over_keys(j, gradients):
        key_block, one_block, value_block = (_take(each, j, blocks.keys) for each in (key, key_and_one, value))

        def over_queries(i, state):
            grad_query, grad_key, grad_value = state
            query_block, output_block = _take(query, i, blocks.queries), _take(grad_output, i, blocks.queries)
            weights = ops.exp(blocks.scores(_take(query_less, i, blocks.queries), one_block, i, j))
            grad_weights = ops.matmul(output_block, ops.swapaxes(value_block, 2, 3))  # (B, H, queries, keys)
            grad_weights = blocks.dropped(grad_weights, i, j)
            grad_scores = weights * (grad_weights - _take(common, i, blocks.queries))
            of_block = _take(grad_query, i, blocks.queries) + ops.matmul(grad_scores, key_block)
            return (
                _put(grad_query, i, blocks.queries, of_block),
                grad_key + _transposed_product(query_block, grad_scores),
                grad_value + _transposed_product(output_block, blocks.dropped(weights, i, j)),
            )

        grad_query, grad_key, grad_value = gradients
        start = grad_query, ops.zeros_like(key_block), ops.zeros_like(value_block)
        grad_query, of_keys, of_values = _loop(*blocks.query_blocks(j), over_queries, start)
        return grad_query, _put(grad_key, j, blocks.keys, of_keys), _put(grad_value, j, blocks.keys, of_values)

    return _loop(0, blocks.key_count, over_keys, (ops.zeros_like(query), ops.zeros_like(key), ops.zeros_like(value)))


def _loop(first: Tensor, end: Tensor, body: Any, state: Any) -> Any:
    """`for i in range(first, end): state = body(i, state)`, strictly one after the other."""

    def step(i, *former):
        # A graph may know the batch of the queries, but not of the keys; a state keeps the shape that it began with.
        state = [_shaped_like(old, new) for old, new in zip(former, body(i, former), strict=True)]
        # TensorFlow would start up to ten iterations at once, each with its own blocks. A counter that depends on the
        # results prevents this. `nothing` is always zero, but TensorFlow cannot know that before it has the results.
        corner = ops.sum(state[-1][:1, :1, :1, :1])  # 0 for an empty batch
        nothing = ops.cast(ops.logical_and(corner > 0, corner < 0), "int32")
        return (i + 1 + nothing, *state)

    first = ops.cast(first, "int32")
    return ops.while_loop(lambda i, *state: i < end, step, (first, *state))[1:]


def _shaped_like(old: Tensor, new: Tensor) -> Tensor:
    """The new tensor, with the axes that a graph knows of the old one."""
    unknown = any(after is None and before is not None for before, after in zip(old.shape, new.shape, strict=True))
    return ops.reshape(new, ops.shape(old)) if unknown else new


def _take(tensor: Tensor, number: Tensor, size: int) -> Tensor:
    """Block `number` along the third axis: `(B, H, T, d)` -> `(B, H, size, d)`."""
    shape = ops.shape(tensor)
    return ops.slice(tensor, [0, 0, number * size, 0], [shape[0], shape[1], size, shape[3]])


def _put(tensor: Tensor, number: Tensor, size: int, block: Tensor) -> Tensor:
    return ops.slice_update(tensor, [0, 0, number * size, 0], block)


def _with_column(tensor: Tensor, column: Tensor) -> Tensor:
    return ops.concatenate([tensor, column], axis=-1)


def _transposed_product(left: Tensor, right: Tensor) -> Tensor:
    """`right^T @ left`, which transposes only narrow tensors."""
    return ops.swapaxes(ops.matmul(ops.swapaxes(left, 2, 3), right), 2, 3)


def _divide(static_length: int | None, length: int | Tensor) -> Any:
    """The size of the blocks, and how much is missing from the length to a multiple of it."""
    if static_length is None:
        return BLOCK, -length % BLOCK
    # All blocks have one size, which needs little padding and suits vector registers.
    size = 16 * _ceil(_ceil(static_length, _ceil(static_length, BLOCK)), 16)
    return size, -static_length % size


def _ceil(number: int | Tensor, size: int) -> Any:
    return (number + size - 1) // size
