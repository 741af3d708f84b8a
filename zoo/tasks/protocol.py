"""Arguments and results of tasks, alike for a model in this process, a SavedModel and a server. No TensorFlow."""

from __future__ import annotations

import abc
import dataclasses
import math
import numbers
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

Result = TypeVar("Result")
Text = str | tuple[str, str]

# Results.


@dataclasses.dataclass(frozen=True)
class Translation:
    """One text and its translation.

    Attributes:
        source: the text that was given.
        text: the translation.
        score: the natural logarithm of the model's probability of `text`; at most 0. The end token counts, unless the
            text was cut off at its longest.
        alternatives: the next best translations of the same text, best first, if more than one was asked for. The order
            also depends on the length penalty, so an alternative may have a higher score. Two of them may be the same
            text, made of different tokens.
    """

    source: str
    text: str
    score: float
    alternatives: tuple[Translation, ...] = ()


@dataclasses.dataclass(frozen=True)
class Generation:
    """A text, and how the model continued it.

    Attributes:
        prompt: the text that was given.
        text: what follows it, without a stop string.
        log_probability: the natural logarithm of the model's probability of the new tokens, whatever the settings.
        tokens: the number of new tokens; the end token and those of a stop string count.
    """

    prompt: str
    text: str
    log_probability: float
    tokens: int


@dataclasses.dataclass(frozen=True)
class Score:
    """How likely a text is.

    Attributes:
        text: the text; of a translator, the translation.
        log_probability: the natural logarithm of its probability. A translator scores all its tokens, the end token
            included. A language model without a start token scores all but the first.
        tokens: the number of tokens that were scored.
    """

    text: str
    log_probability: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """The number of equally likely tokens that would be as uncertain; 1 for a text without tokens.

        Infinite for a text that the model cannot write.
        """
        try:
            return math.exp(-self.log_probability / max(self.tokens, 1))
        except OverflowError:
            return math.inf


@dataclasses.dataclass(frozen=True)
class Tokens:
    """The tokens of a text with their probabilities.

    Attributes:
        tokens: the visible piece of each token.
        log_probabilities: the natural logarithm of the model's probability of each, given those before it.
        text: the text that they make.
        ids: their ids, where a translator gives them.
    """

    tokens: tuple[str, ...]
    log_probabilities: tuple[float, ...]
    text: str
    ids: tuple[int, ...] = ()


def masks_as_strings(
    number: int,
    inputs: set[str],
    hidden: Sequence[Sequence[int]] | None = None,
    heads: Sequence[Sequence[str]] | None = None,
    head_sizes: Mapping[str, tuple[int, int]] | None = None,
) -> dict[str, list[str]]:
    """Tokens to hide and heads to switch off as the signatures take them: "2 3", "encoder.1.3".

    Args:
        number: how many texts there are.
        inputs: the names of what the signature takes.
        hidden: positions for each text, from 0; None for none.
        heads: names for each text; None for none.
        head_sizes: see `zoo.models.Masks`; None if they are not known, as those of an export. Then a head that the
            model lacks is ignored, as by the signatures.

    Returns:
        A string for each text, for those of the two that the signature takes.

    Raises:
        ValueError: not one list for each text, something else in it, or it is not empty and the signature takes none;
            a position is negative, or the model has no such head.
    """
    written = {}
    arguments: list[tuple[str, Any, type, str]] = [
        ("hidden", hidden, numbers.Integral, "lists of positions"),
        ("heads", heads, str, "lists of names of heads"),
    ]
    for name, rows, kind, what in arguments:
        rows = lists_for_texts(name, rows, number, kind, what)
        if name == "heads" and name in inputs and head_sizes is not None:
            _check_heads(rows, head_sizes)
        if name == "hidden":
            _check_positions(rows)
        if name in inputs:
            # Each once: a signature reads no more names than there are heads.
            written[name] = [" ".join(dict.fromkeys(map(str, given))) for given in rows]
        elif any(rows):
            raise ValueError(
                f"This model takes no `{name}`. A model with masks does, and an export of it with explore=True."
            )
    return written


