"""Tensors in the JSON of TensorFlow Serving's REST interface: both forms of requests and answers, and its errors.

The forms are those of https://www.tensorflow.org/tfx/serving/api_rest. What that page leaves open, and the words of
errors, follow `tensorflow_serving/util/json_tensor.cc`. What is refused there is refused here. Some requests are only
refused here: text behind the JSON object, broken UTF-8, numbers out of their type's range, shapes that do not fit, and
lists nested deeper than NumPy has axes, which are 64.

No TensorFlow: tensors are NumPy arrays, strings `bytes`.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from zoo.serving.clients.messages import TensorSpec

HTTP_STATUS = {  # ToHTTPStatusCode in http_server.cc
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400,
    "ABORTED": 409,
    "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 501,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DATA_LOSS": 500,
    "UNAUTHENTICATED": 401,
}
_SERVER_NAMES = {"float16": "half", "float32": "float", "float64": "double"}  # the others are named as in NumPy
_FLOATS = ("float32", "float64")
_INTEGERS = ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64")  # uint16 is missing in the server too
_TYPE_NAMES = {type(None): "Null", dict: "Object", list: "Array", str: "String", int: "Number", float: "Number"}
_MOST_SHOWN = 256  # letters of a value in a message


class Refusal(Exception):
    """A request that is answered with an error.

    Attributes:
        code: the kind of error by gRPC's names, such as "NOT_FOUND".
        message: the server's words.
    """

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code, self.message = code, message


def invalid(message: str) -> Refusal:
    """The most common error: the request is not as it should be."""
    return Refusal("INVALID_ARGUMENT", message)


# Requests.


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object of a request; `Refusal` if it is none."""
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    try:
        request = json.loads(body.decode("utf-8-sig"), parse_float=_float, object_pairs_hook=_first_of_each)
    except UnicodeDecodeError as error:
        raise invalid(f"JSON Parse error: Invalid encoding in string. at offset: {error.start}") from None
    except json.JSONDecodeError as error:
        offset = len(error.doc[: error.pos].encode())
        raise invalid(f"JSON Parse error: Invalid value. at offset: {offset}") from None
    except (RecursionError, ValueError):  # too many nested brackets; a number of thousands of digits
        raise invalid("JSON Parse error: nested too deeply, or a number too long. at offset: 0") from None
    if not isinstance(request, dict):
        raise invalid(f"JSON Value: {_shown(request)} Is not object")
    return request


