"""`zoo.layers.TransformerDecoderLayer` and `TransformerEncoderLayer`, packed: attention and the feed-forward network.

The plain formulas are those of `zoo.layers`. What is done differently, and why (figures: benchmarks/notes.md,
generation.py and serving.py):

- All axes but the features are one axis of rows, so that every projection is one product of two matrices.
- Queries, keys and values of all heads are one product; so are a gated network's inner layer and its gate.
- The query's kernel holds the factor of the scores, 1 / sqrt(d).
- Normalisations are in the weights, see `products`.
- An encoder's layer moves heads by a gather, see `groups`.

In a step a decoder layer in one part takes 35 operations instead of some 130. This halves the time for each token of
the small GPT.

Axes: B batch, K hypotheses of a row, R rows (hypotheses in a step, tokens in a prefill), T tokens, S tokens in the
cache or of the source, D width, H heads, G key and value heads, d width of a head. H and G are those of a part of a
layer, see `Part`; in the maps and masks of a layer, H are all of its heads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from zoo.layers import FeedForward, MultiHeadAttention, TransformerDecoderLayer, TransformerEncoderLayer
from zoo.layers.feed_forward import GATED
from zoo.layers.functions import AttentionMask, scaled_dot_product_attention
from zoo.layers.projection import Projection
from zoo.serving.packed.groups import Group
from zoo.serving.packed.products import (
    Norm,
    Unmoved,
    Unnormalized,
    as_array,
    matrix,
    normalized,
    product,
    side_by_side,
    softmax,
    variable,
)

Cache = tuple[tf.Tensor, tf.Tensor]  # keys and values `(B, K, G, S, d)`


class Places(NamedTuple):
    """Where a step writes into caches with room for more tokens. All parts of all layers have the same places.

    A longer cache is a copy, and copies took a third of the time of many rows (benchmarks/notes.md, generation.py).
    Here keys and values are in one tensor, of which a step changes one row for each head.

    Attributes:
        shape: 2, B, K, G, S and d as a tensor: a cache `(2 B K G S, d)` has the keys first, and then the values.
        rows: the rows of the cache that are written, for each hypothesis its keys and then its values, `(B K 2 G,)`.
    """

    shape: tf.Tensor
    rows: tf.Tensor


class Part(NamedTuple):
    """A part of an attention's heads, or of a feed-forward network's inner units.

    The parts of a layer read the same rows, and the sum of their outputs is the layer's output (Shoeybi et al. 2019,
    https://arxiv.org/abs/1909.08053). So two threads can compute two parts at the same time.

    Attributes:
        number: which one, from 0.
        parts: how many there are.
    """

    number: int
    parts: int

    def of(self, size: int) -> slice:
        """Its share of so many heads or units."""
        return slice(size * self.number // self.parts, size * (self.number + 1) // self.parts)

    def bias(self, bias: np.ndarray | None) -> np.ndarray | None:
        """Its share of the output's bias, which the first part adds."""
        return None if self.number else bias


WHOLE = Part(0, 1)
# From so many numbers in the first kernel of its feed-forward network on, a layer is in two parts.
WIDE = 2**18


def is_wide(layer: TransformerDecoderLayer | TransformerEncoderLayer) -> bool:
    """Whether two threads should share the products of a layer."""
    return math.prod(layer.feed_forward.input_projection.kernel.shape) >= WIDE


def parts_of(layer: TransformerDecoderLayer | TransformerEncoderLayer) -> tuple[list[Part], list[Part]]:
    """The parts of a layer's attention, and of its feed-forward network: two of each if it is wide, else one.

    An odd number of heads, or of inner units, stays in one part.
    """
    attention, network = layer.self_attention, layer.feed_forward
    heads = attention.query_dense.kernel.shape[1], attention.key_dense.kernel.shape[1]
    two = [Part(0, 2), Part(1, 2)] if is_wide(layer) else [WHOLE]
    even = [size % 2 == 0 for size in (*heads, network.input_projection.kernel.shape[1])]
    return two if all(even[:2]) else [WHOLE], two if even[2] else [WHOLE]


