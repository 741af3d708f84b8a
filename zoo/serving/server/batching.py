"""Joins requests that wait for the same signature, and runs them in a few threads. No TensorFlow."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import threading
import time
from collections.abc import Callable, Hashable
from typing import Protocol

import numpy as np

from zoo.serving.server.rest_json import Refusal, invalid

Arrays = dict[str, np.ndarray]
_WAITING = 64  # full batches that may wait, as in the exports' own batching_params.pbtxt
_LATE = "Timed out waiting for notification"  # the server's words for a run that takes too long


class Runs(Protocol):
    """A signature.

    Attributes:
        by_rows: whether its inputs and outputs have a row for each example, so that requests can be joined.
    """

    by_rows: bool

    def run(self, inputs: Arrays, seconds: float) -> Arrays:
        """The outputs; `Refusal` if the run fails or takes longer."""
        ...


@dataclasses.dataclass(eq=False)
class _Task:
    signature: Runs
    inputs: Arrays
    rows: int  # 0 for a request that runs alone
    arrived: float  # this and the next by the monotonic clock
    deadline: float
    answer: concurrent.futures.Future[Arrays]

    def key(self) -> Hashable:
        """Requests with the same key may be joined: the same sizes behind the rows."""
        if not self.rows:
            return id(self)
        return id(self.signature), tuple((name, array.shape[1:]) for name, array in sorted(self.inputs.items()))


class Batcher:
    """Threads that run requests, as many as are there and fit into a batch at once.

    What comes while all threads are at work makes up the next batch. The answer to a request does not depend on what
    is joined with it, as far as the model keeps its rows apart: if a batch fails, every request in it runs alone.

    Args:
        threads: how many batches run at once.
        max_rows: the most rows of a batch, and of a request.
        wait: how many seconds a request waits for others although a thread is free.
        on_batch: called with the number of rows of each batch and the seconds that its first request has waited.
    """

    def __init__(
        self,
        threads: int,
        max_rows: int,
        wait: float = 0.0,
        on_batch: Callable[[int, float], None] = lambda rows, waited: None,
    ):
        self.max_rows, self.wait, self.on_batch = max_rows, wait, on_batch
        self._queues: dict[Hashable, collections.deque[_Task]] = {}
        self._waiting_rows = 0
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [threading.Thread(target=self._work, name=f"batch-{n}", daemon=True) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, signature: Runs, inputs: Arrays, deadline: float) -> concurrent.futures.Future[Arrays]:
        """Queues a request.

        Args:
            signature: what to run.
            inputs: its inputs.
            deadline: when, by the monotonic clock, the answer is of no use any more.

        Returns:
            The future answer; cancelling it takes the request out of the queue, if it does not run yet.

        Raises:
            Refusal: the request has too many rows, or too many are waiting.
        """
        rows = _rows(inputs) if signature.by_rows else 0
        if rows > self.max_rows:
            raise invalid(f"Task size {rows} is larger than maximum input batch size {self.max_rows}")
        now = time.monotonic()
        task = _Task(signature, inputs, rows, now, deadline, concurrent.futures.Future())
        with self._changed:
            if self._closed:
                raise Refusal("UNAVAILABLE", "The server is stopping")
            if self._waiting_rows >= _WAITING * self.max_rows:
                raise Refusal("UNAVAILABLE", "The batch scheduling queue to which this task was submitted is full")
            self._queues.setdefault(task.key(), collections.deque()).append(task)
            self._waiting_rows += max(rows, 1)
            self._changed.notify()
        return task.answer

    def close(self) -> None:
        """Runs what still waits, and ends the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (batch := self._next()):
                    if self._closed:  # then nothing waits any more
                        return
                    self._changed.wait(self._until_ready())
            batch = [task for task in batch if task.answer.set_running_or_notify_cancel()]
            if batch:
                self.on_batch(sum(task.rows for task in batch), time.monotonic() - batch[0].arrived)
                self._run(batch)

    def _ready_at(self, queue: collections.deque[_Task]) -> float:
        full = sum(task.rows for task in queue) >= self.max_rows
        return queue[0].arrived + (0 if full or self._closed or not queue[0].rows else self.wait)

    def _until_ready(self) -> float | None:
        """Seconds until the first queue may run, None if all are empty."""
        ready = min(map(self._ready_at, self._queues.values()), default=None)
        return None if ready is None else max(ready - time.monotonic(), 0)

    def _next(self) -> list[_Task]:
        """Takes the tasks of the next batch out of the queue that has been ready for longest."""
        key = min(self._queues, key=lambda key: self._ready_at(self._queues[key]), default=None)
        if key is None or self._ready_at(self._queues[key]) > time.monotonic():
            return []
        queue, rows = self._queues[key], 0
        batch: list[_Task] = []
        while queue and (not batch or rows + queue[0].rows <= self.max_rows):
            batch.append(queue.popleft())
            rows += batch[-1].rows
        if queue:
            self._changed.notify()  # for another thread
        else:
            del self._queues[key]
        self._waiting_rows -= sum(max(task.rows, 1) for task in batch)
        return batch

    def _run(self, batch: list[_Task]) -> None:
        if len(batch) == 1 or not self._run_joined(batch):
            for task in batch:
                self._run_alone(task)

    def _run_joined(self, batch: list[_Task]) -> bool:
        """Answers all tasks by one run; False if it does not answer them all."""
        signature, rows = batch[0].signature, [task.rows for task in batch]
        seconds = max(task.deadline for task in batch) - time.monotonic()
        if seconds <= 0:
            return False
        try:
            joined = {name: np.concatenate([task.inputs[name] for task in batch]) for name in batch[0].inputs}
            outputs = signature.run(joined, seconds)
        except Exception:
            return False  # who is to blame shows when each runs alone
        if any(not array.ndim or len(array) != sum(rows) for array in outputs.values()):
            signature.by_rows = False  # whatever its shapes say
            return False
        ends = np.cumsum(rows)[:-1]
        parts = {name: np.split(array, ends) for name, array in outputs.items()}
        for place, task in enumerate(batch):
            task.answer.set_result({name: arrays[place] for name, arrays in parts.items()})
        return True

    @staticmethod
    def _run_alone(task: _Task) -> None:
        try:
            seconds = task.deadline - time.monotonic()
            if seconds <= 0:
                raise Refusal("DEADLINE_EXCEEDED", _LATE)
            task.answer.set_result(task.signature.run(task.inputs, seconds))
        except Exception as error:  # raised where the answer is awaited
            task.answer.set_exception(error)


def _rows(inputs: Arrays) -> int:
    """The rows of a request; 0 if its inputs have different ones, or none."""
    sizes = {array.shape[:1] for array in inputs.values()}
    return next(iter(sizes))[0] if len(sizes) == 1 and () not in sizes else 0
