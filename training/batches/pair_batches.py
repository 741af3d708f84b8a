"""From text pairs to batches: tokenised, grouped by length, padded to few shapes, in an order set by a seed.

The content of a batch follows from (seed, epoch, its number) and nothing else, so that a stopped training can go on at
any step. XLA compiles the training step once for each shape, so lengths are gathered in a few buckets, and each bucket
is padded to one source and one target length.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from zoo.text import PADDING, BytePairTokenizer, Tokenizer, encode_corpus, previous

from ..corpora.pairs import Pairs
from ..progress import progress_bar


@dataclasses.dataclass(frozen=True)
class EncodedPairs:
    """Pairs as ids, with their end tokens, and without the pairs that are too long.

    Attributes:
        sources: int32 ragged `(N, None)`.
        targets: int32 ragged `(N, None)`.
        kept: the numbers of the pairs that were short enough, int `(N,)`.
        too_long: how many pairs were left out.
    """

    sources: tf.RaggedTensor
    targets: tf.RaggedTensor
    kept: np.ndarray
    too_long: int

    def __len__(self) -> int:
        return int(self.sources.nrows())

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Source and target lengths, int `(N, 2)`."""
        return np.stack([side.row_lengths().numpy() for side in (self.sources, self.targets)], axis=1)


def encode(
    pairs: Pairs, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer, max_source: int, max_target: int
) -> EncodedPairs:
    """Tokenises pairs, each side followed by its end token.

    Args:
        pairs: the texts.
        source_tokenizer: tokenizer of the sources.
        target_tokenizer: tokenizer of the targets.
        max_source: the most source tokens, end token included; pairs with more are left out.
        max_target: the same of target tokens.

    Raises:
        ValueError: no pair is short enough.
    """
    sources = _ragged_ids(source_tokenizer, pairs.sources, "sources")
    targets = _ragged_ids(target_tokenizer, pairs.targets, "targets")
    kept = (sources.row_lengths() <= max_source) & (targets.row_lengths() <= max_target)
    too_long = int(tf.math.count_nonzero(~kept))
    if too_long == len(pairs):
        raise ValueError(f"All {too_long} pairs are longer than max_source={max_source} or max_target={max_target}.")
    sources, targets = (tf.ragged.boolean_mask(side, kept) for side in (sources, targets))
    return EncodedPairs(sources, targets, np.flatnonzero(kept), too_long)


