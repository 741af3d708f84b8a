"""How large an export is, and how long a server takes until it has answered its first request."""

from __future__ import annotations

import dataclasses
import pathlib
import time

import tensorflow as tf

from zoo.local_workers import cores
from zoo.serving.layout import SAVED_MODEL_FILE
from zoo.tasks.task import SavedTask

_LATER = 5  # requests


@dataclasses.dataclass(frozen=True)
class StartUp:
    """What a version asks of a server.

    Attributes:
        size: bytes of the files that a server loads and of the warm-up requests.
        load_seconds: until it is loaded.
        first_seconds: how long the first request takes, of one text, during which much is set up: to `generate` for at
            most 16 tokens if the model has that signature, else to `serving_default`. A server that warms up makes it
            before it takes others.
        later_seconds: how long the same takes later, the median.
        cores: that the process may use.
    """

    size: int
    load_seconds: float
    first_seconds: float
    later_seconds: float
    cores: int


def measure_start_up(version: str | pathlib.Path, model: SavedTask) -> StartUp:
    """Loads a version as a server does, into a graph-mode session, and sends it a request.

    Args:
        version: the folder that the model was exported to.
        model: what was exported.

    Returns:
        What was measured, with one thread an operation.
    """
    version = pathlib.Path(version)
    requests = model.example_requests(model.example_texts()[:1])
    asked = "generate" if "generate" in requests else "serving_default"
    request = requests[asked]
    feed = {name: value.numpy() for name, value in request.items()}
    v1 = tf.compat.v1
    config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=cores())
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel("ERROR")  # the loader is deprecated, and what a server calls
    try:
        with v1.Session(graph=tf.Graph(), config=config) as session:
            load_seconds, graph = _timed(lambda: v1.saved_model.load(session, ["serve"], str(version)))
            signature = graph.signature_def[asked]
            outputs = {name: tensor.name for name, tensor in signature.outputs.items()}
            inputs = {signature.inputs[name].name: value for name, value in feed.items()}
            first, *later = (_timed(lambda: session.run(outputs, inputs))[0] for _ in range(1 + _LATER))
    finally:
        logger.setLevel(level)
    parts = (version / SAVED_MODEL_FILE, *(version / part for part in ("variables", "assets", "assets.extra")))
    files = (file for part in parts for file in (part, *part.rglob("*")) if file.is_file())
    size = sum(file.stat().st_size for file in files)
    return StartUp(size, load_seconds, first, sorted(later)[_LATER // 2], cores())


def _timed(function):
    begin = time.perf_counter()
    result = function()
    return time.perf_counter() - begin, result
