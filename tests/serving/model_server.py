"""A stand-in for TensorFlow Serving, to try exports on where there is no server.

It loads a version as the server does, into a session by the tag `serve` with XLA disabled, sends itself the requests of
the warm-up file, and answers by REST and gRPC; concurrent requests are joined into batches. It is a separate process,
in which neither Keras nor this project can be imported.

    python model_server.py VERSION_FOLDER [THREADS]      prints its addresses, and serves until stdin ends

For each line of stdin it prints how many requests were in its largest batch.
"""

import contextlib
import ctypes
import json
import pathlib
import queue
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import numpy as np
import tensorflow as tf

_LARGEST_BATCH = 32


def is_absent(name):
    return name.partition(".")[0] in ("zoo", "zoo_training", "keras", "tf_keras", "tensorflow_text")


class Absent:
    """TensorFlow's own package imports Keras; what it has imported is taken away again."""

    def __init__(self):
        for name in list(filter(is_absent, sys.modules)):
            del sys.modules[name]
        sys.meta_path.insert(0, self)

    def find_spec(self, name, *_):
        if is_absent(name):
            raise ModuleNotFoundError(name)


def disable_xla():
    """As a server does it, by a function of TensorFlow's library."""
    library = pathlib.Path(tf.sysconfig.get_lib(), "libtensorflow_cc.so.2")
    ctypes.CDLL(str(library))["_ZN10tensorflow21DisableXlaCompilationEv"]()


class Session:
    """A version of a model in a session. `call(signature, **inputs)` gives its outputs as arrays."""

    def __init__(self, version, threads):
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=threads)
        self.session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        with self.session.graph.as_default():
            graph = tf.compat.v1.saved_model.load(self.session, ["serve"], str(version))
        self.signatures = {
            name: signature for name, signature in graph.signature_def.items() if not name.startswith("__saved_model")
        }

    def call(self, name, /, **inputs):
        signature = self.signatures[name]
        outputs = {key: tensor.name for key, tensor in signature.outputs.items()}
        return self.session.run(outputs, {signature.inputs[key].name: value for key, value in inputs.items()})

    def warm_up(self, version):
        """Sends the requests of the warm-up file; how many there are."""
        from tensorflow_serving.apis import prediction_log_pb2

        number = 0
        for record in tf.compat.v1.io.tf_record_iterator(str(version / "assets.extra" / "tf_serving_warmup_requests")):
            request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
            self.call(request.model_spec.signature_name, **{k: tf.make_ndarray(v) for k, v in request.inputs.items()})
            number += 1
        return number


class Batching:
    """Joins the requests that wait for the same signature, as the server's batching session does."""

    def __init__(self, call, threads):
        self.run, self.queues, self.batches = call, {}, []
        self.threads = threads

    def call(self, name, /, **inputs):
        task = {"inputs": inputs, "rows": {len(array) for array in inputs.values()}, "done": threading.Event()}
        if len(task["rows"]) != 1:
            raise ValueError("Batching session Run() input tensors must have equal 0th-dimension size")
        if name not in self.queues:
            self.queues[name] = queue.Queue()
            for _ in range(self.threads):
                threading.Thread(target=self.work, args=(name, self.queues[name]), daemon=True).start()
        self.queues[name].put(task)
        task["done"].wait()
        if "error" in task:
            raise task["error"]
        return task["outputs"]

    def work(self, name, waiting):
        left = None
        while True:
            tasks = [left or waiting.get()]
            left, rows = None, max(tasks[0]["rows"])
            with contextlib.suppress(queue.Empty):
                while rows < _LARGEST_BATCH:
                    left = waiting.get_nowait()
                    rows += max(left["rows"])
                    if rows <= _LARGEST_BATCH:
                        tasks.append(left)
                        left = None
            self.batches.append(len(tasks))
            try:
                joined = {key: joined_rows([task["inputs"][key] for task in tasks]) for key in tasks[0]["inputs"]}
                outputs = self.run(name, **joined)
                begin = 0
                for task in tasks:
                    end = begin + max(task["rows"])
                    task["outputs"] = {key: array[begin:end] for key, array in outputs.items()}
                    begin = end
            except Exception as error:
                for task in tasks:
                    task["error"] = error
            for task in tasks:
                task["done"].set()


def joined_rows(arrays):
    """Arrays one after another, each padded to the longest with its own first element."""
    longest = np.max([array.shape[1:] for array in arrays], axis=0) if arrays[0].ndim > 1 else ()

    def padded(array):
        if not array.size or array.shape[1:] == tuple(longest):
            return array
        extra = [(0, 0), *((0, int(most - size)) for size, most in zip(array.shape[1:], longest, strict=True))]
        return np.pad(array, extra, constant_values=array.flat[0])

    return np.concatenate([padded(array) for array in arrays])


def main():
    version, threads = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2
    Absent()
    disable_xla()
    from fake_models import Model
    from fake_serving import FakeGrpc, FakeRest, Refusal
    from tensorflow_serving.apis import get_model_metadata_pb2

    session = Session(version, threads)
    warmed = session.warm_up(version)
    batching = Batching(session.call, threads)

    def call(name, /, **inputs):
        try:
            return batching.call(name, **inputs)
        except (tf.errors.OpError, ValueError, TypeError, KeyError) as error:
            raise Refusal("INVALID_ARGUMENT", str(error)) from None

    signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=session.signatures)
    models = {version.parent.name: {int(version.name): Model(signatures, call)}}
    with FakeRest(models) as rest, FakeGrpc(models) as grpc:
        started = {"rest": rest.address, "grpc": grpc.address, "warmed": warmed}
        print(json.dumps(started), flush=True)
        for _ in sys.stdin:
            print(max(batching.batches, default=0), flush=True)
    print(json.dumps(list(filter(is_absent, sys.modules))), flush=True)


if __name__ == "__main__":
    main()
