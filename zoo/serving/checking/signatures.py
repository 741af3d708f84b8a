"""Signatures that a server cannot call or batch, and warm-up requests that do not fit their signatures."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence, Set

import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from zoo.serving.checking import rules
from zoo.serving.checking.rules import Finding, shown

# `lengths`, `seq_len`, `input_mask`, `sequenceLength`; not `calendar` or `masked_ids`.
_TELLS_PADDING = re.compile(r"mask(?!ed)|length|row_splits|(^|[\W_\d])lens?($|[\W_\d])|seq\w*len", re.IGNORECASE)
_IDS = (types_pb2.DT_INT32, types_pb2.DT_INT64)
# What the server's json_tensor.cc converts.
_IN_JSON = {
    *(types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE, types_pb2.DT_STRING, types_pb2.DT_BOOL),
    *(types_pb2.DT_INT8, types_pb2.DT_INT16, types_pb2.DT_INT32, types_pb2.DT_INT64),
    *(types_pb2.DT_UINT8, types_pb2.DT_UINT32, types_pb2.DT_UINT64),
}
Signatures = Mapping[str, meta_graph_pb2.SignatureDef]


def signatures_of(meta_graph: meta_graph_pb2.MetaGraphDef) -> dict[str, meta_graph_pb2.SignatureDef]:
    """Those that a request can name, in alphabetical order; the file keeps what runs at the start among them."""
    return {
        name: signature
        for name, signature in sorted(meta_graph.signature_def.items())
        if not name.startswith("__saved_model_")
    }


def check_signatures(meta_graph: meta_graph_pb2.MetaGraphDef) -> list[Finding]:
    """No signatures; tensors that are not there, or have no batch dimension, no name, no lengths, no form in JSON."""
    signatures = signatures_of(meta_graph)
    if not signatures:
        return [rules.NO_SIGNATURES.at("the graph", "It has no signature")]
    nodes = {node.name for node in meta_graph.graph_def.node}
    return [
        *rules.COMPOSITE.gather(_found(signatures, _composite)),
        *rules.MISSING_TENSOR.gather(_found(signatures, functools.partial(_missing, nodes))),
        *rules.NO_BATCH.gather(_found(signatures, _without_batch)),
        *rules.NO_BATCH.gather(_found(signatures, _of_unknown_rank), "note"),
        *rules.NOT_IN_JSON.gather(_found(signatures, _not_in_json)),
        *rules.UNNAMED_OUTPUT.gather(_unnamed(signatures)),
        *rules.IDS_WITHOUT_LENGTH.gather(_ids_alone(signatures)),
    ]


def check_requests(logs: Sequence[prediction_log_pb2.PredictionLog], signatures: Signatures) -> list[Finding]:
    """Warm-up records that hold no request, or one that does not fit its signature."""
    unfit, empty = [], []
    for number, log in enumerate(logs, 1):
        if log.WhichOneof("log_type") is None:
            empty.append((f"record {number}", "It holds no request"))
        unfit += [(f"record {number}", what) for what in _unfit(log, signatures)]
    return [*rules.UNFIT_WARM_UP.gather(unfit), *rules.EMPTY_WARM_UP.gather(empty)]


def shape_text(shape: tensor_shape_pb2.TensorShapeProto) -> str:
    """A shape as TensorFlow prints it: `[None, 3]`."""
    if shape.unknown_rank:
        return "of unknown rank"
    return "[" + ", ".join("None" if axis.size == -1 else str(axis.size) for axis in shape.dim) + "]"


def type_text(dtype: int) -> str:
    """A type's name: `int32`."""
    known = types_pb2.DataType.values()
    return types_pb2.DataType.Name(dtype).removeprefix("DT_").lower() if dtype in known else f"type {dtype}"


def _found(signatures, wrong_with) -> Iterator[tuple[str, str]]:
    for name, signature in signatures.items():
        for side, tensors in (("input", signature.inputs), ("output", signature.outputs)):
            for key, tensor in sorted(tensors.items()):
                what = wrong_with(tensor)
                if what:
                    yield _place(name, side, key), what


def _composite(tensor: meta_graph_pb2.TensorInfo) -> str | None:
    kinds = {"coo_sparse": "It is a sparse tensor", "composite_tensor": "It is a ragged or other composite tensor"}
    return kinds.get(tensor.WhichOneof("encoding"))


def _missing(nodes: Set[str], tensor: meta_graph_pb2.TensorInfo) -> str | None:
    is_there = _composite(tensor) or tensor.name.partition(":")[0] in nodes
    return None if is_there else f"The graph has no {shown(tensor.name)}"


def _without_batch(tensor: meta_graph_pb2.TensorInfo) -> str | None:
    shape = tensor.tensor_shape
    if _composite(tensor) or shape.unknown_rank:
        return None
    if not shape.dim:
        return "It is a scalar"
    if shape.dim[0].size != -1:
        return f"Its first dimension is {shape.dim[0].size}, in the shape {shape_text(shape)}"
    return None


def _of_unknown_rank(tensor: meta_graph_pb2.TensorInfo) -> str | None:
    return "Its rank is unknown" if tensor.tensor_shape.unknown_rank and not _composite(tensor) else None


def _not_in_json(tensor: meta_graph_pb2.TensorInfo) -> str | None:
    return None if _composite(tensor) or tensor.dtype in _IN_JSON else f"It is {type_text(tensor.dtype)}"


