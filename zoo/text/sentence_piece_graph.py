"""SentencePiece as a TensorFlow graph: the segmentation of texts by a unigram or BPE model.

The reference is the sentencepiece library, version 0.2.3; the graph gives the same ids for every text. Inside, a space
is a space: the `▁` of the vocabulary's file is one, if the file turns spaces into it.

How it works, on `["A  café."]` with NFKC normalisation and the pieces ` A`, ` ca`, ` c`, `a`, `f`, `é` and `.`:

1. `sentence_piece_normalizer` brings texts into the form that the pieces are of: ` A café.`.
2. `Cutter` cuts texts where no piece of the vocabulary reaches across, which the vocabulary tells and no option of the
   training: ` A`, ` café`, `.`. If pieces hold spaces inside, a text stays whole.
3. Most words are one piece, and the tokenizer finds them in a table. The others are segmented together, a repeated one
   once: a `Trie` walks from all their characters at once and finds which pieces begin there.
4. For a unigram model, `Viterbi` keeps, for each place, the length of the last piece of the best segmentation up to
   there. Going back from the ends follows pointers in doubling steps. For a BPE model, `Pairs` merges neighbours, as
   `byte_pair_graph` explains.

The library does not cut. For a unigram model it adds float32 scores along the whole text, and rounding decides where
two segmentations are equally good, as for `a` `aa` and `aa` `a`: the answer depends on what stands before. So `Viterbi`
also gives by how much a segmentation is better than the next one. Where this exceeds what rounding can do in a text
with such a sum of scores, cutting changes nothing. Words with a closer decision, as `=====`, are segmented once more,
from the sum that the library has in front of them. Nothing else of what stands before a word matters, since no piece
reaches into it.

Axes: B batch, W words, N characters of all words and one more for the end of each, D characters of the longest match,
E matches of pieces at all places.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.text.byte_pair_graph import Merging
from zoo.text.lookup import lookup_table
from zoo.text.ragged import chosen_rows, rows_of
from zoo.text.trie import BITS, LAST, Trie, characters_of, followed, longest
from zoo.text.words import SEPARATOR, in_ranges, separated

_SHORT = 256  # characters of words that are segmented piece by piece


class Cutter(tf.Module):
    """Cuts texts between characters that no piece has side by side.

    It looks at spaces, and at punctuation beside other characters; that suffices to make most words pieces.

    Args:
        pieces: all pieces, with spaces as spaces.

    Attributes:
        cuts: whether texts are cut at spaces at all.
    """

    def __init__(self, pieces: Iterable[str]):
        super().__init__()
        pairs = {piece[i : i + 2] for piece in pieces for i in range(len(piece) - 1)}
        before = not any(pair[1] == " " != pair[0] for pair in pairs)
        behind = not any(pair[0] == " " != pair[1] for pair in pairs)
        self.cuts = before or behind
        between = rb"\1" + SEPARATOR + rb"\2"
        if "  " in pairs:  # runs of spaces stay together
            patterns = [("([^ ])( )", between)] * before + [("( )([^ ])", between)] * behind
        else:
            patterns = [(" ", SEPARATOR * before + b" " + SEPARATOR * behind)]
        marks = {*string.punctuation, " "}
        opening = {mark for mark in marks - {" "} if all(pair[1] in marks for pair in pairs if pair[0] == mark)}
        closing = {mark for mark in marks - {" "} if all(pair[0] in marks for pair in pairs if pair[1] == mark)}
        other = rf"[^{in_ranges(sorted(marks))}]"
        if closing:
            patterns.append((rf"({other})([{in_ranges(sorted(closing))}])", between))
        if opening:
            patterns.append((rf"([{in_ranges(sorted(opening))}])({other})", between))
        self._patterns = patterns

    def __call__(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The words of valid UTF-8 `(B,)`, none of them empty, `(W,)`, and the text of each, int64 `(W,)`."""
        for pattern, replacement in self._patterns:
            texts = tf.strings.regex_replace(texts, pattern, replacement)
        return separated(texts)


