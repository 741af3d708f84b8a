"""Inference with an exported model on files, by a pipeline of Apache Beam: what `zoo batch` runs.

The command plans: it finds the model's signature, the columns and the chunks of the input. A process of its own, the
driver, gives the chunks that are not done to a runner of Beam. Each worker reads chunks, calls the model and writes
parts; see `batch_files`. Only chunks and counts pass through the runner, so that memory does not grow with the files.
When all parts are there, the command joins them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from zoo.extras import needs
from zoo.serving.clients.messages import TensorSpec
from zoo.serving.layout import SAVED_MODEL_FILE

from .batch_files import (
    FORMATS,
    WRITES,
    Chunk,
    Layout,
    Window,
    complete_chunks,
    compression,
    join,
    join_failures,
    lines_between,
    open_file,
    parts_in,
    row_of_line,
    whole,
    windows,
    write_part,
)

with needs("beam"):
    import apache_beam as beam
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.metrics import MetricsFilter
    from apache_beam.ml.inference.base import KeyedModelHandler, PredictionResult, RunInference
    from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions

    from zoo.beam import DEFAULTS, NAMESPACE, Failure, SavedModelHandler, version_folder

# TensorFlow's `saved_model.proto` and `types.proto`: fields with their number and type; a map is a list of entries.
_MESSAGES = {
    "Axis": {"size": (1, "INT64")},
    "Shape": {"dim": (2, "*Axis")},
    "Tensor": {"dtype": (2, "INT32"), "tensor_shape": (3, "Shape")},
    "TensorEntry": {"key": (1, "STRING"), "value": (2, "Tensor")},
    "Signature": {"inputs": (1, "*TensorEntry"), "outputs": (2, "*TensorEntry")},
    "SignatureEntry": {"key": (1, "STRING"), "value": (2, "Signature")},
    "MetaGraph": {"signature_def": (5, "*SignatureEntry")},
    "SavedModel": {"meta_graphs": (2, "*MetaGraph")},
}
_DTYPES = {1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 9: "int64"}
_DTYPES |= {10: "bool", 14: "bfloat16", 17: "uint16", 19: "float16", 22: "uint32", 23: "uint64"}
_CHUNKS = 64  # of a small input, for up to 8 workers; a large one has more
_CHUNK_BYTES = 16 << 10, 8 << 20
_CHUNK_ROWS = 1 << 10, 1 << 16
_LOCAL = (None, "DirectRunner", "FnApiRunner")
_TRIES = 3  # of a driver whose workers are killed, without a new part between
_WORKER_ENDED = 3  # exit code of the driver
_PLAN, _LOG, _UNPACKED = "plan.json", "log.txt", "input-"


@dataclasses.dataclass(frozen=True)
class Plan:
    """All that decides what is computed.

    Attributes:
        model: the folder of the version.
        changed: when it changed, and the inputs: their sizes and times.
        signature: the name.
        settings: values for inputs that are no column.
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
        layout = {**found["layout"], "columns": tuple(found["layout"]["columns"])}
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


class Summary(NamedTuple):
    """How many rows were answered and how many failed, where the failed ones are, and Beam's counters."""

    done: int
    failed: int
    dead_letters: str
    counters: dict[str, int]


