"""`zoo.layers.MultiHeadAttention`, packed: self-attention, and attention to a source.

The plain formulas are those of `zoo.layers`. What is done differently, and why (figures: benchmarks/notes.md,
generation.py and serving.py):

- All axes but the features are one axis of rows, so that every projection is one product of two matrices.
- Queries, keys and values of all heads are one product.
- The query's kernel holds the factor of the scores, 1 / sqrt(d).
- An encoder's layer moves heads by a gather, see `groups`.

Axes: B batch, K hypotheses of a row, R rows (hypotheses in a step, tokens in a prefill), T tokens, S tokens in the
cache or of the source, D width, H heads, G key and value heads, d width of a head. H and G are those of a part of a
layer, see `Part`; in the maps and masks of a layer, H are all of its heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from zoo.layers import MultiHeadAttention
from zoo.layers.functions import AttentionMask, scaled_dot_product_attention
from zoo.layers.projection import Projection
from zoo.serving.packed.groups import Group
from zoo.serving.packed.products import (
    Norm,
    Unmoved,
    Unnormalized,
    as_array,
    matrix,
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
        maps.append(together(weights, 1))
    return outputs


def together(of_parts: Any, axis: int) -> tf.Tensor | None:
    """The weights of all heads, of those of each part; None if there are none."""
    return of_parts[0] if len(of_parts) == 1 or of_parts[0] is None else tf.concat(of_parts, axis)


def _heads(projection: Projection) -> list[np.ndarray]:
    """Kernel `(D, H, d)` and bias `(H, d)`, zero if there is none."""
    kernel = as_array(projection.kernel)
    return [kernel, np.zeros(kernel.shape[1:]) if projection.bias is None else as_array(projection.bias)]
