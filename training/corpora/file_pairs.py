"""Text pairs from the user's own files, and how pairs are held out of them."""

from __future__ import annotations

import functools
import hashlib
import itertools
import logging
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import Field

from zoo.extras import needs

from .corpus import CorpusError, UserPath, expanded
from .files import lines_of
from .pairs import PairCorpus, Pairs

logger = logging.getLogger(__name__)

Files = UserPath | Annotated[tuple[UserPath, UserPath], pydantic.Strict(False)]


class FilePairs(PairCorpus):
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
            too few columns, or no column of that name. Two files have unequal lengths. Or there are too few pairs to
            hold some out.
    """

    kind: Literal["text"] = "text"
    train: Files = Field(description="training pairs: a TSV file, or a list of two files whose lines correspond")
    validation: Files | None = Field(
        default=None, description="validation pairs, in the same form; default: held out of `train`"
    )
    test: Files | None = Field(default=None, description="test pairs, in the same form; default: held out of `train`")
    source_column: int | str = Field(default=1, description="source column of a TSV: its number from 1, or its header")
    target_column: int | str = Field(default=2, description="target column of a TSV: its number from 1, or its header")
    header: bool = Field(default=False, description="whether the first line of a TSV names its columns")
    target_language: str | None = Field(
        default=None,
        pattern="^[A-Za-z]{2,3}([-_][A-Za-z0-9]+)*$",
        description="language of the targets, such as de. With it, sentences also get a BLEU that compares with "
        "published figures. Languages without spaces, such as Chinese, Japanese and Thai, need it for BLEU",
    )
    validation_pairs: pydantic.NonNegativeInt | None = Field(
        default=None,
        description="pairs of `train` to hold out for validation; 0: there is no such split; "
        "default: one in twenty, at most 1,000",
    )
    test_pairs: pydantic.NonNegativeInt | None = Field(
        default=None, description="pairs of `train` to hold out for the test; default: as for validation"
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
        # Compared with the defaults, since a run's recipe.json sets every key.
        told = [name for name in (*columns, "header") if getattr(self, name) != type(self).model_fields[name].default]
        if told and not any(isinstance(files, Path) for files in (self.train, self.validation, self.test)):
            listed = ", ".join(f"`{name}`" for name in told)
            raise ValueError(f"{listed} must be left out: every split is a list of two files, so there is no TSV")
        for name, column in columns.items():
            if isinstance(column, str) and not self.header:
                raise ValueError(
                    f"`{name}` is a name, which needs `header = true`; or give a number from 1. "
                    f"Received: {name}={column!r}"
                )
        if self.source_column == self.target_column:
            raise ValueError(
                f"`source_column` and `target_column` must differ. Received: {self.source_column!r} for both"
            )
        return self

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits: 'train', and the others, given as files or held out of it."""
        return ("train", *(s for s in ("validation", "test") if getattr(self, s) or getattr(self, f"{s}_pairs") != 0))

    @property
    def language(self) -> str | None:
        """The language of the targets, where it was given."""
        return self.target_language

    def read(self, split: str) -> Pairs:
        """All pairs of a split, normalised; read once and kept. A warning says how many are also in other splits."""
        known = split in self._cache
        pairs = super().read(split)
        if not known:
            for other in [other for other in self.splits if other in self._cache and other != split]:
                self._warn_of_overlap(*sorted((split, other), key=self.splits.index))
        return pairs

    def _warn_of_overlap(self, first: str, second: str) -> None:
        """Compares two splits, unless both are held out of the same text and so have nothing in common."""
        if not any(getattr(self, split) for split in (first, second) if split != "train"):
            return
        one, other = self._cache[first], self._cache[second]
        pairs, sources = set(zip(one.sources, one.targets, strict=True)), set(one.sources)
        whole = sum(pair in pairs for pair in zip(other.sources, other.targets, strict=True))
        if same := sum(source in sources for source in other.sources):
            logger.warning(
                "corpus: of the %d pairs of %r, %d are also in %r, and %d share their source with a pair there; scores "
                "on such pairs do not show how the model does on new text",
                *(len(other), second, whole, first, same),
            )

    def _read(self, split: str) -> Iterable[tuple[str, str]]:
        files = getattr(self, split)
        if files is not None and (split != "train" or not self._counts):
            return self._rows(files)
        label = None if split == "train" else split
        return (row for row, held in zip(self._train_rows, self._held, strict=True) if held == label)

    @cached_property
    def _train_rows(self) -> list[tuple[str, str]]:
        """The rows of `train`, kept because several splits come from it: a pipe can be read only once."""
        return list(self._rows(self.train))

    def _rows(self, files: Path | tuple[Path, Path]) -> Iterator[tuple[str, str]]:
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
        widths: Counter[int] = Counter()
        first_of_width: dict[int, int] = {}
        for number, line in lines:
            columns = line.split("\t")
            if len(columns) >= needed:
                if number == 1 and not self.header:
                    _warn_of_header(path, columns[source], columns[target])
                widths[len(columns)] += 1
                first_of_width.setdefault(len(columns), number)
                yield columns[source], columns[target]
            elif not line.strip():
                yield "", ""  # a blank line is an empty pair, which the base class drops and counts
            else:
                raise CorpusError(
                    f"{path}:{number}: found {len(columns)} of the {needed} columns needed (source_column = "
                    f"{self.source_column!r}, target_column = {self.target_column!r}); a tab separates columns."
                )
        _warn_of_tabs(path, widths, first_of_width)

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
        """The splits to hold out of `train`; the test first, so that it does not depend on validation_pairs."""
        return {
            s: getattr(self, f"{s}_pairs") for s in ("test", "validation") if s in self.splits and not getattr(self, s)
        }

    @cached_property
    def _held(self) -> list[str | None]:
        """For each row of `train` the split it is held out for, or None."""
        where = " and ".join(map(str, self.train)) if isinstance(self.train, tuple) else str(self.train)
        return hold_out(map(self._usable, self._train_rows), self._counts, self.seed, where)

    def _usable(self, row: tuple[str, str]) -> tuple[str, str] | None:
        # By the base class's own rule, so that a held-out split has the requested number of pairs.
        kept = self._gather([row])
        return (kept.sources[0], kept.targets[0]) if len(kept) else None


