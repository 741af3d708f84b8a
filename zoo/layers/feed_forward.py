"""The position-wise feed-forward network: Vaswani et al. 2017, section 3.3."""

from collections.abc import Callable
from typing import Any

import keras

from zoo.layers.checks import check_positive, check_rate
from zoo.layers.dropout import Dropout
from zoo.layers.functions.tensors import Shape, Tensor
from zoo.layers.outer_layer import OuterLayer, keep_states
from zoo.layers.projection import Projection

# Registered, so that a layer which holds one of these functions can be cloned and saved.
_registered = keras.saving.register_keras_serializable(package="zoo")


@_registered
def gelu(x: Tensor) -> Tensor:
    """The Gaussian error linear unit x * P(X <= x), exactly, for a standard normal X."""
    return keras.ops.gelu(x, approximate=False)


@_registered
def gelu_tanh(x: Tensor) -> Tensor:
    """GPT-2's approximation of `gelu`."""
    return keras.ops.gelu(x, approximate=True)


@_registered
def silu(x: Tensor) -> Tensor:
    """The function x * sigmoid(x), without the custom gradient of TensorFlow's, which an export cannot keep."""
    return x * keras.ops.sigmoid(x)


# What Keras does not have, or names otherwise; all other names are those of `keras.activations`.
_ACTIVATIONS = {
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": silu,
    "swiglu": silu,
    "geglu": gelu,
}
GATED = ("swiglu", "geglu")


def check_activation(activation: str | Callable | dict) -> str | Callable:
    """The activation as `FeedForward` takes it: a name as it is, anything else as `keras.activations.get` makes it.

    Raises:
        ValueError: there is no such activation.
    """
    if not isinstance(activation, str):
        return keras.activations.get(activation)
    if activation not in _ACTIVATIONS:
        try:
            keras.activations.get(activation)
        except ValueError:
            names = ", ".join(map(repr, _ACTIVATIONS))
            raise ValueError(
                f"`activation` must be one of {names}, a name of `keras.activations`, such as 'relu' or 'tanh', or a "
                f"function. Received: activation={activation!r}"
            ) from None
    return activation


def activation_function(activation: str | Callable) -> Callable:
    """The function of an activation that `check_activation` has passed."""
    return activation if callable(activation) else _ACTIVATIONS.get(activation) or keras.activations.get(activation)


def serialized_activation(activation: str | Callable) -> Any:
    """What `get_config` holds of an activation, from which `check_activation` makes it again."""
    return activation if isinstance(activation, str) else keras.saving.serialize_keras_object(activation)


@keras.saving.register_keras_serializable(package="zoo")
class FeedForward(OuterLayer):
    """Two dense layers, independently per position, with a wider hidden layer between them.

        relu, gelu, ...:  y = dropout(f(x W_1 + b_1)) W_2 + b_2                     (equation 2 of Vaswani et al. 2017)
        swiglu, geglu:    y = dropout(f(x W_1 + b_1) * (x W_3 + b_3)) W_2 + b_2       (Shazeer 2020)

    Axes: B batch, T length, D width.

    Args:
        units: width of the hidden layer.
        activation: f: "relu", "gelu" (exact), "gelu_tanh" (the approximation of GPT-2), "silu", "swiglu" (silu with a
            gate), "geglu" (gelu with a gate), any other name of `keras.activations`, or a function.
        dropout: the share of hidden features that is dropped in training.
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
        units: int,
        activation: str | Callable = "relu",
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.units = check_positive("units", units)
        self.activation = check_activation(activation)
        self.dropout = check_rate("dropout", dropout)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed

    def build(self, inputs_shape: Shape) -> None:
        """Creates W_1 and, with a gate, W_3, `(D, units)`, W_2 `(units, D)`, and the biases."""
        inner = (*inputs_shape[:-1], self.units)
        self.input_projection = self._projection("input", inputs_shape, self.units)
        if self.activation in GATED:
            self.gate_projection = self._projection("gate", inputs_shape, self.units)
        self.output_projection = self._projection("output", inner, inputs_shape[-1])
        self._dropout_layer = Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy)
        keep_states(self)

    def _projection(self, name: str, inputs_shape: Shape, units: int) -> Projection:
        options = dict(kernel_initializer=self.kernel_initializer, dtype=self.dtype_policy, name=name)
        projection = Projection(1, (units,), self.use_bias, **options)
        projection.build(inputs_shape)
        return projection

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Both layers; see the class."""
        if training and self.activation in ("silu", "swiglu"):
            activation = keras.ops.silu  # with TensorFlow's custom gradient, which keeps fewer tensors
        else:
            activation = activation_function(self.activation)
        hidden = activation(self.input_projection(inputs))  # (B, T, units)
        if self.activation in GATED:
            hidden = hidden * self.gate_projection(inputs)
        return self.output_projection(self._dropout_layer(hidden, training=training))  # (B, T, D)

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        """The inputs' shape."""
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "units": self.units,
            "activation": serialized_activation(self.activation),
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "seed": self.seed,
        }
