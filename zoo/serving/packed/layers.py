"""`zoo.layers.TransformerDecoderLayer` and `TransformerEncoderLayer`, packed: attention and the feed-forward network.

The plain formulas are those of `zoo.layers`. `attention` says what its part does differently. Besides:

- Normalisations are in the weights, see `products`.
- The inner layer of a gated network and its gate are one product.
- A wide layer is in two parts, see `Part`.

In a step a decoder layer in one part takes 35 operations instead of some 130. This halves the time for each token of
the small GPT (benchmarks/notes.md, generation.py). The axes are those of `attention`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from zoo.layers import FeedForward, TransformerDecoderLayer, TransformerEncoderLayer
from zoo.layers.feed_forward import GATED
from zoo.serving.packed.attention import (
    WHOLE,
    Cache,
    PackedCrossAttention,
    PackedSelfAttention,
    Part,
    Places,
    attend_in_parts,
    together,
)
from zoo.serving.packed.products import Norm, Unmoved, Unnormalized, matrix, normalized, side_by_side

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
        rows, weights = self._sum(0, rows, added), [together(maps, 1)]
        if self.cross_attention:
            read = self._input(rows)
            of_source = [
                part.prefill(read, shape[1], each, memory_bias, memory_head_mask)
                for part, each in zip(self.cross_attention, memory, strict=True)
            ]
            added, maps = zip(*of_source, strict=True)
            rows, weights = self._sum(1, rows, added), [*weights, together(maps, 1)]
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
            rows, weights = self._sum(1, rows, added), together(maps, 2)
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


def in_sum(rows: tf.Tensor, outputs: Sequence[tf.Tensor]) -> tf.Tensor:
    """Rows and the outputs of a sublayer's parts, added up."""
    # The second part has no bias. With one, TensorFlow may join its product with this sum, and the product would have
    # to wait for the first part.
    return functools.reduce(tf.add, outputs, rows)
