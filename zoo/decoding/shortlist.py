"""A shortlist: for each source text the few target tokens that its translation may use.

The last product of a translator turns rows `(R, D)` into logits `(R, V)` at every step. For a single text, the time of
this product is that of reading the table `(D, V)`: 119 MB for the 58,000 tokens of OPUS-MT. A translation needs few of
the V tokens, and its source says which:

    C(x) = special tokens, most frequent tokens, likely translations of the tokens of x;    |C(x)| = C

So the table of a text, `(D, C)`, is gathered once, and each step reads only that. The search does not know of it. Its
tokens are places in C(x), not ids. Special tokens have the same place everywhere, which is their id.

What it costs: the best translation may need a token outside C(x), and probabilities are those among C(x).

References: Jean et al. 2015, https://arxiv.org/abs/1412.2007, section 3; L'Hostis et al. 2016,
https://arxiv.org/abs/1610.00072, which compares ways to choose the tokens.
"""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.decoding.inputs import ModelWrapper
from zoo.text.tokenizer import FIRST, PADDING, whole_number

SIZE = 2048  # tokens of a text, unless another number is given
_TEXTS, _SORTED = 64, 4096  # translated at once, and put in order of their length before
_ROUNDS = 5  # of estimation: more do not choose better tokens


class Shortlist(tf.Module):
    """Chooses the target tokens of a source text.

    Axes: B batch, S source length, V target vocabulary, C tokens of a text, N tokens of a source token.

    Args:
        translations: int `(V_source, N)`: target tokens that translate each source token, the most likely first, with
            zeros behind them. The row of padding counts as zeros.
        counts: `(V,)`, how frequent each target token is. Half of the C - 4 tokens that are not special are the most
            frequent ones. Further ones fill what the source leaves free.
        size: C, how many tokens each text has, special ones included.

    Attributes:
        translations: int32 `(V_source, N)`.
        ranks: int32 array `(V,)`, higher for a more frequent token.
        unchanged: how many of how many texts have the same translation with the shortlist as without, if that was
            counted; None otherwise.

    Raises:
        ValueError: `translations` is no matrix of target ids, `counts` is no vector, or `size` is out of range, see
            `check_size`.
    """

    def __init__(self, translations: Any, counts: Any, size: int):
        super().__init__()
        counts, translations = np.asarray(counts), np.asarray(translations)
        if counts.ndim != 1 or counts.dtype.kind not in "iuf":
            raise ValueError(
                f"`counts` must have a number for each target token. Received: shape {counts.shape} of {counts.dtype}"
            )
        self.size = check_size(size, len(counts))
        if translations.ndim != 2 or translations.dtype.kind not in "iu":
            raise ValueError(
                "`translations` must be a matrix of target ids, with a row for each source token. Received: shape "
                f"{translations.shape} of {translations.dtype}"
            )
        if translations.size and not (translations.min() >= 0 and translations.max() < len(counts)):
            raise ValueError(f"`translations` must hold ids from 0 to {len(counts) - 1}, as `counts` has them.")
        self.unchanged: tuple[int, int] | None = None
        by_count = FIRST + np.argsort(counts[FIRST:], kind="stable")
        self.ranks = np.zeros(len(counts), "int32")
        self.ranks[by_count] = np.arange(len(by_count))
        self._frequent = by_count[::-1][: self.size - FIRST].astype("int32")  # (C - 4,)
        translations = translations.astype("int32")
        translations[:1] = PADDING  # of padding: or a row's tokens would depend on the length of other rows
        self.translations = tf.Variable(translations, trainable=False)  # (V_source, N)

    def __call__(self, source: tf.Tensor) -> tf.Tensor:
        """Source ids `(B, S)` -> target ids `(B, C)`, all different, of which the first four are the special ones.

        A row's tokens depend on that row alone.
        """
        rows, half = tf.shape(source)[0], (self.size - FIRST) // 2
        likely = tf.gather(self.translations, source)  # (B, S, N)
        likely = tf.reshape(tf.transpose(likely, [0, 2, 1]), [rows, -1])  # (B, N S): the likeliest of all tokens first
        first = np.concatenate([np.arange(FIRST, dtype="int32"), self._frequent[:half]])
        first, others = (tf.tile(each[None], [rows, 1]) for each in (first, self._frequent[half:]))
        listed = tf.concat([first, likely, others], axis=1)  # (B, L), at least C different ones in each row
        # `unique` keeps the order. With 58,000 tokens that takes a third of the time of a `top_k` of all.
        tokens = len(self.ranks)
        found = tf.unique(tf.reshape(listed + tokens * tf.range(rows)[:, None], [-1])).y  # of all rows
        begins = tf.searchsorted(found // tokens, tf.range(rows))  # (B,)
        return tf.gather(found, begins[:, None] + tf.range(self.size)) % tokens


def check_size(size: int, vocabulary_size: int) -> int:
    """The size of a shortlist, as Python's integer.

    Raises:
        ValueError: it is no integer, there would be special tokens only, or more tokens than the vocabulary has.
    """
    size = whole_number("size", size)
    if not FIRST < size <= vocabulary_size:
        raise ValueError(
            f"The size of a shortlist must be from {FIRST + 1} to {vocabulary_size:,}, the number of all target tokens."
            f" Received: {size:,}"
        )
    return size


def size_or_default(size: int | None, vocabulary_size: int) -> int:
    """The size of a shortlist, where None stands for `SIZE`.

    Raises:
        ValueError: the size is out of range, or there is none and the vocabulary is not larger than `SIZE`.
    """
    if size is None and vocabulary_size <= SIZE:
        raise ValueError(
            f"A shortlist has {SIZE:,} target tokens for each text unless another size is given, and this model has"
            f" only {vocabulary_size:,} in all. A shortlist is of little use for so small a vocabulary; `size`"
            " (--shortlist-size) chooses fewer tokens."
        )
    return check_size(SIZE if size is None else size, vocabulary_size)


class WithShortlist(ModelWrapper):
    """A model whose vocabulary is, for each text, the C tokens of a shortlist. Tokens are places in it.

    Args:
        model: anything with `begin` and `step`, as for `greedy`. If it has `output_columns`, as a packed transformer
            and an ensemble, its step gives C logits; otherwise it gives all V of them, and C are taken.
        ids: what `Shortlist` gives, `(B, C)`.
    """

    def __init__(self, model: Any, ids: tf.Tensor):
        self.model, self.ids = model, ids

    def begin(self, source: Any) -> tuple[Any, Any]:
        """The model's memory with the tokens of each row and their weights `(B, D, C)`, and its cache."""
        memory, cache = self.model.begin(source)
        output = (self.model.output_columns(self.ids),) if hasattr(self.model, "output_columns") else ()
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
    size: int | None = None,
    translations: int = 128,
    progress: Callable[[int], None] = lambda done: None,
) -> Shortlist:
    """Learns from a translator's own translations which target tokens translate a source token.

    It translates the texts, and estimates a table of probabilities t(target token | source token) by IBM Model 1. The
    model's attention says less: with the sums of its last layer's weights in place of these probabilities, more
    translations change (`benchmarks/notes.md`). Where both sides have the same vocabulary, a source token comes first
    among its own translations, so that a name can be copied.

    Args:
        translator: a `zoo.Translator`.
        texts: source texts, such as those that it was trained with. The pairs of tokens of all texts are in memory:
            some 25 bytes for each, 0.4 GB for 30,000 texts of 25 tokens.
        size: how many target tokens each text will have, see `Shortlist`; None for 2,048.
        translations: N, how many are kept of each source token.
        progress: called with the number of texts that have just been translated.

    Returns:
        The shortlist, for `translator.with_shortlist(...)`.

    Raises:
        ValueError: `texts` are no strings or there are none, a number is no integer or out of range, or there is no
            `size` and the target vocabulary has no more than 2,048 tokens.

    Reference: Brown et al. 1993, https://aclanthology.org/J93-2003, section 4.1
    """
    source_tokenizer, target_tokenizer = translator.tokenizers
    size = size_or_default(size, target_tokenizer.size)
    translations = whole_number("translations", translations)
    if translations < 1:
        raise ValueError(f"`translations` must be at least 1. Received: translations={translations}")
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise ValueError(f"`texts` must be a list of strings. Received: {reprlib.repr(texts)}")
    translator = translator.with_shortlist(None)
    counts = np.zeros(target_tokenizer.size, "int64")
    sources: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    for batch in _batches(texts):
        found = target_tokenizer.tokenize(translator(batch, batch_size=len(batch))).numpy()
        counts += np.bincount(found[found >= FIRST], minlength=len(counts))
        for side, rows in ((sources, source_tokenizer.tokenize(batch).numpy()), (targets, found)):
            side += [np.unique(row[row >= FIRST]).astype("int64") for row in rows]
        progress(len(batch))
    if not counts.any():
        raise ValueError("A shortlist is learnt from source texts and their translations. There is none.")
    table = _likeliest(sources, targets, (source_tokenizer.size, target_tokenizer.size), translations)
    if _same_vocabulary(source_tokenizer, target_tokenizer):
        table = np.concatenate([np.arange(len(table), dtype="int32")[:, None], table], axis=1)  # (V_source, N + 1)
    return Shortlist(table, counts, size)


