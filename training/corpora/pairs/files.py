"""Text pairs from the user's own files."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import pydantic
from pydantic import Field

from ..error import CorpusError
from ..lines import lines_of
from ..paths import expanded
from .corpus import PairCorpus
from .header import names_columns
from .held_out import hold_out

logger = logging.getLogger(__name__)

Files = Path | tuple[Path, Path]


class FilePairs(PairCorpus):
    r"""Pairs from tab-separated files (TSV) or line-parallel files, plain or gzipped (`.gz`), in UTF-8.

    A split is one path, a TSV with a pair a line, or a list of two, `[source, target]`, whose lines correspond.
    `~` is the home folder; a relative path is relative to the working directory. A line ends at `\n` or `\r\n` and
    nowhere else, and quotes in a TSV are text like any other.

    Files that are given are read as they are. A validation or test split without a file is held out of `train`, such
    that **no text, source or target, is in two of these splits**: pairs that share either side, directly or through
    other pairs, stay together. Which pairs are held out depends on the texts and `seed`, not on the order of the lines,
    and the test pairs do not depend on how many are held out for validation. Texts are the same where the model would
    see the same, that is after NFC normalisation and without surrounding white space.

    To translate the other way, swap the columns or the two paths.

    Raises:
        CorpusError: from `read`, where a file cannot be read: missing, a folder, not UTF-8, a broken `.gz`, empty;
            with too few columns or no column of that name; two files of unequal length; too few pairs to hold out from.
    """

    kind: Literal["text"] = "text"
    train: Files = Field(description="training pairs: a TSV file, or a list of two files whose lines correspond")
    validation: Files | None = Field(
        default=None, description="validation pairs, told as in `train`; if left out, they are held out of `train`"
    )
    test: Files | None = Field(
        default=None, description="test pairs, told as in `train`; if left out, they are held out of `train`"
    )
    source_column: int | str = Field(default=1, description="source column of a TSV: its number from 1, or its header")
    target_column: int | str = Field(default=2, description="target column of a TSV: its number from 1, or its header")
    header: bool = Field(default=False, description="whether the first line of a TSV names its columns")
    target_language: str | None = Field(
        default=None,
        pattern="^[A-Za-z]{2,3}([-_][A-Za-z0-9]+)*$",
        description="the language of the targets, such as de: sentences are then scored as published figures are, too",
    )
    validation_pairs: pydantic.NonNegativeInt | None = Field(
        default=None,
        description="how many pairs of `train` to hold out for validation; 0: there is no such split; "
        "if left out: one in twenty, at most 1,000",
    )
    test_pairs: pydantic.NonNegativeInt | None = Field(
        default=None, description="how many pairs of `train` to hold out for the test; told as `validation_pairs`"
    )
    seed: int = Field(default=0, description="which pairs are held out: another seed, other pairs")

    @pydantic.field_validator("train", "validation", "test", mode="before")
    @classmethod
    def _one_or_two(cls, value: Any, info: pydantic.ValidationInfo) -> Any:
        paths = value if isinstance(value, list | tuple) else [value] * 2
        if value is None or (len(paths) == 2 and all(isinstance(path, str | Path) for path in paths)):
            return value
        name = info.field_name
        raise ValueError(
            f"`{name}` must be one path (a TSV file) or a list of two ([source, target]). Received: {name}={value!r}"
        )

    @pydantic.field_validator("source_column", "target_column", mode="before")
    @classmethod
    def _number_or_name(cls, value: Any, info: pydantic.ValidationInfo) -> Any:
        if (type(value) is int and value >= 1) or (isinstance(value, str) and value):
            return value
        name = info.field_name
        raise ValueError(
            f"`{name}` must be a column's number, from 1, or its header's name. Received: {name}={value!r}"
        )

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> Self:
        for split in ("validation", "test"):
            if getattr(self, split) is not None and getattr(self, f"{split}_pairs") is not None:
                raise ValueError(
                    f"Give `{split}` (a file) or `{split}_pairs` (held out of `train`), not both. "
                    f"Received: {split}={getattr(self, split)}, {split}_pairs={getattr(self, f'{split}_pairs')}"
                )
        columns = {name: getattr(self, name) for name in ("source_column", "target_column")}
        # Not by what was set: a run's recipe.json sets everything, to its default if need be.
        told = [name for name in (*columns, "header") if getattr(self, name) != type(self).model_fields[name].default]
        if told and not any(isinstance(files, Path) for files in (self.train, self.validation, self.test)):
            listed = ", ".join(f"`{name}`" for name in told)
            raise ValueError(f"{listed} must be left out: every split is a list of two files, and no TSV")
        for name, column in columns.items():
            if isinstance(column, str) and not self.header:
                raise ValueError(
                    f"`{name}` must be a number from 1, or `header` true for a name. Received: {name}={column!r}"
                )
        if self.source_column == self.target_column:
            raise ValueError(
                f"`source_column` and `target_column` must differ. Received: {self.source_column!r} for both"
            )
        return self

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits: 'train', and those given as files or held out of it."""
        return ("train", *(s for s in ("validation", "test") if getattr(self, s) or getattr(self, f"{s}_pairs") != 0))

    @property
    def language(self) -> str | None:
        """The language of the targets, where it was given."""
        return self.target_language

    def _read(self, split: str) -> Iterator[tuple[str, str]]:
        files = getattr(self, split)
        if isinstance(files, Path) and not self.header:
            self._warn_of_header(expanded(files))
        if files is not None and (split != "train" or not self._counts):
            return self._rows(files)
        label = None if split == "train" else split
        return (row for row, held in zip(self._rows(self.train), self._held, strict=True) if held == label)

    def _rows(self, files: Files) -> Iterator[tuple[str, str]]:
        if isinstance(files, tuple):
            return _parallel(*map(expanded, files))
        return self._table(expanded(files))

    def _table(self, path: Path) -> Iterator[tuple[str, str]]:
        lines = enumerate(lines_of(path), 1)
        names = next(lines)[1].split("\t") if self.header else []
        source, target = (self._index(column, names, path) for column in (self.source_column, self.target_column))
        if source == target:
            raise CorpusError(f"{path}: source_column and target_column are both column {source + 1}.")
        needed = max(source, target) + 1
        for number, line in lines:
            columns = line.split("\t", needed)
            if len(columns) >= needed:
                yield columns[source], columns[target]
            elif not line.strip():
                yield "", ""  # a blank line is an empty pair, which the base class drops and counts
            else:
                raise CorpusError(
                    f"{path}:{number}: found {len(columns)} of the {needed} columns needed (source_column = "
                    f"{self.source_column!r}, target_column = {self.target_column!r}); a tab separates columns."
                )

    def _warn_of_header(self, path: Path) -> None:
        first = next(self._table(path), None)
        if first and names_columns(first):
            logger.warning(
                "%s:1: %r and %r look like the names of columns, and are read as a pair; if they are names, set "
                "header = true in [corpus]",
                *(path, *first),
            )

    def _index(self, column: int | str, names: list[str], path: Path) -> int:
        if isinstance(column, int):
            return column - 1
        if column in names:
            return names.index(column)
        near = get_close_matches(column, names, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise CorpusError(f"{path}:1: no column {column!r} in the header; it has {', '.join(map(repr, names))}{hint}")

    @property
    def _counts(self) -> dict[str, int | None]:
        """The splits to hold out of `train`, the test first: it is then the same whatever validation_pairs says."""
        return {
            s: getattr(self, f"{s}_pairs") for s in ("test", "validation") if s in self.splits and not getattr(self, s)
        }

    @cached_property
    def _held(self) -> list[str | None]:
        """For each row of `train` the split it is held out for, or None."""
        where = " and ".join(map(str, self.train)) if isinstance(self.train, tuple) else str(self.train)
        return hold_out((self._usable(row) for row in self._rows(self.train)), self._counts, self.seed, where)

    def _usable(self, row: tuple[str, str]) -> tuple[str, str] | None:
        # By the base class's own rule, so that a held-out split has as many pairs as were asked for.
        kept = self._gather([row])
        return (kept.sources[0], kept.targets[0]) if len(kept) else None


def _parallel(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    counts = [0, 0]
    for pair in itertools.zip_longest(lines_of(source), lines_of(target)):
        counts = [count + (line is not None) for count, line in zip(counts, pair, strict=True)]
        if None not in pair:
            yield pair
    if counts[0] != counts[1]:
        raise CorpusError(
            f"{source} has {counts[0]} lines and {target} has {counts[1]}: line n of one must translate line n of the "
            "other, so both need as many."
        )
