"""Attention to a source, packed."""

import tensorflow as tf

from zoo.packed.product import matrix, product, softmax


class PackedCrossAttention(tf.Module):
    """Multi-head attention of a decoder's rows to the source, whose keys and values are there already.

    Axes: B batch, N queries a row, S source length, D width, H heads, d width of a head.

    Args:
        attention: a `zoo.layers.MultiHeadAttention`, with its weights.
        before: the `Norm` of what it reads.
        after: the `Norm` of what it writes to.
    """

    def __init__(self, attention, before, after):
        super().__init__()
        self.heads, self.width = attention.num_heads, attention.key_dim
        kernel, bias = matrix(attention.query_dense)
        scale = self.width**-0.5
        self.query = before.reading(scale * kernel, None if bias is None else scale * bias)
        self.outputs = after.writing(*matrix(attention.output_dense, contracted=2))

    def attend(self, rows, queries, memory, bias):
        """Attends from each row.

        Args:
            rows: `(B N, D + 1)`: the hypotheses of a sentence or its tokens, one after another.
            queries: N.
            memory: keys and values `(B, H, S, d)`, from `zoo.layers.MultiHeadAttention.project_memory`.
            bias: what is added to scores, `(B, 1, 1, S)`.

        Returns:
            What is added to the rows, and the weights `(B, H, N, S)`.
        """
        keys, values = memory
        single = isinstance(queries, int) and queries == 1
        heads = self.query(rows)
        if single:  # nothing moves
            heads = tf.reshape(heads, [-1, self.heads, 1, self.width])
        else:
            heads = tf.transpose(tf.reshape(heads, [-1, queries, self.heads, self.width]), [0, 2, 1, 3])
        weights = softmax(product(heads, keys, transposed=True) + bias)
        context = product(weights, values)  # (B, H, N, d)
        context = context if single else tf.transpose(context, [0, 2, 1, 3])
        return self.outputs(tf.reshape(context, [-1, self.heads * self.width])), weights
