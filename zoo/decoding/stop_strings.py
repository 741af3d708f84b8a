"""Texts at which a row ends, wherever tokens begin and end."""

import tensorflow as tf


class StopStrings:
    """Ends a row when one of its own strings has been written: a `watch` of `sample`.

    A string may begin and end inside tokens. Axes: B batch, N strings a row, R rows that are left.

    The state's `kept` `(B,)`, int32, is how many bytes of a row's text come before the first of its strings; -1 where
    none was written.

    Args:
        tokenizer: a `zoo.text.Tokenizer`; what its ids write is what is watched.
        strings: `(B, N)`, empty ones for none.
        longest: how many bytes of a string count, the first ones.
    """

    def __init__(self, tokenizer, strings, longest):
        self._tokenizer, self._longest = tokenizer, longest
        self._strings = tf.strings.substr(tf.convert_to_tensor(strings), 0, longest)
        self._any = tf.reduce_any(self._strings != "")
        # No more of a row's text is looked at than the end, in which a string may have begun, and the new token.
        self._window = longest - 1 + tokenizer.longest_written

    def start(self):
        """Nothing is written yet."""
        rows = tf.shape(self._strings)[0]
        zeros = tf.zeros([rows], tf.int32)
        return {"strings": self._strings, "end": tf.fill([rows], ""), "written": zeros, "kept": zeros - 1}

    def step(self, tokens, open_rows, state):
        """Looks at what the tokens `(R,)` of the open rows write; gives the rows that end and the new state."""
        return tf.cond(
            self._any,
            lambda: self._watched(tokens, open_rows, state),
            lambda: (tf.zeros_like(open_rows), state),
        )

    def _watched(self, tokens, open_rows, state):
        text = state["end"] + tf.where(open_rows, self._tokenizer.written(tokens), "")
        lengths = tf.strings.length(text)
        first = self._first(text, lengths, state["strings"])
        ends = open_rows & (first >= 0)
        before = state["written"] - tf.strings.length(state["end"])
        tail = tf.minimum(lengths, self._longest - 1)
        return ends, {
            "strings": state["strings"],
            "end": tf.strings.substr(text, lengths - tail, tail),
            "written": before + lengths,
            "kept": tf.where(ends, before + first, state["kept"]),
        }

    def _first(self, text, lengths, strings):
        """Where the first of the strings `(R, N)` begins in each text `(R,)`; -1 where there is none."""
        places, offsets = tf.range(self._window), tf.range(self._longest)
        text = tf.io.decode_raw(text, tf.uint8, fixed_length=self._window)  # (R, W), zeros behind the text
        windows = tf.gather(tf.pad(text, [[0, 0], [0, self._longest]]), places[:, None] + offsets, axis=1)
        sizes = tf.strings.length(strings)[:, :, None]
        wanted = tf.io.decode_raw(strings, tf.uint8, fixed_length=self._longest)  # (R, N, L)
        same = (windows[:, None] == wanted[:, :, None]) | (offsets >= sizes[..., None])  # (R, N, W, L)
        found = tf.reduce_all(same, axis=-1) & (sizes > 0) & (places + sizes <= lengths[:, None, None])
        first = tf.reduce_min(tf.where(found, places, self._window), axis=[1, 2])
        return tf.where(first < self._window, first, -1)
