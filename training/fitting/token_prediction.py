"""What `model.fit` fits: a model of the zoo, and the loss of the tokens that it predicts."""

from __future__ import annotations

import keras

from .loss import projected_cross_entropy


class TokenPrediction(keras.Model):
    """Fits a model of ids by the cross-entropy of its next tokens, over the mean of all tokens that count.

    It wraps a model of `zoo.models` for `fit` and `evaluate`, and shares its weights. It does what the model compiled
    with `SparseCategoricalCrossentropy` would do, with smoothed labels besides, but never holds all logits (see
    `projected_cross_entropy`). Batches are (inputs, labels, weights). Labels are smoothed in training alone:
    what `evaluate` gives is the negative log-likelihood a token, whatever the smoothing.

    Metrics, both over tokens, not over batches: `loss`, and `token_accuracy`, how often the label is the likeliest.

    Args:
        model: a model with `without_logits` and `output_weights`.
        label_smoothing: the share of probability, from 0 to less than 1, that is spread over the whole vocabulary.
    """

    def __init__(self, model: keras.Model, label_smoothing: float = 0.0):
        super().__init__(name=f"{model.name}_prediction", dtype=model.dtype_policy)
        self.model = model
        self.label_smoothing = label_smoothing
        self._body = model.without_logits()
        self._loss = keras.metrics.Mean(name="loss")
        self._accuracy = keras.metrics.Mean(name="token_accuracy")
        self.built = True

    def call(self, inputs, training=None):
        """The rows `(B, T, D)` that the logits would be computed from."""
        return self._body(inputs, training=training)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """The mean loss of a token."""
        smoothing = self.label_smoothing if training else 0.0
        tokens = projected_cross_entropy(y_pred, *self.model.output_weights(), y, sample_weight, smoothing)
        # A batch without a token that counts has no loss.
        weight = keras.ops.maximum(tokens.weight, 1e-7)
        self._loss.update_state(tokens.loss / weight, sample_weight=tokens.weight)
        self._accuracy.update_state(tokens.right / weight, sample_weight=tokens.weight)
        return tokens.loss / weight

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Loss and accuracy since the beginning of the epoch."""
        return {metric.name: metric.result() for metric in (self._loss, self._accuracy)}
