"""The tokenizer of Marian's translators: SentencePiece, and a target language before a text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Self

import tensorflow as tf

from zoo.text.lookup import lookup_table
from zoo.text.sentence_piece import SentencePieceTokenizer
from zoo.text.strings import strip
from zoo.text.tokenizer import FIRST, UNKNOWN

# As in `transformers`: the text begins with `>>`, and the first `<<` ends the language. `.` matches no broken bytes.
_LANGUAGE = r"\A>>\C*?<<"
# What `clean_up_tokenization` of `transformers` replaces, one after the other.
_CLEANED = [(f" {sign}", sign) for sign in ".?!,"] + [(" ' ", "'")]
_CLEANED += [(f" {ending}", ending) for ending in ("n't", "'m", "'s", "'ve", "'re")]


class MarianTokenizer(SentencePieceTokenizer):
    """A `SentencePieceTokenizer` that reads the target language at the beginning of a text as one token.

    For a translator into several languages, the text itself names the language: `>>fra<< How are you?`. The language is
    a piece of the vocabulary, but not of the SentencePiece file. A language that the vocabulary lacks becomes the
    unknown id, also if it has none at all, as in `transformers`.

    Args:
        model: as for `SentencePieceTokenizer`.
        vocabulary: as for `SentencePieceTokenizer`.
        target_language: the language of texts that begin with none, such as `fra`; None for none.
        clean_up_spaces: whether a text of ids loses its spaces before `.`, `?`, `!`, `,` and English endings such as
            `n't`, as with `clean_up_tokenization_spaces` of `transformers`.

    Raises:
        ValueError: as for `SentencePieceTokenizer`, or the vocabulary has no such language.
    """

    def __init__(
        self,
        model: bytes | str,
        vocabulary: Iterable[str] | None = None,
        target_language: str | None = None,
        clean_up_spaces: bool = False,
    ):
        super().__init__(model, vocabulary)
        self.clean_up_spaces = clean_up_spaces
        pieces = [piece.decode() for piece in self._pieces[FIRST:-1]]
        languages = {piece: id_ for id_, piece in enumerate(pieces, FIRST) if piece[:2] == ">>" and piece[-2:] == "<<"}
        self.languages = tuple(sorted(piece[2:-2] for piece in languages))
        self.target_language = target_language
        self._default = UNKNOWN
        if target_language is not None:
            if target_language not in self.languages:
                if not self.languages:
                    raise ValueError(
                        "The vocabulary names no target languages, so the translator has one. Leave out "
                        f"`target_language`. Received: {target_language!r}"
                    )
                known = ", ".join(self.languages)
                raise ValueError(f"`target_language` must be one of {known}. Received: {target_language!r}")
            self._default = languages[f">>{target_language}<<"]
        self._languages = lookup_table(languages, languages.values(), tf.string, default=UNKNOWN)

    def with_target_language(self, target_language: str | None) -> Self:
        """The same tokenizer with another language for texts that begin with none."""
        return type(self)(**{**self.get_config(), "target_language": target_language})

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, fit for JSON."""
        settings = {"target_language": self.target_language, "clean_up_spaces": self.clean_up_spaces}
        return {**json.loads(self._arguments), **settings}

    def _split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        rest = tf.strings.regex_replace(texts, _LANGUAGE, "", replace_global=False)  # (B,)
        size = tf.strings.length(texts) - tf.strings.length(rest)  # (B,), of the language in bytes
        language = self._languages.lookup(tf.strings.substr(texts, tf.zeros_like(size), size))  # (B,)
        first = tf.where(size > 0, language, self._default)  # (B,)
        has_first = tf.fill(tf.shape(size), True) if self.target_language is not None else size > 0
        lengths = tf.cast(has_first, tf.int64)  # (B,)
        ids = tf.RaggedTensor.from_row_lengths(tf.boolean_mask(first, has_first), lengths, validate=False)
        return tf.concat([ids, super()._split(rest)], axis=1)  # (B, ragged)

    def _join(self, ids: tf.Tensor, rows: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        # As in `transformers`: a translation that is cut off at the limit may end with a lone space.
        texts = strip(super()._join(ids, rows, count))
        for before, after in _CLEANED if self.clean_up_spaces else ():
            texts = tf.strings.regex_replace(texts, re.escape(before), after)
        return texts