class PackedSelfAttention(tf.Module):
    """Multi-head self-attention: of a decoder to the past, `prefill` and `decode_step`; of an encoder, `encode`.

        q, k, v = norm(x) W_qkv + b,    y = concat(softmax(q k^T / sqrt(d)) v) W_o + b_o

    Args:
        attention: a `zoo.layers.MultiHeadAttention`, with its weights.
        before: the `Norm` of the rows that it reads.
        after: the `Norm` of the rows that its output is added to.
        part: the heads that are computed, of queries and of keys and values.
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        before: Norm | Unnormalized | Unmoved,
        after: Norm | Unmoved,
        part: Part = WHOLE,
    ):
        super().__init__()
        self.width, self._rotary, self.window = attention.key_dim, attention.rotary_embedding, attention.sliding_window
        scale = self.width**-0.5 if attention.score_scale is None else attention.score_scale
        denses = attention.query_dense, attention.key_dense, attention.value_dense
        query, key, value = (
            [each[..., part.of(each.shape[-2]), :] for each in _heads(dense)] for dense in denses
        )  # (D, H, d) and (H, d) each, of the part
        self._own = part.of(attention.num_heads)
        self.heads, self.groups = query[0].shape[1], key[0].shape[1]
        if attention.use_query_key_norm:
            # These norms would undo a factor in the kernel, so the factor is put into their scales.
            norms = [as_array(norm.scale) for norm in (attention.query_norm, attention.key_norm)]  # (d,) each
            scales = np.repeat([scale * norms[0], norms[1]], [self.heads, self.groups], axis=0)  # (H + G, d)
            self._head_scales = variable(self._in_pairs(scales))
            self._head_epsilon = attention.norm_epsilon
        else:
            self._head_scales = None
            query = [scale * each for each in query]
        query, key = ([self._in_pairs(each) for each in of_heads] for of_heads in (query, key))
        self.inputs = before.reading(*side_by_side(query, key, value))  # (R, D + 1) -> (R, (H + 2 G) d)
        kernel, bias = matrix(attention.output_dense, contracted=2)  # (H d, D)
        kernel = kernel.reshape(attention.num_heads, -1, kernel.shape[1])[self._own].reshape(-1, kernel.shape[1])
        self.outputs = after.writing(kernel, part.bias(bias))  # (R, H d) -> (R, D + 1)

    def prefill(
        self,
        rows: tf.Tensor,
        shape: Sequence[Any],
        rotations: tf.Tensor | None,
        mask: tf.Tensor | None = None,
        return_weights: bool = False,
        head_mask: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, Cache, tf.Tensor | None]:
        """All tokens of sequences at once.

        Args:
            rows: `(B T, D + 1)`.
            shape: B and T.
            rotations: of each token's heads, see `rotations`; None without rotary positions.
            mask: boolean, True at tokens that may be attended to, `(B, T)` or for each token that attends `(B, T, T)`;
                None allows all.
            return_weights: whether to return the attention weights.
            head_mask: `(B, heads of the layer)`, what multiplies each head's weights; None for nothing.

        Returns:
            The output `(B T, D + 1)`; keys and values `(B, 1, G, T, d)`; and the weights `(B, H, T, T)` or None.
        """
        heads = self._rotated(self._normalized(self.inputs(rows)), shape, rotations)
        heads = tf.reshape(heads, [*shape, self.heads + 2 * self.groups, self.width])  # (B, T, H + 2 G, d)
        query, key, value = tf.split(heads, [self.heads, self.groups, self.groups], axis=2)  # (B, T, ., d)
        # The kernel has already scaled the query, for the decoding steps. The function below scales again, so the first
        # factor is removed.
        masks = {"keys": mask} if mask is None or len(mask.shape) == 2 else {"pairs": mask[:, None]}
        mask = AttentionMask(**masks, causal=True, window=self.window)
        results = scaled_dot_product_attention(query * self.width**0.5, key, value, mask, None, return_weights)
        context, weights = results if return_weights else (results, None)  # (B, T, H, d), (B, H, T, T)
        if head_mask is not None:
            head_mask = head_mask[:, self._own]  # (B, H)
            context *= head_mask[:, None, :, None]
            weights = None if weights is None else weights * head_mask[:, :, None, None]
        cache = tuple(tf.transpose(each, [0, 2, 1, 3])[:, None] for each in (key, value))  # (B, 1, G, T, d)
        return self._project_out(context), cache, weights

    def decode_step(
        self,
        rows: tf.Tensor,
        hypotheses: int | tf.Tensor,
        rotations: tf.Tensor | None,
        cache: Cache | tf.Tensor,
        bias: tf.Tensor | None = None,
        head_mask: tf.Tensor | None = None,
        places: Places | None = None,
    ) -> tuple[tf.Tensor, Cache | tf.Tensor]:
        """One more token of each hypothesis.

        Args:
            rows: `(B K, D + 1)`.
            hypotheses: K.
            rotations: of each token's heads, see `rotations`; None without rotary positions.
            cache: keys and values `(B, K, G, S, d)`; with `places`, one tensor of both, which is used up: only the
                returned one may be used again.
            bias: added to the scores, `(B, K, 1, 1, S + 1)`; None for nothing. With `places`, it is as long as the
                cache, and forbids what is not written yet.
            head_mask: see `prefill`.
            places: where the token is written, not with a sliding window; None for a cache that becomes longer.

        Returns:
            The output `(B K, D + 1)`, and the cache with the token.
        """
        heads = self._rotated(self._normalized(self.inputs(rows)), [-1, hypotheses], rotations)
        # One token needs no transpose: the axis of heads stands where the length of the queries would be.
        heads = tf.reshape(heads, [-1, hypotheses, self.heads + 2 * self.groups, 1, self.width])  # (B, K, ., 1, d)
        if places is None:
            query, *new = tf.split(heads, [self.heads, self.groups, self.groups], axis=2)  # (B, K, ., 1, d)
            keys, values = (tf.concat(each, 3) for each in zip(cache, new, strict=True))  # (B, K, G, S + 1, d)
            if self.window is not None:  # no later token attends to what leaves the cache here
                keys, values = (each[:, :, :, -self.window :] for each in (keys, values))
                bias = None if bias is None else bias[..., -self.window :]
            cache = keys, values
        else:
            query, new = tf.split(heads, [self.heads, 2 * self.groups], axis=2)  # (B, K, ., 1, d)
            # This writes into the memory of its argument. It is safe, also where a runtime begins a step before the
            # last one has ended: the new row follows from the token before, and so from all that was read of the
            # caches of all parts. Nothing else holds this memory.
            new = tf.reshape(new, [-1, self.width])  # (B K 2 G, d)
            cache = tf.raw_ops.InplaceUpdate(x=cache, i=places.rows, v=new)  # (2 B K G S, d)
            keys, values = tf.unstack(tf.reshape(cache, places.shape), num=2)  # (B, K, G, S, d)
        if self.groups != self.heads:
            query = tf.reshape(query, [-1, hypotheses, self.groups, self.heads // self.groups, self.width])
        scores = product(query, keys, transposed=True)  # (B, K, G, H / G, S + 1), or S with `places`
        weights = softmax(scores if bias is None else scores + bias)
        if head_mask is not None:
            shape = [-1, 1, self.groups, self.heads // self.groups, 1]
            weights *= tf.reshape(head_mask[:, self._own], shape)  # (B, K, G, H / G, S + 1)
        return self._project_out(product(weights, values)), cache  # of (B, K, G, H / G, d)

    def rotations(self, positions: tf.Tensor) -> tf.Tensor | None:
        """The complex numbers that rotate pairs of features by their positions.

        Rotary positions as in `zoo.layers.RotaryEmbedding`, with a pair (x1, x2) as x1 + i x2: one complex product
        replaces two real products, a swap of halves and a sum. The kernels hold the features in that order.

        Args:
            positions: integers, such as `(B, T)`, or `(N,)` for an encoder's rows.

        Returns:
            Complex `(B, T, H + 2 G, d / 2)` or `(N, 3 H, d / 2)`, 1 for values, which are not rotated; None without
            rotary positions.
        """
        if self._rotary is None:
            return None
        angles = self._rotary.frequencies(self._rotary.rotary_dim or self.width)
        angles += [0.0] * (self.width // 2 - len(angles))  # of the features that are not rotated
        angles = tf.constant([angles, [0.0] * len(angles)]) * tf.cast(positions, tf.float32)[..., None, None]
        kinds = [0] * (self.heads + self.groups) + [1] * self.groups  # which heads have which angles (..., 2, d / 2)
        return tf.gather(tf.complex(tf.cos(angles), tf.sin(angles)), kinds, axis=-2)  # (..., H + 2 G, d / 2)

    def _in_pairs(self, weight: np.ndarray) -> np.ndarray:
        """`(..., d)` with the two features of each rotated pair side by side."""
        if self._rotary is None or self._rotary.pairs != "halves":
            return weight
        size = self._rotary.rotary_dim or self.width
        first, second, rest = np.split(weight, [size // 2, size], axis=-1)
        pairs = np.stack([first, second], axis=-1).reshape(*weight.shape[:-1], size)
        return np.concatenate([pairs, rest], axis=-1)  # (..., d)

    def encode(
        self,
        rows: tf.Tensor,
        groups: Sequence[Group],
        places: tf.Tensor,
        rotations: tf.Tensor | None,
        maps: list[tf.Tensor] | None,
        in_blocks: bool = False,
        head_mask: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Each token attends to its whole text.

        Args:
            rows: all tokens `(N, D)` or `(N, D + 1)`.
            groups: the texts.
            places: where the groups' contexts hold the heads of each row, `(N, H)`.
            rotations: `(N, 3 H, d / 2)`, see `rotations`; None without rotary positions.
            maps: a list to which the weights `(B, H, T, T)` of each group are added; None for none.
            in_blocks: see `Group.attend`.
            head_mask: see `prefill`.

        Returns:
            As `rows`.
        """
        heads = self._rotated(self._normalized(self.inputs(rows)), [-1], rotations)
        heads = tf.reshape(heads, [-1, self.width])  # (N 3 H, d)
        head_mask = None if head_mask is None else head_mask[:, self._own]  # (B, H)
        contexts = [group.attend(heads, maps, in_blocks, head_mask) for group in groups]  # (B H T, d) each
        contexts = contexts[0] if len(contexts) == 1 else tf.concat(contexts, 0)
        return self._project_out(tf.gather(contexts, places))  # of (N, H, d)

    def _normalized(self, heads: tf.Tensor) -> tf.Tensor:
        """Queries, keys and values `(R, (H + 2 G) d)`, with the norms of queries and keys if there are any."""
        if self._head_scales is None:
            return heads
        heads = tf.reshape(heads, [-1, self.heads + 2 * self.groups, self.width])  # (R, H + 2 G, d)
        scaled, values = tf.split(heads, [self.heads + self.groups, self.groups], axis=1)
        squares = tf.reduce_mean(tf.square(scaled), axis=-1, keepdims=True)  # (R, H + G, 1)
        scaled *= tf.math.rsqrt(squares + self._head_epsilon) * self._head_scales  # (R, H + G, d)
        return tf.concat([scaled, values], axis=1)  # (R, H + 2 G, d)

    def _rotated(self, heads: tf.Tensor, shape: Sequence[Any], rotations: tf.Tensor | None) -> tf.Tensor:
        """Queries, keys and values `(R, (H + 2 G) d)`, rotated."""
        if rotations is None:
            return heads
        pairs = tf.reshape(heads, [*shape, self.heads + 2 * self.groups, self.width // 2, 2])  # (B, ., ., d / 2, 2)
        return tf.bitcast(tf.bitcast(pairs, tf.complex64) * rotations, tf.float32)  # (B, ., H + 2 G, d / 2, 2)

    def _project_out(self, context: tf.Tensor) -> tf.Tensor:
        return self.outputs(tf.reshape(context, [-1, self.heads * self.width]))  # (R, D + 1)


class PackedCrossAttention(tf.Module):
    """Multi-head attention to a source, whose keys k and values v are computed once for each request.

        q = norm(x) W_q + b,    y = concat(softmax(q k^T / sqrt(d)) v) W_o + b_o

    Args:
        attention: a `zoo.layers.MultiHeadAttention`, with its weights.
        before: the `Norm` of the rows that it reads.
        after: the `Norm` of the rows that its output is added to.
        part: the heads that are computed.
    """

    def __init__(self, attention: MultiHeadAttention, before: Norm | Unnormalized, after: Norm, part: Part = WHOLE):
        super().__init__()
        self._own = part.of(attention.num_heads)
        self.heads, self.width = self._own.stop - self._own.start, attention.key_dim
        columns = slice(self._own.start * self.width, self._own.stop * self.width)
        kernel, bias = matrix(attention.query_dense)
        scale = self.width**-0.5 if attention.score_scale is None else attention.score_scale
        kernel, bias = scale * kernel[:, columns], None if bias is None else scale * bias[columns]
        self.query = before.reading(kernel, bias)  # (R, D + 1) -> (R, H d)
        kernel, bias = matrix(attention.output_dense, contracted=2)
        self.outputs = after.writing(kernel[columns], part.bias(bias))  # (R, H d) -> (R, D + 1)

    def prefill(
        self,
        rows: tf.Tensor,
        length: int | tf.Tensor,
        memory: Any,
        bias: tf.Tensor,
        head_mask: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Attends from all tokens of sequences at once.

        Args:
            rows: `(B T, D + 1)`.
            length: T.
            memory: keys and values `(B, 1, H, S, d)`, see `zoo.layers.MultiHeadAttention.project_memory`.
            bias: added to the scores, `(B, 1, 1, 1, S)`.
            head_mask: `(B, heads of the layer)`, what multiplies each head's weights; None for nothing.

        Returns:
            The output `(B T, D + 1)`, and the weights `(B, H, T, S)`.
        """
        keys, values = (each[:, 0] for each in memory)  # (B, H, S, d)
        heads = tf.reshape(self.query(rows), [-1, length, self.heads, self.width])  # (B, T, H, d)
        heads = tf.transpose(heads, [0, 2, 1, 3])  # (B, H, T, d)
        weights = softmax(product(heads, keys, transposed=True) + bias[:, 0])  # (B, H, T, S)
        weights = weights if head_mask is None else weights * head_mask[:, self._own, None, None]
        context = tf.transpose(product(weights, values), [0, 2, 1, 3])  # (B, T, H, d)
        return self._project_out(context), weights

    def decode_step(
        self,
        rows: tf.Tensor,
        hypotheses: int | tf.Tensor,
        memory: Any,
        bias: tf.Tensor,
        head_mask: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Attends from one token of each hypothesis.

        Args:
            rows: `(B K, D + 1)`.
            hypotheses: K.
            memory: as in `prefill`.
            bias: as in `prefill`.
            head_mask: as in `prefill`.

        Returns:
            The output `(B K, D + 1)`, and the weights `(B, K, H, 1, S)`.
        """
        keys, values = memory
        # The product repeats keys and values over K; nothing is transposed: 7% to 9% off one row (notes, serving.py).
        heads = tf.reshape(self.query(rows), [-1, hypotheses, self.heads, 1, self.width])  # (B, K, H, 1, d)
        weights = softmax(product(heads, keys, transposed=True) + bias)  # (B, K, H, 1, S)
        weights = weights if head_mask is None else weights * head_mask[:, None, self._own, None, None]
        return self._project_out(product(weights, values)), weights  # of (B, K, H, 1, d)

    def _project_out(self, context: tf.Tensor) -> tf.Tensor:
        return self.outputs(tf.reshape(context, [-1, self.heads * self.width]))  # (R, D + 1)


class PackedFeedForward(tf.Module):
    """The feed-forward network.

        y = f(norm(x) W_1 + b_1) W_2 + b_2,    gated: y = (f(norm(x) W_1 + b_1) * (norm(x) W_3 + b_3)) W_2 + b_2

    Args:
        network: a `zoo.layers.FeedForward`, with its weights.
        before: the `Norm` of the rows that it reads.
        after: the `Norm` of the rows that its output is added to.
        part: the inner units that are computed.
    """

    def __init__(
        self,
        network: FeedForward,
        before: Norm | Unnormalized | Unmoved,
        after: Norm | Unmoved,
        part: Part = WHOLE,
    ):
        super().__init__()
        self.activation, self.gated = ACTIVATIONS[network.activation], network.activation in GATED
        inner = [matrix(network.input_projection), *([matrix(network.gate_projection)] if self.gated else ())]
        kernel, bias = matrix(network.output_projection)
        own = part.of(len(kernel))
        inner = [(of_input[:, own], None if shift is None else shift[own]) for of_input, shift in inner]
        self.inner = before.reading(*side_by_side(*inner))
        self.outer = after.writing(kernel[own], part.bias(bias))

    def __call__(self, rows: tf.Tensor) -> tf.Tensor:
        """`(R, D + 1)` -> `(R, D + 1)`."""
        hidden = self.inner(rows)  # (R, units), or (R, 2 units) with a gate
        if not self.gated:
            return self.outer(self.activation(hidden))  # (R, D + 1)
        hidden, gate = tf.split(hidden, 2, axis=-1)  # (R, units)
        return self.outer(self.activation(hidden) * gate)  # (R, D + 1)


def _gelu(x: tf.Tensor) -> tf.Tensor:
    # In the order in which oneDNN's product takes it over: 14.1 ms -> 9.4 ms for 1150 rows and 384 x 1536.
    return 0.5 * x * (1.0 + tf.math.erf(x * 0.5**0.5))


def _gelu_tanh(x: tf.Tensor) -> tf.Tensor:
    # (1 + tanh z) / 2 = sigmoid(2 z)
    slope = 2 * (2 / math.pi) ** 0.5
    return x * tf.sigmoid(x * (slope + slope * 0.044715 * tf.square(x)))


def _silu(x: tf.Tensor) -> tf.Tensor:
    return x * tf.sigmoid(x)


# In as few operations as possible. Keras' take up to twice as many, and some carry gradients that no server needs.
ACTIVATIONS: dict[Any, Callable[[tf.Tensor], tf.Tensor]] = {
    "relu": tf.nn.relu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "swiglu": _silu,
    "geglu": _gelu,
}


class PackedLayer(tf.Module):
    """A layer: self-attention, attention to a source if there is one, feed-forward network.

        norm first:    x = x + sublayer(norm(x))
        post-norm:     x = norm(x + sublayer(x))

    With norms first, layers pass on the sum x. With norms behind, they pass on `normalized(x + sublayer(x))`: scale and
    shift of that norm are in the weights of the next sublayer, and in `Norm.residual` for the next sum.

    Each sublayer of a wide layer is in two parts, which two threads compute at the same time. TensorFlow's own two
    threads share a product of so few rows badly. With one thread for each operation, 5 rows of a model of GPT-2's width
    take 0.54 of the time (benchmarks/notes.md, generation.py).

    Args:
        layer: the layer, with its weights. A decoder's has `prefill` and `decode_step`, an encoder's `encode`.
        before: the last `Norm` of the layer before, or what takes its place; None if norms come first.
    """

    def __init__(
        self, layer: TransformerDecoderLayer | TransformerEncoderLayer, before: Norm | Unnormalized | None = None
    ):
        super().__init__()
        self.norm_first, self.parallel_residual = layer.norm_first, layer.parallel_residual
        to_source = isinstance(layer, TransformerDecoderLayer) and layer.cross_attention
        norms = [layer.self_attention_norm]
        norms += [layer.memory_attention_norm] if to_source else []
        norms = [Norm(each) for each in (*norms, layer.feed_forward_norm)]
        self.last = norms[-1]
        reads = norms if layer.norm_first else [before, *norms[:-1]]
        self.residuals: Any = None if layer.norm_first else [each.residual() for each in reads]
        heads, units = parts_of(layer)
        self.self_attention = [PackedSelfAttention(layer.self_attention, reads[0], norms[0], part) for part in heads]
        self.cross_attention = [
            PackedCrossAttention(layer.memory_attention, reads[1], norms[1], part) for part in heads if to_source
        ]
        self.feed_forward = [PackedFeedForward(layer.feed_forward, reads[-1], norms[-1], part) for part in units]

    def prefill(
        self,
        rows: tf.Tensor,
        shape: Sequence[Any],
        rotations: tf.Tensor | None,
        mask: tf.Tensor | None = None,
        memory: Any = None,
        memory_bias: tf.Tensor | None = None,
        return_weights: bool = False,
        head_mask: tf.Tensor | None = None,
        memory_head_mask: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tuple[Cache, ...], list[tf.Tensor | None]]:
        """All tokens of sequences at once.

        Args:
            rows: `(B T, D + 1)`.
            shape: B and T.
            rotations: see `PackedSelfAttention.rotations`.
            mask: see `PackedSelfAttention.prefill`.
            memory: for each part, keys and values of the source, see `PackedCrossAttention.prefill`; None without a
                source.
            memory_bias: see `PackedCrossAttention.prefill`.
            return_weights: whether to return the weights of the attention to the past.
            head_mask: `(B, H)` of the self-attention, what multiplies each head's weights; None for nothing.
            memory_head_mask: likewise of the attention to the source.

        Returns:
            The rows after the layer; the cache of each part; and a list of the weights of the attention to the past
            `(B, H, T, T)`, or None, and if there is a source, to it `(B, H, T, S)`.
        """
        inputs = self._input(rows)
        options = rotations, mask, return_weights, head_mask
        of_past = [part.prefill(inputs, shape, *options) for part in self.self_attention]
        added, caches, maps = zip(*of_past, strict=True)
        rows, weights = self._sum(0, rows, added), [_together(maps, 1)]
        if self.cross_attention:
            read = self._input(rows)
            of_source = [
                part.prefill(read, shape[1], each, memory_bias, memory_head_mask)
                for part, each in zip(self.cross_attention, memory, strict=True)
            ]
            added, maps = zip(*of_source, strict=True)
            rows, weights = self._sum(1, rows, added), [*weights, _together(maps, 1)]
        return self._fed_forward(inputs, rows), caches, weights

    def decode_step(
        self,
        rows: tf.Tensor,
        hypotheses: int | tf.Tensor,
        rotations: tf.Tensor | None,
        caches: Sequence[Cache | tf.Tensor],
        bias: tf.Tensor | None = None,
        memory: Any = None,
        memory_bias: tf.Tensor | None = None,
        head_mask: tf.Tensor | None = None,
        memory_head_mask: tf.Tensor | None = None,
        places: Places | None = None,
    ) -> tuple[tf.Tensor, tuple[Cache | tf.Tensor, ...], tf.Tensor | None]:
        """One more token of each hypothesis.

        Args:
            rows: `(B K, D + 1)`.
            hypotheses: K.
            rotations: see `PackedSelfAttention.rotations`.
            caches: of each part, see `PackedSelfAttention.decode_step`.
            bias: see `PackedSelfAttention.decode_step`.
            memory: see `prefill`.
            memory_bias: see `PackedCrossAttention.prefill`.
            head_mask: see `prefill`.
            memory_head_mask: see `prefill`.
            places: see `PackedSelfAttention.decode_step`.

        Returns:
            The rows after the layer; the caches; and the weights `(B, K, H, 1, S)` of the attention to the source, or
            None.
        """
        inputs = self._input(rows)
        of_past = [
            part.decode_step(inputs, hypotheses, rotations, cache, bias, head_mask, places)
            for part, cache in zip(self.self_attention, caches, strict=True)
        ]
        added, caches = zip(*of_past, strict=True)
        rows, weights = self._sum(0, rows, added), None
        if self.cross_attention:
            read = self._input(rows)
            of_source = [
                part.decode_step(read, hypotheses, each, memory_bias, memory_head_mask)
                for part, each in zip(self.cross_attention, memory, strict=True)
            ]
            added, maps = zip(*of_source, strict=True)
            rows, weights = self._sum(1, rows, added), _together(maps, 2)
        return self._fed_forward(inputs, rows), caches, weights

    def encode(self, rows: tf.Tensor, maps: list[tf.Tensor] | None = None, **attending: Any) -> tf.Tensor:
        """Rows `(N, D + 1)` -> `(N, D + 1)`; the arguments are those of `attend_in_parts`."""
        inputs = self._input(rows)
        added = attend_in_parts(self.self_attention, inputs, maps, **attending)
        return self._fed_forward(inputs, self._sum(0, rows, added))

    def _fed_forward(self, inputs: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """The layer's output, of its normalised inputs and of the rows after attention, `(R, D + 1)` each."""
        # Two norms of the same row differ only in scale and shift, which are in the weights. So a parallel residual
        # normalises once for both sublayers.
        inputs = inputs if self.parallel_residual else self._input(rows)
        return self._sum(-1, rows, [part(inputs) for part in self.feed_forward])  # (R, D + 1)

    def _input(self, rows: tf.Tensor) -> tf.Tensor:
        return normalized(rows) if self.norm_first else rows

    def _sum(self, sublayer: int, rows: tf.Tensor, added: Sequence[tf.Tensor]) -> tf.Tensor:
        """The rows after a sublayer, of those before it and the outputs of its parts, `(R, D + 1)` each."""
        if self.norm_first:
            return in_sum(rows, added)
        return normalized(in_sum(self.residuals[sublayer](rows), added))


def attend_in_parts(
    attention: Sequence[PackedSelfAttention], rows: tf.Tensor, maps: list[tf.Tensor] | None, **attending: Any
) -> list[tf.Tensor]:
    """The output of each part of an encoder's attention, as `rows`.

    Args:
        attention: the parts.
        rows: see `PackedSelfAttention.encode`.
        maps: a list to which the weights `(B, H, T, T)` of all heads are added, if there is one group; None for none.
        **attending: the other arguments of `PackedSelfAttention.encode`.
    """
    weights: list[tf.Tensor] | None = None if maps is None else []  # of the parts
    outputs = [part.encode(rows, maps=weights, **attending) for part in attention]
    if maps is not None:
        maps.append(_together(weights, 1))
    return outputs


def in_sum(rows: tf.Tensor, outputs: Sequence[tf.Tensor]) -> tf.Tensor:
    """Rows and the outputs of a sublayer's parts, added up."""
    # The second part has no bias. With one, TensorFlow may join its product with this sum, and the product would have
    # to wait for the first part.
    return functools.reduce(tf.add, outputs, rows)


def _together(of_parts: Any, axis: int) -> tf.Tensor | None:
    """The weights of all heads, of those of each part; None if there are none."""
    return of_parts[0] if len(of_parts) == 1 or of_parts[0] is None else tf.concat(of_parts, axis)


def _heads(projection: Projection) -> list[np.ndarray]:
    """Kernel `(D, H, d)` and bias `(H, d)`, zero if there is none."""
    kernel = as_array(projection.kernel)
    return [kernel, np.zeros(kernel.shape[1:]) if projection.bias is None else as_array(projection.bias)]
