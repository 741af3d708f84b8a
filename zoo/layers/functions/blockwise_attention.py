"""Attention block by block, in memory that grows with the length and not with its square.

Milakov and Gimelshein 2018 (https://arxiv.org/abs/1805.02867) for the running softmax, Rabe and Staats 2021
(https://arxiv.org/abs/2112.05682) and Dao et al. 2022 (https://arxiv.org/abs/2205.14135) for attention with it.

Axes, as in `scaled_dot_product_attention`: B batch, H heads, G heads of keys and values, T queries, S keys, d width of
a key, e width of a value. Of the blocks: N blocks of n queries, M blocks of m keys; N n >= T and M m >= S.
"""

import math
from typing import Any

import keras
from keras import ops

from zoo.layers.functions.masks import LOWEST, AttentionMask
from zoo.layers.functions.random import DropoutMask
from zoo.layers.functions.tensors import Tensor, at_least_float32, compiled_by_xla

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
    context, log_sum = (_joined(each, blocks.length) for each in _forward(blocks, *blocks.prepared(query, key, value)))
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
    of_queries = (blocks.divided(each, 0) for each in (grad_output, common, log_sum))
    gradients = _backward(blocks, *blocks.prepared(query, key, value), *of_queries)
    lengths = blocks.length, blocks.memory_length, blocks.memory_length
    grad_query, grad_key, grad_value = map(_joined, gradients, lengths)
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
        self.mask = mask.padded(self.length, self.memory_length, extra_queries, extra_keys)
        self.query_count = (self.length + extra_queries) // self.queries
        self.key_count = (self.memory_length + extra_keys) // self.keys

    def prepared(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scaled inputs, in float32 at least, with one head of keys and values for each query head, divided.

        Returns:
            `(N, B, H, n, d)`, `(M, B, H, m, d)` and `(M, B, H, m, e)`.
        """
        query, key, value = (at_least_float32(each) for each in (query, key, value))
        query = query * query.shape[-1] ** -0.5
        key, value = (ops.repeat(each, self.members, axis=1) if self.members > 1 else each for each in (key, value))
        return self.divided(query, 0), self.divided(key, 1), self.divided(value, 1)

    def divided(self, tensor: Tensor, side: int) -> Tensor:
        """The blocks of queries (side 0) or keys (side 1): `(B, H, T, d)` -> `(N, B, H, n, d)`; the last has zeros.

        A block is then one piece of memory, which TensorFlow takes without a copy.
        """
        extra, size = self.extra[side], (self.queries, self.keys)[side]
        batch, heads, _, width = ops.shape(tensor)
        if not (isinstance(extra, int) and extra == 0):
            tensor = ops.concatenate([tensor, ops.zeros((batch, heads, extra, width), tensor.dtype)], axis=2)
        count = (self.query_count, self.key_count)[side]
        return ops.transpose(ops.reshape(tensor, (batch, heads, count, size, width)), (2, 0, 1, 3, 4))

    def scores(self, query: Tensor, key: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """Scores of one block of queries and keys `(B, H, n, m)`, LOWEST where forbidden."""
        scores = ops.matmul(query, ops.swapaxes(key, 2, 3))
        part = i * self.queries, self.queries, j * self.keys, self.keys

        def masked() -> Tensor:
            allowed = self.mask.block(*part)
            return scores if allowed is None else ops.where(allowed, scores, LOWEST)

        # Only blocks at the edge of a causal mask or a window have forbidden pairs. For others, a pass over the scores
        # is saved in a graph; XLA makes none.
        everything = None if compiled_by_xla(scores) else self.mask.allows_all(*part)
        return masked() if everything is None else ops.cond(everything, lambda: scores, masked)

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


def _forward(blocks: _Blocks, query: Tensor, key: Tensor, value: Tensor) -> tuple[Any, Any]:
    """The context `(N, B, H, n, e)` and the logarithm of the softmax's sum `(N, B, H, n, 1)`."""
    # With a column of ones next to the values, the product also sums the weights, without a separate pass.
    value_and_one = _with_column(value, ops.ones_like(value[..., :1]))  # (M, B, H, m, e + 1)

    def over_queries(i, results):
        block = query[i]  # (B, H, n, d)

        def over_keys(j, state):
            maximum, total = state  # (B, H, n, 1), (B, H, n, e + 1)
            scores = blocks.scores(block, key[j], i, j)
            highest = ops.maximum(maximum, ops.max(scores, axis=-1, keepdims=True))
            # For a row that has met only forbidden keys, `weights` and `total` are wrong. The first allowed key then
            # multiplies them by zero.
            weights = ops.exp(scores - highest)  # (B, H, n, m)
            total = total * ops.exp(maximum - highest) + _summed(blocks, weights, value_and_one[j], i, j)
            return highest, total

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
            _put(context, i, ops.where(nothing, 0.0, total[..., :-1] / sums)),
            # In a row that may attend to nothing, the sum is so high that each weight becomes zero.
            _put(log_sum, i, ops.where(nothing, -LOWEST, maximum + ops.log(sums))),
        )

    context = ops.zeros((*ops.shape(query)[:4], value.shape[-1]), query.dtype)
    return _loop(0, blocks.query_count, over_queries, (_ring(context), _ring(ops.zeros_like(query[..., :1]))))


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
    # With one more column the product also subtracts: [q, -lse] [k, 1]^T = q k^T - lse. A GPU that multiplies in TF32
    # rounds lse to 10 bits there. To subtract it after the product would take another pass over the scores.
    query_less = _with_column(query, -log_sum)  # (N, B, H, n, d + 1)
    key_and_one = _with_column(key, ops.ones_like(key[..., :1]))  # (M, B, H, m, d + 1)
    # The gradients of keys and values are sums of products with a transposed block of scores. Transposed themselves,
    # they are products with narrow tensors, which are transposed once: (s^T q)^T = q^T s.
    transposed_queries = ops.swapaxes(query, 3, 4)  # (N, B, H, d, n)
    transposed_outputs = ops.swapaxes(grad_output, 3, 4)  # (N, B, H, e, n)

    def over_keys(j, gradients):
        key_block, one_block, value_block = key[j], key_and_one[j], value[j]

        def add_block(i, of_queries, of_keys, of_values):
            weights = ops.exp(blocks.scores(query_less[i], one_block, i, j))  # (B, H, n, m)
            grad_weights = blocks.dropped(ops.matmul(grad_output[i], ops.swapaxes(value_block, 2, 3)), i, j)
            grad_scores = weights * (grad_weights - common[i])  # (B, H, n, m)
            return (
                of_queries + ops.matmul(grad_scores, key_block),  # (B, H, n, d)
                of_keys + ops.matmul(transposed_queries[i], grad_scores),  # (B, H, d, m)
                of_values + ops.matmul(transposed_outputs[i], blocks.dropped(weights, i, j)),  # (B, H, e, m)
            )

        grad_query, grad_key, grad_value = gradients
        first, end = blocks.query_blocks(j)
        # A ring ends where it began after a whole round, which then skips the queries that do not look at these keys.
        is_ring = isinstance(grad_query, tuple)
        skips = is_ring and not (isinstance(first, int) and isinstance(end, int))

        def over_queries(i, state):
            grad_query, *sums = state
            before = _get(grad_query, i), *sums
            if skips:
                looks = ops.logical_and(first <= i, i < end)
                after = ops.cond(looks, lambda: add_block(i, *before), lambda: before)
            else:
                after = add_block(i, *before)
            return _put(grad_query, i, after[0]), *after[1:]

        start = (ops.zeros_like(ops.swapaxes(each, 2, 3)) for each in (key_block, value_block))  # (B, H, d or e, m)
        turns = (0, blocks.query_count) if is_ring else (first, end)
        grad_query, of_keys, of_values = _loop(*turns, over_queries, (grad_query, *start))
        of_keys, of_values = (ops.swapaxes(each, 2, 3) for each in (of_keys, of_values))
        return grad_query, _put(grad_key, j, of_keys), _put(grad_value, j, of_values)

    return _loop(0, blocks.key_count, over_keys, tuple(_ring(ops.zeros_like(each)) for each in (query, key, value)))


