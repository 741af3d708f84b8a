"""Validation between epochs: the scores, the best weights, and when there is no more to gain."""

from __future__ import annotations

import math
import os
import pathlib
from collections.abc import Callable
from typing import Any

import keras

from training.averaging import WeightAverage
from training.progress import say
from training.recipe_tables import TrainingConfig
from training.token_prediction import TokenPrediction


class Divergence(keras.callbacks.Callback):
    """Ends a training whose loss is no number any more. Keras' `TerminateOnNaN` would say so on stdout."""

    def on_train_batch_end(self, batch, logs=None):
        """Looks at the loss since the beginning of the epoch, which no later batch makes a number again."""
        if not math.isfinite(logs["loss"]):
            say(f"the loss of batch {batch + 1} is no number: the training ends with this epoch")
            self.model.stop_training = True


class Validation(keras.callbacks.Callback):
    """Scores the averaged weights, keeps the best, and ends a training that has stopped getting better.

    It adds `val_loss` and `val_token_accuracy` to an epoch's logs, and `val_bleu` where that is what the best is chosen
    by; so it stands before the callbacks that read them.

    Args:
        config: what the recipe says.
        epochs: how many the training has; the last one is always validated.
        checks: batches of validation pairs.
        bleu: a function that translates the validation sources with the model as it is, and scores the result; None
            where the loss decides.
        average: whose weights are validated.
        best: the file of the best weights.
    """

    def __init__(
        self,
        config: TrainingConfig,
        epochs: int,
        checks: Any,
        bleu: Callable[[], float] | None,
        average: WeightAverage,
        best: pathlib.Path,
    ):
        super().__init__()
        self.config, self.epochs = config, epochs
        self.checks, self.bleu = checks, bleu
        self.average, self.best = average, best
        self.best_score: list[float] | None = None
        self.waited = 0

    def on_epoch_end(self, epoch, logs=None):
        """Validates, if it is time."""
        if (epoch + 1) % self.config.validate_every and epoch + 1 < self.epochs:
            return
        model: TokenPrediction = self.model
        with self.average.in_place():
            scores = model.evaluate(self.checks, verbose=0, return_dict=True)
            if self.bleu:
                scores["bleu"] = self.bleu()
            # Among equals, as before the first four words in a row are right, the loss decides.
            score = [scores["bleu"], -scores["loss"]] if self.bleu else [-scores["loss"]]
            if math.isfinite(scores["loss"]) and (self.best_score is None or score > self.best_score):
                self.best_score, self.waited = score, 0
                self._keep(model.model)
            else:
                self.waited += 1
        if logs is not None:
            logs.update({f"val_{name}": value for name, value in scores.items()})
        if self.config.patience and self.waited >= self.config.patience:
            model.stop_training = True

    def _keep(self, model: keras.Model) -> None:
        # Keras asks for this ending; written aside, since a stop may come at any moment.
        aside = self.best.with_name(f".{self.best.name.removesuffix('.weights.h5')}.tmp.weights.h5")
        model.save_weights(aside)
        os.replace(aside, self.best)

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold, fit for JSON."""
        return {"best_score": self.best_score, "waited": self.waited}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes back what `state` gave."""
        self.best_score, self.waited = state["best_score"], state["waited"]