class Viterbi(tf.Module):
    """The segmentation of texts that has the highest sum of scores.

    Args:
        pieces: the pieces that may be used, and the number of each.
        scores: the score of each number, float32; the last one is that of a character that is no piece.

    Attributes:
        farthest: beyond this sum of scores, the library subtracts the sum so far.
    """

    farthest = 1e5

    def __init__(self, pieces: Mapping[str, int], scores: np.ndarray):
        super().__init__()
        self._trie = Trie({tuple(map(ord, piece)): number for piece, number in pieces.items()})
        self._unknown = len(scores) - 1
        self._scores = np.append(scores, -np.inf).astype(np.float32)  # the last one for no piece
        self._largest = float(np.abs(scores[[*pieces.values(), self._unknown]]).max())

    def __call__(self, texts: tf.Tensor, before: tf.Tensor | None = None) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Segments words, or parts of texts exactly as the library does.

        Args:
            texts: valid UTF-8, none of them empty, `(W,)`, W at least 1.
            before: the sum of scores, as the library adds them, in front of each text, float32 `(W,)`; None for words,
                of which it is not known. A text with sums beyond `farthest` must be given whole, with 0.

        Returns:
            The pieces, packed by `packed`, `(P,)`; the text of each, int64 `(P,)`; and the reach of each word, float32
            `(W,)`: while the absolute scores of the whole text sum to less than this, the library cuts the word in the
            same way.
        """
        before = tf.zeros(tf.shape(texts)) if before is None else before
        characters, splits = characters_of(texts)  # (N,), (W + 1,)
        rows = rows_of(splits[1:], tf.size(characters))  # (N,)
        numbers = self._trie(characters)  # (D, N)
        single = tf.where((numbers[:1] < 0) & (characters != LAST), self._unknown, numbers[:1])  # (1, N)
        numbers = tf.concat([single, numbers[1:]], axis=0)  # (D, N)
        highest = tf.reduce_max(tf.abs(before)) + _SHORT * self._largest  # of all sums, if texts are short
        lengths, margins = tf.cond(
            (tf.reduce_max(splits[1:] - splits[:-1]) <= _SHORT) & (highest < self.farthest),
            lambda: self._piece_by_piece(numbers, splits, before),
            lambda: self._place_by_place(numbers, splits, before),
        )  # (N,), (N,)
        places = tf.range(tf.size(characters, tf.int64))  # (N,)
        chosen = followed(places - lengths, splits[1:] - 1)  # (N,)
        margin = tf.math.segment_min(tf.where(chosen, margins, np.inf), rows)  # (W,)
        # A sum of n float32 scores is wrong by up to n times 2**-24 of the largest sum on the way: that of the text
        # before, and n times the largest score. Two sums are compared, in the library and here.
        count = tf.cast(splits[1:] - splits[:-1], tf.float32)  # (W,)
        reach = margin / (count * 2**-22) - count * self._largest
        ends = tf.where(chosen & (lengths > 0))[:, 0]  # (P,): of pieces
        lengths = tf.gather(lengths, ends)
        pieces = tf.gather_nd(numbers, tf.stack([lengths - 1, ends - lengths], axis=1))  # (P,)
        pieces = packed(pieces, tf.where(pieces == self._unknown, tf.gather(characters, ends - 1), 0))
        return pieces, tf.gather(rows, ends), reach

    def scores(self, numbers: tf.Tensor) -> tf.Tensor:
        """The scores of pieces `(P,)`."""
        return tf.gather(tf.constant(self._scores), numbers)

    def _piece_by_piece(self, numbers: tf.Tensor, splits: tf.Tensor, before: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The last piece of the best segmentation of what stands before each place, for words of few pieces.

        Round k knows the best sums of up to k pieces, at all places at once (Bellman and Ford). A word has few pieces,
        so there are fewer rounds than places. The sums are those of `_place_by_place`. Each round looks at all matches,
        so the time of a long word would grow with the square of its length: these go place by place.

        Args:
            numbers: the pieces that begin at each place, `(D, N)`.
            splits: where words begin, `(W + 1,)`.
            before: the sum in front of each word, `(W,)`.

        Returns:
            The length of the piece in characters, int64 `(N,)`, 0 where a word begins; and by how much the segmentation
            is better than the best one with another last piece, float32 `(N,)`.
        """
        numbers = numbers[::-1]  # (D, N): of equal sums the longest piece counts, in the library too
        found = tf.where(numbers >= 0)  # (E, 2)
        lengths = tf.shape(numbers, tf.int64)[0] - found[:, 0]  # (E,)
        begins, count = found[:, 1], tf.shape(numbers, tf.int64)[1]
        ends = begins + lengths  # (E,)
        scores = self.scores(tf.gather_nd(numbers, found))  # (E,)

        def step(_, best):
            sums = tf.gather(best, begins) + scores  # (E,)
            return best, tf.maximum(best, tf.math.unsorted_segment_max(sums, ends, count))

        none = tf.fill([count], np.float32(-np.inf))
        best = tf.tensor_scatter_nd_update(none, splits[:-1, tf.newaxis], before)
        _, best = tf.while_loop(
            lambda last, best: tf.reduce_any(last != best), step, (none, best), (tf.TensorShape([None]),) * 2
        )
        sums, order = tf.gather(best, begins) + scores, tf.range(tf.size(ends, tf.int64))  # (E,), (E,)
        is_best = sums == tf.gather(best, ends)  # (E,)
        chosen = tf.math.unsorted_segment_min(tf.where(is_best, order, tf.size(order, tf.int64)), ends, count)  # (N,)
        others = tf.where(order == tf.gather(chosen, ends), -np.inf, sums)  # (E,)
        margins = best - tf.math.unsorted_segment_max(others, ends, count)  # (N,)
        ending = tf.concat([lengths, [0]], axis=0)  # (E + 1,): no piece ends where a word begins
        return tf.gather(ending, tf.minimum(chosen, tf.size(order, tf.int64))), margins

    def _place_by_place(self, numbers: tf.Tensor, splits: tf.Tensor, before: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The same for texts of any length, along all of them at the same time."""
        # Scores of the pieces that end with each character, the longest piece first; at least two columns.
        numbers = tf.concat([numbers, tf.fill([1, tf.shape(numbers)[1]], -1)], axis=0)  # (D, N): D is larger by one
        depth, count = tf.shape(numbers)[0], tf.shape(numbers)[1]
        # Row i moves i to the right when the rows become shorter by one.
        slanted = tf.reshape(tf.pad(numbers, [[0, 0], [0, depth]], constant_values=-1), [-1])  # (D (N + D),)
        numbers = tf.reshape(slanted[:-depth], [depth, count + depth - 1])[::-1, :count]  # (D, N)
        scores = tf.transpose(self.scores(tf.where(numbers < 0, self._unknown + 1, numbers)))  # (N, D)

        # The longest text first: those that go on are then the first ones.
        sizes = tf.cast(splits[1:] - splits[:-1] - 1, tf.int32)  # (W,)
        order = tf.argsort(sizes, direction="DESCENDING")
        begins, sizes = tf.gather(splits[:-1], order), tf.gather(sizes, order)  # (W,), (W,)
        left = tf.searchsorted(-sizes, -tf.range(sizes[0]))  # (most,): how many texts have more characters

        def step(place, best, debts, values, indices):
            texts = left[place]
            at = begins[:texts] + tf.cast(place, tf.int64)  # (W',)
            sums = best[:texts] + tf.gather(scores, at) - debts[:texts]  # (W', D)
            # Of equal sums the first one counts, which begins with the longest piece, in the library too.
            two = tf.math.top_k(sums, 2)  # (W', 2)
            values, indices = values.write(place, two.values), indices.write(place, two.indices[:, 0])
            newest = two.values[:, :1]  # (W', 1)
            # Far from zero the library subtracts the sum so far from all sums.
            debt = tf.where(tf.abs(newest) > self.farthest, newest, 0.0)
            newest -= debt
            debts = tf.concat([debts[:texts, 1:] + debt, tf.zeros_like(debt)], axis=1)
            return place + 1, tf.concat([best[:texts, 1:], newest], axis=1), debts, values, indices

        # The best sums up to the last D places.
        best = tf.fill([tf.size(order), depth - 1], np.float32(-np.inf))
        best = tf.concat([best, tf.gather(before, order)[:, tf.newaxis]], axis=1)  # (W, D)
        most = sizes[0]
        _, _, _, values, indices = tf.while_loop(
            lambda place, *_: place < most,
            step,
            (
                0,
                best,
                tf.zeros_like(best),
                tf.TensorArray(tf.float32, most, infer_shape=False, element_shape=[None, 2]),
                tf.TensorArray(tf.int32, most, infer_shape=False, element_shape=[None]),
            ),
            shape_invariants=(tf.TensorShape([]), *(tf.TensorShape([None, None]),) * 2, None, None),
        )
        values, indices = values.concat(), indices.concat()  # (N - W, 2), (N - W,): place by place
        firsts = tf.repeat(tf.cumsum(left, exclusive=True), left)
        which = tf.range(tf.size(indices)) - firsts  # (N - W,): the text, in the order of lengths
        place = tf.repeat(tf.range(most), left)  # (N - W,)
        targets = (tf.gather(begins, which) + tf.cast(place, tf.int64) + 1)[:, tf.newaxis]  # (N - W, 1)
        shape = tf.cast(tf.expand_dims(count, 0), tf.int64)
        lengths = tf.scatter_nd(targets, tf.cast(depth - indices, tf.int64), shape)  # (N,)
        margins = tf.tensor_scatter_nd_update(tf.fill(shape, np.float32(np.inf)), targets, values[:, 0] - values[:, 1])
        return lengths, margins


class Pairs(tf.Module):
    """The segmentation of texts by byte-pair encoding, which merges the characters of a text.

    A file has no list of merges: any two neighbours merge if what they make is a piece. The piece of the highest score
    comes first, and of equal scores the leftmost.

    Args:
        pieces: the pieces that may be made, and the number of each.
        scores: the score of each number, float32; the last number is that of a character that is no piece.
        protected: the pieces that are taken from the text before all others and never merge.
        unused: the pieces that fall apart again into the two that made them.
    """

    def __init__(
        self, pieces: Mapping[str, int], scores: np.ndarray, protected: Collection[str], unused: Collection[str]
    ):
        super().__init__()
        self._unknown = len(scores) - 1
        alone = {piece: number for piece, number in pieces.items() if len(piece) == 1 and piece not in unused}
        # A character that is no piece is one symbol of its own, behind all pieces.
        symbols = {text: len(scores) + ord(text) for piece in pieces for text in piece}
        symbols |= {piece: number for piece, number in pieces.items() if len(piece) > 1} | alone
        free = {text: symbol for text, symbol in symbols.items() if text not in protected}
        order = dict(zip(pieces, _ranks(scores[[*pieces.values()]]).tolist(), strict=True))
        merges = sorted(
            (order[piece], free[piece[:i]], free[piece[i:]], number)
            for piece, number in pieces.items()
            for i in range(1, len(piece))
            if piece[:i] in free and piece[i:] in free
        )
        ranks = np.unique([rank for rank, *_ in merges], return_inverse=True)[1].tolist()
        self._merging = Merging([(left, right, both) for _, left, right, both in merges], len(scores) + 2**BITS, ranks)
        characters = {ord(piece): number for piece, number in alone.items() if piece not in protected}
        self._characters = lookup_table(characters, characters.values(), tf.int32, default=-1)
        keys = {tuple(map(ord, text)): pieces[text] for text in protected}
        self._protected: Any = Trie(keys) if protected else None
        parts = _parts(pieces, symbols, order, unused)
        self._parts = np.array([symbol for made in parts.values() for symbol in made], np.int32)
        self._part_splits = np.cumsum([0, *map(len, parts.values())])
        self._which_parts = lookup_table(parts, range(len(parts)), tf.int32, default=-1)

    def __call__(self, texts: tf.Tensor, before: tf.Tensor | None = None) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Segments words or whole texts, of which there is at least one; see `Viterbi`. `before` changes nothing."""
        characters, splits = characters_of(texts)  # (N,), (W + 1,)
        rows = rows_of(splits[1:], tf.size(characters))  # (N,)
        codes = tf.cast(characters, tf.int32)
        numbers = self._characters.lookup(codes)
        symbols = tf.where(numbers < 0, self._unknown + 1 + codes, numbers)  # (N,)
        kept = codes != LAST
        if self._protected is not None:
            symbols, starts = self._with_protected(characters, splits, symbols)
            kept &= starts
        kept = tf.where(kept)[:, 0]
        symbols, rows = self._merging(tf.gather(symbols, kept), tf.gather(rows, kept))  # (P,), (P,)
        if self._parts.size:
            symbols, rows = self._fallen_apart(symbols, rows)
        known = symbols <= self._unknown
        pieces = packed(tf.where(known, symbols, self._unknown), tf.where(known, 0, symbols - self._unknown - 1))
        return pieces, rows, tf.fill([tf.size(texts)], np.float32(np.inf))

    def _with_protected(
        self, characters: tf.Tensor, splits: tf.Tensor, symbols: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Puts protected pieces, from the left the longest ones, in the places of characters.

        Returns:
            The symbol at each place, and whether one begins there, both `(N,)`.
        """
        numbers = self._protected(characters)  # (D, N)
        sizes, places = longest(numbers), tf.range(tf.size(characters))  # (N,), (N,)
        pointers = places + tf.where(characters == LAST, 0, tf.maximum(sizes, 1))
        starts = followed(tf.cast(pointers, tf.int64), splits[:-1])
        found = tf.gather_nd(numbers, tf.stack([tf.maximum(sizes - 1, 0), places], axis=1))
        return tf.where(sizes > 0, found, symbols), starts

    def _fallen_apart(self, symbols: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Puts the parts of unused pieces in their places, among symbols `(P,)`; the new symbols and their rows."""
        count = tf.size(symbols, tf.int64)
        splits = tf.concat([tf.range(count), count + self._part_splits], axis=0)
        which = tf.cast(self._which_parts.lookup(symbols), tf.int64)  # (P,): -1 for a piece that stays
        which = tf.where(which < 0, tf.range(count), count + which)
        symbols, splits = chosen_rows(tf.concat([symbols, self._parts], axis=0), splits, which)
        return symbols, tf.gather(rows, rows_of(splits[1:], tf.size(symbols)))


def _ranks(scores: np.ndarray) -> np.ndarray:
    """The rank of each score, the highest one first; -0.0 is below 0.0, as in the library."""
    bits = scores.view(np.int32).astype(np.int64)
    return -np.where(bits < 0, -(bits & 0x7FFFFFFF) - 1, bits)


def _parts(
    pieces: Mapping[str, int], symbols: Mapping[str, int], ranks: Mapping[str, int], unused: Collection[str]
) -> dict[int, list[int]]:
    """The symbols that take the place of each unused piece: those that made it, unless these are unused too.

    The library remembers for the whole text which two neighbours could make an unused piece last. That differs from
    what made it only if it can be made in several ways, and only in files that no one has been seen to write.
    """
    parts = {}
    for piece in unused:
        texts, made = [*piece], [[symbols[character]] for character in piece]
        while best := min(
            (
                (ranks[left + right], i)
                for i, (left, right) in enumerate(itertools.pairwise(texts))
                if left + right in ranks
            ),
            default=None,
        ):
            i = best[1]
            texts[i : i + 2] = ["".join(texts[i : i + 2])]
            made[i : i + 2] = [made[i] + made[i + 1] if texts[i] in unused else [pieces[texts[i]]]]
        if len(piece) > 1 and len(texts) == 1:
            parts[pieces[piece]] = made[0]
    return parts


def packed(numbers: tf.Tensor, characters: tf.Tensor) -> tf.Tensor:
    """Numbers of pieces, and the characters of those that stand for an unknown one, 0 for others, as one int64 each."""
    return tf.bitwise.left_shift(tf.cast(numbers, tf.int64), BITS) + tf.cast(characters, tf.int64)


def unpacked(pieces: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The numbers and the characters, int32."""
    return tf.cast(tf.bitwise.right_shift(pieces, BITS), tf.int32), tf.cast(pieces % 2**BITS, tf.int32)
