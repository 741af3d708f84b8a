"""Texts or pairs grouped by length and padded to few shapes, in an order set by a seed.

The content of a batch follows from (seed, epoch, its number) and nothing else, so that a stopped training can go on at
any step. XLA compiles the training step once for each shape, so lengths are gathered in a few buckets, and each bucket
is padded to one source and one target length.
"""

from __future__ import annotations

import abc
import atexit
import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.local_workers import cores

from ..ragged import Rows, StoredRows


class Plan:
    """The batches of an epoch: (bucket, numbers of its rows `(B,)`), each made when it is asked for.

    Args:
        buckets: the buckets.
        rows: for each bucket its rows in the order of the epoch, int32 `(n,)`.
        of_bucket: for each batch the number of its bucket, int `(steps,)`.
        begins: for each batch where it begins in the rows of its bucket, int `(steps,)`.
    """

    def __init__(self, buckets: list[Bucket], rows: list[np.ndarray], of_bucket: np.ndarray, begins: np.ndarray):
        self._buckets, self._rows, self._of_bucket, self._begins = buckets, rows, of_bucket, begins

    def __getitem__(self, number: int) -> tuple[Bucket, np.ndarray]:
        bucket, begin = self._buckets[self._of_bucket[number]], self._begins[number]
        return bucket, self._rows[self._of_bucket[number]][begin : begin + bucket.batch_size]


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Rows of similar length.

    Attributes:
        rows: numbers of the rows, int32 `(n,)`.
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
    assigned = np.searchsorted(bounds, longer).astype(np.int16)  # ten million rows: each byte counts
    groups = [np.flatnonzero(assigned == index).astype(np.int32) for index in range(len(bounds))]
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


_MOST_AT_ONCE, _AHEAD = 4, 4  # batches that are being made, and that are ready
_made = [0]  # batches, in this process
_QUIET = 0.2  # seconds without a batch: as many are ready as TensorFlow makes ahead
_PATIENCE = 10.0  # seconds


@atexit.register
def _finish_batches() -> None:
    """Lets the batches that are being made ahead become ready, before Python ends.

    A thread of TensorFlow that calls Python while it ends never returns. If that batch is of an iterator that still
    exists, its end waits for the thread, and the process never ends.
    """
    before, end = 0, time.monotonic() + _PATIENCE
    with contextlib.suppress(KeyboardInterrupt):  # of an impatient user: Python ends anyway
        while before != _made[0] and time.monotonic() < end:
            before = _made[0]
            time.sleep(_QUIET)


