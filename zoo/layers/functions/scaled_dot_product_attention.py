"""Scaled dot-product attention: Vaswani et al. 2017, section 3.2.1.

`_forward` is the equation in plain operations; read it first. Below it are a version with a gradient written by hand,
one that leaves out scores behind a causal mask, and the choice between these and attention in blocks
(`blockwise_attention`).

Axes: B batch, T queries, S keys, H heads, G heads of keys and values (a divisor of H), d width of a key, e width of a
value. Heads come before positions, `(B, H, T, d)`, except in the public `scaled_dot_product_attention`.
"""

import contextlib
import contextvars
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import keras
from keras import ops

from zoo.layers.functions import blockwise_attention
from zoo.layers.functions.axes import fit
from zoo.layers.functions.blockwise_attention import BLOCK
from zoo.layers.functions.masks import LOWEST, AttentionMask, softmax
from zoo.layers.functions.random import DropoutMask
from zoo.layers.functions.tensors import Tensor, at_least_float32, compiled_by_xla, heads_first, on_gpu, positions_first

# More scores than this, over the batch and all heads, are computed in blocks: 2**26 of them are 256 MiB. On a GPU,
# where loops over blocks start many small kernels, it is 1 GiB. (`benchmarks/notes.md`, long_attention.py)
LARGE, LARGE_ON_GPU = 2**26, 2**28
# From this many tokens on, XLA computes in blocks if there is no GPU: a training step with strips takes up to 1.3 times
# as long. In a graph, strips are faster than blocks. (`benchmarks/notes.md`, attention.py)
LONG_UNDER_XLA = 2048
# Behind a causal mask, the scores are computed in strips of queries: four from SHORTEST tokens on, and eight from LONG
# tokens on. Measured on a CPU (`benchmarks/notes.md`, attention.py).
STRIPS, SHORTEST, SHORTEST_UNDER_XLA, LONG = 4, 256, 128, 1024
# Fewer scores than this, over the batch and all heads, are one piece: then the operations of strips cost too much.
MANY = 2**22

# The first query of each strip, and the last plus 1; empty for the whole matrix.
Strips = list[tuple[int, int]]


def _forward(
    query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask, dropout_mask: DropoutMask | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """`softmax(Q K^T / sqrt(d)) V`, with the whole matrix of scores, which are in float32 at least."""
    length, memory_length = ops.shape(query)[2], ops.shape(key)[2]
    # Scaled in float32: a narrower type would round.
    query = at_least_float32(query) * query.shape[-1] ** -0.5  # (B, H, T, d)
    key = ops.swapaxes(at_least_float32(key), 2, 3)  # (B, G, d, S)
    scores = _product(query, key)  # (B, H, T, S)
    # Without the mask of the queries, which follows in `any_allowed`.
    allowed = mask.dense(length, memory_length)  # (B, H, T, S) with axes of 1; None allows all
    if allowed is not None:
        scores = ops.where(allowed, scores, LOWEST)
    weights = softmax(scores)  # (B, H, T, S)
    drawn = None if dropout_mask is None else ops.cast(dropout_mask(ops.shape(weights)), weights.dtype)
    dropped = weights if drawn is None else weights * drawn
    context = _product(ops.cast(dropped, value.dtype), value)  # (B, H, T, e)
    # If a query may attend to nothing, its softmax is uniform. Setting its context to zero writes e numbers; setting
    # its weights to zero would write S.
    any_allowed = mask.any_allowed(allowed)  # (B, H, T, 1); None if every query may attend to something
    return _zero_unless(any_allowed, context), weights, drawn, any_allowed


def attention_with_weights(
    query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask, dropout_mask: DropoutMask | None = None
) -> tuple[Tensor, Tensor]:
    """The context `(B, H, T, e)` in the value's dtype, and the weights `(B, H, T, S)` before dropout.

    Args:
        query: `(B, H, T, d)`.
        key: `(B, G, S, d)`.
        value: `(B, G, S, e)`.
        mask: which queries may attend to which keys.
        dropout_mask: drops weights; None drops none.
    """
    context, weights, _, any_allowed = _forward(query, key, value, mask, dropout_mask)
    return context, _zero_unless(any_allowed, weights)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: AttentionMask,
    dropout_mask: DropoutMask | None = None,
    blockwise: bool | None = None,
    hand_gradient: bool = True,
) -> Tensor:
    """The context `(B, H, T, e)` of `attention_with_weights`, computed faster and with less memory.

    Args:
        query: see `attention_with_weights`, as for the next four.
        key: see above.
        value: see above.
        mask: see above.
        dropout_mask: see above.
        blockwise: see `scaled_dot_product_attention`.
        hand_gradient: likewise.
    """
    inputs = query, key, value, mask, dropout_mask
    # `_FORWARD_ONLY` is set inside `forward_only`, below, by tasks and exports.
    large, is_forward_only = _is_large(query, key, blockwise), _FORWARD_ONLY.get()
    if large is False:
        return _in_strips(*inputs, hand_gradient and not is_forward_only)
    if is_forward_only:

        def in_blocks():
            return blockwise_attention.forward(*inputs)[0]

        return in_blocks() if large is True else ops.cond(large, in_blocks, lambda: _in_strips(*inputs, False))
    if large is True:
        return blockwise_attention.attention_in_blocks(*inputs)
    return _either(large, *inputs)


