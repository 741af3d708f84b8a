"""What every corpus has in common, whether of pairs or of running text."""

from __future__ import annotations

import abc

import pydantic

from .error import CorpusError


class Corpus(pydantic.BaseModel, abc.ABC):
    """Text by split: the fields are what a recipe's `[corpus]` table may say."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    kind: str

    @property
    @abc.abstractmethod
    def splits(self) -> tuple[str, ...]:
        """The names of the splits that can be read, 'train' first."""

    @property
    def licence(self) -> str | None:
        """A sentence on what the texts may be used for, where that is known to be restricted."""
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
