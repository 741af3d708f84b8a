"""Rows of different lengths, such as texts and ids: in memory, or in files if a corpus is larger than memory.

1. Rows are one flat array and its offsets: row i is `values[offsets[i] : offsets[i + 1]]`. Texts are stored so as bytes
   (`StoredTexts`), ids in the smallest of uint8, uint16 and int32 (`StoredRows`).
2. A corpus is read as a stream. Up to `IN_MEMORY` characters stay in memory, and nothing is written. Of a larger
   corpus, texts and then ids go to the files of an `Entry` while they are read. Running text is in files already, so
   only its ids do.
"""

from __future__ import annotations

import abc
import functools
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

IN_MEMORY = 16 << 20  # characters; the training texts of Multi30k have 4 million
_BUFFER = 4 << 20  # bytes that are written at once
_AT_ONCE = 4096  # texts that are read at once
_USUAL = 100  # characters of a text


class Rows:
    """Rows of different lengths in memory, such as the ids of texts.

    Args:
        values: all rows one after another, `(sum of the lengths,)`.
        offsets: where each row begins, and the end of the last one, int64 `(N + 1,)`.
    """

    def __init__(self, values: np.ndarray, offsets: np.ndarray):
        self.values, self.offsets = values, offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        """One row, `(T,)`."""
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    @property
    def count(self) -> int:
        """The sum of the lengths."""
        return len(self.values)

    @property
    def lengths(self) -> np.ndarray:
        """The length of each row, int32 `(N,)`."""
        return np.diff(self.offsets).astype(np.int32)

    def padded(self, rows: np.ndarray, length: int) -> np.ndarray:
        """Some rows `(B,)`, padded with 0 to a length that none of them exceeds: int32 `(B, T)`."""
        begins = self.offsets[rows][:, None]  # (B, 1)
        places = np.arange(length)
        inside = places < self.offsets[rows + 1][:, None] - begins  # (B, T)
        # One gather for all rows. Places outside a row read any id, which is then replaced.
        found = self.values[np.minimum(begins + places, len(self.values) - 1)]  # (B, T)
        return np.where(inside, found, 0).astype(np.int32)


