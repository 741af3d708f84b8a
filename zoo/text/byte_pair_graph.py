r"""Byte-pair encoding as a TensorFlow graph: texts are cut into words, and the bytes of a word are merged to pieces.

Why it is written in core operations: a model server and other loaders of SavedModels have no tensorflow-text, and a
`py_function` does not leave the process that made it. So a tokenizer must be tables and array operations.

How it works, on `["low lower"]` with the merges `l o`, `lo w`:

1. `words.split_into_words` cuts each text by GPT-2's regular expression: `low`, ` lower`. Merges never leave a word.
2. `Bytes` (or `Characters`) writes the words of a whole batch as one flat vector of symbols, one for each byte, and a
   second vector with the number of the word that each symbol belongs to. Nothing is padded: a long word costs its own
   length.
3. A round of `Merging` looks up the rank of every symbol with its right neighbour, and merges all pairs before which no
   other merge can come. Round 1 merges `l o` in both words, round 2 `lo w`.
   For a batch of a server, most of the time is the fixed cost of the operations, so a round has as few as possible.
4. Rounds go on in a `while_loop` until no word has a pair left: usually below ten, for any size of batch.

The Rust library merges one place after another, from a heap. Both give the same pieces, because a merge is learnt
before any merge that uses its product; `_everywhere` finds the exceptions that imported vocabularies may hold.

Axes: B batch, W words of all texts, N symbols of all words.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from zoo.text.lookup import lookup_table
from zoo.text.ragged import chosen_rows, rows_of, splits_of

_NONE = -1  # no id: a word of several pieces, or a byte that the vocabulary lacks


class WholeWords(tf.Module):
    """The subwords: one look-up for words that are one piece, and a longer way for the others.

    Most words of a text are one piece. The few others still take about half of the time (benchmarks/notes.md,
    tokenizing.py).

    Args:
        whole: the words that are one piece, and its id.
        split: splits words `(W,)`, of which there is at least one, into ids `(N,)`, and gives the number of the word of
            each, int64 `(N,)`.
    """

    def __init__(self, whole: Mapping[bytes, int], split: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]):
        super().__init__()
        self._whole = lookup_table(whole, whole.values(), tf.string, default=_NONE)
        self._split = split

    def __call__(self, words: tf.Tensor, rows: tf.Tensor, known: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
        """Splits words into pieces.

        Args:
            words: strings, none of them empty, `(W,)`.
            rows: the text of each, int64 `(W,)`.
            known: the ids of words that need no look-up, and -1 for all others, int32 `(W,)`; None if all need one.

        Returns:
            The ids of the pieces in their order, and the text of each: both as long as the result.
        """
        ids = self._whole.lookup(words)  # (W,)
        ids = ids if known is None else tf.where(known < 0, ids, known)

        def split() -> tuple[tf.Tensor, tf.Tensor]:
            places = tf.where(ids < 0)  # (M, 1)
            rare = tf.unique(tf.gather(words, places[:, 0]), tf.int64)  # a repeated word is split once
            return _in_places(ids, rows, places, *self._split(rare.y), rare.idx)

        return tf.cond(tf.reduce_all(ids >= 0), lambda: (ids, rows), split)


class WordPieces(WholeWords):
    """The subwords, by rounds of merging if a word is not one piece.

    Args:
        whole: the words that are one piece, and its id.
        symbols: turns words `(W,)` into the ids that merging begins with `(N,)`, and gives the number of the word of
            each, int64 `(N,)`.
        merging: what merges them.
    """

    def __init__(
        self,
        whole: Mapping[bytes, int],
        symbols: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
        merging: "Merging",
    ):
        super().__init__(whole, lambda words: merging(*symbols(words)))
        self._symbols = symbols
        self._merging = merging

    def sample(
        self, words: tf.Tensor, rows: tf.Tensor, known: tf.Tensor | None, dropout: float, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Splits words into pieces drawn at random; see `Merging` for `dropout` and `seed`."""
        ids = tf.fill(tf.shape(words), _NONE) if known is None else known  # (W,)

        def merged() -> tuple[tf.Tensor, tf.Tensor]:
            places = tf.where(ids < 0)  # (M, 1)
            pieces = self._merging(*self._symbols(tf.gather(words, places[:, 0])), dropout, seed)
            return _in_places(ids, rows, places, *pieces, tf.range(tf.size(places, tf.int64)))

        return tf.cond(tf.reduce_all(ids >= 0), lambda: (ids, rows), merged)


