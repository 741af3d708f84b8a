"""`zoo.models.Ensemble`, packed."""

from __future__ import annotations

from collections.abc import Callable

import keras
import tensorflow as tf

from zoo.models.ensemble import Averaging, Ensemble


class PackedEnsemble(Averaging, tf.Module):
    """The mean of packed models, with the ensemble's methods for decoding and scoring.

    Args:
        model: the ensemble.
        pack: gives the packed form of one of its models.
    """

    def __init__(self, model: Ensemble, pack: Callable[[keras.Model], tf.Module]):
        super().__init__()
        self.models = [pack(each) for each in model.models]
        self.source_vocabulary_size = model.source_vocabulary_size
        self.target_vocabulary_size = model.target_vocabulary_size
        self.in_parts = True  # two threads compute two models at the same time

    def prepare_output_columns(self) -> None:
        """To be called before the first use of `output_columns`, as for each model."""
        for model in self.models:
            model.prepare_output_columns()

    def output_columns(self, ids: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """What `step` takes to compute the logits of ids `(B, C)` only."""
        return tuple(model.output_columns(ids) for model in self.models)

    @property
    def weights(self) -> list[tf.Variable]:
        """All variables of the models, for an export to track."""
        return list(self.variables)
