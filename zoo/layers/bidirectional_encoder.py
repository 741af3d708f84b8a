"""The recurrent encoder that reads a sentence both ways: Bahdanau, Cho and Bengio 2014, section 3.2."""

import keras
from keras import ops

from zoo.layers.checks import check_positive
from zoo.layers.functions.recurrence import recur
from zoo.layers.recurrent_cells import make_cell


@keras.saving.register_keras_serializable(package="zoo")
class BidirectionalEncoder(keras.layers.Layer):
    """Annotates each token with the states of one cell reading forwards and one reading backwards.

    The annotation of token j is [forward state after token j; backward state after token j, coming from the end].
    Each row is reversed within its own length, so that both readings start at a real token and padding, which
    comes last for both, has nothing left to influence. One loop steps both cells.

    Axes: B batch, S length, D input width.

    Args:
        units: width of each direction's state.
        cell: "gru" or "lstm".
        **kwargs: the arguments of every Keras layer.

    Call arguments:
        inputs: `(B, S, D)`.
        mask: boolean `(B, S)`, True for tokens and False for padding, which must follow the tokens.

    Returns:
        annotations: `(B, S, 2 units)`, zero at padding.
        forward: `(B, units)`, the forward cell's hidden state after the last token.
        backward: `(B, units)`, the backward cell's hidden state after the first token.
        In a row without any token all three are zero.

    Example:
        >>> import numpy as np
        >>> mask = np.array([[True, True, False], [True, True, True]])
        >>> annotations, forward, backward = BidirectionalEncoder(units=4)(np.ones((2, 3, 5)), mask)
        >>> tuple(annotations.shape), tuple(forward.shape), tuple(backward.shape)
        ((2, 3, 8), (2, 4), (2, 4))

    Reference: https://arxiv.org/abs/1409.0473
    """

    def __init__(self, units, cell="gru", **kwargs):
        super().__init__(**kwargs)
        self.units = check_positive("units", units)
        self.cell = cell
        self.forward_cell = make_cell(cell, units, dtype=self.dtype_policy, name="forward_cell")
        self.backward_cell = make_cell(cell, units, dtype=self.dtype_policy, name="backward_cell")

    def build(self, inputs_shape, mask_shape=None):
        """Creates both cells' weights for inputs of width D."""
        for cell in (self.forward_cell, self.backward_cell):
            cell.build((None, inputs_shape[-1]))

    def call(self, inputs, mask, training=None):
        """Reads the inputs both ways; see the class."""
        partners = _mirror(mask)
        forward = self.forward_cell.project(inputs) + self.forward_cell.input_bias
        backward = self.backward_cell.project(_reverse(inputs, partners, training)) + self.backward_cell.input_bias
        kept = len(self.forward_cell.states)

        def step(projected, states):
            x_forward, x_backward = ops.split(projected, 2, axis=-1)
            new_forward = self.forward_cell.step(x_forward, states[:kept])
            new_backward = self.backward_cell.step(x_backward, states[kept:])
            return ops.concatenate([new_forward[0], new_backward[0]], axis=-1), [*new_forward, *new_backward]

        zeros = ops.zeros((ops.shape(inputs)[0], self.units), dtype=self.compute_dtype)
        states = recur(
            step,
            ops.concatenate([forward, backward], axis=-1),
            (zeros,) * (2 * kept),
            2 * self.units,
            self.compute_dtype,
        )
        states = states * ops.cast(ops.expand_dims(mask, -1), states.dtype)
        forward, backward = ops.split(states, 2, axis=-1)
        last = _one_hot_last(mask, self.compute_dtype)  # (B, 1, S)
        annotations = ops.concatenate([forward, _reverse(backward, partners, training)], axis=-1)
        return annotations, ops.squeeze(ops.matmul(last, forward), 1), ops.squeeze(ops.matmul(last, backward), 1)

    def compute_mask(self, *args, **kwargs):
        """None: masks go to each layer that needs one as tensors, never attached to other tensors."""
        return None

    def compute_output_shape(self, inputs_shape, mask_shape=None):
        """Shapes of the annotations and of the two last states."""
        last = (inputs_shape[0], self.units)
        return (*inputs_shape[:-1], 2 * self.units), last, last

    def get_config(self):
        """The constructor's arguments."""
        return {**super().get_config(), "units": self.units, "cell": self.cell}


def _positions_and_lengths(mask):
    """Positions `(1, S)` and the number of tokens of each row `(B, 1)`."""
    return ops.expand_dims(ops.arange(ops.shape(mask)[1]), 0), ops.sum(ops.cast(mask, "int32"), 1, keepdims=True)


def _mirror(mask):
    """For each position the one it changes places with when each row is reversed within its length, `(B, S, 1)`."""
    positions, lengths = _positions_and_lengths(mask)
    return ops.expand_dims(ops.where(positions < lengths, lengths - 1 - positions, positions), -1)


def _reverse(tensor, partners, training):
    """Each row `(B, S, D)` reversed within its length.

    The gradient of a gather is a scatter, which is slow; the gradient of an exchange is the same exchange. Out of
    training it is left to autodiff, so that an export holds no custom gradient.
    """
    if not training:
        return ops.take_along_axis(tensor, partners, axis=1)

    @ops.custom_gradient
    def exchange(tensor):
        def gradient(*args, upstream=None):
            return ops.take_along_axis(args[0] if upstream is None else upstream, partners, axis=1)

        return ops.take_along_axis(tensor, partners, axis=1), gradient

    return exchange(tensor)


def _one_hot_last(mask, dtype):
    """A one at each row's last token `(B, 1, S)`."""
    positions, lengths = _positions_and_lengths(mask)
    return ops.expand_dims(ops.cast(positions == lengths - 1, dtype), 1)
