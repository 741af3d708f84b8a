"""Files of rows for `zoo batch`: chunks of them, read by any worker; parts with the answers; and parts joined in order.

A chunk is a range of bytes of a text file, or of rows of a Parquet file. A worker reads it in windows, and writes one
part for each window. The name of a part says where it belongs and how many rows it has, so that the parts show how far
a run is, and what is missing after a run that was killed.
"""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import io
import json
import pathlib
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from zoo.atomic import to_disk
from zoo.extras import needs
from zoo.tasks.results import Failure

with needs("beam"):
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.io.filesystems import FileSystems

FORMATS = ("txt", "tsv", "jsonl", "parquet")
WRITES = {"txt": ("txt", "tsv", "jsonl"), "tsv": ("tsv", "txt", "jsonl"), "jsonl": ("jsonl", "txt")}
WRITES["parquet"] = ("parquet", "txt", "jsonl")
_WINDOW = 4096  # rows
_WINDOW_BYTES = 8 << 20
_GROUP_BYTES = 64 << 20  # of a group of rows in a Parquet output
_ZONE = "tz="  # in the name of a type of Arrow that holds times of a zone
_PART = re.compile(r"(\d+)-(\d+)-(\d+)-(\d+)-(\d+)-(\d+)-(more|last)")


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


@dataclasses.dataclass(frozen=True)
class Part:
    """A file with the answers to a window.

    Attributes:
        path: the file.
        chunk: the number of the chunk.
        window: the number of the window in it.
        lines: how many lines of the input it stands for.
        done: how many rows were answered.
        failed: how many rows failed.
        broken: how many rows are not UTF-8.
        last: whether it ends the chunk.
    """

    path: str
    chunk: int
    window: int
    lines: int
    done: int
    failed: int
    broken: int
    last: bool


# Reading.


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
    """The lines that begin at these bytes of a file; the first of the file without a byte order mark."""
    with open_file(path) as file:
        file.seek(max(begin - 1, 0))
        position = begin + (len(file.readline()) - 1 if begin else 0)  # a line that began before is another chunk's
        while position < end and (line := file.readline()):
            yield line.removeprefix(codecs.BOM_UTF8) if position == 0 else line
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


# Writing.


def write_part(folder: str, window: Window, answers: Sequence[dict[str, Any] | Failure], layout: Layout) -> None:
    """Writes the answers of a window, whole or not at all; rows that failed go to a file beside it.

    A worker may do this again for the same window; see `parts_in`.
    """
    pairs = list(zip(window.records, answers, strict=True))
    failed = [(record, answer) for record, answer in pairs if isinstance(answer, Failure)]
    counts = window.lines, len(pairs) - len(failed), len(failed), sum(record.broken for record in window.records)
    name = "-".join([f"{window.chunk.number:06}", f"{window.number:06}", *map(str, counts)])
    name += "-last" if window.last else "-more"
    if failed:  # first: the part itself says that the window is done
        _write_whole(f"{folder}/{name}.failed", b"".join(_dead_letter(window, *pair) for pair in failed))
    _write_whole(f"{folder}/{name}", b"".join(_written(pairs, window.chunk, layout)))


def _write_whole(path: str, content: bytes) -> None:
    with whole(path) as file:
        file.write(content)


@contextlib.contextmanager
def whole(path: str, folder: str | None = None) -> Iterator[BinaryIO]:
    """A file of any file system of Beam that appears when the block ends without an error.

    Args:
        path: the file.
        folder: where it is written until then; None for its own folder.
    """
    parent, slash, name = path.rpartition("/")
    partial = f"{parent + slash if folder is None else f'{folder}/'}{name}.tmp-{uuid.uuid4().hex[:8]}"
    try:
        with FileSystems.create(partial, compression_type=compression(path)) as file:
            yield file
        if (local := pathlib.Path(partial)).is_file():
            to_disk(local)  # or a power cut could leave an empty part, whose name says that its rows are done
        if FileSystems.exists(path):
            FileSystems.delete([path])
        FileSystems.rename([partial], [path])
    except BaseException as error:
        if FileSystems.exists(partial):
            FileSystems.delete([partial])
        if isinstance(error, OSError) and error.errno and error.filename in (None, partial):  # such as a full disk
            raise OSError(error.errno, error.strerror, path) from None
        raise


