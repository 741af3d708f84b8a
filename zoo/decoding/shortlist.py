"""A shortlist: for each source text the few hundred target tokens of which its translation may consist.

The last product of a translator turns rows `(R, D)` into logits `(R, V)` at every step. For a single text that is to
read a table `(D, V)` from memory: 119 MB for the 58,000 tokens of OPUS-MT. A text needs few of the V tokens, and its
source says which:

    C(x) = special tokens, most frequent tokens, likely translations of the tokens of x;    |C(x)| = C

So the table of a text, `(D, C)`, is gathered once, and each step reads only that. The loop of a search does not know of
it: it works with places in C(x) in place of ids. Special tokens have the same place everywhere, which is their id.

What it costs: the best translation may need a token outside C(x), and probabilities are those among C(x).

References: Jean et al. 2015, https://arxiv.org/abs/1412.2007, section 3; L'Hostis et al. 2016,
https://arxiv.org/abs/1610.00072, which compares ways to choose the tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.text.tokenizer import FIRST, PADDING

_TEXTS = 32  # translated at once
_MOST_PAIRS = 2_000_000  # of a source token and a target token that are kept before equal ones are added up


class Shortlist(tf.Module):
    """Chooses the target tokens of a source text.

    Axes: B batch, S source length, V target vocabulary, C tokens of a text, N tokens of a source token.

    Args:
        translations: int `(V_source, N)`: target tokens that translate each source token, the likeliest first, with
            zeros behind them.
        counts: `(V,)`, how frequent each target token is. Half of the C tokens are the most frequent ones, and more of
            them fill what the source leaves free.
        size: C, how many tokens each text has, special ones included.

    Attributes:
        translations: int32 `(V_source, N)`, as given.
        ranks: int32 `(V,)`, higher for a more frequent token.

    Raises:
        ValueError: `size` is out of range, see `check_size`.
    """

    def __init__(self, translations: Any, counts: Any, size: int):
        super().__init__()
        counts, translations = np.asarray(counts), np.asarray(translations)
        check_size(size, len(counts))
        self.size = size
        tokens, number = len(counts), translations.shape[1]
        # The highest C - 4 of these are chosen: the ranks of half of the tokens, then translations, then other ranks.
        by_count = FIRST + np.argsort(counts[FIRST:], kind="stable")
        ranks = np.zeros(tokens, "int32")
        ranks[by_count] = np.arange(len(by_count))
        ranks[by_count[len(by_count) - (size - FIRST) // 2 :]] += tokens + number
        self._likely = tokens + np.arange(number, 0, -1, dtype="int32")  # (N,)
        self.ranks = tf.Variable(ranks, trainable=False)  # (V,)
        self.translations = tf.Variable(translations.astype("int32"), trainable=False)  # (V_source, N)

    def __call__(self, source: tf.Tensor) -> tf.Tensor:
        """Source ids `(B, S)` -> target ids `(B, C)`, all different, of which the first four are the special ones.

        A row's tokens depend on that row alone.
        """
        rows = tf.shape(source)[0]
        found = tf.gather(self.translations, source)  # (B, S, N)
        places = tf.stack([tf.broadcast_to(tf.range(rows)[:, None, None], tf.shape(found)), found], axis=-1)
        ranks = tf.tile(self.ranks[None], [rows, 1])  # (B, V)
        likely = tf.broadcast_to(self._likely, tf.shape(found))  # (B, S, N)
        ranks = tf.tensor_scatter_nd_max(ranks, places, likely)  # (B, V)
        # Behind the special tokens, all of whose places are known.
        chosen = FIRST + tf.math.top_k(ranks[:, FIRST:], self.size - FIRST).indices  # (B, C - 4)
        return tf.concat([tf.tile(tf.range(FIRST)[None], [rows, 1]), chosen], axis=1)


def check_size(size: int, vocabulary_size: int) -> None:
    """Checks the size of a shortlist.

    Raises:
        ValueError: there would be special tokens only, or more tokens than the vocabulary has.
    """
    if not FIRST < size <= vocabulary_size:
        raise ValueError(
            f"The size of a shortlist must be from {FIRST + 1} to {vocabulary_size:,}, which is the whole vocabulary."
            f" Received: {size:,}"
        )


class WithShortlist:
    """A model whose vocabulary is, for each text, the C tokens of a shortlist. Tokens are places in it.

    Args:
        model: anything with `begin` and `step`, as for `greedy`. If it has `output_of`, its step computes C logits;
            otherwise it computes all V of them, and C are taken.
        ids: what `Shortlist` gives, `(B, C)`.
    """

    def __init__(self, model: Any, ids: tf.Tensor):
        self.model, self.ids = model, ids

    def begin(self, source: Any) -> tuple[Any, Any]:
        """The model's memory with the tokens of each row and their weights `(B, D, C)`, and its cache."""
        memory, cache = self.model.begin(source)
        output = (self.model.output_of(self.ids),) if hasattr(self.model, "output_of") else ()
        return (memory, self.ids, output), cache

    def step(self, tokens: tf.Tensor, position: tf.Tensor, memory: Any, cache: Any) -> tuple[tf.Tensor, Any, Any]:
        """As the model's, from places `(B, K)` to the logits of places `(B, K, C)`."""
        memory, ids, output = memory
        tokens = tf.gather(ids, tokens, batch_dims=1)
        if output:
            return self.model.step(tokens, position, memory, cache, *output)
        logits, cache, weights = self.model.step(tokens, position, memory, cache)  # (B, K, V)
        ids = tf.repeat(ids[:, None], tf.shape(logits)[1], axis=1)  # (B, K, C)
        return tf.gather(logits, ids, batch_dims=2), cache, weights

    def ids_of(self, places: tf.Tensor) -> tf.Tensor:
        """Places `(B, N, T)` -> ids `(B, N, T)`."""
        return tf.gather(self.ids, places, batch_dims=1)