def numbered_batches(
    make: Callable[[int], tuple[np.ndarray, ...]],
    specs: Sequence[tf.TensorSpec],
    finish: Callable[..., Any],
    first: int,
    number: int | None,
) -> tf.data.Dataset:
    """Batches that follow from their number, made some ahead of the training step and in their order.

    Args:
        make: gives the arrays of a batch from its number, in NumPy.
        specs: their types and shapes.
        finish: gives the batch from its number and these tensors, in TensorFlow.
        first: the number of the first batch.
        number: how many batches there are; None for no end.
    """

    def counted(step: np.ndarray) -> tuple[np.ndarray, ...]:
        _made[0] += 1
        return make(int(step))

    def batch(step: tf.Tensor) -> Any:
        # One call of Python for each batch; a generator takes three, and no two of them at once.
        arrays = tf.numpy_function(counted, [step], [spec.dtype for spec in specs])
        shaped = [tf.ensure_shape(array, spec.shape) for array, spec in zip(arrays, specs, strict=True)]
        return finish(step, *shaped)

    end = np.iinfo(np.int64).max if number is None else first + number
    at_once = min(cores(), _MOST_AT_ONCE)
    dataset = tf.data.Dataset.range(first, end).map(batch, num_parallel_calls=at_once, deterministic=True)
    cardinality = tf.data.INFINITE_CARDINALITY if number is None else number
    # Keras asks how long it is.
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(cardinality)).prefetch(_AHEAD)
    # Without tuning: the thread that tunes sleeps ever longer, and the end of an iterator waits for it. That took 15 s
    # after a training of 75 s, and up to 38 s where one was stopped (TensorFlow 2.21).
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


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
        parts: the corpora that the rows are of, one after another: how many rows each has, and its weight, which is how
            many times an epoch sees each of them; 0 for a corpus that is left out. None for one corpus, each row of
            which is seen once.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        batch_size: int,
        buckets: int,
        seed: int,
        batch_tokens: int | None = None,
        parts: Sequence[tuple[int, float]] | None = None,
    ):
        self.seed = seed
        weighted = parts is not None and any(weight != 1 for _, weight in parts)
        self._corpus_weights = [weight for _, weight in parts] if parts and weighted else None
        self._corpus_ends = np.cumsum([rows for rows, _ in parts]) if parts and weighted else np.array([len(lengths)])
        self._rows = self._seen(np.arange(len(lengths), dtype=np.int32))
        self.buckets = self._filled(make_buckets(lengths, buckets), batch_size, batch_tokens)
        sizes = {bucket.batch_size for bucket in self.buckets}
        self._static_batch_size = sizes.pop() if len(sizes) == 1 else None  # None: the buckets differ in batch size

    @abc.abstractmethod
    def _gather(self, rows: np.ndarray, bucket: Bucket, training: bool) -> tuple[np.ndarray, ...]:
        """The arrays of a batch, such as ids padded to the lengths of its bucket, for the rows `(B,)`."""

    @abc.abstractmethod
    def _batch(self, arrays: tuple[tf.Tensor, ...], counted: tf.Tensor, step: tf.Tensor, training: bool) -> Any:
        """Inputs, labels and weights.

        Args:
            arrays: what `_gather` has given.
            counted: the first `counted` rows have a weight; the others fill the batch.
            step: number of the step, a seed for random choices; 0 in validation.
            training: whether the batch is for training.
        """

    @abc.abstractmethod
    def _specs(self, training: bool) -> tuple[tf.TensorSpec, ...]:
        """Types and shapes of what `_gather` gives."""

    def _filled(self, buckets: list[Bucket], batch_size: int, batch_tokens: int | None) -> list[Bucket]:
        """Buckets with their batch sizes; one that cannot fill a batch is merged into a neighbour."""

        def sized(bucket: Bucket) -> Bucket:
            longer = max(bucket.source_length, bucket.target_length)
            size = max(1, batch_tokens // longer) if batch_tokens else batch_size
            return dataclasses.replace(bucket, batch_size=min(size, self._rows))

        filled: list[Bucket] = []
        for bucket in map(sized, buckets):
            if filled and self._seen(filled[-1].rows) < filled[-1].batch_size:
                bucket = sized(_merged(filled.pop(), bucket))
            filled.append(bucket)
        if len(filled) > 1 and self._seen(filled[-1].rows) < filled[-1].batch_size:
            filled.append(sized(_merged(filled.pop(), filled.pop())))
        return filled

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        return sum(self._numbers)

    @property
    def fewest_rows(self) -> int:
        """Rows of the smallest batch to train on."""
        return min(bucket.batch_size for bucket in self.buckets)

    @functools.cached_property
    def _numbers(self) -> list[int]:
        """Batches of an epoch, by bucket."""
        return [self._seen(bucket.rows) // bucket.batch_size for bucket in self.buckets]

    def _parts(self, rows: np.ndarray) -> list[tuple[np.ndarray, int]]:
        """The rows of each corpus among ascending ones `(n,)`, and how many an epoch sees, with repetitions."""
        if self._corpus_weights is None:
            return [(rows, len(rows))]
        parts = np.split(rows, np.searchsorted(rows, self._corpus_ends[:-1]))
        # A corpus with a small weight is seen, however few its rows of this length are.
        both = zip(parts, self._corpus_weights, strict=True)
        return [(part, max(1, round(len(part) * weight))) for part, weight in both if len(part) and weight]

    def _seen(self, rows: np.ndarray) -> int:
        """How many of ascending rows `(n,)` an epoch sees, with repetitions."""
        return sum(number for _, number in self._parts(rows))

    def per_epoch(self, ids: Rows | StoredRows) -> int:
        """How many ids of the rows an epoch has."""
        if self._corpus_weights is None:
            return ids.count
        parts = np.split(ids.lengths, self._corpus_ends[:-1])
        return round(sum(weight * int(part.sum()) for part, weight in zip(parts, self._corpus_weights, strict=True)))

    def _drawn(self, bucket: int, epoch: int) -> np.ndarray:
        """The rows of a bucket that an epoch sees, not yet shuffled.

        Each corpus' rows are an endless stream, one permutation of them after another, and each epoch takes the next
        ones. So no row is ever ahead of another one of its corpus and bucket by more than one.
        """
        found = []
        for part, (rows, number) in enumerate(self._parts(self.buckets[bucket].rows)):
            first, last = epoch * number, (epoch + 1) * number
            for which in range(first // len(rows), -(-last // len(rows))):
                begin, end = first - which * len(rows), last - which * len(rows)
                if begin > 0 or end < len(rows):
                    seeds = np.random.SeedSequence([self.seed, bucket, part, which])
                    order = np.random.Generator(np.random.Philox(seeds)).permutation(rows)
                    found.append(order[max(begin, 0) : end])
                else:
                    found.append(rows)  # all of them: their order does not matter
        return np.concatenate(found)

    def plan(self, epoch: int) -> Plan:
        """The batches of an epoch, in order."""
        random = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        rows = [
            random.permutation(bucket.rows if self._corpus_weights is None else self._drawn(number, epoch))
            for number, bucket in enumerate(self.buckets)
        ]
        numbers = self._numbers
        of_bucket = np.repeat(np.arange(len(numbers), dtype=np.int32), numbers)  # (steps,)
        begins = np.concatenate(
            [np.arange(number) * bucket.batch_size for number, bucket in zip(numbers, self.buckets, strict=True)]
        )  # (steps,), in the rows of the bucket
        order = random.permutation(len(of_bucket))
        return Plan(self.buckets, rows, of_bucket[order], begins[order])

    def training(self, first_step: int = 0, number: int | None = None) -> tf.data.Dataset:
        """A stream of epochs for `model.fit`.

        Args:
            first_step: how many batches were used before; the stream goes on after them.
            number: how many batches it has; None for no end.
        """
        steps = self.steps
        plan = functools.lru_cache(2)(self.plan)  # two, as batches are made ahead, also those of the next epoch

        def batch(step: int) -> tuple[Bucket, np.ndarray, int]:
            epoch, number = divmod(step, steps)
            bucket, rows = plan(epoch)[number]
            return bucket, rows, len(rows)

        return self._dataset(batch, first_step, number, training=True)

    def once(self) -> tf.data.Dataset:
        """Every row once, bucket by bucket; the last batch of a bucket repeats rows with weight zero."""
        places = [(b, begin) for b in self.buckets for begin in range(0, len(b.rows), b.batch_size)]

        def batch(number: int) -> tuple[Bucket, np.ndarray, int]:
            bucket, begin = places[number]
            rows = bucket.rows[begin : begin + bucket.batch_size]
            return bucket, np.resize(rows, bucket.batch_size), len(rows)

        return self._dataset(batch, 0, len(places), training=False)

    def _dataset(
        self, batch: Callable[[int], tuple[Bucket, np.ndarray, int]], first: int, number: int | None, training: bool
    ) -> tf.data.Dataset:
        """Batches by their number: its bucket, its rows, and how many of these count."""

        def arrays(step: int) -> tuple[Any, ...]:
            bucket, rows, counted = batch(step)
            return *self._gather(rows, bucket, training), np.int32(counted)

        def finished(step: tf.Tensor, *arrays: tf.Tensor) -> Any:
            *gathered, counted = arrays
            return self._batch(tuple(gathered), counted, step if training else tf.zeros_like(step), training)

        specs = (*self._specs(training), tf.TensorSpec([], tf.int32))
        return numbered_batches(arrays, specs, finished, first, number)