def compression(path: str) -> str:
    """How a file of this name is compressed."""
    return CompressionTypes.GZIP if path.endswith(".gz") else CompressionTypes.UNCOMPRESSED


def folder_exists(folder: str) -> bool:
    """Whether there is such a folder. A bucket has no folders, only files whose paths begin so."""
    return FileSystems.exists(folder) or bool(FileSystems.match([f"{folder}/*"], [1])[0].metadata_list)


def remove_folder(folder: str) -> None:
    """Removes a folder with all that is in it. In a bucket, only a path that ends in "/" means all that is below."""
    FileSystems.delete([f"{folder}/" if "://" in folder else folder])


def open_file(path: str) -> BinaryIO:
    """A file of any file system of Beam, unpacked if its name ends in `.gz`."""
    return FileSystems.open(path, compression_type=compression(path))


def _written(pairs: Iterable[tuple[Record, Any]], chunk: Chunk, layout: Layout) -> Iterator[bytes]:
    if layout.writes == "parquet":
        yield _table([pair for pair in pairs if not isinstance(pair[1], Failure)], chunk, layout)
        return
    for record, answer in pairs:
        if isinstance(answer, Failure):
            if layout.writes == "txt":
                yield b"\n"  # so that line N stays the answer to row N
            continue
        values = {name: answer[output] for output, name in layout.outputs.items()}
        if layout.writes == "jsonl":
            yield _json_line(record.raw, values, layout)
        else:
            cells = [_cell(value) for value in values.values()]
            if layout.writes == "tsv":
                given = record.raw.replace("\t", " ") if layout.reads == "txt" else record.raw
                cells = [given, *(re.sub("[\t\r]", " ", cell) for cell in cells)]
            yield ("\t".join(cells) + "\n").encode("utf-8", "replace")


def _json_line(raw: Any, values: Mapping[str, Any], layout: Layout) -> bytes:
    """The row with its answers. A line of JSON stays as it is but for its end, with all digits of its numbers."""
    if layout.reads == "jsonl":
        given = raw.rstrip()
    elif layout.reads == "parquet":
        given = _json(raw)
    else:
        cells = [raw] if layout.reads == "txt" else raw.split("\t")
        given = json.dumps(dict(zip(layout.columns, cells, strict=True)), ensure_ascii=False)
    added = _json(values)
    comma = "" if re.fullmatch(r"\s*\{\s*\}", given) else ", "
    return f"{given[:-1]}{comma}{added[1:]}\n".encode("utf-8", "replace")


def _json(value: Any) -> str:
    """Cells of a table or answers as JSON; what it has no form for, such as a date, as text."""
    return json.dumps(_plain(value), ensure_ascii=False, default=str)


def _plain(value: Any) -> Any:
    """A value for JSON: a float32 in the fewest digits that it is read back from; null for what is no number.

    Many tables have texts as bytes.
    """
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, float | np.floating):
        return float(str(value)) if np.isfinite(value) else None
    if isinstance(value, np.generic):
        return value.item()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _cell(value: Any) -> str:
    """An answer on one line."""
    value = _plain(value)
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else "" if value is None else str(value)
    return text.replace("\n", " ")


def _table(pairs: Sequence[tuple[Record, Any]], chunk: Chunk, layout: Layout) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_file(chunk.file) as file:
        table = pa.Table.from_pylist([record.raw for record, _ in pairs], pq.read_schema(file))
    for output, name in layout.outputs.items():
        dtype, axes = layout.gives[output]
        kind = pa.string() if dtype == "string" else pa.from_numpy_dtype(np.dtype(dtype))
        for _ in range(axes):
            kind = pa.list_(kind)
        table = table.append_column(name, pa.array([_in_table(answer[output]) for _, answer in pairs], kind))
    content = io.BytesIO()
    pq.write_table(table, content)
    return content.getvalue()