def learn_shortlist(
    translator: Any,
    texts: Iterable[str],
    size: int = 512,
    translations: int = 32,
    progress: Callable[[int], None] = lambda texts: None,
) -> Shortlist:
    """Learns from a translator's own attention which target tokens translate a source token.

    It translates the texts. Each token that it writes is counted for each source token, as often as it attends to it
    (a sum of weights). Also, where both sides have the same vocabulary, each source token is its own last translation,
    so that a name can be copied.

    Args:
        translator: a `zoo.Translator` whose model has attention.
        texts: source texts, such as those that it was trained with.
        size: how many target tokens each text will have, see `Shortlist`.
        translations: how many of each source token are kept.
        progress: called with the number of texts that have just been translated.

    Returns:
        The shortlist, for `zoo.Translator(..., shortlist=...)`.

    Raises:
        ValueError: there are no texts, the model has no attention, or `size` is out of range.
    """
    source_size, target_size = (each.size for each in translator.tokenizers)
    check_size(size, target_size)
    counted, done = _Counted(target_size), 0
    for batch in _batches(texts):
        source, ids, weights = (each.numpy() for each in translator.aligned(tf.constant(batch)))
        counted.add(source, ids, weights)
        done += len(batch)
        progress(len(batch))
    if not done:
        raise ValueError("A shortlist is learnt from source texts. There is none.")
    table = counted.likeliest(source_size, translations)  # (V_source, N)
    if _same_vocabulary(*translator.tokenizers):
        table[:, -1] = np.arange(source_size)
    return Shortlist(table, counted.of_targets, size)


class _Counted:
    """How often target tokens were written (V,), and how much of them was attended to which source token."""

    def __init__(self, target_size: int):
        self.of_targets = np.zeros(target_size, "int64")
        self._pairs: list[tuple[np.ndarray, np.ndarray]] = []  # of a source and a target token: key, sum of weights
        self._size = target_size
        self._waiting = 0

    def add(self, source: np.ndarray, ids: np.ndarray, weights: np.ndarray) -> None:
        """Ids `(B, S)`, ids `(B, T)` and weights `(B, T, S)`."""
        self.of_targets += np.bincount(ids.reshape(-1), minlength=self._size)
        keys = source[:, None, :].astype("int64") * self._size + ids[:, :, None]  # (B, T, S)
        real = (source[:, None, :] >= FIRST) & (ids[:, :, None] >= FIRST)
        self._pairs.append((keys[real], weights[real]))
        self._waiting += len(self._pairs[-1][0])
        if self._waiting > _MOST_PAIRS:
            self._pairs, self._waiting = [self._sums()], 0

    def likeliest(self, source_size: int, number: int) -> np.ndarray:
        """The target tokens `(V_source, N)` of each source token, by their sums of weights."""
        keys, sums = self._sums()
        source, target = keys // self._size, keys % self._size
        order = np.lexsort((-sums, source))
        source, target = source[order], target[order]
        ranks = np.arange(len(source)) - np.searchsorted(source, source)  # within the tokens of a source token
        table = np.full((source_size, number), PADDING, "int32")
        kept = ranks < number
        table[source[kept], ranks[kept]] = target[kept]
        return table

    def _sums(self) -> tuple[np.ndarray, np.ndarray]:
        keys, weights = (np.concatenate(each) for each in zip(*self._pairs, strict=True))
        keys, places = np.unique(keys, return_inverse=True)
        return keys, np.bincount(places, weights, len(keys))


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == _TEXTS:
            yield batch
            batch = []
    if batch:
        yield batch


def _same_vocabulary(source: Any, target: Any) -> bool:
    """Whether each id is the same piece on both sides."""
    ids = tf.range(FIRST, source.size)[None]
    return source.size == target.size and bool(tf.reduce_all(source.tokens(ids) == target.tokens(ids)))
