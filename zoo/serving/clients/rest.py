"""TensorFlow Serving's REST interface, by urllib3; no TensorFlow."""

from __future__ import annotations

import base64
import functools
import http.client
import json
import os
import queue
import threading
import urllib.parse
from collections.abc import Callable
from typing import Any

import numpy as np
import urllib3

from zoo.serving.clients.messages import (
    Address,
    ServingError,
    Signature,
    TensorSpec,
    VersionStatus,
    signatures_of,
    versions_of,
)

_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    413: "OUT_OF_RANGE",  # the body is too large
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",  # a proxy cannot reach the server
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_CONNECTIONS = 32  # that are kept open
_PIECE = 1 << 16  # bytes


class RestTransport:
    """Requests by REST; may be used from several threads, and in forked processes.

    Args:
        address: `host`, `host:port` or a URL; the default port is 8501.
        model: the model's name.
        version: a version's number, or None for the newest or the label's.
        label: a version's label, or None.

    Raises:
        ValueError: the address is not valid.
    """

    def __init__(self, address: str, model: str, version: int | None, label: str | None):
        self._error = functools.partial(ServingError, address, model)
        where = Address.parse(address, default_port=8501)
        self._path = f"{where.path}/v1/models/{urllib.parse.quote(model, safe='')}"
        if version is not None:
            self._path += f"/versions/{version}"
        if label is not None:
            self._path += f"/labels/{urllib.parse.quote(label, safe='')}"
        pool = urllib3.HTTPSConnectionPool if where.secure else urllib3.HTTPConnectionPool
        # The client repeats what fails, by REST as by gRPC.
        self._new_pool = functools.partial(pool, where.host, where.port, maxsize=_CONNECTIONS, retries=False)
        self._open_pool()

    def signatures(self, seconds: float) -> dict[str, Signature]:
        """The model's signatures, by name."""
        answer = self._metadata(seconds)
        return self._read(lambda: signatures_of(answer["metadata"]["signature_def"]))

    def version(self, seconds: float) -> int:
        """The number of the version that answers."""
        answer = self._metadata(seconds)
        return self._read(lambda: int(answer["model_spec"]["version"]))

    def status(self, seconds: float) -> list[VersionStatus]:
        """The model's versions."""
        answer = self._ask("GET", self._path, None, seconds)
        return self._read(lambda: versions_of(answer))

    def predict(
        self, name: str, signature: Signature, inputs: dict[str, np.ndarray], seconds: float
    ) -> dict[str, np.ndarray]:
        """The outputs of a signature, in the column form, which is shorter."""
        columns = {key: to_json(array) for key, array in inputs.items()}
        body = json.dumps({"signature_name": name, "inputs": columns}, ensure_ascii=False)
        answer = self._ask("POST", f"{self._path}:predict", body.encode(), seconds)

        def outputs():
            found = answer["outputs"]
            if len(signature.outputs) == 1:  # the server leaves out the name
                found = dict.fromkeys(signature.outputs, found)
            return {key: from_json(found[key], spec) for key, spec in signature.outputs.items()}

        return self._read(outputs)

    def close(self) -> None:
        """Closes the connections; the next request opens new ones."""
        self._pool.close()
        self._open_pool()

    def _open_pool(self) -> None:
        self._pool, self._process = self._new_pool(), os.getpid()

    def _metadata(self, seconds: float) -> Any:
        return self._ask("GET", f"{self._path}/metadata", None, seconds)

    def _read(self, parts: Callable[[], Any]) -> Any:
        """The parts of an answer; a `ServingError` if it does not have them."""
        try:
            return parts()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._error("UNKNOWN", f"the answer is not as expected: {error!r}") from None

    def _ask(self, method: str, path: str, body: bytes | None, seconds: float) -> Any:
        """The JSON of the answer."""
        try:
            status, answer = self._exchange(method, path, body, seconds)
        except (TimeoutError, urllib3.exceptions.HTTPError) as error:
            late = isinstance(error, (TimeoutError, urllib3.exceptions.TimeoutError))
            # In urllib3 a refused connection is a kind of connection time-out.
            if late and not isinstance(error, urllib3.exceptions.NewConnectionError):
                raise self._error("DEADLINE_EXCEEDED", f"no answer within {round(seconds, 2):g} s") from None
            cause = next((c for c in (*error.args, error.__cause__) if isinstance(c, Exception)), error)
            lost = isinstance(cause, (ConnectionError, http.client.IncompleteRead))
            if isinstance(cause, http.client.HTTPException) and not lost:
                raise self._error("UNKNOWN", "the answer is not HTTP") from None
            reason = getattr(cause, "strerror", None) or str(cause)
            raise self._error("UNAVAILABLE", f"{reason} (over REST)") from None
        if status == 200:
            try:
                return json.loads(answer)
            except ValueError:  # also where it is not UTF-8
                raise self._error("UNKNOWN", f"the answer is not JSON: {_beginning(answer)}") from None
        try:
            said = str(json.loads(answer)["error"])
        except (ValueError, KeyError, TypeError):  # not from the server itself, but from something before it
            said = f"HTTP {status} {_beginning(answer)}"
        raise self._error(_CODES.get(status, "UNKNOWN"), said)

    def _exchange(self, method: str, path: str, body: bytes | None, seconds: float) -> tuple[int, bytes]:
        """Status and body of the answer.

        urllib3 limits the time of each read, not of the whole answer, and does not limit the look-up of a name. So
        another thread does the work, and this one waits at most `seconds`.
        """
        if self._process != os.getpid():  # forked: on a connection of both, each process could read the other's answer
            self._open_pool()
        pool = self._pool
        outcome: queue.SimpleQueue[Any] = queue.SimpleQueue()
        gave_up = threading.Event()

        def work():
            try:
                headers = {"Content-Type": "application/json"}
                response = pool.urlopen(
                    method, path, body, headers, timeout=seconds, preload_content=False, redirect=False
                )
                pieces = []
                while not gave_up.is_set() and (piece := response.read1(_PIECE)):
                    pieces.append(piece)
                if gave_up.is_set():
                    response.close()
                outcome.put((response.status, b"".join(pieces)))
                response.release_conn()
            except Exception as error:  # raised in the thread that waits
                outcome.put(error)

        threading.Thread(target=work, daemon=True).start()
        try:
            found = outcome.get(timeout=seconds)
        except queue.Empty:
            gave_up.set()
            raise TimeoutError from None
        if isinstance(found, Exception):
            raise found
        return found


