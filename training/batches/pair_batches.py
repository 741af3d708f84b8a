"""From text pairs to batches: tokenised, and padded to the lengths of their bucket."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.text import PADDING, BytePairTokenizer, Tokenizer, encode_corpus, previous

from ..corpora.pairs import Pairs
from ..progress import progress_bar
from .buckets import BucketedBatches


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
        super().__init__(pairs.lengths, batch_size, buckets, seed, batch_tokens)
        self.pairs = pairs
        self._samplers = samplers

    @property
    def tokens(self) -> int:
        """Target tokens of an epoch, with end tokens and without padding, and of the pairs that fill no batch too."""
        return int(self.pairs.lengths[:, 1].sum())

    def _batch(self, rows: tf.Tensor, counted: tf.Tensor, lengths: tf.Tensor, step: tf.Tensor, training: bool) -> Any:
        """The batch of the rows that `BucketedBatches` has chosen, all of one bucket.

        The first `counted` pairs have a weight. `lengths` are the bucket's source and target length.
        """
        source, labels = (
            tf.ensure_shape(
                sampler(rows, tf.stack([2 * self.seed + side, tf.cast(step, tf.int64)]))
                if sampler and training
                else self._padded((self.pairs.sources, self.pairs.targets)[side], rows, lengths[side]),
                [self._static_batch_size, None],
            )
            for side, sampler in enumerate(self._samplers)
        )
        present = tf.range(tf.shape(labels)[0]) < counted
        weights = tf.cast((labels != PADDING) & present[:, None], tf.float32)
        # The decoder reads the start token and the labels but the last, and so predicts each label from those before.
        return {"source": source, "target": previous(labels)}, labels, weights


class Sampler:
    """BPE-dropout: splits the words of texts into other pieces each time that they are drawn.

    Args:
        texts: the texts.
        tokenizer: their tokenizer.
        dropout: the probability that a merge of two pieces is skipped.
        max_length: the most ids of a text, with its end token. A draw that has more is replaced by the usual pieces;
            if these are more too, the text is cut off.

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
        usual = self._tokenizer.tokenize(texts, add_end=True, max_length=self._max_length)
        usual = tf.pad(usual, [[0, 0], [0, self._max_length - tf.shape(usual)[1]]])
        return tf.where(too_long[:, None], usual, ids[:, : self._max_length])
