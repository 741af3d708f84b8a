"""Lists of texts: whether they are some, and which go together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


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
