r"""Byte-pair encoding as a TensorFlow graph: texts are cut into words, and the bytes of a word are merged to pieces.

Why it is written in core operations: a model server and other loaders of SavedModels have no tensorflow-text, and a
`py_function` does not leave the process that made it. So a tokenizer must be tables and array operations.

How it works, on `["low lower"]` with the merges `l o`, `lo w`:

1. `split_into_words` cuts each text by GPT-2's regular expression: `low`, ` lower`. Merges never leave a word.
2. `Merging` writes the words of a whole batch as one flat vector of symbols, one for each byte, and a second vector
   with the number of the word that each symbol belongs to. Nothing is padded: a long word costs its own length.
3. A round of `Merging` looks up the rank of every symbol with its right neighbour, finds the lowest rank of each word,
   and merges that pair at all its places in the word. Round 1 merges `l o` in both words, round 2 `lo w`.
4. Rounds go on in a `while_loop` until no word has a pair left. The number of rounds is that of the word with the most
   different merges: usually below ten, for any size of batch.

The Rust library merges one place after another, from a heap. Both give the same pieces, because a merge is learnt
before any merge that uses its product; `_everywhere` finds the exceptions that imported vocabularies may hold.

Axes: B batch, W words of all texts, N symbols of all words.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf
from tokenizers import Regex, normalizers

from zoo.text.canonical import every_character

# No UTF-8 contains this byte, so it is in no text and no pattern matches it.
_SEPARATOR = b"\xff"


def split_into_words(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    r"""Cuts texts as the regular expression of GPT-2 does, without leaving anything out.

    It is `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`: English endings; letters,
    numbers or other characters, with the space before them; white space, whose last character goes to the
    next word. The classes of characters are those of the `tokenizers` library, which may know a newer Unicode than
    TensorFlow.

    Args:
        texts: valid UTF-8, `(B,)`.

    Returns:
        All words of all texts in their order, none of them empty, `(W,)`, and the index of the text of each word, int64
        `(W,)`.
    """
    before_last_space, word = _patterns()
    # RE2, TensorFlow's engine, has no look-ahead `(?!\S)`. So the first replacement cuts the last of several spaces off
    # the others. The second ends every word with a separator; no expression matches across one.
    texts = tf.strings.regex_replace(texts, before_last_space, rb"\1" + _SEPARATOR + rb"\2")  # (B,)
    texts = tf.strings.regex_replace(texts, word, rb"\0" + _SEPARATOR)  # (B,)
    split = tf.raw_ops.StringSplitV2(input=texts, sep=_SEPARATOR)  # values (W + empty ones,), indices (.., 2)
    kept = tf.where(split.values != b"")[:, 0]  # (W,)
    return tf.gather(split.values, kept), tf.gather(split.indices[:, 0], kept)  # (W,), (W,)


@functools.cache
def _patterns() -> tuple[str, str]:
    """The expressions for the end of white space before a word, in two groups, and for a word."""
    letter, number, space = (_character_class(name) for name in (r"\p{L}", r"\p{N}", r"\s"))
    words = rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{letter}]+| ?[{number}]+| ?[^{space}{letter}{number}]+|[{space}]+"
    return rf"([{space}])([{space}][^{space}])", words


def _character_class(name: str) -> str:
    """The code points that a class of the library's regular expressions has, as ranges for RE2."""
    members = normalizers.Replace(Regex(f"[^{name}]+"), "").normalize_str(every_character())
    return "".join(f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in _ranges(map(ord, members)))


