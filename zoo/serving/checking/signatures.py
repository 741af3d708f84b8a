"""Signatures that cannot be batched, named or padded."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tensorflow.core.framework import tensor_shape_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from zoo.serving.checking import rules
from zoo.serving.checking.finding import Finding, shown

# `lengths`, `seq_len`, `input_mask`, `sequenceLength`; not `calendar` or `masked_ids`.
_TELLS_PADDING = re.compile(r"mask(?!ed)|length|row_splits|(^|[\W_\d])lens?($|[\W_\d])|seq\w*len", re.IGNORECASE)
_IDS = (types_pb2.DT_INT32, types_pb2.DT_INT64)


def signatures_of(meta_graph: meta_graph_pb2.MetaGraphDef) -> dict[str, meta_graph_pb2.SignatureDef]:
    """Those that a request can name, in alphabetical order; what runs as a server starts is kept among them."""
    return {
        name: signature
        for name, signature in sorted(meta_graph.signature_def.items())
        if not name.startswith("__saved_model_")
    }


def check_signatures(meta_graph: meta_graph_pb2.MetaGraphDef) -> list[Finding]:
    """No signatures, and those whose tensors have no batch dimension, no name or no lengths."""
    signatures = signatures_of(meta_graph)
    if not signatures:
        return [rules.NO_SIGNATURES.at("the graph", "It has no signature")]
    return [
        *rules.NO_BATCH.gather(_without_batch(signatures)),
        *rules.UNNAMED_OUTPUT.gather(_unnamed(signatures)),
        *rules.IDS_WITHOUT_LENGTH.gather(_ids_alone(signatures)),
    ]


def shape_text(shape: tensor_shape_pb2.TensorShapeProto) -> str:
    """A shape as TensorFlow prints it: `[None, 3]`."""
    if shape.unknown_rank:
        return "of unknown rank"
    return "[" + ", ".join("None" if axis.size == -1 else str(axis.size) for axis in shape.dim) + "]"


def type_text(dtype: int) -> str:
    """A type's name: `int32`."""
    known = types_pb2.DataType.values()
    return types_pb2.DataType.Name(dtype).removeprefix("DT_").lower() if dtype in known else f"type {dtype}"


def _without_batch(signatures) -> Iterator[tuple[str, str]]:
    for name, signature in signatures.items():
        for side, tensors in (("input", signature.inputs), ("output", signature.outputs)):
            for key, tensor in sorted(tensors.items()):
                what = _wrong_with(tensor)
                if what:
                    yield _place(name, side, key), what


def _wrong_with(tensor: meta_graph_pb2.TensorInfo) -> str | None:
    shape = tensor.tensor_shape
    if tensor.WhichOneof("encoding") == "composite_tensor" and not tensor.HasField("tensor_shape"):
        return None  # its parts have shapes
    if shape.unknown_rank:
        return "Its rank is unknown"
    if not shape.dim:
        return "It is a scalar"
    if shape.dim[0].size != -1:
        return f"Its first dimension is {shape.dim[0].size}, in the shape {shape_text(shape)}"
    return None


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
