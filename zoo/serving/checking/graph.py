"""A served graph and its functions: what calls what, and the ops that a stock server cannot run."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow.python.framework import kernels, op_def_registry

from zoo.serving.checking import rules
from zoo.serving.checking.rules import Finding, Rule, shown

_GPU_ONLY = re.compile("_?(Cudnn|Nccl)")  # a TensorFlow that was built without GPUs has no kernels of them at all
_FOR_CPU = {"CPU", "DEFAULT"}
_TABLES = ("HashTable", "HashTableV2")  # tables that an op must fill
_FILE_INPUTS = {  # of ops that read a file: which input names it
    "ReadFile": 0,
    "InitializeTableFromTextFile": 1,
    "InitializeTableFromTextFileV2": 1,
    "TextLineDataset": 0,
    "TFRecordDataset": 0,
    "TFRecordDatasetV2": 0,
}
_RUN_AT_START = ("saved_model_main_op", "legacy_init_op")  # collections of graphs from TensorFlow 1


class Graph:
    """The graph of a SavedModel.

    Args:
        meta_graph: from the file, unchecked.
    """

    def __init__(self, meta_graph: meta_graph_pb2.MetaGraphDef):
        self.functions = {function.signature.name: function for function in meta_graph.graph_def.library.function}
        self.main = meta_graph.graph_def.node
        self.assets = {_node_of(asset.tensor_info.name) for asset in meta_graph.asset_file_def}
        self._calls = {name: self._called_by(function.node_def) for name, function in self.functions.items()}
        self._nodes = {node.name: node for node in self.main}
        served, at_start = _roots(meta_graph)
        self._run_at_start = self._leading_to(at_start)
        self._reached_nodes = self._leading_to(served) | self._run_at_start
        self._reached_functions = self._closure(self._called_by(self._nodes[name] for name in self._reached_nodes))

    def nodes(self) -> Iterator[tuple[str, node_def_pb2.NodeDef]]:
        """All nodes, with the name of their function; those of the graph itself with an empty one."""
        for node in self.main:
            yield "", node
        for name, function in self.functions.items():
            for node in function.node_def:
                yield name, node

    def is_reached(self, function: str, node: str = "") -> bool:
        """Whether a signature, or what a server runs on loading, reaches a function or a node of the graph."""
        return function in self._reached_functions if function else node in self._reached_nodes

    def in_place_of(self) -> set[str]:
        """Functions for a GPU that a graph optimizer puts in place of equivalent ones, where there is a GPU.

        Keras 2 exports a recurrent layer in this way, as a function for the CPU and one for cuDNN, with marks that they
        do the same. The set also holds what only these functions call.
        """
        on_cpu = {_text(f, "api_implements") for f in self.functions.values() if not _prefers_gpu(f)} - {b""}
        twins = {n for n, f in self.functions.items() if _prefers_gpu(f) and _text(f, "api_implements") in on_cpu}
        within = self._closure(twins)
        outside = self._called_by(self.main).union(
            *(self._calls[name] for name in self.functions if name not in within)
        )
        return within - self._closure(outside - twins, without=twins)

    def empty_tables(self) -> Iterator[str]:
        """Lookup tables that a signature uses and that nothing fills when the version is loaded."""
        for name in sorted(self._reached_nodes - self._run_at_start):
            if self._nodes[name].op in _TABLES:
                yield name

    def files_read(self) -> Iterator[tuple[str, str, bytes]]:
        """The functions, nodes and constant paths of all files that signatures read, except for assets."""
        constants = {(function, node.name): node for function, node in self.nodes() if node.op == "Const"}
        for function, node in self.nodes():
            place = _FILE_INPUTS.get(node.op)
            if place is None or place >= len(node.input) or not self.is_reached(function, node.name):
                continue
            name = _node_of(node.input[place])
            constant = constants.get((function, name))
            if constant is not None and (function or name not in self.assets):
                for path in constant.attr["value"].tensor.string_val:
                    yield function, node.name, path

    def _leading_to(self, tensors: Iterable[str]) -> set[str]:
        """The nodes of the graph that these tensors are computed from, their own included."""
        found: set[str] = set()
        left = [_node_of(tensor) for tensor in tensors]
        while left:
            name = left.pop()
            if name in self._nodes and name not in found:
                found.add(name)
                left += [_node_of(tensor) for tensor in self._nodes[name].input]
        return found

    def _closure(self, functions: set[str], without: Iterable[str] = ()) -> set[str]:
        """These functions and all that they call, without the functions in `without` and their calls."""
        closure, left = set(), list(functions)
        while left:
            name = left.pop()
            if name not in closure and name not in without:
                closure.add(name)
                left += self._calls[name]
        return closure

    def _called_by(self, nodes: Iterable[node_def_pb2.NodeDef]) -> set[str]:
        called = set()
        for node in nodes:
            called.add(node.op)
            for value in node.attr.values():
                kind = value.WhichOneof("value")
                if kind == "func":
                    called.add(value.func.name)
                elif kind == "list":
                    called.update(function.name for function in value.list.func)
        return called & self.functions.keys()


def check_graph(graph: Graph) -> list[Finding]:
    """Ops and functions that a server cannot run, tables that stay empty, and files outside the version."""
    tables = ((place("", name), "No op that runs as the version is loaded fills it") for name in graph.empty_tables())
    files: dict[bool, list[tuple[str, str]]] = {True: [], False: []}  # by whether they exist here
    for function, node, path in graph.files_read():
        exists = os.path.exists(path.partition(b"\0")[0])
        what = "outside the version" if exists else "which does not exist here"
        files[exists].append((place(function, node), f"It reads the file {shown(path)}, {what}"))
    return [
        *_check_ops(graph),
        *rules.UNINITIALISED_TABLE.gather(tables),
        *rules.OUTSIDE_FILE.gather(files[False]),
        *rules.OUTSIDE_FILE.gather(files[True], "warning"),
    ]


def place(function: str, node: str = "") -> str:
    """Where something is, in words."""
    names = [f"function {shown(function)}"] if function else []
    return ", ".join([*names, f"node {shown(node)}"] if node else names)


def _check_ops(graph: Graph) -> list[Finding]:
    """Compiled functions, and ops that call Python, that only run on a GPU or that TensorFlow does not have."""
    for_gpu, broken_by_op = graph.in_place_of(), {}
    compiled = {name for name, function in graph.functions.items() if _must_compile(function)}
    served: dict[Rule, list[tuple[str, str]]] = {
        rule: [] for rule in (rules.XLA, rules.GPU_ONLY, rules.PYTHON, rules.UNKNOWN_OP)
    }
    unserved: dict[Rule, list[tuple[str, str]]] = {rule: [] for rule in served}

    def add(rule: Rule, what: str, function: str, node: str = "") -> None:
        # A server looks up every op of the main graph on loading. Everything else matters only if a request reaches it.
        if graph.is_reached(function, node) or (rule is rules.UNKNOWN_OP and not function):
            served[rule].append((place(function, node), what))
        else:
            unserved[rule].append((place(function, node), f"{what}; no signature leads there"))

    for name in sorted(compiled):
        add(rules.XLA, "It is marked `_XlaMustCompile`", name)
    for function, node in graph.nodes():
        # A marked function also has the mark on each of its calls.
        if _must_compile(node) and function not in compiled and not compiled & _names(node):
            add(rules.XLA, "It is marked `_XlaMustCompile`", function, node.name)
        if node.op in graph.functions:
            continue
        if node.op not in broken_by_op:
            broken_by_op[node.op] = _rule_of(node.op)
        rule = broken_by_op[node.op]
        if rule is not None and not (rule is rules.GPU_ONLY and function in for_gpu):
            add(rule, _what(rule, node.op), function, node.name)
    fatal = [finding for rule, places in served.items() for finding in rule.gather(places)]
    return fatal + [finding for rule, places in unserved.items() for finding in rule.gather(places, "note")]


@functools.cache
def kernel_devices() -> dict[str, set[str]]:
    """The devices that each op has kernels for."""
    devices: dict[str, set[str]] = {}
    for kernel in kernels.get_all_registered_kernels().kernel:
        devices.setdefault(kernel.op, set()).add(kernel.device_type)
    return devices


def _rule_of(op: str) -> Rule | None:
    """The rule that an op breaks anywhere in a graph; None if it breaks none."""
    if "PyFunc" in op:
        return rules.PYTHON
    if op_def_registry.get(op) is None:
        return rules.UNKNOWN_OP
    devices = kernel_devices().get(op)
    if _GPU_ONLY.match(op) or (devices and not devices & _FOR_CPU):
        return rules.GPU_ONLY
    return None


def _what(rule: Rule, op: str) -> str:
    if rule is rules.PYTHON:
        return f"{shown(op)} calls a function of Python"
    if rule is rules.GPU_ONLY:
        return f"{shown(op)} only runs on a GPU"
    return f"{shown(op)} is no op of TensorFlow {tf.__version__}"


def _must_compile(marked) -> bool:
    return "_XlaMustCompile" in marked.attr and marked.attr["_XlaMustCompile"].b


def _names(node: node_def_pb2.NodeDef) -> set[str]:
    return {node.op, *(value.func.name for value in node.attr.values() if value.WhichOneof("value") == "func")}


def _roots(meta_graph: meta_graph_pb2.MetaGraphDef) -> tuple[list[str], list[str]]:
    """The tensors and ops that signatures return, and those that a server runs when it loads the graph."""
    served: list[str] = []
    at_start = [meta_graph.saver_def.restore_op_name]
    for name, signature in meta_graph.signature_def.items():
        for tensor in signature.outputs.values():
            (at_start if name.startswith("__saved_model_") else served).extend(_tensor_names(tensor))
    for key in _RUN_AT_START:
        at_start += meta_graph.collection_def[key].node_list.value if key in meta_graph.collection_def else []
    return served, at_start


def _tensor_names(tensor: meta_graph_pb2.TensorInfo) -> list[str]:
    """The name of a tensor; if it is sparse or ragged, also the names of its parts."""
    sparse = tensor.coo_sparse
    parts = [part.name for part in tensor.composite_tensor.components]
    return [tensor.name, sparse.values_tensor_name, sparse.indices_tensor_name, sparse.dense_shape_tensor_name, *parts]


def _node_of(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]


def _text(function: function_pb2.FunctionDef, attribute: str) -> bytes:
    return function.attr[attribute].s if attribute in function.attr else b""


def _prefers_gpu(function: function_pb2.FunctionDef) -> bool:
    return _text(function, "api_preferred_device") == b"GPU"