def infer_files(
    asked: Request,
    flags: Sequence[str] = (),
    workers: int = 1,
    overwrite: bool = False,
    advance: Callable[[int], None] = lambda rows: None,
    say: Callable[[str], None] = lambda line: None,
) -> Summary:
    """Has a model answer the rows of files, and writes them with the answers, in the same order.

    The parts are in the folder `OUTPUT.parts` until all are there. The same call after a failure goes on with them.

    Args:
        asked: what to do.
        flags: for Beam.
        workers: processes on this machine, if the flags name no other runner.
        overwrite: whether to replace the output, and parts of a run that was another.
        advance: called with the number of rows that were just done.
        say: called with a line when something happens.

    Raises:
        FileNotFoundError: there is no such model or no such input.
        FileExistsError: the output exists, or the parts of another run.
        ValueError: what was asked does not fit the model or the files, or every row failed.
        OSError: workers ended again and again, or the pipeline failed.
    """
    scratch = f"{asked.out}.parts"
    dead_letters = f"{asked.out.removesuffix('.gz').rpartition('.')[0]}.failed.jsonl"
    for path in (asked.out, dead_letters):
        if os.path.isdir(path):
            raise FileExistsError(f"{path} is a folder; OUTPUT must be a file")
        if FileSystems.exists(path) and not overwrite and (path == asked.out or not FileSystems.exists(scratch)):
            raise FileExistsError(f"{path} exists; choose another OUTPUT, or replace it by --overwrite")
    options = beam_options(flags, workers)
    plan = _resumed_or_new(asked, scratch, overwrite, say)
    counters = _drive_to_the_end(plan, scratch, options, advance, say)
    parts = parts_in(scratch)
    done, failed = sum(part.done for part in parts), sum(part.failed for part in parts)
    if failed:  # before the answers, which say that all is done
        join_failures(parts, plan.chunks, plan.layout, plan.header, dead_letters)
    elif FileSystems.exists(dead_letters):  # of the output that is replaced
        FileSystems.delete([dead_letters])
    if done:
        join(parts, plan.layout, plan.header, asked.out)
    FileSystems.delete([scratch])
    if not done:
        why = f"all {failed} rows failed; {dead_letters} has the reasons" if failed else f"{asked.pattern} has no rows"
        raise ValueError(why)
    return Summary(done, failed, dead_letters, counters)


def _resumed_or_new(asked: Request, scratch: str, overwrite: bool, say: Callable[[str], None]) -> Plan:
    """The plan, of which some parts may be there."""
    file = f"{scratch}/{_PLAN}"
    begun = FileSystems.exists(file)
    try:
        plan = make_plan(asked, scratch)
    except BaseException:
        if not begun and FileSystems.exists(scratch):  # an input was unpacked there
            FileSystems.delete([scratch])
        raise
    if begun:
        with open_file(file) as opened:
            same = opened.read().decode() == plan.to_json()
        if same:
            say(f"going on: {len(complete_chunks(parts_in(scratch)))} of {len(plan.chunks)} chunks are done")
            return plan
        if not overwrite:
            raise FileExistsError(
                f"{scratch} holds an unfinished run with another model, input or option; repeat that command to go "
                "on with it, or drop it by --overwrite"
            )
        FileSystems.delete([scratch])
        plan = make_plan(asked, scratch)
    with whole(file) as opened:
        opened.write(plan.to_json().encode())
    return plan


# Planning.


def make_plan(asked: Request, scratch: str) -> Plan:
    """Finds out what is to be done.

    Raises:
        FileNotFoundError: there is no such model or no such input.
        ValueError: what was asked does not fit the model or the files.
    """
    folder = _absolute(version_folder(asked.model))
    takes, gives = signature_of(folder, asked.signature)
    files = input_files(asked.pattern)
    reads, writes = _formats(files, asked.out, asked.file_format)
    about = [*files, *FileSystems.match([f"{folder}/{SAVED_MODEL_FILE}"])[0].metadata_list]
    changed = {each.path: [each.size_in_bytes, each.last_updated_in_seconds] for each in about}
    paths = [_unpacked(each.path, number, scratch) for number, each in enumerate(files)]
    names = _columns(paths, reads, takes, asked.header)
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
        outputs={name: asked.prefix + (f"output_{name}" if name in takes else name) for name in wanted},
        takes={name: spec.dtype for name, spec in takes.items()},
        gives={name: (gives[name].dtype, len(gives[name].shape or (None,)) - 1) for name in wanted},
    )
    if writes != "txt" and (taken := set(layout.outputs.values()) & set(names)):
        raise ValueError(f"the input has a column {sorted(taken)[0]!r} already; give --prefix for the new ones")
    chunks = _chunks(paths, layout, asked.header)
    if not chunks:
        raise ValueError(f"{asked.pattern} has no rows")
    if reads == "jsonl":
        _check_first_row(chunks[0], layout, {**DEFAULTS, **asked.settings})
    settings = dict(asked.settings)
    return Plan(folder, changed, asked.signature, settings, asked.batch_size, layout, asked.header, chunks)


