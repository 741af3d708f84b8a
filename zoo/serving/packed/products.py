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

The time of a single row depends on the number of operations, about a microsecond each. With fewer of them, the
generation of a small GPT took 75 ms instead of 116 ms (benchmarks/notes.md, generation.py).

Axes: R rows, D width, N and M any width, V vocabulary.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from zoo.layers.projection import Projection

FORBIDDEN = -1e9  # added to the score of a forbidden key
LARGE = 2**18  # numbers in a kernel that two threads should share
_WIDE = 256  # features from which on a `Rescaling` is faster than a matrix


def product(left: tf.Tensor, right: tf.Tensor, transposed: bool = False) -> tf.Tensor:
    """`left @ right`, or `left @ right^T`, over the last two axes."""
    # oneDNN takes over MatMul with a bias, BatchMatMulV2 and Softmax, and needs 6 to 8 us to set each up: longer than
    # the product of one token. It leaves BatchMatMulV3 to TensorFlow's kernel, 2 to 4 us: 75 ms -> 58 ms (notes,
    # generation.py). Two threads share a large kernel better in MatMul: 1.9 ms -> 1.5 ms for 128 rows and 512 x 2048.
    if right.shape.rank == 2 and right.shape.num_elements() >= LARGE:
        return tf.linalg.matmul(left, right, transpose_b=transposed)
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


class Rescaling(tf.Module):
    """`rows * scale + shift`, if wanted without its mean over the D features.

    For a narrow row, a matrix that does all of this is faster: one operation instead of three. At width 512 the
    matrices of a post-norm layer would be a fifth of its weights.

    Args:
        scale: `(D + 1,)`, with a zero at the end.
        shift: `(D + 1,)`, without a mean if `centered`.
        centered: whether to remove the mean.
    """

    def __init__(self, scale: np.ndarray, shift: np.ndarray, centered: bool):
        super().__init__()
        self.scale, self.shift = variable(scale), variable(shift)
        # rows @ means = mean(rows * scale) over the D features.
        self.means = variable(scale[:, None] / (len(scale) - 1)) if centered else None  # (D + 1, 1)
        self.features = tf.constant([1.0] * (len(scale) - 1) + [0.0])

    def __call__(self, rows: tf.Tensor) -> tf.Tensor:
        """`(R, D + 1)` -> `(R, D + 1)`."""
        results = rows * self.scale + self.shift  # (R, D + 1)
        return results if self.means is None else results - product(rows, self.means) * self.features


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
        """A summand of a row: `(..., D)` -> `(..., D + 1)`, without its mean for "layer", and a zero at the end."""
        values = values - values.mean(axis=-1, keepdims=True) if self.centered else values
        return np.pad(values, [*[(0, 0)] * (values.ndim - 1), (0, 1)])  # (..., D + 1)

    def residual(self) -> Product | Rescaling:
        """For post-norm: from the rows that `normalized` returns to the row that the next part is added to."""
        shift = self.part(self.shift)
        shift[-1] = self.constant
        scale = len(self.scale) ** 0.5 * self.scale  # (D,)
        if len(scale) >= _WIDE:
            return Rescaling(np.append(scale, 0), shift, self.centered)
        return Product(np.pad(self.part(np.diagflat(scale)), [[0, 1], [0, 0]]), shift)

    def outside(self) -> tuple[tf.Variable, tf.Variable | None]:
        """For a product with shared weights, which cannot take the scale: factor and summand of `normalized` rows.

        Returns:
            Variables `(D + 1,)`, with a zero at the end; None for a shift by zero.
        """
        scale, shift = (np.append(each, 0) for each in (len(self.scale) ** 0.5 * self.scale, self.shift))
        return variable(scale), variable(shift) if shift.any() else None


