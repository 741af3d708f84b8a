"""Validation between epochs: the scores, the best weights, and when there is no more to gain."""

from __future__ import annotations

import math
import os
import pathlib
from collections.abc import Callable
from typing import Any

import keras

from ..schema.recipe_tables import TrainingConfig
from .averaging import WeightAverage
from .token_prediction import TokenPrediction


class Validation(keras.callbacks.Callback):
    """Scores the averaged weights, keeps the best, and ends a training that has stopped getting better.

    It adds `val_loss` and `val_token_accuracy` to an epoch's logs, and `val_bleu` where that is what the best is chosen
    by; so it stands before the callbacks that read them.

    Args:
        config: what the recipe says; the last of its epochs is always validated.
        batches: what to validate with.
        bleu: a function that translates the validation sources with the model as it is, and scores the result; None
            where the loss decides.
        average: whose weights are validated.
        best: the file of the best weights.
    """

    def __init__(
        self,
        config: TrainingConfig,
        batches: Any,
        bleu: Callable[[], float] | None,
        average: WeightAverage,
        best: pathlib.Path,
    ):
        super().__init__()
        self.config = config
        self.batches, self.bleu = batches, bleu
        self.average, self.best = average, best
        self.best_score: list[float] | None = None
        self.waited = 0

    def on_epoch_end(self, epoch, logs=None):
        """Validates, if it is time."""
        if (epoch + 1) % self.config.validate_every and epoch + 1 < self.config.epochs:
            return
        model: TokenPrediction = self.model
        with self.average.in_place():
            scores = model.evaluate(self.batches, verbose=0, return_dict=True)
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
