"""The command line `zoo`. Heavy imports stand inside the commands, so that help is instant."""

import contextlib
import os
import sys

from . import train, listing, translate, generate, encoders, batch, check, serve, serve_client  # isort: skip  the order of the help
from .shared import app

__all__ = [
    "app",
    "batch",
    "check",
    "encoders",
    "generate",
    "listing",
    "main",
    "serve",
    "serve_client",
    "train",
    "translate",
]

_STOPPED = 130  # the exit code after Ctrl-C


def main() -> None:
    """The entry point of the command `zoo`."""
    try:
        app()
    except SystemExit as end:
        if end.code == _STOPPED and "tensorflow" in sys.modules:
            # Python's own end would wait for the destructor of TensorFlow's data iterators, which joins a thread that
            # may sleep for half a minute.
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, or nobody reads it
                    stream.flush()
            os._exit(_STOPPED)
        raise