def signature_of(folder: str, name: str) -> tuple[dict[str, TensorSpec], dict[str, TensorSpec]]:
    """What a signature takes and gives, read without loading the model.

    Raises:
        ValueError: the file is damaged, or there is no such signature.
    """
    with open_file(f"{folder}/{SAVED_MODEL_FILE}") as file:
        try:
            graphs = _saved_model_class().FromString(file.read()).meta_graphs
        except DecodeError as error:
            raise ValueError(f"{folder} cannot be loaded; its files may be damaged ({error})") from None
    found = {each.key: each.value for graph in graphs for each in graph.signature_def}
    if name not in found:
        known = sorted(key for key in found if not key.startswith("__"))
        raise ValueError(f"{folder} has no signature {name!r}; it has {', '.join(known)}")

    def specs(tensors: Iterable[Any]) -> dict[str, TensorSpec]:
        return {
            each.key: TensorSpec(
                _DTYPES.get(each.value.dtype, "unknown"),
                tuple(None if axis.size < 0 else axis.size for axis in each.value.tensor_shape.dim),
            )
            for each in sorted(tensors, key=lambda each: each.key)
        }

    return specs(found[name].inputs), specs(found[name].outputs)


@functools.cache
def _saved_model_class() -> Any:
    """A message with the fields of a `saved_model.pb` that are read here; TensorFlow's own takes 3 s to import."""
    file = descriptor_pb2.FileDescriptorProto(name="saved_model_signatures.proto", package="zoo", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _MESSAGES.items():
        described = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            nested = kind.strip("*") in _MESSAGES
            described.field.add(
                name=field,
                number=number,
                label=kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL,
                type=kinds.TYPE_MESSAGE if nested else getattr(kinds, f"TYPE_{kind}"),
                type_name=f".zoo.{kind.strip('*')}" if nested else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("zoo.SavedModel"))


def input_files(pattern: str) -> list[Any]:
    """The files that a path or a pattern with `*` means, by name.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is a folder.
    """
    if os.path.isdir(pattern):
        raise ValueError(f"{pattern} is a folder; give its files, such as '{pattern.rstrip('/')}/*.txt'")
    # Beam does not look for `*` in a relative path.
    files = sorted(FileSystems.match([_absolute(pattern)])[0].metadata_list, key=lambda each: each.path)
    files = [each for each in files if not os.path.isdir(each.path)]
    if not files:
        raise FileNotFoundError(f"{pattern} does not exist")
    return files


def _formats(files: Sequence[Any], out: str, file_format: str | None) -> tuple[str, str]:
    kinds = {file_format or _format(each.path) for each in files}
    if len(kinds) > 1 or not kinds <= set(FORMATS):
        raise ValueError(
            f"the input must be of one kind, by its name: {', '.join(f'.{each}' for each in FORMATS)}, also with .gz; "
            f"or give --format. Received: {', '.join(each.path for each in files[:3])}"
        )
    [reads], writes = kinds, _format(out)
    if writes not in WRITES[reads]:
        names = " or ".join(f".{each}" for each in WRITES[reads])
        raise ValueError(f"of {reads} comes {names}; the output's name must end so. Received: {out}")
    return reads, writes


def _format(path: str) -> str:
    return pathlib.PurePath(path.removesuffix(".gz")).suffix.removeprefix(".").lower()


def _unpacked(path: str, number: int, scratch: str) -> str:
    """A file that can be read from the middle: gzip cannot, so it is unpacked once."""
    if compression(path) == CompressionTypes.UNCOMPRESSED:
        return path
    unpacked = f"{scratch}/{_UNPACKED}{number:06}-{pathlib.PurePath(path).stem}"
    if not FileSystems.exists(unpacked):
        with open_file(path) as packed, whole(unpacked) as file:
            while piece := packed.read(1 << 20):
                file.write(piece)
    return unpacked


def _columns(paths: Sequence[str], reads: str, takes: Mapping[str, TensorSpec], header: bool) -> tuple[str, ...]:
    """The names of the columns, the same in all files.

    Raises:
        ValueError: they differ, or a name stands twice.
    """
    if reads == "jsonl":
        return ()
    if reads == "txt":
        return (_only_text(takes),)
    found: tuple[str, ...] | None = None
    for path in paths:
        if reads == "parquet":
            names = _parquet(path).schema_arrow.names
        else:
            first = next(lines_between(path, 0, 1), b"").rstrip(b"\r\n").decode("utf-8", "replace").split("\t")
            names = first if header else [str(number) for number in range(1, len(first) + 1)]
        if found is not None and tuple(names) != found:
            raise ValueError(f"{path} has other columns than {paths[0]}: {', '.join(names)}")
        found = tuple(names)
    if twice := sorted({name for name in found or () if (found or ()).count(name) > 1}):
        raise ValueError(f"{paths[0]} has several columns {twice[0]!r}")
    return found or ()


def _parquet(path: str) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(open_file(path))
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} is no Parquet file ({error})") from None


