"""Dropout: Srivastava et al. 2014."""

import keras
from keras import ops

from zoo.layers.functions.random import DropoutMask
from zoo.layers.functions.tensors import Tensor


@keras.saving.register_keras_serializable(package="zoo")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout`, with half as many random numbers drawn: see `DropoutMask`.

    Arguments, shapes and seed generator are those of Keras' layer; it draws other numbers. With `noise_shape` it does
    what Keras' layer does.
    """

    def call(self, inputs: Tensor, training: bool | None = False) -> Tensor:
        """Drops entries of `inputs`, of any shape, if `training`."""
        shape = ops.shape(inputs)
        if not training or not 0 < self.rate < 1 or self.noise_shape is not None or not len(shape):
            return super().call(inputs, training=training)
        dropout_mask = DropoutMask(self.rate, self.seed_generator)(shape)
        return inputs * ops.cast(dropout_mask, inputs.dtype)
