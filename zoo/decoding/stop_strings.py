"""Stop strings: a row ends when one of them has been written."""

from __future__ import annotations

import tensorflow as tf

from zoo.text.tokenizer import Tokenizer


class StopStrings:
    """Ends a row when one of its stop strings has been written: a `watch` of `sample` and `generate`.

    A string may begin and end inside tokens.

    Axes: B batch, N strings of a row, R rows that are left, W bytes looked at, L bytes of the longest string.

    `is_needed`, a boolean scalar tensor, says whether there is a string at all.

    The state's `kept` `(B,)`, int32, is how many bytes of a row's text come before the first of its strings; -1 if none
    was written.

    Args:
        tokenizer: the tokenizer whose ids write the text that is watched.
        strings: `(B, N)`; an empty string is ignored.
        max_length: only this many bytes at the start of a string count.
    """

    def __init__(self, tokenizer: Tokenizer, strings: tf.Tensor, max_length: int):
        self._tokenizer, self._max_length = tokenizer, max_length
        self._strings = tf.strings.substr(tf.convert_to_tensor(strings), 0, max_length)
        self.is_needed = tf.reduce_any(self._strings != "")
        # Only the new token and the end of the text before it are compared: a string may have begun there.
        self._window = max_length - 1 + tokenizer.longest_written

    def start(self) -> dict[str, tf.Tensor]:
        """The state before anything is written."""
        rows = tf.shape(self._strings)[0]
        zeros = tf.zeros([rows], tf.int32)
        return {"strings": self._strings, "end": tf.fill([rows], ""), "written": zeros, "kept": zeros - 1}

    def ended(self, state: dict[str, tf.Tensor]) -> tf.Tensor:
        """Which rows have written a string, `(R,)`."""
        return state["kept"] >= 0

    def step(
        self, tokens: tf.Tensor, open_rows: tf.Tensor, state: dict[str, tf.Tensor]
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Compares the bytes of the new tokens `(R,)` with the strings; returns the rows that end and the new state."""
        return tf.cond(
            self.is_needed,
            lambda: self._watched(tokens, open_rows, state),
            lambda: (tf.zeros_like(open_rows), state),
        )

    def _watched(
        self, tokens: tf.Tensor, open_rows: tf.Tensor, state: dict[str, tf.Tensor]
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        text = state["end"] + tf.where(open_rows, self._tokenizer.written(tokens), "")
        lengths = tf.strings.length(text)
        first = self._first(text, lengths, state["strings"])
        ends = open_rows & (first >= 0)
        before = state["written"] - tf.strings.length(state["end"])
        tail = tf.minimum(lengths, self._max_length - 1)
        return ends, {
            "strings": state["strings"],
            "end": tf.strings.substr(text, lengths - tail, tail),
            "written": before + lengths,
            "kept": tf.where(ends, before + first, state["kept"]),
        }

    def _first(self, text: tf.Tensor, lengths: tf.Tensor, strings: tf.Tensor) -> tf.Tensor:
        """Where the first of the strings `(R, N)` begins in each text `(R,)`; -1 where there is none."""
        places, offsets = tf.range(self._window), tf.range(self._max_length)
        text = tf.io.decode_raw(text, tf.uint8, fixed_length=self._window)  # (R, W), zeros behind the text
        windows = tf.gather(tf.pad(text, [[0, 0], [0, self._max_length]]), places[:, None] + offsets, axis=1)
        sizes = tf.strings.length(strings)[:, :, None]  # (R, N, 1)
        wanted = tf.io.decode_raw(strings, tf.uint8, fixed_length=self._max_length)  # (R, N, L)
        same = (windows[:, None] == wanted[:, :, None]) | (offsets >= sizes[..., None])  # (R, N, W, L)
        found = tf.reduce_all(same, axis=-1) & (sizes > 0) & (places + sizes <= lengths[:, None, None])  # (R, N, W)
        first = tf.reduce_min(tf.where(found, places, self._window), axis=[1, 2])  # (R,)
        return tf.where(first < self._window, first, -1)
