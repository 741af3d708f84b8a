"""Texts in, texts out: what the zoo's exports do, asked of a server.

The settings and defaults are those of `zoo.TextGenerator`. They are written out once more since that needs TensorFlow,
which a client by REST does without.
"""

from __future__ import annotations

import abc
import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.serving.clients.metadata import Signature
from zoo.tasks.results import Generation, Score, Translation
from zoo.tasks.text_lists import check_texts, rows_of_batches

_LIMITS = {
    "max_new_tokens": (0, 2**31 - 1),
    "temperature": (0, math.inf),
    "top_k": (0, 2**31 - 1),
    "top_p": (0, 1),
    "repetition_penalty": (1e-6, math.inf),
}
SETTINGS = (*_LIMITS, "seed", "stop")
_LONGEST_STOP = 64  # bytes
# For values out of its range a translator takes its own, so these stand for what was not given.
_OWN = {"max_target_length": 2**31 - 1, "length_penalty": -1.0}
TRANSLATION_SETTINGS = tuple(_OWN)


class TextCalls(abc.ABC):
    """Translates, goes on with texts and scores them by `predict`, batch by batch."""

    @abc.abstractmethod
    def predict(self, signature: str = "serving_default", **inputs: Any) -> dict[str, np.ndarray]:
        """The outputs of a signature."""

    @abc.abstractmethod
    def _signature(self, name: str) -> Signature:
        """What a signature takes and gives; a `ValueError` if there is no such signature."""

    def translate(
        self,
        texts: Sequence[str],
        batch_size: int = 32,
        max_target_length: int | Sequence[int] | None = None,
        length_penalty: float | Sequence[float] | None = None,
    ) -> list[Translation]:
        """Translates texts by an exported `Translator`.

        With a setting it is done by the signature `generate`, without any by `serving_default`.

        Args:
            texts: a list of strings, of any length.
            batch_size: how many are sent in one request, at most; a server that batches may take no more.
            max_target_length: the most tokens of a translation, one number for all or a list of one each; None, and
                anything above it, for the model's own.
            length_penalty: how much longer translations are favoured, likewise; None, and anything out of the model's
                range, for its own.

        Returns:
            A `Translation` a text, in the same order.

        Raises:
            ValueError: `texts` is not a list of strings, a setting is no number or not one a text, or the model is no
                translator, or has no such settings.
            ServingError: the server gave no answer.
        """
        texts = check_texts(texts)
        given = {"max_target_length": max_target_length, "length_penalty": length_penalty}
        columns: dict[str, np.ndarray] = {}
        if any(value is not None for value in given.values()):
            columns = {name: _column(name, _OWN[name] if each is None else each, texts) for name, each in given.items()}
        translations: dict[int, Translation] = {}
        for rows in rows_of_batches(texts, batch_size):
            settings = {name: column[rows] for name, column in columns.items()}
            signature = "generate" if settings else "serving_default"
            found = self._rows(signature, ("text", "score"), text=[texts[row] for row in rows], **settings)
            for row, text, score in zip(rows, *found, strict=True):
                translations[row] = Translation(texts[row], text.decode(), float(score))
        return [translations[row] for row in range(len(texts))]

    def generate(
        self,
        texts: Sequence[str],
        max_new_tokens: int | Sequence[int] = 256,
        temperature: float | Sequence[float] = 1.0,
        top_k: int | Sequence[int] = 0,
        top_p: float | Sequence[float] = 1.0,
        repetition_penalty: float | Sequence[float] = 1.0,
        seed: int | Sequence[int] | None = None,
        stop: str | Sequence[str] = (),
        batch_size: int = 32,
    ) -> list[Generation]:
        """Goes on with texts by an exported `TextGenerator`, whose `generate` explains the settings.

        Every number is one for all texts, or a list of one each. With one seed for all, text number i has `seed + i`.

        Args:
            texts: a list of strings, of any length; empty ones too.
            max_new_tokens: the most tokens that are added.
            temperature: below 1 likely tokens become likelier; 0 takes the likeliest.
            top_k: draw from the so many likeliest tokens alone; 0 for all.
            top_p: draw from the likeliest tokens alone that together have this share of the probability; 1 for all.
            repetition_penalty: above 1, what has been written before becomes less likely; 1 for none.
            seed: what the choices follow from; None for any.
            stop: strings, of at most 64 bytes, at which a text ends, before them.
            batch_size: how many are sent in one request, at most.

        Returns:
            A `Generation` a text, in the same order.

        Raises:
            ValueError: `texts` is not a list of strings, a setting is out of its range, or the model does not generate.
            ServingError: the server gave no answer.
        """
        texts = check_texts(texts)
        given = (max_new_tokens, temperature, top_k, top_p, repetition_penalty)
        columns = {name: _column(name, value, texts) for name, value in zip(_LIMITS, given, strict=True)}
        seed = random.randrange(2**31 - 1) if seed is None else seed
        seeds = _column("seed", seed, texts)
        columns["seed"] = seeds + np.arange(len(texts)) if np.ndim(seed) == 0 else seeds
        stop = _joined(stop)
        generations: dict[int, Generation] = {}
        for rows in rows_of_batches(texts, batch_size):
            settings = {name: column[rows] for name, column in columns.items()}
            found = self._rows(
                "generate",
                ("text", "log_probability", "tokens"),
                text=[texts[row] for row in rows],
                stop=[stop] * len(rows),
                **settings,
            )
            for row, text, log_probability, tokens in zip(rows, *found, strict=True):
                generations[row] = Generation(texts[row], text.decode(), float(log_probability), int(tokens))
        return [generations[row] for row in range(len(texts))]

    def score(self, texts: Sequence[str], targets: Sequence[str] | None = None, batch_size: int = 32) -> list[Score]:
        """How likely texts are, by an exported `TextGenerator`; or targets as their translations, by a `Translator`.

        Args:
            texts: a list of strings, of any length.
            targets: for a translator, as many translations, one of each.
            batch_size: how many are sent in one request, at most.

        Returns:
            A `Score` of each text or target, in the same order.

        Raises:
            ValueError: not lists of strings of one length, or the model does not score, or is of the other kind.
            ServingError: the server gave no answer.
        """
        texts = check_texts(texts)
        scored = texts if targets is None else check_texts(targets)
        if len(scored) != len(texts):
            raise ValueError(f"`targets` must be as many as `texts`, {len(texts)}. Received: {len(scored)}")
        scores: dict[int, Score] = {}
        for rows in rows_of_batches(texts, batch_size):
            more = {} if targets is None else {"target": [scored[row] for row in rows]}
            found = self._rows("score", ("log_probability", "tokens"), text=[texts[row] for row in rows], **more)
            for row, log_probability, tokens in zip(rows, *found, strict=True):
                scores[row] = Score(scored[row], float(log_probability), int(tokens))
        return [scores[row] for row in range(len(texts))]

    def _rows(self, signature: str, wanted: Sequence[str], **inputs) -> list[np.ndarray]:
        """The wanted outputs, `(B,)` each."""
        given = self._signature(signature).outputs  # before a model of another kind does the work in vain
        if not given.keys() >= set(wanted):
            raise ValueError(
                f"The model is of another kind: its signature {signature!r} gives {', '.join(given)}, not "
                f"{', '.join(wanted)}."
            )
        found = self.predict(signature, **inputs)
        return [found[name] for name in wanted]


