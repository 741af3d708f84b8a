"""What corpora of text pairs share: how the texts are cleaned, and by what a split is scored."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import pydantic
from pydantic import Field

from ..ragged import Entry, TextsWriter, select
from ..run_files import Digest
from .cleaning import CleanPairs
from .corpus import KeptCorpus, UserPath, normalized

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


class Part(NamedTuple):
    """One of several corpora among the pairs to train on.

    Attributes:
        pairs: how many of the pairs are of this corpus.
        weight: how many times an epoch sees each of them.
        epochs: in how many epochs, from the first one on; None for all.
    """

    pairs: int
    weight: float
    epochs: int | None = None


@dataclasses.dataclass
class Pairs:
    """The pairs of one split, in a fixed order.

    Attributes:
        sources: source texts, NFC-normalised, never empty.
        targets: target texts, one for each source, NFC-normalised, never empty.
        groups: the group of each pair in a table of scores (the locale of a date), or None for a corpus without groups.
        dropped: how many pairs were dropped, by cause: "empty", where a side was empty or white space; "too long",
            where one was longer than `max_characters`; and the causes of `cleaning`.
        key: the hash of what the pairs follow from, if the cache keeps them; see `zoo_training.storage`.
        parts: the corpora that the pairs are of, one after another; None for one corpus.
    """

    sources: Sequence[str] = dataclasses.field(default_factory=list)
    targets: Sequence[str] = dataclasses.field(default_factory=list)
    groups: list[str] | None = None
    dropped: dict[str, int] = dataclasses.field(default_factory=dict)
    key: str | None = None
    parts: list[Part] | None = None

    def __len__(self) -> int:
        return len(self.sources)

    def select(self, rows: np.ndarray) -> Pairs:
        """The pairs of ascending row numbers."""
        groups = None if self.groups is None else [self.groups[row] for row in rows.tolist()]
        return Pairs(select(self.sources, rows), select(self.targets, rows), groups)

    def digest(self) -> str:
        """A hash of all texts."""
        return str(Digest(text for pair in zip(self.sources, self.targets, strict=True) for text in pair))


class PairCorpus(KeptCorpus):
    """Text pairs by split.

    A subclass defines `kind`, `splits` and `_read`, which gives (source, target) or (source, target, group); it may
    define `language` and `metric`. Texts are normalised and unusable pairs are dropped here.
    """

    _unit: ClassVar[str] = "pairs"

    max_characters: pydantic.PositiveInt = Field(default=1000, description="a pair with a longer side is dropped")
    weight: float = Field(
        default=1.0,
        gt=0,
        le=1000,
        description="of one of several corpora, `[[corpus]]`: how many times an epoch sees each of its pairs; 0.5 is "
        "once in two epochs",
    )
    epochs: pydantic.PositiveInt | None = Field(
        default=None,
        description="of one of several corpora: in how many epochs it is trained on, from the first one. An epoch "
        "keeps its number of batches, so later epochs see the other corpora more often; default: all",
    )
    clean: CleanPairs = Field(default=CleanPairs(), description="what is dropped from the pairs to train on")
    teacher: UserPath | None = Field(
        default=None,
        description="train on the translations of this translator in place of the targets: the folder of a run or of "
        "an export, or a Hugging Face folder. Validation and test keep their targets",
    )

    @property
    def language(self) -> str | None:
        """The language of the targets, such as 'de', where it is known."""
        return None

    def metric(self, split: str) -> Literal["bleu", "exact_match", "word_error_rate", "spelling"]:
        """The score of a split: 'bleu' if most of its targets are sentences, else 'exact_match'."""
        return "bleu" if are_sentences(self.read(split).targets, self.language) else "exact_match"

    def read(self, split: str) -> Pairs:
        """All pairs of a split, normalised; read once and kept.

        Raises:
            CorpusError: the split does not exist, holds no usable pair, or its text cannot be read.
        """
        return super().read(split)

    def _gather(self, rows: Iterable[tuple[str, ...]], entry: Entry, training: bool) -> Pairs:
        dropped: Counter[str] = Counter()
        texts = TextsWriter(entry, "sources", "targets")
        groups: list[str] = []
        usable = self._usable_of(rows, dropped)
        for source, target, *group in self.clean.kept(usable, dropped) if training else usable:
            texts.append(source, target)
            groups += group
        sources, targets = texts.finish()
        return Pairs(sources, targets, groups or None, dict(dropped))

    def _usable_of(self, rows: Iterable[tuple[str, ...]], dropped: Counter[str]) -> Iterator[tuple[str, ...]]:
        for source, target, *group in rows:
            source, target = normalized(source), normalized(target)
            if not source or not target:
                dropped["empty"] += 1
            elif max(len(source), len(target)) > self.max_characters:
                dropped["too long"] += 1
            else:
                yield source, target, *group

    def _restored(self, entry: Entry) -> Pairs:
        """What `_gather` has written."""
        return Pairs(entry.texts("sources"), entry.texts("targets"))
