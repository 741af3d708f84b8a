"""A tokenizer whose tokens are characters."""

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import tensorflow as tf

from zoo.text.canonical import composed, lowercase_of
from zoo.text.lookup import lookup_table
from zoo.text.normalization import Composition, Lowercase
from zoo.text.ragged import splits_of
from zoo.text.strings import to_learn_from
from zoo.text.tokenizer import FIRST, REPLACEMENT, UNKNOWN, Tokenizer
from zoo.text.vocabulary import check_vocabulary, fault_of_text, most_frequent


class CharacterTokenizer(Tokenizer):
    """Splits texts into Unicode code points.

    Ids 0 to 3 are padding, unknown, start and end; the character `vocabulary[i]` has the id `i + 4`.

    With `normalize`, texts are brought into NFC as far as the vocabulary goes, so that `é` has one id in every form;
    `Composition` defines how far. `detokenize` is then the inverse of `tokenize` for every text whose NFC consists of
    known characters, and returns that NFC. Without `normalize` it is the exact inverse for every text of known
    characters.

    With `lowercase`, texts are first turned into lower case, character by character.

    A broken sequence of bytes is read as U+FFFD, as in `bytes.decode("utf-8", "replace")`. U+FFFD is unknown, and
    `detokenize` writes it for the unknown id.

    Axes: B batch, T length.

    Example:
        >>> tokenizer = CharacterTokenizer("abc")
        >>> tokenizer.tokenize(["cab", "a?"], add_end=True).numpy().tolist()
        [[6, 4, 5, 3], [4, 1, 3, 0]]
        >>> tokenizer.detokenize([[6, 4, 5, 3]]).numpy().tolist()
        [b'cab']

    Args:
        vocabulary: the known characters in the order of their ids: one string, or single characters.
        normalize: whether texts are normalised.
        lowercase: whether texts are turned into lower case.

    Raises:
        ValueError: the vocabulary is empty or has duplicates; an entry is not a string of one code point, or a
            surrogate, or U+FFFD; or `normalize` is set and an entry is not its own NFC.
    """

    def __init__(self, vocabulary: str | Iterable[str], normalize: bool = True, lowercase: bool = False):
        characters = list(vocabulary)
        check_vocabulary(characters, "character", lambda character: _fault(character, normalize))
        super().__init__(characters, [character.encode() for character in characters])
        self.vocabulary = "".join(characters)
        self.normalize = normalize
        self.lowercase = lowercase
        self._lowercase = Lowercase() if lowercase else None
        # What `_join` writes for each id. Of the special ids, it receives only the unknown one.
        self._code_points = np.array([ord(REPLACEMENT)] * FIRST + [ord(c) for c in characters], np.int32)
        self._composition = Composition(characters) if normalize else None
        self._ids = lookup_table(map(ord, characters), range(FIRST, self.size), tf.int32, default=UNKNOWN)

    @classmethod
    def learn(
        cls,
        texts: Iterable[str],
        minimum_count: int = 1,
        maximum_size: int | None = None,
        normalize: bool = True,
        lowercase: bool = False,
    ) -> Self:
        """Takes the vocabulary from texts: the most frequent characters first, equally frequent ones by code point.

        U+FFFD is left out: it means unknown. Half a surrogate pair has no UTF-8 and counts as "?".

        Args:
            texts: any number of strings, read once.
            minimum_count: how often a character must occur to be known.
            maximum_size: the largest `size` of the tokenizer, the four special ids included; no limit if None.
            normalize: whether texts are normalised, in learning and in use.
            lowercase: whether texts are turned into lower case, in learning and in use.

        Returns:
            The tokenizer.

        Raises:
            ValueError: `minimum_count` is below 1, `maximum_size` leaves no room for a character, `texts` is not an
                iterable of strings, or no character is left.
        """
        lowered = str.maketrans(lowercase_of()) if lowercase else {}
        read = (text.translate(lowered) for text in to_learn_from(texts))
        pieces = (composed(text) if normalize else text for text in read)
        known = most_frequent(pieces, "character", minimum_count, maximum_size, lambda piece: piece != REPLACEMENT)
        return cls(known, normalize=normalize, lowercase=lowercase)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, fit for JSON."""
        return {"vocabulary": self.vocabulary, "normalize": self.normalize, "lowercase": self.lowercase}

    def _split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        if self._lowercase is not None:
            texts = self._lowercase(texts)
        code_points = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")  # (B, ragged)
        if self._composition is not None:
            code_points = self._composition(code_points)
        return code_points.with_values(self._ids.lookup(code_points.values))

    def _join(self, ids: tf.Tensor, rows: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        code_points = tf.gather(tf.constant(self._code_points), ids)  # (N,)
        splits = splits_of(rows, count)
        return tf.strings.unicode_encode(
            tf.RaggedTensor.from_row_splits(code_points, splits, validate=False), "UTF-8", errors="replace"
        )


def _fault(character: Any, normalize: bool) -> str | None:
    """What a vocabulary must hold instead of this entry; None if nothing is wrong with it."""
    if not isinstance(character, str) or len(character) != 1:
        return "strings of one code point each"
    return fault_of_text(character, "character", normalize)
