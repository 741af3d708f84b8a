"""Causal self-attention, packed."""

import numpy as np
import tensorflow as tf

from zoo.layers.functions.attention_mask import AttentionMask
from zoo.layers.functions.positions import frequencies
from zoo.layers.functions.scaled_dot_product_attention import scaled_dot_product_attention
from zoo.serving.packed.product import as_array, matrix, product, side_by_side, softmax


class PackedSelfAttention(tf.Module):
    """Multi-head self-attention to the past, of which queries, keys and values are one product.

    Axes: B batch, K hypotheses a row, T tokens, S tokens in the cache, D width, H heads, G key and value heads, d width
    of a head.

    Args:
        attention: a `zoo.layers.MultiHeadAttention`, with its weights.
        before: the `Norm` of what it reads.
        after: the `Norm` of what it writes to.
    """

    def __init__(self, attention, before, after):
        super().__init__()
        self.heads, self.width, self._rotary = attention.num_heads, attention.key_dim, attention.rotary_embedding
        self.groups = attention.key_dense.kernel.shape[1]
        query, key, value = map(_heads, (attention.query_dense, attention.key_dense, attention.value_dense))
        query = [each * self.width**-0.5 for each in query]
        if self._rotary is not None:
            query, key = ([_pairs_together(each, self._rotary.pairs) for each in part] for part in (query, key))
        self.inputs = before.reading(*side_by_side(query, key, value))
        self.outputs = after.writing(*matrix(attention.output_dense, contracted=2))

    def read(self, rows, shape, turns, mask=None, return_weights=False):
        """All tokens of sequences at once.

        Args:
            rows: `(B T, D + 1)`.
            shape: B and T.
            turns: of each token's heads, see `turns`; None without rotary positions.
            mask: boolean `(B, T)`, True at tokens that may be attended to; None allows all.
            return_weights: whether to return the weights.

        Returns:
            What is added to the rows; the keys and values `(B, 1, G, T, d)`; and the weights `(B, H, T, T)` or None.
        """
        heads = tf.reshape(self._heads(rows, shape, turns), [*shape, self.heads + 2 * self.groups, self.width])
        query, key, value = tf.split(heads, [self.heads, self.groups, self.groups], axis=2)  # (B, T, ., d)
        # The query is scaled already, for the steps.
        mask = AttentionMask(keys=mask, causal=True)
        found = scaled_dot_product_attention(query * self.width**0.5, key, value, mask, None, return_weights)
        context, weights = found if return_weights else (found, None)
        cache = tuple(tf.transpose(each, [0, 2, 1, 3])[:, None] for each in (key, value))
        return self._through(context), cache, weights

    def step(self, rows, hypotheses, turns, cache, bias=None):
        """One more token of each hypothesis.

        Args:
            rows: `(B K, D + 1)`.
            hypotheses: K.
            turns: of each token's heads, see `turns`; None without rotary positions.
            cache: keys and values `(B, K, G, S, d)`.
            bias: what is added to scores, `(B, K, 1, 1, S + 1)`; None for nothing.

        Returns:
            What is added to the rows, and the cache with the token.
        """
        heads = self._heads(rows, [-1, hypotheses], turns)
        heads = tf.reshape(heads, [-1, hypotheses, self.heads + 2 * self.groups, 1, self.width])
        query, key, value = tf.split(heads, [self.heads, self.groups, self.groups], axis=2)
        keys, values = (tf.concat(each, axis=3) for each in zip(cache, (key, value), strict=True))
        if self.groups != self.heads:
            query = tf.reshape(query, [-1, hypotheses, self.groups, self.heads // self.groups, self.width])
        scores = product(query, keys, transposed=True)
        weights = softmax(scores if bias is None else scores + bias)
        return self._through(product(weights, values)), (keys, values)

    def turns(self, positions):
        """How features turn with their position: pairs of them, taken for complex numbers, are multiplied by this.

        Args:
            positions: integers `(B, T)`.

        Returns:
            Complex `(B, T, H + 2 G, d / 2)`, 1 for values; None without rotary positions.
        """
        if self._rotary is None:
            return None
        angles = frequencies(self.width, self._rotary.max_wavelength)
        angles = tf.constant([angles, [0.0] * len(angles)]) * tf.cast(positions, tf.float32)[..., None, None]
        kinds = [0] * (self.heads + self.groups) + [1] * self.groups
        return tf.gather(tf.complex(tf.cos(angles), tf.sin(angles)), kinds, axis=2)

    def _heads(self, rows, shape, turns):
        """The rows' queries, keys and values of all heads, `(H + 2 G) d` numbers a row."""
        heads = self.inputs(rows)
        if turns is None:
            return heads
        pairs = tf.reshape(heads, [*shape, self.heads + 2 * self.groups, self.width // 2, 2])
        return tf.bitcast(tf.bitcast(pairs, tf.complex64) * turns, tf.float32)

    def _through(self, context):
        return self.outputs(tf.reshape(context, [-1, self.heads * self.width]))


def _heads(projection):
    """Kernel `(D, H, d)` and bias `(H, d)`, zero if there is none."""
    kernel = as_array(projection.kernel)
    return [kernel, np.zeros(kernel.shape[1:]) if projection.bias is None else as_array(projection.bias)]


def _pairs_together(weight, pairs):
    """`(..., d)` in another order: the features that turn together beside each other."""
    if pairs != "halves":
        return weight
    first, second = np.split(weight, 2, axis=-1)
    return np.stack([first, second], axis=-1).reshape(weight.shape)
