"""The calls of everything that continues a text, whether a Keras model or a SavedModel does the work."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.pictures import Alignment, AttentionGrid, AttentionMaps
from zoo.tasks.exploring import Explorable
from zoo.tasks.protocol import Generates, check_texts, in_batches
from zoo.tasks.results import NextToken, Score, Tokens
from zoo.tasks.settings import DEFAULTS, SETTINGS, column
from zoo.tasks.task import as_arrays, shown_tokens, unpadded


class TextContinuation(Generates, Explorable):
    """Continues texts, scores them and shows what attends to what in them.

    A subclass gives functions of tensors. This class does the rest: it takes lists of any length, makes batches,
    and restores the order. `_explore` gives

    - for `next`: `tokens`, the `text` of each, and `probabilities` `(B, K)` of what may follow, at a `temperature`
      `(B,)`;
    - for `score_tokens`: `tokens` `(B, T)` of each text, as `_attend` gives them, and their `log_probabilities`.
    """

    @abc.abstractmethod
    def _generate(self, **tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        """From `text`, `stop` and all of `SETTINGS` to `text`, `log_probability` and `tokens`, all `(B,)`.

        `stop` has the stop strings of each row, with NULs between them.
        """

    @abc.abstractmethod
    def _score(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """`log_probability` and `tokens` of each text, `(B,)`."""

    @abc.abstractmethod
    def _attend(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """`tokens` `(B, T)` and `weights` `(B, T, T)` of each text."""

    @abc.abstractmethod
    def _attend_by_head(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """As `_attend`, with `weights` `(B, N, H, T, T)`."""

    def _scoring(self, stride: int | None) -> Callable[..., dict[str, tf.Tensor]]:
        """`_score`, with windows that begin `stride` tokens apart."""
        if stride is not None:
            raise ValueError(
                "An exported model scores with the stride that it was exported with. For another `stride` load what "
                f"was exported: a saved TextGenerator, or its run, runs/NAME. Received: stride={stride}"
            )
        return self._score

    def _check_room(self, texts: list[str]) -> None:
        """Raises a `ValueError` if a text does not fit into the context, where that is known."""

    def __call__(self, texts: Sequence[str], **settings: Any) -> list[str]:
        """The texts that `generate` gives, without their scores."""
        return [each.text for each in self.generate(texts, **settings)]

    def _generated(self, texts, columns, stop) -> Sequence[np.ndarray]:
        tensors = {name: tf.constant(values, SETTINGS[name].dtype) for name, values in columns.items()}
        found = as_arrays(self._generate, texts, **tensors, stop=tf.fill([len(texts)], stop))
        return [found[name] for name in ("text", "log_probability", "tokens")]

    def stream(self, text: str, **settings: Any) -> Iterator[str]:
        """Continues one text as `generate` does, and gives each piece as soon as it is written.

        An exported model gives the text in one piece, since a signature gives its outputs at once.

        Args:
            text: the prompt; it may be empty.
            **settings: the settings of `generate`, without `batch_size`.

        Returns:
            An iterator over pieces, none of them empty, that together are the text of `generate` for the same seed.

        Raises:
            ValueError: as `generate`.
        """
        return iter([each for each in self([text], **settings) if each])

    def score(self, texts: Sequence[str], batch_size: int = 32, stride: int | None = None) -> list[Score]:
        """How likely texts are.

        A text that is longer than the model's context is read in overlapping windows, and each of its tokens is counted
        once, see `zoo.decoding.score_in_windows`.

        Args:
            texts: a list of strings, of any length.
            batch_size: how many are scored at once.
            stride: the distance in tokens between the starts of two windows, from 1 to the context's length. A smaller
                stride gives each token more context, and takes longer. None for the generator's own.

        Returns:
            A `Score` for each text, in the same order.

        Raises:
            ValueError: `texts` is not a list of strings, or `stride` is out of its range or given to an exported model.
        """
        texts, function = check_texts(texts), self._scoring(stride)

        def scores(rows):
            found = as_arrays(function, [texts[row] for row in rows])
            for row, log_probability, tokens in zip(rows, found["log_probability"], found["tokens"], strict=True):
                yield Score(texts[row], float(log_probability), int(tokens))

        return in_batches(texts, batch_size, scores)

    def next_tokens(
        self,
        texts: Sequence[str],
        temperature: float | Sequence[float] = DEFAULTS["temperature"],
        batch_size: int = 32,
        hidden: Sequence[Sequence[int]] | None = None,
        heads: Sequence[Sequence[str]] | None = None,
    ) -> list[list[NextToken]]:
        """The 20 most likely tokens behind each text, the most likely first.

        Args:
            texts: a list of strings, of any length.
            temperature: the probabilities are those of a draw at this temperature, see `generate`; one for all texts,
                or a list with one for each.
            batch_size: how many are read at once.
            hidden: for each text the positions of its tokens, from 0, that no later token may attend to; None for none.
            heads: for each text the names of heads whose output is zero: layer and number, such as "1.3"; None for
                none.

        Raises:
            ValueError: `texts` is not a list of strings, `temperature` is out of its range, `hidden` or `heads` does
                not hold a list for each text, the model takes no `hidden` or no `heads`, or has no such head. An
                exported model ignores a head that it lacks.
        """
        texts = check_texts(texts)
        written = self._masks("next", len(texts), hidden, heads)
        temperatures = column("temperature", temperature, len(texts), SETTINGS["temperature"])

        def candidates(rows):
            of_rows = tf.constant(temperatures[rows], tf.float32)
            found = self._explored("next", texts, rows, written, temperature=of_rows)
            for tokens, probabilities in zip(found["tokens"], found["probabilities"], strict=True):
                pairs = zip(tokens, probabilities.tolist(), strict=True)
                yield [NextToken(token.decode(), probability) for token, probability in pairs]

        return in_batches(texts, batch_size, candidates)

    def score_tokens(
        self,
        texts: Sequence[str],
        batch_size: int = 32,
        hidden: Sequence[Sequence[int]] | None = None,
        heads: Sequence[Sequence[str]] | None = None,
    ) -> list[Tokens]:
        """The probability of each token of a text, given those before it.

        Args:
            texts: a list of strings.
            batch_size: how many are read at once.
            hidden: see `next_tokens`.
            heads: see `next_tokens`.

        Returns:
            The tokens of each text with their log-probabilities: a start token first, if the model was trained with
            one. The first token has 0, because it has no token before it.

        Raises:
            ValueError: `texts` is not a list of strings, or one is longer than the context. An exported model does not
                report its context, and scores as much of a text as fits. Of masks, see `next_tokens`.
        """
        texts = check_texts(texts)
        written = self._masks("score_tokens", len(texts), hidden, heads)
        self._check_room(texts)

        def scored(rows):
            found = self._explored("score_tokens", texts, rows, written)
            for row, tokens, scores in zip(rows, found["tokens"], found["log_probabilities"], strict=True):
                pieces = tuple(unpadded(tokens))
                yield Tokens(pieces, tuple(scores[: len(pieces)].tolist()), texts[row])

        return in_batches(texts, batch_size, scored)

    def attend(self, texts: Sequence[str], batch_size: int = 32) -> list[Alignment]:
        """What each token of a text attends to, itself and those before it: the mean of the last layer's heads.

        Args:
            texts: a list of strings.
            batch_size: how many are read at once.

        Returns:
            An `Alignment` of each text with itself, a start token included if the model was trained with one. The row
            of a token shows what the model attended to when it predicted the next token.

        Raises:
            ValueError: `texts` is not a list of strings, one has no tokens, or one is longer than the context. An
                exported model does not report its context, and shows as much of a text as fits.
        """

        def alignment(text, tokens, weights):
            return Alignment(tokens, tokens, weights, source_text=text, target_text=text)

        return self._drawn(self._attend, texts, batch_size, alignment)

    def attend_by_head(self, texts: Sequence[str], batch_size: int = 32) -> list[AttentionGrid]:
        """As `attend`, in each head of each layer.

        Returns:
            An `AttentionGrid` of each text, with one kind of attention. Its `choose` selects layers and heads.
        """

        def grid(text, tokens, weights):
            maps = AttentionMaps("Self-attention", tokens, tokens, weights)
            return AttentionGrid(maps, source_text=text, target_text=text)

        return self._drawn(self._attend_by_head, texts, batch_size, grid)

    def _drawn(self, function, texts, batch_size, make):
        """What `make` gives for each text, its tokens and their weights."""
        texts = check_texts(texts)
        self._check_room(texts)

        def drawn(rows):
            found = as_arrays(function, [texts[row] for row in rows])
            for row, tokens, weights in zip(rows, found["tokens"], found["weights"], strict=True):
                tokens = shown_tokens(tokens, row)
                yield make(texts[row], tokens, weights[..., : len(tokens), : len(tokens)])

        return in_batches(texts, batch_size, drawn)
