"""Attention with the whole matrix of scores at once."""

from keras import ops

from zoo.layers.functions.masked_softmax import LOWEST, at_least_float32, softmax
from zoo.layers.functions.sizes import sizes_of


def attention_with_weights(query, key, value, mask, noise=None):
    """`softmax(q k^T) v` and the softmax, from operations that can be differentiated any number of times.

    Heads come first here, as a cache keeps them: a step with one query then moves nothing about.

    Args:
        query: `(B, H, T, D)`, scaled already.
        key: `(B, G, S, D)`, where G divides H.
        value: `(B, G, S, E)`.
        mask: an `AttentionMask`.
        noise: a `DropoutNoise` or None.

    Returns:
        The context `(B, H, T, E)` in the value's dtype and the weights `(B, H, T, S)`, before dropout.
    """
    dense, rows = _dense(mask, ops.shape(query)[2], ops.shape(key)[2])
    weights = _weights(at_least_float32(query), ops.swapaxes(at_least_float32(key), 2, 3), dense)
    context = _combine(weights, _draw(noise, weights), value)
    if rows is None:
        return context, weights
    # Where nothing is allowed the softmax is uniform.
    return ops.where(rows, context, ops.zeros((), context.dtype)), ops.where(
        rows, weights, ops.zeros((), weights.dtype)
    )


def forward(query, key, value, mask, noise=None):
    """The context of `attention_with_weights`, and what its gradient needs; heads after positions.

    Args:
        query: `(B, T, H, D)`, scaled already, in float32 at least, as is the key.
        key: `(B, S, G, D)`, where G divides H.
        value: `(B, S, G, E)`.
        mask: an `AttentionMask`.
        noise: a `DropoutNoise` or None.

    Returns:
        The context `(B, T, H, E)` in the value's dtype, and what is kept for `backward`: the weights `(B, H, T, S)`
        and the noise.
    """
    weights, drawn, rows = _drawn_weights(query, key, mask, noise)
    context = heads_first(_combine(weights, drawn, heads_first(value)))
    # Where nothing is allowed the softmax is uniform.
    context = context if rows is None else ops.where(heads_first(rows), context, ops.zeros((), context.dtype))
    return context, (weights, drawn)


def _drawn_weights(query, key, mask, noise):
    """Weights, noise, and which queries may attend to anything."""
    dense, rows = _dense(mask, ops.shape(query)[1], ops.shape(key)[1])
    weights = _weights(heads_first(query), _upright(key), dense)
    return weights, _draw(noise, weights), rows


def backward(query, key, value, mask, noise, context, kept, change):
    """The gradients of query, key and value, of their shapes.

    The gradient that a backend derives reads and writes the T x S matrix twice as often. And XLA on a CPU takes
    three times as long for a product whose large left side is transposed (P^T dO and dS^T Q): here the narrow side is
    transposed instead, before and after, which is why the layout is the one before heads are brought to the front.

    Args:
        query: as for `forward`.
        key: likewise.
        value: likewise.
        mask: likewise.
        noise: likewise.
        context: what it returned.
        kept: likewise; None computes it again.
        change: the gradient of the context.
    """
    if kept is None:
        weights, drawn, rows = _drawn_weights(query, key, mask, noise)
    else:
        (weights, drawn), (_, rows) = kept, _dense(mask, ops.shape(query)[1], ops.shape(key)[1])
    change = change if rows is None else ops.where(heads_first(rows), change, ops.zeros((), change.dtype))
    # The sum over keys of each weight times its change, without another pass over T x S.
    common = ops.sum(at_least_float32(change) * at_least_float32(context), axis=-1, keepdims=True)
    of_weights = at_least_float32(_grouped_product(heads_first(change), _upright(value)))
    of_weights = of_weights if drawn is None else of_weights * drawn
    of_scores = weights * (of_weights - heads_first(common))
    dropped = ops.cast(weights if drawn is None else weights * drawn, value.dtype)
    groups = key.shape[2]
    return (
        heads_first(_grouped_product(of_scores, heads_first(key))),
        _over_queries(of_scores, query, groups),
        _over_queries(dropped, change, groups),
    )


def heads_first(tensor):
    """`(B, T, H, D)` -> `(B, H, T, D)`, or back."""
    first, second = tensor.shape[1:3]
    if 1 in (first, second) and None not in (first, second, tensor.shape[3]):  # nothing moves
        return ops.reshape(tensor, (*sizes_of(tensor, slice(1)), second, first, tensor.shape[3]))
    return ops.swapaxes(tensor, 1, 2)


def _upright(tensor):
    """`(B, S, G, D)` -> `(B, G, D, S)`."""
    return ops.transpose(tensor, (0, 2, 3, 1))


def _dense(mask, length, memory_length):
    """The mask of pairs, and of queries that have any; None each if all is allowed."""
    dense = mask.dense(length, memory_length)
    return dense, mask.rows(dense)


def _draw(noise, weights):
    return None if noise is None else ops.cast(noise(ops.shape(weights)), weights.dtype)


def _weights(query, upright_key, dense):
    scores = _grouped_product(query, upright_key)
    return softmax(scores if dense is None else ops.where(dense, scores, LOWEST))


def _combine(weights, drawn, value):
    return _grouped_product(ops.cast(weights if drawn is None else weights * drawn, value.dtype), value)


def _grouped_product(left, right):
    """`left @ right` with a right side for every group of heads: `(B, H, T, X)`, `(B, G, X, Y)` -> `(B, H, T, Y)`."""
    heads, groups = left.shape[1], right.shape[1]
    if heads == groups:
        return ops.matmul(left, right)
    batch, _, length, width = ops.shape(left)
    folded = ops.reshape(left, (batch, groups, heads // groups * length, width))
    return ops.reshape(ops.matmul(folded, right), (batch, heads, length, ops.shape(right)[3]))


def _over_queries(pairs, of_queries, groups):
    """`pairs^T @ of_queries`, summed over each group: `(B, H, T, S)`, `(B, T, H, X)` -> `(B, S, G, X)`."""
    batch, heads, length, memory_length = ops.shape(pairs)
    upright = _upright(of_queries)
    if heads != groups:
        width, members = of_queries.shape[-1], heads // groups
        upright = ops.reshape(upright, (batch, groups, members, width, length))
        upright = ops.reshape(ops.swapaxes(upright, 2, 3), (batch, groups, width, members * length))
        pairs = ops.reshape(pairs, (batch, groups, members * length, memory_length))
    return ops.transpose(ops.matmul(upright, pairs), (0, 3, 1, 2))
