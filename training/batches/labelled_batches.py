"""From texts with classes to batches: tokenised, and padded to the length of their bucket."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.tasks.encoder_tasks import TextClassifier
from zoo.text import END, PADDING, START, UNKNOWN

from ..corpora.labelled import LabelledTexts
from ..progress import progress_bar
from .buckets import BucketedBatches
from .pair_batches import Sampler

_AT_ONCE = 512  # texts that are tokenised in one call


@dataclasses.dataclass(frozen=True)
class EncodedTexts:
    """Texts or pairs of texts as ids, as a classifier reads them.

    Attributes:
        ids: int32 ragged `(N, None)`, with start and end.
        first_lengths: how many ids of each row are in segment 0, int32 `(N,)`; all, unless it is a pair.
    """

    ids: tf.RaggedTensor
    first_lengths: np.ndarray

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """How many ids each row has, int `(N,)`."""
        return self.ids.row_lengths().numpy()


def encode(classifier: TextClassifier, texts: LabelledTexts) -> EncodedTexts:
    """Tokenises texts as the classifier does; long texts are cut off. Shows a progress bar."""
    specs = [tf.TensorSpec([None], tf.string)] * (1 if texts.seconds is None else 2)
    encoder = tf.function(classifier.encode, input_signature=specs, autograph=False)
    columns = [texts.texts] if texts.seconds is None else [texts.texts, texts.seconds]
    rows, firsts = [], []
    with progress_bar("Encoding texts", len(texts)) as advance:
        for begin in range(0, len(texts), _AT_ONCE):
            inputs = encoder(*(tf.constant(column[begin : begin + _AT_ONCE]) for column in columns))
            ids = inputs["ids"]  # (n, T)
            segments = inputs.get("segments", tf.zeros_like(ids))
            rows.append(tf.RaggedTensor.from_tensor(ids, padding=PADDING))
            firsts.append(tf.math.count_nonzero((ids != PADDING) & (segments == 0), axis=1, dtype=tf.int32))
            advance(ids.shape[0])
    return EncodedTexts(tf.concat(rows, axis=0), tf.concat(firsts, axis=0).numpy())


class LabelledBatches(BucketedBatches):
    """Training or validation batches of texts with classes: ({ids}, labels `(B,)`, weights `(B,)`).

    Args:
        texts: the texts as ids.
        labels: the number of the class of each text, int `(N,)`.
        weights: weight of each text in the loss, float `(N,)`.
        segments: whether the model has an input `segments`.
        batch_size: texts in a batch, in training.
        buckets: how many lengths to pad to.
        seed: the seed of the order.
        sampler: draws new ids for each training batch, in place of those in `texts`, without a start token, which is
            added here. Such a batch is as long as its longest row, not as its bucket.
        token_dropout: share of the tokens that training batches replace by `dropped_id`, drawn anew for each batch.
        dropped_id: the id of the mask, or the unknown id.
    """

    def __init__(
        self,
        texts: EncodedTexts,
        labels: np.ndarray,
        weights: np.ndarray,
        segments: bool,
        batch_size: int,
        buckets: int = 4,
        seed: int = 0,
        sampler: Sampler | None = None,
        token_dropout: float = 0.0,
        dropped_id: int = UNKNOWN,
    ):
        super().__init__(np.stack([texts.lengths] * 2, axis=1), batch_size, buckets, seed)
        self.texts = texts
        self._labels, self._weights = tf.constant(labels, tf.int32), tf.constant(weights, tf.float32)
        self._segments, self._sampler = segments, sampler
        self._token_dropout, self._dropped_id = token_dropout, dropped_id

    @property
    def tokens(self) -> int:
        """Tokens of all texts, also of those that an epoch leaves out."""
        return int(self.texts.lengths.sum())

    def _batch(self, rows: tf.Tensor, counted: tf.Tensor, lengths: tf.Tensor, step: tf.Tensor, training: bool) -> Any:
        if self._sampler and training:
            drawn = self._sampler(rows, tf.stack([2 * self.seed, tf.cast(step, tf.int64)]))
            ids = tf.pad(drawn, [[0, 0], [1, 0]], constant_values=START)  # (B, T)
        else:
            ids = self._padded(self.texts.ids, rows, lengths[0])  # (B, T)
        if self._token_dropout and training:
            seed = tf.stack([2 * self.seed + 1, tf.cast(step, tf.int64)])
            drawn = tf.random.stateless_uniform(tf.shape(ids), seed) < self._token_dropout  # (B, T)
            ids = tf.where(drawn & (ids > END), self._dropped_id, ids)  # not padding, start or end
        inputs = {"ids": tf.ensure_shape(ids, [self._static_batch_size, None])}
        if self._segments:
            is_second = tf.range(tf.shape(ids)[1]) >= tf.gather(self.texts.first_lengths, rows)[:, None]  # (B, T)
            inputs["segments"] = tf.cast(is_second & (ids != PADDING), tf.int32)
        present = tf.cast(tf.range(tf.shape(rows)[0]) < counted, tf.float32)  # (B,)
        return inputs, tf.gather(self._labels, rows), tf.gather(self._weights, rows) * present
