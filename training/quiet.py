"""Keeps TensorFlow's start-up notes from the terminal.

They come from C++ before its log level is heeded (the level in TF_CPP_MIN_LOG_LEVEL counts later on), so the only
way is to hold back what the process writes to stderr while TensorFlow starts, and then to let through what is not such
a note.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator

_NOTE = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog"
    rb"|[IW]\d{4} .*\.cc:\d+\]"
    rb"|E\d{4} .*cuda\w*\.cc:\d+\]"  # no GPU is no error
    rb"|To enable the following instructions:"
)


def import_tensorflow():
    """Imports TensorFlow and starts its devices, quietly; what is not a start-up note still shows."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if "tensorflow" in sys.modules:
        return sys.modules["tensorflow"]
    with without_notes():
        import tensorflow as tf

        tf.config.list_logical_devices()
    return tf


@contextlib.contextmanager
def without_notes() -> Iterator[None]:
    """Holds back what is written to stderr, and at the end lets through what is no start-up note."""
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
