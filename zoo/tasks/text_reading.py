"""The calls of tasks that read a text and write none, alike for a Keras model and a SavedModel."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.pictures import Alignment, AttentionGrid, AttentionMaps
from zoo.tasks.protocol import Classifies, Embeds, Fills, ReadsTexts
from zoo.tasks.results import Text
from zoo.tasks.task import strings, unpadded

_ATTENTION = ("tokens", "weights")


class TextReading(ReadsTexts):
    """Asks a signature, and shows what attended to what. A subclass answers for a signature.

    Attributes:
        pairs: whether a text is a pair of texts, such as a premise and a hypothesis.
    """

    pairs: bool = False

    @abc.abstractmethod
    def _ask(self, signature: str, **tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        """The outputs of a signature of the inputs `text` and, of pairs, `text_pair`, `(B,)` each.

        Raises:
            ValueError: there is no such signature.
        """

    def _rows(self, signature: str, wanted: Sequence[str], **inputs: Any) -> list[np.ndarray]:
        found = self._ask(signature, **{name: strings(texts) for name, texts in inputs.items()})
        return [found[name].numpy() for name in wanted]

    def _reads_pairs(self, signature: str) -> bool:
        return self.pairs

    def attend(self, texts: Sequence[Text], batch_size: int = 32) -> list[Alignment]:
        """What attended to what.

        Args:
            texts: a list of strings, or of pairs of strings for a model of pairs.
            batch_size: how many are read at once.

        Returns:
            An `Alignment` of each text. If attention makes one vector of a text (`pooling="attention"`), it has one
            row: how much each token counts. Otherwise it has a row for each token: what it attends to, the mean of
            the last layer's heads.

        Raises:
            ValueError: `texts` is not such a list, or the model has no attention.
        """

        def alignment(text: Text, padded: np.ndarray, weights: np.ndarray) -> Alignment:
            tokens, shown = unpadded(padded), _shown(text)
            if len(weights) < len(tokens):  # one row, for the whole text
                return Alignment(tokens, [self._whole(text)], weights[:, : len(tokens)], source_text=shown)
            weights = weights[: len(tokens), : len(tokens)]
            return Alignment(tokens, tokens, weights, source_text=shown, target_text=shown)

        return self._results("attention", _ATTENTION, texts, batch_size, alignment)

    def attend_by_head(self, texts: Sequence[Text], batch_size: int = 32) -> list[AttentionGrid]:
        """What each token attends to, in each head of each layer.

        Returns:
            An `AttentionGrid` of each text, with one kind of attention. Its `choose` selects layers and heads.

        Raises:
            ValueError: `texts` is not such a list, or the model has no layers and heads of attention.
        """

        def grid(text: Text, padded: np.ndarray, weights: np.ndarray) -> AttentionGrid:
            tokens = unpadded(padded)
            weights = weights[..., : len(tokens), : len(tokens)]
            maps = AttentionMaps("Self-attention", tokens, tokens, weights)
            return AttentionGrid(maps, source_text=_shown(text), target_text=_shown(text))

        return self._results("attention_by_head", _ATTENTION, texts, batch_size, grid)

    def _whole(self, text: Text) -> str:
        """What stands beside the weights of a whole text in a picture."""
        return "text"


class TextClassification(TextReading, Classifies):
    """Puts texts into classes."""

    def __call__(self, texts: Sequence[Text], batch_size: int = 32) -> list[str]:
        """The class of each text, see `classify`."""
        return [each.label for each in self.classify(texts, batch_size)]

    def _whole(self, text: Text) -> str:
        return self([text])[0]


class TextEmbedding(TextReading, Embeds):
    """Turns texts into vectors."""

    def __call__(self, texts: Sequence[str], batch_size: int = 32) -> np.ndarray:
        """The vectors of the texts, see `embed`."""
        return self.embed(texts, batch_size)


class MaskFilling(TextReading, Fills):
    """Fills the masks of texts."""

    def __call__(self, texts: Sequence[str], batch_size: int = 32) -> list[str]:
        """Each text with the most probable token in place of each mask, see `fill`."""
        return [each.filled for each in self.fill(texts, batch_size)]


def _shown(text: Text) -> str:
    return text if isinstance(text, str) else " | ".join(text)
