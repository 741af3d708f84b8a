"""Attention block by block, in memory that grows with the length and not with its square.

Milakov and Gimelshein 2018 (https://arxiv.org/abs/1805.02867) for the running softmax, Rabe and Staats 2021
(https://arxiv.org/abs/2112.05682) and Dao et al. 2022 (https://arxiv.org/abs/2205.14135) for attention with it.
"""

from keras import ops

from zoo.layers.functions.masked_softmax import LOWEST, at_least_float32
from zoo.layers.functions.whole_attention import heads_first

BLOCK = 512  # pairs of 512 x 512 a head: the scores of four heads fit a CPU's cache, and loops cost little


def forward(query, key, value, mask, noise=None):
    """`softmax(q k^T) v`, exact, with no more than a block of scores a head in memory at a time.

    For a block of queries it goes through the blocks of keys with a running maximum m and sum l: a new block with
    scores s turns them into m' = max(m, max s), l' = l e^(m - m') + sum e^(s - m'), and the context likewise. Blocks
    that position alone forbids are skipped.

    All is computed in float32 at least, whatever the value's dtype.

    Args:
        query: `(B, T, H, D)`, scaled already, in float32 at least, as is the key.
        key: `(B, S, G, D)`, where G divides H.
        value: `(B, S, G, E)`.
        mask: an `AttentionMask`.
        noise: a `DropoutNoise` or None.

    Returns:
        The context `(B, T, H, E)` in the value's dtype, and what is kept for `backward`: m + log l, `(B, H, T, 1)`.
    """
    blocks = _Blocks(query, key, mask, noise)
    context, log_sum = _forward(blocks, *blocks.prepared(query, key, value))
    context, log_sum = context[:, :, : blocks.length], log_sum[:, :, : blocks.length]
    return ops.cast(heads_first(context), value.dtype), (log_sum,)


def backward(query, key, value, mask, noise, context, kept, change):
    """The gradients of query, key and value, of their shapes; computes each block of scores again.

    Args:
        query: as for `forward`.
        key: likewise.
        value: likewise.
        mask: likewise.
        noise: likewise.
        context: what it returned.
        kept: likewise.
        change: the gradient of the context.
    """
    blocks = _Blocks(query, key, mask, noise)
    common = ops.sum(at_least_float32(change) * at_least_float32(context), axis=-1, keepdims=True)
    change, common = heads_first(at_least_float32(change)), heads_first(common)
    # Queries of the padding are zeros here as well, and so is what they add.
    of_queries = (blocks.padded(each, 0) for each in (change, common, *kept))
    changes = _backward(blocks, *blocks.prepared(query, key, value), *of_queries)
    lengths = blocks.length, blocks.memory_length, blocks.memory_length
    of_query, of_key, of_value = (heads_first(each[:, :, :n]) for each, n in zip(changes, lengths, strict=True))
    return of_query, _over_members(of_key, key), ops.cast(_over_members(of_value, value), value.dtype)