def _first_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. If a key stands twice, the first one counts, as in the server."""
    return dict(pairs) | dict(reversed(pairs))  # in the order of the request, which messages show


def _float(text: str) -> float:
    """A number of JSON; the word `Infinity` does not come here."""
    found = float(text)
    if math.isinf(found):
        raise _too_big()
    return found


def _too_big() -> Refusal:
    return invalid("JSON Parse error: Number too big to be stored in double. at offset: 0")


def signature_name(request: Mapping[str, Any]) -> str:
    """The signature that a request is for; `Refusal` if the name is no string."""
    name = request.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(
            f"JSON Value: {_shown(request)} not formatted correctly. 'signature_name' key must be a string value."
        )
    return name or "serving_default"


def tensors(request: Mapping[str, Any], specs: Mapping[str, TensorSpec]) -> tuple[dict[str, np.ndarray], bool]:
    """The inputs in a request.

    Args:
        request: the JSON object.
        specs: the inputs of the signature.

    Returns:
        An array for each input, and whether the request is in rows ("instances"), not in columns ("inputs").

    Raises:
        Refusal: the request does not hold these inputs.
    """
    given = {"instances", "inputs"} & request.keys()
    if len(given) == 2:
        message = "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist "
        raise invalid(f"JSON Value: {_shown(request)} {message}")
    if not given:
        raise invalid("Missing 'inputs' or 'instances' key")
    in_rows = given == {"instances"}
    if in_rows and not isinstance(request["instances"], list):
        raise invalid(f"JSON Value: {_shown(request)} Expecting 'instances' to be an list/array")
    if in_rows and not request["instances"]:
        raise invalid(f"JSON Value: {_shown(request)} No values in 'instances' array")
    columns = _from_rows(request["instances"], specs) if in_rows else _from_columns(request["inputs"], specs)
    for name, array in columns.items():
        _check_shape(name, array, specs[name])
    return columns, in_rows


def _from_columns(inputs: Any, specs: Mapping[str, TensorSpec]) -> dict[str, np.ndarray]:
    if not isinstance(inputs, dict) or _is_base64(inputs):
        if len(specs) > 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as multiple input tensors required as per "
                "tensorinfo_map"
            )
        return {name: _array(inputs, spec) for name, spec in specs.items()}
    for name in specs:
        if name not in inputs:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
    return {name: _array(inputs[name], spec) for name, spec in specs.items()}


def _from_rows(rows: list, specs: Mapping[str, TensorSpec]) -> dict[str, np.ndarray]:
    """Rows are objects with every input, or, where there is one input, its values."""
    are_objects = _is_row_object(rows[0])
    if not are_objects and len(specs) > 1:
        raise invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors required as per "
            "tensorinfo_map"
        )
    for number, row in enumerate(rows):
        if are_objects and not _is_row_object(row):
            raise invalid(f"Expecting object but got list at item {number} of input list")
        if not are_objects and _is_row_object(row):
            raise invalid(f"Expecting value/list but got object at item {number} of input list")
        if not are_objects:
            continue
        for name in row:
            if name not in specs:
                raise _failed_row(number, name, f"JSON object: does not have named input: {name}")
        if row.keys() != specs.keys():
            raise invalid(
                f"Failed to process element: {number} of 'instances' list. JSON object: {_shown(row)} keys must be "
                f"equal to: {','.join(sorted(specs))}"
            )
    if not are_objects:
        (name,) = specs
        return {name: _joined(rows, None, specs[name])}
    return {name: _joined([row[name] for row in rows], name, spec) for name, spec in specs.items()}


def _joined(values: list, name: str | None, spec: TensorSpec) -> np.ndarray:
    """The values of an input in all rows, which must have the same shape."""
    try:
        return _array(values, spec)
    except Refusal:  # the server reads row by row: find the row, to say the same
        shape: list[int] | None = None
        for number, value in enumerate(values):
            try:
                found = list(_array(value, spec).shape)
            except Refusal as refusal:
                raise _failed_row(number, name, refusal.message, refusal.code) from None
            shape = found if shape is None else shape
            if math.prod(found) != math.prod(shape):
                message = f"Expecting tensor size: {math.prod(shape)} but got: {math.prod(found)}"
                raise _failed_row(number, name, message) from None
            if found != shape:
                wanted, got = (f"[{','.join(map(str, each))}]" for each in (shape, found))
                raise _failed_row(number, name, f"Expecting shape {wanted} but got: {got}") from None
        raise


def _failed_row(number: int, name: str | None, message: str, code: str = "INVALID_ARGUMENT") -> Refusal:
    key = "" if name is None else f" key: {name}"
    return invalid(f"Failed to process element: {number}{key} of 'instances' list. Error: {code}: {message}")


def _array(value: Any, spec: TensorSpec) -> np.ndarray:
    """Nested lists as an array. Its shape is that of the first elements, which all others must have."""
    shape, first = [], value
    while isinstance(first, list):
        shape.append(len(first))
        if not first:
            break
        first = first[0]
    flat = [value]
    for level, size in enumerate(shape):
        for each in flat:
            if not isinstance(each, list):
                raise invalid(
                    f"JSON Value: {_shown(each)} found at incorrect level: {level + 1} in the JSON DOM. Expected at "
                    f"level: {len(shape)}"
                )
            if len(each) != size:
                raise invalid(
                    f"Encountered list at unexpected size: {len(each)} at level: {level} expected size: {size}"
                )
        flat = list(itertools.chain.from_iterable(flat))
    if any(isinstance(each, list) for each in flat):
        raise invalid(f"Encountered list at unexpected level: {len(shape)} expected < {len(shape)}")
    scalars = _scalars(flat, spec.dtype)
    try:
        return scalars.reshape(shape)  # a list at each axis
    except ValueError:
        raise invalid(f"Encountered lists at {len(shape)} levels, which are more than zoo serve takes") from None


def _scalars(values: list, dtype: str) -> np.ndarray:
    """Values of JSON as an array of a type; only the types that the server reads."""
    if dtype == "string":
        array = np.empty(len(values), object)
        array[:] = [_bytes(value) for value in values]
        return array
    kinds: tuple[type, ...]
    if dtype in _FLOATS:
        kinds = (int, float)
    elif dtype in _INTEGERS:
        kinds = (int,)
    elif dtype == "bool":
        kinds = (bool,)
    else:
        name, value = _SERVER_NAMES.get(dtype, dtype), values[0] if values else None
        raise Refusal("UNIMPLEMENTED", f"Conversion of JSON Value: {_shown(value)} to type: {name}")
    if not set(map(type, values)) <= set(kinds):  # `isinstance` would take true for 1
        raise _wrong_type(next(value for value in values if type(value) not in kinds), dtype)
    if kinds == (int,):
        limits = np.iinfo(dtype)
        for value in (min(values, default=0), max(values, default=0)):
            if not limits.min <= value <= limits.max:
                raise _wrong_type(value, dtype)
    try:
        with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite, in the server too
            return np.array(values, "float64" if dtype in _FLOATS else dtype).astype(dtype)
    except OverflowError:  # an integer beyond float64
        raise _too_big() from None


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise invalid("JSON Parse error: The surrogate pair in string is invalid. at offset: 0") from None
    if not isinstance(value, dict):
        raise _wrong_type(value, "string")
    if not _is_base64(value):
        raise invalid(f"JSON Value: {_shown(value)} not formatted correctly for base64 data")
    try:
        packed = b"".join(value["b64"].encode().split())  # as absl::Base64Unescape: white space is skipped,
        if not packed.endswith(b"="):  # and padding may be left out
            packed += b"=" * (-len(packed) % 4)
        return base64.b64decode(packed, validate=True)
    except (binascii.Error, ValueError):
        raise invalid("Unable to base64 decode") from None


def _check_shape(name: str, array: np.ndarray, spec: TensorSpec) -> None:
    """A server feeds any shape into the graph, which may fail there; a session of Python takes only a fitting one."""
    if not spec.fits(array.shape):
        sizes = ",".join("?" if size is None else str(size) for size in spec.shape or ())
        raise invalid(f"input {name} must have shape [{sizes}] but has [{','.join(map(str, array.shape))}]")


def _is_base64(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)


def _is_row_object(value: Any) -> bool:
    return isinstance(value, dict) and not _is_base64(value)


def _wrong_type(value: Any, dtype: str) -> Refusal:
    found = str(value) if isinstance(value, bool) else _TYPE_NAMES[type(value)]
    name = _SERVER_NAMES.get(dtype, dtype)
    return invalid(f"JSON Value: {_shown(value)} Type: {found} is not of expected type: {name}")


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:_MOST_SHOWN]


# Answers.


def answer(outputs: Mapping[str, np.ndarray], in_rows: bool) -> bytes:
    """The JSON of the outputs in the form of the request.

    Several outputs become an object for each row, or an object of columns; a single one is given without its name.

    Args:
        outputs: an array for each output.
        in_rows: whether the request was in rows.

    Raises:
        Refusal: the outputs do not all have the same rows, or are of a type that the server does not write.
    """
    if not outputs:
        raise invalid("Cannot convert empty tensor map to JSON")
    if in_rows:
        rows = None
        for name, array in outputs.items():
            if not array.ndim:
                raise invalid(f"Tensor name: {name} has no shape information ")
            if rows is not None and len(array) != rows:
                raise invalid(f"Tensor name: {name} has inconsistent batch size: {len(array)} expecting: {rows}")
            rows = len(array)
    texts = {name: _nested(_texts(name, array), array.shape, int(in_rows)) for name, array in outputs.items()}
    if len(texts) == 1:
        found: Iterable[str] = next(iter(texts.values()))
    elif in_rows:
        found = (_object(dict(zip(texts, row, strict=True))) for row in zip(*texts.values(), strict=True))
    else:
        found = [_object({name: column[0] for name, column in texts.items()})]
    whole = f"[{', '.join(found)}]" if in_rows else next(iter(found))
    key = "predictions" if in_rows else "outputs"
    return f'{{"{key}": {whole}}}'.encode("utf-8", "surrogateescape")


def _object(texts: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{json.dumps(name)}: {text}' for name, text in texts.items())}}}"


def _nested(texts: list[str], shape: tuple[int, ...], first_axis: int) -> list[str]:
    """JSON of the arrays along the axes before `first_axis`, from the JSON of all elements."""
    for axis in reversed(range(first_axis, len(shape))):
        size = shape[axis]
        if size:
            texts = [f"[{', '.join(texts[begin : begin + size])}]" for begin in range(0, len(texts), size)]
        else:  # no elements to count the arrays by
            texts = ["[]"] * math.prod(shape[:axis])
    return texts


def _texts(name: str, array: np.ndarray) -> list[str]:
    """The JSON of each element."""
    dtype = str(array.dtype)
    flat = array.ravel()
    if dtype == "object":
        if name.endswith("_bytes"):
            return [f'{{"b64": "{base64.b64encode(value).decode()}"}}' for value in flat]
        # Broken UTF-8 goes out as it is, as from the server.
        return [json.dumps(value.decode("utf-8", "surrogateescape"), ensure_ascii=False) for value in flat]
    if dtype in _FLOATS:
        return _decimals(flat)
    if dtype in _INTEGERS:
        return list(map(str, flat.tolist()))
    if dtype == "bool":
        return ["true" if value else "false" for value in flat]
    raise invalid(f"Failed to write JSON value for tensor type: {_SERVER_NAMES.get(dtype, dtype)}")


def _decimals(flat: np.ndarray) -> list[str]:
    """Six digits where they give the number back, else as many as every number needs; with a point or an exponent."""
    texts = [f"{value:.6g}" for value in flat.tolist()]
    digits = 9 if flat.dtype == np.float32 else 17
    with np.errstate(over="ignore"):
        back = np.array(texts, np.float64).astype(flat.dtype)
    for place in np.flatnonzero(back != flat):
        texts[place] = f"{flat[place].item():.{digits}g}"
    special = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return [special.get(text) or (text if "." in text or "e" in text else f"{text}.0") for text in texts]
