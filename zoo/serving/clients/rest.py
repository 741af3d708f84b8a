"""TensorFlow Serving's REST interface, by Python's own library."""

from __future__ import annotations

import functools
import http.client
import json
import urllib.parse
from collections.abc import Callable
from typing import Any

import numpy as np

from zoo.serving.clients.address import Address
from zoo.serving.clients.connections import Connections
from zoo.serving.clients.errors import ServingError
from zoo.serving.clients.metadata import Signature, VersionStatus, signatures_of, versions_of
from zoo.serving.clients.tensors import from_json, to_json

_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class RestTransport:
    """Requests by REST; may be used from several threads.

    Args:
        address: `host`, `host:port` or a URL; without a port 8501 is meant.
        model: the model's name.
        version: a version's number, or None for the newest or the label's.
        label: a version's label, or None.

    Raises:
        ValueError: the address is none.
    """

    def __init__(self, address: str, model: str, version: int | None, label: str | None):
        self._error = functools.partial(ServingError, address, model)
        where = Address.parse(address, default_port=8501)
        self._path = f"{where.path}/v1/models/{urllib.parse.quote(model, safe='')}"
        if version is not None:
            self._path += f"/versions/{version}"
        if label is not None:
            self._path += f"/labels/{urllib.parse.quote(label, safe='')}"
        self._connections = Connections(where.host, where.port, where.secure)

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
        """The outputs of a signature, in the column form: in the row form an empty batch is an error."""
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
        """Closes the connections."""
        self._connections.close()

    def _metadata(self, seconds: float) -> Any:
        return self._ask("GET", f"{self._path}/metadata", None, seconds)

    def _read(self, parts: Callable[[], Any]) -> Any:
        """What an answer holds; a `ServingError` if it is not made as it should be."""
        try:
            return parts()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._error("UNKNOWN", f"the answer is not as expected: {error!r}") from None

    def _ask(self, method: str, path: str, body: bytes | None, seconds: float) -> Any:
        """The JSON of the answer."""
        try:
            status, answer = self._connections.ask(method, path, body, seconds)
        except TimeoutError:
            raise self._error("DEADLINE_EXCEEDED", f"no answer within {round(seconds, 2):g} s") from None
        except (OSError, http.client.IncompleteRead) as error:
            raise self._error("UNAVAILABLE", getattr(error, "strerror", None) or str(error)) from None
        except http.client.HTTPException:
            raise self._error("UNKNOWN", "the answer is no HTTP") from None
        if status == 200:
            try:
                return json.loads(answer)
            except ValueError:  # also where it is not UTF-8
                raise self._error("UNKNOWN", f"the answer is no JSON: {_beginning(answer)}") from None
        try:
            said = str(json.loads(answer)["error"])
        except (ValueError, KeyError, TypeError):  # not from the server itself, but from something before it
            said = f"HTTP {status} {_beginning(answer)}"
        raise self._error(_CODES.get(status, "UNKNOWN"), said)


def _beginning(body: bytes) -> str:
    return repr(body[:200].decode("utf-8", "replace"))
