"""Unicode normalisation in the graph, as far as a vocabulary needs it."""

from collections.abc import Collection
from typing import Any

import tensorflow as tf

from zoo.text.canonical import canonical_tables
from zoo.text.expansion import Expansion
from zoo.text.tables import code_point_table, lookup_table

_CODE_POINT_BITS = 21  # U+10FFFF, the last one, needs as many


class Composition(tf.Module):
    """Composes code points to the characters of a vocabulary, as Unicode's NFC does.

    The same letter can be written with one code point or several: `é` is U+00E9, or `e` and U+0301. NFC is the form
    with the fewest, and the form of our corpora. TensorFlow has no operation for it; this module does the part that
    leads into the vocabulary, in four steps (Unicode Standard Annex #15):

    1. Decompose: characters become their canonical pieces. Some have another form for good: U+212B (the unit angstrom)
       is the letter `Å`, U+0958 is U+0915 U+093C.
    2. Reorder: marks on one base stand in the order of their combining classes, equal classes as they came.
    3. Compose: base and mark become one character, as often as the vocabulary needs (twice for `ế` and for Hangul
       syllables with a final consonant), also by way of characters that the vocabulary lacks.
    4. Spell: a composed character that the vocabulary lacks falls apart again, if the vocabulary has its pieces.

    A text whose NFC consists of characters of the vocabulary becomes exactly that NFC, from any equivalent form. Other
    texts differ from NFC in two things, both of them about characters which the vocabulary lacks. Step 4 may spell such
    a character. And if one of its pieces occurs nowhere in the vocabulary, not even inside a composed character, or if
    it is a Hangul syllable, then it is neither decomposed nor composed, so that it counts as one unknown or several, as
    it was written. The data are those of Python's `unicodedata` at the time of construction.

    What happens to a row depends on that row alone. Texts without marks and other characters that might change pass
    after one table lookup; for a vocabulary which none of this concerns, there are no operations at all.

    Axes: B batch, T length.

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
        self._pairs = lookup_table(
            [_pair_key(ord(base), ord(mark)) for base, mark in tables.pairs],
            [ord(composed) for composed in tables.pairs.values()],
            tf.int64,
        )

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
        """The new values and row splits. Works on flat values, `rows` telling the row of each."""
        values, rows = texts.values, texts.value_rowids()
        if self._expansions is not None:
            values, rows = self._expansions(values, rows)
        classes = tf.zeros_like(values)
        if self._classes is not None:
            values, classes = _reordered(values, self._classes.lookup(values), rows)
        for _ in range(self._passes):
            values, classes, rows = self._compose_once(values, classes, rows)
        if self._spellings is not None:
            values, rows = self._spellings(values, rows)
        return values, tf.RaggedTensor.from_value_rowids(values, rows, texts.nrows(), validate=False).row_splits

    def _compose_once(
        self, values: tf.Tensor, classes: tf.Tensor, rows: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Composes each base, a character of class 0, with the first of the marks after it that it composes with."""
        bases, has_base = _bases(classes, rows)
        # A mark is cut off from its base by a mark of its own class, or by anything if its class is 0.
        previous = tf.concat([[0], classes[:-1]], axis=0)
        reachable = has_base & ((previous == 0) | (previous < classes))
        wide = tf.cast(values, tf.int64)
        keys = tf.where(reachable, _pair_key(tf.gather(wide, bases), wide), -1)
        composed = self._pairs.lookup(keys)
        found = tf.cast(composed > 0, tf.int32)
        counts = tf.cumsum(found)
        taken = (found > 0) & (counts - tf.gather(counts, bases) == 1)
        targets = tf.boolean_mask(bases, taken)
        values = tf.tensor_scatter_nd_update(values, targets[:, tf.newaxis], tf.boolean_mask(composed, taken))
        return tuple(tf.boolean_mask(each, ~taken) for each in (values, classes, rows))


def _reordered(values: tf.Tensor, classes: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Sorts each run of marks by class. A run never leaves its row, so `rows` stays as it is."""
    # The number of the run grows at each base, and with the row at its border.
    runs = tf.cumsum(tf.cast(classes == 0, tf.int64)) + rows
    order = tf.argsort(runs * 256 + tf.cast(classes, tf.int64), stable=True)  # classes are below 256
    return tf.gather(values, order), tf.gather(classes, order)


def _bases(classes: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """For each position that of the last base before it, and whether there is one in its row."""
    is_base = classes == 0
    positions = tf.concat([tf.constant([0], tf.int64), tf.where(is_base)[:, 0]], axis=0)
    counts = tf.cumsum(tf.cast(is_base, tf.int32), exclusive=True)
    bases = tf.gather(positions, counts)
    return bases, (counts > 0) & (tf.gather(rows, bases) == rows)


def _pair_key(base: Any, mark: Any) -> Any:
    """Packs two code points, or two tensors of int64 of them, into integers of 42 bits."""
    return base * 2**_CODE_POINT_BITS + mark
