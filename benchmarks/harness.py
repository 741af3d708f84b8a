"""Interleaved timing: contestants take turns, each in its own process, so that all meet the same machine.

A contestant is a function `build() -> step`. It sets up what it needs and returns the call to time. Separate processes
do not share thread pools or memory. Short alternating turns spread the machine's noise evenly. What counts is the ratio
of medians and its spread over the rounds, not an absolute time.

To import TensorFlow, Keras or PyTorch takes longer than many a race. So a process stays for the next race of the same
script, for the contestant with the same name and function.
"""

from __future__ import annotations

import dataclasses
import gc
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

from zoo_training.start_tensorflow import use_onednn, without_notes

from zoo.local_workers import cores

TURN = 0.3  # seconds; of long steps a few are enough, since what disturbs a machine lasts longer than they do


@dataclasses.dataclass(frozen=True)
class Contestant:
    """What takes part: a name, how to set it up, and the arguments of that."""

    name: str  # with all that holds for a process as a whole, such as its number of threads
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
        steps: steps a turn, at most; no step begins later than `TURN` seconds. The turn counts with their median.
        warm_up: steps before the first turn, not counted; at most, too, but at least two if so many are asked for.
    """
    runners = [_runner_of(contestant) for contestant in contestants]
    try:
        for number, (runner, contestant) in enumerate(zip(runners, contestants, strict=True)):
            runner.set_up(contestant, warm_up)  # nothing is timed yet, so each core may set one up
            if number >= cores() - 1:
                runners[number - cores() + 1].wait()
        for runner in runners[-(cores() - 1) :] if cores() > 1 else ():
            runner.wait()
        times: list[list[float]] = [[] for _ in runners]
        for number in range(rounds):
            # Every other round in reverse, so that no contestant always runs after the same one.
            order = list(enumerate(runners))
            for index, runner in order if number % 2 == 0 else reversed(order):
                times[index].append(statistics.median(runner.turn(steps)))
    except BaseException:
        for runner in runners:
            runner.stop()
        raise
    for runner in runners:
        runner.forget()
        _free.append(runner)
    return [Timing(contestant.name, each) for contestant, each in zip(contestants, times, strict=True)]


_free: list[_Runner] = []  # of earlier races; they end with the script


def _runner_of(contestant: Contestant) -> _Runner:
    """A process that has run this contestant in an earlier race, or a new one."""
    for runner in _free:
        if runner.is_for(contestant):
            _free.remove(runner)
            return runner
    return _Runner(contestant)


class _Runner:
    """One contestant's process, and the pipe it takes its turns through."""

    def __init__(self, contestant: Contestant):
        context = multiprocessing.get_context("spawn")
        self.name, self._build = contestant.name, contestant.build
        self.pipe, its_end = context.Pipe()
        self.process = context.Process(target=_serve, args=(its_end,), daemon=True)
        self.process.start()
        its_end.close()  # so that this side notices when the process ends
        self.ready = False

    def is_for(self, contestant: Contestant) -> bool:
        return (self.name, self._build) == (contestant.name, contestant.build)

    def set_up(self, contestant: Contestant, warm_up: int) -> None:
        """Begins to; see `wait`."""
        self.ready = False
        self.pipe.send((contestant, warm_up))

    def wait(self) -> None:
        """Until it is set up and warm."""
        if not self.ready:
            self.ready = self._receive() == "ready"

    def turn(self, steps: int) -> list[float]:
        self.pipe.send(steps)
        return self._receive()

    def forget(self) -> None:
        """Frees what the contestant holds."""
        self.pipe.send(None)
        self._receive()

    def stop(self) -> None:
        self.process.kill()

    def _receive(self):
        try:
            return self.pipe.recv()
        except EOFError:
            self.process.join()
            raise RuntimeError(f"{self.name} ended with exit code {self.process.exitcode}") from None


def _serve(pipe: Connection) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    use_onednn()  # as our commands do, for all that run on TensorFlow
    while True:
        contestant, warm_up = pipe.recv()
        with without_notes():
            step = contestant.build(*contestant.arguments)
            _timed(step, min(1, warm_up))  # which traces and compiles
            _timed(step, warm_up - 1)
        pipe.send("ready")
        while (steps := pipe.recv()) is not None:
            pipe.send(_timed(step, steps))
        del step
        if "keras" in sys.modules:
            sys.modules["keras"].utils.clear_session()
        gc.collect()
        pipe.send("free")


def _timed(step: Callable[[], None], most: int) -> list[float]:
    """The seconds of each of so many steps, or of those that begin within a turn."""
    times: list[float] = []
    while len(times) < most and sum(times) < TURN:
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return times


def threads(number: int) -> str:
    """As part of a contestant's name."""
    return f"{number} thread{'s' if number > 1 else ''}"