def _loop(first: Tensor, end: Tensor, body: Any, state: Any) -> Any:
    """`for i in range(first, end): state = body(i, state)`, strictly one after the other."""

    def step(i, *former):
        # A graph may know the batch of the queries, but not of the keys; a state keeps the shape that it began with.
        state = [_shaped_like(old, new) for old, new in zip(former, body(i, former), strict=True)]
        # TensorFlow would start up to ten iterations at once, each with its own blocks. A counter that depends on the
        # results prevents this. `nothing` is always zero, but TensorFlow cannot know that before it has the results.
        last = state[-1][-1] if isinstance(state[-1], tuple) else state[-1]
        corner = ops.sum(last[:1, :1, :1, :1])  # 0 for an empty batch
        nothing = ops.cast(ops.logical_and(corner > 0, corner < 0), "int32")
        return (i + 1 + nothing, *state)

    first = ops.cast(first, "int32")
    return ops.while_loop(lambda i, *state: i < end, step, (first, *state))[1:]


def _ring(zeros: Tensor) -> Any:
    """Blocks `(N, B, H, n, d)` that a loop changes one by one, by `_get` and `_put`.

    To put a block into a tensor copies the whole tensor in a graph of TensorFlow: for 8,192 tokens a fifth of a
    training step, for 32,768 half of it. So there they are a tuple. Its first block is the one whose turn it is;
    then it becomes the last one. A loop hands tuples on without a copy. XLA changes a tensor in place.
    """
    if keras.backend.backend() != "tensorflow" or compiled_by_xla(zeros) or zeros.shape[0] is None:
        return zeros
    return (zeros[0],) * zeros.shape[0]


