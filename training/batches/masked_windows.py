"""From running text to batches with hidden tokens, which a masked language model predicts: Devlin et al. 2019."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.text import END, PADDING, START, Tokenizer
from zoo.text.tokenizer import FIRST

from .buckets import numbered_batches
from .text_windows import Windows

_KEPT, _REPLACED = 0.1, 0.1  # shares of the hidden tokens; all others become the mask


class MaskedWindows:
    """Batches of windows of a text, each between a start and an end, with hidden tokens: (inputs, labels, weights).

    Of the tokens of a window, the share `masked` is hidden. Most hidden tokens are replaced by the mask. One in ten is
    replaced by a random token. One in ten stays unchanged. So the model cannot tell which visible tokens are the
    original ones. The hidden tokens are drawn again in each epoch, and follow from (seed, epoch, number of the batch).

    Axes: B batch, T length of a window, M hidden tokens of a window.

    Args:
        ids: the text, int `(N,)`; start and end tokens in it are removed, so a window may cross a border of documents.
        tokenizer: its tokenizer, for the ids of the mask and of other tokens.
        length: tokens in a window with start and end, T.
        batch_size: windows in a batch, B.
        masked: share of the tokens to hide.
        segments: whether the model has an input `segments`, which is 0 for all tokens.
        seed: the seed of the order and of the hidden tokens.

    Raises:
        ValueError: the text is shorter than a batch of windows.
    """

    def __init__(
        self,
        ids: np.ndarray,
        tokenizer: Tokenizer,
        length: int,
        batch_size: int,
        masked: float,
        segments: bool = False,
        seed: int = 0,
    ):
        self._windows = Windows(ids[(ids != START) & (ids != END)], length - 2, batch_size, seed)
        self.tokenizer, self.length, self.batch_size, self.seed = tokenizer, length, batch_size, seed
        self._segments = segments
        self.hidden = max(1, round(masked * (length - 2)))  # M

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        return self._windows.steps

    @property
    def tokens(self) -> int:
        """Tokens of an epoch."""
        return self.steps * self.batch_size * self.length

    def training(self, first_step: int = 0) -> tf.data.Dataset:
        """An endless stream of epochs for `model.fit`.

        Args:
            first_step: how many batches were used before; the stream goes on after them.
        """
        plan = functools.lru_cache(2)(self._windows.plan)

        def batch(step: int) -> Any:
            epoch, number = divmod(step, self.steps)
            return self._batch(plan(epoch)[0][number], [self.seed, epoch, number])

        return self._dataset(batch, first_step, None)

    def once(self) -> tf.data.Dataset:
        """The windows of the text in order, with the same hidden tokens each time."""
        begins = np.arange(self.steps * self.batch_size).reshape(self.steps, self.batch_size) * (self.length - 2)

        return self._dataset(lambda step: self._batch(begins[step], [self.seed, 2**32, step]), 0, self.steps)

    def _batch(self, begins: np.ndarray, key: list[int]) -> Any:
        """Windows that begin at some tokens, with tokens hidden: ids `(B, T)`, places, labels, weights `(B, M)`."""
        random = np.random.Generator(np.random.Philox(seed=np.random.SeedSequence(key)))
        content = self._windows.ids[begins[:, None] + np.arange(self.length - 2)].astype("int32")  # (B, T - 2)
        ids = np.pad(content, [[0, 0], [1, 1]], constant_values=END)  # (B, T)
        ids[:, 0] = START
        # M random places; the start and the end are never hidden.
        places = 1 + np.sort(random.random(content.shape).argsort(axis=1)[:, : self.hidden], axis=1)  # (B, M)
        labels = np.take_along_axis(ids, places, axis=1)
        choice = random.random(labels.shape)
        others = random.integers(FIRST, self.tokenizer.size, labels.shape)
        written = np.full_like(labels, self.tokenizer.mask_id)
        written = np.where(choice < _KEPT + _REPLACED, others, written)
        written = np.where(choice < _KEPT, labels, written)
        np.put_along_axis(ids, places, written.astype("int32"), axis=1)
        return ids, places.astype("int32"), labels, (labels != PADDING).astype("float32")

    def _dataset(self, batch: Callable[[int], Any], first: int, number: int | None) -> tf.data.Dataset:
        of_windows = tf.TensorSpec([self.batch_size, self.length], tf.int32)
        of_hidden = [tf.TensorSpec([self.batch_size, self.hidden], dtype) for dtype in (tf.int32, tf.int32, tf.float32)]

        def as_inputs(_: tf.Tensor, ids: tf.Tensor, places: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> Any:
            segments = {"segments": tf.zeros_like(ids)} if self._segments else {}
            return {"ids": ids, "places": places, **segments}, labels, weights

        return numbered_batches(batch, [of_windows, *of_hidden], as_inputs, first, number)
