"""What `zoo batch` is to do: which signature, files, columns and chunks, found and checked before the work begins."""

from __future__ import annotations

import dataclasses
import glob
import gzip
import json
import os
import pathlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.extras import needs
from zoo.serving.clients.messages import TensorSpec
from zoo.serving.clients.rows import row_input
from zoo.serving.layout import SAVED_MODEL_FILE, version_folder
from zoo.tasks.results import Failure
from zoo.tasks.settings import defaults_of

from ..file_encoding import refuse_other
from .filesystem import absolute, compression, open_file, whole
from .rows import Chunk, Layout, columns_of_line, lines_between
from .signatures import signature_of

with needs("beam"):
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.io.filesystems import FileSystems

WRITES = {  # the formats of an input, and of its outputs
    "txt": ("txt", "tsv", "jsonl"),
    "tsv": ("tsv", "txt", "jsonl"),
    "jsonl": ("jsonl", "txt"),
    "parquet": ("parquet", "txt", "jsonl"),
}
_CHUNKS = 64  # of a small input, for up to 8 workers; a large one has more
_CHUNK_BYTES = 16 << 10, 8 << 20
_CHUNK_ROWS = 1 << 10, 1 << 16
_LOOKED_AT = 1 << 16  # bytes of JSON lines, for a column that none has
PLAN_FILE = "plan.json"  # in the folder of the parts
_UNPACKED = "input-"  # begins the names of inputs that were gzipped


@dataclasses.dataclass(frozen=True)
class Plan:
    """All that decides what is computed.

    Attributes:
        model: the folder of the version.
        changed: when it changed, and the inputs: their sizes and times.
        signature: the name.
        settings: values for inputs that are the same for all rows.
        batch_size: the most rows that the model computes at once.
        layout: of the files.
        header: whether the first line of TSV files names the columns.
        chunks: of the input, in order.
    """

    model: str
    changed: dict[str, list[float]]
    signature: str
    settings: dict[str, Any]
    batch_size: int
    layout: Layout
    header: bool
    chunks: list[Chunk]

    def to_json(self) -> str:
        """The plan as text; equal plans give equal texts."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Reads what `to_json` gives."""
        found = json.loads(text)
        layout = {**found["layout"], **{name: tuple(found["layout"][name]) for name in ("columns", "needed")}}
        layout["gives"] = {name: tuple(each) for name, each in layout["gives"].items()}
        chunks = [Chunk(**each) for each in found["chunks"]]
        return cls(**{**found, "layout": Layout(**layout), "chunks": chunks})


@dataclasses.dataclass(frozen=True)
class Request:
    """What a user asks for.

    Attributes:
        model: a model's folder, or a version's.
        pattern: the input, a path that may have `*`.
        out: the output.
        signature: the name.
        columns: for inputs of the signature the columns that they come from, if these have other names.
        settings: for inputs of the signature one value for all rows.
        outputs: the outputs to write, None for all, or for the text where only answers are written.
        prefix: stands before the names of new columns.
        file_format: of the input, None to take it from the name.
        header: whether the first line of TSV files names the columns.
        batch_size: the most rows that the model computes at once.
    """

    model: str
    pattern: str
    out: str
    signature: str = "serving_default"
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    outputs: Sequence[str] | None = None
    prefix: str = ""
    file_format: str | None = None
    header: bool = True
    batch_size: int = 64

    @property
    def dead_letters(self) -> str:
        """The file of the rows that failed."""
        return f"{self.out.removesuffix('.gz').rpartition('.')[0]}.failed.jsonl"


