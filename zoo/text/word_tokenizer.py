"""The base of tokenizers that cut texts into words and split each word separately: byte pairs and WordPiece."""

import json
from typing import Any

import tensorflow as tf

from zoo.text.added_tokens import AddedTokens
from zoo.text.byte_pair_graph import WholeWords
from zoo.text.ragged import splits_of
from zoo.text.strings import checked_texts, valid_utf8
from zoo.text.tokenizer import FIRST, Tokenizer


class WordTokenizer(Tokenizer):
    """Base of tokenizers that cut texts into words and split each word into pieces.

    The piece `vocabulary[i]` has the id `i + 4`.

    A subclass sets `_added` and `_words`, gives its arguments to `_keep`, and gives `_normalized`, `_cut` and `_join`.
    """

    _added: AddedTokens
    _words: WholeWords

    def tokenize(
        self,
        texts: Any,
        add_start: bool = False,
        add_end: bool = False,
        max_length: int | None = None,
        special_tokens: bool = False,
    ) -> tf.Tensor:
        """Turns strings into rows of ids, padded with 0 to the longest row, as `Tokenizer.tokenize` does.

        Args:
            texts: strings in UTF-8, `(B,)`.
            add_start: whether each row begins with the start id.
            add_end: whether the last id of each row is followed by the end id.
            max_length: the largest number of ids in a row, start and end included; None means no limit.
            special_tokens: whether a special token that stands in a text, such as `<|im_start|>` or `[MASK]`, becomes
                its id. If not, it is read as any other text. Tokenise the template of a conversation with True and the
                text of a user with False: then a user cannot begin the turn of another speaker.

        Returns:
            Ids, int32 `(B, T)`.

        Raises:
            ValueError: `texts` are not strings with one axis, or `max_length` leaves no room for an id of the text.
        """
        texts = checked_texts(texts)
        return self._padded(self._split(texts, special_tokens), texts.shape[0], add_start, add_end, max_length)

    def id_of(self, piece: str) -> int:
        """The id of a piece of the vocabulary, such as `<|im_end|>`.

        Raises:
            ValueError: the vocabulary lacks it.
        """
        vocabulary = self.get_config()["vocabulary"]
        if piece not in vocabulary:
            raise ValueError(f"The vocabulary has no piece {piece!r}.")
        return FIRST + vocabulary.index(piece)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, fit for JSON."""
        return json.loads(self._arguments)

    def _keep(self, arguments: dict[str, Any]) -> None:
        """Keeps the constructor's arguments for `get_config`."""
        # As JSON: tf.Module would wrap lists and dictionaries and search them for variables.
        self._arguments = json.dumps(arguments)

    def _normalized(self, texts: tf.Tensor) -> tf.Tensor:
        """Normalises valid UTF-8 `(B,)`; an empty text stays empty."""
        raise NotImplementedError

    def _cut(self, texts: tf.Tensor, rows: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
        """Cuts normalised texts into words.

        Args:
            texts: whole texts, or the spans of `AddedTokens`, `(P,)`. The byte FE, a token, is a word.
            rows: the text of each span, `(P,)`; None if they are whole texts.

        Returns:
            The words in their order, none of them empty, `(W,)`, and the index in `texts` of each, int64 `(W,)`.
        """
        raise NotImplementedError

    def _words_of(
        self, texts: tf.Tensor, special_tokens: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """The arguments of `_words`: all words, the text of each, and the ids of added tokens among them."""
        texts = valid_utf8(texts)  # (B,)
        if not self._added.may_be_in_texts(special_tokens):
            return *self._cut(self._normalized(texts), None), None
        spans, rows, ids = self._added(texts, special_tokens)  # (P,), (P,), (P,)
        words, origins = self._cut(spans, rows)  # (W,), (W,)
        return words, tf.gather(rows, origins), tf.gather(ids, origins)

    def _split(self, texts: tf.Tensor, special_tokens: bool = False) -> tf.RaggedTensor:
        ids, rows = self._words(*self._words_of(texts, special_tokens))
        return tf.RaggedTensor.from_row_splits(ids, splits_of(rows, tf.size(texts, tf.int64)), validate=False)
