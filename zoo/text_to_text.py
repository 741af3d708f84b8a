"""The face of everything that turns text into text, whether a Keras model or a SavedModel does the work."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from zoo.pictures import Alignment


@dataclasses.dataclass(frozen=True)
class Translation:
    """One text and what it was turned into.

    Attributes:
        source: the text that was given.
        text: the text that came out.
        score: the natural logarithm of the model's probability of `text`, its end included; at most 0.
    """

    source: str
    text: str
    score: float


class TextToText(abc.ABC):
    """Translates texts, and shows what it attended to.

    A subclass gives two functions of a `(B,)` string tensor. All else, lists of any length, their batches and their
    order, is here.
    """

    @abc.abstractmethod
    def _translate(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """`text` `(B,)` and `score` `(B,)` of each text."""

    @abc.abstractmethod
    def _attend(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """`source_tokens` `(B, S)`, `target_tokens` `(B, T)` and `weights` `(B, T, S)` of each text."""

    def __call__(self, texts: Sequence[str], batch_size: int = 64) -> list[str]:
        """Translates texts.

        Args:
            texts: a list of strings, of any length.
            batch_size: how many are translated at once.

        Returns:
            The translations, in the same order.

        Raises:
            ValueError: `texts` is not a list of strings.
        """
        return [translation.text for translation in self.translate(texts, batch_size)]

    def translate(self, texts: Sequence[str], batch_size: int = 64) -> list[Translation]:
        """As a call, with the score of each text."""
        texts = _checked(texts)
        translations: list[Translation | None] = [None] * len(texts)
        for rows, result in self._batches(self._translate, texts, batch_size):
            for row, text, score in zip(rows, result["text"], result["score"], strict=True):
                translations[row] = Translation(texts[row], text.decode(), float(score))
        return translations

    def attend(self, texts: Sequence[str], batch_size: int = 64) -> list[Alignment]:
        """What each output token attended to, for `zoo.pictures`.

        Args:
            texts: a list of strings.
            batch_size: how many are translated at once.

        Returns:
            An alignment a text: tokens of both sides, and the weights `(T, S)` between them, without padding.

        Raises:
            ValueError: `texts` is not a list of strings, or the model has no attention.
        """
        texts = _checked(texts)
        alignments: list[Alignment | None] = [None] * len(texts)
        for rows, result in self._batches(self._attend, texts, batch_size):
            columns = (result["source_tokens"], result["target_tokens"], result["weights"])
            for row, source, target, weights in zip(rows, *columns, strict=True):
                source, target = _unpadded(source), _unpadded(target)
                alignments[row] = Alignment(
                    source_tokens=source,
                    target_tokens=target,
                    weights=weights[: len(target), : len(source)],
                    source_text=texts[row],
                )
        return alignments

    @staticmethod
    def _batches(function, texts: list[str], batch_size: int) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
        """Runs the function on texts of similar length together, which saves padding."""
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1. Received: batch_size={batch_size}")
        order = np.argsort([len(text) for text in texts], kind="stable")
        for begin in range(0, len(texts), batch_size):
            rows = order[begin : begin + batch_size]
            batch = tf.constant([texts[row].encode("utf-8", "replace") for row in rows])
            yield rows, {name: tensor.numpy() for name, tensor in function(batch).items()}


def _checked(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise ValueError(f"`texts` must be a list of strings; for one text, give a list of one. Received: {texts!r}")
    texts = list(texts)
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"`texts` must hold strings. Received: {text!r} at position {position}")
    return texts


def _unpadded(tokens: np.ndarray) -> list[str]:
    """The tokens of a row but for its padding, whose piece is the empty string."""
    return [token.decode() for token in tokens if token]