def make_plan(asked: Request, scratch: str) -> Plan:
    """Finds out what is to be done.

    Args:
        asked: what a user asks for.
        scratch: the folder of the parts, for inputs that are unpacked.

    Raises:
        FileNotFoundError: there is no such model or no such input.
        ValueError: what was asked does not fit the model or the files.
    """
    folder = absolute(version_folder(asked.model))
    takes, gives = signature_of(folder, asked.signature)
    for name, spec in {**takes, **gives}.items():
        if not spec.has_rows:
            raise ValueError(f"the signature {asked.signature!r} does not have one {name!r} for each row")
    files = input_files(asked, scratch)
    inputs = {os.path.realpath(each.path) for each in files}
    if os.path.realpath(asked.out) in inputs:
        raise ValueError(f"{asked.out} is one of the inputs; choose another OUTPUT")
    if os.path.realpath(asked.dead_letters) in inputs:
        raise ValueError(
            f"{asked.dead_letters} is one of the inputs, and the rows that fail would be written there; choose another "
            "OUTPUT"
        )
    reads, writes = _formats(files, asked.out, asked.file_format)
    about = [*files, _metadata(f"{folder}/{SAVED_MODEL_FILE}")]
    changed = {each.path: [each.size_in_bytes, each.last_updated_in_seconds] for each in about}
    paths = [_unpacked(each.path, number, scratch) for number, each in enumerate(files)]
    if reads != "parquet":
        for each, path in zip(files, paths, strict=True):
            with open_file(path) as file:
                refuse_other(each.path, file.read(10))
    sources = [each.path for each in files]
    needed = _needed(takes, asked.settings)
    names = _columns(paths, sources, reads, needed, takes, asked.header)
    if writes == "parquet":
        _check_types(paths)
    wanted = list(asked.outputs or (_main_output(gives) if writes == "txt" else gives))
    if unknown := [name for name in wanted if name not in gives]:
        raise ValueError(
            f"the signature {asked.signature!r} gives {', '.join(gives)}. Received: --outputs {unknown[0]}"
        )
    if writes == "txt" and len(wanted) != 1:
        raise ValueError(f"a .txt file has one answer on each line; choose with --outputs among {', '.join(gives)}")
    layout = Layout(
        reads=reads,
        writes=writes,
        columns=names,
        inputs=_inputs(takes, names, asked.columns, asked.settings, reads),
        needed=tuple(needed),
        outputs={name: asked.prefix + (f"output_{name}" if name in takes else name) for name in wanted},
        takes={name: spec.dtype for name, spec in takes.items()},
        gives={name: (gives[name].dtype, len(gives[name].shape or (None,)) - 1) for name in wanted},
    )
    for name, value in asked.settings.items():
        row_input(name, value, takes)  # raises an error before the work begins
    if writes != "txt" and (taken := set(layout.outputs.values()) & set(names)):
        raise ValueError(f"the input has a column {sorted(taken)[0]!r} already; give --prefix for the new ones")
    chunks = _chunks(paths, sources, layout, asked.header)
    if not chunks:
        raise ValueError(f"{asked.pattern} has no rows")
    if reads == "jsonl":
        _check_first_rows(chunks[0], layout)
    if reads == "parquet":
        _check_strings(paths, layout)
    settings = dict(asked.settings)
    return Plan(folder, changed, asked.signature, settings, asked.batch_size, layout, asked.header, chunks)


def input_files(asked: Request, scratch: str) -> list[Any]:
    """The files that a path or a pattern with `*` means, by name.

    A pattern means no hidden files, such as locks, and none that an unfinished run has written.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is a folder, a pipe or a device.
    """
    pattern = asked.pattern
    if os.path.isdir(pattern):
        raise ValueError(f"{pattern} is a folder; give its files, such as '{pattern.rstrip('/')}/*.txt'")
    if os.path.exists(pattern) and not os.path.isfile(pattern):
        raise ValueError(f"{pattern} is a pipe or a device; write its content to a file first")
    path = absolute(pattern)
    if FileSystems.exists(path):  # also one with "[" in its name, which no pattern fits
        return [_metadata(path)]
    failed = absolute(asked.dead_letters) if FileSystems.exists(f"{scratch}/{PLAN_FILE}") else None
    files = [
        each
        for each in sorted(_matching(path), key=lambda each: each.path)
        if not (
            pathlib.PurePath(each.path).name.startswith(".")
            or each.path.startswith(f"{absolute(scratch)}/")
            or each.path == failed
        )
    ]
    if not files:
        raise FileNotFoundError(f"{pattern} does not exist")
    return files


def _matching(pattern: str) -> list[Any]:
    """Size and time of the files that a pattern means."""
    if "://" in pattern:
        return FileSystems.match([pattern])[0].metadata_list
    # Beam would look through all folders below, also for the files of one folder. Several `**` find a file twice.
    return [_metadata(path) for path in set(glob.iglob(pattern, recursive=True)) if os.path.isfile(path)]


