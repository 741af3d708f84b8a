"""What all corpora share: splits, errors, paths in a recipe, and splits that are kept once they have been read."""

from __future__ import annotations

import abc
import logging
import os
import unicodedata
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pydantic

from ..ragged import Entry
from ..storage import Storage

logger = logging.getLogger(__name__)


SPLITS = ("train", "validation", "test")
"""The names of all splits; a corpus may lack the last two."""


def random_numbers(seed: int, stream: int, number: int) -> np.ndarray:
    """Random 64-bit integers `(number,)`, the same on every platform and for every version of NumPy.

    They are the raw output of a named bit generator, which NumPy promises not to change. Streams are independent.
    """
    return np.random.Philox(key=np.array([seed, stream], dtype=np.uint64)).random_raw(number)


def divided(number: int, validation: int, test: int, seed: int) -> dict[str, np.ndarray]:
    """The numbers from 0 on of each split, drawn at random, in random order: int64.

    Args:
        number: how many numbers there are; those that are left are to train on.
        validation: how many of them validate.
        test: how many are the test.
        seed: another seed gives another choice; it uses the stream 0 of `random_numbers`.
    """
    order = np.argsort(random_numbers(seed, 0, number), kind="stable")
    return dict(zip(("test", "validation", "train"), np.split(order, [test, test + validation]), strict=True))


class CorpusError(ValueError):
    """Text that cannot be read as a corpus; the message names the file and line, and the reason."""


def expanded(path: Path) -> Path:
    """The path with a leading `~` replaced by the home folder."""
    return Path(os.path.expanduser(path))  # unlike Path.expanduser, no exception for an unknown user


def normalized(text: str) -> str:
    """The text in Unicode's composed form (NFC), without white space around it."""
    return unicodedata.normalize("NFC", text).strip()


def _located(path: Path, info: pydantic.ValidationInfo) -> Path:
    """A relative path becomes a path in the recipe's folder if it exists there and not in the working directory."""
    folder = (info.context or {}).get("recipe_folder")
    relative = expanded(path)
    if folder is None or relative.is_absolute() or os.path.exists(relative):
        return path
    return folder / relative if os.path.exists(folder / relative) else path


def _not_empty(value: Any) -> Any:
    """Refuses an empty path, as `--set corpus.train=$FILE` gives without the variable: it means the working directory.

    Raises:
        ValueError: it is one.
    """
    if value == "":
        raise ValueError("input should be a path that is not empty")
    return value


UserPath = Annotated[
    Path, pydantic.Strict(False), pydantic.BeforeValidator(_not_empty), pydantic.AfterValidator(_located)
]
"""A path in a recipe. `~` is the home folder; a relative path is looked up in the working directory, then in the
recipe's folder. The working directory is first, because `--set` is typed there; so recipes of version 0.1 keep their
meaning."""


def whole_numbers_fit(value: Any, info: pydantic.ValidationInfo) -> Any:
    """The value of a recipe's key, if TensorFlow and NumPy have types for its whole numbers, also those in a list.

    Raises:
        ValueError: a number has more than 32 bits, or that of the key `seed` more than 64.
    """
    limit = 2**64 if info.field_name == "seed" else 2**31
    numbers = value if isinstance(value, list | tuple) else [value]
    if any(type(number) is int and number >= limit for number in numbers):
        raise ValueError(f"a whole number must be below {limit}")
    return value


class Corpus(pydantic.BaseModel, abc.ABC):
    """Text by split: the fields are the keys of a recipe's `[corpus]` table."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    _numbers_fit = pydantic.field_validator("*")(whole_numbers_fit)

    kind: str

    @cached_property
    def storage(self) -> Storage:
        """Where texts and ids go that are more than memory should hold: a run's cache, if the command sets it."""
        return Storage()

    @property
    def parts(self) -> tuple[Corpus, ...]:
        """The corpora that a recipe's `corpus` consists of: this one, unless there are several."""
        return (self,)

    @property
    @abc.abstractmethod
    def splits(self) -> tuple[str, ...]:
        """The names of the splits that can be read, 'train' first."""

    @property
    def licence(self) -> str | None:
        """A sentence on how the texts may be used, where their use is known to be restricted."""
        return None

    @abc.abstractmethod
    def check(self, split: str) -> None:
        """Reads a split, to see whether it can be read.

        Raises:
            CorpusError: it cannot.
        """

    def expect(self, split: str) -> None:
        """Checks that there is such a split.

        Raises:
            CorpusError: there is none; the message names the keys that would make one.
        """
        if split in self.splits:
            return
        fields = type(self).model_fields
        ways = [f"give `{key}`" for key in (split, f"{split}_split") if key in fields]
        ways += [f"remove {key} = 0" for key in fields if key.startswith(f"{split}_") and getattr(self, key) == 0]
        advice = f"; to have one, {' or '.join(ways)}" if ways else ""
        raise CorpusError(f"Corpus {self.kind!r} has no split {split!r}; it has {', '.join(self.splits)}{advice}.")


class KeptCorpus(Corpus):
    """A corpus of rows, each split of which is read once and kept: in memory, or in files if it is large.

    A subclass defines `kind`, `splits`, `_unit`, `_read` and `_gather`.
    """

    _unit: ClassVar[str]  # what a row is, in the plural: "pairs" or "texts"

    @abc.abstractmethod
    def _read(self, split: str) -> Iterable[tuple[Any, ...]]:
        """The raw rows of a split, in a fixed order."""

    @abc.abstractmethod
    def _gather(self, rows: Iterable[tuple[Any, ...]], entry: Entry, training: bool) -> Any:
        """The usable rows, normalised, with a length; and in `dropped`, how many rows were left out, by cause.

        Args:
            rows: the raw rows.
            entry: where they are written if they are many.
            training: whether they are to train on, and so to be cleaned.
        """

    @abc.abstractmethod
    def _restored(self, entry: Entry) -> Any:
        """The rows that `_gather` has written to an entry."""

    def _usable(self, split: str) -> Any:
        """The usable rows of a split, normalised."""
        with self.storage.writing("texts", None) as entry:
            return self._gather(self._read(split), entry, split == "train")

    @cached_property
    def _cache(self) -> dict[str, Any]:
        return {}

    def read(self, split: str) -> Any:
        """The usable rows of a split, normalised; read once and kept.

        Raises:
            CorpusError: the split does not exist, holds no usable row, or cannot be read.
        """
        self.expect(split)
        if split not in self._cache:
            found = self._usable(split)
            if not len(found):
                raise self._nothing_usable(split, found.dropped)
            if dropped := _listed(found.dropped):
                logger.warning(
                    "%s: split %r keeps %d %s; dropped %s", self.kind, split, len(found), self._unit, dropped
                )
            self._cache[split] = found
        return self._cache[split]

    def _nothing_usable(self, split: str, dropped: dict[str, int]) -> CorpusError:
        why = f"; dropped {_listed(dropped)}" if dropped else ""
        return CorpusError(f"Split {split!r} of corpus {self.kind!r} holds no usable {self._unit[:-1]}{why}.")

    def check(self, split: str) -> None:
        """Reads a split, to see whether it can be read."""
        self.read(split)


def _listed(dropped: dict[str, int]) -> str:
    """How many rows were left out by each cause, such as "12 duplicates, 3 empty"."""
    keys = {"too long": " (max_characters)"}
    return ", ".join(f"{number:,} {cause}{keys.get(cause, '')}" for cause, number in sorted(dropped.items()) if number)
