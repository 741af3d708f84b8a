"""A client of TensorFlow Serving."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from zoo.serving.clients.errors import ServingError
from zoo.serving.clients.metadata import Signature, VersionStatus
from zoo.serving.clients.rest import RestTransport
from zoo.serving.clients.retrying import Deadline, with_retries
from zoo.serving.clients.tensors import to_array
from zoo.serving.clients.texts import TextCalls


class ServingClient(TextCalls):
    """A model on a server.

    It may be used from several threads. By REST it needs nothing but NumPy; by gRPC TensorFlow and the package
    `tensorflow-serving-api`. Both give the same answers.

        with ServingClient("localhost:8501", "dates") as dates:
            dates.translate(["21 नवंबर 2026"])

    Args:
        address: `host`, `host:port`, or a URL, `https://` for TLS. Without a port it is 8501 by REST and 8500 by gRPC,
            or 443 with TLS.
        model: the model's name to the server.
        protocol: "rest" or "grpc".
        version: the number of a version; None for the newest.
        label: the label of a version, instead of its number.
        timeout: how many seconds a request may take, all tries and pauses included; of `translate` and its like, each
            batch.
        retries: how often to ask again, after pauses that double from 0.1 s, where the server could not be reached, is
            not ready or is too busy; never where it answered with another error.

    Raises:
        ValueError: an argument is out of its range.
        ModuleNotFoundError: what gRPC needs is not installed.
    """

    def __init__(
        self,
        address: str,
        model: str,
        *,
        protocol: Literal["rest", "grpc"] = "rest",
        version: int | None = None,
        label: str | None = None,
        timeout: float = 30.0,
        retries: int = 2,
    ):
        if protocol not in ("rest", "grpc"):
            raise ValueError(f"`protocol` must be 'rest' or 'grpc'. Received: protocol={protocol!r}")
        if not model:
            raise ValueError("`model` must be the model's name to the server. Received: model=''")
        if version is not None and label is not None:
            raise ValueError(f"Give `version` or `label`, not both. Received: version={version}, label={label!r}")
        if not 0 < timeout < float("inf"):
            raise ValueError(f"`timeout` must be a number of seconds above 0. Received: timeout={timeout}")
        if retries < 0:
            raise ValueError(f"`retries` must be at least 0. Received: retries={retries}")
        self.address, self.model, self.protocol = address, model, protocol
        self.timeout, self.retries = timeout, retries
        transport = RestTransport if protocol == "rest" else _grpc_transport()
        self._transport, self._label = transport(address, model, version, label), label
        self._signatures: dict[str, Signature] = {}

    def predict(self, signature: str = "serving_default", **inputs: Any) -> dict[str, np.ndarray]:
        """Calls any signature.

        Args:
            signature: its name.
            **inputs: each input of the signature: a list, nested or not, or an array. Strings are `str`, sent as UTF-8,
                or `bytes`, whatever is in them.

        Returns:
            Each output; strings as an array of `bytes`. By REST the sizes of axes behind one of size 0 are 0, and an
            output of broken UTF-8 is an error unless its name ends in `_bytes`.

        Raises:
            ValueError: the model has no such signature, or the inputs are not those that it takes.
            ServingError: the server gave no answer.
        """
        deadline = Deadline(self.timeout)
        called = self._signature(signature, deadline)
        if inputs.keys() != called.inputs.keys():
            raise ValueError(
                f"The signature {signature!r} takes {', '.join(called.inputs)}. Received: {', '.join(inputs) or 'none'}"
            )
        arrays = {name: to_array(name, inputs[name], spec) for name, spec in called.inputs.items()}
        try:
            return self._ask(lambda seconds: self._transport.predict(signature, called, arrays, seconds), deadline)
        except ServingError:
            self._signatures = {}  # perhaps the next version has others
            raise

    def signatures(self) -> dict[str, Signature]:
        """The model's signatures by name, each with its inputs and outputs; `ServingError` without an answer."""
        self._signatures = self._ask(self._transport.signatures, Deadline(self.timeout))
        return dict(self._signatures)

    def status(self) -> list[VersionStatus]:
        """The model's versions and their states, in ascending order; `ServingError` without an answer.

        Of a client for one version or label, that version alone.
        """
        deadline = Deadline(self.timeout)
        versions = self._ask(self._transport.status, deadline)
        if self._label is None:
            return versions
        # The server pays labels no heed in its status.
        labelled = self._ask(self._transport.version, deadline)
        return [each for each in versions if each.version == labelled]

    def close(self) -> None:
        """Closes the connections; the next call opens new ones by REST, and fails by gRPC."""
        self._transport.close()

    def __enter__(self) -> ServingClient:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _signature(self, name: str, deadline: Deadline | None = None) -> Signature:
        known = self._signatures  # another thread may put others in their place
        if name not in known:
            known = self._signatures = self._ask(self._transport.signatures, deadline or Deadline(self.timeout))
        if name not in known:
            raise ValueError(f"The model {self.model!r} has no signature {name!r}; it has {', '.join(known)}.")
        return known[name]

    def _ask(self, request, deadline: Deadline) -> Any:
        return with_retries(request, deadline, self.retries)


def _grpc_transport():
    try:
        from zoo.serving.clients.grpc import GrpcTransport
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"gRPC needs {error.name}: pip install tensorflow-serving-api", name=error.name
        ) from None
    return GrpcTransport