def _over_members(change, like):
    """Summed over the heads that share a group: `(B, S, H, D)` -> `(B, S, G, D)`."""
    batch, length, heads, width = ops.shape(change)
    groups = like.shape[2]
    if heads == groups:
        return change
    return ops.sum(ops.reshape(change, (batch, length, groups, heads // groups, width)), axis=3)


class _Blocks:
    """How the matrix of scores is cut, and what is forbidden and dropped in each block."""

    def __init__(self, query, key, mask, noise):
        self.noise = noise
        self.members = query.shape[2] // key.shape[2]
        self.length, self.memory_length = ops.shape(query)[1], ops.shape(key)[1]
        self.queries, extra_queries = _divide(query.shape[1], self.length)
        self.keys, extra_keys = _divide(key.shape[1], self.memory_length)
        self.extra = extra_queries, extra_keys
        self.mask = mask.padded(self.memory_length, extra_queries, extra_keys)
        self.query_count = (self.length + extra_queries) // self.queries
        self.key_count = (self.memory_length + extra_keys) // self.keys

    def prepared(self, query, key, value):
        """Heads first, as many of keys and values as of queries, and whole blocks."""
        key, value = (ops.repeat(each, self.members, axis=2) if self.members > 1 else each for each in (key, value))
        query, key, value = (heads_first(at_least_float32(each)) for each in (query, key, value))
        return self.padded(query, 0), self.padded(key, 1), self.padded(value, 1)

    def padded(self, tensor, side):
        """Zeros at the end of the third axis, for queries (side 0) or keys (side 1)."""
        extra = self.extra[side]
        if isinstance(extra, int) and extra == 0:
            return tensor
        batch, heads, _, width = ops.shape(tensor)
        return ops.concatenate([tensor, ops.zeros((batch, heads, extra, width), tensor.dtype)], axis=2)

    def scores(self, query, key, i, j):
        """Scores of one block of queries and keys, LOWEST where forbidden."""
        scores = ops.matmul(query, ops.swapaxes(key, 2, 3))
        allowed = self.mask.block(i * self.queries, self.queries, j * self.keys, self.keys)
        return scores if allowed is None else ops.where(allowed, scores, LOWEST)

    def dropped(self, pairs, i, j):
        """The block of weights, or of their gradient, after dropout: the same one each time."""
        if self.noise is None:
            return pairs
        return pairs * ops.cast(self.noise(ops.shape(pairs), i * self.key_count + j), pairs.dtype)

    def key_blocks(self, i):
        """The blocks of keys that block i of queries has to look at, as a range."""
        first, end = self.mask.key_range(i * self.queries, (i + 1) * self.queries - 1, self.key_count * self.keys)
        return first // self.keys, _ceil(end, self.keys)

    def query_blocks(self, j):
        """The blocks of queries that look at block j of keys, as a range."""
        first, end = self.mask.query_range(j * self.keys, (j + 1) * self.keys - 1, self.query_count * self.queries)
        return first // self.queries, _ceil(end, self.queries)


def _forward(blocks, query, key, value):
    """The context `(B, H, T, D)` and the logarithm of the softmax's sum `(B, H, T, 1)`."""
    # A column of ones beside the values makes the product sum the weights too, without a pass of its own.
    value_and_one = _with_column(value, ops.ones_like(value[..., :1]))

    def over_queries(i, results):
        block = _take(query, i, blocks.queries)

        def over_keys(j, state):
            maximum, total = state
            scores = blocks.scores(block, _take(key, j, blocks.keys), i, j)
            highest = ops.maximum(maximum, ops.max(scores, axis=-1, keepdims=True))
            # Rows that have met nothing allowed yet count wrong here; the first real score multiplies that by zero.
            weights = ops.exp(scores - highest)
            values = _take(value_and_one, j, blocks.keys)
            return highest, total * ops.exp(maximum - highest) + _summed(blocks, weights, values, i, j)

        rows = (*ops.shape(block)[:3], 1)
        start = ops.full(rows, LOWEST, query.dtype), ops.zeros((*rows[:3], value.shape[-1] + 1), query.dtype)
        maximum, total = _loop(*blocks.key_blocks(i), over_keys, start)
        any_allowed = maximum > 0.5 * LOWEST
        sums = ops.where(any_allowed, total[..., -1:], 1.0)
        context, log_sum = results
        return (
            _put(context, i, blocks.queries, ops.where(any_allowed, total[..., :-1] / sums, 0.0)),
            # A row that may attend to nothing: so high a sum that each weight comes out as zero.
            _put(log_sum, i, blocks.queries, ops.where(any_allowed, maximum + ops.log(sums), -LOWEST)),
        )

    start = ops.zeros((*ops.shape(query)[:3], value.shape[-1]), query.dtype), ops.zeros_like(query[..., :1])
    return _loop(0, blocks.query_count, over_queries, start)


def _summed(blocks, weights, value_and_one, i, j):
    """Weighted values, and beside them the sum of the weights, which dropout leaves alone."""
    if blocks.noise is None:
        return ops.matmul(weights, value_and_one)
    values = ops.matmul(blocks.dropped(weights, i, j), value_and_one[..., :-1])
    return _with_column(values, ops.sum(weights, axis=-1, keepdims=True))


def _backward(blocks, query, key, value, change, common, log_sum):
    """The gradients of query, key and value: Dao et al. 2022, appendix B.2."""
    # A column more makes the product subtract as well: [q, -lse] [k, 1]^T = q k^T - lse.
    query_less = _with_column(query, -log_sum)
    key_and_one = _with_column(key, ops.ones_like(key[..., :1]))

    def over_keys(j, changes):
        key_block, one_block, value_block = (_take(each, j, blocks.keys) for each in (key, key_and_one, value))

        def over_queries(i, state):
            of_query, of_key, of_value = state
            query_block, change_block = _take(query, i, blocks.queries), _take(change, i, blocks.queries)
            weights = ops.exp(blocks.scores(_take(query_less, i, blocks.queries), one_block, i, j))
            of_weights = blocks.dropped(ops.matmul(change_block, ops.swapaxes(value_block, 2, 3)), i, j)
            of_scores = weights * (of_weights - _take(common, i, blocks.queries))
            of_block = _take(of_query, i, blocks.queries) + ops.matmul(of_scores, key_block)
            return (
                _put(of_query, i, blocks.queries, of_block),
                of_key + _transposed_product(query_block, of_scores),
                of_value + _transposed_product(change_block, blocks.dropped(weights, i, j)),
            )

        of_query, of_key, of_value = changes
        start = of_query, ops.zeros_like(key_block), ops.zeros_like(value_block)
        of_query, key_part, value_part = _loop(*blocks.query_blocks(j), over_queries, start)
        return of_query, _put(of_key, j, blocks.keys, key_part), _put(of_value, j, blocks.keys, value_part)

    return _loop(0, blocks.key_count, over_keys, (ops.zeros_like(query), ops.zeros_like(key), ops.zeros_like(value)))


def _loop(first, end, body, state):
    """`for i in range(first, end): state = body(i, state)`, strictly one after the other."""

    def step(i, *state):
        state = body(i, state)
        # TensorFlow would start as many as ten iterations at once, each with blocks of its own. A counter that waits
        # for the results prevents it: what is added here is zero, but only the results say so.
        corner = ops.max(ops.slice(state[-1], [0] * 4, [1] * 4))
        nothing = ops.cast(ops.logical_and(corner > 0, corner < 0), "int32")
        return (i + 1 + nothing, *state)

    first = ops.cast(first, "int32")
    return ops.while_loop(lambda i, *state: i < end, step, (first, *state))[1:]


def _take(tensor, number, size):
    """Block `number` along the third axis: `(B, H, T, D)` -> `(B, H, size, D)`."""
    shape = ops.shape(tensor)
    return ops.slice(tensor, [0, 0, number * size, 0], [shape[0], shape[1], size, shape[3]])


def _put(tensor, number, size, block):
    return ops.slice_update(tensor, [0, 0, number * size, 0], block)


def _with_column(tensor, column):
    return ops.concatenate([tensor, column], axis=-1)


def _transposed_product(left, right):
    """`right^T @ left`, by way of the short side's transposes."""
    return ops.swapaxes(ops.matmul(ops.swapaxes(left, 2, 3), right), 2, 3)


def _divide(static_length, length):
    """The size of the blocks, and how much is missing from the length to a multiple of it."""
    if static_length is None:
        return BLOCK, -length % BLOCK
    # Blocks of one size that leave little over, and whose size suits vector registers.
    size = 16 * _ceil(_ceil(static_length, _ceil(static_length, BLOCK)), 16)
    return size, -static_length % size


def _ceil(number, size):
    return (number + size - 1) // size