class StoredRows:
    """Rows in two files: their values, and their offsets.

    They are read, not mapped: the pages of a mapped file count as memory of the process, and a row of 100 bytes brings
    64 kB into it.

    Args:
        values: a file of all rows one after another, open for reading.
        offsets: a file of where each begins, and the end of the last one, int64.
        dtype: the type of the values.
    """

    def __init__(self, values: Any, offsets: Any, dtype: Any):
        self._values, self._offsets, self.dtype = values, offsets, np.dtype(dtype)
        self.count = os.fstat(values.fileno()).st_size // self.dtype.itemsize
        self._number = os.fstat(offsets.fileno()).st_size // 8 - 1

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, row: int) -> np.ndarray:
        """One row, `(T,)`."""
        return np.frombuffer(self.contents(np.array([row]))[0], self.dtype)

    @property
    def lengths(self) -> np.ndarray:
        """The length of each row, int32 `(N,)`."""
        found = np.empty(len(self), np.int32)
        for begin in range(0, len(self), _BUFFER // 8):
            end = min(begin + _BUFFER // 8, len(self))
            found[begin:end] = np.diff(self.offsets(begin, end))
        return found

    def offsets(self, first: int, last: int) -> np.ndarray:
        """Where the rows from number `first` on begin, up to that of number `last`, int64."""
        return np.frombuffer(os.pread(self._offsets.fileno(), 8 * (last + 1 - first), 8 * first), np.int64)

    def block(self, begin: int, end: int) -> bytes:
        """The bytes of the values of some offsets."""
        size = self.dtype.itemsize
        return os.pread(self._values.fileno(), (end - begin) * size, begin * size)

    def contents(self, rows: np.ndarray) -> list[bytes]:
        """The bytes of some rows `(B,)`."""
        return [self.block(*self.offsets(row, row + 1).tolist()) for row in rows.tolist()]

    def padded(self, rows: np.ndarray, length: int) -> np.ndarray:
        """Some rows `(B,)`, padded with 0 to a length that none of them exceeds: int32 `(B, T)`."""
        contents = self.contents(rows)
        lengths = np.fromiter(map(len, contents), np.int64, len(contents)) // self.dtype.itemsize
        found = np.zeros((len(rows), length), np.int32)
        found[np.arange(length) < lengths[:, None]] = np.frombuffer(b"".join(contents), self.dtype)
        return found  # (B, T)


class _LargeTexts(Sequence[str]):
    """Texts of which some or all are in files, because they are more than memory should hold."""

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        rows = range(len(self))[index]
        return self._text(rows) if isinstance(rows, int) else [self._text(row) for row in rows]

    @abc.abstractmethod
    def _text(self, row: int) -> str:
        """The text of a row number from 0."""

    @abc.abstractmethod
    def select(self, rows: np.ndarray) -> Sequence[str]:
        """The texts of ascending row numbers."""


class StoredTexts(_LargeTexts):
    """Texts in files. They are read when they are asked for, and none is kept in memory.

    Args:
        stored: their bytes in UTF-8.
        rows: the numbers of the texts that count, ascending; None for all.
    """

    def __init__(self, stored: StoredRows, rows: np.ndarray | None = None):
        self._stored, self._rows = stored, rows

    def __len__(self) -> int:
        return len(self._stored) if self._rows is None else len(self._rows)

    def _text(self, row: int) -> str:
        return self.encoded(np.array([row]))[0].decode()

    def __iter__(self) -> Iterator[str]:
        for begin in range(0, len(self), _AT_ONCE):
            rows = self._numbers(np.arange(begin, min(begin + _AT_ONCE, len(self))))
            first, last = int(rows[0]), int(rows[-1])
            offsets = self._stored.offsets(first, last + 1)
            block = self._stored.block(int(offsets[0]), int(offsets[-1]))
            places = (offsets - offsets[0]).tolist()
            for row in (rows - first).tolist():
                yield block[places[row] : places[row + 1]].decode()

    def _numbers(self, rows: np.ndarray) -> np.ndarray:
        """The numbers in the file of some of the texts that count."""
        return rows if self._rows is None else self._rows[rows]

    def encoded(self, rows: np.ndarray) -> list[bytes]:
        """Some texts `(B,)` in UTF-8."""
        return self._stored.contents(self._numbers(rows))

    def select(self, rows: np.ndarray) -> Sequence[str]:
        """The texts of ascending row numbers; in memory if they are few."""
        chosen = StoredTexts(self._stored, self._numbers(rows).astype(np.int32))
        if len(rows) > IN_MEMORY // _USUAL:
            return chosen
        return list(map(bytes.decode, chosen.encoded(np.arange(len(rows)))))


class JoinedTexts(_LargeTexts):
    """The texts of several sequences, one sequence after another; some are in files.

    Args:
        parts: the sequences.
    """

    def __init__(self, parts: list[Sequence[str]]):
        self._parts = parts
        self._begins = np.concatenate([[0], np.cumsum([len(part) for part in parts])])

    def __len__(self) -> int:
        return int(self._begins[-1])

    def _text(self, row: int) -> str:
        part = int(np.searchsorted(self._begins, row, "right")) - 1
        return self._parts[part][row - int(self._begins[part])]

    def __iter__(self) -> Iterator[str]:
        return itertools.chain.from_iterable(self._parts)

    def select(self, rows: np.ndarray) -> Sequence[str]:
        """The texts of ascending row numbers."""
        bounds = np.searchsorted(rows, self._begins)
        ranges = zip(bounds, bounds[1:], self._begins, self._parts, strict=False)
        return joined([select(part, rows[first:last] - begin) for first, last, begin, part in ranges])


def joined(parts: list[Sequence[str]]) -> Sequence[str]:
    """The texts of several sequences, one sequence after another; a list if all are in memory."""
    return JoinedTexts(parts) if any(map(is_stored, parts)) else list(itertools.chain.from_iterable(parts))


def select(texts: Sequence[str], rows: np.ndarray) -> Sequence[str]:
    """The texts of ascending row numbers."""
    return texts.select(rows) if isinstance(texts, _LargeTexts) else [texts[row] for row in rows.tolist()]


def is_stored(texts: Sequence[str]) -> bool:
    """Whether some texts are in files, because they are more than memory should hold."""
    return isinstance(texts, _LargeTexts)


class Entry:
    """A folder of flat arrays.

    Args:
        folder: gives the folder. It is called when the folder is needed, so an entry that stays empty leaves nothing.
        info: facts about its content, fit for JSON.
    """

    def __init__(self, folder: Callable[[], Path], info: dict[str, Any]):
        self._make, self.info = folder, info

    @functools.cached_property
    def folder(self) -> Path:
        """The folder; a temporary one as long as the entry is being written."""
        return self._make()

    @property
    def is_used(self) -> bool:
        """Whether something has been written."""
        return "folder" in self.__dict__

    def file(self, name: str, dtype: Any) -> Any:
        """A new file for a flat array of numbers of a type, open for writing."""
        return (self.folder / f"{name}.{np.dtype(dtype).name}").open("wb", buffering=_BUFFER)

    def has(self, name: str) -> bool:
        """Whether there are rows or texts of that name."""
        return any(self.folder.glob(f"{name}-*"))

    def save(self, name: str, values: np.ndarray) -> None:
        """Writes a flat array."""
        with self.file(name, values.dtype) as file:
            file.write(np.ascontiguousarray(values))

    def array(self, name: str) -> np.ndarray:
        """A flat array, mapped into memory."""
        (file,) = self.folder.glob(f"{name}.*")
        dtype = np.dtype(file.suffix[1:])
        return np.memmap(file, dtype, "r") if file.stat().st_size else np.zeros(0, dtype)

    def rows(self, name: str) -> StoredRows:
        """Rows, as a `RowsWriter` has written them."""
        (values,) = self.folder.glob(f"{name}-values.*")
        offsets = (self.folder / f"{name}-offsets.int64").open("rb", buffering=0)
        return StoredRows(values.open("rb", buffering=0), offsets, values.suffix[1:])

    def texts(self, name: str) -> StoredTexts:
        """Texts, as a `TextsWriter` has written them."""
        return StoredTexts(self.rows(name))


class RowsWriter:
    """Rows that grow at their end: in two files of an entry, or in memory.

    Args:
        entry: the entry; None for memory.
        name: the beginning of the names of the files.
        dtype: the type of the numbers in the rows.
    """

    def __init__(self, entry: Entry | None, name: str, dtype: Any):
        self._entry, self._name, self._dtype = entry, name, dtype
        self._arrays: tuple[list[np.ndarray], list[np.ndarray]] = [], []
        if entry is not None:
            self._files = entry.file(f"{name}-values", dtype), entry.file(f"{name}-offsets", np.int64)
        self._end = 0
        self._add(np.zeros(0, dtype), np.zeros(1, np.int64))

    def append(self, values: np.ndarray, lengths: np.ndarray) -> None:
        """Adds rows: their numbers one after another, and how many each has."""
        self._add(values.astype(self._dtype), self._end + np.cumsum(lengths, dtype=np.int64))
        self._end += len(values)

    def _add(self, *arrays: np.ndarray) -> None:
        if self._entry is None:
            for parts, array in zip(self._arrays, arrays, strict=True):
                parts.append(array)
        else:
            for file, array in zip(self._files, arrays, strict=True):
                file.write(array.data if array.size else b"")

    def finish(self) -> Rows | StoredRows:
        """The rows."""
        if self._entry is None:
            return Rows(*map(np.concatenate, self._arrays))
        for file in self._files:
            file.close()
        return self._entry.rows(self._name)


class TextsWriter:
    """Columns of texts that are read from a stream: lists, or files of an entry as soon as they are many.

    Args:
        entry: where the files go.
        names: the names of the columns.
    """

    def __init__(self, entry: Entry, *names: str):
        self._entry, self._names = entry, names
        self._columns: list[list[str]] = [[] for _ in names]
        self._writers: list[RowsWriter] = []
        self._size = 0

    def append(self, *texts: str) -> None:
        """Adds a text to each column."""
        for column, text in zip(self._columns, texts, strict=True):
            column.append(text)
            self._size += len(text)
        if self._size > (_BUFFER if self._writers else IN_MEMORY):
            self._flush()

    def _flush(self) -> None:
        self._writers = self._writers or [RowsWriter(self._entry, name, np.uint8) for name in self._names]
        for writer, column in zip(self._writers, self._columns, strict=True):
            # A lone surrogate, which has no UTF-8, becomes "?", as it does in the hashes of a run.
            texts = [text.encode("utf-8", "replace") for text in column]
            lengths = np.fromiter(map(len, texts), np.int64, len(texts))
            writer.append(np.frombuffer(b"".join(texts), np.uint8), lengths)
            column.clear()
        self._size = 0

    def finish(self) -> list[Sequence[str]]:
        """The texts of each column."""
        if not self._writers:
            return [*self._columns]
        self._flush()
        for writer in self._writers:
            writer.finish()
        return [self._entry.texts(name) for name in self._names]
