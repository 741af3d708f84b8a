"""The rows of the input files, read by any worker.

A chunk is a range of bytes of a text file, or of rows of a Parquet file. A worker reads it in windows of some thousand
rows; for each window it writes one part, see `parts`.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from zoo.tasks.results import Failure

from ..file_encoding import without_mark
from .filesystem import open_file

_WINDOW = 4096  # rows
_WINDOW_BYTES = 8 << 20
_ZONE = "tz="  # in the name of a type of Arrow that holds times of a zone


@dataclasses.dataclass(frozen=True)
class Chunk:
    """A piece of an input file.

    Attributes:
        number: its place among all chunks, from 0.
        file: the path.
        begin: its first byte, or its first row in a Parquet file. A line belongs to the chunk in which it begins.
        end: the byte or row behind it.
        source: the input file as it was found, which `file` is the unpacked copy of if its name ends in `.gz`.
    """

    number: int
    file: str
    begin: int
    end: int
    source: str


@dataclasses.dataclass(frozen=True)
class Layout:
    """What is read and written.

    Attributes:
        reads: the format of the input.
        writes: the format of the output.
        columns: the names of the columns; of JSON lines none, of text one.
        inputs: for each input of the signature the column that it comes from.
        needed: the inputs that each row must have, since they have no other value.
        outputs: for each output that is written the name of its new column.
        takes: the type of each input.
        gives: of each output the type, and the number of axes behind the rows.
    """

    reads: str
    writes: str
    columns: tuple[str, ...]
    inputs: dict[str, str]
    needed: tuple[str, ...]
    outputs: dict[str, str]
    takes: dict[str, str]
    gives: dict[str, tuple[str, int]]


@dataclasses.dataclass(frozen=True)
class Record:
    """A row of a file.

    Attributes:
        line: which line or row of its chunk it is, from 0.
        raw: the line, or the row of a Parquet file.
        row: the inputs of the signature, or why there are none.
        broken: whether it is not UTF-8.
    """

    line: int
    raw: Any
    row: dict[str, Any] | Failure
    broken: bool = False


@dataclasses.dataclass(frozen=True)
class Window:
    """Successive rows of a chunk, for which one part is written.

    Attributes:
        chunk: the chunk.
        number: the place in the chunk, from 0.
        lines: how many lines there are, with blank ones.
        last: whether it ends the chunk.
        records: the rows.
    """

    chunk: Chunk
    number: int
    lines: int
    last: bool
    records: list[Record]


def windows(chunk: Chunk, layout: Layout) -> Iterator[Window]:
    """The rows of a chunk, piece by piece; at least one window, which may be empty."""
    records: list[Record] = []
    number = first = size = line = 0
    for line, record, length in _records(chunk, layout):
        if records and (len(records) == _WINDOW or size + length > _WINDOW_BYTES):
            yield Window(chunk, number, line - first, False, records)
            records, number, first, size = [], number + 1, line, 0
        if record is not None:
            records.append(record)
        size += length
        line += 1
    yield Window(chunk, number, line - first, True, records)


def _records(chunk: Chunk, layout: Layout) -> Iterator[tuple[int, Record | None, int]]:
    """The number of each line, its row or None for a blank line, and its bytes."""
    if layout.reads == "parquet":
        for line, (row, size) in enumerate(_parquet_rows(chunk, layout.writes)):
            yield line, Record(line, row, _inputs_of(row, layout)), size
        return
    for line, content in enumerate(lines_between(chunk.file, chunk.begin, chunk.end)):
        text = content.rstrip(b"\r\n").decode("utf-8", "replace")
        broken = "\ufffd" in text and text.encode() != content.rstrip(b"\r\n")
        blank = layout.reads == "jsonl" and not text.strip()
        yield line, None if blank else Record(line, text, _row_of_line(text, layout), broken), len(content)


def lines_between(path: str, begin: int, end: int) -> Iterator[bytes]:
    """The lines that begin at these bytes of a file, without byte order marks."""
    with open_file(path) as file:
        file.seek(max(begin - 1, 0))
        position = begin + (len(file.readline()) - 1 if begin else 0)  # a line that began before is another chunk's
        while position < end and (line := file.readline()):
            yield without_mark(line)
            position += len(line)


def _row_of_line(text: str, layout: Layout) -> dict[str, Any] | Failure:
    """The inputs that a line holds, or what is wrong with it."""
    if layout.reads == "txt":
        return {name: text for name in layout.inputs}
    found = columns_of_line(text, layout)
    try:
        return found if isinstance(found, Failure) else _inputs_of(found, layout)
    except RecursionError:
        return Failure("a row must be a JSON object; one of its values is nested too deep")


def columns_of_line(text: str, layout: Layout) -> dict[str, Any] | Failure:
    """What a line of TSV or JSON holds, by its columns or keys, or what is wrong with it."""
    if layout.reads == "tsv":
        cells = text.split("\t")
        if len(cells) != len(layout.columns):
            return Failure(f"a row must have {len(layout.columns)} cells, separated by tabs; it has {len(cells)}")
        return dict(zip(layout.columns, cells, strict=True))
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Failure(f"a row must be a JSON object; it is not JSON: {error}")
    if not isinstance(found, dict):
        return Failure(f"a row must be a JSON object; it is {text[:60]}")
    if taken := [name for name in layout.outputs.values() if name in found]:
        return Failure(f"a row must not have {taken[0]!r}, which is a new column; --prefix names that otherwise")
    return found


def _inputs_of(found: Mapping[str, Any], layout: Layout) -> dict[str, Any] | Failure:
    """The inputs among the columns of a row, or which one it lacks. Here, where the row's own names are known."""
    # An empty cell means the default where a number is wanted.
    row = {
        name: None if layout.takes[name] != "string" and found.get(column) == "" else _encodable(found.get(column))
        for name, column in layout.inputs.items()
    }
    for name in layout.needed:
        if row[name] is None:
            column = layout.inputs[name]
            if column in found:
                return Failure(f"a row must have {column!r}; it is {'null' if found[column] is None else 'empty'}")
            others = [repr(key) for key, value in found.items() if value is not None and key != column]
            return Failure(f"a row must have {column!r}; it has {', '.join(others) or 'nothing'}")
    return row


