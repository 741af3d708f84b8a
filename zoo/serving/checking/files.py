"""Reading the files of a version with TensorFlow's own readers.

The files may be anybody's, and broken. Where one claims a size that does not fit in memory, TensorFlow may end the
process; so `worker.py` reads them in a separate process.
"""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Iterator

import tensorflow as tf
from google.protobuf import text_format
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from zoo.git_lfs import is_pointer
from zoo.serving.checking import rules
from zoo.serving.checking.folders import GRAPH_FILES, graph_file
from zoo.serving.checking.rules import Finding, shown
from zoo.serving.layout import MOST_WARM_UPS, WARM_UP_FILE

LARGEST_FILE = 2**31 - 1  # of a graph: protobuf's own limit, and so a server's
_LARGEST_TEXT = 64 << 20  # of a graph as text, which is parsed in Python
_INDEX, _DATA = "variables/variables.index", re.compile(r"variables\.data-\d{5}-of-\d{5}")
_MISSING = "It is missing, and the graph reads it"


def find_pointers(folder: pathlib.Path) -> list[Finding]:
    """Files of a version in whose place git-lfs has left a pointer."""
    inside = [f"{part}/{file}" for part in ("variables", "assets") for file in sorted(_names_in(folder / part))]
    found = (file for file in (*GRAPH_FILES, WARM_UP_FILE, *inside) if is_pointer(_beginning(folder / file)))
    return rules.GIT_LFS_POINTER.gather((f"file {shown(file)}", "It is a pointer of git-lfs") for file in found)


def read_saved_model(folder: pathlib.Path) -> saved_model_pb2.SavedModel:
    """The content of the version's `saved_model.pb` or `saved_model.pbtxt`.

    Raises:
        ValueError: it cannot be read; the message says why, without a full stop.
    """
    name = graph_file(folder) or GRAPH_FILES[0]
    if name.endswith(".cpb"):
        raise ValueError("It is a graph in chunks, which a server may read and this check does not")
    data = _read(folder / name, _LARGEST_TEXT if name.endswith("txt") else LARGEST_FILE)
    try:
        if name.endswith("txt"):
            saved_model = text_format.Parse(data, saved_model_pb2.SavedModel())
        else:
            saved_model = saved_model_pb2.SavedModel.FromString(data)
    except (DecodeError, text_format.Error, ValueError, RecursionError):
        raise ValueError("It does not parse as a SavedModel") from None
    if not saved_model.meta_graphs:
        raise ValueError(f"It holds no graph, in {len(data):,} bytes")
    return saved_model


def served_graph(saved_model: saved_model_pb2.SavedModel) -> tuple[meta_graph_pb2.MetaGraphDef, bool]:
    """The graph whose only tag is `serve`, which a server loads, and whether there is one; else the first."""
    for graph in saved_model.meta_graphs:
        if set(graph.meta_info_def.tags) == {"serve"}:
            return graph, True
    return saved_model.meta_graphs[0], False


def check_variables(folder: pathlib.Path, meta_graph: meta_graph_pb2.MetaGraphDef) -> tuple[list[Finding], int]:
    """Variables that are missing, cut off or broken, and how many there are; every value is read."""
    if not os.path.lexists(folder / _INDEX):
        if not meta_graph.saver_def.restore_op_name:  # a graph of TensorFlow 1 without variables
            return [], 0
        return [rules.MISSING_VARIABLES.at(f"file {_INDEX}", _MISSING)], 0
    # Not a pipe, for which a reader would wait.
    entries = [_INDEX, *(f"variables/{name}" for name in os.listdir(folder / "variables") if _DATA.fullmatch(name))]
    for entry in entries:
        if os.path.lexists(folder / entry) and not os.path.isfile(folder / entry):
            return [rules.UNREADABLE_VARIABLES.at(f"file {entry}", "It is not a file")], 0
    try:
        reader = tf.compat.v1.train.NewCheckpointReader(os.fsencode(folder / "variables" / "variables"))
        names = sorted(reader.get_variable_to_shape_map())
    except (tf.errors.OpError, IndexError, ValueError, RuntimeError, MemoryError) as error:
        return [rules.UNREADABLE_VARIABLES.at(f"file {_INDEX}", _said(error, folder))], 0
    missing: dict[str, str] = {}  # by file: hundreds of variables may be in one
    short, broken = [], []
    for name in names:
        try:
            reader.get_tensor(name)
        except (tf.errors.OpError, IndexError, ValueError, RuntimeError, MemoryError) as error:
            said, file = str(error), _DATA.search(str(error))
            if "No such file" in said and file:
                missing[f"file variables/{file[0]}"] = "It is missing, and variables.index names it"
            elif "Read less bytes" in said:
                short.append((f"variable {shown(name)}", "The file that holds it is cut off"))
            else:
                broken.append((f"variable {shown(name)}", _said(error, folder)))
    findings = [
        *rules.MISSING_VARIABLES.gather(missing.items()),
        *rules.TRUNCATED_VARIABLES.gather(short),
        *rules.UNREADABLE_VARIABLES.gather(broken),
    ]
    return findings, len(names) - ("_CHECKPOINTABLE_OBJECT_GRAPH" in names)