def _in_table(value: Any) -> Any:
    """An answer in a table: lists in place of arrays, text in place of bytes."""
    if isinstance(value, np.ndarray):
        return [_in_table(each) for each in value] if value.dtype == object else value.tolist()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _dead_letter(window: Window, record: Record, failure: Failure) -> bytes:
    letter = {"file": window.chunk.source, "line": record.line, "reason": failure.reason, "row": record.raw}
    return _json(letter).encode("utf-8", "replace") + b"\n"


# Joining.


def parts_in(folder: str) -> list[Part]:
    """The parts in a folder, in the order of the input, one for each window."""
    found = []
    for metadata in FileSystems.match([f"{folder}/*"])[0].metadata_list:
        if match := _PART.fullmatch(metadata.path.rpartition("/")[2]):
            chunk, window, lines, done, failed, broken = map(int, match.groups()[:6])
            found.append(Part(metadata.path, chunk, window, lines, done, failed, broken, match[7] == "last"))
    found.sort(key=lambda part: (part.chunk, part.window, part.done))
    # A window that was tried again may have failed elsewhere. Of its parts, the one with the most answers counts.
    return list({(part.chunk, part.window): part for part in found}.values())


def complete_chunks(parts: Iterable[Part]) -> set[int]:
    """The numbers of the chunks of which all parts are there."""
    have: dict[int, set[int]] = {}
    last: dict[int, int] = {}
    for part in parts:
        have.setdefault(part.chunk, set()).add(part.window)
        if part.last:
            last[part.chunk] = part.window
    return {chunk for chunk, window in last.items() if have[chunk] == set(range(window + 1))}


def join(parts: Sequence[Part], layout: Layout, header: bool, out: str, folder: str) -> None:
    """Writes the answers of all parts to one file, in the folder of the parts until it is complete."""
    if layout.writes == "parquet":
        _join_tables(parts, out, folder)
        return
    with whole(out, folder) as file:
        if layout.writes == "tsv" and header:
            file.write("\t".join([*layout.columns, *layout.outputs.values()]).encode() + b"\n")
        for part in parts:
            with FileSystems.open(part.path, compression_type=CompressionTypes.UNCOMPRESSED) as opened:
                while piece := opened.read(1 << 20):
                    file.write(piece)


def join_failures(
    parts: Sequence[Part], chunks: Sequence[Chunk], layout: Layout, header: bool, out: str, folder: str
) -> None:
    """As `join`, with the rows that failed, each with the number of its line in its file."""
    lines: dict[str, int] = {}  # of each file, up to this part
    with whole(out, folder) as file:
        for part in parts:
            source = chunks[part.chunk].file
            lines.setdefault(source, 1 if header and layout.reads == "tsv" else 0)
            if part.window == 0:
                base = lines[source] + 1  # a letter counts from the beginning of its chunk
            for letter in _letters_of(part):
                letter["line"] += base
                file.write(json.dumps(letter, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            lines[source] += part.lines


def _letters_of(part: Part) -> Iterator[dict[str, Any]]:
    if part.failed:
        with open_file(f"{part.path}.failed") as letters:
            yield from map(json.loads, letters)


def _join_tables(parts: Sequence[Part], out: str, folder: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with whole(out, folder) as file:
        with open_file(parts[0].path) as opened:
            schema = pq.read_schema(opened)
        with pq.ParquetWriter(file, schema) as writer:
            tables: list[Any] = []
            for part in parts:
                with open_file(part.path) as opened:
                    tables.append(pq.read_table(opened))
                # A group of rows for each part would be small: readers want large ones.
                if sum(table.nbytes for table in tables) >= _GROUP_BYTES or part is parts[-1]:
                    writer.write_table(pa.concat_tables(tables))
                    tables = []