def lists_for_texts(name: str, rows: Any, number: int, kind: type, what: str) -> list[list[Any]]:
    """The argument `name` as a list for each of `number` texts; empty lists if it is None.

    Args:
        name: the argument's name, for errors.
        rows: the argument.
        number: how many texts there are.
        kind: the type of what each list holds.
        what: what the argument holds, for errors: "lists of positions".

    Raises:
        ValueError: it does not hold such a list for each text.
    """
    if rows is None:
        return [[] for _ in range(number)]
    if isinstance(rows, str) or not isinstance(rows, Iterable):
        raise ValueError(f"`{name}` must hold {what}, one for each text. Received: {rows!r}")
    lists: list[list[Any]] = []
    for row, given in enumerate(rows):
        is_list = isinstance(given, Iterable) and not isinstance(given, str)
        entries = list(given) if is_list else [given]
        wrong = [each for each in entries if isinstance(each, bool) or not isinstance(each, kind)]
        if wrong or not is_list:
            raise ValueError(
                f"`{name}` must hold {what}. Received: {(wrong or entries)[0]!r} in the one at position {row}"
            )
        lists.append(entries)
    if len(lists) != number:
        raise ValueError(f"`{name}` must be as many as `texts`, {number}. Received: {len(lists)}")
    return lists


def _check_positions(rows: list[list[int]]) -> None:
    """Checks that no position is counted from the end, as an index of Python may be."""
    for row, positions in enumerate(rows):
        if min(positions, default=0) < 0:
            raise ValueError(
                f"`hidden` must hold positions from 0. Received: {min(positions)} in the list at position {row}"
            )


def _check_heads(rows: list[list[str]], sizes: Mapping[str, tuple[int, int]]) -> None:
    """Checks that a model of these sizes has all heads that the rows name."""
    known = {
        f"{kind}.{layer}.{head}".lstrip(".")
        for kind, (layers, number) in sizes.items()
        for layer in range(1, layers + 1)
        for head in range(1, number + 1)
    }
    for row, names in enumerate(rows):
        for name in names:
            if name not in known:
                ranges = [
                    " to ".join(f"{kind}.{place}".lstrip(".") for place in ("1.1", f"{layers}.{number}"))
                    for kind, (layers, number) in sizes.items()
                ]
                raise ValueError(
                    f"`heads` must name heads of this model, by layer and number: {', '.join(ranges)}. "
                    f"Received: {name!r} in the list at position {row}"
                )


@dataclasses.dataclass(frozen=True)
class NextToken:
    """A token that may come next.

    Attributes:
        token: its visible piece.
        probability: its probability among all tokens that the model may write.
        id: its id, where a translator gives it.
    """

    token: str
    probability: float
    id: int | None = None


@dataclasses.dataclass(frozen=True)
class Classification:
    """A text and its class.

    Attributes:
        text: the text, or the pair of texts, that was given.
        label: the most probable class.
        probability: its probability.
        probabilities: the probability of every class, the most probable first. They sum to 1, unless a text may belong
            to several classes.
    """

    text: Text
    label: str
    probability: float
    probabilities: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Filling:
    """A text whose masks are filled.

    Attributes:
        text: the text that was given, with its masks.
        filled: the text with the most probable token in place of each mask. It is written as the tokenizer
            writes, for example in lower case.
        candidates: for each mask the most probable tokens and their probabilities, the most probable first.
    """

    text: str
    filled: str
    candidates: tuple[dict[str, float], ...]


# Lists of texts.


def check_texts(texts: Sequence[str]) -> list[str]:
    """The texts as a list.

    Raises:
        ValueError: they are not a list of strings.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise ValueError(f"`texts` must be a list of strings; for one text, give a list of one. Received: {texts!r}")
    texts = list(texts)
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"`texts` must hold strings. Received: {text!r} at position {position}")
    return texts


def check_pairs(texts: Sequence[Text]) -> list[tuple[str, str]]:
    """The pairs of texts as a list of tuples.

    Raises:
        ValueError: they are not a list of pairs of strings.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise ValueError(f"`texts` must be a list of pairs of strings. Received: {texts!r}")
    pairs: list[Any] = [tuple(pair) if isinstance(pair, tuple | list) else pair for pair in texts]
    for position, pair in enumerate(pairs):
        if not isinstance(pair, tuple) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise ValueError(f"`texts` must hold pairs of strings. Received: {pair!r} at position {position}")
    return pairs


