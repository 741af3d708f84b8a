"""What corpora of texts with classes share: the texts of a split, and how they are cleaned."""

from __future__ import annotations

import abc
import dataclasses
import logging
import unicodedata
from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

import pydantic
from pydantic import Field

from .corpus import Corpus, CorpusError

logger = logging.getLogger(__name__)


class LabelledText(NamedTuple):
    """A text and its class.

    Attributes:
        text: the text.
        label: the name of its class.
        group: the group in a table of scores, if the corpus has groups.
        second: the second text, if the corpus consists of pairs, such as a premise and a hypothesis.
    """

    text: str
    label: str
    group: str | None = None
    second: str | None = None


@dataclasses.dataclass
class LabelledTexts:
    """The texts of one split with their classes, in a fixed order.

    Attributes:
        texts: the texts, NFC-normalised, never empty.
        labels: the name of the class of each text, never empty.
        groups: the group of each text in a table of scores, or None for a corpus without groups.
        seconds: the second text of each pair, or None for a corpus of single texts.
    """

    texts: list[str] = dataclasses.field(default_factory=list)
    labels: list[str] = dataclasses.field(default_factory=list)
    groups: list[str] | None = None
    seconds: list[str] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def inputs(self) -> list[Any]:
        """What a classifier reads: the texts, or pairs of texts."""
        return self.texts if self.seconds is None else list(zip(self.texts, self.seconds, strict=True))


class LabelledCorpus(Corpus):
    """Texts with classes by split.

    A subclass defines `kind`, `splits` and `_read`. Texts are normalised and unusable ones are dropped here.
    """

    max_characters: pydantic.PositiveInt = Field(default=10_000, description="a longer text is cut off here")

    @abc.abstractmethod
    def _read(self, split: str) -> Iterable[tuple[Any, ...]]:
        """The texts of a split in a fixed order, as tuples like `LabelledText`; the last two fields may be missing."""

    @cached_property
    def _cache(self) -> dict[str, LabelledTexts]:
        return {}

    def read(self, split: str) -> LabelledTexts:
        """All texts of a split, normalised; read once and kept.

        Raises:
            CorpusError: the split does not exist, holds no usable text or a text without a class, or cannot be read.
        """
        self._expect(split)
        if split not in self._cache:
            found = LabelledTexts()
            empty = 0
            for row in self._read(split):
                text, label, group, second = LabelledText(*row)
                text, label = clean(text), clean(label)
                if not text:
                    empty += 1
                    continue
                if not label:
                    raise CorpusError(f"Split {split!r} of corpus {self.kind!r}: the text {text[:60]!r} has no label.")
                found.texts.append(text[: self.max_characters])
                found.labels.append(label)
                if group is not None:
                    found.groups = found.groups or []
                    found.groups.append(group)
                if second is not None:
                    found.seconds = found.seconds or []
                    found.seconds.append(clean(second)[: self.max_characters])
            if empty:
                logger.warning("%s: split %r keeps %d texts; dropped %d empty", self.kind, split, len(found), empty)
            if not len(found):
                raise CorpusError(f"Split {split!r} of corpus {self.kind!r} holds no usable text.")
            self._cache[split] = found
        return self._cache[split]

    def check(self, split: str) -> None:
        """Reads a split, to see whether it can be read."""
        self.read(split)


def clean(text: str) -> str:
    """The text in Unicode's composed form (NFC), without white space around it."""
    return unicodedata.normalize("NFC", text).strip()
