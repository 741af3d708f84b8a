"""Texts with classes from the user's own files."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
import pydantic
from pydantic import Field

from .corpus import CorpusError, UserPath, expanded, normalized
from .holding_out import HeldOutFiles, LargeClusters, hold_out
from .labelled import LabelledCorpus, LabelledText, LabelledTexts
from .tables import Column, check_columns, read_table

logger = logging.getLogger(__name__)
_MANY = 20  # texts, from which on most of them should not have a label of their own


class FileLabels(HeldOutFiles, LabelledCorpus):
    r"""Texts with classes from tab-separated files (TSV), plain or gzipped (`.gz`), in UTF-8: `text<TAB>label`.

    `~` is the home folder; a relative path is looked up in the working directory, then in the recipe's folder. A line
    ends only at `\n` or `\r\n`, and quotes are ordinary text.

    A validation or test split without a file is held out of `train`, such that **no text is in two of these splits**,
    and each class keeps a text to train on. Of pairs this counts for both texts, whichever column they are in: pairs
    that share a text, directly or through other pairs, stay together. If that leaves a split half of its pairs or
    fewer, as where all pairs have one of a few second texts, only the text in `text_column` counts, and a warning says
    so. Which texts are held out depends on the texts and `seed`, not on the order of the lines. If two files that you
    give share texts, both keep them, and a warning says how many.

    With `label_separator` a text may have several labels, or none: `text<TAB>label,label`.

    Raises:
        CorpusError: from `read`. A file is missing, is a folder, is empty, is not UTF-8 or is a broken `.gz`. It has
            too few columns, no column or two of that name, or a text without a label. Or there are too few texts to
            hold some out.
    """

    kind: Literal["labels"] = "labels"
    train: UserPath = Field(description="training texts: a TSV file with a text and its label in each line")
    validation: UserPath | None = Field(
        default=None, description="validation texts, in the same form; default: held out of `train`"
    )
    test: UserPath | None = Field(
        default=None, description="test texts, in the same form; default: held out of `train`"
    )
    text_column: Column = Field(default=1, description="column of the text: its number from 1, or its header")
    label_column: Column = Field(default=2, description="column of the label: its number from 1, or its header")
    label_separator: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description='what separates the labels of a text that may have several, such as ","; an empty cell then means '
        "that it has none",
    )
    second_column: Column | None = Field(
        default=None,
        description="column of the second text, if a pair of texts belongs to a class, such as a premise and a "
        "hypothesis",
    )
    header: bool = Field(default=False, description="whether the first line of a file names its columns")
    validation_texts: pydantic.NonNegativeInt | None = Field(
        default=None,
        description="texts of `train` to hold out for validation, which a training needs; "
        "default: one in twenty, at most 1,000",
    )
    test_texts: pydantic.NonNegativeInt | None = Field(
        default=None, description="texts of `train` to hold out for the test; 0: no test; default: as for validation"
    )
    seed: int = Field(default=0, description="chooses the texts that are held out")

    @pydantic.model_validator(mode="after")
    def _columns_that_fit(self) -> Self:
        check_columns(self._columns, self.header)
        return self

    @property
    def _columns(self) -> dict[str, int | str]:
        columns = {"text_column": self.text_column, "label_column": self.label_column}
        return columns if self.second_column is None else {**columns, "second_column": self.second_column}

    @property
    def _separator(self) -> str | None:
        return self.label_separator

    def _rows(self, files: Path) -> Iterator[LabelledText]:
        warns = "header" not in self.model_fields_set  # the user has not said that there is none
        for number, (text, label, *second) in read_table(expanded(files), self._columns, self.header, warns):
            if normalized(text) and not normalized(label) and self._separator is None:
                raise CorpusError(
                    f"{files}:{number}: no label (label_column = {self.label_column!r}). Received: {text[:60]!r}"
                )
            yield LabelledText(text, label, second=second[0] if second else None)

    def _hold_out(self, whole: LabelledTexts) -> np.ndarray:
        labels, counts, seed, where = whole.label_sets, self._counts, self.seed, str(self.train)
        if whole.seconds is not None:
            # A pair without a second text is one text.
            both = ((text, *filter(None, [other])) for text, other in zip(whole.texts, whole.seconds, strict=True))
            try:
                return hold_out(both, counts, seed, where, "pairs", symmetric=True, labels=labels, least=0.5)
            except LargeClusters:
                logger.warning(
                    "%s: nearly all pairs hang together by their texts, so only their first texts are in no other "
                    "split; a second text may be in several, and scores do not show how the model does on new ones",
                    where,
                )
        first = ((text,) for text in whole.texts)
        try:
            return hold_out(first, counts, seed, where, self._unit, labels=labels)
        except CorpusError as error:
            different = len(set(whole.labels))
            if self._separator is not None or len(whole) < _MANY or 2 * different <= len(whole):
                raise
            raise CorpusError(
                f"{error} The {len(whole)} texts have {different} different labels, and a label names a class; are "
                "text_column and label_column swapped?"
            ) from None

    def _warn_of_overlap(self, first: str, second: str) -> None:
        one, other = self._cache[first], self._cache[second]
        wanted = set(other.inputs)
        seen = {text for text in one.inputs if text in wanted}
        if same := sum(text in seen for text in other.inputs):
            logger.warning(
                "corpus: of the %d texts of %r, %d are also in %r; scores on such texts do not show how the model does "
                "on new text",
                *(len(other), second, same, first),
            )
