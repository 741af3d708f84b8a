"""What all corpora share: splits and errors; then pairs of texts for translators; then running text."""

from __future__ import annotations

import abc
import dataclasses
import itertools
import logging
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

import pydantic
from pydantic import Field

logger = logging.getLogger(__name__)


class CorpusError(ValueError):
    """Text that cannot be read as a corpus; the message names the file and line, and the reason."""


def expanded(path: Path) -> Path:
    """The path with a leading `~` replaced by the home folder."""
    return Path(os.path.expanduser(path))  # unlike Path.expanduser, no exception for an unknown user


def _located(path: Path, info: pydantic.ValidationInfo) -> Path:
    """A relative path becomes a path in the recipe's folder if it exists there and not in the working directory."""
    folder = (info.context or {}).get("recipe_folder")
    relative = expanded(path)
    if folder is None or relative.is_absolute() or os.path.exists(relative):
        return path
    return folder / relative if os.path.exists(folder / relative) else path


UserPath = Annotated[Path, pydantic.Strict(False), pydantic.AfterValidator(_located)]
"""A path in a recipe. `~` is the home folder; a relative path is looked up in the working directory, then in the
recipe's folder. The working directory is first because `--set` is typed there, and because 0.1 knew no other place."""


class Corpus(pydantic.BaseModel, abc.ABC):
    """Text by split: the fields are the keys of a recipe's `[corpus]` table."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    kind: str

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

    def _expect(self, split: str) -> None:
        """An error if there is no such split."""
        if split not in self.splits:
            raise CorpusError(f"Corpus {self.kind!r} has no split {split!r}; it has {', '.join(self.splits)}.")


# Pairs of texts.

UNSPACED = frozenset({"zh", "yue", "ja", "th", "lo", "km", "my"})
"""Languages that are written without spaces between words."""

_SENTENCE = 4  # words: BLEU counts sequences of one to four words


def base_language(language: str) -> str:
    """The language without its region: `pt` for `pt_BR`."""
    return re.split("[-_]", language)[0].lower()


def are_sentences(texts: Sequence[str], language: str | None = None) -> bool:
    """Whether at least half of the texts have the four words or more that BLEU needs."""
    spaced = language is None or base_language(language) not in UNSPACED
    long = sum(len(text.split() if spaced else text) >= _SENTENCE for text in texts)
    return 2 * long >= len(texts)


@dataclasses.dataclass
class Pairs:
    """The pairs of one split, in a fixed order.

    Attributes:
        sources: source texts, NFC-normalised, never empty.
        targets: target texts, one for each source, NFC-normalised, never empty.
        groups: the group of each pair in a table of scores (the locale of a date), or None for a corpus without groups.
        empty: how many pairs were dropped because one side was empty or only white space.
        too_long: how many pairs were dropped because one side was longer than `max_characters`.
    """

    sources: list[str] = dataclasses.field(default_factory=list)
    targets: list[str] = dataclasses.field(default_factory=list)
    groups: list[str] | None = None
    empty: int = 0
    too_long: int = 0

    def __len__(self) -> int:
        return len(self.sources)


class PairCorpus(Corpus):
    """Text pairs by split.

    A subclass defines `kind`, `splits` and `_read`; it may define `language` and `metric`. Texts are normalised and
    unusable pairs are dropped here.
    """

    max_characters: pydantic.PositiveInt = Field(default=1000, description="a pair with a longer side is dropped")

    @property
    def language(self) -> str | None:
        """The language of the targets, such as 'de', where it is known."""
        return None

    def metric(self, split: str) -> Literal["bleu", "exact_match"]:
        """The score of a split: 'bleu' if most of its targets are sentences, else 'exact_match'."""
        return "bleu" if are_sentences(self.read(split).targets, self.language) else "exact_match"

    @abc.abstractmethod
    def _read(self, split: str) -> Iterable[tuple[str, str] | tuple[str, str, str]]:
        """The raw (source, target) or (source, target, group) of a split, in a fixed order."""

    @cached_property
    def _cache(self) -> dict[str, Pairs]:
        return {}

    def read(self, split: str) -> Pairs:
        """All pairs of a split, normalised; read once and kept.

        Raises:
            CorpusError: the split does not exist, holds no usable pair, or its text cannot be read.
        """
        self._expect(split)
        if split not in self._cache:
            pairs = self._gather(self._read(split))
            dropped = [f"{n} {why}" for n, why in ((pairs.empty, "empty"), (pairs.too_long, "too long")) if n]
            if dropped:
                logger.warning(
                    "%s: split %r keeps %d pairs; dropped %s", self.kind, split, len(pairs), ", ".join(dropped)
                )
            if not len(pairs):
                raise CorpusError(f"Split {split!r} of corpus {self.kind!r} holds no usable pair.")
            self._cache[split] = pairs
        return self._cache[split]

    def check(self, split: str) -> None:
        """Reads a split, to see whether it can be read."""
        self.read(split)

    def _gather(self, rows: Iterable[tuple[str, ...]]) -> Pairs:
        pairs = Pairs()
        for source, target, *group in rows:
            source, target = (unicodedata.normalize("NFC", side).strip() for side in (source, target))
            if not source or not target:
                pairs.empty += 1
            elif max(len(source), len(target)) > self.max_characters:
                pairs.too_long += 1
            else:
                pairs.sources.append(source)
                pairs.targets.append(target)
                if group:
                    pairs.groups = pairs.groups or []
                    pairs.groups.append(group[0])
        return pairs


# Running text.

# A document in pieces: it may be larger than memory. A piece ends before white space that follows another character,
# because no token of the zoo's tokenizers spans that place.
Document = Iterator[str]

PIECE = 1 << 20  # characters; a piece ends at the next white space after this many
_BREAK = re.compile(r"(?<=\S)\s")


class TextCorpus(Corpus):
    """Documents by split.

    A subclass defines `kind`, `_given` and `_read`. A split that is not given is cut off the end of the training text:
    first comes the text to train on, then `validation_share` of all characters, then `test_share`. Cuts may fall inside
    documents.
    """

    validation_share: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="share of the training text to hold out for validation, if no validation text is given; 0: no such "
        "split; default: 0.1",
    )
    test_share: float | None = Field(
        default=None, ge=0, lt=1, description="share to hold out for a test; default: nothing"
    )

    @property
    @abc.abstractmethod
    def _given(self) -> tuple[str, ...]:
        """The splits that can be read without holding anything out, 'train' among them."""

    @abc.abstractmethod
    def _read(self, split: str) -> Iterator[Document]:
        """The documents of a given split, in a fixed order; each must be read to its end before the next."""

    @pydantic.model_validator(mode="after")
    def _some_to_train_on(self) -> Self:
        if (self.validation_share or 0) + (self.test_share or 0) >= 1:
            raise ValueError("validation_share and test_share together leave nothing to train on")
        return self

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits that can be read, 'train' first.

        Raises:
            CorpusError: a share was to be held out for a split that is given.
        """
        given = self._given
        for split in ("validation", "test"):
            if split in given and getattr(self, f"{split}_share") is not None:
                raise CorpusError(
                    f"Corpus {self.kind!r} already has a split {split!r}; remove {split}_share, which would hold a "
                    "second one out of train."
                )
        return tuple(split for split in ("train", "validation", "test") if split in given or self._shares.get(split))

    @property
    def _shares(self) -> dict[str, float]:
        """The share of `train` that is held out for each split that is not given."""
        shares = {"validation": 0.1 if self.validation_share is None else self.validation_share}
        shares["test"] = self.test_share or 0.0
        return {split: share for split, share in shares.items() if split not in self._given}

    def documents(self, split: str) -> Iterator[Document]:
        """The documents of a split, each an iterator over its pieces, which must be read to its end before the next.

        Nothing that was read is kept in memory.

        Raises:
            CorpusError: the split does not exist or is empty, or its text cannot be read.
        """
        self._expect(split)
        if split in self._given and not (split == "train" and any(self._shares.values())):
            return _not_empty(self._read(split), f"Split {split!r} of corpus {self.kind!r} holds no text.")
        begin, end = self._bounds[split]
        total = self._bounds["test"][1]
        what = f"Split {split!r} of corpus {self.kind!r} is empty: there are {total:,} characters in all."
        return _not_empty(_between(self._read("train"), begin, end), what)

    def check(self, split: str) -> None:
        """Reads a split, to see whether it can be read."""
        for document in self.documents(split):
            for _ in document:
                pass

    @cached_property
    def _bounds(self) -> dict[str, tuple[int, int]]:
        """Where each split that is cut out of `train` begins and ends, in characters."""
        total = sum(len(piece) for document in self._read("train") for piece in document)
        left = 1.0
        ends = [total]
        for split in ("test", "validation"):
            left -= self._shares.get(split, 0.0)
            ends.append(int(total * left) if self._shares.get(split) else ends[-1])
        (test, validation, train) = ends
        return {"train": (0, train), "validation": (train, validation), "test": (validation, test)}


