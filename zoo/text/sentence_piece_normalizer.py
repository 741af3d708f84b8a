"""SentencePiece's normalisation as a TensorFlow graph: the text form that pieces use.

The reference is the sentencepiece library, version 0.2.3; broken UTF-8 is what the library makes of it, too. A text
that one regular expression recognises as being in the right form only gets its first space. Others are walked through
the file's map of characters, from all places at once; pointers from each match to the next one are then followed in
doubling steps. A space stands for itself and for `▁`, if the file turns spaces into it.

Axes: B batch, R texts that are not in the right form, N bytes of all of them and one more for the end of each, M bytes
that they become.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from zoo.text.sentence_piece_file import SPACE, Normalization
from zoo.text.strings import is_utf8
from zoo.text.trie import Trie, followed, longest
from zoo.text.words import in_ranges

_REPLACEMENT = "\ufffd".encode()


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
        # The place where the rule or character that a byte is part of begins.
        heads = tf.gather(tf.where(starts)[:, 0], tf.cumsum(tf.cast(starts, tf.int32)) - 1)  # (N,)
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
        """The length of the longest key that begins at each place, 0 if there is none, and where its text begins.

        All places walk through the trie of `CharacterMap` at once, one byte further in each step.
        """
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

    If a replacement begins with several spaces, all of them are removed or none. Spaces inside it stay.

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
