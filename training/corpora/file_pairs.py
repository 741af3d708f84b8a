"""Text pairs from the user's own files."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import pydantic
from pydantic import Field

from .corpus import CorpusError, UserPath, expanded
from .files import lines_of
from .holding_out import HeldOutFiles, LargeClusters, hold_out
from .pairs import PairCorpus, Pairs
from .tables import Column, check_columns, read_table

logger = logging.getLogger(__name__)
_FEW = 10  # pairs for each different target, from which on the targets look like classes

Files = UserPath | Annotated[tuple[UserPath, UserPath], pydantic.Strict(False)]


class FilePairs(HeldOutFiles, PairCorpus):
    r"""Pairs from tab-separated files (TSV) or line-parallel files, plain or gzipped (`.gz`), in UTF-8.

    A split is one path, a TSV with one pair in each line, or a list of two, `[source, target]`, whose lines correspond.
    `~` is the home folder; a relative path is looked up in the working directory, then in the recipe's folder. A line
    ends only at `\n` or `\r\n`, and quotes in a TSV are ordinary text. Each file is read once, so pipes work.

    If two files that you give share pairs, both keep them, and a warning says how many. A validation or test split
    without a file is held out of `train`, such that **no text, source or target, is in two of these splits**: pairs
    that share either side, directly or through other pairs, stay together. Which pairs are held out depends on the
    texts and `seed`, not on the order of the lines. `validation_pairs` does not change the test pairs. Texts are
    compared after NFC normalisation and without surrounding white space.

    To translate the other way, swap the columns or the two paths.

    Raises:
        CorpusError: from `read`. A file is missing, is a folder, is empty, is not UTF-8 or is a broken `.gz`. It has
            too few columns, or no column or two of that name. Two files have unequal lengths. Or there are too few
            pairs to hold some out.
    """

    kind: Literal["text"] = "text"
    train: Files = Field(description="training pairs: a TSV file, or a list of two files whose lines correspond")
    validation: Files | None = Field(
        default=None, description="validation pairs, in the same form; default: held out of `train`"
    )
    test: Files | None = Field(default=None, description="test pairs, in the same form; default: held out of `train`")
    source_column: Column = Field(default=1, description="source column of a TSV: its number from 1, or its header")
    target_column: Column = Field(default=2, description="target column of a TSV: its number from 1, or its header")
    header: bool = Field(default=False, description="whether the first line of a TSV names its columns")
    target_language: str | None = Field(
        default=None,
        description="language of the targets, such as de. With it, sentences also get a BLEU that compares with "
        "published figures. Languages without spaces, such as Chinese, Japanese and Thai, need it for BLEU",
    )
    validation_pairs: pydantic.NonNegativeInt | None = Field(
        default=None,
        description="pairs of `train` to hold out for validation, which a training needs; "
        "default: one in twenty, at most 1,000",
    )
    test_pairs: pydantic.NonNegativeInt | None = Field(
        default=None, description="pairs of `train` to hold out for the test; 0: no test; default: as for validation"
    )
    seed: int = Field(default=0, description="chooses the pairs that are held out")

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

    @pydantic.field_validator("target_language")
    @classmethod
    def _a_code(cls, value: str | None) -> str | None:
        if value is None or re.fullmatch("[A-Za-z]{2,3}([-_][A-Za-z0-9]+)*", value):
            return value
        raise ValueError("Expected the code of a language, such as de, hi or pt-BR")

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> Self:
        columns = {name: getattr(self, name) for name in ("source_column", "target_column")}
        # Compared with the defaults, since a run's recipe.json sets every key.
        told = [name for name in (*columns, "header") if getattr(self, name) != type(self).model_fields[name].default]
        if told and not any(isinstance(files, Path) for files in (self.train, self.validation, self.test)):
            listed = ", ".join(f"`{name}`" for name in told)
            raise ValueError(f"{listed} must be left out: every split is a list of two files, so there is no TSV")
        check_columns(columns, self.header)
        return self

    @property
    def language(self) -> str | None:
        """The language of the targets, where it was given."""
        return self.target_language

    # `_gather` of `PairCorpus` cleans these rows; `HeldOutFiles` holds some of those of `train` out for other splits.
    def _rows(self, files: Path | tuple[Path, Path]) -> Iterator[tuple[str, ...]]:
        if isinstance(files, tuple):
            return _parallel(*map(expanded, files))
        columns = {name: getattr(self, name) for name in ("source_column", "target_column")}
        warns = "header" not in self.model_fields_set  # the user has not said that there is none
        return (cells for _, cells in read_table(expanded(files), columns, self.header, warns))

    def _hold_out(self, whole: Pairs) -> np.ndarray:
        where = " and ".join(map(str, self.train)) if isinstance(self.train, tuple) else str(self.train)
        try:
            return hold_out(zip(whole.sources, whole.targets, strict=True), self._counts, self.seed, where)
        except LargeClusters as error:
            raise LargeClusters(f"{error}{_why_linked(whole)}") from None

    def _warn_of_overlap(self, first: str, second: str) -> None:
        warn_of_overlap(repr(first), self._cache[first], second, self._cache[second])


def _why_linked(whole: Pairs) -> str:
    """A sentence on the usual causes of pairs that share their texts; empty for others."""
    different = len({hash(pair) for pair in zip(whole.sources, whole.targets, strict=True)})
    if 2 * different <= len(whole):
        return (
            f" Of the {len(whole)} pairs, {different} are different; corpus.clean.duplicates = true drops the repeated "
            "ones."
        )
    targets = len(set(map(hash, whole.targets)))
    if _FEW * targets <= len(whole):
        return (
            f" The number of different targets is only {targets}; if they are classes, train a classifier: see "
            "docs/encoders.md."
        )
    return ""


def warn_of_overlap(first: str, one: Pairs, second: str, other: Pairs) -> None:
    """Warns if pairs of a smaller split are also in a larger one; `first` and `second` are the names of the splits.

    A pair whose sides are swapped counts too: a model that is trained in both directions has seen its translation.
    """
    # Sets of what the smaller split holds: the other one may be larger than memory.
    pairs, sources = set(zip(other.sources, other.targets, strict=True)), set(other.sources)
    both, common, swapped = set(), set(), set()
    for source, target in zip(one.sources, one.targets, strict=True):
        if source in sources:
            common.add(source)
            if (source, target) in pairs:
                both.add((source, target))
        if source != target and (target, source) in pairs:
            swapped.add((target, source))
    whole, reversed_ = 0, 0
    for pair in zip(other.sources, other.targets, strict=True):
        whole += pair in both
        reversed_ += pair in swapped
    same = sum(source in common for source in other.sources)
    if same or reversed_:
        reverse = f", {reversed_} with their sides swapped" if reversed_ else ""
        logger.warning(
            "corpus: of the %d pairs of %r, %d are also in %s%s, and %d share their source with a pair there; scores "
            "on such pairs do not show how the model does on new text",
            *(len(other), second, whole, first, reverse, same),
        )


def _parallel(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    counts = [0, 0]
    for pair in itertools.zip_longest(lines_of(source), lines_of(target)):
        counts = [count + (line is not None) for count, line in zip(counts, pair, strict=True)]
        if None not in pair:
            yield pair
    if counts[0] != counts[1]:
        raise CorpusError(
            f"{source} has {counts[0]} lines and {target} has {counts[1]}: line n of one must translate line n of the "
            "other, so both need the same number of lines."
        )