def _ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The first and the last of each run of consecutive numbers."""
    # Within a run, the number minus its index stays the same.
    for _, run in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield members[0], members[-1]


class Merging(tf.Module):
    """Merges pairs of symbols inside words, the pair of the lowest rank first, until no pair is left.

    All words of a batch go forward together, as the module's docstring explains. The memory is a few numbers a byte.

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
        # One rank more than there are merges means "no pair"; its product is never used.
        self._none = len(merges)
        self._products = np.append(products, 0).astype(np.int32)
        self._everywhere = np.append(_everywhere(left, right, products, size), True)
        # A pair of ids is one key, so that a single lookup ranks it. The key -1 stands for no pair; with it the table
        # is never empty, which TensorFlow does not allow.
        keys = tf.constant(np.append(left * size + right, -1), tf.int64)
        pairs = tf.lookup.KeyValueTensorInitializer(keys, tf.range(len(merges) + 1, dtype=tf.int32))
        self._ranks = tf.lookup.StaticHashTable(pairs, default_value=self._none)

    def __call__(self, words: tf.Tensor, dropout: float = 0.0, seed: tf.Tensor | None = None) -> tf.RaggedTensor:
        """Splits words into the ids of their symbols.

        Args:
            words: strings of any bytes, none of them empty, `(W,)`, W at least 1.
            dropout: the probability that a pair is passed over, drawn anew in each round. A word is done when a round
                leaves it no pair (Provilkov et al. 2020, algorithm 1, but equal pairs are merged in one round).
            seed: what the random numbers follow from, int64 `(2,)`. Needed if `dropout` is not 0.

        Returns:
            Ids, int32 ragged `(W, None)`.
        """
        count = tf.size(words, tf.int64)
        rows = tf.repeat(tf.range(count), tf.strings.length(words))  # (N,)
        values = tf.cast(tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8), tf.int32)  # (N,)
        symbols = tf.gather(tf.constant(self._byte_ids), values)  # (N,)

        def passed_over(ranks: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
            if not dropout:
                return ranks
            drawn = tf.random.stateless_uniform(tf.shape(ranks), tf.random.experimental.stateless_fold_in(seed, number))
            return tf.where(drawn < dropout, self._none, ranks)  # (N,)

        def one_round(symbols, rows, ranks, number):
            symbols, rows, ranks = self._round(symbols, rows, ranks)
            return symbols, rows, passed_over(ranks, number), number + 1

        symbols, rows, _, _ = tf.while_loop(
            lambda symbols, rows, ranks, number: tf.reduce_min(ranks) < self._none,
            one_round,
            (symbols, rows, passed_over(self._pair_ranks(symbols, rows), 0), tf.constant(1, tf.int64)),
            shape_invariants=(*(tf.TensorShape([None]),) * 3, tf.TensorShape([])),
        )
        return tf.RaggedTensor.from_value_rowids(symbols, rows, count, validate=False)  # (W, ragged)

    def _round(self, symbols: tf.Tensor, rows: tf.Tensor, ranks: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Merges one kind of pair in each word that has any; all arguments and results are `(N,)`, N shrinks."""
        lowest = tf.gather(tf.math.segment_min(ranks, rows), rows)  # (N,)
        chosen = (ranks == lowest) & (ranks < self._none)  # (N,): the symbol and its right neighbour are merged
        # Two chosen pairs side by side share a symbol, as in "aaa". All three symbols are then the same, and every
        # other pair of such a run is merged.
        chosen = tf.cond(tf.reduce_any(chosen[1:] & chosen[:-1]), lambda: _every_other(chosen), lambda: chosen)
        if not self._everywhere.all():
            first = _first_of_each(chosen, rows)
            chosen &= first | tf.gather(tf.constant(self._everywhere), ranks)
        symbols = tf.where(chosen, tf.gather(tf.constant(self._products), ranks), symbols)  # (N,)
        kept = tf.where(~_shifted(chosen))[:, 0]  # without the right neighbours
        # A word that had no pair in this round is done, even if dropout would give it one in the next.
        done = tf.gather(lowest == self._none, kept)
        symbols, rows = tf.gather(symbols, kept), tf.gather(rows, kept)
        return symbols, rows, tf.where(done, self._none, self._pair_ranks(symbols, rows))

    def _pair_ranks(self, symbols: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """The rank of each symbol with the next one of its word, `(N,)`."""
        wide = tf.cast(symbols, tf.int64)
        keys = tf.where(rows[1:] == rows[:-1], wide[:-1] * self._size + wide[1:], -1)  # (N - 1,)
        return tf.concat([self._ranks.lookup(keys), [self._none]], axis=0)  # (N,)


def _everywhere(left: np.ndarray, right: np.ndarray, products: np.ndarray, size: int) -> np.ndarray:
    """Whether a word may take each merge at all places at once.

    It may if the product is used by later merges only, which is true of everything learnt. An imported vocabulary may
    make a piece by two merges and use it between them. There the first place must be merged first, with what follows.
    """
    ranks = np.arange(len(products))
    first_use = np.full(size, len(products))
    np.minimum.at(first_use, left, ranks)
    np.minimum.at(first_use, right, ranks)
    return first_use[products] > ranks


def _shifted(flags: tf.Tensor) -> tf.Tensor:
    """Moves flags `(N,)` to the right by one."""
    return tf.concat([[False], flags[:-1]], axis=0)


def _every_other(flags: tf.Tensor) -> tf.Tensor:
    """Keeps the first, third, fifth ... of each run of flags `(N,)`. There is at least one."""
    starts = flags & ~_shifted(flags)
    positions = tf.where(starts)[:, 0]  # (runs,)
    runs = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32)) - 1, 0)  # (N,)
    offsets = tf.range(tf.size(flags, tf.int64)) - tf.gather(positions, runs)  # (N,)
    return flags & (offsets % 2 == 0)


def _first_of_each(flags: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Keeps the first flag of each row, `(N,)`."""
    positions = tf.range(tf.size(flags))
    first = tf.math.segment_min(tf.where(flags, positions, tf.size(flags)), rows)  # (W,)
    return flags & (positions == tf.gather(first, rows))
