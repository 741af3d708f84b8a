"""Starts TensorFlow as the commands use it: with oneDNN's operations, without notes in the terminal, and sooner.

TensorFlow's wheel has products and softmax of oneDNN. By itself it uses them only on processors that have instructions
for neural networks, such as AVX-512 VNNI. With AVX2 alone, a training step without them takes 1.1 to 1.4 times as
long, and an answer 1.0 to 1.05 times (`benchmarks/onednn.py`).

C++ code writes the notes before TensorFlow reads its log level from TF_CPP_MIN_LOG_LEVEL. So the only way is to hold
back what the process writes to stderr while TensorFlow starts, and to print it afterwards without these notes.
"""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator

_NOTE = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog"
    rb"|[IW]\d{4} .*\.cc:\d+\]"
    rb"|E\d{4} .*cuda\w*\.cc:\d+\]"  # no GPU is no error
    rb"|To enable the following instructions:"
)


def import_tensorflow(operation_threads: int | None = None):
    """Imports TensorFlow and starts its devices, with oneDNN and without the start-up notes; all else is printed.

    Args:
        operation_threads: how many threads an operation may use, 0 for one a core. The first device that starts decides
            this for the whole process, whatever a session asks for later.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if "tensorflow" in sys.modules:
        return sys.modules["tensorflow"]
    use_onednn()
    # TensorFlow 2.20 was made with protobuf 5, and protobuf 6 says so.
    warnings.filterwarnings("ignore", "Protobuf gencode version")
    with without_notes():
        with sooner():
            import tensorflow as tf

        if operation_threads is not None:
            tf.config.threading.set_intra_op_parallelism_threads(operation_threads)
        if not os.environ.get("TF_CONFIG"):  # several workers connect before the devices start
            tf.config.list_logical_devices()
    return tf


def use_onednn() -> None:
    """Before TensorFlow's import: makes it use oneDNN's operations, unless `TF_ENABLE_ONEDNN_OPTS` is set already."""
    if platform.machine() in ("x86_64", "AMD64"):  # on others there is no measurement
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


@contextlib.contextmanager
def sooner() -> Iterator[None]:
    """An import of TensorFlow in here takes about two thirds of the time.

    It makes 450,000 objects that the garbage collector would go through again and again, though none is garbage: the
    collector rests, and leaves them out afterwards. And it brings Keras, which imports matplotlib where that is
    installed, a fifth of the time, for plots that no command draws: in here it does not find it.
    """
    hidden = "matplotlib" not in sys.modules
    if hidden:
        sys.modules["matplotlib"] = None  # type: ignore[assignment] # an import of it raises ImportError
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if hidden:
            del sys.modules["matplotlib"]
        gc.freeze()
        if collects:
            gc.enable()


@contextlib.contextmanager
def without_notes() -> Iterator[None]:
    """Holds back what is written to stderr, and at the end prints it without the start-up notes."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held_back:
        stderr = os.dup(2)
        os.dup2(held_back.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            held_back.seek(0)
            for line in held_back:
                if not _NOTE.match(line):
                    os.write(2, line)
