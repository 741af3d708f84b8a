"""What corpora of labelled texts share: the texts of a split, and how they are cleaned."""

from __future__ import annotations

import dataclasses
import logging
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pydantic
from pydantic import Field

from ..ragged import Entry, TextsWriter, select
from ..run_files import Digest
from .cleaning import CleanTexts
from .corpus import CorpusError, KeptCorpus, normalized

logger = logging.getLogger(__name__)
_COLUMNS = ("texts", "labels", "seconds")  # of a stored split


class LabelledText(NamedTuple):
    """A text and its class.

    Attributes:
        text: the text.
        label: the name of its class, or the names of its classes with a separator between.
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
        labels: the name of the class of each text, never empty; with a separator, the names of all its classes, sorted.
        groups: the group of each text in a table of scores, or None for a corpus without groups.
        seconds: the second text of each pair, or None for a corpus of single texts.
        dropped: how many texts were dropped, by cause: "empty", where a text was empty or only white space; and the
            causes of `cleaning`.
        separator: what separates the classes of a text in `labels`; None if each text has exactly one.
        key: the hash of what the texts follow from, if the cache keeps them; see `zoo_training.storage`.
    """

    texts: Sequence[str] = dataclasses.field(default_factory=list)
    labels: list[str] = dataclasses.field(default_factory=list)
    groups: list[str] | None = None
    seconds: Sequence[str] | None = None
    dropped: dict[str, int] = dataclasses.field(default_factory=dict)
    separator: str | None = None
    key: str | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def select(self, rows: np.ndarray) -> LabelledTexts:
        """The texts of ascending row numbers."""
        groups = None if self.groups is None else [self.groups[row] for row in rows.tolist()]
        seconds = None if self.seconds is None else select(self.seconds, rows)
        labels = [self.labels[row] for row in rows.tolist()]
        return LabelledTexts(select(self.texts, rows), labels, groups, seconds, separator=self.separator)

    def digest(self) -> str:
        """A hash of all texts and labels."""
        columns = [self.texts, self.labels] if self.seconds is None else [self.texts, self.labels, self.seconds]
        return str(Digest(each for row in zip(*columns, strict=True) for each in row))

    @property
    def label_sets(self) -> list[tuple[str, ...]]:
        """The names of the classes of each text, sorted; of a text without a class an empty tuple."""
        return [split_labels(label, self.separator) for label in self.labels]

    @property
    def inputs(self) -> Sequence[Any]:
        """What a classifier reads: the texts, or pairs of texts."""
        return self.texts if self.seconds is None else list(zip(self.texts, self.seconds, strict=True))


class LabelledCorpus(KeptCorpus):
    """Texts with classes by split.

    A subclass defines `kind`, `splits` and `_read`, which gives tuples like `LabelledText`; the last two fields may be
    missing. Texts are normalised and unusable ones are dropped here.
    """

    _unit: ClassVar[str] = "texts"

    max_characters: pydantic.PositiveInt = Field(default=10_000, description="a longer text is cut off here")
    clean: CleanTexts = Field(default=CleanTexts(), description="what is dropped from the texts to train on")

    @property
    def _separator(self) -> str | None:
        """What separates the classes of a text; None if each text has exactly one."""
        return None

    def read(self, split: str) -> LabelledTexts:
        """All texts of a split, normalised; read once and kept.

        Raises:
            CorpusError: the split does not exist, holds no usable text or a text without a class, or cannot be read.
        """
        is_new = split not in self._cache
        found = super().read(split)
        if split == "train" and is_new:
            cells = set(found.labels)
            if self._separator and all(cell and self._separator not in cell for cell in cells):
                logger.warning(
                    "corpus: label_separator = %r is in no cell of labels, so each text has exactly one label; name "
                    "another separator, or leave the key out",
                    self._separator,
                )
            _warn_of_alike({name for cell in cells for name in split_labels(cell, self._separator)})
        return found

    def _gather(self, rows: Iterable[tuple[Any, ...]], entry: Entry, training: bool) -> LabelledTexts:
        dropped: Counter[str] = Counter()
        found, groups = LabelledTexts(separator=self._separator), []
        columns: TextsWriter | None = None
        usable = self._usable_of(rows, dropped)
        for text, second, label, group in self.clean.kept(usable, dropped, columns=3) if training else usable:
            seconds = () if second is None else (second,)
            columns = columns or TextsWriter(entry, *_COLUMNS[: 2 + len(seconds)])
            columns.append(text, label, *seconds)
            if group is not None:
                groups.append(group)
        found.dropped = dict(dropped)
        if columns is not None:
            found.texts, labels, *both = columns.finish()
            found.labels = list(map(sys.intern, labels))  # a class has one string, however many texts it has
            found.seconds = both[0] if both else None
        found.groups = groups or None
        return found

    def _usable_of(self, rows: Iterable[tuple[Any, ...]], dropped: Counter[str]) -> Iterator[tuple[Any, ...]]:
        """Text, second text, label and group of each row that has a text."""
        for number, row in enumerate(rows, 1):
            text, label, group, second = LabelledText(*row)
            text, label = normalized(text), normalized(label)
            if not text:
                dropped["empty"] += 1
                continue
            if self._separator is not None:
                label = self._separator.join(split_labels(label, self._separator))
            elif not label:
                raise CorpusError(f"Corpus {self.kind!r}: text {number} has no label. Received: {text[:60]!r}")
            second = None if second is None else normalized(second)[: self.max_characters]
            yield text[: self.max_characters], second, label, group

    def _restored(self, entry: Entry) -> LabelledTexts:
        """What `_gather` has written."""
        texts, labels, *seconds = (entry.texts(name) for name in _COLUMNS if entry.has(name))
        second = seconds[0] if seconds else None
        return LabelledTexts(texts, list(map(sys.intern, labels)), seconds=second, separator=self._separator)


def _warn_of_alike(labels: Iterable[str]) -> None:
    """Warns of labels that are classes of their own, although a reader sees no difference, or only one of case."""
    groups: dict[str, list[str]] = defaultdict(list)
    for label in sorted(labels):
        visible = "".join(char for char in label if unicodedata.category(char) not in ("Cc", "Cf"))
        groups["".join(visible.casefold().split())].append(label)
    alike = [group for group in groups.values() if len(group) > 1]
    if alike:
        more = f", and so do other labels (groups: {len(alike)})" if len(alike) > 1 else ""
        logger.warning(
            "corpus: the labels %s differ in case, spaces or invisible characters alone%s; each is a class of its own, "
            "so write them alike if they are the same",
            *(", ".join(map(repr, alike[0])), more),
        )


def split_labels(label: str, separator: str | None) -> tuple[str, ...]:
    """The names of the classes in a cell, cleaned and sorted, each once; one name if there is no separator."""
    names = [label] if separator is None else label.split(separator)
    return tuple(sorted({normalized(name) for name in names} - {""}))
