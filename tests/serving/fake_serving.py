"""Servers on loopback that answer as TensorFlow Serving does, by REST and by gRPC.

They behave as the real server's documentation or source says: paths, both forms of JSON, the types that it
takes, binary values, errors and their codes.
"""

import base64
import concurrent.futures
import http.server
import json
import re
import socket
import threading
import urllib.parse

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf.json_format import MessageToDict
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

HTTP_CODES = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


class Refusal(Exception):
    """An error of the server: its code by gRPC's name, and the text."""


class Serving:
    """What both servers do: `{model: {version: Model}}`, labels, and misbehaviour when it is asked for."""

    def __init__(self, models, labels=None):
        self.models, self.labels = models, labels or {}
        self.failures = []  # of the next requests, one each: a `Refusal`, or what a subclass knows
        self.calls = []  # (kind, model, version, signature) of each request that was answered
        self.over = threading.Event()  # ends what hangs

    def fail(self):
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, Refusal):
            raise failure
        return failure

    def find(self, kind, name, version=None, label=None, signature=None):
        """A version's number and model."""
        versions = self.models.get(name, {})
        wanted = self.labels.get(label, -1) if label else version or max(versions, default=-1)
        if wanted not in versions:
            if label:
                raise Refusal("INVALID_ARGUMENT", f"Unrecognized servable version label: {label}")
            which = f"Specific({name}, {version})" if version else f"Latest({name})"
            raise Refusal("NOT_FOUND", f"Servable not found for request: {which}")
        self.calls.append((kind, name, wanted, signature))
        return wanted, versions[wanted]

    def status(self, name, version=None):
        versions = sorted(self.models.get(name, {}), reverse=True)
        if version is not None:
            versions = [each for each in versions if each == version]
        if not versions:
            what = f"version {version}" if version is not None else "any versions"
            raise Refusal("NOT_FOUND", f"Could not find {what} of model {name}")
        self.calls.append(("status", name, version, None))
        response = get_model_status_pb2.GetModelStatusResponse()
        for each in versions:
            whole = self.models[name][each] is not None
            added = response.model_version_status.add(version=each, state="AVAILABLE" if whole else "END")
            added.status.error_code, added.status.error_message = (0, "") if whole else (13, "no variables")
        return response

    def predict(self, name, version, label, signature, inputs):
        _, model = self.find("predict", name, version, label, signature)
        if inputs.keys() != dict(model.signatures.signature_def[signature].inputs).keys():
            raise Refusal("INVALID_ARGUMENT", "input size does not match signature")
        return model.call(signature, **inputs)


PREDICT = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+)|/labels/([^/:]+))?:predict")
LOOK = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+)|/labels/([^/:]+))?(/metadata)?")


