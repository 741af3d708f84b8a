"""What every corpus has in common, whether of pairs or of running text."""

from __future__ import annotations

import abc
import re
from collections.abc import Sequence

import pydantic

from .error import CorpusError

UNSPACED = frozenset({"zh", "yue", "ja", "th", "lo", "km", "my"})
"""Languages that are written without spaces between words."""

_SENTENCE = 4  # words: BLEU counts sequences of one to four words


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


def base_language(language: str) -> str:
    """The language without its region: `pt` for `pt_BR`."""
    return re.split("[-_]", language)[0].lower()


def are_sentences(texts: Sequence[str], language: str | None = None) -> bool:
    """Whether at least half of the texts have the four words or more that BLEU needs."""
    spaced = language is None or base_language(language) not in UNSPACED
    long = sum(len(text.split() if spaced else text) >= _SENTENCE for text in texts)
    return 2 * long >= len(texts)
