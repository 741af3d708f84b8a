"""SentencePiece as a TensorFlow graph: normalisation, and the segmentation of words by a unigram or BPE model.

The reference is the sentencepiece library, version 0.2.3; the graph gives the same ids for every text. Inside, a space
is a space: the `▁` of the vocabulary's file is one, if the file turns spaces into it.

How it works, on `["A  café."]` with NFKC normalisation and the pieces ` A`, ` ca`, ` c`, `a`, `f`, `é` and `.`:

1. `Normalizer` brings texts into the form that the pieces are of: ` A café.`. A text that one regular expression
   recognises as being in that form only gets its first space. Others are walked through the file's map of characters,
   from all places at once; pointers from each match to the next one are then followed in doubling steps.
2. `Cutter` cuts texts where no piece of the vocabulary reaches across, which the vocabulary tells and no option of the
   training: ` A`, ` café`, `.`. If pieces hold spaces inside, a text stays whole.
3. Most words are one piece, and the tokenizer finds them in a table. The others are segmented together, a repeated one
   once: `Trie` walks from all their characters at once and finds which pieces begin there.
4. For a unigram model, `Viterbi` goes along all words at the same time and keeps, for each place, the length of the
   last piece of the best segmentation up to there. Going back from the ends follows pointers in doubling steps again.
   For a BPE model, `Pairs` merges neighbours, as `byte_pair_graph` explains.

The library does not cut. For a unigram model it adds float32 scores along the whole text, and rounding decides where
two segmentations are equally good, as for `a` `aa` and `aa` `a`: the answer depends on what stands before. So `Viterbi`
also gives by how much a segmentation is better than the next one. Where this exceeds what rounding can do in a text of
that length, cutting changes nothing. A text with a closer decision, one in thousands, is segmented once more as a
whole.

Axes: B batch, W words, N characters (or bytes) of all words and one more for the end of each, D characters of the
longest match.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.text.byte_pair_graph import Merging
from zoo.text.sentence_piece_file import SPACE, Normalization
from zoo.text.tokenizer import is_utf8
from zoo.text.words import SEPARATOR, in_ranges, separated

_BITS = 21  # enough for U+10FFFF
LAST = 2**_BITS - 1  # behind the last character of each word; no piece has it
_REPLACEMENT = "\ufffd".encode()
_SCORE_LIMIT = 1e5  # beyond it the library subtracts the sum so far


class Trie(tf.Module):
    """Keys, searched from all places of a text at once.

    Args:
        keys: sequences of characters or bytes, below 2**21 - 1, and a number from 0 on for each.
    """

    def __init__(self, keys: Mapping[tuple[int, ...], int]):
        super().__init__()
        # State 0 has no way out, state 1 is the root. One integer holds a state and a character, so that a single
        # lookup makes a step; a table cannot be empty, hence the first entry.
        steps, values = {0: 0}, [-1, -1]
        for key, value in keys.items():
            state = 1
            for character in key:
                following = steps.setdefault(state << _BITS | character, len(values))
                if following == len(values):
                    values.append(-1)
                state = following
            values[state] = value
        self._values = np.array(values, np.int32)
        pairs = tf.lookup.KeyValueTensorInitializer(
            tf.constant(list(steps), tf.int64), tf.constant(list(steps.values()), tf.int64)
        )
        self._steps = tf.lookup.StaticHashTable(pairs, default_value=0)

    def __call__(self, characters: tf.Tensor) -> tf.Tensor:
        """The number of the key of d characters that begins at each place, or -1.

        Args:
            characters: the characters, int64 `(N,)`, with `LAST` behind each text.

        Returns:
            Numbers, int32 `(D, N)`, D as large as a key was followed.
        """
        count = tf.size(characters)
        found = tf.TensorArray(tf.int32, 0, dynamic_size=True, element_shape=[None])

        def step(depth, states, shifted, found):
            states = self._steps.lookup(tf.bitwise.left_shift(states, _BITS) + shifted)  # (N,)
            found = found.write(depth, tf.gather(tf.constant(self._values), states))
            return depth + 1, states, tf.concat([shifted[1:], [LAST]], axis=0), found

        _, _, _, found = tf.while_loop(
            lambda depth, states, shifted, found: tf.reduce_any(states > 0),
            step,
            (0, tf.ones([count], tf.int64), characters, found),
            shape_invariants=(tf.TensorShape([]), tf.TensorShape([None]), tf.TensorShape([None]), None),
        )
        return found.stack()  # (D, N)


class Normalizer(tf.Module):
    """Brings texts into the form that pieces are of.

    Args:
        rules: how.
        protected: sequences of characters that stay as they are.

    Attributes:
        escapes: whether spaces become `▁`, which they do not yet in what this module returns.
    """

    def __init__(self, rules: Normalization, protected: Iterable[str] = ()):
        super().__init__()
        self._rules = rules
        self.escapes = rules.escape_spaces
        self._protected = Trie({tuple(text.encode()): 0 for text in protected}) if protected else None
        changing = rules.character_map.changing if rules.character_map else frozenset()
        changing |= {SPACE} if self.escapes else frozenset()
        kept = rf"[^{in_ranges(sorted(changing))}\x{{d800}}-\x{{dfff}}"  # UTF-8 has no surrogates, but RE2 reads them
        self._plain = f"{kept} ]+( {kept} ]+)*" if rules.remove_extra_spaces else f"{kept}]+"
        texts = b"" if rules.character_map is None else rules.character_map.texts
        self._broken = len(texts)  # what is written for a byte that is no UTF-8
        texts += _REPLACEMENT + b"\0"
        self._texts = np.frombuffer(texts, np.uint8)
        ends = np.flatnonzero(self._texts == 0)
        self._sizes = (ends[np.searchsorted(ends, np.arange(len(texts)))] - np.arange(len(texts))).astype(np.int32)

    def __call__(self, texts: tf.Tensor) -> tf.Tensor:
        """Strings of any bytes `(B,)` as valid UTF-8 `(B,)`; where spaces become `▁`, a space stands for both."""
        plain = tf.strings.regex_full_match(texts, self._plain)  # (B,)
        return tf.cond(tf.reduce_all(plain), lambda: self._with_space(texts), lambda: self._mixed(texts, plain))

    def _with_space(self, texts: tf.Tensor) -> tf.Tensor:
        if not self._rules.dummy_space:
            return texts
        return texts + " " if self._rules.space_behind else " " + texts

    def _mixed(self, texts: tf.Tensor, plain: tf.Tensor) -> tf.Tensor:
        """Of some texts that are in the right form, and others `(B,)`, of which there is at least one."""
        others = tf.where(~plain)  # (R, 1)
        changed = self._changed(tf.gather(texts, others[:, 0]))
        return tf.tensor_scatter_nd_update(self._with_space(texts), others, changed)

    def _changed(self, texts: tf.Tensor) -> tf.Tensor:
        """Any texts `(R,)`, R at least 1, byte by byte."""
        count = tf.size(texts, tf.int64)
        data, rows = _bytes_of(texts + b"\0")  # (N,), (N,)
        ends = tf.cumsum(tf.strings.length(texts) + 1) - 1  # (R,)
        is_end = tf.scatter_nd(ends[:, tf.newaxis], tf.ones_like(ends, tf.bool), tf.shape(data))  # (N,)

        # What is read at each place, as if one came there: the longest rule, or one character.
        sizes, valid = _utf8(data)  # (N,), (N,)
        texts_at = tf.where(valid, -1, self._broken)  # (N,): where the replacement begins, if there is one
        if self._rules.character_map is not None:
            lengths, begins = self._longest_rules(data)
            sizes, texts_at = tf.where(lengths > 0, lengths, sizes), tf.where(lengths > 0, begins, texts_at)
        if self._protected is not None:
            lengths = longest(self._protected(tf.cast(data, tf.int64)))
            sizes, texts_at = tf.where(lengths > 0, lengths, sizes), tf.where(lengths > 0, -1, texts_at)

        # One really comes to the places after what was read.
        places = tf.range(tf.size(data))
        pointers = tf.where(is_end, places, places + sizes)
        starts = followed(tf.cast(pointers, tf.int64), tf.cast(tf.concat([[0], ends[:-1] + 1], axis=0), tf.int64))
        heads = tf.gather(
            tf.where(starts)[:, 0], tf.cumsum(tf.cast(starts, tf.int32)) - 1
        )  # (N,): of what a byte is in
        heads = tf.cast(heads, tf.int32)

        # A place writes its byte, or the whole replacement if it is the first one, or nothing.
        written = tf.gather(texts_at, heads)  # (N,)
        whole = tf.where(places == heads, tf.gather(tf.constant(self._sizes), tf.maximum(written, 0)), 0)
        counts = tf.where(written < 0, 1, whole)  # (N,)
        origins = tf.repeat(places, counts)  # (M,)
        offsets = tf.range(tf.size(origins)) - tf.repeat(tf.cumsum(counts, exclusive=True), counts)  # (M,)
        begins = tf.gather(written, origins)  # (M,)
        replaced = tf.gather(tf.constant(self._texts), tf.maximum(begins, 0) + offsets)
        output = tf.where(begins < 0, tf.gather(data, origins), tf.cast(replaced, tf.int32))  # (M,)
        kept = ~tf.gather(is_end, origins)
        if self._rules.remove_extra_spaces:
            kept &= ~_repeated_spaces(output, tf.gather(heads, origins), ~kept)
        output, output_rows = tf.boolean_mask(output, kept), tf.boolean_mask(tf.gather(rows, origins), kept)
        result = _strings(output, output_rows, count)  # (R,)
        if self.escapes:
            result = tf.strings.regex_replace(result, SPACE, " ")
        if self._rules.remove_extra_spaces:
            result = tf.strings.regex_replace(result, " +$", "")
        if not self._rules.dummy_space:
            return result
        if not self._rules.remove_extra_spaces:
            return tf.where(texts == b"", result, self._with_space(result))
        if not self._rules.space_behind:
            return tf.where(result == b"", result, self._with_space(result))
        # A text gets a space behind it even if nothing is left of it, but not if it was only spaces.
        read = tf.where(
            texts_at < 0, tf.where(sizes == 1, data, 0), tf.gather(self._only_byte(), tf.maximum(texts_at, 0))
        )
        other = starts & ~is_end & (read != ord(" "))
        return tf.where(tf.math.segment_max(tf.cast(other, tf.int32), rows) > 0, self._with_space(result), result)

    def _only_byte(self) -> tf.Tensor:
        """The byte of each replacement that is one byte, and 0 for others."""
        return tf.constant(np.where(self._sizes == 1, self._texts, 0).astype(np.int32))

    def _longest_rules(self, data: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The length of the longest key that begins at each place, 0 if there is none, and where its text begins."""
        map_ = self._rules.character_map
        assert map_ is not None
        states = np.arange(len(map_.units))
        bases = np.where(map_.labels < 256, states ^ map_.offsets, 0)
        values = np.where(map_.has_value & (map_.labels < 256), map_.values[bases], -1)
        labels = tf.constant(map_.labels.clip(max=256).astype(np.int32))
        bases, values = tf.constant(bases.astype(np.int32)), tf.constant(values.astype(np.int32))

        def step(depth, base, alive, shifted, lengths, texts):
            state = tf.bitwise.bitwise_xor(base, shifted)
            alive &= tf.gather(labels, state) == shifted
            value = tf.where(alive, tf.gather(values, state), -1)
            lengths, texts = tf.where(value < 0, lengths, depth), tf.where(value < 0, texts, value)
            return depth + 1, tf.gather(bases, state), alive, tf.concat([shifted[1:], [0]], axis=0), lengths, texts

        zeros, vector = tf.zeros_like(data), tf.TensorShape([None])
        *_, lengths, texts = tf.while_loop(
            lambda depth, base, alive, *_: tf.reduce_any(alive),
            step,
            (1, zeros + bases[0], zeros == 0, data, zeros, zeros),
            shape_invariants=(tf.TensorShape([]), *(vector,) * 5),
        )
        return lengths, texts


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
    """

    def __init__(self, pieces: Mapping[str, int], scores: np.ndarray):
        super().__init__()
        self._trie = Trie({tuple(map(ord, piece)): number for piece, number in pieces.items()})
        self._unknown = len(scores) - 1
        self._scores = np.append(scores, -np.inf).astype(np.float32)  # the last one for no piece
        self._largest = float(np.abs(scores[[*pieces.values(), self._unknown]]).max())

    def __call__(self, texts: tf.Tensor, whole: bool = False) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Segments words, or whole texts exactly as the library does.

        Args:
            texts: valid UTF-8, none of them empty, `(W,)`, W at least 1.
            whole: whether nothing stands before and behind the texts.

        Returns:
            The pieces, packed by `packed`, `(P,)`; the text of each, int64 `(P,)`; and how many bytes the text around a
            word may have at most for which the library certainly segments the word in this way, float32 `(W,)`.
        """
        decoded = tf.strings.unicode_decode(texts, "UTF-8")  # (W, ragged)
        ends = tf.fill([tf.size(texts), 1], LAST)
        decoded = tf.concat([decoded, tf.RaggedTensor.from_tensor(ends, row_splits_dtype=tf.int64)], axis=1)
        characters, rows = tf.cast(decoded.values, tf.int64), decoded.value_rowids()  # (N,), (N,)
        numbers = self._trie(characters)  # (D, N)
        single = tf.where(numbers[:1] < 0, self._unknown, numbers[:1])  # (1, N)
        numbers = tf.concat([single, numbers[1:]], axis=0)  # (D, N)
        lengths, margins = self._last_pieces(numbers, decoded.row_splits, whole)  # (N,), (N,)
        places = tf.range(tf.size(characters, tf.int64))  # (N,)
        chosen = followed(places - lengths, decoded.row_splits[1:] - 1)  # (N,)
        margin = tf.math.segment_min(tf.where(chosen, margins, np.inf), rows)  # (W,)
        # A sum of n float32 scores is wrong by up to n times 2**-24 of the largest sum on the way, which the largest
        # score for each byte of the text bounds. Two sums are compared; twice that, to be safe.
        rounding = tf.cast(decoded.row_lengths(), tf.float32) * (self._largest * 2**-22)  # (W,)
        places = tf.boolean_mask(places, chosen & (lengths > 0))  # (P,): the ends of pieces
        lengths = tf.gather(lengths, places)
        pieces = tf.gather_nd(numbers, tf.stack([lengths - 1, places - lengths], axis=1))  # (P,)
        pieces = packed(pieces, tf.where(pieces == self._unknown, tf.gather(decoded.values, places - 1), 0))
        return pieces, tf.gather(rows, places), margin / rounding

    def _last_pieces(self, numbers: tf.Tensor, splits: tf.Tensor, whole: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """The last piece of the best segmentation of what stands before each place.

        Args:
            numbers: the pieces that begin at each place, `(D, N)`.
            splits: where texts begin, `(W + 1,)`.
            whole: whether nothing stands before the texts.

        Returns:
            The length of the piece in characters, int64 `(N,)`, 0 where a text begins; and by how much the segmentation
            is better than the best one with another last piece, float32 `(N,)`.
        """
        # Scores of the pieces that end with each character, the longest piece first; at least two columns.
        numbers = tf.concat([numbers, tf.fill([1, tf.shape(numbers)[1]], -1)], axis=0)
        depth, count = tf.shape(numbers)[0], tf.shape(numbers)[1]
        # Row i moves i to the right when the rows become shorter by one.
        slanted = tf.reshape(tf.pad(numbers, [[0, 0], [0, depth]], constant_values=-1), [-1])
        numbers = tf.reshape(slanted[:-depth], [depth, count + depth - 1])[::-1, :count]
        scores = tf.transpose(tf.gather(tf.constant(self._scores), tf.where(numbers < 0, self._unknown + 1, numbers)))

        # The longest text first: those that go on are then the first ones.
        sizes = tf.cast(splits[1:] - splits[:-1] - 1, tf.int32)  # (W,)
        order = tf.argsort(sizes, direction="DESCENDING")
        begins, sizes = tf.gather(splits[:-1], order), tf.gather(sizes, order)  # (W,), (W,)
        left = tf.searchsorted(-sizes, -tf.range(sizes[0]))  # (longest,): how many texts have more characters

        def step(place, best, debts, values, indices):
            texts = left[place]
            at = begins[:texts] + tf.cast(place, tf.int64)  # (W',)
            sums = best[:texts] + tf.gather(scores, at)  # (W', D)
            if whole:
                sums -= debts[:texts]
            # Of equal sums the first one counts, which begins with the longest piece, in the library too.
            two = tf.math.top_k(sums, 2)  # (W', 2)
            values, indices = values.write(place, two.values), indices.write(place, two.indices[:, 0])
            newest = two.values[:, :1]  # (W', 1)
            if whole:
                # Far from zero the library subtracts the sum so far from all sums.
                debt = tf.where(tf.abs(newest) > _SCORE_LIMIT, newest, 0.0)
                newest -= debt
                debts = tf.concat([debts[:texts, 1:] + debt, tf.zeros_like(debt)], axis=1)
            return place + 1, tf.concat([best[:texts, 1:], newest], axis=1), debts, values, indices

        # The best sums up to the last D places.
        best = tf.pad(tf.fill([tf.size(order), depth - 1], -np.inf), [[0, 0], [0, 1]])  # (W, D)
        longest = sizes[0]
        _, _, _, values, indices = tf.while_loop(
            lambda place, *_: place < longest,
            step,
            (
                0,
                best,
                tf.zeros_like(best) if whole else 0.0,
                tf.TensorArray(tf.float32, longest, infer_shape=False, element_shape=[None, 2]),
                tf.TensorArray(tf.int32, longest, infer_shape=False, element_shape=[None]),
            ),
            shape_invariants=(
                tf.TensorShape([]),
                tf.TensorShape([None, None]),
                tf.TensorShape([None, None]) if whole else tf.TensorShape([]),
                None,
                None,
            ),
        )
        values, indices = values.concat(), indices.concat()  # (N - W, 2), (N - W,): place by place
        firsts = tf.repeat(tf.cumsum(left, exclusive=True), left)
        which = tf.range(tf.size(indices)) - firsts  # (N - W,): the text, in the order of lengths
        place = tf.repeat(tf.range(longest), left)  # (N - W,)
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
        self._merging = Merging([(left, right, both) for _, left, right, both in merges], len(scores) + 2**_BITS, ranks)
        self._characters = _table({ord(piece): number for piece, number in alone.items() if piece not in protected})
        keys = {tuple(map(ord, text)): pieces[text] for text in protected}
        self._protected: Any = Trie(keys) if protected else None
        parts = _parts(pieces, symbols, order, unused)
        self._parts = np.array([symbol for made in parts.values() for symbol in made], np.int32)
        self._part_splits = np.cumsum([0, *map(len, parts.values())])
        self._which_parts = _table({number: i for i, number in enumerate(parts)})

    def __call__(self, texts: tf.Tensor, whole: bool = False) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Segments words or whole texts, of which there is at least one; see `Viterbi`."""
        decoded = tf.strings.unicode_decode(texts, "UTF-8")  # (W, ragged)
        characters, rows = decoded.values, decoded.value_rowids()  # (N,), (N,)
        numbers = self._characters.lookup(characters)
        symbols = tf.where(numbers < 0, self._unknown + 1 + characters, numbers)  # (N,)
        if self._protected is not None:
            symbols, rows = self._with_protected(decoded, symbols)
        symbols, rows = self._merging(symbols, rows)  # (P,), (P,)
        if self._parts.size:
            symbols, rows = self._fallen_apart(symbols, rows)
        known = symbols <= self._unknown
        pieces = packed(tf.where(known, symbols, self._unknown), tf.where(known, 0, symbols - self._unknown - 1))
        return pieces, rows, tf.fill([tf.size(texts)], np.float32(np.inf))

    def _with_protected(self, texts: tf.RaggedTensor, symbols: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Puts protected pieces, from the left the longest ones, in the places of characters."""
        ends = tf.fill([texts.nrows(), 1], LAST)
        ended = tf.concat([texts, tf.RaggedTensor.from_tensor(ends, row_splits_dtype=tf.int64)], axis=1)
        is_end = ended.values == LAST  # (N + W,)
        numbers = self._protected(tf.cast(ended.values, tf.int64))  # (D, N + W)
        sizes = longest(numbers)
        places = tf.range(tf.size(sizes))
        pointers = tf.where(is_end, places, places + tf.maximum(sizes, 1))
        starts = tf.boolean_mask(followed(tf.cast(pointers, tf.int64), ended.row_splits[:-1]), ~is_end)  # (N,)
        sizes = tf.boolean_mask(sizes, ~is_end)
        numbers = tf.boolean_mask(numbers, ~is_end, axis=1)
        found = tf.gather_nd(numbers, tf.stack([tf.maximum(sizes - 1, 0), tf.range(tf.size(sizes))], axis=1))
        symbols = tf.where(sizes > 0, found, symbols)
        return tf.boolean_mask(symbols, starts), tf.boolean_mask(texts.value_rowids(), starts)

    def _fallen_apart(self, symbols: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Puts the parts of unused pieces in their places, among symbols `(P,)`; the new symbols and their rows."""
        count = tf.size(symbols, tf.int64)
        splits = tf.concat([tf.range(count), count + self._part_splits], axis=0)
        choices = tf.RaggedTensor.from_row_splits(tf.concat([symbols, self._parts], axis=0), splits, validate=False)
        which = tf.cast(self._which_parts.lookup(symbols), tf.int64)  # (P,): -1 for a piece that stays
        chosen = tf.gather(choices, tf.where(which < 0, tf.range(count), count + which))
        return chosen.values, tf.repeat(rows, chosen.row_lengths())


def _ranks(scores: np.ndarray) -> np.ndarray:
    """The rank of each score, the highest one first; -0.0 is below 0.0, as in the library."""
    bits = scores.view(np.int32).astype(np.int64)
    return -np.where(bits < 0, -(bits & 0x7FFFFFFF) - 1, bits)


def _table(numbers: Mapping[int, int]) -> tf.lookup.StaticHashTable:
    """A table from numbers to numbers, -1 for others."""
    keys = tf.constant([-1, *numbers])  # never empty
    pairs = tf.lookup.KeyValueTensorInitializer(keys, tf.constant([-1, *numbers.values()]))
    return tf.lookup.StaticHashTable(pairs, default_value=-1)


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


def followed(pointers: tf.Tensor, starts: tf.Tensor) -> tf.Tensor:
    """Which places one comes to from the starts, along pointers that end in places that point to themselves.

    After k rounds the places of the first 2**k steps are marked, and pointers go that far.

    Args:
        pointers: the next place from each, int64 `(N,)`.
        starts: places, `(W,)`.

    Returns:
        Booleans `(N,)`.
    """
    count = tf.size(pointers, tf.int64)
    marked = tf.scatter_nd(starts[:, tf.newaxis], tf.ones_like(starts, tf.int32), count[tf.newaxis])  # (N,)
    marked = tf.minimum(marked, 1)

    def step(marked, pointers, further):
        marked = tf.maximum(marked, tf.math.unsorted_segment_max(marked, pointers, count))
        return marked, further, tf.gather(further, further)

    marked, *_ = tf.while_loop(
        lambda marked, pointers, further: tf.reduce_any(pointers != further),
        step,
        (marked, pointers, tf.gather(pointers, pointers)),
        shape_invariants=(tf.TensorShape([None]),) * 3,
    )
    return tf.maximum(marked, tf.math.unsorted_segment_max(marked, pointers, count)) > 0


def packed(numbers: tf.Tensor, characters: tf.Tensor) -> tf.Tensor:
    """Numbers of pieces, and the characters of those that stand for an unknown one, 0 for others, as one int64 each."""
    return tf.bitwise.left_shift(tf.cast(numbers, tf.int64), _BITS) + tf.cast(characters, tf.int64)


def unpacked(pieces: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The numbers and the characters, int32."""
    return tf.cast(tf.bitwise.right_shift(pieces, _BITS), tf.int32), tf.cast(pieces % 2**_BITS, tf.int32)


def longest(numbers: tf.Tensor) -> tf.Tensor:
    """The length of the longest key at each place, int32 `(N,)`, for the `(D, N)` of a `Trie`."""
    depths = tf.range(1, tf.shape(numbers)[0] + 1)[:, tf.newaxis]  # (D, 1)
    return tf.reduce_max(tf.where(numbers < 0, 0, depths), axis=0)


def repaired(texts: tf.Tensor) -> tf.Tensor:
    """Texts `(B,)` with U+FFFD for each byte that is not UTF-8.

    `valid_utf8` writes one for all bytes of a character that breaks off.
    """
    return tf.cond(tf.reduce_all(is_utf8(texts)), lambda: texts, lambda: _repaired(texts))


def _repaired(texts: tf.Tensor) -> tf.Tensor:
    data, rows = _bytes_of(texts + b"\0")  # (N,), (N,)
    sizes, inside = _utf8(data)
    padded = tf.pad(sizes, [[3, 0]])
    for step in (1, 2, 3):
        inside |= padded[3 - step : -step] > step  # of a character that began so many bytes before
    kept = tf.concat([rows[1:] == rows[:-1], [False]], axis=0)
    data, rows = tf.boolean_mask(tf.where(inside, data, 256), kept), tf.boolean_mask(rows, kept)
    return _strings(data, rows, tf.size(texts, tf.int64))


def _bytes_of(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """All bytes of texts `(B,)`, int32 `(N,)`, and the text of each, int64 `(N,)`."""
    data = tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)
    return tf.cast(data, tf.int32), tf.repeat(tf.range(tf.size(texts, tf.int64)), tf.strings.length(texts))


def _strings(data: tf.Tensor, rows: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """The strings `(B,)` of bytes int32 `(N,)`, of which 256 stands for U+FFFD."""
    every = np.array([*(bytes([byte]) for byte in range(256)), _REPLACEMENT], dtype=object)
    return tf.strings.unsorted_segment_join(tf.gather(tf.constant(every, tf.string), data), rows, count)


def _utf8(data: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """How many bytes the character has that begins at each byte, 1 if none does, and whether one does; both `(N,)`.

    Args:
        data: bytes, int32 `(N,)`, with a byte of no other character between texts.
    """
    padded = tf.pad(data, [[0, 3]])
    count = tf.size(data)
    after = [padded[i : count + i] for i in (1, 2, 3)]
    one, two, three = (tf.bitwise.bitwise_and(byte, 0xC0) == 0x80 for byte in after)
    begin = data * 256 + after[0]  # without overlong forms, surrogates and what is beyond U+10FFFF
    surrogate = (begin >= 0xEDA0) & (begin < 0xEE00)
    of_two = (begin >= 0xC200) & (begin < 0xE000) & one
    of_three = (begin >= 0xE0A0) & (begin < 0xF000) & ~surrogate & one & two
    of_four = (begin >= 0xF090) & (begin < 0xF490) & one & two & three
    sizes = tf.where(of_two, 2, tf.where(of_three, 3, tf.where(of_four, 4, 1)))
    return sizes, (data < 0x80) | (sizes > 1)


def _repeated_spaces(data: tf.Tensor, heads: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
    """The spaces that stand after another one or before the text.

    Only the spaces with which a replacement begins count: all of them go, or none.

    Args:
        data: bytes, int32 `(M,)`.
        heads: where what each byte belongs to begins, int32 `(M,)`.
        ends: whether a byte is the end of a text, `(M,)`.

    Returns:
        Booleans `(M,)`.
    """
    space = data == ord(" ")
    first = tf.concat([[True], heads[1:] != heads[:-1]], axis=0)  # (M,)
    begins = tf.gather(tf.where(first)[:, 0], tf.cumsum(tf.cast(first, tf.int32)) - 1)  # (M,)
    others = tf.cumsum(tf.cast(~space, tf.int32))  # (M,)
    leading = space & (others == tf.gather(others, begins)) & tf.gather(space, begins)
    after_space = tf.concat([[True], (space | ends)[:-1]], axis=0)  # (M,)
    return leading & tf.gather(after_space, begins)
