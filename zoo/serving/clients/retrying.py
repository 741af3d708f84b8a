"""Asking again, and no longer than somebody would wait."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from zoo.serving.clients.errors import ServingError

_RETRIED = ("UNAVAILABLE", "RESOURCE_EXHAUSTED")  # not even begun by the server, or lost with the connection
_FIRST_PAUSE = 0.1  # seconds


class Deadline:
    """The end of the time that a call may take.

    Args:
        seconds: from now on.
    """

    def __init__(self, seconds: float):
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """The seconds that are left; never so few that they would mean none to wait for, or forever."""
        return max(self._end - time.monotonic(), 0.001)


def with_retries(ask: Callable[[float], Any], deadline: Deadline, retries: int) -> Any:
    """Asks until there is an answer, an error that asking again does not help, or no more tries or time.

    Args:
        ask: takes the seconds that it may take.
        deadline: of all tries and of the pauses between them, which double each time.
        retries: the most further tries after the first.

    Raises:
        ServingError: the last of them.
    """
    pause = _FIRST_PAUSE
    while True:
        try:
            return ask(deadline.left())
        except ServingError as error:
            wait = pause * random.uniform(0.5, 1.5)  # so that many clients do not come back at one moment
            if error.code not in _RETRIED or retries <= 0 or wait >= deadline.left():
                raise
        time.sleep(wait)
        pause, retries = 2 * pause, retries - 1
