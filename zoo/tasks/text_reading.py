"""The calls of tasks that read a text and write none, alike for a Keras model and a SavedModel."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.pictures import Alignment, AttentionGrid, AttentionMaps
from zoo.tasks.protocol import Classification, Filling, check_texts, in_batches
from zoo.tasks.task import strings, unpadded

Text = str | tuple[str, str]


class TextReading(abc.ABC):
    """Makes batches of texts, asks a signature, and restores the order. A subclass answers for a signature.

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

    def _results(
        self, signature: str, texts: Sequence[Text], batch_size: int, result_of: Callable[[Text, dict[str, Any]], Any]
    ) -> list[Any]:
        """What a function makes of each text and its row of the outputs."""
        checked: Sequence[Any] = check_pairs(texts) if self.pairs else check_texts(texts)  # type: ignore[arg-type]

        def results(rows: list[int]) -> Iterator[Any]:
            chosen = [checked[row] for row in rows]
            names = ("text", "text_pair") if self.pairs else ("text",)
            columns = zip(*chosen, strict=True) if self.pairs else (chosen,)
            inputs = {name: strings(column) for name, column in zip(names, columns, strict=True)}
            found = {name: tensor.numpy() for name, tensor in self._ask(signature, **inputs).items()}
            for number, text in enumerate(chosen):
                yield result_of(text, {name: array[number] for name, array in found.items()})

        return in_batches(["".join(text) for text in checked], batch_size, results)

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

        def alignment(text: Text, found: dict[str, Any]) -> Alignment:
            tokens, weights = unpadded(found["tokens"]), found["weights"]
            shown = _shown(text)
            if len(weights) == 1 != len(tokens):
                return Alignment(tokens, [self._whole(text)], weights[:, : len(tokens)], source_text=shown)
            weights = weights[: len(tokens), : len(tokens)]
            return Alignment(tokens, tokens, weights, source_text=shown, target_text=shown)

        return self._results("attention", texts, batch_size, alignment)

    def attend_by_head(self, texts: Sequence[Text], batch_size: int = 32) -> list[AttentionGrid]:
        """What each token attends to, in each head of each layer.

        Returns:
            An `AttentionGrid` of each text, with one kind of attention. Its `choose` selects layers and heads.

        Raises:
            ValueError: `texts` is not such a list, or the model has no layers and heads of attention.
        """

        def grid(text: Text, found: dict[str, Any]) -> AttentionGrid:
            tokens = unpadded(found["tokens"])
            weights = found["weights"][..., : len(tokens), : len(tokens)]
            maps = AttentionMaps("Self-attention", tokens, tokens, weights)
            return AttentionGrid(maps, source_text=_shown(text), target_text=_shown(text))

        return self._results("attention_by_head", texts, batch_size, grid)

    def _whole(self, text: Text) -> str:
        """What stands beside the weights of a whole text in a picture."""
        return "text"


class TextClassification(TextReading):
    """Puts texts into classes."""

    def __call__(self, texts: Sequence[Text], batch_size: int = 32) -> list[str]:
        """The class of each text, see `classify`."""
        return [each.label for each in self.classify(texts, batch_size)]

    def classify(self, texts: Sequence[Text], batch_size: int = 32) -> list[Classification]:
        """Puts texts into classes.

        Args:
            texts: a list of strings, or of pairs of strings for a model of pairs. A longer text is cut off.
            batch_size: how many are read at once.

        Returns:
            A `Classification` for each text, in the same order.

        Raises:
            ValueError: `texts` is not such a list.
        """

        def classification(text: Text, found: dict[str, Any]) -> Classification:
            labels = [label.decode() for label in found["labels"]]
            probabilities = dict(zip(labels, map(float, found["probabilities"]), strict=True))
            return Classification(text, labels[0], probabilities[labels[0]], probabilities)

        return self._results("classify", texts, batch_size, classification)

    def _whole(self, text: Text) -> str:
        return self([text])[0]


class TextEmbedding(TextReading):
    """Turns texts into vectors."""

    def __call__(self, texts: Sequence[str], batch_size: int = 32) -> np.ndarray:
        """The vectors of the texts, see `embed`."""
        return self.embed(texts, batch_size)

    def embed(self, texts: Sequence[str], batch_size: int = 32) -> np.ndarray:
        """Turns texts into vectors. Texts of similar meaning have similar vectors, if the model was trained for it.

        Args:
            texts: a list of strings. A longer text is cut off.
            batch_size: how many are read at once.

        Returns:
            Vectors `(N, D)` in float32, in the order of the texts. Of a model that normalises, they have the length 1.

        Raises:
            ValueError: `texts` is not a list of strings.
        """
        vectors = self._results("embed", texts, batch_size, lambda text, found: found["embedding"])
        if not vectors:  # the width is that of any text
            return np.zeros((0, self.embed([""]).shape[1]), np.float32)
        return np.stack(vectors)


class MaskFilling(TextReading):
    """Fills the masks of texts."""

    def __call__(self, texts: Sequence[str], batch_size: int = 32) -> list[str]:
        """Each text with the most probable token in the place of each mask, see `fill`."""
        return [each.filled for each in self.fill(texts, batch_size)]

    def fill(self, texts: Sequence[str], batch_size: int = 32) -> list[Filling]:
        """Fills the masks of texts, each independently of the others in its text.

        Args:
            texts: a list of strings with masks such as `[MASK]`. A longer text is cut off.
            batch_size: how many are read at once.

        Returns:
            A `Filling` for each text, in the same order; without candidates if the text has no mask.

        Raises:
            ValueError: `texts` is not a list of strings.
        """

        def filling(text: Text, found: dict[str, Any]) -> Filling:
            candidates = tuple(
                {token.decode(): float(p) for token, p in zip(*row, strict=True)}
                for row in zip(found["tokens"], found["probabilities"], strict=True)
                if row[0][0]
            )
            return Filling(str(text), found["text"].decode(), candidates)

        return self._results("fill", texts, batch_size, filling)


def check_pairs(texts: Sequence[Text]) -> list[tuple[str, str]]:
    """The pairs of texts as a list of tuples.

    Raises:
        ValueError: they are not a list of pairs of strings.
    """
    if isinstance(texts, str):
        raise ValueError(f"`texts` must be a list of pairs of strings. Received: {texts!r}")
    pairs: list[Any] = [tuple(pair) if isinstance(pair, tuple | list) else pair for pair in texts]
    for position, pair in enumerate(pairs):
        if not isinstance(pair, tuple) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise ValueError(f"`texts` must hold pairs of strings. Received: {pair!r} at position {position}")
    return pairs


def _shown(text: Text) -> str:
    return text if isinstance(text, str) else " | ".join(text)
