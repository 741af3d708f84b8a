"""Tasks without TensorFlow, alike for a model in this process, a SavedModel and a server: texts in, results out."""

from __future__ import annotations

import abc
import numbers
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, AnyStr, TypeVar

import numpy as np

from zoo.tasks.results import Classification, Filling, Generation, Text
from zoo.tasks.settings import DEFAULTS, STOP_SEPARATOR, check_settings, has_entries

Result = TypeVar("Result")
_FIRST_TOKENS = 8  # of the first piece of a growing text

# Lists of texts.

_NO_LISTS = (str, bytes, Mapping, Set)  # what can be iterated over, but has no texts, or no order of them


def check_texts(texts: Sequence[str]) -> list[str]:
    """The texts as a list.

    Raises:
        ValueError: they are not a list of strings.
    """
    if isinstance(texts, _NO_LISTS) or not has_entries(texts):
        raise ValueError(
            f"`texts` must be a list of strings; for one text, give a list of one. Received: {reprlib.repr(texts)}"
        )
    texts = list(texts)
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"`texts` must hold strings. Received: {reprlib.repr(text)} at position {position}")
    return texts


def check_pairs(texts: Sequence[Text]) -> list[tuple[str, str]]:
    """The pairs of texts as a list of tuples.

    Raises:
        ValueError: they are not a list of pairs of strings.
    """
    if isinstance(texts, _NO_LISTS) or not has_entries(texts):
        raise ValueError(f"`texts` must be a list of pairs of strings. Received: {reprlib.repr(texts)}")
    pairs: list[Any] = [tuple(pair) if isinstance(pair, tuple | list) else pair for pair in texts]
    for position, pair in enumerate(pairs):
        if not isinstance(pair, tuple) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise ValueError(
                f"`texts` must hold pairs of strings. Received: {reprlib.repr(pair)} at position {position}"
            )
    return pairs


def check_batch_size(batch_size: Any) -> None:
    """Checks how many texts are computed at once.

    Raises:
        ValueError: it is no integer, or below 1.
    """
    if isinstance(batch_size, bool) or not isinstance(batch_size, numbers.Integral):
        raise ValueError(f"`batch_size` must be an integer. Received: batch_size={batch_size!r}")
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be at least 1. Received: batch_size={batch_size}")


def rows_of_batches(texts: Sequence[str], batch_size: int) -> Iterator[list[int]]:
    """The places of the texts, batch by batch. Texts of similar length share a batch, which saves padding.

    Raises:
        ValueError: as `check_batch_size`.
    """
    check_batch_size(batch_size)
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    for begin in range(0, len(texts), batch_size):
        yield order[begin : begin + batch_size]


def in_batches(texts: list[str], batch_size: int, results_of: Callable[[list[int]], Iterable[Result]]) -> list[Result]:
    """The results of a function for all texts, in their order. Each call of the function gets the places of one batch.

    Raises:
        ValueError: as `check_batch_size`.
    """
    found: dict[int, Result] = {}
    for rows in rows_of_batches(texts, batch_size):
        found.update(zip(rows, results_of(rows), strict=True))
    return [found[row] for row in range(len(texts))]


# Tasks that write.