def rows_of_batches(texts: Sequence[str], batch_size: int) -> Iterator[list[int]]:
    """The places of the texts, batch by batch. Texts of similar length share a batch, which saves padding.

    Raises:
        ValueError: a batch size that is no integer, or below 1.
    """
    if isinstance(batch_size, bool) or not isinstance(batch_size, numbers.Integral):
        raise ValueError(f"`batch_size` must be an integer. Received: batch_size={batch_size!r}")
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be at least 1. Received: batch_size={batch_size}")
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    for begin in range(0, len(texts), batch_size):
        yield order[begin : begin + batch_size]


def in_batches(texts: list[str], batch_size: int, results_of: Callable[[list[int]], Iterable[Result]]) -> list[Result]:
    """The results of a function for all texts, in their order. Each call of the function gets the places of one batch.

    Raises:
        ValueError: a batch size that is no integer, or below 1.
    """
    found: dict[int, Result] = {}
    for rows in rows_of_batches(texts, batch_size):
        found.update(zip(rows, results_of(rows), strict=True))
    return [found[row] for row in range(len(texts))]


@dataclasses.dataclass(frozen=True)
class Failure:
    """What stands in place of a row's outputs if the row failed.

    Attributes:
        reason: one line.
    """

    reason: str


# Settings.


class Setting(NamedTuple):
    """A numeric setting with one value for each text.

    Attributes:
        dtype: name of the type in which a signature takes it.
        default: the value if none is given; None for no default.
        least: the least value.
        most: the largest value.
    """

    dtype: str
    default: Any = None
    least: float = -math.inf
    most: float = math.inf


SETTINGS = {
    # A window slides over a text of any length, so only this limit stops a model that never writes an end token.
    "max_new_tokens": Setting("int32", 256, 0, 65_536),
    "temperature": Setting("float32", 1.0, 0, 1_000_000),
    "top_k": Setting("int32", 0, 0, 2**31 - 1),
    "top_p": Setting("float32", 1.0, 0, 1),
    "repetition_penalty": Setting("float32", 1.0, 1e-6, 1e6),
    "seed": Setting("int64", None, -(2**62), 2**62),  # leaves room for the sum `seed + i` of each text
}
# Of a translator. A `max_target_length` above its own limit means that limit; a `length_penalty` out of range means its
# own. So do the defaults, which a client sends for a setting that was not given.
TRANSLATION_SETTINGS = {
    "max_target_length": Setting("int32", 2**31 - 1, 0, 2**31 - 1),
    "length_penalty": Setting("float32", -1.0),
}
DEFAULTS = {name: setting.default for name, setting in SETTINGS.items() if setting.default is not None}
# Inputs of signatures that a row need not have, if the signature takes all of them: of a generator, of a translator.
_OF_GENERATORS = {
    **{name: setting.default for name, setting in SETTINGS.items()},
    "seed": 0,  # not at random: a row that is computed twice must give the same
    "stop": "",
}
_OF_TRANSLATORS = {name: setting.default for name, setting in TRANSLATION_SETTINGS.items()}
# Inputs of the signatures by which people choose tokens. Each takes `hidden`; the model decides which others it takes.
_OF_CHOICES = {"hidden": "", "heads": "", "prefix": "", "temperature": DEFAULTS["temperature"]}
LONGEST_STOP = 64  # bytes
MOST_STOPS = 16  # a row's text is compared with all of them at each step
STOP_SEPARATOR = b"\0"
_SEEDS = 2**31 - 1
_FIRST_TOKENS = 8  # of the first piece of a growing text


def generates(specs: Mapping[str, Any]) -> bool:
    """Whether a signature takes all settings of a generator.

    Args:
        specs: its inputs by name, each with a `dtype`: NumPy's name of it, or "string".
    """
    return _takes(specs, _OF_GENERATORS)


