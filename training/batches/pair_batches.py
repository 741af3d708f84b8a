"""From text pairs to batches: tokenised, and padded to the lengths of their bucket."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.text import PADDING, BytePairTokenizer, Tokenizer, compiled_encoder, previous
from zoo.text.strings import as_utf8
from zoo.text.tokenizer import tokenizer_to_config

from ..corpora.pairs import Pairs
from ..progress import progress_bar
from ..ragged import Rows, RowsWriter, StoredRows, StoredTexts, is_stored
from ..storage import Storage, key_of
from .buckets import Bucket, BucketedBatches
from .text_windows import smallest_dtype

_AT_ONCE = 1024  # texts that are tokenised in one call


@dataclasses.dataclass(frozen=True)
class EncodedPairs:
    """Pairs as ids, with their end tokens, and without the pairs that are too long.

    Attributes:
        sources: ids of the sources, N rows.
        targets: ids of the targets, N rows.
        kept: the numbers of the pairs that were short enough, int32 `(N,)`.
        too_long: how many pairs were left out.
    """

    sources: Rows | StoredRows
    targets: Rows | StoredRows
    kept: np.ndarray
    too_long: int

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def lengths(self) -> np.ndarray:
        """Source and target lengths, int32 `(N, 2)`."""
        return np.stack([self.sources.lengths, self.targets.lengths], axis=1)


def encode(
    pairs: Pairs,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    max_source: int,
    max_target: int,
    storage: Storage | None = None,
) -> EncodedPairs:
    """Tokenises pairs, each side followed by its end token.

    Args:
        pairs: the texts.
        source_tokenizer: tokenizer of the sources.
        target_tokenizer: tokenizer of the targets.
        max_source: the most source tokens, end token included; pairs with more are left out.
        max_target: the same of target tokens.
        storage: where the ids go if the texts are in files, and where they are found in the next run.

    Raises:
        ValueError: no pair is short enough.
    """
    tokenizers = source_tokenizer, target_tokenizer
    limits = max_source, max_target
    key = pairs.key and key_of(pairs.key, [tokenizer_to_config(tokenizer) for tokenizer in tokenizers], limits)
    storage = storage or Storage()
    if entry := storage.find("ids", key):
        return EncodedPairs(entry.rows("sources"), entry.rows("targets"), entry.array("kept"), entry.info["too_long"])
    with storage.writing("ids", key) as entry:
        stored = is_stored(pairs.sources) or is_stored(pairs.targets)
        dtypes = [smallest_dtype(tokenizer) for tokenizer in tokenizers]
        names = "sources", "targets"
        writers = [RowsWriter(entry if stored else None, *each) for each in zip(names, dtypes, strict=True)]
        kept, begin = [], 0
        for batch in _encoded(pairs, tokenizers):
            short = np.logical_and(*(lengths <= limit for (_, lengths), limit in zip(batch, limits, strict=True)))
            for writer, (ids, lengths) in zip(writers, batch, strict=True):
                writer.append(ids[np.repeat(short, lengths)], lengths[short])
            kept.append((begin + np.flatnonzero(short)).astype(np.int32))
            begin += len(short)
        rows = np.concatenate(kept)
        if not len(rows):
            raise ValueError(
                f"All {begin} pairs are longer than max_source={max_source} or max_target={max_target}; raise these, "
                "or give shorter texts."
            )
        sources, targets = (writer.finish() for writer in writers)
        too_long = begin - len(rows)
        if stored:
            entry.save("kept", rows)
            entry.info["too_long"] = too_long
    return EncodedPairs(sources, targets, rows, too_long)


def _encoded(pairs: Pairs, tokenizers: tuple[Tokenizer, Tokenizer]) -> Iterator[list[tuple[np.ndarray, np.ndarray]]]:
    """Ids and lengths of both sides, some pairs at a time; both sides at once, a thread each."""
    encoders = [compiled_encoder(tokenizer, add_end=True) for tokenizer in tokenizers]
    sides = [iter(side) for side in (pairs.sources, pairs.targets)]
    with progress_bar("Encoding pairs", len(pairs)) as advance, ThreadPoolExecutor(2) as threads:
        while any(texts := [list(itertools.islice(side, _AT_ONCE)) for side in sides]):
            yield list(threads.map(lambda encoder, each: encoder(each), encoders, texts))
            advance(len(texts[0]))


class Batches(BucketedBatches):
    """Training or validation batches of one set of pairs: ({source, target}, labels, weights).

    Pairs of similar length form a bucket, and a batch has pairs of one bucket. Their order follows from the seed and
    the epoch (`BucketedBatches`).

    Args:
        pairs: the pairs as ids.
        batch_size: pairs in a batch, in training.
        buckets: how many lengths to pad to.
        seed: the seed of the order.
        batch_tokens: tokens in a batch, with padding, on the side that has more of them. It takes the place of
            `batch_size`: the shorter the pairs, the more are in a batch.
        samplers: draw new ids of sources and targets for each training batch, in place of the ids of `pairs`.
            A draw has more ids, so such a batch is as long as its longest row, not as its bucket.
        parts: how many of the pairs are of each corpus, and its weight; see `BucketedBatches`.
    """

    def __init__(
        self,
        pairs: EncodedPairs,
        batch_size: int,
        buckets: int = 4,
        seed: int = 0,
        batch_tokens: int | None = None,
        samplers: tuple[Sampler | None, Sampler | None] = (None, None),
        parts: Sequence[tuple[int, float]] | None = None,
    ):
        super().__init__(pairs.lengths, batch_size, buckets, seed, batch_tokens, parts)
        self.pairs = pairs
        self._samplers = samplers

    @property
    def tokens(self) -> int:
        """Target tokens of all pairs, including end tokens and pairs that fill no batch, excluding padding."""
        return self.per_epoch(self.pairs.targets)

    def _gather(self, rows: np.ndarray, bucket: Bucket, training: bool) -> tuple[np.ndarray, ...]:
        sides = zip(
            (self.pairs.sources, self.pairs.targets),
            (bucket.source_length, bucket.target_length),
            self._samplers,
            strict=True,
        )
        return tuple(
            sampler.texts(rows) if sampler and training else ids.padded(rows, length) for ids, length, sampler in sides
        )

    def _specs(self, training: bool) -> tuple[tf.TensorSpec, ...]:
        size = self._static_batch_size
        ids, texts = tf.TensorSpec([size, None], tf.int32), tf.TensorSpec([size], tf.string)
        return tuple(texts if sampler and training else ids for sampler in self._samplers)

    def _batch(self, arrays: tuple[tf.Tensor, ...], counted: tf.Tensor, step: tf.Tensor, training: bool) -> Any:
        source, labels = (
            tf.ensure_shape(
                sampler(array, tf.stack([2 * self.seed + side, step])) if sampler and training else array,
                [self._static_batch_size, None],
            )
            for side, (array, sampler) in enumerate(zip(arrays, self._samplers, strict=True))
        )
        present = tf.range(tf.shape(labels)[0]) < counted
        weights = tf.cast((labels != PADDING) & present[:, None], tf.float32)
        # The decoder reads the start token and the labels but the last, and so predicts each label from those before.
        return {"source": source, "target": previous(labels)}, labels, weights


class BatchesInStages:
    """Training batches of several corpora, of which some are left out in later epochs.

    An epoch has the same number of batches in every stage. So a stage sees its pairs again as soon as all are through,
    also in the middle of an epoch.

    Args:
        stages: the first epoch of each stage, and its batches, whose `parts` leave out the corpora that have ended.
        steps: batches of an epoch; None for as many as see the pairs of the first stage once.
    """

    def __init__(self, stages: Sequence[tuple[int, Batches]], steps: int | None = None):
        first = stages[0][1]
        self.steps, self.tokens = first.steps, first.tokens  # see `Batches`
        self.fewest_rows = min(batches.fewest_rows for _, batches in stages)
        self._stages = [(epoch * (steps or first.steps), batches) for epoch, batches in stages]  # by the first batch

    def training(self, first_step: int = 0) -> tf.data.Dataset:
        """As `Batches.training`, without an end."""
        streams = []
        for (begin, batches), end in itertools.zip_longest(self._stages, [begin for begin, _ in self._stages[1:]]):
            first = max(first_step, begin)
            if end is None:
                streams.append(batches.training(first - begin))
            elif first < end:
                streams.append(batches.training(first - begin, end - first))
        return functools.reduce(tf.data.Dataset.concatenate, streams)


class Sampler:
    """BPE-dropout: splits the words of texts into other pieces each time that they are drawn.

    Args:
        texts: the texts.
        rows: the numbers of those that are drawn from, int `(N,)`.
        tokenizer: their tokenizer.
        dropout: the probability that a merge of two pieces is skipped.
        max_length: the most ids of a text, with its end token. A draw that has more is replaced by the usual pieces;
            if these are more too, the text is cut off.

    Reference: https://arxiv.org/abs/1910.13267
    """

    def __init__(
        self, texts: Sequence[str], rows: np.ndarray, tokenizer: BytePairTokenizer, dropout: float, max_length: int
    ):
        self._texts = texts
        self._rows = rows
        self._tokenizer = tokenizer
        self._dropout = dropout
        self._max_length = max_length

    def texts(self, rows: np.ndarray) -> np.ndarray:
        """Texts by their place among `rows`, in UTF-8: objects `(B,)`."""
        chosen = self._rows[rows]
        if isinstance(self._texts, StoredTexts):
            return np.array(self._texts.encoded(chosen), dtype=object)
        return np.array([as_utf8(self._texts[row]) for row in chosen.tolist()], dtype=object)

    def __call__(self, texts: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Draws ids, each row with its end token: int32 `(B, T)`.

        Args:
            texts: the texts, strings `(B,)`.
            seed: the seed of the draw, int `(2,)`; the same seed gives the same pieces.
        """
        ids = self._tokenizer.sample(texts, self._dropout, seed, add_end=True)
        too_long = tf.math.count_nonzero(ids, axis=1) > self._max_length
        return tf.cond(tf.reduce_any(too_long), lambda: self._shortened(ids, too_long, texts), lambda: ids)

    def _shortened(self, ids: tf.Tensor, too_long: tf.Tensor, texts: tf.Tensor) -> tf.Tensor:
        usual = self._tokenizer.tokenize(texts, add_end=True, max_length=self._max_length)
        usual = tf.pad(usual, [[0, 0], [0, self._max_length - tf.shape(usual)[1]]])
        return tf.where(too_long[:, None], usual, ids[:, : self._max_length])