def _in_strips(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: AttentionMask,
    dropout_mask: DropoutMask | None,
    hand_gradient: bool,
) -> Tensor:
    """The context, by the strips of `_strips_of`, with a gradient written by hand if asked for."""
    strips = _strips_of(query, key, mask)
    # PyTorch does not see how saved tensors depend on the inputs, so second gradients would be silently wrong there.
    if not hand_gradient or keras.backend.backend() == "torch":
        return _joined(_forward_strips(strips, query, key, value, mask, dropout_mask))

    @ops.custom_gradient
    def attend(query, key, value):
        results = _forward_strips(strips, query, key, value, mask, dropout_mask)

        def gradient(*args, upstream=None):
            grad_output = args[0] if upstream is None else upstream
            return _backward_strips(strips, query, key, value, results, grad_output)

        return _joined(results), gradient

    return attend(query, key, value)


def _strips_of(query: Tensor, key: Tensor, mask: AttentionMask) -> Strips:
    """How the matrix of scores is cut: behind a causal mask, into strips of queries with the keys up to their last.

    Half of all scores are forbidden there. With n strips, (n - 1) / 2n of all scores are left out:

        keys       1 2 3 4
        queries 1  x . . .
                2  x x . .      . is not computed
                3  x x x .
                4  x x x x

    In a graph of TensorFlow, 2,048 tokens take 0.6 to 0.7 of the time, and 256 tokens 0.9 (`benchmarks/notes.md`,
    attention.py). Without a graph, for few tokens, or if their number is not known when the graph is made, there are no
    strips.
    """
    (batch, heads, length, _), memory_length = query.shape, key.shape[2]
    shortest = SHORTEST_UNDER_XLA if compiled_by_xla(query) else SHORTEST
    if length is None or length < shortest or length != memory_length or not mask.has_strips:
        return []
    in_graph = getattr(query, "graph", None) is not None
    if not in_graph or (batch is not None and batch * heads * length**2 < MANY):
        return []
    number = STRIPS if length < LONG else 2 * STRIPS
    return list(itertools.pairwise(length * i // number for i in range(number + 1)))


def _forward_strips(
    strips: Strips, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask, dropout_mask: DropoutMask | None
) -> list[Any]:
    """The results of `_forward` for each strip."""
    if not strips:
        return [_forward(query, key, value, mask, dropout_mask)]
    results = []
    for number, (begin, end) in enumerate(strips):
        # Each strip draws other numbers, by its number.
        drop: Any = None if dropout_mask is None else functools.partial(dropout_mask, block=number)
        of_strip = query[:, :, begin:end], key[:, :, :end], value[:, :, :end]
        results.append(_forward(*of_strip, mask.strip(begin, end), drop))
    return results


def _backward_strips(
    strips: Strips, query: Tensor, key: Tensor, value: Tensor, results: list[Any], grad_output: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value, from the results of `_forward_strips`."""
    if strips:
        of_strips = [
            _backward(query[:, :, begin:end], key[:, :, :end], value[:, :, :end], grad_output[:, :, begin:end], *result)
            for (begin, end), result in zip(strips, results, strict=True)
        ]
        _, of_keys, of_values = zip(*of_strips, strict=True)
        gradients = _joined(of_strips), _over_strips(strips, of_keys), _over_strips(strips, of_values)
    else:
        gradients = _backward(query, key, value, grad_output, *results[0])
    return tuple(ops.cast(each, of.dtype) for each, of in zip(gradients, (query, key, value), strict=True))


def _over_strips(strips: Strips, gradients: Sequence[Tensor]) -> Tensor:
    """The gradient of the keys or values, `(B, G, S, d)`, from those of the strips, each up to the strip's last key."""
    # Block by block: the first keys are in every strip, the last ones in one. The gradient that a backend derives fills
    # each strip's part up with zeros, and adds whole tensors. In float32: a narrower type would round each sum.
    blocks = [
        functools.reduce(ops.add, [at_least_float32(each[:, :, begin:end]) for each in gradients[number:]])
        for number, (begin, end) in enumerate(strips)
    ]
    return ops.concatenate(blocks, axis=2)  # (B, G, S, d)


def _joined(results: list[Any]) -> Tensor:
    """The first tensor of each strip's results, `(B, H, T / n, e)`, as one `(B, H, T, e)`."""
    firsts = [first for first, *_ in results]
    return firsts[0] if len(firsts) == 1 else ops.concatenate(firsts, axis=2)


def _either(
    large: Any, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask, dropout_mask: DropoutMask | None
) -> Tensor:
    """The context by blocks or by the whole matrix. The sizes are known only at run time, so the graph holds both.

    XLA cannot compile a custom gradient inside a branch, so one custom gradient surrounds both. Both branches must then
    save the same tensors. So the whole matrix is not saved; the gradient computes it again.
    """
    strips = _strips_of(query, key, mask)

    @ops.custom_gradient
    def attend(query, key, value):
        inputs = (*(ops.stop_gradient(each) for each in (query, key, value)), mask, dropout_mask)

        def whole():
            # Not `query`: under a persistent tape, TensorFlow would record the branches that read it.
            return _joined(_forward_strips(strips, *inputs)), ops.zeros_like(at_least_float32(inputs[0])[..., :1])

        context, log_sum = ops.cond(large, lambda: blockwise_attention.forward(*inputs), whole)

        def gradient(*args, upstream=None):
            grad_output = args[0] if upstream is None else upstream
            passed = ops.stop_gradient(grad_output)
            gradients = ops.cond(
                large,
                lambda: blockwise_attention.backward(*inputs, context, log_sum, passed),
                lambda: _backward_strips(strips, *inputs[:3], _forward_strips(strips, *inputs), passed),
            )
            sources = query, key, value, grad_output
            return tuple(blockwise_attention.once_differentiable(each, *sources) for each in gradients)

        return context, gradient

    return attend(query, key, value)


def _backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grad_output: Tensor,
    context: Tensor,
    weights: Tensor,
    drawn: Tensor,
    any_allowed: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of query, key and value, not yet rounded to their types.

    It reads and writes the T x S matrix half as often as the gradient that a backend derives. Its operations are plain,
    so it can be differentiated again. (`benchmarks/notes.md`, attention.py)
    """
    groups, scale = key.shape[1], query.shape[-1] ** -0.5
    grad_output = _zero_unless(any_allowed, grad_output)  # (B, H, T, e)
    # The sum over keys of weights * grad_weights, from narrow tensors instead of another pass over T x S.
    common = ops.sum(at_least_float32(grad_output) * at_least_float32(context), axis=-1, keepdims=True)  # (B, H, T, 1)
    grad_weights = at_least_float32(_product(grad_output, ops.swapaxes(value, 2, 3)))  # (B, H, T, S)
    grad_weights = grad_weights if drawn is None else grad_weights * drawn
    grad_scores = weights * (grad_weights - common)  # (B, H, T, S)
    dropped = ops.cast(weights if drawn is None else weights * drawn, value.dtype)
    grad_query = _product(grad_scores, at_least_float32(key)) * scale  # (B, H, T, d)
    grad_key = _over_queries(grad_scores, at_least_float32(query) * scale, groups)  # (B, G, S, d)
    grad_value = _over_queries(dropped, grad_output, groups)  # (B, G, S, e)
    return grad_query, grad_key, grad_value


def _product(left: Tensor, right: Tensor) -> Tensor:
    """`left @ right` with one right side for every group of heads: `(B, H, T, X)`, `(B, G, X, Y)` -> `(B, H, T, Y)`."""
    heads, groups = left.shape[1], right.shape[1]
    if heads == groups:
        return ops.matmul(left, right)
    batch, _, length, width = ops.shape(left)
    folded = ops.reshape(left, (batch, groups, heads // groups * length, width))  # (B, G, H / G T, X)
    return ops.reshape(ops.matmul(folded, right), (batch, heads, length, ops.shape(right)[3]))  # (B, H, T, Y)


def _over_queries(pairs: Tensor, of_queries: Tensor, groups: int) -> Tensor:
    """`pairs^T @ of_queries`, summed over each group: `(B, H, T, S)`, `(B, H, T, X)` -> `(B, G, S, X)`."""
    batch, heads, length, memory_length = ops.shape(pairs)
    width = of_queries.shape[-1]
    if heads != groups:
        rows = heads // groups * length
        pairs = ops.reshape(pairs, (batch, groups, rows, memory_length))  # (B, G, H / G T, S)
        of_queries = ops.reshape(of_queries, (batch, groups, rows, width))  # (B, G, H / G T, X)
    # XLA on a CPU takes up to three times as long to multiply the transpose of the large side. So the narrow side is
    # transposed, before and after; without the reshapes XLA would rewrite this to the slow form: 72 ms a training step
    # became 80 at (8, 256, 256).
    product = ops.matmul(ops.swapaxes(of_queries, 2, 3), pairs)  # (B, G, X, S)
    product = ops.swapaxes(ops.reshape(product, (batch * groups, width, memory_length)), 1, 2)  # (B G, S, X)
    return ops.reshape(product, (batch, groups, memory_length, width))  # (B, G, S, X)


def _zero_unless(condition: Tensor | None, tensor: Tensor) -> Tensor:
    return tensor if condition is None else ops.where(condition, tensor, ops.zeros((), tensor.dtype))


_FORWARD_ONLY: contextvars.ContextVar[bool] = contextvars.ContextVar("forward_only", default=False)
_MAX_LENGTH: contextvars.ContextVar[int | None] = contextvars.ContextVar("max_length", default=None)


@contextlib.contextmanager
def forward_only(max_length: int | None = None) -> Iterator[None]:
    """Promises that graphs traced inside are never differentiated, and that no sequence is longer than `max_length`.

    Attention then has no custom gradient, which a SavedModel could not keep and would warn of. Where a graph
    does not know its lengths, attention holds both ways, the whole matrix and blocks; with `max_length` it leaves out
    blocks that only longer sequences need. The numbers stay the same. Use it around an export of your own:
    `with forward_only(): model.export(path)`. It is a context and not an argument, because Keras calls the layers of a
    functional model.

    Args:
        max_length: the most positions of a sequence; None for no limit.
    """
    tokens = _FORWARD_ONLY.set(True), _MAX_LENGTH.set(max_length)
    try:
        yield
    finally:
        _FORWARD_ONLY.reset(tokens[0])
        _MAX_LENGTH.reset(tokens[1])


def _is_large(query: Tensor, key: Tensor, blockwise: bool | None) -> Any:
    """Whether to work in blocks: True or False where that is known, else a boolean scalar tensor."""
    (batch, heads, length, _), memory_length = query.shape, key.shape[2]
    sizes = batch, length, memory_length
    if blockwise is not None:
        return bool(blockwise) and 0 not in sizes  # an empty tensor has no blocks
    bound = _MAX_LENGTH.get()
    if (bound is not None and bound <= BLOCK) or any(size is not None and size <= BLOCK for size in sizes[1:]):
        return False  # at these lengths the scores are no larger than a model's other activations
    is_on_gpu = on_gpu(query)
    long = None not in sizes[1:] and min(sizes[1:]) >= LONG_UNDER_XLA
    if long and not is_on_gpu and compiled_by_xla(query):
        return True
    most = LARGE_ON_GPU if is_on_gpu else LARGE
    if None not in sizes:
        return batch * heads * length * memory_length > most
    # As floats: the product may exceed 2**31.
    dynamic = ops.shape(query)[0], heads, ops.shape(query)[2], ops.shape(key)[2]
    return ops.prod([ops.cast(size, "float32") for size in dynamic]) > most


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: AttentionMask | None = None,
    dropout_mask: DropoutMask | None = None,
    return_weights: bool = False,
    blockwise: bool | None = None,
    hand_gradient: bool = True,
) -> Any:
    """`softmax(q k^T / sqrt(d)) v`: Vaswani et al. 2017, equation 1.

    Axes: B batch, T queries, S keys, H heads, G heads of keys and values (a divisor of H: each serves H / G heads that
    follow one another), d width of a key, e width of a value.

    Scores and softmax are computed in float32 at least. A query that may attend to nothing gets zero weights and a
    zero context.

    Args:
        query: `(B, T, H, d)`.
        key: `(B, S, G, d)`.
        value: `(B, S, G, e)`.
        mask: which queries may attend to which keys; None allows all.
        dropout_mask: drops weights; None drops none.
        return_weights: whether to return the weights too (before dropout), which takes the whole matrix.
        blockwise: True computes blocks of 512 x 512 scores with a running softmax, and computes them again for the
            gradient, which cannot be differentiated again. False never does. None decides: blocks for
            more than 2**26 scores (256 MiB), and under XLA from 2,048 tokens on; on a GPU, blocks for more than 2**28
            scores (1 GiB).
        hand_gradient: whether the whole matrix gets a gradient written by hand, which is faster. It is a custom
            gradient, which a SavedModel could not keep. Blocks always have one, except in `forward_only`, and so has a
            graph that holds both ways because it does not know its lengths.

    Returns:
        The context `(B, T, H, e)` in the value's dtype, and if asked for, the weights `(B, H, T, S)`.

    Raises:
        ValueError: `blockwise=True` and `return_weights=True`, or shapes that do not fit each other.

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
    shapes = q, k, v = [tuple(each.shape) for each in (query, key, value)]
    fits = {*map(len, shapes)} == {4} and fit(q[::3], k[::3]) and fit(k[:3], v[:3])
    if not fits or (None not in (q[2], k[2]) and q[2] % k[2]):
        raise ValueError(
            "`query` must be (B, T, H, d), `key` (B, S, G, d) and `value` (B, S, G, e), where G divides H. "
            f"Received shapes: {', '.join(map(str, shapes))}"
        )
    query, key, value = map(heads_first, (query, key, value))
    mask = AttentionMask() if mask is None else mask
    if return_weights:
        context, weights = attention_with_weights(query, key, value, mask, dropout_mask)
        return positions_first(context), weights
    return positions_first(attention(query, key, value, mask, dropout_mask, blockwise, hand_gradient))