def _ragged_ids(tokenizer: Tokenizer, texts: list[str], side: str) -> tf.RaggedTensor:
    """Ids with end token, `(N, ragged)`."""
    with progress_bar(f"Encoding {side}", len(texts)) as advance:
        ids, lengths = encode_corpus(tokenizer, texts, add_end=True, advance=advance)
    return tf.RaggedTensor.from_row_lengths(ids, lengths, validate=False)


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Pairs of similar length.

    Attributes:
        rows: numbers of the pairs, int `(n,)`.
        source_length: what their sources are padded to.
        target_length: what their targets are padded to.
        batch_size: pairs in a batch; 0 before that is decided.
    """

    rows: np.ndarray
    source_length: int
    target_length: int
    batch_size: int = 0


def make_buckets(lengths: np.ndarray, number: int) -> list[Bucket]:
    """Divides pairs by the length of their longer side into the buckets that need the least padding.

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
    """The upper bounds of at most `number` ranges that together hold the least padding.

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


class Batches:
    """Training or validation batches of one set of pairs.

    Args:
        pairs: the pairs as ids.
        batch_size: pairs in a batch, in training. Every batch of a bucket has one shape, so the pairs that do not fill
            a batch are left out of that epoch; they are others in each epoch.
        buckets: how many lengths to pad to.
        seed: the seed of the order.
        batch_tokens: tokens in a batch, with padding, on the side that has more of them. It takes the place of
            `batch_size`: the shorter the pairs, the more are in a batch.
        samplers: draw new ids of sources and targets for each training batch, in place of the ids of `pairs`.
            A draw has more ids, so such a batch is as long as its longest row, not as its bucket.
    """

    def __init__(
        self,
        pairs: EncodedPairs,
        batch_size: int,
        buckets: int = 4,
        seed: int = 0,
        batch_tokens: int | None = None,
        samplers: tuple[Sampler | None, Sampler | None] = (None, None),
    ):
        self.pairs = pairs
        self.seed = seed
        self._samplers = samplers
        self.buckets = self._filled(make_buckets(pairs.lengths, buckets), batch_size, batch_tokens)
        sizes = {bucket.batch_size for bucket in self.buckets}
        self._static_batch_size = sizes.pop() if len(sizes) == 1 else None  # None: the buckets differ in batch size

    def _filled(self, buckets: list[Bucket], batch_size: int, batch_tokens: int | None) -> list[Bucket]:
        """Buckets with their batch sizes; one that cannot fill a batch is merged into a neighbour."""

        def sized(bucket: Bucket) -> Bucket:
            longer = max(bucket.source_length, bucket.target_length)
            size = max(1, batch_tokens // longer) if batch_tokens else batch_size
            return dataclasses.replace(bucket, batch_size=min(size, len(self.pairs)))

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

    @property
    def tokens(self) -> int:
        """Target tokens of an epoch, with end tokens and without padding, and of the pairs that fill no batch too."""
        return int(self.pairs.lengths[:, 1].sum())

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
        """An endless stream of epochs for `model.fit`: ({source, target}, labels, weights).

        Args:
            first_step: how many batches were used before; the stream goes on after them.
        """

        def endless():
            first_epoch, done = divmod(first_step, self.steps)
            plans = itertools.chain.from_iterable(map(self.plan, itertools.count(first_epoch)))
            for step, (bucket, rows) in enumerate(itertools.islice(plans, done, None), start=first_step):
                yield bucket, rows, bucket.batch_size, step

        return self._dataset(endless, tf.data.INFINITE_CARDINALITY, self._samplers)

    def once(self) -> tf.data.Dataset:
        """Every pair once, bucket by bucket; the last batch of a bucket repeats pairs with weight zero."""
        number = sum(-(-len(bucket.rows) // bucket.batch_size) for bucket in self.buckets)
        return self._dataset(self._in_order, number, (None, None))

    def _in_order(self) -> Iterator[tuple[Bucket, np.ndarray, int, int]]:
        for bucket in self.buckets:
            for begin in range(0, len(bucket.rows), bucket.batch_size):
                rows = bucket.rows[begin : begin + bucket.batch_size]
                filled = np.resize(rows, bucket.batch_size)
                yield bucket, filled, len(rows), 0

    def _dataset(
        self,
        plan: Callable[[], Iterator[tuple[Bucket, np.ndarray, int, int]]],
        number: int,
        samplers: tuple[Sampler | None, Sampler | None],
    ) -> tf.data.Dataset:
        """Batches by a plan, which yields (bucket, numbers of pairs, how many of them count, number of the step)."""

        def generate():
            for bucket, rows, counted, step in plan():
                yield rows.astype("int32"), counted, (bucket.source_length, bucket.target_length), step

        scalar = tf.TensorSpec([], tf.int32)
        signature = (tf.TensorSpec([self._static_batch_size], tf.int32), scalar, tf.TensorSpec([2], tf.int32), scalar)
        dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(number))  # Keras asks how long it is

        def batch(rows, counted, lengths, step):
            source, labels = (
                tf.ensure_shape(
                    sampler(rows, tf.stack([2 * self.seed + side, tf.cast(step, tf.int64)]))
                    if sampler
                    else self._padded(side, rows, lengths[side]),
                    [self._static_batch_size, None],
                )
                for side, sampler in enumerate(samplers)
            )
            return self._batch(source, labels, counted)

        return dataset.map(batch).prefetch(tf.data.AUTOTUNE)

    def _padded(self, side: int, rows: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        """Ids of sources (side 0) or targets (side 1), padded to the length of their bucket."""
        ids = tf.gather((self.pairs.sources, self.pairs.targets)[side], rows)  # (B, ragged)
        ids = ids.to_tensor(shape=[self._static_batch_size, None])
        return tf.pad(ids, [[0, 0], [0, length - tf.shape(ids)[1]]])

    def _batch(self, source: tf.Tensor, labels: tf.Tensor, counted: tf.Tensor):
        """(inputs, labels, weights); only the first `counted` pairs have a weight."""
        present = tf.range(tf.shape(labels)[0]) < counted
        weights = tf.cast((labels != PADDING) & present[:, None], tf.float32)
        # The decoder reads the start token and the labels but the last, and so predicts each label from those before.
        return {"source": source, "target": previous(labels)}, labels, weights


def _merged(first: Bucket, second: Bucket) -> Bucket:
    return Bucket(
        np.sort(np.concatenate([first.rows, second.rows])),
        max(first.source_length, second.source_length),
        max(first.target_length, second.target_length),
    )


class Sampler:
    """BPE-dropout: splits the words of texts into other pieces each time that they are drawn.

    Args:
        texts: the texts.
        tokenizer: their tokenizer.
        dropout: the probability that a merge of two pieces is skipped.
        max_length: the most ids of a text, with its end token. A draw that has more is replaced by the usual pieces,
            which must not have more.

    Reference: https://arxiv.org/abs/1910.13267
    """

    def __init__(self, texts: list[str], tokenizer: BytePairTokenizer, dropout: float, max_length: int):
        self._texts = tf.constant(texts)
        self._tokenizer = tokenizer
        self._dropout = dropout
        self._max_length = max_length

    def __call__(self, rows: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Draws ids, each row with its end token: int32 `(B, T)`.

        Args:
            rows: numbers of the texts, int `(B,)`.
            seed: the seed of the draw, int `(2,)`; the same seed gives the same pieces.
        """
        texts = tf.gather(self._texts, rows)
        ids = self._tokenizer.sample(texts, self._dropout, seed, add_end=True)
        too_long = tf.math.count_nonzero(ids, axis=1) > self._max_length
        return tf.cond(tf.reduce_any(too_long), lambda: self._shortened(ids, too_long, texts), lambda: ids)

    def _shortened(self, ids: tf.Tensor, too_long: tf.Tensor, texts: tf.Tensor) -> tf.Tensor:
        usual = self._tokenizer.tokenize(texts, add_end=True)
        usual = tf.pad(usual, [[0, 0], [0, self._max_length - tf.shape(usual)[1]]])
        return tf.where(too_long[:, None], usual, ids[:, : self._max_length])