def _only_text(takes: Mapping[str, TensorSpec]) -> str:
    needed = [name for name, spec in takes.items() if name not in DEFAULTS]
    if len(needed) != 1 or takes[needed[0]].dtype != "string":
        raise ValueError(
            f"the signature takes {', '.join(needed)}, and a line of text is one string; give a .tsv or .jsonl file"
        )
    return needed[0]


def _inputs(
    takes: Mapping[str, TensorSpec], names: Sequence[str], chosen: Mapping[str, str], settings: Mapping, reads: str
) -> dict[str, str]:
    """The column of each input.

    Raises:
        ValueError: a column or an input does not exist, or a needed one was not given.
    """
    for name in (*chosen, *settings):
        if name not in takes:
            raise ValueError(f"the signature takes {', '.join(takes)}. Received: {name}")
    found = {name: chosen.get(name, name) for name in takes if name in chosen or reads == "jsonl" or name in names}
    needed = [name for name in takes if name not in found and name not in settings and name not in DEFAULTS]
    if len(needed) == 1 and len(names) == 1 and not found:
        return {needed[0]: names[0]}
    if needed:
        raise ValueError(
            f"the input has no column {needed[0]!r}, but {', '.join(names)}; choose by --column {needed[0]}=COLUMN"
        )
    if missing := [column for column in found.values() if reads != "jsonl" and column not in names]:
        raise ValueError(f"the input has no column {missing[0]!r}; it has {', '.join(names)}")
    return found


def _main_output(gives: Mapping[str, TensorSpec]) -> list[str]:
    return next(([name] for name in ("text", "label") if name in gives), list(gives))


