"""Interleaved timing: contestants take turns, each in its own process, so that all meet the same machine.

A contestant is a function `build() -> step`. It sets up what it needs and returns the call to time. Separate processes
do not share thread pools or memory. Short alternating turns spread the machine's noise evenly. What counts is the ratio
of medians and its spread over the rounds, not an absolute time.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

from zoo_training.start_tensorflow import use_onednn, without_notes

Build = Callable[[], Callable[[], None]]


@dataclasses.dataclass(frozen=True)
class Contestant:
    """What takes part: a name, how to set it up, and the arguments of that."""

    name: str
    build: Callable[..., Callable[[], None]]
    arguments: tuple = ()


@dataclasses.dataclass(frozen=True)
class Timing:
    """The median time of a step in each round, in seconds."""

    name: str
    rounds: list[float]

    @property
    def median(self) -> float:
        """The median over the rounds, in seconds."""
        return statistics.median(self.rounds)


def race(contestants: Sequence[Contestant], rounds: int = 12, steps: int = 5, warm_up: int = 3) -> list[Timing]:
    """Times the contestants' steps in turns.

    Args:
        contestants: the first is ours by convention.
        rounds: how often each has a turn.
        steps: steps a turn; the turn counts with their median.
        warm_up: steps before the first turn, not counted.
    """
    context = multiprocessing.get_context("spawn")
    runners = [_Runner(context, contestant, warm_up) for contestant in contestants]
    cores = os.cpu_count() or 1
    try:
        for number, runner in enumerate(runners):  # nothing is timed yet, so each core may set one up
            runner.start()
            if number >= cores - 1:
                runners[number - cores + 1].wait()
        for runner in runners[-(cores - 1) :] if cores > 1 else ():
            runner.wait()
        times: list[list[float]] = [[] for _ in runners]
        for number in range(rounds):
            # Every other round in reverse, so that no contestant always runs after the same one.
            order = list(enumerate(runners))
            for index, runner in order if number % 2 == 0 else reversed(order):
                times[index].append(statistics.median(runner.turn(steps)))
    finally:
        for runner in runners:
            runner.stop()
    return [Timing(contestant.name, each) for contestant, each in zip(contestants, times, strict=True)]


class _Runner:
    """One contestant's process, and the pipe it takes its turns through."""

    def __init__(self, context, contestant: Contestant, warm_up: int):
        self.name = contestant.name
        self.pipe, self._its_end = context.Pipe()
        self.process = context.Process(target=_serve, args=(self._its_end, contestant, warm_up), daemon=True)
        self.ready = False

    def start(self) -> None:
        self.process.start()
        self._its_end.close()  # so that the other side notices when the process ends

    def wait(self) -> None:
        """Until it is set up and warm."""
        if not self.ready:
            self.ready = self._receive() == "ready"

    def turn(self, steps: int) -> list[float]:
        self.pipe.send(steps)
        return self._receive()

    def stop(self) -> None:
        if self.process.is_alive():
            self.pipe.send(None)
            self.process.join(10)
        if self.process.is_alive():
            self.process.kill()

    def _receive(self):
        try:
            return self.pipe.recv()
        except EOFError:
            self.process.join()
            raise RuntimeError(f"{self.name} ended with exit code {self.process.exitcode}") from None


def _serve(pipe: Connection, contestant: Contestant, warm_up: int) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    use_onednn()  # as our commands do, for all that run on TensorFlow
    with without_notes():
        step = contestant.build(*contestant.arguments)
        for _ in range(warm_up):
            step()
    pipe.send("ready")
    while (steps := pipe.recv()) is not None:
        times = []
        for _ in range(steps):
            begin = time.perf_counter()
            step()
            times.append(time.perf_counter() - begin)
        pipe.send(times)


def threads(number: int) -> str:
    """As part of a contestant's name."""
    return f"{number} thread{'s' if number > 1 else ''}"
