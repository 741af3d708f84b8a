"""A dense layer over any number of last axes: attention uses it to project into heads and out of them."""

import math
from collections.abc import Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import keras
from keras import ops

from zoo.layers.functions.tensors import Shape, Tensor, sizes_of


class Projection(keras.layers.EinsumDense):
    """A dense layer from some last axes to others: `(..., D)` -> `(..., H, X)`, or `(..., H, X)` -> `(..., D)`.

    It is `keras.layers.EinsumDense`, with its weights, LoRA and quantisation, except for the product itself: inputs and
    kernel are reshaped to matrices. With more axes, TensorFlow multiplies one row of the batch at a time, and the
    gradient computes a whole kernel for each row and adds them up.

    Args:
        contracted: how many last axes of the input the kernel sums over.
        output_shape: the axes that replace them.
        use_bias: whether to add a bias to each of them.
        kernel_initializer: an initializer; every projection draws other numbers from it.
        bias_initializer: likewise.
        **kwargs: other arguments of `keras.layers.EinsumDense`.
    """

    def __init__(
        self,
        contracted: int,
        output_shape: Sequence[int],
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        **kwargs: Any,
    ):
        inner, outer = ascii_lowercase[:contracted], ascii_lowercase[contracted : contracted + len(output_shape)]
        super().__init__(
            f"...{inner},{inner}{outer}->...{outer}",
            output_shape=output_shape,
            bias_axes=outer if use_bias else None,
            kernel_initializer=fresh(kernel_initializer),
            bias_initializer=fresh(bias_initializer),
            **kwargs,
        )
        self.equation: str
        self.contracted = contracted
        self.produced_shape = tuple(output_shape)
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        """Creates the kernel and the bias."""
        # The axes are written out, because Keras cannot quantise an equation with an ellipsis.
        free = len(input_shape) - self.contracted
        self.equation = self.equation.replace("...", ascii_uppercase[:free])
        self.partial_output_shape = (*(None,) * (free - 1), *self.produced_shape)
        self.consumed_shape = tuple(input_shape[free:])
        super().build(input_shape)

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """The product, the bias and the activation.

        Raises:
            ValueError: the last axes of the input are not those of the kernel.
        """
        found, width = tuple(inputs.shape[-self.contracted :]), math.prod(self.consumed_shape)
        if any(size not in (None, wanted) for size, wanted in zip(found, self.consumed_shape, strict=True)):
            # Without this, the reshape below could take the numbers of one row for those of two.
            raise ValueError(f"The last axes of the input must be {self.consumed_shape}. Received: {inputs.shape}")
        free = sizes_of(inputs, slice(-self.contracted))
        product = ops.matmul(ops.reshape(inputs, (-1, width)), _of_rank(2, self.kernel, (width, -1)))  # (rows, outputs)
        if self.bias is not None:
            product = product + _of_rank(1, self.bias, (-1,))
        if self.activation is not None:
            product = self.activation(product)
        return ops.reshape(product, (*free, *self.produced_shape))  # (B, T, H, d), or (B, T, D)

    def quantize(self, mode: str | None = None, type_check: bool = True, config: dict[str, Any] | None = None) -> None:
        """As for `keras.layers.EinsumDense`, which refuses subclasses by the type check."""
        super().quantize(mode, type_check=False, config=config)


def _of_rank(rank: int, weight: Tensor, shape: Shape) -> Tensor:
    return weight if len(weight.shape) == rank else ops.reshape(weight, shape)


def fresh(initializer: Any) -> Any:
    """The initializer made anew: one instance would give several weights the same numbers."""
    initializer = keras.initializers.get(initializer)
    # What is no instance of Keras' class, such as a function, keeps no numbers.
    return initializer.clone() if isinstance(initializer, keras.initializers.Initializer) else initializer