def _warn_of_tabs(path: Path, widths: Counter[int], first_of_width: dict[int, int]) -> None:
    """Warns of lines with more columns than most: a tab inside a text makes a wrong pair."""
    usual = widths.most_common(1)[0][0] if widths else 0
    wider = [width for width in widths if width > usual]
    if wider:
        number, width = min((first_of_width[width], width) for width in wider)
        logger.warning(
            "%s:%d: %d columns, where most lines have %d (%d such lines); a tab inside a text shifts its columns, and "
            "makes a wrong pair",
            *(path, number, width, usual, sum(widths[width] for width in wider)),
        )


def _warn_of_header(path: Path, *cells: str) -> None:
    if names_columns(cells):
        logger.warning(
            "%s:1: %r and %r look like the names of columns, and are read as a pair; if they are names, set "
            "header = true in [corpus]",
            *(path, *cells),
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


def hold_out(
    pairs: Iterable[tuple[str, str] | None], counts: Mapping[str, int | None], seed: int, where: str
) -> list[str | None]:
    """Chooses the pairs to hold out of a corpus, so that no text is in two splits.

    Pairs that share a source or a target, directly or through other pairs, form a cluster, which stays together.
    Clusters are taken in an order that depends only on their texts and `seed`. A cluster that would make a split too
    large is skipped. So a split has exactly the requested size, unless too few small clusters are left.

    Args:
        pairs: (source, target), normalised, or None for a pair that must not be held out. They are read once; only
            64 bits of each text are kept.
        counts: the pairs wanted for each split, in order of preference; None: one in twenty, at most 1,000.
        seed: another seed gives another choice.
        where: the place of the pairs, for errors.

    Returns:
        For each pair the split it is held out for, or None.

    Raises:
        CorpusError: no pair would be left to train on, or all clusters are larger than a split.
    """
    clusters = _clusters(pairs, seed)
    sizes = Counter(clusters)
    del sizes[0]
    usable = sizes.total()
    default = min(1000, max(1, usable // 20))
    wanted = {split: default if count is None else count for split, count in counts.items()}
    asked = f"{where}: cannot hold out {' and '.join(f'{count} pairs for {split}' for split, count in wanted.items())}"
    if sum(wanted.values()) >= usable:
        raise CorpusError(f"{asked} of {usable} usable pairs; ask for fewer, or for 0 to have no such split.")
    chosen: dict[int, str] = {}
    # A cluster is named by the smallest hash of its texts. The name is hashed again for the order: the more texts a
    # cluster has, the smaller its name tends to be, so the large clusters would come first.
    left = sorted(sizes, key=lambda cluster: hashlib.blake2b(cluster.to_bytes(8)).digest())
    for split, count in wanted.items():
        missing, passed_over = count, []
        for cluster in left:
            if sizes[cluster] <= missing:
                chosen[cluster] = split
                missing -= sizes[cluster]
            else:
                passed_over.append(cluster)
        left = passed_over
        if missing == count > 0:
            raise CorpusError(
                f"{asked}: pairs that share a source or a target stay together, and of the {usable} usable pairs every "
                "such cluster left is larger than the split; ask for more pairs, or for 0 to have no such split."
            )
        if missing:
            logger.warning(
                "%s: held out %d pairs for %s; %d were wanted, but pairs that share a text stay together, and every "
                "cluster of them that is left is too large.",
                *(where, count - missing, split, count),
            )
    return [chosen.get(cluster) for cluster in clusters]


def _clusters(pairs: Iterable[tuple[str, str] | None], seed: int) -> array[int]:
    """The cluster of each pair: the smallest hash of its texts. 0 for None."""
    parents: dict[int, int] = {}

    def find(text: int) -> int:
        while (parent := parents.setdefault(text, text)) != text:
            parents[text] = text = parents[parent]
        return text

    heads = array("Q")
    for pair in pairs:
        if pair is None:
            heads.append(0)
            continue
        source, target = find(_hash(pair[0], b"source", seed)), find(_hash(pair[1], b"target", seed))
        parents[max(source, target)] = min(source, target)
        heads.append(source)
    return array("Q", (find(head) if head else 0 for head in heads))


def _hash(text: str, side: bytes, seed: int) -> int:
    """64 bits of a text. If two texts collide, their pairs stay together, which does no harm."""
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=str(seed).encode(), person=side).digest()
    return int.from_bytes(digest)


_WORDS = {"source", "src", "target", "tgt", "input", "output", "text", "sentence", "translation"}


def names_columns(cells: Iterable[str]) -> bool:
    """Whether each cell is a usual name of a column: `source`, `target text`, `English`, `en`, `deu`, ..."""
    return all(" ".join(cell.casefold().replace("_", " ").split()) in _names() for cell in cells)


@functools.cache
def _names() -> frozenset[str]:
    with needs("train"):
        from babel import Locale
        from babel.core import get_global

    languages = Locale("en").languages
    names = {name.casefold() for each in languages.items() for name in each}
    return frozenset({*_WORDS, *(f"{word} text" for word in _WORDS), *names, *get_global("language_aliases")})
