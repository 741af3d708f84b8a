"""`zoo.layers.FeedForward`, packed."""

import math

import tensorflow as tf

from zoo.layers.feed_forward import GATED
from zoo.serving.packed.product import matrix, side_by_side


class PackedFeedForward(tf.Module):
    """A feed-forward network, of which the inner layer and its gate are one product.

    Args:
        network: a `zoo.layers.FeedForward`, with its weights.
        before: the `Norm` of what it reads.
        after: the `Norm` of what it writes to.
    """

    def __init__(self, network, before, after):
        super().__init__()
        self.activation, self.gated = _ACTIVATIONS[network.activation], network.activation in GATED
        inner = [network.input_projection, *([network.gate_projection] if self.gated else ())]
        self.inner = before.reading(*side_by_side(*map(matrix, inner)))
        self.outer = after.writing(*matrix(network.output_projection))

    def __call__(self, rows):
        """`(N, D + 1)` -> `(N, D + 1)`."""
        hidden = self.inner(rows)
        if not self.gated:
            return self.outer(self.activation(hidden))
        hidden, gate = tf.split(hidden, 2, axis=-1)
        return self.outer(self.activation(hidden) * gate)


def _gelu(x):
    return x * (0.5 + 0.5 * tf.math.erf(x * 0.5**0.5))


def _gelu_tanh(x):
    # (1 + tanh z) / 2 = sigmoid(2 z)
    slope = 2 * (2 / math.pi) ** 0.5
    return x * tf.sigmoid(x * (slope + slope * 0.044715 * tf.square(x)))


def _silu(x):
    return x * tf.sigmoid(x)


# In as few operations as they take.
_ACTIVATIONS = {
    "relu": tf.nn.relu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "swiglu": _silu,
    "geglu": _gelu,
}
