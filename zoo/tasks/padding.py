"""Padding taken out of attention that is to be shown."""

import numpy as np
import tensorflow as tf

from zoo.text.tokenizer import PADDING


def zeroed(maps, ids):
    """Weights `(B, layers, H, T, S)` in float32, zero in the rows where ids `(B, T)` are padding."""
    return tf.where((ids != PADDING)[:, None, None, :, None], tf.cast(maps, tf.float32), 0.0)


def unpadded(tokens: np.ndarray) -> list[str]:
    """The tokens `(T,)` of a row but for its padding, whose piece is the empty string."""
    return [token.decode() for token in tokens if token]