def to_json(array: np.ndarray) -> Any:
    """Nested lists for JSON: strings as they are where they are UTF-8, and else as `{"b64": ...}`."""
    if array.dtype != object:
        return array.tolist()
    flat = np.empty(array.size, object)
    flat[:] = [_string_to_json(value) for value in array.ravel()]
    return flat.reshape(array.shape).tolist()


def from_json(value: Any, spec: TensorSpec) -> np.ndarray:
    """The array of nested lists from JSON; strings become `bytes`.

    Where an axis has size 0, JSON does not give the sizes of those behind it; they become 0 as well.

    Raises:
        ValueError: the value is no array of that type.
    """
    array: np.ndarray
    if spec.dtype == "string":
        nested = np.array(value, dtype=object)
        array = np.empty(nested.size, object)
        array[:] = [_string_from_json(value) for value in nested.ravel()]
        array = array.reshape(nested.shape)
    else:
        array = np.array(value, dtype=spec.dtype)
    if not array.size and spec.shape is not None:
        array = array.reshape(array.shape + (0,) * (len(spec.shape) - array.ndim))
    return array


def _string_to_json(value: bytes) -> str | dict:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


def _string_from_json(value: str | dict) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    if isinstance(value, dict) and isinstance(value.get("b64"), str):
        return base64.b64decode(value["b64"], validate=True)
    raise ValueError(f"{value!r} is no string")


def _beginning(body: bytes) -> str:
    return repr(body[:200].decode("utf-8", "replace"))
