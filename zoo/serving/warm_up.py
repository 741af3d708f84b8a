"""What a server finds beside a SavedModel: requests to try it with before it answers, and how to batch."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterable, Iterator

import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from zoo.serving.layout import WARM_UP_FILE
from zoo.tasks.text_generator import TextGenerator
from zoo.tasks.translator import Translator

_BATCHING_FILE = "batching_params.pbtxt"
_ROWS = (1, 4, 16)
_BATCHING = """\
# Read by a server with --enable_batching and --enable_per_model_batching_parameters.
# A request never waits for others: what comes while all threads are at work makes up the next batch.
max_batch_size { value: 32 }
batch_timeout_micros { value: 0 }
max_enqueued_batches { value: 64 }
"""


def write_warm_up(folder: pathlib.Path, model: Translator | TextGenerator, texts: Iterable[str] | None = None) -> None:
    """Writes the requests into a version's folder.

    They are real ones, to each signature and of several batch sizes: a server that has answered them has set up
    all that it sets up at a first request.

    Args:
        folder: the version's folder.
        model: what is exported.
        texts: what the requests are of, the first of them; texts of random tokens if None or empty.
    """
    texts = list(itertools.islice(texts or (), max(_ROWS))) or model.example_texts()
    path = folder / WARM_UP_FILE
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in _records(model, texts):
            writer.write(record.SerializeToString(deterministic=True))


def write_batching(folder: pathlib.Path) -> None:
    """Writes into a version's folder how a server may batch its requests."""
    (folder / _BATCHING_FILE).write_text(_BATCHING, encoding="utf-8")


def _records(model, texts: list[str]) -> Iterator[prediction_log_pb2.PredictionLog]:
    for rows in _ROWS:
        for name, inputs in model.example_requests([texts[row % len(texts)] for row in range(rows)]).items():
            request = predict_pb2.PredictRequest()
            request.model_spec.signature_name = name
            for key, value in inputs.items():
                request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
            yield prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))
