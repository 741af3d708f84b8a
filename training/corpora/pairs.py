"""What corpora of text pairs share: how the texts are cleaned, and by what a split is scored."""

from __future__ import annotations

import abc
import dataclasses
import logging
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Literal

import pydantic
from pydantic import Field

from .corpus import Corpus, CorpusError

logger = logging.getLogger(__name__)

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
