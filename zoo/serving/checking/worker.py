"""The process that reads versions, with TensorFlow, under limits of memory and time.

For each version it reads one line of JSON from stdin, and answers with lines of JSON. It reads a version in a fork: a
fork costs 20 ms, another start of TensorFlow seconds. If a hostile file crashes the reader, only the fork ends.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import resource
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from tensorflow.core.protobuf import meta_graph_pb2

from zoo.serving.checking import OUT_OF_MEMORY, rules
from zoo.serving.checking.files import (
    check_assets,
    check_variables,
    find_pointers,
    read_saved_model,
    read_warm_up,
    served_graph,
)
from zoo.serving.checking.folders import graph_file
from zoo.serving.checking.graph import Graph, check_graph, kernel_devices
from zoo.serving.checking.rules import Finding, shown
from zoo.serving.checking.running import run_version
from zoo.serving.checking.signatures import check_requests, check_signatures, signatures_of


def check_version(folder: pathlib.Path, run: bool, say: Callable[..., None]) -> None:
    """Checks a version.

    Args:
        folder: the version's.
        run: whether to load it and send it its warm-up requests.
        say: called with `step=` before each step, with `findings=`, and at the end with `seen=`.
    """
    say(step="graph")
    if pointers := find_pointers(folder):
        say(findings=pointers)
        return
    try:
        meta_graph, has_tag = served_graph(read_saved_model(folder))
    except ValueError as error:
        say(findings=[rules.UNREADABLE_SAVED_MODEL.at(f"file {graph_file(folder)}", str(error))])
        return
    graph, signatures = Graph(meta_graph), signatures_of(meta_graph)
    say(findings=[] if has_tag else _without_tag(meta_graph))
    say(findings=[*check_signatures(meta_graph), *check_graph(graph)])
    say(step="variables")
    findings, number_of_variables = check_variables(folder, meta_graph)
    say(findings=[*findings, *check_assets(folder, meta_graph)])
    say(step="warm-up")
    logs, unreadable = read_warm_up(folder)
    unfit = check_requests(logs, signatures)
    say(findings=[*unreadable, *unfit])
    seen = {
        "signatures": len(signatures),
        "functions": len(graph.functions),
        "nodes": len(graph.main) + sum(len(function.node_def) for function in graph.functions.values()),
        "variables": number_of_variables,
        "assets": len(meta_graph.asset_file_def),
        "warm-up records": len(logs),
    }
    if run:
        say(step="run")
        findings, seen["test requests"] = run_version(folder, meta_graph, [] if unfit else logs)
        say(findings=findings)
    say(seen=seen)


def main() -> None:
    """Answers until stdin ends."""
    kernel_devices()  # once, and not in each fork
    answers = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # a graph may print

    def say(**content) -> None:
        # The line break comes first: a fork that was killed may have left half a line.
        os.write(answers, f"\n{json.dumps(content, default=dataclasses.asdict)}\n".encode())

    for line in sys.stdin:
        request = json.loads(line)
        fork = os.fork()
        if not fork:
            _check_and_exit(request, say)
        _, status = os.waitpid(fork, 0)
        say(ended=os.waitstatus_to_exitcode(status))


def _check_and_exit(request: dict, say: Callable[..., None]) -> NoReturn:
    code = 0
    try:
        _limit(request["memory"], request["seconds"])
        check_version(pathlib.Path(request["folder"]), request["run"], say)
    except MemoryError:
        code = OUT_OF_MEMORY
    except Exception as error:
        say(error=repr(error))
    finally:
        os._exit(code)


def _limit(memory: int, seconds: int) -> None:
    """Ends this process if it needs this many more bytes than now, or this many seconds."""
    statm = pathlib.Path("/proc/self/statm")
    if statm.exists():  # on Linux, where servers are
        size = int(statm.read_text().split()[0]) * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
    signal.alarm(seconds)  # its signal ends the process, in the midst of C++ too


def _without_tag(meta_graph: meta_graph_pb2.MetaGraphDef) -> list[Finding]:
    tags = shown(", ".join(sorted(meta_graph.meta_info_def.tags)) or "none")
    return [rules.NO_SERVE_TAG.at("the graph", f"No graph has `serve` as its only tag; its tags are {tags}")]


if __name__ == "__main__":
    main()
