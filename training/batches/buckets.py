"""Texts or pairs grouped by length and padded to few shapes, in an order set by a seed.

The content of a batch follows from (seed, epoch, its number) and nothing else, so that a stopped training can go on at
any step. XLA compiles the training step once for each shape, so lengths are gathered in a few buckets, and each bucket
is padded to one source and one target length.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Rows of similar length.

    Attributes:
        rows: numbers of the rows, int `(n,)`.
        source_length: what their sources are padded to.
        target_length: what their targets are padded to.
        batch_size: rows in a batch; 0 before that is decided.
    """

    rows: np.ndarray
    source_length: int
    target_length: int
    batch_size: int = 0


def make_buckets(lengths: np.ndarray, number: int) -> list[Bucket]:
    """Groups rows by the length of their longer side, such that the buckets need the least padding.

    Args:
        lengths: int `(N, 2)`.
        number: how many buckets at most; fewer where lengths repeat.

    Returns:
        The buckets, short ones first.
    """
    longer = lengths.max(axis=1)
    bounds = _best_bounds(*np.unique(longer, return_counts=True), number)
    assigned = np.searchsorted(bounds, longer)
    groups = [np.flatnonzero(assigned == index) for index in range(len(bounds))]
    return [Bucket(rows, *map(int, lengths[rows].max(axis=0))) for rows in groups]


def _best_bounds(values: np.ndarray, counts: np.ndarray, number: int) -> np.ndarray:
    """The upper bounds of at most `number` ranges that need the least padding in total.

    By dynamic programming: the least cost of the first j values in k ranges follows from those in k - 1.

    Args:
        values: lengths, ascending.
        counts: how often each length occurs.
        number: how many ranges.
    """
    total = np.concatenate([[0], np.cumsum(counts)])
    # Row i, column j: the cost of one range from value i to value j, all padded to value j.
    one = np.where(
        np.tri(len(values), k=-1), np.inf, (total[None, 1:] - total[:-1, None]) * values[None, :].astype(float)
    )
    cost, starts = one[0], []
    for _ in range(min(number, len(values)) - 1):
        together = np.concatenate([[np.inf], cost[:-1]])[:, None] + one
        starts.append(together.argmin(axis=0))
        cost = together.min(axis=0)
    bounds, last = [], len(values) - 1
    for start in reversed(starts):
        bounds.append(last)
        last = start[last] - 1
    return values[[last, *reversed(bounds)]]


def _merged(first: Bucket, second: Bucket) -> Bucket:
    return Bucket(
        np.sort(np.concatenate([first.rows, second.rows])),
        max(first.source_length, second.source_length),
        max(first.target_length, second.target_length),
    )


