"""A model's answers to many texts: batches of similar lengths, computed on several cores at once."""

from __future__ import annotations

import collections
import concurrent.futures
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from zoo.tasks.protocol import rows_of_batches

Answer = TypeVar("Answer")
More = Callable[[float], bool]  # whether another line, or the end, comes within so many seconds
_GATHERED = 0.05  # seconds that a line waits for others


def at_once(seconds: float) -> bool:
    """For lines that are all there; see `More`."""
    return True


def answers(
    call: Callable[[list], Iterable[Answer]],
    given: Iterator,
    size: int,
    batch_size: int,
    threads: int = 1,
    more: More = at_once,
) -> Iterator[list[Answer]]:
    """Calls a model with batches of texts of similar lengths, in several threads.

    Args:
        call: gives the answers to a list of texts.
        given: texts, or pairs of texts.
        size: among how many texts the lengths are compared.
        batch_size: the most texts of a call.
        threads: how many calls run at once.
        more: whether more texts come within so many seconds; if not, all that have come are answered.

    Yields:
        The answers to `size` texts, or fewer, in their order.
    """
    waiting: collections.deque[list[tuple[list[int], concurrent.futures.Future[Iterable[Answer]]]]] = (
        collections.deque()
    )

    def oldest() -> list[Answer]:
        batches = waiting.popleft()
        found = dict(pair for rows, future in batches for pair in zip(rows, future.result(), strict=True))
        return [found[row] for row in range(len(found))]

    pool = concurrent.futures.ThreadPoolExecutor(threads)
    try:
        for chunk in chunks(given, size, more):
            most = min(batch_size, -(-len(chunk) // threads))  # few texts are shared out, too
            lengths = [text if isinstance(text, str) else "".join(text) for text in chunk]
            batches = list(rows_of_batches(lengths, most))
            waiting.append([(rows, pool.submit(call, [chunk[row] for row in rows])) for rows in batches])
            while len(waiting) > more(0):  # while these are printed, the threads have the next ones, if there are some
                yield oldest()
        while waiting:
            yield oldest()
    finally:
        pool.shutdown(cancel_futures=True)


def chunks(lines: Iterator[str], size: int, more: More = at_once) -> Iterator[list[str]]:
    """Gives lists of `size` lines; one is shorter if no more lines come for now, and at the end."""
    chunk: list[str] = []
    first = 0.0
    for line in lines:
        if not chunk:
            first = time.monotonic()
        chunk.append(line)
        if len(chunk) == size or not more(max(first + _GATHERED - time.monotonic(), 0)):
            yield chunk
            chunk = []
    if chunk:
        yield chunk
