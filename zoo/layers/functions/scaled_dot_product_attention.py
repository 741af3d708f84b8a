"""Scaled dot-product attention, in one piece or in blocks."""

from keras import ops

from zoo.layers.functions import blockwise_attention, whole_attention
from zoo.layers.functions.attention_mask import AttentionMask
from zoo.layers.functions.blockwise_attention import BLOCK
from zoo.layers.functions.gradients import once_differentiable
from zoo.layers.functions.inference import at_most, is_inference
from zoo.layers.functions.masked_softmax import at_least_float32
from zoo.layers.functions.whole_attention import attention_with_weights, heads_first

# Scores of the whole batch and all heads from which on blocks take over: 2**26 of them are 256 MiB.
LARGE = 2**26


def scaled_dot_product_attention(query, key, value, mask=None, noise=None, return_weights=False, blockwise=None):
    """`softmax(q k^T / sqrt(D)) v`: Vaswani et al. 2017, equation 1.

    Axes: B batch, T queries, S keys, H heads, G heads of keys and values (a divisor of H: each serves H / G heads that
    follow one another), D width of a key, E width of a value.

    Scores and softmax are computed in float32 at least. A query that may attend to nothing gets zero weights and a
    zero context.

    Args:
        query: `(B, T, H, D)`.
        key: `(B, S, G, D)`.
        value: `(B, S, G, E)`.
        mask: an `AttentionMask`; None allows all.
        noise: a `DropoutNoise` for the weights, or None.
        return_weights: whether to return the weights too (before dropout), which takes the whole matrix.
        blockwise: True computes blocks of 512 x 512 scores with a running softmax and a gradient that computes them
            again; False the whole matrix, by operations that can be differentiated any number of times; None decides:
            blocks for more than 2**26 scores (256 MiB), a whole matrix with a gradient written by hand for fewer.

    Returns:
        The context `(B, T, H, E)` in the value's dtype, and if asked for, the weights `(B, H, T, S)`.

    Raises:
        ValueError: `blockwise=True` and `return_weights=True`.

    Example:
        >>> import numpy as np
        >>> query, key, value = np.ones((2, 3, 8, 4)), np.ones((2, 5, 2, 4)), np.ones((2, 5, 2, 6))
        >>> tuple(scaled_dot_product_attention(query, key, value, AttentionMask(causal=True)).shape)
        (2, 3, 8, 6)

    References: https://arxiv.org/abs/1706.03762; grouped heads: https://arxiv.org/abs/2305.13245
    """
    if blockwise and return_weights:
        raise ValueError(
            "Attention in blocks never has all weights at once to return. Received: blockwise=True, return_weights=True"
        )
    query, key, value = (ops.convert_to_tensor(each) for each in (query, key, value))
    mask = AttentionMask() if mask is None else mask
    query = at_least_float32(query) * query.shape[-1] ** -0.5  # in this order: a bfloat16 product would be rounded
    if return_weights or blockwise is False:
        inputs = (heads_first(each) for each in (query, key, value))
        context, weights = attention_with_weights(*inputs, mask, noise)
        return (heads_first(context), weights) if return_weights else heads_first(context)
    return _attend(blockwise or _is_large(query, key), mask, noise, query, at_least_float32(key), value)


def _attend(large, mask, noise, query, key, value):
    """The context, with a gradient written by hand, in blocks or not."""
    if isinstance(large, bool):
        forward, backward = _IN_BLOCKS if large else _WHOLE
    else:
        forward, backward = _undecided(large)
    if is_inference():
        return forward(query, key, value, mask, noise)[0]

    @ops.custom_gradient
    def attend(query, key, value):
        # Under a persistent tape TensorFlow would prepare to differentiate the loops as well.
        inputs = (*(ops.stop_gradient(each) for each in (query, key, value)), mask, noise)
        context, kept = forward(*inputs)

        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            changes = backward(*inputs, context, kept, ops.stop_gradient(upstream))
            return tuple(once_differentiable(change, query, key, value, upstream) for change in changes)

        return context, gradient

    return attend(query, key, value)


_IN_BLOCKS = blockwise_attention.forward, blockwise_attention.backward
_WHOLE = whole_attention.forward, whole_attention.backward


def _undecided(large):
    """Forward and backward for sizes that are known at run time only."""

    def forward(*inputs):
        def forgetful():
            # Both ways have to keep the same, so this one keeps nothing and makes its weights again.
            context, _ = whole_attention.forward(*inputs)
            return context, (ops.zeros_like(heads_first(inputs[0])[..., :1]),)

        return ops.cond(large, lambda: blockwise_attention.forward(*inputs), forgetful)

    def backward(query, key, value, mask, noise, context, kept, change):
        inputs = query, key, value, mask, noise, context
        return ops.cond(
            large,
            lambda: blockwise_attention.backward(*inputs, kept, change),
            lambda: whole_attention.backward(*inputs, None, change),
        )

    return forward, backward


def _is_large(query, key):
    """Whether blocks pay: True or False where the sizes are known, else a boolean scalar tensor."""
    (batch, length, heads, _), memory_length = query.shape, key.shape[1]
    if at_most(BLOCK) or any(size is not None and size <= BLOCK for size in (length, memory_length)):
        return False  # scores no bigger than the rest of what a model keeps for such lengths
    if None not in (batch, length, memory_length):
        return batch * heads * length * memory_length > LARGE
    # As floats: the product may be more than 2**31.
    sizes = (ops.shape(query)[0], heads, ops.shape(query)[1], ops.shape(key)[1])
    return ops.prod([ops.cast(size, "float32") for size in sizes]) > LARGE
