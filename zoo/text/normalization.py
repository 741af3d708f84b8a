"""Unicode normalisation in the graph: NFC and lower case.

The same letter can be written with one code point or several: `é` is U+00E9, or `e` and U+0301. NFC is the form with
the fewest code points. Our corpora are in NFC. TensorFlow has no operation for it, nor for the lower case of all
scripts, so both are built here of lookup tables: `unicode_decode` turns texts into code points, tables replace them,
and `unicode_encode` writes the result. Each module works on flat vectors: the code points of all rows one after another
and the row of each.

Axes: B batch, T length, N code points of all rows.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.text.canonical import canonical_characters, canonical_tables, lowercase_of
from zoo.text.lookup import lookup_table

_CODE_POINT_BITS = 21  # enough for U+10FFFF, the last one
# Any sequence of these characters is its own NFC.
_PLAIN = r"[\x00-\x{2ff}]*"


class Lowercase(tf.Module):
    """Turns texts into lower case, character by character, as the `Lowercase` of the `tokenizers` library does.

    Unlike `tf.strings.lower`, it depends neither on the locale of the process nor on what follows a sigma.
    """

    def __init__(self):
        super().__init__()
        self._expansion = Expansion(lowercase_of())

    def __call__(self, texts: tf.Tensor) -> tf.Tensor:
        """Turns valid UTF-8 `(B,)` into lower case, `(B,)`."""
        code_points = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")  # (B, ragged)
        values, rows = self._expansion(code_points.values, code_points.value_rowids())
        lowered = tf.RaggedTensor.from_value_rowids(values, rows, code_points.nrows(), validate=False)
        return tf.strings.unicode_encode(lowered, "UTF-8", errors="replace")  # (B,)


class Nfc(tf.Module):
    """Brings texts of any characters into NFC (Unicode Standard Annex #15).

    The result is that of the `NFC` of the `tokenizers` library, which knows fewer characters than Python. Texts of
    plain Latin letters need one regular expression, and other texts without marks one table lookup.
    """

    def __init__(self):
        super().__init__()
        self._composition = Composition(canonical_characters())

    def __call__(self, texts: tf.Tensor) -> tf.Tensor:
        """Turns valid UTF-8 `(B,)` into its NFC, `(B,)`."""
        return tf.cond(
            tf.reduce_all(tf.strings.regex_full_match(texts, _PLAIN)), lambda: texts, lambda: self._composed(texts)
        )

    def _composed(self, texts: tf.Tensor) -> tf.Tensor:
        code_points = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")  # (B, ragged)
        return tf.strings.unicode_encode(self._composition(code_points), "UTF-8", errors="replace")  # (B,)


class Composition(tf.Module):
    """Composes code points to the characters of a vocabulary, as NFC does.

    It does the part of NFC whose results are in the vocabulary, in four steps:

    1. Decompose: characters become their canonical pieces. Some are never composed again: U+212B (the unit angstrom)
       becomes the letter `Å`, and U+0958 becomes U+0915 U+093C.
    2. Reorder: the marks of a base are sorted by combining class. Marks of equal class keep their order.
    3. Compose: base and mark become one character, as often as the vocabulary needs (twice for `ế` and for Hangul
       syllables with a final consonant), also by way of characters that the vocabulary lacks.
    4. Spell: a composed character that the vocabulary lacks is decomposed again, if the vocabulary has its pieces.

    A text whose NFC consists of characters of the vocabulary becomes exactly that NFC, from any equivalent form. Other
    texts differ from NFC in two ways, both about characters that the vocabulary lacks. Step 4 may spell such a
    character. And a character is neither decomposed nor composed if one of its pieces occurs nowhere in the vocabulary,
    not even inside a composed character, or if it is a Hangul syllable: it counts as one unknown or several, as it was
    written. The data are those of the `tokenizers` library, which has Unicode 9.

    A row's result depends only on that row. Texts without marks and other characters that might change pass after one
    table lookup. If the vocabulary has no character with another form, the module adds no operation.

    Args:
        vocabulary: single characters, each its own NFC.
    """

    def __init__(self, vocabulary: Collection[str]):
        super().__init__()
        tables = canonical_tables(frozenset(vocabulary))
        self._passes = tables.passes
        self._watched = code_point_table(dict.fromkeys(tables.watched, 1))
        self._classes = code_point_table(tables.classes)
        self._expansions = Expansion(tables.expansions) if tables.expansions else None
        self._spellings = Expansion(tables.spellings) if tables.spellings else None
        keys = [_pair_key(ord(base), ord(mark)) for base, mark in tables.pairs]
        self._pairs = lookup_table(keys, map(ord, tables.pairs.values()), tf.int64, default=0)

    def __call__(self, texts: tf.RaggedTensor) -> tf.RaggedTensor:
        """Composes the code points of each text.

        Args:
            texts: code points, int32 ragged `(B, T)`.

        Returns:
            Code points, int32 ragged `(B, T)`, in rows of their own lengths.
        """
        if self._watched is None:
            return texts
        values, row_splits = tf.cond(
            tf.reduce_any(self._watched.lookup(texts.values) > 0),
            lambda: self._normalized(texts),
            lambda: (texts.values, texts.row_splits),
        )
        return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)

    def _normalized(self, texts: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The new values and row splits."""
        values, rows = texts.values, texts.value_rowids()  # (N,), (N,)
        if self._expansions is not None:
            values, rows = self._expansions(values, rows)  # a larger N
        classes = tf.zeros_like(values)
        if self._classes is not None:
            values, classes = reordered(values, self._classes.lookup(values), rows)  # (N,), (N,)
        for _ in range(self._passes):
            values, classes, rows = self._compose_once(values, classes, rows)  # a smaller N
        if self._spellings is not None:
            values, rows = self._spellings(values, rows)
        return values, tf.RaggedTensor.from_value_rowids(values, rows, texts.nrows(), validate=False).row_splits

    def _compose_once(
        self, values: tf.Tensor, classes: tf.Tensor, rows: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Composes each base, a character of class 0, with the first of the marks after it that it composes with."""
        bases, has_base = _bases(classes, rows)  # (N,), (N,)
        # A mark is cut off from its base by a mark of its own class, or by anything if its class is 0.
        previous = tf.concat([[0], classes[:-1]], axis=0)
        reachable = has_base & ((previous == 0) | (previous < classes))
        wide = tf.cast(values, tf.int64)
        keys = tf.where(reachable, _pair_key(tf.gather(wide, bases), wide), -1)  # (N,)
        composed = self._pairs.lookup(keys)  # (N,): 0 where base and mark make nothing
        found = tf.cast(composed > 0, tf.int32)
        counts = tf.cumsum(found)
        taken = (found > 0) & (counts - tf.gather(counts, bases) == 1)  # the first mark of its base that composes
        targets = tf.boolean_mask(bases, taken)
        values = tf.tensor_scatter_nd_update(values, targets[:, tf.newaxis], tf.boolean_mask(composed, taken))
        return tuple(tf.boolean_mask(each, ~taken) for each in (values, classes, rows))


class Expansion(tf.Module):
    """Replaces single code points by sequences.

    Args:
        sequences: what takes the place of each character, at least one.
    """

    def __init__(self, sequences: Mapping[str, str]):
        super().__init__()
        self._choices = code_point_table({character: i for i, character in enumerate(sequences, start=1)})
        # Row 0 is for all other characters; -1 fills the rows.
        self._pieces = np.full([1 + len(sequences), max(map(len, sequences.values()))], -1, np.int32)
        for row, sequence in zip(self._pieces[1:], sequences.values(), strict=True):
            row[: len(sequence)] = [ord(piece) for piece in sequence]

    def __call__(self, values: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Replaces code points.

        Args:
            values: the code points, int32 `(N,)`.
            rows: the row of each, int64 `(N,)`.

        Returns:
            The new code points, and the row of each: both as long as the result.
        """
        choices = self._choices.lookup(values)  # (N,)
        pieces = tf.gather(tf.constant(self._pieces), choices)  # (N, the longest sequence)
        first = tf.where(choices == 0, values, pieces[:, 0])
        pieces = tf.concat([first[:, tf.newaxis], pieces[:, 1:]], axis=1)  # (N, the longest sequence)
        kept = pieces >= 0
        return tf.boolean_mask(pieces, kept), tf.repeat(rows, tf.math.count_nonzero(kept, axis=1))


def reordered(values: tf.Tensor, classes: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Sorts each run of marks by class. A run never leaves its row, so `rows` stays as it is."""
    # The number of the run grows at each base, and with the row at its border.
    runs = tf.cumsum(tf.cast(classes == 0, tf.int64)) + rows  # (N,)
    order = tf.argsort(runs * 256 + tf.cast(classes, tf.int64), stable=True)  # classes are below 256
    return tf.gather(values, order), tf.gather(classes, order)


def _bases(classes: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """For each position, the position of the last base before it, and whether its row has one; both `(N,)`."""
    is_base = classes == 0
    positions = tf.concat([tf.constant([0], tf.int64), tf.where(is_base)[:, 0]], axis=0)  # (1 + bases,)
    counts = tf.cumsum(tf.cast(is_base, tf.int32), exclusive=True)
    bases = tf.gather(positions, counts)  # (N,)
    return bases, (counts > 0) & (tf.gather(rows, bases) == rows)


def _pair_key(base: Any, mark: Any) -> Any:
    """Packs two code points, or two tensors of int64 of them, into integers of 42 bits."""
    return base * 2**_CODE_POINT_BITS + mark


def code_point_table(mapping: Mapping[str, int]) -> Any:
    """A table from code points to numbers, int32 to int32, with 0 for others; None if it would be empty."""
    return lookup_table(map(ord, mapping), mapping.values(), tf.int32, default=0) if mapping else None
