"""Loading a version into a session as a server does, and sending it its warm-up requests. For trusted models."""

from __future__ import annotations

import contextlib
import ctypes
import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import prediction_log_pb2

from zoo.serving.checking import rules
from zoo.serving.checking.rules import Finding, shown
from zoo.serving.checking.signatures import Signatures, signatures_of
from zoo.serving.layout import check_loadable

_ERRORS = (tf.errors.OpError, ValueError, TypeError, KeyError, RuntimeError)
_ROWS = 8  # at most so many are joined into a batch
# Kernels add up one row and several rows in different orders, so the last digits of float32 differ.
_RELATIVE, _ABSOLUTE = 1e-3, 1e-4

Rows = dict[str, np.ndarray]  # inputs or outputs of a signature


def run_version(
    folder: pathlib.Path,
    meta_graph: meta_graph_pb2.MetaGraphDef,
    logs: Sequence[prediction_log_pb2.PredictionLog],
) -> tuple[list[Finding], int]:
    """What fails when the version is loaded, warmed up and sent batches; and how many requests were made.

    Args:
        folder: the version's.
        meta_graph: its graph.
        logs: the warm-up records, which fit their signatures.
    """
    _disable_xla()
    signatures = signatures_of(meta_graph)
    tags = sorted(meta_graph.meta_info_def.tags)
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1)
    with tf.compat.v1.Session(graph=tf.Graph(), config=config) as session:
        try:
            check_loadable(folder)
            tf.compat.v1.saved_model.load(session, tags, str(folder))
        except _ERRORS as error:
            return [rules.LOAD_FAILED.at("the version", _said(error))], 0
        return _run_requests(session, signatures, logs)


def _run_requests(session, signatures: Signatures, logs) -> tuple[list[Finding], int]:
    findings, requests = [], 0
    rows: dict[str, list[Rows]] = {}
    for number, log in enumerate(logs, 1):
        if log.WhichOneof("log_type") != "predict_log":
            continue
        request = log.predict_log.request
        name = request.model_spec.signature_name or "serving_default"
        requests += 1
        try:
            inputs = {key: tf.make_ndarray(tensor) for key, tensor in request.inputs.items()}
            _call(session, signatures[name], inputs)
        except _ERRORS as error:
            findings.append(rules.REQUEST_FAILED.at(f"record {number}, signature {shown(name)}", _said(error)))
        else:
            rows.setdefault(name, []).extend(_rows_of(inputs))
    unasked = []
    for name, signature in signatures.items():
        if rows.get(name):
            findings += _check_batch(session, name, signature, rows[name])
        elif not any(shown(name) in finding.where for finding in findings):
            unasked.append((f"signature {shown(name)}", "No request was sent to it"))
    return findings + rules.NOT_RUN.gather(unasked), requests


def _check_batch(session, name: str, signature: meta_graph_pb2.SignatureDef, rows: list[Rows]) -> list[Finding]:
    """Whether rows get the same answers together as one by one."""
    where = f"signature {shown(name)}"
    shapes = [tensor.tensor_shape for tensor in signature.inputs.values()]
    if any(not shape.dim or shape.dim[0].size != -1 for shape in shapes):
        return []  # a server cannot batch it; another rule reports that
    widths = {key: array.shape[1:] for key, array in rows[0].items()}
    rows = [row for row in rows if {key: array.shape[1:] for key, array in row.items()} == widths]
    # Different ones. NumPy's own `str` leaves out numbers in the middle of long rows.
    rows = list({str({key: array.tolist() for key, array in row.items()}): row for row in rows}.values())[:_ROWS]
    rows = rows if len(rows) > 1 else rows * 2
    try:
        alone = [_call(session, signature, row) for row in rows]
        again = _call(session, signature, rows[0])
    except _ERRORS as error:
        return [rules.BATCH_DIFFERS.at(where, f"One row of a request fails alone: {_said(error)}")]
    if not _agree(again, alone[0]):
        return [rules.NOT_RUN.at(where, "One request twice has different answers; batches were not compared")]
    try:
        joined = _call(session, signature, {key: np.concatenate([row[key] for row in rows]) for key in widths})
    except _ERRORS as error:
        return [rules.BATCH_DIFFERS.at(where, f"{len(rows)} rows together fail: {_said(error)}")]
    for key, array in joined.items():
        if array.shape[:1] != (len(rows),):
            what = f"Of {len(rows)} rows the output {shown(key)} has the shape {list(array.shape)}"
            return [rules.BATCH_DIFFERS.at(where, what)]
    slices = [{key: array[row : row + 1] for key, array in joined.items()} for row in range(len(rows))]
    differing = sum(not _agree(together, row) for together, row in zip(slices, alone, strict=True))
    what = f"{differing} of {len(rows)} rows have another answer in a batch of all of them"
    return [rules.BATCH_DIFFERS.at(where, what)] if differing else []


def _agree(batched: Rows, alone: Rows) -> bool:
    """Whether a row's outputs are the same; those of a batch may be wider, by padding."""
    for key, array in alone.items():
        other = batched[key]
        if other.ndim != array.ndim or any(np.less(other.shape, array.shape)):
            return False
        other = other[tuple(slice(size) for size in array.shape)]
        if array.dtype.kind == "f":
            scale = np.abs(array[np.isfinite(array)]).max(initial=1.0)
            if not np.allclose(other, array, rtol=_RELATIVE, atol=_ABSOLUTE * scale, equal_nan=True):
                return False
        elif not (other == array).all():
            return False
    return True


def _rows_of(inputs: Rows) -> list[Rows]:
    """A request for each row of a request; none if its inputs differ in their number of rows."""
    numbers = {array.shape[:1] for array in inputs.values()}
    if len(numbers) != 1 or () in numbers:
        return []
    ((number,),) = numbers
    return [{key: array[row : row + 1] for key, array in inputs.items()} for row in range(min(number, _ROWS))]


def _call(session, signature: meta_graph_pb2.SignatureDef, inputs: Rows) -> Rows:
    outputs = {key: tensor.name for key, tensor in signature.outputs.items()}
    return session.run(outputs, {signature.inputs[key].name: value for key, value in inputs.items()})


def _disable_xla() -> None:
    """Switches XLA off, by the function of TensorFlow's library that a server calls."""
    with contextlib.suppress(OSError, AttributeError):
        library = pathlib.Path(tf.sysconfig.get_lib(), "libtensorflow_cc.so.2")
        ctypes.CDLL(str(library))["_ZN10tensorflow21DisableXlaCompilationEv"]()


def _said(error: Exception) -> str:
    said = (getattr(error, "message", None) or str(error)).removeprefix("Graph execution error:").strip()
    return "TensorFlow says " + shown(said.partition("\n")[0])