class Unnormalized:
    """Takes the place of a `Norm` if the row has not been normalised yet.

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


class ProductOfMany(Product):
    """The same for hundreds of rows, whose time depends on the passes over them and not on the number of operations."""

    def __call__(self, rows: tf.Tensor) -> tf.Tensor:
        """`(R, N)` -> `(R, M)`."""
        rows = tf.linalg.matmul(rows, self.kernel)  # (R, M)
        # In this form TensorFlow computes the product, its bias and a GELU behind them in one pass (with oneDNN).
        return rows if self.bias is None else tf.nn.bias_add(rows, self.bias)


class Unmoved:
    """Takes the place of a `Norm` that is computed outside the weights, for many rows `(R, D)`."""

    def reading(self, kernel: np.ndarray, bias: np.ndarray | None = None) -> Product:
        """The product `x @ kernel + bias`."""
        return ProductOfMany(kernel, bias)

    writing = reading


class PackedOutput(tf.Module):
    """The last product, from normalised rows to logits, with its own kernel or with the embeddings.

    Args:
        norm: the `Norm` that the rows have passed.
        kernel: `(D, V)`; None where the embeddings are used.
        bias: `(V,)` or None.
        embeddings: `(V, D)`, used where there is no kernel.
        constant: the last feature of rows that are made from these embeddings.
        wide: divides the features of the rows between two products, which two threads compute at the same time.
    """

    def __init__(
        self,
        norm: Norm,
        kernel: Any = None,
        bias: Any = None,
        embeddings: Any = None,
        constant: float = 0.0,
        wide: bool = False,
    ):
        super().__init__()
        self.scale, self.shift = None, None
        if kernel is not None:
            read = norm.reading(kernel, bias)
            kernel, bias = read.kernel.numpy(), None if read.bias is None else read.bias.numpy()
            rows = [kernel]  # (D + 1, V)
        else:
            # Embeddings cannot take the norm's scale. They stand in columns, although a look-up of columns is slower:
            # without oneDNN, a product with a transposed kernel takes three times as long as this one.
            rows = [np.transpose(embeddings), np.full([1, len(embeddings)], constant, "float32")]  # (D, V), (1, V)
            self.scale, self.shift = norm.outside()
        self.features = sum(map(len, rows))  # D + 1
        # Adding a bias to (R, V) logits takes a tenth of the product's time; one more row of weights is free.
        self._has_bias = bias is not None
        rows += [] if bias is None else [np.asarray(bias, "float32")[None]]
        kernel = np.concatenate(rows)  # (D + 1 or D + 2, V)
        # Two variables: a slice of one would be a copy at each step.
        ends = [0, len(kernel) // 2, len(kernel)] if wide else [0, len(kernel)]
        self._kernels = [variable(kernel[begin:end]) for begin, end in itertools.pairwise(ends)]
        self.size, self._sizes = len(kernel), np.diff(ends).tolist()
        self.transposed: tf.Variable | None = None

    def logits(self, rows: tf.Tensor) -> tf.Tensor:
        """Rows `(R, D + 1)` from `normalized` -> `(R, V)`."""
        return self.of_scaled(self.scaled(rows))

    def scaled(self, rows: tf.Tensor) -> tf.Tensor:
        """Rows `(R, D + 1)` from `normalized` -> what the kernel is multiplied with, `(R, D + 1)` or `(R, D + 2)`."""
        rows = rows if self.scale is None else rows * self.scale
        rows = rows if self.shift is None else rows + self.shift
        return tf.pad(rows, [[0, 0], [0, 1]], constant_values=1.0) if self._has_bias else rows

    def of_scaled(self, rows: tf.Tensor) -> tf.Tensor:
        """Rows from `scaled` -> `(R, V)`."""
        rows = tf.split(rows, self._sizes, axis=1) if len(self._sizes) > 1 else [rows]
        return functools.reduce(tf.add, map(product, rows, self._kernels))

    def prepare_columns(self) -> None:
        """Stores the kernel once more, for `columns`: 2,048 of 58,000 take 0.9 ms from its rows, and 32 from here."""
        if self.transposed is None:
            self.transposed = variable(np.concatenate(self._kernels).T)  # (V, D + 1 or D + 2)

    def embedded(self, ids: tf.Tensor) -> tf.Tensor:
        """The columns for ids `(R,)`, where the kernel is made of embeddings: `(D + 1 or D + 2, R)`."""
        # Not from a variable itself: after the first `ResourceGather`, TensorFlow copies a variable whenever it is read
        # as a whole. For the 119 MB of OPUS-MT that was a quarter of a step.
        found = [tf.gather(tf.convert_to_tensor(kernel), ids, axis=1) for kernel in self._kernels]
        return found[0] if len(found) == 1 else tf.concat(found, 0)

    def columns(self, ids: tf.Tensor) -> tf.Tensor:
        """The columns of the kernel for ids `(B, C)`: `(B, D + 1 or D + 2, C)`."""
        return tf.transpose(tf.gather(tf.convert_to_tensor(self.transposed), ids), [0, 2, 1])


class Embedding(tf.Module):
    """Ids `(R,)` -> rows `(R, D + 1)`: embeddings and the constant, without their mean where a norm removes it.

    Args:
        table: `(V, D)`.
        first: the first `Norm` behind the rows.
        centered: whether to remove the mean.
        scale: a factor of the embeddings.
        output: what holds the table in its columns, and has `first.constant / scale` as its constant; None stores the
            table here, with the factor and without the mean.
    """

    def __init__(
        self, table: np.ndarray, first: Norm, centered: bool, scale: float = 1.0, output: PackedOutput | None = None
    ):
        super().__init__()
        self._output, self._scale, self._table, self._matrix = output, scale, None, None
        if output is None:
            table = scale * as_array(table)
            table -= table.mean(axis=1, keepdims=True) if centered else 0
            self._table = variable(np.pad(table, [[0, 0], [0, 1]], constant_values=first.constant))  # (V, D + 1)
        elif centered:
            matrix = np.pad(first.part(scale * np.eye(table.shape[1])), [[0, 1], [0, 0]])  # (D + 1, D + 1)
            matrix[-1, -1] = scale
            self._matrix = variable(np.pad(matrix, [[0, output.size - len(matrix)], [0, 0]]))

    def __call__(self, ids: tf.Tensor) -> tf.Tensor:
        """`(R,)` -> `(R, D + 1)`."""
        if self._output is None:
            return tf.gather(self._table, ids)
        columns = self._output.embedded(ids)  # (D + 1 or D + 2, R)
        if self._matrix is not None:  # one product removes the mean, scales and transposes
            return tf.raw_ops.BatchMatMulV3(x=columns, y=self._matrix, Tout=tf.float32, adj_x=True)
        return self._scale * tf.transpose(columns)[:, : self._output.features]