def _chunks(paths: Sequence[str], layout: Layout, header: bool) -> list[Chunk]:
    sizes = []  # of each file: its first byte or row, and the one behind its last
    for path in paths:
        if layout.reads == "parquet":
            sizes.append((0, _parquet(path).metadata.num_rows))
        else:
            begin = len(next(_raw_lines(path), b"")) if header and layout.reads == "tsv" else 0
            sizes.append((begin, FileSystems.match([path])[0].metadata_list[0].size_in_bytes))
    least, most = _CHUNK_ROWS if layout.reads == "parquet" else _CHUNK_BYTES
    step = min(max(sum(end - begin for begin, end in sizes) // _CHUNKS, least), most)
    ranges = [
        (path, first, min(first + step, end))
        for path, (begin, end) in zip(paths, sizes, strict=True)
        for first in range(begin, end, step)
    ]
    return [Chunk(number, *each) for number, each in enumerate(ranges)]


def _raw_lines(path: str) -> Iterator[bytes]:
    with open_file(path) as file:
        while line := file.readline():
            yield line


def _check_first_row(chunk: Chunk, layout: Layout, settings: Mapping[str, Any]) -> None:
    """Finds a column that is missing before the work begins."""
    text = next((line for line in lines_between(chunk.file, 0, 1 << 20) if line.strip()), b"").decode(
        "utf-8", "replace"
    )
    row = row_of_line(text, layout)
    if isinstance(row, Failure):
        return  # perhaps only this row
    if missing := [name for name, value in row.items() if value is None and name not in settings]:
        raise ValueError(
            f"the first row has no {layout.inputs[missing[0]]!r}; choose by --column {missing[0]}=KEY. "
            f"It has {', '.join(json.loads(text))}"
        )


def beam_options(flags: Sequence[str], workers: int) -> list[str]:
    """The flags for Beam, with a runner that needs no network where none is named.

    Beam's `DirectRunner` would download Prism, so its own runner in Python takes its place.

    Raises:
        ValueError: Beam knows no such flag, or the value does not fit.
    """
    parsers: list[Any] = []

    def keep(parser):
        def refuse(message):
            raise ValueError(f"Apache Beam: {message}")

        parser.error = refuse
        parsers.append(parser)

    options = PipelineOptions(list(flags))
    options.get_all_options(add_extra_args_fn=keep)
    _, unknown = parsers[0].parse_known_args(list(flags))
    if unknown:
        raise ValueError(f"Apache Beam has no option {unknown[0]}")
    if options.view_as(StandardOptions).runner not in _LOCAL:
        return list(flags)
    given = {flag.partition("=")[0] for flag in flags}
    kept = [flag for flag in flags if flag not in ("DirectRunner", "FnApiRunner", "--runner")]
    kept = [flag for flag in kept if not flag.startswith("--runner=")]
    if "--direct_num_workers" not in given:
        kept.append(f"--direct_num_workers={workers}")
    if "--direct_running_mode" not in given:
        several = PipelineOptions(kept).view_as(DirectOptions).direct_num_workers != 1
        kept.append(f"--direct_running_mode={'multi_processing' if several else 'in_memory'}")
    return ["--runner=FnApiRunner", *kept]


# The pipeline.


class _Read(beam.DoFn):
    """From a chunk to its windows, each with the rows for the handler."""

    def __init__(self, layout: Layout):
        self._layout = layout

    def process(self, chunk: Chunk) -> Iterator[tuple[Window, list[Any]]]:
        for window in windows(chunk, self._layout):
            yield window, [record.row for record in window.records]


class _WindowHandler(SavedModelHandler):
    """Answers windows: an example is a list of rows, some of which may have failed before."""

    def batch_elements_kwargs(self) -> dict[str, Any]:
        return {"min_batch_size": 1, "max_batch_size": 1}

    def get_num_bytes(self, batch: Sequence[Any]) -> int:
        return sum(super(_WindowHandler, self).get_num_bytes([row]) for rows in batch for row in rows)

    def run_inference(self, batch, model, inference_args=None) -> Iterable[PredictionResult]:
        for rows in batch:
            good = [row for row in rows if not isinstance(row, Failure)]
            answers = iter(super().run_inference(good, model, inference_args))
            self._rows.inc(len(rows) - len(good))
            self._failed.inc(len(rows) - len(good))
            yield PredictionResult(
                None, [row if isinstance(row, Failure) else next(answers).inference for row in rows], self._path
            )


class _Write(beam.DoFn):
    """From the answers of a window to its part."""

    def __init__(self, folder: str, layout: Layout):
        self._folder, self._layout = folder, layout

    def process(self, pair: tuple[Window, PredictionResult]) -> None:
        window, result = pair
        answers: Any = result.inference
        write_part(self._folder, window, answers, self._layout)


def drive(folder: str, flags: Sequence[str]) -> dict[str, int]:
    """Runs the pipeline for the chunks of a plan that are not done; returns Beam's counters."""
    with open_file(f"{folder}/{_PLAN}") as file:
        plan = Plan.from_json(file.read().decode())
    done = complete_chunks(parts_in(folder))
    chunks = [chunk for chunk in plan.chunks if chunk.number not in done]
    handler = _WindowHandler(plan.model, plan.signature, plan.settings, batch_size=plan.batch_size, failures="return")
    pipeline = beam.Pipeline(options=PipelineOptions(list(flags)))
    _ = (
        pipeline
        | "Chunks" >> beam.Create(chunks)
        | "Read" >> beam.ParDo(_Read(plan.layout))
        | "Infer" >> RunInference(KeyedModelHandler(handler))
        | "Write" >> beam.ParDo(_Write(folder, plan.layout))
    )
    result = pipeline.run()
    state = result.wait_until_finish()
    if state not in ("DONE", None):
        raise RuntimeError(f"the pipeline ended as {state}")
    counters = result.metrics().query(MetricsFilter().with_namespace(NAMESPACE))["counters"]
    return {each.key.metric.name: each.committed for each in counters if each.committed is not None}


def main() -> None:
    """The driver: `python -c "..." FOLDER FLAGS...`. The last line of its output is JSON."""
    # Beam only prints that a worker ended, and waits for ever.
    threading.excepthook = lambda given: (
        os._exit(_WORKER_ENDED) if "Worker subprocess" in str(given.exc_value) else None
    )
    try:
        found: dict[str, Any] = {"counters": drive(sys.argv[1], sys.argv[2:])}
    except Exception as error:
        found = {"error": _cause(error)}
    print(json.dumps(found), flush=True)
    os._exit(0)  # threads of Beam may still wait


def _end_with(parent: int) -> None:
    """Ends this process and its workers when the command is killed."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.killpg(0, signal.SIGKILL)


def _cause(error: Exception) -> str:
    """The innermost error in Beam's report of many lines."""
    lines = [line.strip() for line in str(error).splitlines() if re.match(r"\s*[\w.]*(Error|Exception)\b", line)]
    return re.sub(r" \[while running.*", "", lines[-1] if lines else f"{type(error).__name__}: {error}")


# The supervision.


def _drive_to_the_end(
    plan: Plan, scratch: str, flags: Sequence[str], advance: Callable[[int], None], say: Callable[[str], None]
) -> dict[str, int]:
    """Drives the pipeline until all chunks are done; starts the driver again when a worker is killed.

    Args:
        plan: what to do.
        scratch: the folder of the parts.
        flags: of Beam.
        advance: called with the number of rows that were just done.
        say: called with a line when something happens.

    Returns:
        Beam's counters, of the last driver.

    Raises:
        OSError: workers ended again and again, or the pipeline failed. The parts stay.
    """
    tries = 0
    seen = {part.path for part in parts_in(scratch)}
    if len(complete_chunks(parts_in(scratch))) == len(plan.chunks):
        return {}
    while True:
        found = _drive_once(scratch, flags, advance, seen)
        missing = len(plan.chunks) - len(complete_chunks(parts_in(scratch)))
        if not missing and "error" not in found:
            return found.get("counters", {})
        log = f"the log is {scratch}/{_LOG}"
        if "error" in found:
            raise OSError(f"the pipeline failed: {found['error']}; {log}, and the same command goes on")
        tries = tries + 1 if found["new"] == 0 else 1
        if tries >= _TRIES:
            raise OSError(
                f"worker processes ended {tries} times (is memory too small? give fewer --workers); {log}, and the "
                f"same command goes on with the {missing} chunks of {len(plan.chunks)} that are missing"
            )
        say(f"a worker process ended; going on with the {missing} chunks of {len(plan.chunks)} that are missing")


def _drive_once(scratch: str, flags: Sequence[str], advance: Callable[[int], None], seen: set[str]) -> dict[str, Any]:
    """Starts a driver and waits for its end; gives what it printed, and the number of new parts."""
    program = "from zoo_training.batch_inference import main; main()"
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ}
    with open(_local_log(scratch), "ab") as log, tempfile.TemporaryFile() as printed:
        driver = subprocess.Popen(
            [sys.executable, "-c", program, _absolute(scratch), *flags],
            stdout=printed,
            stderr=log,
            env=environment,
            start_new_session=True,  # so that it and its workers can be ended together
        )
        new = 0
        try:
            while driver.poll() is None:
                time.sleep(0.2)
                new += _advance(scratch, advance, seen)
            new += _advance(scratch, advance, seen)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        printed.seek(0)
        lines = printed.read().decode("utf-8", "replace").splitlines()
    try:
        found = json.loads(lines[-1])
    except (IndexError, ValueError):
        found = {}
    return {**found, "new": new}


def _advance(scratch: str, advance: Callable[[int], None], seen: set[str]) -> int:
    new = [part for part in parts_in(scratch) if part.path not in seen]
    seen.update(part.path for part in new)
    advance(sum(part.done + part.failed for part in new))
    return len(new)


def _absolute(path: str) -> str:
    """A path that means the same in the folder of a worker."""
    return path if "://" in path else os.path.abspath(path)


def _local_log(scratch: str) -> str:
    return os.devnull if "://" in scratch else f"{scratch}/{_LOG}"
