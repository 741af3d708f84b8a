"""Nodes and functions that a stock server cannot run."""

from __future__ import annotations

import re
import sys

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2
from tensorflow.python.framework import kernels, op_def_registry

from zoo.serving.checking import rules
from zoo.serving.checking.finding import Finding, Rule, shown
from zoo.serving.checking.graph import Graph, place

_GPU_ONLY = re.compile("_?(Cudnn|Nccl)")  # a TensorFlow that was built without GPUs has no kernels of them at all
_FOR_CPU = {"CPU", "DEFAULT"}


def check_ops(graph: Graph) -> list[Finding]:
    """Compiled functions, and ops that call Python, that run on a GPU alone or that TensorFlow does not have."""
    for_gpu, added, breaks = graph.in_place_of(), _added_ops(), {}
    compiled = {name for name, function in graph.functions.items() if _must_compile(function)}
    found: dict[Rule, list[tuple[str, str]]] = {
        rule: [] for rule in (rules.XLA, rules.GPU_ONLY, rules.PYTHON, rules.UNKNOWN_OP)
    }

    def add(rule: Rule, what: str, function: str, node: str = "") -> None:
        if not graph.is_reached(function, node):
            what += "; no signature leads there"
        found[rule].append((place(function, node), what))

    for name in sorted(compiled):
        add(rules.XLA, "It is marked `_XlaMustCompile`", name)
    for function, node in graph.nodes():
        # The mark on a function is on each call of it too.
        if _must_compile(node) and function not in compiled and not compiled & _names(node):
            add(rules.XLA, "It is marked `_XlaMustCompile`", function, node.name)
        if node.op in graph.functions:
            continue
        if node.op not in breaks:
            breaks[node.op] = _rule_of(node.op, added)
        rule = breaks[node.op]
        if rule is not None and not (rule is rules.GPU_ONLY and function in for_gpu):
            add(rule, _what(rule, node.op), function, node.name)
    return [finding for rule, places in found.items() for finding in rule.gather(places)]


def _rule_of(op: str, added: set[str]) -> Rule | None:
    """The rule that an op breaks wherever it stands."""
    if "PyFunc" in op:
        return rules.PYTHON
    if op.replace(">", "_") in added or op_def_registry.get(op) is None:
        return rules.UNKNOWN_OP
    devices = {kernel.device_type for kernel in kernels.get_registered_kernels_for_op(op).kernel}
    if _GPU_ONLY.match(op) or (devices and not devices & _FOR_CPU):
        return rules.GPU_ONLY
    return None


def _what(rule: Rule, op: str) -> str:
    if rule is rules.PYTHON:
        return f"{shown(op)} calls a function of Python"
    if rule is rules.GPU_ONLY:
        return f"{shown(op)} runs on a GPU alone"
    return f"{shown(op)} is no op of TensorFlow {tf.__version__}"


def _added_ops() -> set[str]:
    """What libraries such as tensorflow-text, if this process has loaded one, have added, as Python spells it."""
    modules = [vars(module) for name, module in list(sys.modules.items()) if re.fullmatch("[0-9a-f]{40}", name)]
    names = {name for names in modules if "_IS_TENSORFLOW_PLUGIN" in names for name in names}
    return names - set(dir(tf.raw_ops))  # with their imports, such as Any of typing, they have names of other ops too


def _must_compile(marked) -> bool:
    return "_XlaMustCompile" in marked.attr and marked.attr["_XlaMustCompile"].b


def _names(node: node_def_pb2.NodeDef) -> set[str]:
    return {node.op, *(value.func.name for value in node.attr.values() if value.WhichOneof("value") == "func")}