def _column(name: str, value: Any, texts: list[str]) -> np.ndarray:
    """One number a text, from one for all or from a list; whether whole or not, the signature says."""
    column = np.asarray(value)
    if column.dtype.kind not in "iuf":
        raise ValueError(f"`{name}` must be a number. Received: {name}={value!r}")
    if column.ndim > 1 or (column.ndim and len(column) != len(texts)):
        raise ValueError(f"`{name}` must be one number, or one for each of the {len(texts)} texts. Received: {value!r}")
    least, most = _LIMITS.get(name, (-math.inf, math.inf))
    if not ((column >= least) & (column <= most)).all():
        limits = f"at least {least}" if most == math.inf else f"from {least} to {most}"
        raise ValueError(f"`{name}` must be {limits}. Received: {name}={value!r}")
    return np.broadcast_to(column, len(texts))


def _joined(stop: str | Sequence[str]) -> str:
    """The stop strings as the signature takes them: with NULs between."""
    stop = [stop] if isinstance(stop, str) else list(stop)
    for each in stop:
        if not isinstance(each, str) or not 1 <= len(each.encode("utf-8", "replace")) <= _LONGEST_STOP or "\0" in each:
            raise ValueError(f"`stop` must hold strings of 1 to {_LONGEST_STOP} bytes, without NUL. Received: {each!r}")
    return "\0".join(stop)
