"""`zoo.models.Ensemble`, packed."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from zoo.models.ensemble import Averaging


class PackedEnsemble(Averaging, tf.Module):
    """The mean of packed models, with the ensemble's methods for decoding and scoring.

    Args:
        models: the packed forms of the ensemble's models.
    """

    def __init__(self, models: list[Any]):
        super().__init__()
        self.models = models
        self.source_vocabulary_size = models[0].source_vocabulary_size
        self.target_vocabulary_size = models[0].target_vocabulary_size
        # Two threads compute two models at the same time: a request alone, of one text with 5 beams, takes 0.64 of the
        # time, and two requests at once 1.03. (`benchmarks/notes.md`, serving.py)
        self.in_parts = True

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
