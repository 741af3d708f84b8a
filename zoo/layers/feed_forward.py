"""The position-wise feed-forward network: Vaswani et al. 2017, section 3.3."""

import keras

from zoo.layers.checks import check_choice, check_positive, check_rate
from zoo.layers.dropout import Dropout
from zoo.layers.projection import Projection


def _silu(x):
    return x * keras.ops.sigmoid(x)


ACTIVATIONS = {
    "relu": keras.ops.relu,
    "gelu": lambda x: keras.ops.gelu(x, approximate=False),
    "gelu_tanh": lambda x: keras.ops.gelu(x, approximate=True),
    "silu": _silu,
    "swiglu": _silu,
    "geglu": lambda x: keras.ops.gelu(x, approximate=False),
}
GATED = ("swiglu", "geglu")


@keras.saving.register_keras_serializable(package="zoo")
class FeedForward(keras.layers.Layer):
    """Two dense layers at each position for itself, wider in between.

        relu, gelu, ...:  y = dropout(f(x W_1 + b_1)) W_2 + b_2                     (equation 2 of Vaswani et al. 2017)
        swiglu, geglu:    y = dropout(f(x W_1 + b_1) * (x W_3 + b_3)) W_2 + b_2       (Shazeer 2020)

    Axes: B batch, T length, D width.

    Args:
        units: width in between.
        activation: f, one of "relu", "gelu" (exact), "gelu_tanh" (the approximation of GPT-2), "silu", "swiglu"
            (silu with a gate) and "geglu" (gelu with a gate).
        dropout: the share of features in between that is dropped in training.
        use_bias: whether the dense layers have biases.
        kernel_initializer: of W_1, W_2 and W_3.
        seed: of the dropout.
        **kwargs: the arguments of every Keras layer.

    Call arguments: `inputs (B, T, D)`, `training`.

    Returns: `(B, T, D)`.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> import numpy as np
        >>> tuple(FeedForward(16, activation="swiglu")(np.ones((2, 3, 4))).shape)
        (2, 3, 4)

    References: https://arxiv.org/abs/1706.03762, https://arxiv.org/abs/2002.05202
    """

    def __init__(
        self,
        units,
        activation="relu",
        dropout=0.0,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.units = check_positive("units", units)
        self.activation = check_choice("activation", activation, tuple(ACTIVATIONS))
        self.dropout = check_rate("dropout", dropout)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed

    def build(self, inputs_shape):
        """Creates W_1 and, with a gate, W_3, `(D, units)`, W_2 `(units, D)`, and the biases."""
        inner = (*inputs_shape[:-1], self.units)
        self.input_projection = self._projection("input", inputs_shape, self.units)
        if self.activation in GATED:
            self.gate_projection = self._projection("gate", inputs_shape, self.units)
        self.output_projection = self._projection("output", inner, inputs_shape[-1])
        self._dropout_layer = Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy)

    def _projection(self, name, inputs_shape, units):
        options = dict(kernel_initializer=self.kernel_initializer, dtype=self.dtype_policy, name=name)
        projection = Projection(1, (units,), self.use_bias, **options)
        projection.build(inputs_shape)
        return projection

    def call(self, inputs, training=None):
        """Both layers; see the class."""
        activation = ACTIVATIONS[self.activation]
        if training and activation is _silu:
            # TensorFlow's saves less memory by a custom gradient, which an export cannot keep.
            activation = keras.ops.silu
        hidden = activation(self.input_projection(inputs))  # (B, T, units)
        if self.activation in GATED:
            hidden = hidden * self.gate_projection(inputs)
        return self.output_projection(self._dropout_layer(hidden, training=training))

    def compute_output_shape(self, inputs_shape):
        """The inputs' shape."""
        return inputs_shape

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "units": self.units,
            "activation": self.activation,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "seed": self.seed,
        }
