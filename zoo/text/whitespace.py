"""A tokenizer whose tokens are what stands between white space, such as the sounds of `HH AH0 L OW1`."""

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import tensorflow as tf

from zoo.text.canonical import composed
from zoo.text.lookup import lookup_table
from zoo.text.normalization import Composition
from zoo.text.strings import SPACE, to_learn_from
from zoo.text.tokenizer import FIRST, REPLACEMENT, UNKNOWN, Tokenizer
from zoo.text.vocabulary import check_vocabulary, fault_of_text, most_frequent


class WhitespaceTokenizer(Tokenizer):
    """Splits texts at white space: for notations with few symbols, such as phonemes, chords or moves of a game.

    Ids 0 to 3 are padding, unknown, start and end; the word `vocabulary[i]` has the id `i + 4`. Texts in a language
    need `BytePairTokenizer`: here every word that is not in the vocabulary is unknown.

    White space is what `str.isspace` says. `detokenize` writes one space between words, so it is the inverse of
    `tokenize` for texts of known words with single spaces between them.

    With `normalize`, texts are brought into NFC as far as the characters of the vocabulary go; see `Composition`. A
    broken sequence of bytes is read as U+FFFD. U+FFFD is unknown, and `detokenize` writes it for the unknown id.

    Axes: B batch, T length.

    Example:
        >>> tokenizer = WhitespaceTokenizer(["AH0", "L", "OW1", "HH"])
        >>> tokenizer.tokenize(["HH AH0 L OW1", "L ?"], add_end=True).numpy().tolist()
        [[7, 4, 5, 6, 3], [5, 1, 3, 0, 0]]
        >>> tokenizer.detokenize([[7, 4, 5, 6, 3]]).numpy().tolist()
        [b'HH AH0 L OW1']

    Args:
        vocabulary: the known words in the order of their ids.
        normalize: whether texts are normalised.

    Raises:
        ValueError: the vocabulary is empty or has duplicates; an entry is not a string, is empty, has white space, a
            surrogate or U+FFFD in it; or `normalize` is set and an entry is not its own NFC.
    """

    def __init__(self, vocabulary: Iterable[str], normalize: bool = True):
        words = [vocabulary] if isinstance(vocabulary, str) else list(vocabulary)
        check_vocabulary(words, "word", lambda word: _fault(word, normalize))
        super().__init__(words, [f" {word}".encode() for word in words])
        self.normalize = normalize
        # What `_join` writes for each id. Of the special ids, it receives only the unknown one. An array of objects:
        # tf.Module would wrap a list.
        self._texts = np.array([REPLACEMENT] * FIRST + words, dtype=object)
        self._composition = Composition(set("".join(words))) if normalize else None
        self._ids = lookup_table(words, range(FIRST, self.size), tf.string, default=UNKNOWN)

    @classmethod
    def learn(
        cls,
        texts: Iterable[str],
        minimum_count: int = 1,
        maximum_size: int | None = None,
        normalize: bool = True,
    ) -> Self:
        """Takes the vocabulary from texts: the most frequent words first, equally frequent ones in alphabetical order.

        Words with U+FFFD are left out: it means unknown. Half a surrogate pair has no UTF-8 and counts as "?".

        Args:
            texts: any number of strings, read once.
            minimum_count: how often a word must occur to be known.
            maximum_size: the largest `size` of the tokenizer, the four special ids included; no limit if None.
            normalize: whether texts are normalised, in learning and in use.

        Returns:
            The tokenizer.

        Raises:
            ValueError: `minimum_count` is below 1, `maximum_size` leaves no room for a word, `texts` is not an
                iterable of strings, or no word is left.
        """
        pieces = ((composed(text) if normalize else text).split() for text in to_learn_from(texts))
        known = most_frequent(pieces, "word", minimum_count, maximum_size, lambda word: _fault(word, normalize) is None)
        return cls(known, normalize=normalize)

    @property
    def vocabulary(self) -> list[str]:
        """The known words in the order of their ids."""
        return self._texts[FIRST:].tolist()

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, fit for JSON."""
        return {"vocabulary": self.vocabulary, "normalize": self.normalize}

    def _split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        code_points = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")  # (B, ragged)
        if self._composition is not None:
            code_points = self._composition(code_points)
        texts = tf.strings.unicode_encode(code_points, "UTF-8", errors="replace")  # (B,)
        words = tf.strings.split(tf.strings.regex_replace(texts, f"{SPACE}+", " "))  # (B, ragged)
        return words.with_values(self._ids.lookup(words.values))

    def _join(self, ids: tf.Tensor, rows: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        return tf.strings.unsorted_segment_join(tf.gather(tf.constant(self._texts), ids), rows, count, separator=" ")


def _fault(word: Any, normalize: bool) -> str | None:
    """What a vocabulary must hold instead of this entry; None if nothing is wrong with it."""
    if not isinstance(word, str) or word.split() != [word]:
        return "strings without white space, none of them empty"
    return fault_of_text(word, "word", normalize)
