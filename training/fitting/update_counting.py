"""Optimizers of accumulated gradients, whose schedules and moving average count updates, not batches."""

from __future__ import annotations

import keras
import tensorflow as tf
from keras import ops


class UpdateCounting:
    """Stands before a Keras optimizer among a class's bases.

    Where gradients are accumulated, the schedule of the learning rate and the moving average of the weights go on with
    each update; Keras' go on with each batch. Gradients of embeddings are made whole first, so that each optimizer sees
    one gradient a row.
    """

    def apply(self, grads, trainable_variables=None):
        """Updates the variables by their gradients."""
        super().apply([None if each is None else tf.convert_to_tensor(each) for each in grads], trainable_variables)

    def _get_current_learning_rate(self):
        schedule = isinstance(self._learning_rate, keras.optimizers.schedules.LearningRateSchedule)
        return self._learning_rate(self.iterations) if schedule else super()._get_current_learning_rate()

    def _update_model_variables_moving_average(self, trainable_variables):
        def update():
            super(UpdateCounting, self)._update_model_variables_moving_average(trainable_variables)

        batches = self.gradient_accumulation_steps or 1
        if batches == 1:
            update()
        else:
            ops.cond((self._iterations + 1) % batches == 0, update, lambda: None)