class FakeRest(Serving):
    """By REST. Failures may also be "reset", "hang", "trickle", "close", or bytes that are sent as the body."""

    def __enter__(self, port=0):
        serving = self
        self.connections = 0

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # or each answer waits 40 ms for the acknowledgement of its head

            def setup(self):
                super().setup()
                serving.connections += 1

            def log_message(self, *_):
                pass

            def do_GET(self):
                serving.respond(self, LOOK, serving.look)

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                serving.respond(self, PREDICT, lambda *which: serving.predict_json(body, *which))

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.address = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.server.shutdown()
        self.server.server_close()

    def respond(self, handler, paths, answer):
        status, body, failure = 200, b"", None
        try:
            failure = self.fail()
            if failure == "reset":
                handler.connection.shutdown(socket.SHUT_RDWR)
                handler.close_connection = True
                return
            if failure == "hang":
                self.over.wait()
                return
            if failure == "trickle":
                self.trickle(handler)
                return
            if isinstance(failure, bytes):
                body = failure
            else:
                found = paths.fullmatch(handler.path)
                if not found:
                    raise Refusal("INVALID_ARGUMENT", f"Malformed request: {handler.command} {handler.path}")
                name, version, label, *rest = found.groups()
                name, label = urllib.parse.unquote(name), label and urllib.parse.unquote(label)
                body = answer(name, version and int(version), label, *rest)
        except Refusal as refusal:
            code, text = refusal.args
            status, body = HTTP_CODES[code], json.dumps({"error": text}, ensure_ascii=False).encode()
        handler.close_connection = failure == "close"  # after an answer that does not say so
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def trickle(self, handler):
        """A byte now and then, forever: no step of it is long."""
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        try:
            while not self.over.wait(0.05):
                handler.wfile.write(b" ")
                handler.wfile.flush()
        except OSError:
            handler.close_connection = True

    def look(self, name, version, label, metadata):
        if not metadata:  # a label is not looked at
            return json.dumps(
                MessageToDict(self.status(name, version), always_print_fields_with_no_presence=True)
            ).encode()
        number, model = self.find("metadata", name, version, label)
        definition = MessageToDict(
            model.signatures, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        spec = {"name": name, "signature_name": "", "version": str(number)}
        return json.dumps({"model_spec": spec, "metadata": {"signature_def": definition}}).encode()

    def predict_json(self, body, name, version, label):
        try:
            request = json.loads(body)
        except ValueError:
            raise Refusal("INVALID_ARGUMENT", "JSON Parse error: Invalid value. at offset: 0") from None
        signature = request.get("signature_name", "serving_default")
        _, model = self.find("look-up", name, version, label)
        self.calls.pop()
        if signature not in model.signatures.signature_def:
            raise Refusal("INVALID_ARGUMENT", f'Serving signature name: "{signature}" not found in signature def')
        specs = dict(model.signatures.signature_def[signature].inputs)
        rows = request.get("instances")
        if rows is not None:
            if not rows:
                raise Refusal("INVALID_ARGUMENT", "No values in 'instances' array")
            if not isinstance(rows[0], dict) and len(specs) > 1:  # FillTensorMapFromInstancesList in json_tensor.cc
                raise Refusal("INVALID_ARGUMENT", "instances is a plain list, but expecting list of objects")
            plain = not isinstance(rows[0], dict) or rows[0].keys() == {"b64"}
            if not plain and not all(isinstance(row, dict) and specs.keys() <= row.keys() for row in rows):
                raise Refusal("INVALID_ARGUMENT", f"Failed to process element of 'instances' list: not {list(specs)}")
            columns = {key: rows if plain else [row[key] for row in rows] for key in specs}
        else:
            given = request["inputs"]
            columns = given if isinstance(given, dict) else dict.fromkeys(specs, given)
        for key in specs:
            if key not in columns:
                raise Refusal("INVALID_ARGUMENT", f"Missing named input: {key} in 'inputs' object.")
        inputs = {key: self.array(columns[key], tf.as_dtype(spec.dtype)) for key, spec in specs.items()}
        outputs = self.predict(name, version, label, signature, inputs)
        found = {key: listed(array, key.endswith("_bytes")) for key, array in outputs.items()}
        if rows is not None:
            found = [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]
            found = {"predictions": [next(iter(row.values())) for row in found] if len(outputs) == 1 else found}
        else:
            found = {"outputs": next(iter(found.values())) if len(found) == 1 else found}
        return json.dumps(found, ensure_ascii=False, indent=4).encode("utf-8", "surrogateescape")

    def array(self, value, dtype):
        """The tensor in a request; numbers with a point are no integers, nor integers booleans."""
        nested = np.array(value, dtype=object)
        flat = [self.scalar(each, dtype) for each in nested.ravel()]
        array = np.empty(len(flat), dtype.as_numpy_dtype)
        array[:] = flat
        return array.reshape(nested.shape)

    @staticmethod
    def scalar(value, dtype):
        if dtype == tf.string and isinstance(value, str):
            return value.encode()
        if dtype == tf.string and isinstance(value, dict) and value.keys() == {"b64"}:
            return base64.b64decode(value["b64"])
        kinds = bool if dtype.is_bool else int if dtype.is_integer else (int, float) if dtype.is_floating else ()
        if not isinstance(value, kinds) or (isinstance(value, bool) and not dtype.is_bool):
            raise Refusal("INVALID_ARGUMENT", f"JSON Value: {json.dumps(value)} is not of expected type: {dtype.name}")
        return value


def listed(array, binary):
    if array.dtype != object:
        return array.tolist()
    flat = np.empty(array.size, object)
    flat[:] = [
        {"b64": base64.b64encode(each).decode()} if binary else each.decode("utf-8", "surrogateescape")
        for each in array.ravel()
    ]
    return flat.reshape(array.shape).tolist()


class FakeGrpc(Serving):
    """By gRPC. Failures may also be "hang"."""

    def __enter__(self, port=0):
        serving = self

        def answering(answer):
            def handle(request, context):
                try:
                    if serving.fail() == "hang":
                        serving.over.wait()
                    return answer(request)
                except Refusal as refusal:
                    code, text = refusal.args
                    context.abort(grpc.StatusCode[code], text)

            return lambda _, request, context: handle(request, context)

        class Prediction(prediction_service_pb2_grpc.PredictionServiceServicer):
            Predict = answering(serving.predict_proto)
            GetModelMetadata = answering(serving.metadata)

        class Models(model_service_pb2_grpc.ModelServiceServicer):
            GetModelStatus = answering(lambda request: serving.status(*which(request)[:2]))

        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(32))
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Prediction(), self.server)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(Models(), self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port(f'127.0.0.1:{port}')}"
        self.server.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.server.stop(None)

    def metadata(self, request):
        assert list(request.metadata_field) == ["signature_def"]
        number, model = self.find("metadata", *which(request))
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.version.value = number
        response.metadata["signature_def"].Pack(model.signatures)
        return response

    def predict_proto(self, request):
        signature = request.model_spec.signature_name or "serving_default"
        inputs = {key: tf.make_ndarray(tensor) for key, tensor in request.inputs.items()}
        outputs = self.predict(*which(request), signature, inputs)
        response = predict_pb2.PredictResponse()
        for key, array in outputs.items():
            dtype = tf.string if array.dtype == object else array.dtype
            response.outputs[key].CopyFrom(tf.make_tensor_proto(array, dtype, array.shape))
        return response


def which(request):
    spec = request.model_spec
    return spec.name, spec.version.value if spec.HasField("version") else None, spec.version_label or None
