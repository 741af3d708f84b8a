"""TensorFlow Serving's gRPC interface, by its official stubs, which need TensorFlow."""

from __future__ import annotations

import functools
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf.json_format import MessageToDict
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from zoo.serving.clients.messages import (
    Address,
    ServingError,
    Signature,
    VersionStatus,
    signatures_of,
    versions_of,
)

_OPTIONS = (
    ("grpc.max_send_message_length", -1),  # otherwise an answer above 4 MB, such as attention, is refused
    ("grpc.max_receive_message_length", -1),
    # By default a second try comes after a second, and later ones after up to two minutes: until then every call fails
    # at once, and a retry would find nothing new.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # With keepalive, the kernel ends a connection whose bytes nobody acknowledges for 20 s, and the client asks again
    # on a new one. Without it, every request on the connection to a machine that has vanished would be late for a
    # quarter of an hour. A server allows a ping every five minutes.
    ("grpc.keepalive_time_ms", 600_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.enable_http_proxy", 0),
)


class GrpcTransport:
    """Requests by gRPC; may be used from several threads.

    Args:
        address: `host`, `host:port`, or `https://host:port` for TLS; the default port is 8500.
        model: the model's name.
        version: a version's number, or None for the newest or the label's.
        label: a version's label, or None.

    Raises:
        ValueError: the address is not valid.
    """

    def __init__(self, address: str, model: str, version: int | None, label: str | None):
        self._error = functools.partial(ServingError, address, model)
        where = Address.parse(address, default_port=8500)
        if where.path:
            raise ValueError(f"gRPC knows no paths: `address` must be host or host:port. Received: {address!r}")
        self._spec = model_pb2.ModelSpec(name=model, version_label=label)
        if version is not None:
            self._spec.version.value = version
        target = f"[{where.host}]:{where.port}" if ":" in where.host else f"{where.host}:{where.port}"
        if where.secure:
            self._channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(), _OPTIONS)
        else:
            self._channel = grpc.insecure_channel(target, _OPTIONS)
        self._prediction = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._model = model_service_pb2_grpc.ModelServiceStub(self._channel)

    def signatures(self, seconds: float) -> dict[str, Signature]:
        """The model's signatures, by name."""
        response = self._metadata(seconds)
        found = get_model_metadata_pb2.SignatureDefMap()
        if not response.metadata["signature_def"].Unpack(found):
            raise self._error("UNKNOWN", "the answer holds no signatures")
        return signatures_of({"signature_def": {}, **MessageToDict(found, preserving_proto_field_name=True)})

    def version(self, seconds: float) -> int:
        """The number of the version that answers."""
        return self._metadata(seconds).model_spec.version.value

    def status(self, seconds: float) -> list[VersionStatus]:
        """The model's versions."""
        request = get_model_status_pb2.GetModelStatusRequest(model_spec=self._spec)
        response = self._call(self._model.GetModelStatus, request, seconds)
        return versions_of(MessageToDict(response, preserving_proto_field_name=True))

    def predict(
        self, name: str, signature: Signature, inputs: dict[str, np.ndarray], seconds: float
    ) -> dict[str, np.ndarray]:
        """The outputs of a signature."""
        request = predict_pb2.PredictRequest(model_spec=self._spec)
        request.model_spec.signature_name = name
        for key, array in inputs.items():
            dtype = signature.inputs[key].dtype
            request.inputs[key].CopyFrom(tf.make_tensor_proto(array, dtype=dtype, shape=array.shape))
        response = self._call(self._prediction.Predict, request, seconds)
        missing = signature.outputs.keys() - response.outputs.keys()
        if missing:
            raise self._error("UNKNOWN", f"the answer lacks {', '.join(sorted(missing))}")
        return {key: tf.make_ndarray(response.outputs[key]) for key in signature.outputs}

    def close(self) -> None:
        """Closes the connections."""
        self._channel.close()

    def _metadata(self, seconds: float) -> Any:
        request = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec=self._spec, metadata_field=["signature_def"]
        )
        return self._call(self._prediction.GetModelMetadata, request, seconds)

    def _call(self, method, request, seconds: float) -> Any:
        try:
            return method(request, timeout=seconds)
        except grpc.RpcError as error:
            raise self._error(error.code().name, error.details() or "") from None
