"""The variables and assets that a graph reads when it is loaded: whether they are there, and whole."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

from tensorflow.core.protobuf import meta_graph_pb2, tensor_bundle_pb2

from zoo.serving.checking import rules
from zoo.serving.checking.finding import Finding, shown
from zoo.serving.checking.protos import parse
from zoo.serving.checking.saved_model import read_file
from zoo.serving.checking.table import table_entries

_INDEX = "variables/variables.index"
_LARGEST_INDEX = 128 << 20  # of about a million variables


def check_variables(folder: pathlib.Path, meta_graph: meta_graph_pb2.MetaGraphDef) -> tuple[list[Finding], int]:
    """Files of variables that are missing, cut off or broken, and how many variables the index names."""
    if not os.path.lexists(folder / _INDEX):
        if not meta_graph.saver_def.restore_op_name:  # a graph of TensorFlow 1 without variables
            return [], 0
        return [rules.MISSING_VARIABLES.at(f"file {_INDEX}", "It is missing, and the graph reads it")], 0
    ends: dict[int, tuple[int, bytes]] = {}
    number, shards = 0, 1
    try:
        for key, value in table_entries(read_file(folder / _INDEX, _LARGEST_INDEX)):
            if key == b"":
                shards = parse(tensor_bundle_pb2.BundleHeaderProto, value).num_shards
                continue
            entry = parse(tensor_bundle_pb2.BundleEntryProto, value)
            number += key != b"_CHECKPOINTABLE_OBJECT_GRAPH"
            if entry.slices:  # its parts are entries of their own
                continue
            if not 0 <= entry.shard_id < shards or entry.offset < 0 or entry.size < 0:
                raise ValueError(f"It says of {shown(key)} what cannot be")
            end, first = ends.get(entry.shard_id, (0, key))
            ends[entry.shard_id] = max((entry.offset + entry.size, key), (end, first))
    except ValueError as error:
        return [rules.UNREADABLE_VARIABLES.at(f"file {_INDEX}", str(error))], number
    return list(_check_shards(folder, ends, shards)), number


def check_assets(folder: pathlib.Path, meta_graph: meta_graph_pb2.MetaGraphDef) -> list[Finding]:
    """Files, such as vocabularies, that the graph names and the version lacks."""
    names = sorted({asset.filename for asset in meta_graph.asset_file_def})
    missing = [name for name in names if not os.path.isfile(os.path.join(folder, "assets", name))]
    what = "It is missing, and the graph reads it"
    return rules.MISSING_ASSET.gather((f"file {shown(f'assets/{name}')}", what) for name in missing)


def _check_shards(folder: pathlib.Path, ends: dict[int, tuple[int, bytes]], shards: int) -> Iterator[Finding]:
    """What the files of values lack: a file, or its end.

    Args:
        folder: the version's.
        ends: of each shard that holds a variable, how long it is at least, and which variable is the last there.
        shards: how many there are.
    """
    missing, short = [], []
    for shard, (end, key) in sorted(ends.items()):
        name = f"variables/variables.data-{shard:05d}-of-{shards:05d}"
        if not os.path.isfile(folder / name):
            missing.append((f"file {name}", "It is missing, and variables.index names it"))
        elif os.path.getsize(folder / name) < end:
            size = os.path.getsize(folder / name)
            short.append((f"file {name}", f"It has {size:,} of {end:,} bytes; {shown(key)} is cut off or missing"))
    yield from rules.MISSING_VARIABLES.gather(missing)
    yield from rules.TRUNCATED_VARIABLES.gather(short)