class BucketedBatches(abc.ABC):
    """Training or validation batches of rows, such as pairs of texts. A subclass makes a batch of row numbers.

    Args:
        lengths: source and target length of each row, int `(N, 2)`; a row with one text has the same number twice.
        batch_size: rows in a batch, in training. Every batch of a bucket has one shape, so the rows that do not fill
            a batch are left out of that epoch; they are others in each epoch.
        buckets: how many lengths to pad to.
        seed: the seed of the order.
        batch_tokens: tokens in a batch, with padding, on the side that has more of them. It takes the place of
            `batch_size`: the shorter the rows, the more are in a batch.
    """

    def __init__(self, lengths: np.ndarray, batch_size: int, buckets: int, seed: int, batch_tokens: int | None = None):
        self.seed = seed
        self._rows = len(lengths)
        self.buckets = self._filled(make_buckets(lengths, buckets), batch_size, batch_tokens)
        sizes = {bucket.batch_size for bucket in self.buckets}
        self._static_batch_size = sizes.pop() if len(sizes) == 1 else None  # None: the buckets differ in batch size

    @abc.abstractmethod
    def _batch(self, rows: tf.Tensor, counted: tf.Tensor, lengths: tf.Tensor, step: tf.Tensor, training: bool) -> Any:
        """Inputs, labels and weights.

        Args:
            rows: numbers of the rows, int `(B,)`.
            counted: the first `counted` rows have a weight; the others fill the batch.
            lengths: source and target length of their bucket, int `(2,)`.
            step: number of the step, a seed for random choices; 0 in validation.
            training: whether the batch is for training.
        """

    def _filled(self, buckets: list[Bucket], batch_size: int, batch_tokens: int | None) -> list[Bucket]:
        """Buckets with their batch sizes; one that cannot fill a batch is merged into a neighbour."""

        def sized(bucket: Bucket) -> Bucket:
            longer = max(bucket.source_length, bucket.target_length)
            size = max(1, batch_tokens // longer) if batch_tokens else batch_size
            return dataclasses.replace(bucket, batch_size=min(size, self._rows))

        filled: list[Bucket] = []
        for bucket in map(sized, buckets):
            if filled and len(filled[-1].rows) < filled[-1].batch_size:
                bucket = sized(_merged(filled.pop(), bucket))
            filled.append(bucket)
        if len(filled) > 1 and len(filled[-1].rows) < filled[-1].batch_size:
            filled.append(sized(_merged(filled.pop(), filled.pop())))
        return filled

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        return sum(len(bucket.rows) // bucket.batch_size for bucket in self.buckets)

    def plan(self, epoch: int) -> list[tuple[Bucket, np.ndarray]]:
        """The batches of an epoch, in order: (bucket, numbers of its pairs)."""
        random = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        batches = []
        for bucket in self.buckets:
            rows = random.permutation(bucket.rows)
            whole = len(rows) // bucket.batch_size * bucket.batch_size
            batches += [(bucket, batch) for batch in rows[:whole].reshape(-1, bucket.batch_size)]
        return [batches[index] for index in random.permutation(len(batches))]

    def training(self, first_step: int = 0) -> tf.data.Dataset:
        """An endless stream of epochs for `model.fit`.

        Args:
            first_step: how many batches were used before; the stream goes on after them.
        """

        def endless():
            first_epoch, done = divmod(first_step, self.steps)
            plans = itertools.chain.from_iterable(map(self.plan, itertools.count(first_epoch)))
            for step, (bucket, rows) in enumerate(itertools.islice(plans, done, None), start=first_step):
                yield bucket, rows, bucket.batch_size, step

        return self._dataset(endless, tf.data.INFINITE_CARDINALITY, training=True)

    def once(self) -> tf.data.Dataset:
        """Every row once, bucket by bucket; the last batch of a bucket repeats rows with weight zero."""
        number = sum(-(-len(bucket.rows) // bucket.batch_size) for bucket in self.buckets)
        return self._dataset(self._in_order, number, training=False)

    def _in_order(self) -> Iterator[tuple[Bucket, np.ndarray, int, int]]:
        for bucket in self.buckets:
            for begin in range(0, len(bucket.rows), bucket.batch_size):
                rows = bucket.rows[begin : begin + bucket.batch_size]
                filled = np.resize(rows, bucket.batch_size)
                yield bucket, filled, len(rows), 0

    def _dataset(
        self, plan: Callable[[], Iterator[tuple[Bucket, np.ndarray, int, int]]], number: int, training: bool
    ) -> tf.data.Dataset:
        """Batches by a plan, which yields (bucket, numbers of rows, how many of them count, number of the step)."""

        def generate():
            for bucket, rows, counted, step in plan():
                yield rows.astype("int32"), counted, (bucket.source_length, bucket.target_length), step

        scalar = tf.TensorSpec([], tf.int32)
        signature = (tf.TensorSpec([self._static_batch_size], tf.int32), scalar, tf.TensorSpec([2], tf.int32), scalar)
        dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(number))  # Keras asks how long it is

        def batch(rows: tf.Tensor, counted: tf.Tensor, lengths: tf.Tensor, step: tf.Tensor) -> Any:
            return self._batch(rows, counted, lengths, step, training)

        return dataset.map(batch).prefetch(tf.data.AUTOTUNE)

    def _padded(self, ids: tf.RaggedTensor, rows: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        """The ids `(B, T)` of some rows of `(N, None)`, padded to the length of their bucket."""
        chosen = tf.gather(ids, rows).to_tensor(shape=[self._static_batch_size, None])  # (B, longest)
        return tf.pad(chosen, [[0, 0], [0, length - tf.shape(chosen)[1]]])
