"""Rows of features that are normalised in two operations.

Both norms of a transformer divide a row x `(D,)` by

    sqrt(mean((x - mean(x))^2) + epsilon)    (layer)        sqrt(mean(x^2) + epsilon)    (rms)

and scale and shift the result. Here as much of it as can be is done once, in the weights:

- What is added up to a row has its mean over the features taken out, so no row has one to subtract.
- A row has one feature more, the constant sqrt(D epsilon). So its Euclidean norm, which is one operation, is sqrt(D)
  times the denominator.
- The scale, the shift and sqrt(D) go into the weights of what reads the row.

Axes: D width, N and M any other.
"""

import numpy as np
import tensorflow as tf

from zoo.serving.packed.product import Product, as_array, variable


def normalized(rows):
    """Rows `(N, D + 1)` over their Euclidean norms."""
    return rows / tf.raw_ops.EuclideanNorm(input=rows, axis=[-1], keep_dims=True)


class Norm:
    """A normalisation, to be put into the weights around it.

    Args:
        layer: `keras.layers.LayerNormalization` or `keras.layers.RMSNormalization`, over the last axis.
    """

    def __init__(self, layer):
        self.centered = hasattr(layer, "beta")
        self.scale = as_array(layer.gamma if self.centered else layer.scale)
        self.shift = as_array(layer.beta) if self.centered else np.zeros_like(self.scale)
        self.constant = (len(self.scale) * layer.epsilon) ** 0.5

    def reading(self, kernel, bias=None):
        """The product that reads the norm of a row, as `normalized` gives it.

        Args:
            kernel: `(D, N)`.
            bias: `(N,)` or None.

        Returns:
            A `Product` of rows `(..., D + 1)`.
        """
        shifted = self.shift @ kernel + (0 if bias is None else bias)
        kernel = len(self.scale) ** 0.5 * self.scale[:, None] * kernel
        return Product(np.pad(kernel, [[0, 1], [0, 0]]), shifted if shifted.any() else None)

    def writing(self, kernel, bias=None):
        """The product whose results are added to a row: of kernel `(N, D)` and bias `(D,)` or None."""
        return Product(self.part(kernel), None if bias is None else self.part(bias))

    def part(self, values):
        """What is added to a row: `(..., D)` without its mean, if the norm takes it out, and a zero: `(..., D + 1)`."""
        values = values - values.mean(axis=-1, keepdims=True) if self.centered else values
        return np.pad(values, [*[(0, 0)] * (values.ndim - 1), (0, 1)])

    def residual(self):
        """The product that makes of what `normalized` gives the sum that the next part is added to, in post-norm."""
        shift = self.part(self.shift)
        shift[-1] = self.constant
        scale = self.part(len(self.scale) ** 0.5 * np.diagflat(self.scale))
        return Product(np.pad(scale, [[0, 1], [0, 0]]), shift)

    def outside(self):
        """For what reads with weights of its own: what `normalized` is multiplied with, and what is added.

        Returns:
            Variables `(D + 1,)`, with a zero at the end; None for a shift by zero.
        """
        scale, shift = (np.append(each, 0) for each in (len(self.scale) ** 0.5 * self.scale, self.shift))
        return variable(scale), variable(shift) if shift.any() else None


class Unnormalized:
    """What a layer reads that no norm stands before: in the place of a `Norm`.

    Args:
        after: the first `Norm` behind it.
    """

    def __init__(self, after):
        self.after = after

    def reading(self, kernel, bias=None):
        """As `Norm.reading`, of the rows themselves."""
        return Product(np.pad(kernel, [[0, 1], [0, 0]]), bias)

    def residual(self):
        """The product that takes the mean out of rows `(..., D + 1)`, if the norm does."""
        matrix = np.pad(self.after.part(np.eye(len(self.after.scale))), [[0, 1], [0, 0]])
        matrix[-1, -1] = 1
        return Product(matrix)