class GrowingText:
    """A text that is asked for again and again, with more tokens each time, since a signature gives its output at once.

    The same seed draws the same tokens, so each answer begins with the one before. What may still change at its end is
    held back: the bytes of a broken character, and what may be the beginning of a stop string. Each answer has half as
    many tokens again as the one before: for N tokens the model computes about 3 N.

    Args:
        limit: the most tokens.
        stop: the stop strings.

    Attributes:
        size: how many tokens to ask for next.
        done: whether the text is complete.
    """

    def __init__(self, limit: int, stop: Sequence[bytes] = ()):
        self._limit, self._given = limit, ""
        self._stop = [each.decode("utf-8", "replace") for each in stop]
        self.size, self.done = min(_FIRST_TOKENS, limit), limit == 0

    def add(self, text: str, tokens: int) -> str:
        """What the answer for `size` tokens adds to the text; "" if nothing is certain yet.

        Raises:
            ValueError: the answer does not begin with the text so far, for example since another model gave it.
        """
        if not text.startswith(self._given):
            raise ValueError("the text changed while it was written; another version may answer now")
        self.done = tokens < self.size or self.size == self._limit
        self.size = min(self.size + self.size // 2, self._limit)
        certain = len(text) if self.done else len(self._certain(text))
        piece = text[len(self._given) : certain]
        self._given += piece
        return piece

    def _certain(self, text: str) -> str:
        text = text.rstrip("\N{REPLACEMENT CHARACTER}")
        return text[: len(text) - begun_stop(text, self._stop)]


def begun_stop(text: AnyStr, stop: Sequence[AnyStr]) -> int:
    """How many of the last characters or bytes may be the beginning of a stop string."""
    return max((n for each in stop for n in range(1, len(each)) if text.endswith(each[:n])), default=0)


class Generates(abc.ABC):
    """Continues texts. A subclass does the work for a batch."""

    @abc.abstractmethod
    def _generated(self, texts: list[str], columns: dict[str, np.ndarray], stop: bytes) -> Sequence[np.ndarray]:
        """Text, log-probability and number of tokens of each continuation, `(B,)` each.

        `columns` has all of `SETTINGS`, `(B,)` each; `stop` the stop strings, with NULs between them.
        """

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
        """Continues texts, token by token, until an end token, a stop string or `max_new_tokens`.

        A text may be longer than the model's context. When the context is full, the model reads the last half of it
        again and continues from there; of a longer prompt it reads only the last half. See `zoo.decoding.generate`.

        Every number is one for all texts, or a list with one for each. A continuation depends only on its text, its
        settings and its seed.

        Args:
            texts: a list of strings, of any length; empty ones too.
            max_new_tokens: the most tokens that are added, up to 65,536.
            temperature: the divisor of the logits: below 1 likely tokens become more likely; 0 takes the most likely.
            top_k: draw only from this many of the most likely tokens; 0 for all.
            top_p: draw only from the most likely tokens that together have this share of the probability; 1 for all.
            repetition_penalty: above 1, what has been written before becomes less likely; 1 for none.
            seed: determines the choices. With one for all, text number i has `seed + i`; None for any.
            stop: up to 16 strings of at most 64 bytes. A text ends before the first of them.
            batch_size: how many texts are continued at once; of a server, how many are sent in one request.

        Returns:
            A `Generation` for each text, in the same order.

        Raises:
            ValueError: `texts` is not a list of strings, a number is out of its range, a list does not have one
                number for each text, or the model cannot generate.
            ServingError: a server gave no answer.
        """
        texts = check_texts(texts)
        settings = (max_new_tokens, temperature, top_k, top_p, repetition_penalty, seed, stop)
        columns, ends = check_settings(len(texts), *settings)

        def generations(rows):
            of_rows = {name: values[rows] for name, values in columns.items()}
            found = self._generated([texts[row] for row in rows], of_rows, STOP_SEPARATOR.join(ends))
            for row, text, log_probability, tokens in zip(rows, *found, strict=True):
                yield Generation(texts[row], text.decode(), float(log_probability), int(tokens))

        return in_batches(texts, batch_size, generations)


# Tasks that read a text and write none.


class ReadsTexts(abc.ABC):
    """Makes batches of texts and restores the order. A subclass answers for a signature."""

    @abc.abstractmethod
    def _rows(self, signature: str, wanted: Sequence[str], **inputs: Any) -> Sequence[np.ndarray]:
        """Outputs of a signature of the inputs `text` and, of pairs, `text_pair`; each has a row for each text.

        Raises:
            ValueError: there is no such signature.
        """

    @abc.abstractmethod
    def _reads_pairs(self, signature: str) -> bool:
        """Whether a text is a pair of texts."""

    def _results(
        self,
        signature: str,
        wanted: Sequence[str],
        texts: Sequence[Text],
        batch_size: int,
        result_of: Callable[..., Result],
    ) -> list[Result]:
        """What a function makes of each text and its rows of the wanted outputs."""
        pairs = self._reads_pairs(signature)
        checked: Sequence[Any] = check_pairs(texts) if pairs else check_texts(texts)  # type: ignore[arg-type]

        def results(rows: list[int]) -> Iterator[Result]:
            chosen = [checked[row] for row in rows]
            columns = [list(column) for column in zip(*chosen, strict=True)] if pairs else [chosen]
            found = self._rows(signature, wanted, **dict(zip(("text", "text_pair"), columns, strict=False)))
            for each in zip(chosen, *found, strict=True):
                yield result_of(*each)

        return in_batches(["".join(text) for text in checked], batch_size, results)


class Classifies(ReadsTexts):
    """Puts texts into classes."""

    def classify(self, texts: Sequence[Text], batch_size: int = 32) -> list[Classification]:
        """Puts texts into classes.

        Args:
            texts: a list of strings, or of pairs of strings for a model of pairs. A longer text is cut off.
            batch_size: how many are read at once; of a server, how many are sent in one request.

        Returns:
            A `Classification` for each text, in the same order.

        Raises:
            ValueError: `texts` is not such a list, or the model is no classifier.
            ServingError: a server gave no answer.
        """

        def classification(text: Text, labels: np.ndarray, probabilities: np.ndarray) -> Classification:
            names = [label.decode() for label in labels]
            by_name = dict(zip(names, map(float, probabilities), strict=True))
            return Classification(text, names[0], by_name[names[0]], by_name)

        return self._results("classify", ("labels", "probabilities"), texts, batch_size, classification)


class Embeds(ReadsTexts):
    """Turns texts into vectors."""

    def embed(self, texts: Sequence[str], batch_size: int = 32) -> np.ndarray:
        """Turns texts into vectors. Texts of similar meaning have similar vectors, if the model was trained for it.

        Args:
            texts: a list of strings. A longer text is cut off.
            batch_size: how many are read at once; of a server, how many are sent in one request.

        Returns:
            Vectors `(N, D)` in float32, in the order of the texts. Of a model that normalises, they have the length 1.

        Raises:
            ValueError: `texts` is not a list of strings, or the model is no embedder.
            ServingError: a server gave no answer.
        """
        vectors = self._results("embed", ("embedding",), texts, batch_size, lambda text, vector: vector)
        if not vectors:  # the width is that of any text
            return np.zeros((0, self.embed([""]).shape[1]), np.float32)
        return np.stack(vectors)


class Fills(ReadsTexts):
    """Fills the masks of texts."""

    def fill(self, texts: Sequence[str], batch_size: int = 32) -> list[Filling]:
        """Fills the masks of texts, each independently of the others in its text.

        Args:
            texts: a list of strings with masks such as `[MASK]`. A longer text is cut off.
            batch_size: how many are read at once; of a server, how many are sent in one request.

        Returns:
            A `Filling` for each text, in the same order; without candidates if the text has no mask.

        Raises:
            ValueError: `texts` is not a list of strings, or the model fills no masks.
            ServingError: a server gave no answer.
        """

        def filling(text: str, filled: bytes, tokens: np.ndarray, probabilities: np.ndarray) -> Filling:
            candidates = tuple(
                {token.decode(): float(p) for token, p in zip(*row, strict=True)}
                for row in zip(tokens, probabilities, strict=True)
                if row[0][0]
            )
            return Filling(text, filled.decode(), candidates)

        return self._results("fill", ("text", "tokens", "probabilities"), texts, batch_size, filling)