def _in_places(
    ids: tf.Tensor, rows: tf.Tensor, places: tf.Tensor, pieces: tf.Tensor, owners: tf.Tensor, choices: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Puts pieces in the places of some words.

    Args:
        ids: an id for each word, `(W,)`; those of the words that are replaced do not matter.
        rows: the text of each word, `(W,)`.
        places: which words are replaced, int64 `(M, 1)`.
        pieces: the ids of the pieces of some words, `(N,)`.
        owners: the number of the word of each piece, ascending int64 `(N,)`.
        choices: for each word that is replaced, the number of the word whose pieces take its place, int64 `(M,)`.

    Returns:
        The ids of all pieces in their order, and the text of each.
    """
    # Rows to choose from: W rows of one id, and below them the pieces.
    itself = tf.range(tf.size(ids, tf.int64))  # (W,)
    count = tf.size(itself, tf.int64)
    splits = tf.concat([itself, count + splits_of(owners, tf.reduce_max(choices) + 1)], axis=0)
    which = tf.tensor_scatter_nd_update(itself, places, count + choices)  # (W,)
    found, splits = chosen_rows(tf.concat([ids, pieces], axis=0), splits, which)
    return found, tf.gather(rows, rows_of(splits[1:], tf.size(found)))


class Bytes(tf.Module):
    """The symbols of words for byte-level merging: one for each byte.

    Args:
        ids: the id of each of the 256 bytes; None for a byte that is left out.
        fused: an id; several of it side by side become one. None for no such id.
    """

    def __init__(self, ids: Sequence[int | None], fused: int | None = None):
        super().__init__()
        self._ids = np.array([_NONE if each is None else each for each in ids], np.int32)
        self._fused = fused

    def __call__(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The symbols of strings of any bytes `(W,)`: ids, int32 `(N,)`, and the word of each, int64 `(N,)`."""
        values = tf.cast(tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8), tf.int32)  # (N,)
        rows = rows_of(tf.cumsum(tf.strings.length(words)), tf.size(values))  # (N,)
        symbols = tf.gather(tf.constant(self._ids), values)  # (N,)
        if (self._ids == _NONE).any():
            kept = tf.where(symbols != _NONE)[:, 0]  # (N,): a smaller N
            symbols, rows = tf.gather(symbols, kept), tf.gather(rows, kept)
        if self._fused is not None:
            symbols, rows = _fused(symbols, rows, self._fused)
        return symbols, rows


