"""The end of a training that leads nowhere."""

from __future__ import annotations

import math

import keras

from ..progress import say


class Divergence(keras.callbacks.Callback):
    """Ends a training whose loss is no number any more. Keras' `TerminateOnNaN` would say so on stdout."""

    def on_train_batch_end(self, batch, logs=None):
        """Looks at the loss since the beginning of the epoch, which no later batch makes a number again."""
        if not math.isfinite(logs["loss"]):
            say(f"the loss of batch {batch + 1} is no number: the training ends with this epoch")
            self.model.stop_training = True
