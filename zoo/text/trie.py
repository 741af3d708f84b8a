"""Which keys begin at each place of a text, for all places at once; and the chains of places that they make.

Texts lie one behind the other in one vector, with the character `LAST` behind each. A character has 21 bits.

Axes: W texts, N characters (or bytes) of all texts and one more for the end of each, D characters of the longest match.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from zoo.text.lookup import lookup_table

BITS = 21  # of a character; enough for U+10FFFF
LAST = 2**BITS - 1  # behind the last character of each text; no key has it


class Trie(tf.Module):
    """Keys, searched from all places of a text at once.

    Args:
        keys: sequences of characters or bytes, below 2**21 - 1, and a number from 0 on for each.
    """

    def __init__(self, keys: Mapping[tuple[int, ...], int]):
        super().__init__()
        # State 0 has no way out, state 1 is the root. One integer holds a state and a character, so that a single
        # lookup makes a step.
        steps: dict[int, int] = {}
        values = [-1, -1]
        for key, value in keys.items():
            state = 1
            for character in key:
                following = steps.setdefault(state << BITS | character, len(values))
                if following == len(values):
                    values.append(-1)
                state = following
            values[state] = value
        self._values = np.array(values, np.int32)
        # The table gives states moved to the left already: with the next character added they are keys again.
        states = (state << BITS for state in steps.values())
        self._steps = lookup_table(steps, states, tf.int64, default=0, dtype=tf.int64)

    def __call__(self, characters: tf.Tensor) -> tf.Tensor:
        """The number of the key of d characters that begins at each place, or -1.

        Args:
            characters: the characters, int64 `(N,)`, with `LAST` behind each text.

        Returns:
            Numbers, int32 `(D, N)`. D is the length of the longest match that was tried.
        """
        visited = tf.TensorArray(tf.int64, 0, dynamic_size=True, element_shape=[None])

        def step(depth, states, shifted, visited):
            states = self._steps.lookup(states + shifted)  # (N,)
            return depth + 1, states, tf.concat([shifted[1:], [LAST]], axis=0), visited.write(depth, states)

        *_, visited = tf.while_loop(
            lambda depth, states, shifted, visited: tf.reduce_any(states > 0),
            step,
            (0, tf.fill([tf.size(characters)], tf.constant(1 << BITS, tf.int64)), characters, visited),
            shape_invariants=(tf.TensorShape([]), tf.TensorShape([None]), tf.TensorShape([None]), None),
        )
        return tf.gather(tf.constant(self._values), tf.bitwise.right_shift(visited.stack(), BITS))  # (D, N)


def characters_of(texts: tf.Tensor, first: int | None = None) -> tuple[tf.Tensor, tf.Tensor]:
    """The characters of valid UTF-8 `(W,)`.

    Args:
        texts: the texts; any of them may be empty.
        first: a mark to put before each text, too.

    Returns:
        The characters with `LAST` behind each text, int64 `(N,)`; and where each text begins, and the end, int64
        `(W + 1,)`.
    """
    # The marks are decoded as characters and then replaced: five operations, where a ragged `concat` has fifty.
    framed = texts + "\0" if first is None else "\0" + texts + "\0"
    decoded = tf.raw_ops.UnicodeDecode(input=framed, input_encoding="UTF-8", Tsplits=tf.int64)
    characters, splits = tf.cast(decoded.char_values, tf.int64), decoded.row_splits  # (N,), (W + 1,)
    for mark, places in ((LAST, splits[1:] - 1), (first, splits[:-1])):
        if mark is not None:
            marks = tf.fill(tf.shape(texts), tf.constant(mark, tf.int64))
            characters = tf.tensor_scatter_nd_update(characters, places[:, tf.newaxis], marks)
    return characters, splits


def longest(numbers: tf.Tensor) -> tf.Tensor:
    """The length of the longest key at each place, int32 `(N,)`, for the `(D, N)` of a `Trie`."""
    depths = tf.range(1, tf.shape(numbers)[0] + 1)[:, tf.newaxis]  # (D, 1)
    return tf.reduce_max(tf.where(numbers < 0, 0, depths), axis=0)


def followed(pointers: tf.Tensor, starts: tf.Tensor) -> tf.Tensor:
    """Which places one comes to from the starts, along pointers that end in places that point to themselves.

    After k rounds the places of the first 2**k steps are marked, and pointers go that far.

    Args:
        pointers: the next place from each, int64 `(N,)`.
        starts: places, `(W,)`.

    Returns:
        Booleans `(N,)`.
    """
    count = tf.size(pointers, tf.int64)
    marked = tf.scatter_nd(starts[:, tf.newaxis], tf.ones_like(starts, tf.int32), count[tf.newaxis])  # (N,)
    marked = tf.minimum(marked, 1)

    def step(marked, pointers, further):
        marked = tf.maximum(marked, tf.math.unsorted_segment_max(marked, pointers, count))
        return marked, further, tf.gather(further, further)

    marked, *_ = tf.while_loop(
        lambda marked, pointers, further: tf.reduce_any(pointers != further),
        step,
        (marked, pointers, tf.gather(pointers, pointers)),
        shape_invariants=(tf.TensorShape([None]),) * 3,
    )
    return tf.maximum(marked, tf.math.unsorted_segment_max(marked, pointers, count)) > 0
