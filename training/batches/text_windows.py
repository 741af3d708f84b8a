"""From running text to batches: the ids of a split in a row, and windows of them, in an order set by a seed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.text import END, PADDING, START, Tokenizer, compiled_encoder

from .. import ragged
from ..corpora.texts import Document
from ..ragged import Entry
from .buckets import numbered_batches

_AT_ONCE = 1 << 21  # characters that are tokenised in one call; a longer piece has a call of its own
STARTED = 8  # one window in eight begins with the start token instead of its first token


def smallest_dtype(tokenizer: Tokenizer) -> Any:
    """The smallest of uint8, uint16 and int32 that holds all ids of a tokenizer."""
    return next(each for each in (np.uint8, np.uint16, np.int32) if tokenizer.size - 1 <= np.iinfo(each).max)


def encode(
    documents: Iterable[Document], tokenizer: Tokenizer, entry: Entry | None = None, starts: bool = True
) -> np.ndarray:
    """The ids of documents one after another, each between a start and an end token.

    Texts are tokenised some pieces at a time, so that a corpus need not fit into memory.

    Args:
        documents: the documents.
        tokenizer: their tokenizer.
        entry: where the ids go if the texts are more than memory should hold, as the array "ids"; None for memory.
        starts: whether start tokens stand before documents; if not, only the end token stands between them.

    Returns:
        Ids `(N,)` in the smallest of uint8, uint16 and int32 that holds them.
    """
    dtype = smallest_dtype(tokenizer)
    parts: list[np.ndarray] = []
    characters, file = 0, None
    encoder = compiled_encoder(tokenizer)
    held: list[str | int] = []  # texts, and the tokens between them
    size = 0

    def flush() -> None:
        nonlocal characters, file
        texts = [each for each in held if isinstance(each, str)]
        ids, lengths = encoder(texts)
        rows = iter(np.split(ids, np.cumsum(lengths)[:-1]))
        parts.extend(np.array([each] if isinstance(each, int) else next(rows), dtype) for each in held)
        held.clear()
        characters += sum(map(len, texts))
        if entry is not None and characters > ragged.IN_MEMORY:
            file = file or entry.file("ids", dtype)
            file.write(np.concatenate(parts))
            parts.clear()

    for document in documents:
        if starts:
            held.append(START)
        for piece in document:
            # One call for many texts takes hardly longer than for one.
            if size + len(piece) > _AT_ONCE:
                flush()
                size = 0
            held.append(piece)
            size += len(piece)
        held.append(END)
    flush()
    if file is not None and entry is not None:
        file.close()
        return entry.array("ids")
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


class Windows:
    """Batches of windows of a text: `length` tokens, and as their labels the tokens that follow them.

    In an epoch each token is a label at most once. Left out are the tokens that fill no batch, and up to one window at
    the borders. Each epoch shifts the borders of the windows and changes their order. The content of a batch follows
    from (seed, epoch, its number) and nothing else.

    One window in eight begins with the start token in place of its first token. So the model learns to begin without
    the text before, as it must for a prompt.

    Args:
        ids: the text, int `(N,)`.
        length: tokens in a window, T.
        batch_size: windows in a batch, B.
        seed: the seed of the order.
        starts: whether windows may begin with the start token; no for a model that has been trained without it.

    Raises:
        ValueError: the text is shorter than a batch of windows.
    """

    def __init__(self, ids: np.ndarray, length: int, batch_size: int, seed: int = 0, starts: bool = True):
        self.ids, self.length, self.batch_size, self.seed, self.starts = ids, length, batch_size, seed, starts
        # One window less than there is room for, because the borders are shifted by up to a window.
        self._windows = (len(ids) - 1) // length - 1
        if self._windows < batch_size:
            advice = "lower batch_size"
            if self._windows < 1:
                advice = "shorten the windows, by model.context_length or training.window"
            raise ValueError(
                f"a text of {len(ids):,} tokens is too short for batches of {batch_size} windows of {length} tokens; "
                f"it takes at least {(batch_size + 1) * length + 1:,}; {advice}, or give more text"
            )

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        return self._windows // self.batch_size

    @property
    def tokens(self) -> int:
        """Tokens of an epoch."""
        return self.steps * self.batch_size * self.length

    def plan(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Where the windows of an epoch begin, int `(steps, B)`, and which begin with the start token, bool."""
        random = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        shift = random.integers(self.length)
        order = random.permutation(self._windows)[: self.steps * self.batch_size]
        started = (random.integers(STARTED, size=order.size) == 0) & self.starts
        shape = self.steps, self.batch_size
        return (shift + self.length * order).reshape(shape), started.reshape(shape)

    def training(self, first_step: int = 0) -> tf.data.Dataset:
        """An endless stream of epochs for `model.fit`: (tokens, labels, weights), each `(B, T)`.

        Args:
            first_step: how many batches were used before; the stream goes on after them.
        """
        plan = functools.lru_cache(2)(self.plan)  # two, as batches are made ahead, also those of the next epoch

        def batch(step: int) -> np.ndarray:
            epoch, number = divmod(step, self.steps)
            begins, started = (array[number] for array in plan(epoch))
            windows = self.ids[begins[:, None] + np.arange(self.length + 1)].astype("int32")  # (B, T + 1)
            windows[started, 0] = START
            return windows

        return _dataset(batch, (self.batch_size, self.length + 1), first_step, None)


def windows_once(ids: np.ndarray, length: int, batch_size: int, least: int = 1) -> tf.data.Dataset:
    """Every token of a text as a label once, in batches like those of `Windows.training`; the last is filled up.

    A token is predicted from the tokens before it in its window, on average half a window.

    Args:
        ids: the text, int `(N,)`.
        length: tokens in a window.
        batch_size: windows in a batch, or fewer if the text has fewer.
        least: the fewest windows in a batch, so that each of several workers has some; they may be empty.
    """
    number = -(-(len(ids) - 1) // length)
    size = max(least, min(batch_size, number))

    def batch(step: int) -> np.ndarray:
        windows = np.zeros((size, length + 1), "int32")
        begin = step * size
        for row, window in enumerate(range(begin, min(begin + size, number))):
            part = ids[window * length : (window + 1) * length + 1]
            windows[row, : len(part)] = part
        return windows

    return _dataset(batch, (size, length + 1), 0, -(-number // size))


def _dataset(
    batch: Callable[[int], np.ndarray], shape: tuple[int, int], first: int, number: int | None
) -> tf.data.Dataset:
    spec = tf.TensorSpec(shape, tf.int32)
    return numbered_batches(lambda step: (batch(step),), [spec], lambda _, windows: _split(windows), first, number)


def _split(windows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Tokens, labels and the labels' weights, which are 0 for padding and start tokens."""
    labels = windows[:, 1:]
    weights = tf.cast((labels != PADDING) & (labels != START), tf.float32)
    return windows[:, :-1], labels, weights
