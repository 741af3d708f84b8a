"""Tab-separated files (TSV): some columns of each line, chosen by number or by name."""

from __future__ import annotations

import functools
import itertools
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import pydantic

from zoo.extras import needs

from .corpus import CorpusError
from .files import lines_of

logger = logging.getLogger(__name__)
_SOME = 10  # rows that are looked at
_QUOTED = re.compile(r'"[^"]*(""[^"]*)*"')  # a spreadsheet puts quotes around a text with quotes, and doubles those


def read_table(
    path: Path, columns: Mapping[str, int | str], header: bool, warns: bool = True
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The number of each line of a TSV, from 1, and its cells in some columns; a blank line has empty cells.

    Args:
        path: the file, in UTF-8, gzipped if its name ends in `.gz`.
        columns: the number of each column, from 1, or its header. The keys are those of the recipe, for errors.
        header: whether the first line names the columns.
        warns: whether a warning tells of a first line that looks like names, and is read as a row.

    Raises:
        CorpusError: a column is missing or chosen twice, its name stands twice in the header, or the file cannot be
            read.
    """
    lines = enumerate(lines_of(path), 1)
    names = next(lines)[1].split("\t") if header else []
    indexes = [_index(column, names, path) for column in columns.values()]
    for (one, first), (other, second) in itertools.combinations(zip(columns, indexes, strict=True), 2):
        if first == second:
            raise CorpusError(f"{path}: {one} and {other} are both column {first + 1}.")
    needed = max(indexes) + 1
    widths: Counter[int] = Counter()
    first_of_width: dict[int, int] = {}
    doubled, first_doubled, quoted = 0, 0, 0
    some: list[tuple[str, ...]] = []  # rows; not the first, which may be names
    for number, line in lines:
        cells = line.split("\t")
        if len(cells) >= needed:
            chosen = tuple(cells[index] for index in indexes)
            if number == 1 and not header and warns:
                _warn_of_header(path, chosen)
            if number > 1 and len(some) < _SOME:
                some.append(chosen)
            widths[len(cells)] += 1
            first_of_width.setdefault(len(cells), number)
            in_quotes = [cell for cell in chosen if _QUOTED.fullmatch(cell)]
            quoted += bool(in_quotes)
            if any('""' in cell[1:-1] for cell in in_quotes):
                doubled, first_doubled = doubled + 1, first_doubled or number
            yield number, chosen
        elif not line.strip():
            yield number, ("",) * len(columns)
        else:
            told = ", ".join(f"{name} = {column!r}" for name, column in columns.items())
            other = ""
            if len(cells) == 1 and not widths:
                other = "; docs/own_data.md says how to make a TSV from CSV or JSON lines"
            elif line.count('"') % 2:
                other = "; if a text in quotes has a line break, docs/own_data.md says how to make a TSV without it"
            raise CorpusError(
                f"{path}:{number}: a line must have {needed} columns or more, separated by tabs ({told}); this one has "
                f"{len(cells)}{other}. Received: {line[:60]!r}"
            )
    _warn_of_tabs(path, widths, first_of_width)
    if widths and widths.most_common(1)[0][0] > len(columns):
        _warn_of_numbers(path, columns, some)
    if doubled:
        logger.warning(
            '%s:%d: a cell in quotes with "" inside, as spreadsheets write (lines with such a cell: %d); quotes are '
            "read as text. Export the file without them",
            *(path, first_doubled, doubled),
        )
    elif 2 * quoted > widths.total():
        logger.warning(
            "%s: most lines have a cell in quotes (%d of %d); quotes are read as text. Export the file without them",
            *(path, quoted, widths.total()),
        )


def check_columns(columns: Mapping[str, int | str], header: bool) -> None:
    """Refuses names of columns without a header, and the same column twice.

    Raises:
        ValueError: there is such a column.
    """
    for name, column in columns.items():
        if isinstance(column, str) and not header:
            raise ValueError(
                f"`{name}` is a name, which needs `header = true`; or give a number from 1. Received: {name}={column!r}"
            )
    for (one, first), (other, second) in itertools.combinations(columns.items(), 2):
        if first == second:
            raise ValueError(f"`{one}` and `{other}` must differ. Received: {first!r} for both")


def _number_or_name(value: Any, info: pydantic.ValidationInfo) -> Any:
    if value is None or (type(value) is int and value >= 1) or (isinstance(value, str) and value):
        return value
    name = info.field_name
    raise ValueError(f"`{name}` must be a column's number, from 1, or its header's name. Received: {name}={value!r}")


Column = Annotated[int | str, pydantic.BeforeValidator(_number_or_name)]
"""A column of a TSV in a recipe: its number from 1, or its name in the header."""


def _index(column: int | str, names: list[str], path: Path) -> int:
    if isinstance(column, int):
        return column - 1
    if column in names:
        if (count := names.count(column)) > 1:
            raise CorpusError(f"{path}:1: {count} columns are named {column!r}; give the number of one, from 1.")
        return names.index(column)
    near = get_close_matches(column, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise CorpusError(f"{path}:1: no column {column!r} in the header; it has {', '.join(map(repr, names))}{hint}")


def _warn_of_tabs(path: Path, widths: Counter[int], first_of_width: dict[int, int]) -> None:
    """Warns of lines with more columns than usual, because a tab inside a text shifts its columns."""
    usual = widths.most_common(1)[0][0] if widths else 0
    wider = [width for width in widths if width > usual]
    if wider:
        number, width = min((first_of_width[width], width) for width in wider)
        logger.warning(
            "%s:%d: %d columns, where most lines have %d (lines with more: %d); a tab inside a text shifts its "
            "columns, and makes a wrong pair",
            *(path, number, width, usual, sum(widths[width] for width in wider)),
        )


def _warn_of_numbers(path: Path, columns: Mapping[str, int | str], rows: Sequence[Sequence[str]]) -> None:
    """Warns of a chosen column that numbers the rows, as pandas writes one before the columns of texts."""
    if len(rows) < _SOME:
        return
    for (name, column), cells in zip(columns.items(), zip(*rows, strict=True), strict=True):
        first = int(cells[0]) if re.fullmatch("[0-9]{1,9}", cells[0]) else None
        if first is not None and all(cell == str(first + i) for i, cell in enumerate(cells)):
            logger.warning(
                "%s: %s = %r has the numbers %d, %d, %d and so on; if they number the rows, choose another column",
                *(path, name, column, first, first + 1, first + 2),
            )


def _warn_of_header(path: Path, cells: Sequence[str]) -> None:
    """Warns of cells that are different, usual names of columns: `source`, `target text`, `English`, `en`, ..."""
    names = [" ".join(cell.casefold().replace("_", " ").split()) for cell in cells]
    if len(set(names)) == len(names) and all(name in _names() for name in names):
        logger.warning(
            "%s:1: %s look like the names of columns, and are read as a row; if they are names, set header = true in "
            "[corpus]",
            *(path, " and ".join(map(repr, cells))),
        )


_OF_PAIRS = {"source", "src", "target", "tgt", "input", "output", "text", "sentence", "translation"}
_OF_LABELS = {"label", "class", "category", "sentiment", "premise", "hypothesis", "review", "comment", "tweet"}
_WORDS = _OF_PAIRS | _OF_LABELS


@functools.cache
def _names() -> frozenset[str]:
    with needs("train"):
        from babel import Locale
        from babel.core import get_global

    languages = Locale("en").languages
    names = {name.casefold() for each in languages.items() for name in each}
    return frozenset({*_WORDS, *(f"{word} text" for word in _WORDS), *names, *get_global("language_aliases")})