def _encodable(value: Any) -> Any:
    """JSON's value with "?" for half a surrogate pair, as in `zoo.tasks`: Beam cannot pass it on to a worker."""
    if isinstance(value, list):
        return [_encodable(each) for each in value]
    if isinstance(value, dict):  # no input takes it, which the model's call says
        return {_encodable(key): _encodable(each) for key, each in value.items()}
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _parquet_rows(chunk: Chunk, writes: str) -> Iterator[tuple[dict[str, Any], int]]:
    """The rows of a chunk, each with its bytes."""
    import pyarrow.parquet as pq

    with open_file(chunk.file) as opened:
        file, begin = pq.ParquetFile(opened), 0
        zoned = {
            field.name: field.type for field in file.schema_arrow if writes != "parquet" and _ZONE in str(field.type)
        }
        for group in range(file.num_row_groups):
            about = file.metadata.row_group(group)
            end = begin + about.num_rows
            if begin < chunk.end and chunk.begin < end:
                row_bytes = about.total_byte_size // max(about.num_rows, 1) + 1
                for batch in _batches(file, group, min(_WINDOW, _WINDOW_BYTES // row_bytes + 1), chunk.source):
                    first, last = max(begin, chunk.begin), min(begin + len(batch), chunk.end)
                    if first < last:
                        for row in _exact(batch.slice(first - begin, last - first), writes).to_pylist():
                            with_colons = {name: _with_colons(row[name], kind) for name, kind in zoned.items()}
                            yield row | with_colons, batch.nbytes // len(batch)
                    begin += len(batch)
                    if begin >= chunk.end:
                        return
            begin = end


def _batches(file: Any, group: int, rows: int, source: str) -> Iterator[Any]:
    """A group of rows of a Parquet file, piece by piece; an error names the column that cannot be read."""
    import pyarrow as pa

    try:
        yield from file.iter_batches(rows, row_groups=[group])
    except pa.ArrowException as error:
        where, told = f"{source}: row group {group}, counted from 0", str(error)
        for field in file.schema_arrow:
            try:
                file.read_row_group(group, columns=[field.name])
            except pa.ArrowException as of_column:
                where, told = f"{where}, column {field.name!r} of type {field.type}", str(of_column)
                break
        hint = "; pyarrow reads no list of fixed size that is null" if "fixed_size_list" in where else ""
        raise ValueError(f"{where}, cannot be read: {' '.join(told.split())}{hint}") from error


def _exact(batch: Any, writes: str) -> Any:
    """A table's batch with dates and times as integers or, for JSON, as text.

    Python's own have no nanoseconds, and end with the year 9999.
    """
    import pyarrow as pa
    from pyarrow import types

    def exact(kind: Any) -> Any:
        if types.is_temporal(kind):
            return pa.string() if writes != "parquet" else pa.int32() if kind.bit_width == 32 else pa.int64()
        if types.is_struct(kind):
            return pa.struct([field.with_type(exact(field.type)) for field in kind])
        if types.is_map(kind):
            return pa.map_(exact(kind.key_type), exact(kind.item_type))
        if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            return pa.list_(exact(kind.value_type))
        return kind

    return batch.cast(pa.schema([(field.name, exact(field.type)) for field in batch.schema]))


def _with_colons(value: Any, kind: Any) -> Any:
    """A cell of this type with +05:30 behind each time, as in ISO 8601, where Arrow writes +0530."""
    from pyarrow import types

    if value is None or _ZONE not in str(kind):
        return value
    if types.is_timestamp(kind):
        return re.sub(r"([+-]\d\d)(\d\d)$", r"\1:\2", value)
    if types.is_struct(kind):
        return {field.name: _with_colons(value[field.name], field.type) for field in kind}
    if types.is_map(kind):
        return [(_with_colons(key, kind.key_type), _with_colons(item, kind.item_type)) for key, item in value]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return [_with_colons(each, kind.value_type) for each in value]
    return value  # such as a dictionary, whose values are Python's
