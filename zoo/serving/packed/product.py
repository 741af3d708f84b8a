"""Matrix products of few rows, and the weights that they are with."""

import numpy as np
import tensorflow as tf

FORBIDDEN = -1e9  # what is added to the score of what may not be attended to


def product(left, right, transposed=False):
    """`left @ right`, or `left @ right^T`, of the last two axes.

    TensorFlow hands `MatMul` with a bias, `BatchMatMulV2` and `Softmax` over to oneDNN, which takes longer to set up
    than a single token's product takes to compute; of large ones it is no faster. This operation it leaves to
    TensorFlow's own kernel.
    """
    return tf.raw_ops.BatchMatMulV3(x=left, y=right, Tout=tf.float32, adj_y=transposed)


def softmax(scores):
    """Over the last axis, likewise by TensorFlow's own kernels."""
    return tf.exp(tf.nn.log_softmax(scores))


class Product(tf.Module):
    """A matrix to multiply rows with, and what to add.

    Args:
        kernel: `(N, M)`.
        bias: `(M,)` or None.
    """

    def __init__(self, kernel, bias=None):
        super().__init__()
        self.kernel = variable(kernel)
        self.bias = None if bias is None else variable(bias)

    def __call__(self, rows):
        """`(..., N)` -> `(..., M)`."""
        rows = product(rows, self.kernel)
        return rows if self.bias is None else rows + self.bias


def variable(value):
    """A value that an export keeps beside the graph."""
    return tf.Variable(value, trainable=False, dtype=tf.float32)


def as_array(weight):
    """A weight in float64, so that what is made of several is rounded once."""
    return np.asarray(weight, "float64")


def matrix(projection, contracted=1):
    """Kernel `(N, M)` and bias `(M,)` or None of a `zoo.layers.projection.Projection`."""
    kernel = as_array(projection.kernel)
    kernel = kernel.reshape(int(np.prod(kernel.shape[:contracted])), -1)
    return kernel, None if projection.bias is None else as_array(projection.bias).reshape(-1)


def side_by_side(*parts):
    """Of several kernels `(D, ...)` with their biases or None one matrix `(D, N)` and one bias `(N,)` or None."""
    kernels, biases = zip(*parts, strict=True)
    kernel = np.concatenate([each.reshape(len(each), -1) for each in kernels], axis=1)
    if any(each is None for each in biases):
        return kernel, None
    return kernel, np.concatenate([each.reshape(-1) for each in biases])
