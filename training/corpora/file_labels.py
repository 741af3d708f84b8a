"""Texts with classes from the user's own files."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cached_property
from typing import Literal, Self

import pydantic
from pydantic import Field

from .corpus import UserPath, expanded
from .holding_out import hold_out
from .labelled import LabelledCorpus, LabelledText, LabelledTexts, clean
from .tables import Column, check_columns, read_table

logger = logging.getLogger(__name__)


class FileLabels(LabelledCorpus):
    r"""Texts with classes from tab-separated files (TSV), plain or gzipped (`.gz`), in UTF-8: `text<TAB>label`.

    `~` is the home folder; a relative path is looked up in the working directory, then in the recipe's folder. A line
    ends only at `\n` or `\r\n`, and quotes are ordinary text.

    A validation or test split without a file is held out of `train`, such that no text is in two of these splits (of a
    pair, the text in `text_column`), and each class keeps a text to train on. Which texts are held out depends on the
    texts and `seed`, not on the order of the lines. If two files that you give share
    texts, both keep them, and a warning says how many.

    Raises:
        CorpusError: from `read`. A file is missing, is a folder, is empty, is not UTF-8 or is a broken `.gz`; it has
            too few columns, no column of that name, or a text without a label; or there are too few texts to hold some
            out.
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
    second_column: Column | None = Field(
        default=None,
        description="column of the second text, if a pair of texts belongs to a class, such as a premise and a "
        "hypothesis",
    )
    header: bool = Field(default=False, description="whether the first line of a file names its columns")
    validation_texts: pydantic.NonNegativeInt | None = Field(
        default=None,
        description="texts of `train` to hold out for validation; 0: there is no such split; "
        "default: one in twenty, at most 1,000",
    )
    test_texts: pydantic.NonNegativeInt | None = Field(
        default=None, description="texts of `train` to hold out for the test; default: as for validation"
    )
    seed: int = Field(default=0, description="chooses the texts that are held out")

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> Self:
        for split in ("validation", "test"):
            if getattr(self, split) is not None and getattr(self, f"{split}_texts") is not None:
                raise ValueError(
                    f"Give `{split}` (a file) or `{split}_texts` (held out of `train`), not both. "
                    f"Received: {split}={getattr(self, split)}, {split}_texts={getattr(self, f'{split}_texts')}"
                )
        check_columns(self._columns, self.header)
        return self

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits: 'train', and the others, given as files or held out of it."""
        return ("train", *(s for s in ("validation", "test") if getattr(self, s) or getattr(self, f"{s}_texts") != 0))

    def read(self, split: str) -> LabelledTexts:
        """All texts of a split, normalised; read once and kept. A warning says how many are also in other splits."""
        known = split in self._cache
        texts = super().read(split)
        if not known:
            for other in [other for other in self.splits if other in self._cache and other != split]:
                first, second = sorted((split, other), key=self.splits.index)
                seen = set(self._cache[first].inputs)
                if same := sum(text in seen for text in self._cache[second].inputs):
                    logger.warning(
                        "corpus: of the %d texts of %r, %d are also in %r; scores on such texts do not show how the "
                        "model does on new text",
                        *(len(self._cache[second]), second, same, first),
                    )
        return texts

    @property
    def _columns(self) -> dict[str, int | str]:
        columns = {"text_column": self.text_column, "label_column": self.label_column}
        return columns if self.second_column is None else {**columns, "second_column": self.second_column}

    @property
    def _counts(self) -> dict[str, int | None]:
        """The splits to hold out of `train`; the test first, so that it does not depend on validation_texts."""
        return {
            s: getattr(self, f"{s}_texts") for s in ("test", "validation") if s in self.splits and not getattr(self, s)
        }

    def _read(self, split: str) -> Iterator[LabelledText]:
        path = getattr(self, split)
        if path is not None and (split != "train" or not self._counts):
            yield from map(_labelled, read_table(expanded(path), self._columns, self.header))
            return
        wanted = None if split == "train" else split
        for row, held in zip(self._train_rows, self._held, strict=True):
            if held == wanted:
                yield row

    @cached_property
    def _train_rows(self) -> list[LabelledText]:
        """The rows of `train`, kept because several splits come from it: a pipe can be read only once."""
        return list(map(_labelled, read_table(expanded(self.train), self._columns, self.header)))

    @cached_property
    def _held(self) -> list[str | None]:
        """For each row of `train` the split it is held out for, or None."""
        texts = [clean(row.text) for row in self._train_rows]
        rows = ((text,) if text else None for text in texts)
        held = hold_out(rows, self._counts, self.seed, str(self.train), "texts")
        # A rare class may have been held out as a whole; then its texts go back, since it could not be learnt.
        learnt = {clean(row.label) for row, split in zip(self._train_rows, held, strict=True) if split is None}
        lost = {text for text, row in zip(texts, self._train_rows, strict=True) if clean(row.label) not in learnt}
        return [None if text in lost else split for text, split in zip(texts, held, strict=True)]


def _labelled(cells: tuple[str, ...]) -> LabelledText:
    text, label, *second = cells
    return LabelledText(text, label, second=second[0] if second else None)
