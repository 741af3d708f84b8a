"""The face of everything that goes on with a text, whether a Keras model or a SavedModel does the work."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from zoo.pictures import Alignment, AttentionGrid, AttentionMaps
from zoo.tasks.arrays import as_arrays, unpadded
from zoo.tasks.generation_settings import DEFAULTS, SETTINGS, STOP_SEPARATOR, check_settings
from zoo.tasks.results import Generation, Score
from zoo.tasks.text_lists import check_texts, in_batches


class TextContinuation(abc.ABC):
    """Goes on with texts, tells how likely they are, and shows what attends to what in them.

    A subclass gives functions of tensors. All else, lists of any length, their batches and their order, is here.
    """

    _has_start = False  # whether a start token stands before a text, where that is known

    @abc.abstractmethod
    def _generate(self, **tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        """`text`, `log_probability` and `tokens`, `(B,)` each, of `text`, `stop` and all of `SETTINGS`, `(B,)` each.

        `stop` has any number of strings for each row, with NULs between them.
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

    @abc.abstractmethod
    def _check_room(self, texts: list[str], new: int) -> None:
        """Raises a `ValueError` if a text does not fit into the context together with so many new tokens."""

    def __call__(self, texts: Sequence[str], **settings: Any) -> list[str]:
        """How texts go on: `generate`, without what else it tells."""
        return [each.text for each in self.generate(texts, **settings)]

    def generate(
        self,
        texts: Sequence[str],
        max_new_tokens: int | Sequence[int] = DEFAULTS["max_new_tokens"],
        temperature: float | Sequence[float] = DEFAULTS["temperature"],
        top_k: int | Sequence[int] = DEFAULTS["top_k"],
        top_p: float | Sequence[float] = DEFAULTS["top_p"],
        repetition_penalty: float | Sequence[float] = DEFAULTS["repetition_penalty"],
        seed: int | Sequence[int] | None = None,
        stop: str | Sequence[str] = (),
        batch_size: int = 32,
    ) -> list[Generation]:
        """Goes on with each text, token by token, until an end token, a stop string or the end of the context.

        Every number is one for all texts, or a list of one each. A text's continuation depends on that text, its
        settings and its seed alone.

        Args:
            texts: a list of strings, of any length; empty ones too.
            max_new_tokens: the most tokens that are added.
            temperature: what logits are divided by: below 1 likely tokens become likelier; 0 takes the likeliest.
            top_k: draw from the so many likeliest tokens alone; 0 for all.
            top_p: draw from the likeliest tokens alone that together have this share of the probability; 1 for all.
            repetition_penalty: above 1, what has been written before becomes less likely; 1 for none.
            seed: what the choices follow from. With one for all, text number i has `seed + i`; None for any.
            stop: strings, of at most 64 bytes, at which a text ends, before them.
            batch_size: how many go on at once.

        Returns:
            A `Generation` a text, in the same order.

        Raises:
            ValueError: `texts` is not a list of strings, a number is out of its range or not one a text, or a prompt
                leaves no room in the context, where that is known: what was exported reads the end of it.
        """
        texts = check_texts(texts)
        settings = (max_new_tokens, temperature, top_k, top_p, repetition_penalty, seed, stop)
        columns, ends = check_settings(len(texts), *settings)
        self._check_room(texts, 1)

        def generations(rows):
            tensors = {name: tf.constant(column[rows], SETTINGS[name].dtype) for name, column in columns.items()}
            tensors["stop"] = tf.fill([len(rows)], STOP_SEPARATOR.join(ends))
            found = as_arrays(self._generate, [texts[row] for row in rows], **tensors)
            results = (found[name] for name in ("text", "log_probability", "tokens"))
            for row, text, log_probability, tokens in zip(rows, *results, strict=True):
                yield Generation(texts[row], text.decode(), float(log_probability), int(tokens))

        return in_batches(texts, batch_size, generations)

    def stream(self, text: str, **settings: Any) -> Iterator[str]:
        """Goes on with one text as `generate` does, and gives what it writes piece by piece, as it comes.

        What was exported has no way to tell a part of a text, and gives it in one piece.

        Args:
            text: the prompt; it may be empty.
            **settings: the settings of `generate`, but for `batch_size`.

        Returns:
            An iterator over pieces, never empty, that together are the text that `generate` gives for the same seed.

        Raises:
            ValueError: as `generate`.
        """
        return iter([each for each in self([text], **settings) if each])

    def score(self, texts: Sequence[str], batch_size: int = 32) -> list[Score]:
        """How likely texts are.

        Args:
            texts: a list of strings, of any length.
            batch_size: how many are scored at once.

        Returns:
            A `Score` a text, in the same order.

        Raises:
            ValueError: `texts` is not a list of strings, or one is longer than the context, where that is known: what
                was exported leaves out the end of the text.
        """
        texts = check_texts(texts)
        self._check_room(texts, 0)

        def scores(rows):
            found = as_arrays(self._score, [texts[row] for row in rows])
            for row, log_probability, tokens in zip(rows, found["log_probability"], found["tokens"], strict=True):
                yield Score(texts[row], float(log_probability), int(tokens))

        return in_batches(texts, batch_size, scores)

    def attend(self, texts: Sequence[str], batch_size: int = 32) -> list[Alignment]:
        """What each token of a text attends to, itself and those before it: the mean of the last layer's heads.

        Args:
            texts: a list of strings.
            batch_size: how many are read at once.

        Returns:
            An `Alignment` of each text with itself, a start token included if the model was trained with one. The row
            of a token is what the next one is predicted from.

        Raises:
            ValueError: `texts` is not a list of strings, one has no tokens, or one is longer than the context, where
                that is known: what was exported leaves out the end of the text.
        """

        def alignment(text, tokens, weights):
            return Alignment(tokens, tokens, weights, source_text=text, target_text=text)

        return self._drawn(self._attend, texts, batch_size, alignment)

    def attend_by_head(self, texts: Sequence[str], batch_size: int = 32) -> list[AttentionGrid]:
        """As `attend`, in each head of each layer.

        Returns:
            An `AttentionGrid` of each text, with one kind of attention. Its `choose` leaves some of the heads.
        """

        def grid(text, tokens, weights):
            maps = AttentionMaps("Self-attention", tokens, tokens, weights)
            return AttentionGrid(maps, source_text=text, target_text=text)

        return self._drawn(self._attend_by_head, texts, batch_size, grid)

    def _drawn(self, function, texts, batch_size, make):
        """What is made of each text, its tokens and their weights."""
        texts = check_texts(texts)
        self._check_room(texts, int(self._has_start))

        def drawn(rows):
            found = as_arrays(function, [texts[row] for row in rows])
            for row, tokens, weights in zip(rows, found["tokens"], found["weights"], strict=True):
                tokens = unpadded(tokens)
                if not tokens:
                    raise ValueError(f"The text at position {row} has no tokens whose attention could be shown.")
                yield make(texts[row], tokens, weights[..., : len(tokens), : len(tokens)])

        return in_batches(texts, batch_size, drawn)
