"""Weights averaged over the training, which are mostly better than those of its last step."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator

import keras
import numpy as np

from ..schema.recipe_tables import TrainingConfig


class WeightAverage(keras.callbacks.Callback):
    """Puts averaged weights into the model for as long as they are wanted.

    With `average_decay` it is an exponential moving average over the updates, which the optimizer keeps; with
    `average_last` the mean of the weights at the end of each of the last epochs, as Vaswani et al. 2017 do it. With
    neither it is the weights as they are.

    Args:
        config: what the recipe says.
    """

    def __init__(self, config: TrainingConfig):
        super().__init__()
        self._moving = config.average_decay is not None
        self._last: collections.deque[list[np.ndarray]] | None = None
        if config.average_last:
            self._last = collections.deque(maxlen=config.average_last)

    def on_epoch_end(self, epoch, logs=None):
        """Remembers the weights."""
        if self._last is not None:
            self._last.append(self._weights())

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the averaged weights within, and its own again after."""
        if not self._moving and not self._last:
            yield
            return
        own = self._weights()
        if self._moving:
            self.model.optimizer.finalize_variable_values(self.model.trainable_variables)
        else:
            remembered = zip(*(self._last or ()), strict=True)
            self._assign([np.asarray(np.mean(each, axis=0, dtype=np.float32)) for each in remembered])
        try:
            yield
        finally:
            self._assign(own)

    def state(self) -> dict[str, np.ndarray]:
        """What a checkpoint must hold, beside the optimizer."""
        return {
            f"{age}/{index}": array
            for age, weights in enumerate(self._last or ())
            for index, array in enumerate(weights)
        }

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Takes back what `state` gave."""
        ages: dict[int, dict[int, np.ndarray]] = collections.defaultdict(dict)
        for name, array in state.items():
            age, index = map(int, name.split("/"))
            ages[age][index] = array
        if self._last is not None:
            self._last.extend([ages[age][index] for index in sorted(ages[age])] for age in sorted(ages))

    def _weights(self) -> list[np.ndarray]:
        return [np.array(variable) for variable in self.model.trainable_variables]

    def _assign(self, weights: list[np.ndarray]) -> None:
        for variable, array in zip(self.model.trainable_variables, weights, strict=True):
            variable.assign(array)
