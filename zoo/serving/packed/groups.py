"""Texts of about the same length, whose tokens attend to each other.

An encoder computes on rows, one for each token of all texts. Only the scores of its attention need texts side by side,
and heads in front. Gathers move them there and back. A transpose would be oneDNN's, which takes tens of microseconds to
start, and so would the product and the softmax of a few scores. For six layers of width 128 and a text of 16 tokens,
transposes were a third of 4.6 ms; packed, all takes 1.4 ms (benchmarks/notes.md, serving.py).

Axes: B texts, T length, N rows, H heads, d width of a head.
"""

from __future__ import annotations

import tensorflow as tf

from zoo.layers.functions import AttentionMask
from zoo.layers.functions.scaled_dot_product_attention import attention
from zoo.serving.packed.products import FORBIDDEN, product, softmax

_FEW = 2**15  # scores; for more, starting oneDNN's operations costs less than they save


class Group:
    """Texts that attend side by side.

    Args:
        slots: the row that stands at each place, `(B, T)`.
        shown: boolean `(B, T)`, True at tokens; None if there is no padding.
        heads: H.
        offset: how many contexts `(d,)` stand before those of this group.
    """

    def __init__(self, slots: tf.Tensor, shown: tf.Tensor | None, heads: int, offset: tf.Tensor | int = 0):
        self.shown, self.bias = shown, None
        if shown is not None:
            self.bias = tf.where(shown, 0.0, FORBIDDEN)[:, None, None]  # (B, 1, 1, T)
        # A row holds the heads of queries, keys and values, 3 H vectors `(d,)`.
        head = tf.reshape(tf.range(3 * heads), [3, 1, heads, 1])
        self.vectors = slots[:, None] * (3 * heads) + head  # (3, B, H, T)
        texts, length = tf.unstack(tf.shape(slots))
        self.size = texts * heads * length
        self.few = tf.cast(self.size, tf.float32) * tf.cast(length, tf.float32) <= _FEW
        of_texts = tf.reshape(tf.range(texts) * heads * length, [-1, 1, 1]) + offset
        self.contexts = of_texts + tf.range(length)[:, None] + tf.range(heads) * length  # (B, T, H)

    def attend(
        self,
        heads: tf.Tensor,
        maps: list[tf.Tensor] | None = None,
        in_blocks: bool = False,
        head_mask: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """The contexts of all heads, `(B H T, d)`.

        Args:
            heads: queries, which contain the factor of the scores, keys and values of all rows: `(N 3 H, d)`.
            maps: a list to which the weights `(B, H, T, T)` are added; None for none.
            in_blocks: whether the scores may be too many to be held at once.
            head_mask: `(B, H)`, what multiplies each head's weights; None for nothing.
        """
        query, key, value = tf.unstack(tf.gather(heads, self.vectors), num=3)  # (B, H, T, d)

        def by_few():
            weights = softmax(self._masked(product(query, key, transposed=True)))  # (B, H, T, T)
            return product(weights, value), weights if maps is not None else ()

        def by_many():
            if in_blocks and maps is None:
                # This function scales the query again.
                mask = AttentionMask(keys=self.shown)
                return attention(query * query.shape[-1] ** 0.5, key, value, mask), ()
            weights = tf.nn.softmax(self._masked(tf.linalg.matmul(query, key, transpose_b=True)))
            return tf.linalg.matmul(weights, value), weights if maps is not None else ()

        context, weights = tf.cond(self.few, by_few, by_many)  # (B, H, T, d)
        scale = 1.0 if head_mask is None else head_mask[:, :, None, None]
        if maps is not None:
            maps.append(weights * scale)
        return tf.reshape(context if head_mask is None else context * scale, [-1, context.shape[-1]])

    def _masked(self, scores: tf.Tensor) -> tf.Tensor:
        return scores if self.bias is None else scores + self.bias
