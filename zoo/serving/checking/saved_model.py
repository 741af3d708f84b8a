"""Reading a version's graph without loading it."""

from __future__ import annotations

import os
import pathlib

from google.protobuf import text_format
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from zoo.serving.checking.folders import GRAPH_FILES, graph_file
from zoo.serving.checking.protos import LARGEST_FILE, LARGEST_STRUCTURE, parse


def read_saved_model(folder: pathlib.Path) -> saved_model_pb2.SavedModel:
    """What the version's `saved_model.pb` or `saved_model.pbtxt` holds.

    Raises:
        ValueError: it cannot be read; the message says why, without a full stop.
    """
    name = graph_file(folder) or GRAPH_FILES[0]
    data = read_file(folder / name, LARGEST_STRUCTURE if name.endswith("txt") else LARGEST_FILE)
    if name.endswith(".cpb"):
        raise ValueError("It is a graph in chunks, which a server may read and this check does not")
    saved_model = _parse_text(data) if name.endswith("txt") else parse(saved_model_pb2.SavedModel, data)
    if not saved_model.meta_graphs:
        raise ValueError(f"It holds no graph, in {len(data):,} bytes")
    return saved_model


def served_graph(saved_model: saved_model_pb2.SavedModel) -> tuple[meta_graph_pb2.MetaGraphDef, bool]:
    """The graph that a server loads, the one with the tag `serve` alone, and whether there is one; else the first."""
    for graph in saved_model.meta_graphs:
        if set(graph.meta_info_def.tags) == {"serve"}:
            return graph, True
    return saved_model.meta_graphs[0], False


def read_file(path: pathlib.Path, largest: int) -> bytes:
    """All of a file.

    Raises:
        ValueError: it is no file, cannot be read or is larger than that; the message says so, without a full stop.
    """
    if not os.path.isfile(path):  # nor a pipe, which would be waited for
        raise ValueError("It is no file")
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > largest:
                raise ValueError(f"It is larger than {largest:,} bytes, which is not read")
            return file.read(largest)
    except OSError as error:
        raise ValueError(f"It cannot be opened: {error.strerror}") from None


def _parse_text(data: bytes) -> saved_model_pb2.SavedModel:
    try:
        return text_format.Parse(data, saved_model_pb2.SavedModel())
    except (text_format.Error, ValueError, RecursionError):
        raise ValueError("It does not parse as the text of a SavedModel") from None
