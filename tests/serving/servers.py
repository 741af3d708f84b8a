"""Servers to try exports on: the stand-in, `zoo serve`, and TensorFlow Serving itself where there is one.

The last is looked for as `tensorflow_model_server` on the PATH, or named by TF_SERVING_BIN.
"""

import base64
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from zoo.serving.clients.messages import signatures_of
from zoo.serving.clients.rest import from_json

BINARY = os.environ.get("TF_SERVING_BIN") or shutil.which("tensorflow_model_server")
BATCHING = "max_batch_size { value: 32 } batch_timeout_micros { value: 0 } num_batch_threads { value: 2 }"


class Refused(Exception):
    """A request that the server has answered with an error, or not in time."""


class Client:
    """What asks a server for a model, by REST and gRPC."""

    answers_nothing = True  # whether a request of no rows has an answer
    warmed = process = None  # how many requests of the warm-up file it has answered, and its process id

    def __init__(self, model, rest, grpc_address):
        self.model, self.rest, self.grpc = model, rest, grpc_address
        self.channel = grpc.insecure_channel(grpc_address)
        self.stub = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)

    def call(self, signature, timeout=120, **inputs):
        """The outputs of a signature, for inputs with their types, by gRPC; `Refused` if there are none."""
        request = predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = self.model, signature
        for key, (values, dtype) in inputs.items():
            request.inputs[key].CopyFrom(tf.make_tensor_proto(values, dtype, [len(values)]))
        try:
            response = self.stub.Predict(request, timeout=timeout)
        except grpc.RpcError as error:
            raise Refused(str(error)) from None
        return {key: tf.make_ndarray(tensor).tolist() for key, tensor in response.outputs.items()}

    def by_rest(self, body):
        return self.request("POST", ":predict", body if isinstance(body, bytes) else json.dumps(body))

    def request(self, method, path="", body=None):
        with contextlib.closing(http.client.HTTPConnection(self.rest, timeout=120)) as connection:
            connection.request(method, f"/v1/models/{self.model}{path}", body)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def states(self):
        """Of each version its state and its error."""
        _, said = self.request("GET")
        found = said.get("model_version_status", ())
        return {int(each["version"]): (each["state"], each["status"]["error_message"]) for each in found}


@contextlib.contextmanager
def stand_in(version):
    """The stand-in, in a separate process."""
    program = pathlib.Path(__file__).with_name("model_server.py")
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with subprocess.Popen([sys.executable, "-I", str(program), str(version)], text=True, **pipes) as process:
        started = json.loads(process.stdout.readline())
        client = Client(version.parent.name, started["rest"], started["grpc"])
        client.warmed, client.process = started["warmed"], process.pid

        def largest_batch():
            """How many requests were in it."""
            process.stdin.write("\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        client.largest_batch = largest_batch
        yield client
        client.channel.close()
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        assert json.loads(said) == [], "modules that a server does not have"


class RestClient(Client):
    """What asks a server that speaks only REST."""

    def __init__(self, model, rest):
        self.model, self.rest, self.grpc = model, rest, None

    def call(self, signature, timeout=120, **inputs):
        """Likewise, by REST in columns."""
        columns = {}
        for key, (values, dtype) in inputs.items():
            is_text = dtype == tf.string and all(isinstance(value, str | bytes) for value in values)
            columns[key] = [as_base64(value) for value in values] if is_text else values
        status, said = self.by_rest({"signature_name": signature, "inputs": columns})
        if status != 200:
            raise Refused(said["error"])
        _, metadata = self.request("GET", "/metadata")
        specs = signatures_of(metadata["metadata"]["signature_def"])[signature].outputs
        outputs = said["outputs"] if len(specs) > 1 else dict.fromkeys(specs, said["outputs"])
        return {key: from_json(outputs[key], spec).tolist() for key, spec in specs.items()}

    def events(self, path, body):
        """Status and server-sent events."""
        with contextlib.closing(http.client.HTTPConnection(self.rest, timeout=120)) as connection:
            connection.request("POST", f"/v1/models/{self.model}{path}", json.dumps(body))
            response = connection.getresponse()
            said = response.read().decode().split("\n\n")[:-1]
            return response.status, [json.loads(event.removeprefix("data: ")) for event in said]


def as_base64(text):
    return {"b64": base64.b64encode(text.encode() if isinstance(text, str) else text).decode()}


@contextlib.contextmanager
def zoo_serve(version):
    """The model's folder with this version."""
    zoo = pathlib.Path(sys.executable).with_name("zoo")
    command = [zoo, "serve", version.parent, "--port", "0", "--poll", "0.2", "--timeout", "120"]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            client = RestClient(version.parent.name, process.stdout.readline().split()[2].removeprefix("http://"))
            log.seek(0)
            client.warmed = int(re.search(r"after (\d+) warm-up requests", log.read())[1])
            client.process = process.pid
            yield client
            assert process.poll() is None  # whatever it was sent
        finally:
            process.kill()


@contextlib.contextmanager
def real(version):
    """TensorFlow Serving itself."""
    with contextlib.ExitStack() as sockets:
        free = [sockets.enter_context(socket.socket()) for _ in "12"]
        for each in free:
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in free]
    with tempfile.NamedTemporaryFile("w") as batching, tempfile.NamedTemporaryFile() as log:
        batching.write(BATCHING)
        batching.flush()
        options = {
            "port": ports[0],
            "rest_api_port": ports[1],
            "model_name": version.parent.name,
            "model_base_path": version.parent,
            "enable_batching": "true",
            "batching_parameters_file": batching.name,
            "tensorflow_intra_op_parallelism": 1,
            "file_system_poll_wait_seconds": 1,
            "max_num_load_retries": 0,
            "grpc_max_threads": 64,
        }
        command = [BINARY, *(f"--{name}={value}" for name, value in options.items())]
        talkative = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"}
        with subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=talkative) as process:
            client = Client(version.parent.name, f"127.0.0.1:{ports[1]}", f"127.0.0.1:{ports[0]}")
            try:
                in_time(lambda: client.states()[int(version.name)][0] == "AVAILABLE")
                client.warmed = int(re.search(r"warmup records read: (\d+)", pathlib.Path(log.name).read_text())[1])
                client.process = process.pid
                client.answers_nothing = False  # a batch is made up when there is a row, and there is none
                yield client
                assert process.poll() is None  # whatever it was sent
            finally:
                client.channel.close()
                process.kill()


def in_time(holds):
    end = time.monotonic() + 300  # a loaded machine needs more than a minute
    while True:
        with contextlib.suppress(OSError, KeyError, http.client.HTTPException):
            if holds():
                return
        assert time.monotonic() < end
        time.sleep(0.1)


SERVERS = {"stand-in": stand_in, "zoo serve": zoo_serve, "tensorflow_model_server": real}