def in_pieces(texts: Iterable[str]) -> Document:
    """Joins consecutive texts, such as lines with their ends, and cuts the result into pieces."""
    held: list[str] = []
    size = 0
    for text in texts:
        held.append(text)
        size += len(text)
        if size > PIECE:
            together, begin = "".join(held), 0
            while len(together) - begin > PIECE and (cut := _BREAK.search(together, begin + PIECE)):
                yield together[begin : cut.start()]
                begin = cut.start()
            held, size = [together[begin:]], len(together) - begin
    if size:
        yield "".join(held)


def _between(documents: Iterator[Document], begin: int, end: int) -> Iterator[Document]:
    """The text from character number `begin` up to `end` of all documents together."""
    position = 0

    def part(document: Document) -> Document:
        nonlocal position
        for piece in document:
            first, last = max(begin - position, 0), end - position
            position += len(piece)
            if first < min(last, len(piece)):
                yield piece[first:last]

    for document in documents:
        if position >= end:
            return
        yield part(document)


def _not_empty(documents: Iterator[Document], what: str) -> Iterator[Document]:
    """The documents that hold text; an error if none does."""
    empty = True
    for document in documents:
        first = next((piece for piece in document if piece), None)
        if first is not None:
            empty = False
            yield itertools.chain([first], document)
    if empty:
        raise CorpusError(what)
