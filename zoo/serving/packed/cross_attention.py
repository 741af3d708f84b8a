"""Attention to a source, packed."""

import tensorflow as tf

from zoo.serving.packed.product import matrix, product, softmax


class PackedCrossAttention(tf.Module):
    """Multi-head attention of a decoder's rows to the source, whose keys and values are there already.

    Axes: B batch, K hypotheses a row, T tokens, S source length, D width, H heads, d width of a head.

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

    def read(self, rows, length, memory, bias):
        """Attends from all tokens of sequences at once.

        Args:
            rows: `(B T, D + 1)`.
            length: T.
            memory: keys and values `(B, 1, H, S, d)`, from `zoo.layers.MultiHeadAttention.project_memory`.
            bias: what is added to scores, `(B, 1, 1, 1, S)`.

        Returns:
            What is added to the rows, and the weights `(B, H, T, S)`.
        """
        keys, values = (each[:, 0] for each in memory)
        heads = tf.reshape(self.query(rows), [-1, length, self.heads, self.width])
        weights = softmax(product(tf.transpose(heads, [0, 2, 1, 3]), keys, transposed=True) + bias[:, 0])
        return self._through(tf.transpose(product(weights, values), [0, 2, 1, 3])), weights

    def step(self, rows, hypotheses, memory, bias):
        """Attends from one token of each hypothesis. Nothing is moved for it: a source serves all its hypotheses.

        Args:
            rows: `(B K, D + 1)`.
            hypotheses: K.
            memory: see `read`, as is its bias.
            bias: see above.

        Returns:
            What is added to the rows, and the weights `(B, K, H, 1, S)`.
        """
        keys, values = memory
        heads = tf.reshape(self.query(rows), [-1, hypotheses, self.heads, 1, self.width])
        weights = softmax(product(heads, keys, transposed=True) + bias)
        return self._through(product(weights, values)), weights

    def _through(self, context):
        return self.outputs(tf.reshape(context, [-1, self.heads * self.width]))