def _unnamed(signatures) -> Iterator[tuple[str, str]]:
    for name, signature in signatures.items():
        for key in sorted(signature.outputs):
            if re.fullmatch(r"output_\d+", key):
                yield _place(name, "output", key), "It has no name of its own"


def _ids_alone(signatures) -> Iterator[tuple[str, str]]:
    for name, signature in signatures.items():
        if any(_tells_padding(key, tensor) for key, tensor in signature.inputs.items()):
            continue
        for key, tensor in sorted(signature.inputs.items()):
            axes = tensor.tensor_shape.dim
            if tensor.dtype in _IDS and len(axes) == 2 and axes[1].size == -1:
                what = f"It is {type_text(tensor.dtype)} {shape_text(tensor.tensor_shape)}, with no length or mask"
                yield _place(name, "input", key), what


def _tells_padding(key: str, tensor: meta_graph_pb2.TensorInfo) -> bool:
    is_mask = tensor.dtype == types_pb2.DT_BOOL and len(tensor.tensor_shape.dim) == 2
    return is_mask or _TELLS_PADDING.search(key) is not None


def _place(signature: str, side: str, key: str) -> str:
    return f"signature {shown(signature)}, {side} {shown(key)}"


def _unfit(log: prediction_log_pb2.PredictionLog, signatures: Signatures) -> Iterator[str]:
    """Why a server could not run a request."""
    kind = log.WhichOneof("log_type")
    if kind == "predict_log":
        yield from _unfit_prediction(log.predict_log.request, signatures)
    elif kind == "classify_log":
        yield from _unfit_examples(log.classify_log.request.model_spec.signature_name, signatures)
    elif kind == "regress_log":
        yield from _unfit_examples(log.regress_log.request.model_spec.signature_name, signatures)
    elif kind == "multi_inference_log":
        for task in log.multi_inference_log.request.tasks:
            yield from _unfit_examples(task.model_spec.signature_name, signatures)
    elif kind is not None:
        yield f"A `{kind}` cannot be used to warm up"


def _unfit_examples(name: str, signatures: Signatures) -> Iterator[str]:
    """Why a server could not run a request that holds `tf.train.Example`s."""
    name = name or "serving_default"
    if name not in signatures:
        yield _no_signature(name, signatures)
    elif set(signatures[name].inputs) != {"inputs"}:
        yield f"Signature {shown(name)} takes no examples, for which it would have a single input `inputs`"


def _unfit_prediction(request: predict_pb2.PredictRequest, signatures: Signatures) -> Iterator[str]:
    name = request.model_spec.signature_name or "serving_default"
    if name not in signatures:
        yield _no_signature(name, signatures)
        return
    inputs, outputs = signatures[name].inputs, signatures[name].outputs
    for key in sorted(set(request.inputs) - set(inputs)):
        yield f"Signature {shown(name)} has no input {shown(key)}"
    for key in sorted(set(inputs) - set(request.inputs) - set(signatures[name].defaults)):
        yield f"Input {shown(key)} of signature {shown(name)} is missing"
    for key in sorted(set(request.inputs) & set(inputs)):
        for what in _unfit_tensor(request.inputs[key], inputs[key]):
            yield f"Input {shown(key)} of signature {shown(name)} {what}"
    for key in sorted(set(request.output_filter) - set(outputs)):
        yield f"Signature {shown(name)} has no output {shown(key)}"


def _unfit_tensor(tensor: tensor_pb2.TensorProto, wanted: meta_graph_pb2.TensorInfo) -> Iterator[str]:
    shape = tensor.tensor_shape
    sizes = [axis.size for axis in shape.dim]
    if tensor.dtype != wanted.dtype:
        yield f"is {type_text(tensor.dtype)}, not {type_text(wanted.dtype)}"
    if shape.unknown_rank or any(size < 0 for size in sizes):
        yield f"is {shape_text(shape)}, which is no shape of a tensor"
    elif not _fits(sizes, wanted):
        yield f"is of the shape {shape_text(shape)}, not {shape_text(wanted.tensor_shape)}"
    elif tensor.tensor_content and not _is_full(tensor, math.prod(sizes)):
        yield f"has {len(tensor.tensor_content):,} bytes, which are not those of the shape {shape_text(shape)}"


def _fits(sizes: list[int], wanted: meta_graph_pb2.TensorInfo) -> bool:
    if wanted.tensor_shape.unknown_rank:
        return True
    axes = [axis.size for axis in wanted.tensor_shape.dim]
    return len(axes) == len(sizes) and all(axis in (-1, size) for axis, size in zip(axes, sizes, strict=True))


def _is_full(tensor: tensor_pb2.TensorProto, elements: int) -> bool:
    """Whether raw content is as long as its shape and type say; text has no fixed length."""
    if tensor.dtype not in types_pb2.DataType.values() or tensor.dtype == types_pb2.DT_INVALID:
        return True
    size = tf.as_dtype(tensor.dtype).size
    return tensor.dtype == types_pb2.DT_STRING or size is None or len(tensor.tensor_content) == size * elements


def _no_signature(name: str, signatures: Signatures) -> str:
    names = ", ".join(shown(key) for key in sorted(signatures)[:5])
    return f"There is no signature {shown(name)}, but {names}" if names else f"There is no signature {shown(name)}"
