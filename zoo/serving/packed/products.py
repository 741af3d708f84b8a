"""Matrix products of few rows, with normalisation moved into the weights around them.

Both normalisations of a transformer divide a row x `(D,)` and then scale and shift it:

    layer:  y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * scale + shift
    rms:    y =  x            / sqrt(mean(x^2) + epsilon)             * scale

Keras takes 5 to 8 operations for this. Here it is two, a Euclidean norm and a division, because the rest is done once,
in the weights:

- mean(x) = 0: whatever is added to a row (embeddings, outputs of layers) has its mean over the features removed
  (`Norm.part`). Only for "layer".
- The row has one feature more, the constant c = sqrt(D epsilon). Then |x|^2 = D (mean(x^2) + epsilon), so the
  Euclidean norm |x| is sqrt(D) times the denominator.
- sqrt(D) scale and the shift go into the kernel and the bias of the product that reads the row (`Norm.reading`).

A row of a single token is bound by the number of operations, about a microsecond each: fewer of them took the
generation of a small GPT from 116 ms to 75 ms (benchmarks/notes.md, generation.py).

Axes: R rows, D width, N and M any width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from zoo.layers.projection import Projection

FORBIDDEN = -1e9  # added to the score of a key that may not be attended to


def product(left: tf.Tensor, right: tf.Tensor, transposed: bool = False) -> tf.Tensor:
    """`left @ right`, or `left @ right^T`, over the last two axes."""
    # oneDNN takes over MatMul with a bias, BatchMatMulV2 and Softmax, and needs 6 to 8 us to set each up: longer than
    # the product of one token. It leaves BatchMatMulV3 to TensorFlow's kernel, 2 to 4 us: 75 ms -> 58 ms (notes,
    # generation.py).
    return tf.raw_ops.BatchMatMulV3(x=left, y=right, Tout=tf.float32, adj_y=transposed)


def softmax(scores: tf.Tensor) -> tf.Tensor:
    """Over the last axis, also without oneDNN."""
    return tf.exp(tf.nn.log_softmax(scores))


def normalized(rows: tf.Tensor) -> tf.Tensor:
    """Rows `(R, D + 1)` divided by their Euclidean norms."""
    return rows / tf.raw_ops.EuclideanNorm(input=rows, axis=[-1], keep_dims=True)  # (R, D + 1)


def variable(value: np.ndarray) -> tf.Variable:
    """A float32 weight of an export."""
    return tf.Variable(value, trainable=False, dtype=tf.float32)


def as_array(weight: Any) -> np.ndarray:
    """A weight in float64, so that combinations of several are rounded once."""
    return np.asarray(weight, "float64")


def matrix(projection: Projection, contracted: int = 1) -> tuple[np.ndarray, np.ndarray | None]:
    """Kernel `(N, M)` and bias `(M,)` or None of a `zoo.layers.projection.Projection` of any axes."""
    kernel = as_array(projection.kernel)
    kernel = kernel.reshape(int(np.prod(kernel.shape[:contracted])), -1)  # (N, M)
    return kernel, None if projection.bias is None else as_array(projection.bias).reshape(-1)


def side_by_side(*parts: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """One kernel `(D, M)` and bias `(M,)` or None of several kernels `(D, ...)`, each with its bias or None."""
    kernels, biases = zip(*parts, strict=True)
    kernel = np.concatenate([each.reshape(len(each), -1) for each in kernels], axis=1)  # (D, M)
    if any(each is None for each in biases):
        return kernel, None
    return kernel, np.concatenate([each.reshape(-1) for each in biases])


class Product(tf.Module):
    """`rows @ kernel + bias`.

    Args:
        kernel: `(N, M)`.
        bias: `(M,)` or None.
    """

    def __init__(self, kernel: np.ndarray, bias: np.ndarray | None = None):
        super().__init__()
        self.kernel = variable(kernel)
        self.bias = None if bias is None else variable(bias)

    def __call__(self, rows: tf.Tensor) -> tf.Tensor:
        """`(R, N)` -> `(R, M)`."""
        rows = product(rows, self.kernel)  # (R, M)
        return rows if self.bias is None else rows + self.bias


class Norm:
    """A normalisation, to be moved into the weights around it.

    Args:
        layer: `keras.layers.LayerNormalization` or `keras.layers.RMSNormalization`, over the last axis.
    """

    def __init__(self, layer: keras.layers.Layer):
        self.centered = hasattr(layer, "beta")
        self.scale = as_array(layer.gamma if self.centered else layer.scale)
        self.shift = as_array(layer.beta) if self.centered else np.zeros_like(self.scale)
        self.constant = (len(self.scale) * layer.epsilon) ** 0.5

    def reading(self, kernel: np.ndarray, bias: np.ndarray | None = None) -> Product:
        """The product `norm(x) @ kernel + bias`, of the rows that `normalized` returns.

        Args:
            kernel: `(D, M)`.
            bias: `(M,)` or None.

        Returns:
            A `Product` from `(R, D + 1)` to `(R, M)`.
        """
        shifted = self.shift @ kernel + (0 if bias is None else bias)  # (M,)
        kernel = len(self.scale) ** 0.5 * self.scale[:, None] * kernel  # (D, M)
        return Product(np.pad(kernel, [[0, 1], [0, 0]]), shifted if shifted.any() else None)

    def writing(self, kernel: np.ndarray, bias: np.ndarray | None = None) -> Product:
        """The product whose results are added to a row: kernel `(M, D)` and bias `(D,)` -> `(R, D + 1)`."""
        return Product(self.part(kernel), None if bias is None else self.part(bias))

    def part(self, values: np.ndarray) -> np.ndarray:
        """A summand of a row: `(..., D)` -> `(..., D + 1)`, without its mean for "layer", and with a zero."""
        values = values - values.mean(axis=-1, keepdims=True) if self.centered else values
        return np.pad(values, [*[(0, 0)] * (values.ndim - 1), (0, 1)])  # (..., D + 1)

    def residual(self) -> Product:
        """For post-norm: from the rows that `normalized` returns to the row that the next part is added to."""
        shift = self.part(self.shift)
        shift[-1] = self.constant
        scale = self.part(len(self.scale) ** 0.5 * np.diagflat(self.scale))  # (D, D + 1)
        return Product(np.pad(scale, [[0, 1], [0, 0]]), shift)

    def outside(self) -> tuple[tf.Variable, tf.Variable | None]:
        """For a product with shared weights, which cannot take the scale: factor and summand of `normalized` rows.

        Returns:
            Variables `(D + 1,)`, with a zero at the end; None for a shift by zero.
        """
        scale, shift = (np.append(each, 0) for each in (len(self.scale) ** 0.5 * self.scale, self.shift))
        return variable(scale), variable(shift) if shift.any() else None


class Unnormalized:
    """Takes the place of a `Norm` where a layer reads a row that no norm has passed.

    Args:
        after: the first `Norm` behind it.
    """

    def __init__(self, after: Norm):
        self.after = after

    def reading(self, kernel: np.ndarray, bias: np.ndarray | None = None) -> Product:
        """The product `x @ kernel + bias` of rows `(R, D + 1)`."""
        return Product(np.pad(kernel, [[0, 1], [0, 0]]), bias)

    def residual(self) -> Product:
        """The product that removes the mean from rows `(R, D + 1)`, if the norm does."""
        kernel = np.pad(self.after.part(np.eye(len(self.after.scale))), [[0, 1], [0, 0]])  # (D + 1, D + 1)
        kernel[-1, -1] = 1
        return Product(kernel)


class PackedOutput(tf.Module):
    """The last product, from normalised rows to logits, with its own kernel or with the embeddings.

    Args:
        norm: the `Norm` that the rows have passed.
        embeddings: variable `(V, D + 1)`.
        kernel: `(D, V)`; None where the embeddings are used.
        bias: `(V,)` or None.
    """

    def __init__(self, norm: Norm, embeddings: tf.Variable, kernel: Any = None, bias: Any = None):
        super().__init__()
        self.kernel = None
        if kernel is None:
            self.embeddings, self.bias = embeddings, None if bias is None else variable(np.asarray(bias))
            self.scale, self.shift = norm.outside()
        else:
            # Adding a bias to (R, V) logits takes a tenth of the product's time; one more row of weights is free.
            read = norm.reading(kernel, bias)
            shift = np.zeros(kernel.shape[-1:]) if read.bias is None else read.bias.numpy()
            self.kernel = variable(np.concatenate([read.kernel.numpy(), shift[None]]))  # (D + 2, V)

    def logits(self, rows: tf.Tensor) -> tf.Tensor:
        """Rows `(R, D + 1)` from `normalized` -> `(R, V)`."""
        if self.kernel is not None:
            return product(self.scaled(rows), self.kernel)  # (R, V)
        logits = product(self.scaled(rows), self.embeddings, transposed=True)  # (R, V)
        return logits if self.bias is None else logits + self.bias

    def scaled(self, rows: tf.Tensor) -> tf.Tensor:
        """Rows `(R, D + 1)` from `normalized` -> what `weights` are multiplied with, `(R, D + 1)` or `(R, D + 2)`."""
        if self.kernel is not None:
            return tf.pad(rows, [[0, 0], [0, 1]], constant_values=1.0)  # (R, D + 2)
        rows *= self.scale
        return rows if self.shift is None else rows + self.shift

    def weights(self) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Weights `(V, .)` and bias `(V,)` or None: logits are `scaled` rows @ weights^T + bias."""
        if self.kernel is not None:
            return tf.transpose(self.kernel), None  # (V, D + 2)
        return self.embeddings, self.bias
