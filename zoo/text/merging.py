"""Byte pairs merged in the graph."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf


class Merging(tf.Module):
    """Merges pairs of symbols inside words, that of the lowest rank first, until there is none left to merge.

    All words of a batch go forward together, each by its own pair of the lowest rank, at all places of the word at
    once. It takes as many rounds as the word with the most different merges needs, and the memory of a few numbers a
    byte. Only merges whose product is used before it is made, which imported ones may be, go place by place.

    Axes: W words, T length.

    Args:
        byte_ids: the id of each of the 256 bytes.
        merges: left id, right id and the id of both together, in the order of the ranks.
        size: a number above all ids.
    """

    def __init__(self, byte_ids: Sequence[int], merges: Sequence[tuple[int, int, int]], size: int):
        super().__init__()
        self._size = size
        self._byte_ids = np.array(byte_ids, np.int32)
        left, right, products = np.array(merges, np.int64).reshape(-1, 3).T
        self._products = np.append(products, 0).astype(np.int32)  # a last one for the rank of what is no pair
        self._none = len(merges)
        self._everywhere = np.append(_everywhere(left, right, products, size), True)
        # The key -1 is for what is no pair. It also makes a table of no merges possible.
        keys = tf.constant(np.append(left * size + right, -1), tf.int64)
        pairs = tf.lookup.KeyValueTensorInitializer(keys, tf.range(len(merges) + 1, dtype=tf.int32))
        self._ranks = tf.lookup.StaticHashTable(pairs, default_value=self._none)

    def __call__(self, words: tf.Tensor, dropout: float = 0.0, seed: tf.Tensor | None = None) -> tf.RaggedTensor:
        """Splits words into the ids of their symbols.

        Args:
            words: strings of any bytes, none of them empty, `(W,)`, W at least 1.
            dropout: how likely each pair is passed over, anew in each round. A word is done when none of its pairs is
                left in a round (Provilkov et al. 2020, algorithm 1, but that equal pairs are merged in one round).
            seed: what the drawing follows from, int64 `(2,)`. Needed if `dropout` is not 0.

        Returns:
            Ids, int32 ragged `(W, T)`.
        """
        count = tf.size(words, tf.int64)
        rows = tf.repeat(tf.range(count), tf.strings.length(words))
        values = tf.cast(tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8), tf.int32)
        symbols = tf.gather(tf.constant(self._byte_ids), values)

        def passed_over(ranks: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
            if not dropout:
                return ranks
            drawn = tf.random.stateless_uniform(tf.shape(ranks), tf.random.experimental.stateless_fold_in(seed, number))
            return tf.where(drawn < dropout, self._none, ranks)

        def one_round(symbols, rows, ranks, number):
            symbols, rows, ranks = self._round(symbols, rows, ranks)
            return symbols, rows, passed_over(ranks, number), number + 1

        symbols, rows, _, _ = tf.while_loop(
            lambda symbols, rows, ranks, number: tf.reduce_min(ranks) < self._none,
            one_round,
            (symbols, rows, passed_over(self._pair_ranks(symbols, rows), 0), tf.constant(1, tf.int64)),
            shape_invariants=(*(tf.TensorShape([None]),) * 3, tf.TensorShape([])),
        )
        return tf.RaggedTensor.from_value_rowids(symbols, rows, count, validate=False)

    def _round(self, symbols: tf.Tensor, rows: tf.Tensor, ranks: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Merges one kind of pair in each word that has any."""
        lowest = tf.gather(tf.math.segment_min(ranks, rows), rows)
        chosen = (ranks == lowest) & (ranks < self._none)
        # Two chosen pairs side by side share a symbol, and all three symbols are the same.
        chosen = tf.cond(tf.reduce_any(chosen[1:] & chosen[:-1]), lambda: _every_other(chosen), lambda: chosen)
        if not self._everywhere.all():
            first = _first_of_each(chosen, rows)
            chosen &= first | tf.gather(tf.constant(self._everywhere), ranks)
        symbols = tf.where(chosen, tf.gather(tf.constant(self._products), ranks), symbols)
        kept = tf.where(~_shifted(chosen))[:, 0]
        # A word that had no pair this time is done, even if dropout would let it have one the next.
        done = tf.gather(lowest == self._none, kept)
        symbols, rows = tf.gather(symbols, kept), tf.gather(rows, kept)
        return symbols, rows, tf.where(done, self._none, self._pair_ranks(symbols, rows))

    def _pair_ranks(self, symbols: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """The rank of each symbol with the next one of its word."""
        wide = tf.cast(symbols, tf.int64)
        keys = tf.where(rows[1:] == rows[:-1], wide[:-1] * self._size + wide[1:], -1)
        return tf.concat([self._ranks.lookup(keys), [self._none]], axis=0)


def _everywhere(left: np.ndarray, right: np.ndarray, products: np.ndarray, size: int) -> np.ndarray:
    """Tells of each merge whether a word may take it at all places at once.

    That is so if what it makes is merged only later, as in all that is learnt; but the merges of others may make the
    same piece twice, and use it between. There the first place comes first, and what follows from it.
    """
    ranks = np.arange(len(products))
    first_use = np.full(size, len(products))
    np.minimum.at(first_use, left, ranks)
    np.minimum.at(first_use, right, ranks)
    return first_use[products] > ranks


def _shifted(flags: tf.Tensor) -> tf.Tensor:
    """Moves flags to the right by one."""
    return tf.concat([[False], flags[:-1]], axis=0)


def _every_other(flags: tf.Tensor) -> tf.Tensor:
    """Keeps the first, third, fifth ... of each run of flags. There is at least one."""
    starts = flags & ~_shifted(flags)
    positions = tf.where(starts)[:, 0]
    runs = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32)) - 1, 0)
    offsets = tf.range(tf.size(flags, tf.int64)) - tf.gather(positions, runs)
    return flags & (offsets % 2 == 0)


def _first_of_each(flags: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Keeps the first flag of each row."""
    positions = tf.range(tf.size(flags))
    first = tf.math.segment_min(tf.where(flags, positions, tf.size(flags)), rows)
    return flags & (positions == tf.gather(first, rows))
