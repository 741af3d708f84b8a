"""What every corpus of running text has in common."""

from __future__ import annotations

import abc
import itertools
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Self

import pydantic
from pydantic import Field

from ..corpus import Corpus
from ..error import CorpusError

# A document, piece by piece: it may be larger than memory. A piece ends before white space that follows something else,
# for there no tokenizer of the zoo has a token across.
Document = Iterator[str]

PIECE = 1 << 20  # characters, or where white space begins next after so many
_BREAK = re.compile(r"(?<=\S)\s")


class TextCorpus(Corpus):
    """Documents by split.

    A subclass names its `kind` and how the documents of a split are `_read`. What is not given as a split of its own is
    cut off the end of the training text: first comes what is trained on, then `validation_share` of all characters,
    then `test_share`, whatever documents the cuts fall into.
    """

    validation_share: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="how much of the training text to hold out for validation, if that is not given; 0: there is no "
        "such split; if left out: 0.1",
    )
    test_share: float | None = Field(
        default=None, ge=0, lt=1, description="how much to hold out for a test; if left out: nothing"
    )

    @property
    @abc.abstractmethod
    def _given(self) -> tuple[str, ...]:
        """The splits that can be read without holding anything out, 'train' among them."""

    @abc.abstractmethod
    def _read(self, split: str) -> Iterator[Document]:
        """The documents of a split that is given, in a fixed order; each is used up before the next is asked for."""

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
                    f"Corpus {self.kind!r} has a split {split!r} of its own; leave {split}_share out, which would hold "
                    "another one out of train."
                )
        return tuple(split for split in ("train", "validation", "test") if split in given or self._shares.get(split))

    @property
    def _shares(self) -> dict[str, float]:
        """How much of `train` is held out for each split that is not given."""
        shares = {"validation": 0.1 if self.validation_share is None else self.validation_share}
        shares["test"] = self.test_share or 0.0
        return {split: share for split, share in shares.items() if split not in self._given}

    def documents(self, split: str) -> Iterator[Document]:
        """The documents of a split, each an iterator over its pieces, to be used up before the next is asked for.

        Nothing that was read is kept.

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
    """Texts that follow each other, such as lines with their ends, put together and cut into pieces."""
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
    """What stands from character number `begin` up to `end` of all documents together."""
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
