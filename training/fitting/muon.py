"""Muon for the kernels of attention too, which Keras' own leaves to Adam."""

from __future__ import annotations

import math

import keras
from keras import ops

from .update_counting import UpdateCounting


@keras.saving.register_keras_serializable(package="zoo")
class Muon(UpdateCounting, keras.optimizers.Muon):
    """`keras.optimizers.Muon`, which orthogonalises the update of each matrix, for matrices however they are stored.

    Attention keeps its projections as `(D, H, d)` and `(H, d, D)`; what they are is the matrices `(D, H d)` and
    `(H d, D)`. Embeddings, biases and normalisations are Adam's. With `rms_rate`, which is set by default, both take
    the same learning rate.

    References: https://kellerjordan.github.io/posts/muon, https://arxiv.org/abs/2502.16982
    """

    def build(self, var_list):
        """Creates the momentums, and the second moments of what is Adam's."""
        super().build(var_list)
        # By their numbers, since in an update the variables have no names.
        self._matrix_shapes = {self._get_variable_index(each): _matrix_shape(each) for each in var_list}

    def _should_use_adamw(self, variable):
        if len(variable.shape) == 3 and variable.path.endswith("kernel"):
            return False
        return not variable.path.endswith("kernel") or super()._should_use_adamw(variable)

    def _muon_update_step(self, gradient, variable, lr, m):
        self.assign_add(m, ops.add(gradient, m * (self.momentum - 1)))
        update = ops.add(gradient, self.momentum * m) if self.nesterov else ops.convert_to_tensor(m)
        matrix = ops.reshape(update, self._matrix_shapes[self._get_variable_index(variable)])
        matrix = self.lr_adjust(self.zeropower_via_newtonschulz5(matrix, self.ns_steps))
        self.assign_sub(variable, ops.cast(lr, variable.dtype) * ops.reshape(matrix, variable.shape))


def _matrix_shape(variable):
    """Of a kernel of attention, inputs by outputs; of all else its own."""
    shape = tuple(variable.shape)
    if len(shape) != 3:
        return shape
    inputs = 2 if "attention_output" in variable.path else 1
    return math.prod(shape[:inputs]), math.prod(shape[inputs:])
