"""The recurrent encoder that reads a sentence both ways: Bahdanau, Cho and Bengio 2014, section 3.2."""

from typing import Any

import keras
from keras import ops

from zoo.layers.checks import check_positive
from zoo.layers.functions.axes import token_mask
from zoo.layers.functions.recurrence import recur
from zoo.layers.functions.tensors import Shape, Tensor
from zoo.layers.masked_layer import MaskedLayer
from zoo.layers.outer_layer import keep_states
from zoo.layers.recurrent_cells import make_cell


@keras.saving.register_keras_serializable(package="zoo")
class BidirectionalEncoder(MaskedLayer):
    """Annotates each token with the states of one cell reading forwards and one reading backwards.

    The annotation of token j joins two states: that of the forward cell and that of the backward cell, each after
    reading token j. Padding may stand anywhere in a row and changes nothing. One loop steps both cells.

    Axes: B batch, S length, D input width.

    Args:
        units: width of each direction's state.
        cell: "gru" or "lstm".
        **kwargs: the arguments of every Keras layer.

    Call arguments:
        inputs: `(B, S, D)`.
        mask: boolean `(B, S)`, or `(1, S)` for all rows, True for tokens and False for padding. None takes
            the mask that Keras attached to the inputs, or all positions as tokens.

    Returns:
        annotations: `(B, S, 2 units)`, zero at padding.
        forward: `(B, units)`, the forward cell's hidden state after the last token.
        backward: `(B, units)`, the backward cell's hidden state after the first token.
        In a row without any token all three are zero. The mask is passed on with the annotations.

    Raises:
        ValueError: an argument out of its range, inputs that do not have three axes, or a mask that does not fit them
            or has negative numbers.

    Example:
        >>> import numpy as np
        >>> mask = np.array([[True, True, False], [True, True, True]])
        >>> annotations, forward, backward = BidirectionalEncoder(units=4)(np.ones((2, 3, 5)), mask)
        >>> tuple(annotations.shape), tuple(forward.shape), tuple(backward.shape)
        ((2, 3, 8), (2, 4), (2, 4))

    Reference: https://arxiv.org/abs/1409.0473
    """

    def __init__(self, units: int, cell: str = "gru", **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.units = check_positive("units", units)
        self.cell = cell
        self.forward_cell = make_cell(cell, units, dtype=self.dtype_policy, name="forward_cell")
        self.backward_cell = make_cell(cell, units, dtype=self.dtype_policy, name="backward_cell")

    def build(self, inputs_shape: Shape, mask_shape: Shape | None = None) -> None:
        """Creates both cells' weights for inputs of width D."""
        for cell in (self.forward_cell, self.backward_cell):
            cell.build((None, inputs_shape[-1]))
        keep_states(self)

    def call(self, inputs: Any, mask: Any = None, training: bool | None = None) -> tuple[Any, Any, Any]:
        """Reads the inputs both ways; see the class."""
        mask = token_mask(mask, inputs)  # (B, S)
        if mask is None:
            mask = ops.ones(ops.shape(inputs)[:2], "bool")
        # Tokens come first for both cells. Padding is then read last, where it cannot change any state of a token.
        forward_order, backward_order = _orders(mask)  # (B, S)
        forward = self.forward_cell.project(_permute(inputs, forward_order, training))  # (B, S, G)
        backward = self.backward_cell.project(_permute(inputs, backward_order, training))  # (B, S, G)
        forward, backward = forward + self.forward_cell.input_bias, backward + self.backward_cell.input_bias
        number = len(self.forward_cell.states)

        def step(projected, states):
            x_forward, x_backward = ops.split(projected, 2, axis=-1)
            new_forward = self.forward_cell.step(x_forward, states[:number])
            new_backward = self.backward_cell.step(x_backward, states[number:])
            return ops.concatenate([new_forward[0], new_backward[0]], axis=-1), [*new_forward, *new_backward]

        zeros = ops.zeros((ops.shape(inputs)[0], self.units), dtype=self.compute_dtype)
        states = recur(
            step,
            ops.concatenate([forward, backward], axis=-1),  # (B, S, 2 G)
            (zeros,) * (2 * number),
            2 * self.units,
            self.compute_dtype,
        )  # (B, S, 2 units), in the order of reading
        lengths = ops.sum(ops.cast(mask, "int32"), axis=1, keepdims=True)  # (B, 1)
        places = ops.arange(ops.shape(mask)[1], dtype="int32")[None]  # (1, S)
        states = states * ops.cast(places < lengths, states.dtype)[..., None]
        is_last = ops.cast(places == lengths - 1, states.dtype)[:, None]  # (B, 1, S)
        last = ops.squeeze(ops.matmul(is_last, states), 1)  # (B, 2 units)
        forward, backward = ops.split(states, 2, axis=-1)  # (B, S, units)
        annotations = [
            _permute(forward, ops.argsort(forward_order, axis=1), training),
            _permute(backward, ops.argsort(backward_order, axis=1), training),
        ]
        return (ops.concatenate(annotations, axis=-1), *ops.split(last, 2, axis=-1))

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> tuple[Any, None, None]:
        """The mask of the annotations, `(B, S)`; the two last states have none."""
        return token_mask(previous_mask, inputs), None, None

    def compute_output_shape(self, inputs_shape: tuple, mask_shape: tuple | None = None) -> tuple:
        """Shapes of the annotations and of the two last states."""
        last = (inputs_shape[0], self.units)
        return (*inputs_shape[:-1], 2 * self.units), last, last

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "units": self.units, "cell": self.cell}


def _orders(mask: Tensor) -> tuple[Tensor, Tensor]:
    """The positions of the tokens from the first to the last, and from the last to the first, padding behind them.

    Both are permutations `(B, S)` of the positions of each row.
    """
    places = ops.arange(ops.shape(mask)[1], dtype="int32")[None]  # (1, S)
    behind = ops.shape(mask)[1] * ops.cast(ops.logical_not(mask), "int32")  # (B, S)
    return ops.argsort(behind + places, axis=1), ops.argsort(behind - places, axis=1)


def _permute(tensor: Tensor, order: Tensor, training: bool | None) -> Tensor:
    """The rows of `(B, S, D)` in another order `(B, S)`.

    The gradient of a gather is a scatter, which is slow. Here the gather is a permutation, so its gradient can be the
    inverse permutation: another gather. Outside training there is no custom gradient, which an export could not keep.
    """
    if not training:
        return ops.take_along_axis(tensor, order[..., None], axis=1)

    @ops.custom_gradient
    def permuted(tensor):
        def gradient(*args, upstream=None):
            grad_output = args[0] if upstream is None else upstream
            return ops.take_along_axis(grad_output, ops.argsort(order, axis=1)[..., None], axis=1)

        return ops.take_along_axis(tensor, order[..., None], axis=1), gradient

    return permuted(tensor)