def _likeliest(sources: list[np.ndarray], targets: list[np.ndarray], sizes: tuple[int, int], number: int) -> np.ndarray:
    """The target tokens `(V_source, N)` with the highest t(target | source), zeros behind them.

    Args:
        sources: for each text its different tokens `(S,)`.
        targets: for each text those of its translation `(T,)`.
        sizes: V_source and V.
        number: N.
    """
    table = np.full((sizes[0], number), PADDING, "int32")
    # Of each text all T S pairs of tokens, those with one target token next to each other: P pairs in all.
    of_texts = (target[:, None] * sizes[0] + source for source, target in zip(sources, targets, strict=True))
    pairs = [each for each in of_texts if each.size]  # (T, S) each
    if not pairs:
        return table
    keys, pair = np.unique(np.concatenate([each.ravel() for each in pairs]), return_inverse=True)  # (U,), (P,)
    pair = pair.astype("int32")
    lengths = np.concatenate([np.full(len(each), each.shape[1]) for each in pairs])
    begins = np.cumsum(lengths) - lengths  # of the pairs with one target token of one text
    target, source = keys // sizes[0], keys % sizes[0]  # (U,)
    # t(f | e), at first the same for all; then a few rounds of
    #   c(f | e) = sum over texts with e and f of  t(f | e) / (sum over e' of the text of t(f | e'))
    #   t(f | e) = c(f | e) / (sum over f' of c(f' | e))
    probabilities = np.ones(len(keys))
    for _ in range(_ROUNDS):
        shares = probabilities[pair]  # (P,)
        shares /= np.repeat(np.add.reduceat(shares, begins), lengths)
        expected = np.bincount(pair, shares, len(keys))  # (U,)
        probabilities = expected / np.bincount(source, expected)[source]
    order = np.lexsort((-probabilities, source))
    source, target = source[order], target[order]
    ranks = np.arange(len(source)) - np.searchsorted(source, source)  # within the tokens of a source token
    kept = ranks < number
    table[source[kept], ranks[kept]] = target[kept]
    return table


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Texts of about the same length together, which takes less time."""
    texts = iter(texts)
    while some := list(itertools.islice(texts, _SORTED)):
        if any(not isinstance(text, str) for text in some):
            raise ValueError("`texts` must be a list of strings.")
        some.sort(key=len)
        yield from (some[start : start + _TEXTS] for start in range(0, len(some), _TEXTS))


def _same_vocabulary(source: Any, target: Any) -> bool:
    """Whether each id is the same piece on both sides."""
    ids = tf.range(FIRST, source.size)[None]
    return source.size == target.size and bool(tf.reduce_all(source.tokens(ids) == target.tokens(ids)))
