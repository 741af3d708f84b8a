"""Everything that was found in a folder, version by version."""

from __future__ import annotations

import dataclasses
import pathlib

from tensorflow.core.protobuf import meta_graph_pb2

from zoo.serving.checking import rules
from zoo.serving.checking.finding import Finding, shown
from zoo.serving.checking.folders import Folders, find_folders, graph_file
from zoo.serving.checking.graph import Graph
from zoo.serving.checking.ops import check_ops
from zoo.serving.checking.saved_model import read_saved_model, served_graph
from zoo.serving.checking.signatures import check_signatures, signatures_of
from zoo.serving.checking.variables import check_assets, check_variables
from zoo.serving.checking.warm_up import check_warm_up


@dataclasses.dataclass(frozen=True)
class Checked:
    """A folder that was looked at.

    Attributes:
        folder: a version's, or the model's for what is wrong between versions.
        findings: what was found in it.
        seen: how many signatures, functions and so on were looked at; None if there was no graph to read.
    """

    folder: str
    findings: list[Finding]
    seen: dict[str, int] | None


@dataclasses.dataclass(frozen=True)
class Report:
    """What was looked at, and found.

    Attributes:
        path: as it was given.
        folders: the model's folder, if something is wrong with it, and each version.
    """

    path: str
    folders: list[Checked]

    @property
    def findings(self) -> list[Finding]:
        """Those of all folders."""
        return [finding for checked in self.folders for finding in checked.findings]

    @property
    def is_readable(self) -> bool:
        """Whether there is a graph that could be read, or none that could not."""
        unreadable = any(finding.rule == rules.UNREADABLE_SAVED_MODEL.name for finding in self.findings)
        return not unreadable or any(checked.seen is not None for checked in self.folders)


def check(path: str | pathlib.Path) -> list[Finding]:
    """What a stock TensorFlow Serving would refuse in a SavedModel, or stumble over; nothing is loaded or run.

    Args:
        path: a model's folder, of which every version is checked; a version's; or one with a bare SavedModel. It may be
            anybody's, and broken.

    Returns:
        The findings; none if there are none.

    Raises:
        FileNotFoundError: `path` does not exist.
        ValueError: it holds no SavedModel, nor versions of one.
        OSError: the folder cannot be read.
    """
    return report(path).findings


def report(path: str | pathlib.Path) -> Report:
    """Likewise, with what was looked at; see `check`."""
    return check_folders(find_folders(pathlib.Path(path)))


def check_folders(folders: Folders) -> Report:
    """Likewise, where it is known which folders are versions."""
    checked = []
    if folders.findings:
        checked.append(_named(folders.model, folders.findings, None))
    checked += [_check_version(version) for version in folders.versions]
    return Report(str(folders.model), checked)


def _check_version(folder: pathlib.Path) -> Checked:
    try:
        meta_graph, has_tag = served_graph(read_saved_model(folder))
    except ValueError as error:
        return _named(folder, [rules.UNREADABLE_SAVED_MODEL.at(f"file {graph_file(folder)}", str(error))], None)
    graph = Graph(meta_graph)
    variables, number_of_variables = check_variables(folder, meta_graph)
    warm_up, number_of_records = check_warm_up(folder, signatures_of(meta_graph))
    findings = [
        *([] if has_tag else _without_tag(meta_graph)),
        *check_signatures(meta_graph),
        *check_ops(graph),
        *variables,
        *check_assets(folder, meta_graph),
        *warm_up,
    ]
    seen = {
        "signatures": len(signatures_of(meta_graph)),
        "functions": len(graph.functions),
        "nodes": len(graph.main) + sum(len(function.node_def) for function in graph.functions.values()),
        "variables": number_of_variables,
        "assets": len(meta_graph.asset_file_def),
        "warm-up records": number_of_records,
    }
    return _named(folder, findings, seen)


def _without_tag(meta_graph: meta_graph_pb2.MetaGraphDef) -> list[Finding]:
    tags = shown(", ".join(sorted(meta_graph.meta_info_def.tags)) or "none")
    return [rules.NO_SERVE_TAG.at("the graph", f"No graph has the tag `serve` alone; its tags are {tags}")]


def _named(folder: pathlib.Path, findings: list[Finding], seen: dict[str, int] | None) -> Checked:
    named = [dataclasses.replace(finding, folder=str(folder)) for finding in findings]
    return Checked(str(folder), named, seen)