def check_assets(folder: pathlib.Path, meta_graph: meta_graph_pb2.MetaGraphDef) -> list[Finding]:
    """Files, such as vocabularies, that the graph names and the version lacks."""
    names = sorted({asset.filename for asset in meta_graph.asset_file_def})
    missing = [name for name in names if not os.path.isfile(os.path.join(folder, "assets", name))]
    return rules.MISSING_ASSET.gather((f"file {shown(f'assets/{name}')}", _MISSING) for name in missing)


def read_warm_up(folder: pathlib.Path) -> tuple[list[prediction_log_pb2.PredictionLog], list[Finding]]:
    """A version's warm-up records up to the first that cannot be read, and what is wrong with the file."""
    path, where = folder / WARM_UP_FILE, f"file {WARM_UP_FILE}"
    if not os.path.exists(path):
        return [], []
    logs: list[prediction_log_pb2.PredictionLog] = []
    try:
        for record in _records(path):
            if len(logs) == MOST_WARM_UPS:
                return logs, [rules.TOO_MANY_WARM_UPS.at(where, f"It has more than {MOST_WARM_UPS:,} records")]
            logs.append(prediction_log_pb2.PredictionLog.FromString(record))
    except DecodeError:
        return logs, [rules.UNREADABLE_WARM_UP.at(where, f"Record {len(logs) + 1} does not parse as a PredictionLog")]
    except tf.errors.OpError as error:
        said = f"Record {len(logs) + 1} cannot be read: {_said(error, folder)}"
        return logs, [rules.UNREADABLE_WARM_UP.at(where, said)]
    except ValueError as error:
        return logs, [rules.UNREADABLE_WARM_UP.at(where, str(error))]
    return logs, []


def _records(path: pathlib.Path) -> Iterator[bytes]:
    if not os.path.isfile(path):
        raise ValueError("It is not a file")
    yield from tf.compat.v1.io.tf_record_iterator(os.fsencode(path))


def _names_in(folder: pathlib.Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # there is none
        return []


def _beginning(path: pathlib.Path) -> bytes:
    """The first hundred bytes; none of what is no file or cannot be read."""
    if not os.path.isfile(path):
        return b""
    try:
        with path.open("rb") as file:
            return file.read(100)
    except OSError:
        return b""


def _read(path: pathlib.Path, largest: int) -> bytes:
    """All of a file; a `ValueError` if it is no file, cannot be read or is larger."""
    if not os.path.isfile(path):  # nor a pipe, for which a reader would wait
        raise ValueError("It is not a file")
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > largest:
                raise ValueError(f"It is larger than {largest:,} bytes, which is not read")
            return file.read(largest)
    except OSError as error:
        raise ValueError(f"It cannot be opened: {error.strerror}") from None


def _said(error: Exception, folder: pathlib.Path) -> str:
    """TensorFlow's own words, without the path that the finding gives already."""
    return "TensorFlow says " + shown(str(error).replace(f"{folder}{os.sep}", "") or type(error).__name__)