def _get(blocks: Any, number: Tensor) -> Tensor:
    """Block `number`, `(B, H, n, d)`."""
    return blocks[0] if isinstance(blocks, tuple) else blocks[number]


def _put(blocks: Any, number: Tensor, block: Tensor) -> Any:
    """The blocks with another one at `number`."""
    if isinstance(blocks, tuple):
        return *blocks[1:], _shaped_like(blocks[0], block)
    return ops.slice_update(blocks, [number, 0, 0, 0, 0], block[None])


def _joined(blocks: Any, length: int | Tensor) -> Tensor:
    """The inverse of `_Blocks.divided`, without the padding: `(N, B, H, n, d)` -> `(B, H, T, d)`."""
    if isinstance(blocks, tuple):
        blocks = ops.stack(blocks)
    count, batch, heads, size, width = ops.shape(blocks)
    return ops.reshape(ops.transpose(blocks, (1, 2, 0, 3, 4)), (batch, heads, count * size, width))[:, :, :length]


def _shaped_like(old: Tensor, new: Tensor) -> Tensor:
    """The new tensor, with the axes that a graph knows of the old one."""
    if isinstance(new, tuple):
        return new
    unknown = any(after is None and before is not None for before, after in zip(old.shape, new.shape, strict=True))
    return ops.reshape(new, ops.shape(old)) if unknown else new


def _with_column(tensor: Tensor, column: Tensor) -> Tensor:
    return ops.concatenate([tensor, column], axis=-1)


def _divide(static_length: int | None, length: int | Tensor) -> Any:
    """The size of the blocks, and how much is missing from the length to a multiple of it."""
    if static_length is None:
        return BLOCK, _ceil(ops.maximum(length, 1), BLOCK) * BLOCK - length  # at least one block
    # All blocks have one size, which needs little padding and suits vector registers.
    size = 16 * _ceil(_ceil(static_length, _ceil(static_length, BLOCK)), 16)
    return size, -static_length % size


def _ceil(number: int | Tensor, size: int) -> Any:
    return (number + size - 1) // size