def defaults_of(specs: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a signature's inputs that a row need not have, by their names.

    An input of another model may have the name of a setting and another meaning. So there are no defaults in a
    signature with only some of the settings of a generator or translator, in one without `text` and `hidden`, nor where
    one of them has another type than in the zoo's exports.

    Args:
        specs: as in `generates`.
    """
    choices = {name: value for name, value in _OF_CHOICES.items() if name in specs}
    kinds = [_OF_GENERATORS, _OF_TRANSLATORS]
    if _takes(specs, {"text": "", "hidden": ""}):
        kinds.append(choices)
    return {name: value for kind in kinds if _takes(specs, kind) for name, value in kind.items()}


def _takes(specs: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Whether there are inputs of these names that hold such values."""
    dtypes = {str: "string", int: "int", float: "float"}
    return all(name in specs and specs[name].dtype.startswith(dtypes[type(value)]) for name, value in values.items())


def check_settings(
    number: int,
    max_new_tokens: int | Sequence[int] = DEFAULTS["max_new_tokens"],
    temperature: float | Sequence[float] = DEFAULTS["temperature"],
    top_k: int | Sequence[int] = DEFAULTS["top_k"],
    top_p: float | Sequence[float] = DEFAULTS["top_p"],
    repetition_penalty: float | Sequence[float] = DEFAULTS["repetition_penalty"],
    seed: int | Sequence[int] | None = None,
    stop: str | Sequence[str] = (),
) -> tuple[dict[str, np.ndarray], list[bytes]]:
    """The settings of `number` texts by name, one value for each text; and the stop strings.

    Raises:
        ValueError: a number is out of its range, a list does not have one number for each text, or stop strings are too
            many, empty or too long.
    """
    seeds = random.randrange(_SEEDS) if seed is None else seed
    given = (max_new_tokens, temperature, top_k, top_p, repetition_penalty, seeds)
    columns = {
        name: column(name, value, number, setting)
        for (name, setting), value in zip(SETTINGS.items(), given, strict=True)
    }
    columns["seed"] = columns["seed"].astype(np.int64)  # of unsigned ones NumPy would make floats in the sum
    if np.ndim(seeds) == 0:
        columns["seed"] = columns["seed"] + np.arange(number)
    return columns, _checked_stop(stop)


def column(name: str, value: Any, number: int, setting: Setting) -> np.ndarray:
    """A number for each text, made from one for all or from a list.

    Raises:
        ValueError: it is not a number, it is out of range, or a list does not have one number for each text.
    """
    found = np.asarray(value)
    whole = setting.dtype.startswith("int")
    # NumPy keeps integers of more than 64 bits as objects. They are out of any range.
    is_too_large = found.dtype == object and all(type(each) is int for each in found.flat)
    if found.size and not is_too_large and found.dtype.kind not in ("iu" if whole else "iuf"):
        raise ValueError(f"`{name}` must be {'a whole number' if whole else 'a number'}. Received: {name}={value!r}")
    if found.ndim > 1 or (found.ndim and len(found) != number):
        raise ValueError(f"`{name}` must be one number, or one for each of the {number} texts. Received: {value!r}")
    if not ((found >= setting.least) & (found <= setting.most)).all():
        limits = f"from {setting.least} to {setting.most}" if setting.most < math.inf else f"at least {setting.least}"
        raise ValueError(f"`{name}` must be {limits}. Received: {name}={value!r}")
    return np.broadcast_to(found, number)


def _checked_stop(stop: str | Sequence[str]) -> list[bytes]:
    if not isinstance(stop, Iterable):
        raise ValueError(f"`stop` must be a string or several. Received: stop={stop!r}")
    stop = [stop] if isinstance(stop, str) else list(stop)
    if len(stop) > MOST_STOPS:
        raise ValueError(f"`stop` must hold at most {MOST_STOPS} strings. Received: {len(stop)}")
    for each in stop:
        if not isinstance(each, str) or not 1 <= len(each.encode("utf-8", "replace")) <= LONGEST_STOP or "\0" in each:
            raise ValueError(f"`stop` must hold strings of 1 to {LONGEST_STOP} bytes, without NUL. Received: {each!r}")
    return [each.encode("utf-8", "replace") for each in stop]


class GrowingText:
    """A text that grows by asking for it again and again with more tokens, as a signature gives its outputs at once.

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
        begun = (n for each in self._stop for n in range(1, len(each)) if text.endswith(each[:n]))
        return text[: len(text) - max(begun, default=0)]


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
