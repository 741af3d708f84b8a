"""Keras' recurrent cells with their step in two parts: what can run before the loop, and what cannot.

A recurrent step is `gates = inputs kernel + state recurrent_kernel + biases`, then element-wise work. The first product
needs no state, so one large product before the loop projects the inputs of all steps (`project`), and the loop
computes only the second (`step`). Weights have the names and shapes of Keras' cells, so they can be copied from one to
the other. A decoding loop calls both parts directly. Keras casts weights to the compute dtype only inside `__call__`,
so `project` and `step` cast them themselves.
"""

from typing import Any

import keras
from keras import ops

from zoo.layers.checks import check_built_width, check_choice
from zoo.layers.functions.tensors import Tensor


@keras.saving.register_keras_serializable(package="zoo")
class GRUCell(keras.layers.GRUCell):
    """`keras.layers.GRUCell` (reset after the product, the default there) that can be stepped on projected inputs.

    With the projected input x = [x_z, x_r, x_n] and the state s (Cho et al. 2014, with the reset gate applied after
    the product, as cuDNN does):

        z = sigmoid(x_z + U_z s + b_z)      r = sigmoid(x_r + U_r s + b_r)
        n = tanh(x_n + r * (U_n s + b_n))   s' = z * s + (1 - z) * n

    Axes: N rows, G = 3 units.

    Raises:
        ValueError: `reset_after` is False.

    Reference: https://arxiv.org/abs/1406.1078
    """

    states = ("hidden",)

    def __init__(self, units: int, **kwargs: Any):
        super().__init__(units, **kwargs)
        if not self.reset_after:
            raise ValueError("`reset_after` must be True: a step computes only one product. Received: False")

    def project(self, inputs: Tensor, columns: slice = slice(None)) -> Tensor:
        """The `columns` of the inputs, `(..., D)`, times their rows of the kernel: `(..., G)`, without bias."""
        return _product(inputs, self.kernel[columns], self.compute_dtype)

    @property
    def input_bias(self) -> Tensor:
        """The bias `(G,)` that belongs to the inputs and can be added before the loop."""
        return ops.cast(self.bias[0], self.compute_dtype)

    def step(self, projected: Tensor, states: Any) -> tuple[Tensor, ...]:
        """One step: projected inputs with bias `(N, G)` and states `((N, units),)` -> new states."""
        (state,) = states
        x_z, x_r, x_n = ops.split(projected, 3, axis=-1)  # (N, units) each
        kernel, bias = (ops.cast(weight, self.compute_dtype) for weight in (self.recurrent_kernel, self.bias[1]))
        s_z, s_r, s_n = ops.split(ops.matmul(state, kernel) + bias, 3, axis=-1)  # (N, units) each
        update = ops.sigmoid(x_z + s_z)
        candidate = ops.tanh(x_n + ops.sigmoid(x_r + s_r) * s_n)
        return (candidate + update * (state - candidate),)


@keras.saving.register_keras_serializable(package="zoo")
class LSTMCell(keras.layers.LSTMCell):
    """`keras.layers.LSTMCell` that can be stepped on projected inputs.

    With the projected input x = [x_i, x_f, x_g, x_o], the hidden state h and the carry c:

        i, f, o = sigmoid(x_i + U_i h), sigmoid(x_f + U_f h), sigmoid(x_o + U_o h)
        c' = f * c + i * tanh(x_g + U_g h)      h' = o * tanh(c')

    Axes: N rows, G = 4 units.

    Reference: https://www.bioinf.jku.at/publications/older/2604.pdf
    """

    states = ("hidden", "carry")

    def project(self, inputs: Tensor, columns: slice = slice(None)) -> Tensor:
        """The `columns` of the inputs, `(..., D)`, times their rows of the kernel: `(..., G)`, without bias."""
        return _product(inputs, self.kernel[columns], self.compute_dtype)

    @property
    def input_bias(self) -> Tensor:
        """The bias `(G,)`, which can be added before the loop."""
        return ops.cast(self.bias, self.compute_dtype)

    def step(self, projected: Tensor, states: Any) -> tuple[Tensor, ...]:
        """One step: projected inputs with bias `(N, G)` and states, twice `(N, units)` -> new states."""
        hidden, carry = states
        gates = projected + ops.matmul(hidden, ops.cast(self.recurrent_kernel, self.compute_dtype))  # (N, G)
        write, forget, candidate, read = ops.split(gates, 4, axis=-1)  # (N, units) each
        carry = ops.sigmoid(forget) * carry + ops.sigmoid(write) * ops.tanh(candidate)
        return (ops.sigmoid(read) * ops.tanh(carry), carry)


def _product(inputs: Tensor, kernel: Tensor, dtype: str) -> Tensor:
    check_built_width("inputs", inputs, kernel.shape[0])
    return ops.matmul(inputs, ops.cast(kernel, dtype))


CELLS = {"gru": GRUCell, "lstm": LSTMCell}


def make_cell(cell: str, units: int, **kwargs: Any) -> Any:
    """The recurrent cell of that name ("gru" or "lstm").

    Raises:
        ValueError: there is no such cell.
    """
    return CELLS[check_choice("cell", cell, tuple(CELLS))](units, **kwargs)
