"""The last product of a model, packed."""

import numpy as np
import tensorflow as tf

from zoo.serving.packed.product import product, variable


class PackedOutput(tf.Module):
    """From normalised rows to logits, by weights of its own or by the embeddings.

    Axes: N rows, D width, V vocabulary.

    Args:
        norm: the `Norm` that the rows have passed.
        embeddings: variable `(V, D + 1)`.
        kernel: `(D, V)`; None where the embeddings are used.
        bias: `(V,)` or None.
    """

    def __init__(self, norm, embeddings, kernel=None, bias=None):
        super().__init__()
        self.kernel = None
        if kernel is None:
            self.embeddings, self.bias = embeddings, None if bias is None else variable(np.asarray(bias))
            self.scale, self.shift = norm.outside()
        else:
            # What is added to so many logits takes as long as a tenth of the product; a row of weights is as good.
            read = norm.reading(kernel, bias)
            shift = np.zeros(kernel.shape[-1:]) if read.bias is None else read.bias.numpy()
            self.kernel = variable(np.concatenate([read.kernel.numpy(), shift[None]]))

    def logits(self, rows):
        """`(N, D + 1)`, as `zoo.serving.packed.norms.normalized` gives them -> `(N, V)`."""
        if self.kernel is not None:
            return product(self.scaled(rows), self.kernel)
        logits = product(self.scaled(rows), self.embeddings, transposed=True)
        return logits if self.bias is None else logits + self.bias

    def scaled(self, rows):
        """`(N, D + 1)`, likewise -> the rows `(N, D + 1)`, or one wider, that `weights` are for."""
        if self.kernel is not None:
            return tf.pad(rows, [[0, 0], [0, 1]], constant_values=1.0)
        rows *= self.scale
        return rows if self.shift is None else rows + self.shift

    def weights(self):
        """Weights `(V, .)` and bias `(V,)` or None: logits are `scaled` rows times weights^T + bias."""
        if self.kernel is not None:
            return tf.transpose(self.kernel), None
        return self.embeddings, self.bias
