"""Parts: files with the answers to a window of rows each, and joined in the order of the input.

The name of a part says where it belongs and how many rows it has. So the parts show how far a run is, and what is
missing after a run that was killed.
"""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.extras import needs
from zoo.tasks.results import Failure

from .filesystem import open_file, whole
from .rows import Chunk, Layout, Record, Window

with needs("beam"):
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.io.filesystems import FileSystems

_GROUP_BYTES = 64 << 20  # of a group of rows in a Parquet output
_NAME = re.compile(r"(\d+)-(\d+)-(\d+)-(\d+)-(\d+)-(\d+)-(more|last)")


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


def parts_in(folder: str) -> list[Part]:
    """The parts in a folder, in the order of the input, one for each window."""
    found = []
    for metadata in FileSystems.match([f"{folder}/*"])[0].metadata_list:
        if match := _NAME.fullmatch(metadata.path.rpartition("/")[2]):
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
