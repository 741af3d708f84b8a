"""Dropout: Srivastava et al. 2014."""

import keras
from keras import ops

from zoo.layers.functions.random import DropoutMask


@keras.saving.register_keras_serializable(package="zoo")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout`, with half as many random numbers drawn: see `DropoutMask`.

    Its arguments, its shapes and its seed generator are those of Keras' layer; the numbers that it draws are not. Where
    `noise_shape` is given it does as Keras' layer.
    """

    def call(self, inputs, training=False):
        """Drops entries of `inputs`, of any shape, if `training`."""
        shape = ops.shape(inputs)
        if not training or not 0 < self.rate < 1 or self.noise_shape is not None or not len(shape):
            return super().call(inputs, training=training)
        noise = DropoutMask(self.rate, self.seed_generator)(shape)
        return inputs * ops.cast(noise, inputs.dtype)