class Characters(tf.Module):
    """The symbols of words for merging characters: one for each, or one for each byte of a character without an id.

    Args:
        ids: the ids of single characters, at least one.
        byte_ids: the id of each of the 256 bytes; empty for a vocabulary without bytes.
        unknown: the id of characters without any; None leaves them out.
        fused: whether several unknown characters side by side become one.
    """

    def __init__(self, ids: Mapping[str, int], byte_ids: Sequence[int], unknown: int | None, fused: bool):
        super().__init__()
        self._ids = lookup_table(map(ord, ids), ids.values(), tf.int32, default=_NONE)
        self._byte_ids = np.array(byte_ids, np.int32)
        self._unknown, self._fused = unknown, fused

    def __call__(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The symbols of strings in UTF-8 `(W,)`: ids, int32 `(N,)`, and the word of each, int64 `(N,)`."""
        code_points = tf.strings.unicode_decode(words, "UTF-8")  # (W, ragged)
        values = code_points.values  # (N,)
        rows = rows_of(code_points.row_splits[1:], tf.size(values, tf.int64))  # (N,)
        symbols = self._ids.lookup(values)  # (N,)
        if self._byte_ids.size:
            symbols, rows = tf.cond(  # a larger N
                tf.reduce_all(symbols != _NONE), lambda: (symbols, rows), lambda: self._in_bytes(values, symbols, rows)
            )
        elif self._unknown is not None:
            symbols = tf.where(symbols == _NONE, self._unknown, symbols)
            if self._fused:
                symbols, rows = _fused(symbols, rows, self._unknown)
        else:
            kept = tf.where(symbols != _NONE)[:, 0]  # (N,): a smaller N
            symbols, rows = tf.gather(symbols, kept), tf.gather(rows, kept)
        return symbols, rows

    def _in_bytes(self, values: tf.Tensor, symbols: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Puts ids of bytes in the places of characters without an id, of which there are some."""
        places = tf.where(symbols == _NONE)  # (M, 1)
        encoded = tf.strings.unicode_encode(tf.gather(values, places), "UTF-8")  # (M,)
        numbers = tf.cast(tf.io.decode_raw(tf.strings.reduce_join(encoded), tf.uint8), tf.int32)  # (bytes,)
        owners = rows_of(tf.cumsum(tf.strings.length(encoded)), tf.size(numbers))  # (bytes,)
        pieces = tf.gather(tf.constant(self._byte_ids), numbers)  # (bytes,)
        return _in_places(symbols, rows, places, pieces, owners, tf.range(tf.size(places, tf.int64)))


def _fused(symbols: tf.Tensor, rows: tf.Tensor, unknown: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Leaves one of several unknown symbols side by side; all arguments and results are `(N,)`, N shrinks."""
    # The row of each unknown symbol and another negative number for each known one: equal neighbours are fused.
    runs = tf.where(symbols == unknown, rows, -1 - tf.range(tf.size(rows, tf.int64)))
    kept = tf.where(tf.concat([[True], runs[1:] != runs[:-1]], axis=0)[: tf.size(rows)])[:, 0]
    return tf.gather(symbols, kept), tf.gather(rows, kept)


class Merging(tf.Module):
    """Merges pairs of symbols inside words, the pair of the lowest rank first, until no pair is left.

    All words of a batch go forward together, as the module's docstring explains. The memory is a few numbers for each
    symbol.

    A round merges not only the lowest pair of each word, but every pair that nothing can come before:

        rank(pair) < u,   rank(pair) <= the ranks of the two pairs that share a symbol with it

    where u is the lowest rank of all merges that use what a pair near by makes. New pairs then have rank u or above, so
    none of them takes a symbol of this pair before its turn. A word of 100,000 random letters takes 0.1 s, and 15 s if
    only the lowest pair is merged (GPT-2's vocabulary).

    Args:
        merges: left id, right id and the id of both together, in the order of the ranks.
        size: a number above all ids.
        ranks: the rank of each merge, if several merges share a rank: of these, the one at the first place in a word
            comes first. None if all ranks differ.
    """

    def __init__(self, merges: Sequence[tuple[int, int, int]], size: int, ranks: Sequence[int] | None = None):
        super().__init__()
        self._end = size  # stands behind each word, and is merged with nothing
        left, right, products = np.array(merges, np.int64).reshape(-1, 3).T
        # One rank more than there are merges means "no pair"; its product is never used.
        self._none = len(merges)
        self._products = np.append(products, 0)
        self._order = None if ranks is None else np.append(ranks, np.iinfo(np.int32).max).astype(np.int32)
        self._last = self._none if self._order is None else self._order[-1]  # what "no pair" is in that order
        order = np.arange(len(merges)) if ranks is None else np.array(ranks, np.int64)
        self._first_use = np.append(_first_use(left, right, products, order, size, self._last), self._last)
        self._everywhere = np.append(_everywhere(self._first_use[:-1], order), True)
        self._block = 2 * _longest(left, right, products) if self._everywhere.all() else None
        # A pair of ids is one key, so that a single lookup ranks it.
        keys = (left * (size + 1) + right).tolist()
        self._ranks = lookup_table(keys, range(len(keys)), tf.int64, default=self._none)

    def __call__(
        self, symbols: tf.Tensor, rows: tf.Tensor, dropout: float = 0.0, seed: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Merges the symbols of words.

        Args:
            symbols: ids, int32 `(N,)`.
            rows: the number of the word of each symbol, ascending int64 `(N,)`.
            dropout: the probability that a pair is passed over, drawn anew in each round. A word is done when a round
                leaves it no pair (Provilkov et al. 2020, algorithm 1, but equal pairs are merged in one round).
            seed: what the random numbers follow from, int64 `(2,)`. Needed if `dropout` is not 0.

        Returns:
            Ids, int32 `(P,)`, and the number of the word of each, int64 `(P,)`.
        """
        in_blocks = self._block is not None and not dropout

        def passed_over(ranks: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
            if not dropout:
                return ranks
            drawn = tf.random.stateless_uniform(tf.shape(ranks), tf.random.experimental.stateless_fold_in(seed, number))
            return tf.where(drawn < dropout, self._none, ranks)  # (N,)

        def one_round(symbols, rows, ranks, number):
            symbols, rows, done = self._round(symbols, rows, ranks, in_blocks)
            ranks = passed_over(self._pair_ranks(symbols), number)
            # A word that had no pair in this round is done, even if dropout would give it one in the next.
            return symbols, rows, tf.where(done, self._none, ranks) if dropout else ranks, number + 1

        # An end behind each word: then no pair reaches into the next word. `scatter_nd` leaves 0 in its place, so
        # symbols are scattered as their distance from the end's id.
        places = tf.range(tf.size(rows, tf.int64)) + rows  # (N,)
        size = tf.size(rows, tf.int64) + tf.reduce_sum(rows[-1:]) + 1
        wide = tf.cast(symbols, tf.int64) - self._end
        symbols = tf.scatter_nd(places[:, tf.newaxis], wide, size[tf.newaxis]) + self._end  # (N + words,)
        ends = symbols == self._end
        rows = self._blocks(ends) if in_blocks else _words(ends)
        symbols, *_ = tf.while_loop(
            lambda symbols, rows, ranks, number: tf.reduce_min(ranks) < self._none,
            one_round,
            (symbols, rows, passed_over(self._pair_ranks(symbols), 0), tf.constant(1, tf.int64)),
            shape_invariants=(*(tf.TensorShape([None]),) * 3, tf.TensorShape([])),
        )
        ends = symbols == self._end
        kept = tf.where(~ends)[:, 0]  # (P,)
        return tf.cast(tf.gather(symbols, kept), tf.int32), tf.gather(_words(ends), kept)

    def _blocks(self, ends: tf.Tensor) -> tf.Tensor:
        """The number of the block of each symbol, int64 `(N,)`: a word, or a part of a long one, or an end.

        Whatever can take a symbol of a pair begins in the pair's block or in the next one on either side, because no
        piece has more symbols than half a block. An end is a block without pairs, so other words do not count.
        """
        starts = (tf.range(tf.size(ends)) % self._block == 0) | ends | _shifted(ends)
        return tf.cumsum(tf.cast(starts, tf.int64)) - 1

    def _round(
        self, symbols: tf.Tensor, rows: tf.Tensor, ranks: tf.Tensor, in_blocks: bool
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """Merges pairs in each word that has any; all arguments and results are `(N,)`, N shrinks.

        With `in_blocks`, rows are blocks, and all pairs that nothing can come before are merged. Without, rows are
        words, and of each word the pairs of the lowest rank are merged.

        Returns:
            The new symbols, the row of each, and without `in_blocks`, whether its word had no pair.
        """
        order = ranks if self._order is None else tf.gather(tf.constant(self._order), ranks)  # (N,)
        done = None
        if in_blocks:
            limits = tf.math.segment_min(tf.gather(tf.constant(self._first_use, order.dtype), ranks), rows)  # (blocks,)
            limits = tf.where(limits == 0, self._last, limits)  # all symbols of a block may be parts of earlier pieces
            wide = tf.pad(limits, [[1, 1]], constant_values=self._last)
            limits = tf.minimum(limits, tf.minimum(wide[:-2], wide[2:]))
        else:
            lowest = tf.math.segment_min(order, rows)  # (words,)
            limits = tf.minimum(lowest, self._last - 1) + 1
            done = lowest == self._last
        # The symbol and its right neighbour are merged. "No pair" is never below a limit.
        before = tf.concat([[self._last], order[:-1]], axis=0)  # (N,)
        after = tf.concat([order[1:], [self._last]], axis=0)  # (N,)
        first = order < before
        chosen = (order < tf.gather(limits, rows)) & (order <= before) & (order <= after)  # (N,)
        # Chosen pairs side by side share a symbol and have one rank, as in "aaa". Every other one is merged, from the
        # first pair of that rank on. If that one must wait, all of them wait.
        chosen = tf.cond(tf.reduce_any(chosen & ~first), lambda: _every_other(chosen, first), lambda: chosen)
        if not self._everywhere.all():
            first = _first_of_each(chosen, rows)
            chosen &= first | tf.gather(tf.constant(self._everywhere), ranks)
        symbols = tf.where(chosen, tf.gather(tf.constant(self._products), ranks), symbols)  # (N,)
        kept = tf.where(~_shifted(chosen))[:, 0]  # without the right neighbours
        rows = tf.gather(rows, kept)
        return tf.gather(symbols, kept), rows, None if done is None else tf.gather(done, rows)

    def _pair_ranks(self, symbols: tf.Tensor) -> tf.Tensor:
        """The rank of each symbol with the next one, `(N,)`."""
        keys = symbols[:-1] * (self._end + 1) + symbols[1:]  # (N - 1,)
        return tf.concat([self._ranks.lookup(keys), [self._none]], axis=0)  # (N,)


def _first_use(
    left: np.ndarray, right: np.ndarray, products: np.ndarray, ranks: np.ndarray, size: int, none: int
) -> np.ndarray:
    """For each merge, the lowest rank of all merges that use its product; `none` if none does."""
    first_use = np.full(size, none)
    np.minimum.at(first_use, left, ranks)
    np.minimum.at(first_use, right, ranks)
    return first_use[products]


def _everywhere(first_use: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Whether a word may take each merge at all places at once.

    It may if only later merges use the product. This is true of all learnt merges. But an imported vocabulary may make
    a piece by two merges, and use it by a merge between them. Then a round merges only the first place in the word.
    """
    later = np.ones(len(ranks), bool)
    np.logical_and.at(later, ranks, first_use > ranks)
    return later[ranks]


def _longest(left: np.ndarray, right: np.ndarray, products: np.ndarray) -> int:
    """How many symbols the longest piece has, if each merge uses only what earlier ones make."""
    lengths: dict[int, int] = {}
    for one, other, both in zip(left.tolist(), right.tolist(), products.tolist(), strict=True):
        lengths[both] = max(lengths.get(both, 1), lengths.get(one, 1) + lengths.get(other, 1))
    return max(lengths.values(), default=1)


def _words(ends: tf.Tensor) -> tf.Tensor:
    """The number of the word of each symbol, given which ones are the ends of words, int64 `(N,)`."""
    return tf.cumsum(tf.cast(ends, tf.int64), exclusive=True)


def _shifted(flags: tf.Tensor) -> tf.Tensor:
    """Moves flags `(N,)` to the right by one."""
    # Not by `tf.roll`, which starts threads; this takes 60 us.
    return tf.concat([[False], flags[:-1]], axis=0)


def _every_other(flags: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
    """Keeps the first, third, fifth ... of each run of flags `(N,)` that begins at a `first`. There is a flag."""
    starts = flags & ~_shifted(flags)
    positions = tf.where(starts)[:, 0]  # (runs,)
    runs = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32)) - 1, 0)  # (N,)
    positions = tf.gather(positions, runs)  # (N,)
    offsets = tf.range(tf.size(flags, tf.int64)) - positions  # (N,)
    return flags & (offsets % 2 == 0) & tf.gather(first, positions)


def _first_of_each(flags: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Keeps the first flag of each row, `(N,)`."""
    positions = tf.range(tf.size(flags))
    first = tf.math.segment_min(tf.where(flags, positions, tf.size(flags)), rows)  # (W,)
    return flags & (positions == tf.gather(first, rows))
