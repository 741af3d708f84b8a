"""Lists of texts: whether they are some, which go together, and what comes of them in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

Result = TypeVar("Result")


def check_texts(texts: Sequence[str]) -> list[str]:
    """The texts as a list.

    Raises:
        ValueError: they are not a list of strings.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise ValueError(f"`texts` must be a list of strings; for one text, give a list of one. Received: {texts!r}")
    texts = list(texts)
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"`texts` must hold strings. Received: {text!r} at position {position}")
    return texts


def rows_of_batches(texts: list[str], batch_size: int) -> Iterator[list[int]]:
    """The places of texts of similar length, which saves padding, a batch at a time.

    Raises:
        ValueError: a batch size below 1.
    """
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be at least 1. Received: batch_size={batch_size}")
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    for begin in range(0, len(texts), batch_size):
        yield order[begin : begin + batch_size]


def in_batches(texts: list[str], batch_size: int, results_of: Callable[[list[int]], Iterable[Result]]) -> list[Result]:
    """What a function makes of each text, in their order, from the places of a batch at a time.

    Raises:
        ValueError: a batch size below 1.
    """
    found: dict[int, Result] = {}
    for rows in rows_of_batches(texts, batch_size):
        found.update(zip(rows, results_of(rows), strict=True))
    return [found[row] for row in range(len(texts))]
