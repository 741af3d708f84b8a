"""The requests that a server sends to itself before it serves: whether they can be read, and fit their signatures."""

from __future__ import annotations

import math
import os
import pathlib
from collections.abc import Iterator, Mapping

import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from zoo.serving.checking import rules
from zoo.serving.checking.finding import Finding, shown
from zoo.serving.checking.protos import parse
from zoo.serving.checking.records import read_records
from zoo.serving.checking.signatures import shape_text, type_text
from zoo.serving.layout import WARM_UP_FILE

_MOST_RECORDS = 1000
_Signatures = Mapping[str, meta_graph_pb2.SignatureDef]


def check_warm_up(folder: pathlib.Path, signatures: _Signatures) -> tuple[list[Finding], int]:
    """What is wrong with a version's warm-up records, if it has any, and how many were read."""
    if not os.path.exists(folder / WARM_UP_FILE):
        return [], 0
    file, number, unfit, empty, findings = f"file {WARM_UP_FILE}", 0, [], [], []
    try:
        for record in read_records(folder / WARM_UP_FILE):
            if number == _MOST_RECORDS:
                findings.append(rules.TOO_MANY_WARM_UPS.at(file, f"It has more than {_MOST_RECORDS:,} records"))
                break
            number += 1
            log = _parse(record, number)
            if log.WhichOneof("log_type") is None:
                empty.append((f"record {number}", "It holds no request"))
            unfit += [(f"record {number}", what) for what in _unfit(log, signatures)]
    except ValueError as error:
        findings.append(rules.UNREADABLE_WARM_UP.at(file, str(error)))
    return [*findings, *rules.UNFIT_WARM_UP.gather(unfit), *rules.EMPTY_WARM_UP.gather(empty)], number


def _parse(record: bytes, number: int) -> prediction_log_pb2.PredictionLog:
    try:
        return parse(prediction_log_pb2.PredictionLog, record)
    except ValueError as error:
        raise ValueError(f"Record {number}: {error}") from None


def _unfit(log: prediction_log_pb2.PredictionLog, signatures: _Signatures) -> Iterator[str]:
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


def _unfit_examples(name: str, signatures: _Signatures) -> Iterator[str]:
    """Of requests that hold `tf.train.Example`s."""
    name = name or "serving_default"
    if name not in signatures:
        yield _no_signature(name, signatures)
    elif set(signatures[name].inputs) != {"inputs"}:
        yield f"Signature {shown(name)} takes no examples, for which it would have a single input `inputs`"


def _unfit_prediction(request: predict_pb2.PredictRequest, signatures: _Signatures) -> Iterator[str]:
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


def _no_signature(name: str, signatures: _Signatures) -> str:
    names = ", ".join(shown(key) for key in sorted(signatures)[:5])
    return f"There is no signature {shown(name)}, but {names}" if names else f"There is no signature {shown(name)}"
