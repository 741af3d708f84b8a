"""From labelled texts to batches: tokenised, and padded to the length of their bucket."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.tasks.encoder_tasks import TextClassifier
from zoo.text import END, PADDING, START, UNKNOWN
from zoo.text.tokenizer import tokenizer_to_config

from ..corpora.labelled import LabelledTexts
from ..progress import progress_bar
from ..ragged import Rows, RowsWriter, StoredRows, is_stored
from ..storage import Storage, key_of
from .buckets import Bucket, BucketedBatches
from .pair_batches import Sampler
from .text_windows import smallest_dtype

_AT_ONCE = 512  # texts that are tokenised in one call


@dataclasses.dataclass(frozen=True)
class EncodedTexts:
    """Texts or pairs of texts as ids, as a classifier reads them.

    Attributes:
        ids: ids with start and end, N rows.
        first_lengths: how many ids of each row are in segment 0, int32 `(N,)`; all, unless it is a pair.
    """

    ids: Rows | StoredRows
    first_lengths: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """How many ids each row has, int32 `(N,)`."""
        return self.ids.lengths


def encode(classifier: TextClassifier, texts: LabelledTexts, storage: Storage | None = None) -> EncodedTexts:
    """Tokenises texts as the classifier does; long texts are cut off. Shows a progress bar.

    Args:
        classifier: what reads them.
        texts: the texts.
        storage: where the ids go if the texts are in files, and where they are found in the next run.
    """
    storage = storage or Storage()
    tokenizer = tokenizer_to_config(classifier.tokenizer)
    key = texts.key and key_of(texts.key, tokenizer, classifier.max_length, classifier.pairs)
    if entry := storage.find("ids", key):
        return EncodedTexts(entry.rows("ids"), entry.array("firsts"))
    columns = [texts.texts] if texts.seconds is None else [texts.texts, texts.seconds]
    specs = [tf.TensorSpec([None], tf.string)] * len(columns)
    encoder = tf.function(classifier.encode, input_signature=specs, autograph=False)
    firsts = []
    with storage.writing("ids", key) as entry, progress_bar("Encoding texts", len(texts)) as advance:
        stored = is_stored(texts.texts)
        rows = RowsWriter(entry if stored else None, "ids", smallest_dtype(classifier.tokenizer))
        sides = [iter(column) for column in columns]
        while any(batch := [list(itertools.islice(side, _AT_ONCE)) for side in sides]):
            inputs = encoder(*map(tf.constant, batch))
            ids = inputs["ids"].numpy()  # (n, T)
            segments = inputs["segments"].numpy() if "segments" in inputs else np.zeros_like(ids)
            present = ids != PADDING
            rows.append(ids[present], present.sum(axis=1))
            firsts.append((present & (segments == 0)).sum(axis=1, dtype=np.int32))
            advance(len(ids))
        first_lengths = np.concatenate(firsts)
        if stored:
            entry.save("firsts", first_lengths)
        return EncodedTexts(rows.finish(), first_lengths)


class LabelledBatches(BucketedBatches):
    """Training or validation batches of labelled texts: ({ids}, labels `(B,)`, weights `(B,)`).

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
        self._labels, self._weights = labels.astype(np.int32), weights.astype(np.float32)
        self._segments, self._sampler = segments, sampler
        self._token_dropout, self._dropped_id = token_dropout, dropped_id

    @property
    def tokens(self) -> int:
        """Tokens of all texts, also of those that an epoch leaves out."""
        return self.texts.ids.count

    def _gather(self, rows: np.ndarray, bucket: Bucket, training: bool) -> tuple[np.ndarray, ...]:
        ids = (
            self._sampler.texts(rows)
            if self._sampler and training
            else self.texts.ids.padded(rows, bucket.source_length)
        )
        return ids, self.texts.first_lengths[rows], self._labels[rows], self._weights[rows]

    def _specs(self, training: bool) -> tuple[tf.TensorSpec, ...]:
        size = self._static_batch_size
        texts, ids = tf.TensorSpec([size], tf.string), tf.TensorSpec([size, None], tf.int32)
        first_lengths, weights = tf.TensorSpec([size], tf.int32), tf.TensorSpec([size], tf.float32)
        labels = tf.TensorSpec([size, *self._labels.shape[1:]], tf.int32)
        return (texts if self._sampler and training else ids), first_lengths, labels, weights

    def _batch(self, arrays: tuple[tf.Tensor, ...], counted: tf.Tensor, step: tf.Tensor, training: bool) -> Any:
        ids, first_lengths, labels, weights = arrays
        if self._sampler and training:
            drawn = self._sampler(ids, tf.stack([2 * self.seed, step]))
            ids = tf.pad(drawn, [[0, 0], [1, 0]], constant_values=START)  # (B, T)
        if self._token_dropout and training:
            seed = tf.stack([2 * self.seed + 1, step])
            drawn = tf.random.stateless_uniform(tf.shape(ids), seed) < self._token_dropout  # (B, T)
            ids = tf.where(drawn & (ids > END), self._dropped_id, ids)  # not padding, start or end
        inputs = {"ids": tf.ensure_shape(ids, [self._static_batch_size, None])}
        if self._segments:
            is_second = tf.range(tf.shape(ids)[1]) >= first_lengths[:, None]  # (B, T)
            inputs["segments"] = tf.cast(is_second & (ids != PADDING), tf.int32)
        present = tf.cast(tf.range(tf.shape(labels)[0]) < counted, tf.float32)  # (B,)
        return inputs, labels, weights * present
