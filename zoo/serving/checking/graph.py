"""A served graph and its functions: who calls whom, and what a server gets to run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tensorflow.core.framework import function_pb2, node_def_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from zoo.serving.checking.finding import shown

_RUN_AT_START = ("saved_model_main_op", "legacy_init_op")  # collections of graphs from TensorFlow 1


class Graph:
    """The graph of a SavedModel.

    Args:
        meta_graph: as it stands in the file.
    """

    def __init__(self, meta_graph: meta_graph_pb2.MetaGraphDef):
        self.functions = {function.signature.name: function for function in meta_graph.graph_def.library.function}
        self.main = meta_graph.graph_def.node
        self._calls = {name: self._called_by(function.node_def) for name, function in self.functions.items()}
        self._reached_nodes, self._reached_functions = self._reached(meta_graph)

    def nodes(self) -> Iterator[tuple[str, node_def_pb2.NodeDef]]:
        """All nodes, with the name of their function; those of the graph itself with an empty one."""
        for node in self.main:
            yield "", node
        for name, function in self.functions.items():
            for node in function.node_def:
                yield name, node

    def is_reached(self, function: str, node: str = "") -> bool:
        """Whether a signature, or what runs as a server starts, leads to a function or to a node of the graph."""
        return function in self._reached_functions if function else node in self._reached_nodes

    def in_place_of(self) -> set[str]:
        """Functions for a GPU that a graph optimizer puts in the place of equivalent ones, where there is a GPU.

        Keras 2 exports recurrent layers so: a function for the CPU and one for cuDNN, both marked as the same. Also in
        the set is what these functions alone call.
        """
        on_cpu = {_text(f, "api_implements") for f in self.functions.values() if not _prefers_gpu(f)} - {b""}
        twins = {n for n, f in self.functions.items() if _prefers_gpu(f) and _text(f, "api_implements") in on_cpu}
        within = self._closure(twins)
        outside = self._called_by(self.main).union(
            *(self._calls[name] for name in self.functions if name not in within)
        )
        return within - self._closure(outside - twins, without=twins)

    def _reached(self, meta_graph):
        roots = [meta_graph.saver_def.restore_op_name]
        for signature in meta_graph.signature_def.values():
            for tensor in signature.outputs.values():
                roots += _tensor_names(tensor)
        for key in _RUN_AT_START:
            roots += meta_graph.collection_def[key].node_list.value if key in meta_graph.collection_def else []
        nodes = {node.name: node for node in self.main}
        reached, left = set(), [_node_of(root) for root in roots]
        while left:
            name = left.pop()
            if name in nodes and name not in reached:
                reached.add(name)
                left += [_node_of(tensor) for tensor in nodes[name].input]
        return reached, self._closure(self._called_by(nodes[name] for name in reached))

    def _closure(self, functions: set[str], without: Iterable[str] = ()) -> set[str]:
        """These functions and all that they call, but what comes by way of those left out."""
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


def place(function: str, node: str = "") -> str:
    """Where something is, in words."""
    names = [f"function {shown(function)}"] if function else []
    return ", ".join([*names, f"node {shown(node)}"] if node else names)


def _tensor_names(tensor: meta_graph_pb2.TensorInfo) -> list[str]:
    """A tensor's, or if it is sparse or ragged, those of its parts."""
    sparse = tensor.coo_sparse
    parts = [part.name for part in tensor.composite_tensor.components]
    return [tensor.name, sparse.values_tensor_name, sparse.indices_tensor_name, sparse.dense_shape_tensor_name, *parts]


def _node_of(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]


def _text(function: function_pb2.FunctionDef, attribute: str) -> bytes:
    return function.attr[attribute].s if attribute in function.attr else b""


def _prefers_gpu(function: function_pb2.FunctionDef) -> bool:
    return _text(function, "api_preferred_device") == b"GPU"
