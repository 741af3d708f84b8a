"""The face of everything that goes on with a text, whether a Keras model or a SavedModel does the work."""

from __future__ import annotations

import abc
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.decoding.stop_strings import LONGEST
from zoo.pictures import Alignment, AttentionGrid, AttentionMaps
from zoo.tasks.padding import unpadded
from zoo.tasks.results import Generation, Score
from zoo.tasks.text_lists import check_texts
from zoo.tasks.text_to_text import batches_of

STOP_SEPARATOR = b"\0"
DTYPES = {
    "max_new_tokens": tf.int32,
    "temperature": tf.float32,
    "top_k": tf.int32,
    "top_p": tf.float32,
    "repetition_penalty": tf.float32,
    "seed": tf.int64,
}
DEFAULTS: dict[str, Any] = {
    "max_new_tokens": 256,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "repetition_penalty": 1.0,
}
_SEEDS = 2**31 - 1


class TextContinuation(abc.ABC):
    """Goes on with texts, tells how likely they are, and shows what attends to what in them.

    A subclass gives functions of tensors. All else, lists of any length, their batches and their order, is here.
    """

    _has_start = False  # whether a start token stands before a text, where that is known

    @abc.abstractmethod
    def _generate(self, **tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        """`text`, `log_probability` and `tokens`, `(B,)` each, of `text`, `stop` and all of `DTYPES`, `(B,)` each.

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
        columns, ends = check_settings(texts, *settings)
        self._check_room(texts, 1)
        generations: dict[int, Generation] = {}
        for rows, batch in batches_of(texts, batch_size):
            tensors = {name: tf.constant(column[rows], DTYPES[name]) for name, column in columns.items()}
            found = self._generate(text=batch, stop=tf.fill([len(rows)], STOP_SEPARATOR.join(ends)), **tensors)
            columns_found = (found[name].numpy() for name in ("text", "log_probability", "tokens"))
            for row, text, log_probability, tokens in zip(rows, *columns_found, strict=True):
                generations[row] = Generation(texts[row], text.decode(), float(log_probability), int(tokens))
        return [generations[row] for row in range(len(texts))]

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
        scores: dict[int, Score] = {}
        for rows, batch in batches_of(texts, batch_size):
            found = self._score(text=batch)
            for row, log_probability, tokens in zip(
                rows, found["log_probability"].numpy(), found["tokens"].numpy(), strict=True
            ):
                scores[row] = Score(texts[row], float(log_probability), int(tokens))
        return [scores[row] for row in range(len(texts))]

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
        drawn = [None] * len(texts)
        for rows, batch in batches_of(texts, batch_size):
            found = function(text=batch)
            for row, tokens, weights in zip(rows, found["tokens"].numpy(), found["weights"].numpy(), strict=True):
                tokens = unpadded(tokens)
                if not tokens:
                    raise ValueError(f"The text at position {row} has no tokens whose attention could be shown.")
                drawn[row] = make(texts[row], tokens, weights[..., : len(tokens), : len(tokens)])
        return drawn


def check_settings(
    texts: list[str],
    max_new_tokens=DEFAULTS["max_new_tokens"],
    temperature=DEFAULTS["temperature"],
    top_k=DEFAULTS["top_k"],
    top_p=DEFAULTS["top_p"],
    repetition_penalty=DEFAULTS["repetition_penalty"],
    seed=None,
    stop=(),
) -> tuple[dict[str, np.ndarray], list[bytes]]:
    """The settings of `TextContinuation.generate` as one number a text, by their names, and the stop strings.

    Raises:
        ValueError: a number is out of its range or not one a text, or a stop string is empty or too long.
    """
    seeds = random.randrange(_SEEDS) if seed is None else seed
    columns = {
        "max_new_tokens": _column("max_new_tokens", max_new_tokens, texts, least=0, most=2**31 - 1, whole=True),
        "temperature": _column("temperature", temperature, texts, least=0),
        "top_k": _column("top_k", top_k, texts, least=0, most=2**31 - 1, whole=True),
        "top_p": _column("top_p", top_p, texts, least=0, most=1),
        "repetition_penalty": _column("repetition_penalty", repetition_penalty, texts, least=1e-6),
        "seed": _column("seed", seeds, texts, whole=True),
    }
    if np.ndim(seeds) == 0:
        columns["seed"] = columns["seed"] + np.arange(len(texts))
    return columns, _checked_stop(stop)


def _column(name, value, texts, least=-math.inf, most=math.inf, whole=False):
    """One number a text, from one for all or from a list."""
    column = np.asarray(value)
    if column.dtype.kind not in ("iu" if whole else "iuf"):
        raise ValueError(f"`{name}` must be {'a whole number' if whole else 'a number'}. Received: {name}={value!r}")
    if column.ndim > 1 or (column.ndim and len(column) != len(texts)):
        raise ValueError(f"`{name}` must be one number, or one for each of the {len(texts)} texts. Received: {value!r}")
    if not ((column >= least) & (column <= most)).all():
        limits = f"at least {least}" if most == math.inf else f"from {least} to {most}"
        raise ValueError(f"`{name}` must be {limits}. Received: {name}={value!r}")
    return np.broadcast_to(column, len(texts))


def _checked_stop(stop):
    """The stop strings as bytes."""
    stop = [stop] if isinstance(stop, str) else list(stop)
    for each in stop:
        if not isinstance(each, str) or not 1 <= len(each.encode("utf-8", "replace")) <= LONGEST or "\0" in each:
            raise ValueError(f"`stop` must hold strings of 1 to {LONGEST} bytes, without NUL. Received: {each!r}")
    return [each.encode("utf-8", "replace") for each in stop]
