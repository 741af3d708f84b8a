"""Ctrl-C while TensorFlow makes a graph."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def interrupted_between_graphs() -> Iterator[None]:
    """Lets a Ctrl-C wait until TensorFlow has made the graph that it is making; a second Ctrl-C does not wait.

    There, a `KeyboardInterrupt` sometimes comes out as an error of the model, or crashes the process.
    """
    import tensorflow as tf

    from ..progress import say

    presses, looks, timer, main_thread = 0, False, threading.Timer(0, lambda: None), threading.get_ident()

    def look_again() -> None:
        nonlocal looks
        looks = True
        # To the main thread, which runs `heard`; a signal to this one would not wake it if it waits.
        signal.pthread_kill(main_thread, signal.SIGINT)

    def heard(number: int, frame: FrameType | None) -> None:
        nonlocal presses, looks, timer
        pressed, looks = not looks, False
        presses += pressed
        if presses > 1 or not tf.inside_function():
            raise KeyboardInterrupt
        if pressed:
            say("stopping when the graph is made; a second Ctrl-C stops at once")
        timer = threading.Timer(0.1, look_again)
        timer.start()

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # the signal is ignored, or a caller's
        yield
        return
    signal.signal(signal.SIGINT, heard)
    try:
        yield
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
