"""Texts in, texts out: what the zoo's exports do, asked of a server; by REST without TensorFlow."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.serving.clients.metadata import Signature
from zoo.tasks.generation_settings import DEFAULTS, STOP_SEPARATOR, Setting, check_settings, column
from zoo.tasks.results import Generation, Score, Translation
from zoo.tasks.text_lists import check_texts, in_batches

# For a length above its own, or a penalty out of its range, a translator takes its own: so these stand for what was not
# given.
TRANSLATION_SETTINGS = {
    "max_target_length": Setting("int32", 2**31 - 1, 0, 2**31 - 1),
    "length_penalty": Setting("float32", -1.0),
}


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
            for name, setting in TRANSLATION_SETTINGS.items():
                value = setting.default if given[name] is None else given[name]
                columns[name] = column(name, value, len(texts), setting)
        signature = "generate" if columns else "serving_default"

        def translations(rows):
            settings = {name: each[rows] for name, each in columns.items()}
            found = self._rows(signature, ("text", "score"), text=[texts[row] for row in rows], **settings)
            for row, text, score in zip(rows, *found, strict=True):
                yield Translation(texts[row], text.decode(), float(score))

        return in_batches(texts, batch_size, translations)

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
        settings = (max_new_tokens, temperature, top_k, top_p, repetition_penalty, seed, stop)
        columns, ends = check_settings(len(texts), *settings)
        outputs = ("text", "log_probability", "tokens")

        def generations(rows):
            inputs = {name: each[rows] for name, each in columns.items()}
            inputs["stop"] = [STOP_SEPARATOR.join(ends).decode()] * len(rows)
            found = self._rows("generate", outputs, text=[texts[row] for row in rows], **inputs)
            for row, text, log_probability, tokens in zip(rows, *found, strict=True):
                yield Generation(texts[row], text.decode(), float(log_probability), int(tokens))

        return in_batches(texts, batch_size, generations)

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

        def scores(rows):
            more = {} if targets is None else {"target": [scored[row] for row in rows]}
            found = self._rows("score", ("log_probability", "tokens"), text=[texts[row] for row in rows], **more)
            for row, log_probability, tokens in zip(rows, *found, strict=True):
                yield Score(scored[row], float(log_probability), int(tokens))

        return in_batches(texts, batch_size, scores)

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