def _metadata(path: str) -> Any:
    """Size and time of a file. Beam's `match` would take its path for a pattern."""
    return FileSystems.get_filesystem(path).metadata(path)


def _formats(files: Sequence[Any], out: str, file_format: str | None) -> tuple[str, str]:
    kinds = {file_format or _format(each.path) for each in files}
    if len(kinds) > 1 or not kinds <= WRITES.keys():
        raise ValueError(
            f"the input must be of one kind, by its name: {', '.join(f'.{each}' for each in WRITES)}, also with .gz; "
            f"or give --format. Received: {', '.join(each.path for each in files[:3])}"
        )
    [reads], writes = kinds, _format(out)
    if writes not in WRITES[reads]:
        *names, last = (f".{each}" for each in WRITES[reads])
        raise ValueError(
            f"from a .{reads} input come {', '.join(names)} or {last}; the output's name must end so. Received: {out}"
        )
    return reads, writes


def _format(path: str) -> str:
    return pathlib.PurePath(path.removesuffix(".gz")).suffix.removeprefix(".").lower()


def _unpacked(path: str, number: int, scratch: str) -> str:
    """A file that can be read from the middle: gzip cannot, so it is unpacked once.

    Raises:
        ValueError: it is no gzip file, or it is damaged or cut off.
    """
    if compression(path) == CompressionTypes.UNCOMPRESSED:
        return path
    unpacked = f"{scratch}/{_UNPACKED}{number:06}-{pathlib.PurePath(path).stem}"
    if not FileSystems.exists(unpacked):
        # Beam's own reader takes a file that is cut off for one that ends there. Python's reader reports it.
        with (
            FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as raw,
            gzip.GzipFile(fileobj=raw) as packed,
            whole(unpacked) as file,
        ):
            try:
                while piece := packed.read(1 << 20):
                    file.write(piece)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise ValueError(f"{path} is no gzip file, or it is damaged or cut off ({error})") from None
    return unpacked


def _needed(takes: Mapping[str, TensorSpec], settings: Mapping[str, Any]) -> list[str]:
    """The inputs that each row must have, since they have no other value."""
    given = {**defaults_of(takes), **settings}
    return [name for name in takes if given.get(name) is None]


def _columns(
    paths: Sequence[str],
    sources: Sequence[str],
    reads: str,
    needed: Sequence[str],
    takes: Mapping[str, TensorSpec],
    header: bool,
) -> tuple[str, ...]:
    """The names of the columns, the same in all files.

    Raises:
        ValueError: they differ, a name stands twice, or all files are empty.
    """
    if reads == "jsonl":
        return ()
    if reads == "txt":
        return (_only_text(needed, takes),)
    found, known = None, sources[0]
    for path, source in zip(paths, sources, strict=True):
        if reads == "parquet":
            names = _parquet(path).schema_arrow.names
        elif line := next(lines_between(path, 0, 1), b""):
            first = line.rstrip(b"\r\n").decode("utf-8", "replace").split("\t")
            names = first if header else [str(number) for number in range(1, len(first) + 1)]
        else:  # an empty file has no columns, and no rows
            continue
        if found is not None and tuple(names) != found:
            raise ValueError(f"{source} has other columns than {known}, or in another order: {', '.join(names)}")
        found, known = tuple(names), source
    if found is None:
        raise ValueError(f"{sources[0]} has no rows")
    if twice := sorted({name for name in found if found.count(name) > 1}):
        raise ValueError(f"{known} has several columns {twice[0]!r}")
    return found


def _parquet(path: str) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(open_file(path))
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} is no Parquet file ({error})") from None


def _check_types(paths: Sequence[str]) -> None:
    """Finds a column of several types before the work begins; one Parquet file cannot have it.

    Raises:
        ValueError: there is such a column.
    """
    import pyarrow as pa

    first, *others = (_parquet(path).schema_arrow.remove_metadata() for path in paths)
    for path, other in zip(paths[1:], others, strict=True):
        for one, field in zip(first, other, strict=True):
            if field != one:
                raise ValueError(
                    f"{path} has {pa.schema([field])}, and {paths[0]} has {pa.schema([one])}; a .parquet output has "
                    "one type in each column, so choose a .jsonl or .txt OUTPUT, or convert the file"
                )


