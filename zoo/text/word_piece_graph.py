"""BERT's tokenizer as a TensorFlow graph: normalisation, cutting into words, and the longest pieces of a word.

The reference is the `tokenizers` library, version 0.23: `BertNormalizer`, `BertPreTokenizer` and `WordPiece`. What they
do to a character is asked of the library itself (`canonical`), so the graph has its classes and its exceptions.

How it works, on `["Größer, 中!"]` with the pieces `gross`, `gro`, `##ß`, `##er`, `,`, `!` and `中`:

1. `BertNormalizer` gives `großer,  中 !`. A text of ASCII alone only needs `tf.strings.lower`.
2. `cut_into_words` drops white space and cuts punctuation off: `großer`, `,`, `中`, `!`.
3. Most words are one piece, and a table has them. The others are split by `LongestMatch`, a repeated one once: `gro`,
   `##ß`, `##er`.

Axes: B batch, W words, N characters of all words and two more for each, D characters of the longest match.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from zoo.text.canonical import bert_changes, bert_separators, kept_marks
from zoo.text.normalization import Expansion, code_point_table, reordered
from zoo.text.ragged import rows_of
from zoo.text.tokenizer import UNKNOWN
from zoo.text.trie import LAST, Trie, characters_of, followed, longest
from zoo.text.words import SEPARATOR, in_ranges, separated

_BEGIN = LAST - 1  # before the first character of each word; no text has it
_PLAIN = "[ -~]*"  # such texts change only in case


class BertNormalizer(tf.Module):
    """Normalises texts as the `BertNormalizer` of the `tokenizers` library does.

    Args:
        clean_text: whether control characters go, U+FFFD among them, and white space becomes a space.
        handle_chinese_chars: whether ideographs get spaces around them.
        strip_accents: whether characters are decomposed, and accents go.
        lowercase: whether characters become lower case, one by one.
    """

    def __init__(self, clean_text: bool, handle_chinese_chars: bool, strip_accents: bool, lowercase: bool):
        super().__init__()
        self._lowercase = lowercase
        replacements = []
        if clean_text:
            changes = bert_changes(clean_text=True)
            for new in ("", " "):
                replacements.append((_class_of(old for old in changes if changes[old] == new), new))
        if handle_chinese_chars:
            replacements.append((_class_of(bert_changes(handle_chinese_chars=True)), r" \0 "))
        self._replacements = tuple(replacements)
        # With accents stripped, a few marks stay, and NFD has put them in order.
        marks = kept_marks() if strip_accents else None
        self._no_marks = f"[^{in_ranges(marks.watched)}]*" if marks else ""
        self._decomposition: Any = Expansion(marks.expansions) if marks else None
        self._classes: Any = code_point_table(marks.classes) if marks else None
        each = bert_changes(strip_accents=strip_accents, lowercase=lowercase)
        self._characters = Expansion(each) if each else None

    def __call__(self, texts: tf.Tensor) -> tf.Tensor:
        """Normalises valid UTF-8 `(B,)`."""
        plain = tf.strings.regex_full_match(texts, _PLAIN)  # (B,)
        done = tf.strings.lower(texts) if self._lowercase else texts  # of ASCII alone; the others are overwritten
        return tf.cond(tf.reduce_all(plain), lambda: done, lambda: self._with_others(texts, done, tf.where(~plain)))

    def _with_others(self, texts: tf.Tensor, done: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
        """Puts other texts, of the places `(R, 1)`, among those that are done `(B,)`."""
        texts = tf.gather(texts, others[:, 0])  # (R,)
        for pattern, new in self._replacements:
            texts = tf.strings.regex_replace(texts, pattern, new)
        if self._characters is not None:
            code_points = tf.strings.unicode_decode(texts, "UTF-8")  # (R, ragged)
            values, rows = code_points.values, code_points.value_rowids()  # (N,), (N,)
            if self._decomposition is not None:
                values, rows = tf.cond(
                    tf.reduce_all(tf.strings.regex_full_match(texts, self._no_marks)),
                    lambda: (values, rows),
                    lambda: self._with_marks_in_order(values, rows),
                )
            values, rows = self._characters(values, rows)
            code_points = tf.RaggedTensor.from_value_rowids(values, rows, code_points.nrows(), validate=False)
            texts = tf.strings.unicode_encode(code_points, "UTF-8")  # (R,)
        return tf.tensor_scatter_nd_update(done, others, texts)

    def _with_marks_in_order(self, values: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Sorts the marks among code points `(N,)`; new code points, and their rows."""
        values, rows = self._decomposition(values, rows)
        return reordered(values, self._classes.lookup(values), rows)[0], rows


def cut_into_words(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Cuts texts as the library's `BertPreTokenizer` does: at white space, and around each punctuation character.

    Args:
        texts: valid UTF-8, `(B,)`. Bytes that are no UTF-8 are part of words, unless they are `SEPARATOR`.

    Returns:
        The words in their order, none of them empty, `(W,)`, and the text of each, int64 `(W,)`.
    """
    spaces, punctuation = map(_class_of, bert_separators())
    texts = tf.strings.regex_replace(texts, f"{spaces}+", SEPARATOR)
    return separated(tf.strings.regex_replace(texts, punctuation, SEPARATOR + rb"\0" + SEPARATOR))


class LongestMatch(tf.Module):
    """Splits words from left to right into the longest pieces, or into one unknown id if pieces run out.

    The library tries ever shorter pieces at one place after another. Here a `Trie` finds the longest piece at every
    place of every word at once; each place then points to the one behind its piece, and the places that one really
    comes to from the beginning of a word are found by following the pointers in doubling steps.

    Args:
        pieces: the pieces that begin a word, and their ids.
        continuing: the pieces inside a word, without their prefix, and their ids.
        longest_word: the number of characters beyond which a word is unknown.
    """

    def __init__(self, pieces: dict[str, int], continuing: dict[str, int], longest_word: int):
        super().__init__()
        self._longest_word = longest_word
        keys = {(_BEGIN, *map(ord, piece)): id_ for piece, id_ in pieces.items()}
        self._trie = Trie(keys | {tuple(map(ord, piece)): id_ for piece, id_ in continuing.items()})

    def __call__(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The ids of valid UTF-8 `(W,)`, W at least 1, int32 `(P,)`, and the word of each, int64 `(P,)`."""
        # A word without characters has no piece, and is unknown.
        words = tf.where(tf.strings.length(words, "UTF8_CHAR") > self._longest_word, "", words)
        characters, splits = characters_of(words, _BEGIN)  # (N,), (W + 1,)
        places = tf.range(tf.size(characters))
        found = self._trie(characters)  # (D, N)
        sizes = longest(found)  # (N,): 0 at an end, and where there is no piece
        ids = tf.gather_nd(found, tf.stack([tf.maximum(sizes - 1, 0), places], axis=1))  # (N,)
        visited = followed(tf.cast(places + sizes, tf.int64), splits[:-1])  # (N,)
        rows = rows_of(splits[1:], tf.size(characters))  # (N,)
        known = tf.gather(tf.gather(visited, splits[1:] - 1), rows)  # (N,): whether the end of the word was reached
        kept = tf.where(known, visited & (characters != LAST), characters == _BEGIN)
        kept = tf.where(kept)[:, 0]  # (P,)
        return tf.gather(tf.where(known, ids, UNKNOWN), kept), tf.gather(rows, kept)


def _class_of(characters: Iterable[str]) -> str:
    """Sorted characters as a class for RE2."""
    return f"[{in_ranges(characters)}]"