def _only_text(needed: Sequence[str], takes: Mapping[str, TensorSpec]) -> str:
    if not needed:
        raise ValueError(
            "every input has a value by --set or by default, so the lines would not be read; leave out one --set"
        )
    if len(needed) != 1 or takes[needed[0]].dtype != "string":
        raise ValueError(
            f"the signature needs {', '.join(needed)}, and a line of text is one string; give a .tsv or .jsonl file, "
            "or all rows one value by --set INPUT=VALUE"
        )
    return needed[0]


def _inputs(
    takes: Mapping[str, TensorSpec], names: Sequence[str], chosen: Mapping[str, str], settings: Mapping, reads: str
) -> dict[str, str]:
    """The column of each input.

    Raises:
        ValueError: a column or an input does not exist, or a needed one was not given, or one was given twice.
    """
    for name in (*chosen, *settings):
        if name not in takes:
            raise ValueError(f"the signature takes {', '.join(takes)}. Received: {name}")
        if name in chosen and name in settings:
            raise ValueError(f"{name} was given by --column and by --set; give one of them")
    of_rows = [name for name in takes if name not in settings]
    found = {name: chosen.get(name, name) for name in of_rows if name in chosen or reads == "jsonl" or name in names}
    needed = [name for name in _needed(takes, settings) if name not in found]
    if len(needed) == 1 and len(names) == 1 and not found:
        return {needed[0]: names[0]}
    if needed:
        has_header = reads == "tsv" and names[0] != "1"
        no_header = "; if the first line is a row, and names no columns, give --no-header" if has_header else ""
        raise ValueError(
            f"the input has no column {needed[0]!r}, but {', '.join(names)}; choose by --column {needed[0]}=COLUMN, or "
            f"give all rows one value by --set {needed[0]}=VALUE{no_header}"
        )
    if missing := [column for column in found.values() if reads != "jsonl" and column not in names]:
        raise ValueError(f"the input has no column {missing[0]!r}; it has {', '.join(names)}")
    return found


def _main_output(gives: Mapping[str, TensorSpec]) -> list[str]:
    return next(([name] for name in ("text", "label") if name in gives), list(gives))


def _chunks(paths: Sequence[str], sources: Sequence[str], layout: Layout, header: bool) -> list[Chunk]:
    sizes = []  # of each file: its first byte or row, and the one behind its last
    for path in paths:
        if layout.reads == "parquet":
            sizes.append((0, _parquet(path).metadata.num_rows))
        else:
            begin = 0
            if header and layout.reads == "tsv":
                with open_file(path) as file:
                    begin = len(file.readline())
            sizes.append((begin, _metadata(path).size_in_bytes))
    least, most = _CHUNK_ROWS if layout.reads == "parquet" else _CHUNK_BYTES
    step = min(max(sum(end - begin for begin, end in sizes) // _CHUNKS, least), most)
    ranges = [
        (path, first, min(first + step, end), source)
        for path, source, (begin, end) in zip(paths, sources, sizes, strict=True)
        for first in range(begin, end, step)
    ]
    return [Chunk(number, *each) for number, each in enumerate(ranges)]


def _check_first_rows(chunk: Chunk, layout: Layout) -> None:
    """Finds a column that none of the first rows has, before the work begins."""
    lines = (line.decode("utf-8", "replace") for line in lines_between(chunk.file, 0, _LOOKED_AT) if line.strip())
    rows = [row for line in lines if not isinstance(row := columns_of_line(line, layout), Failure)]
    for name in layout.needed if rows else ():
        if not any(layout.inputs[name] in row for row in rows):
            raise ValueError(
                f"the first rows have no {layout.inputs[name]!r}; choose by --column {name}=KEY, or give all rows one "
                f"value by --set {name}=VALUE. The first row has {', '.join(rows[0])}"
            )


def _check_strings(paths: Sequence[str], layout: Layout) -> None:
    """Finds a column that has numbers or times in all files, and is wanted as texts, before the work begins."""
    from pyarrow import types

    for name in [name for name in layout.needed if layout.takes[name] == "string"]:
        column = layout.inputs[name]
        if all(types.is_primitive(_parquet(path).schema_arrow.field(column).type) for path in paths):
            kind = _parquet(paths[0]).schema_arrow.field(column).type
            raise ValueError(
                f"{name!r} takes strings, and the column {column!r} has {kind}; choose another one by --column "
                f"{name}=COLUMN"
            )
