"""From lists of texts to tensors, and from tensors to arrays without their padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from zoo.text import PADDING


def strings(texts: Sequence[str]) -> tf.Tensor:
    """Texts as a tensor `(B,)` of UTF-8; what no text may hold, such as half of a surrogate pair, becomes "?"."""
    return tf.constant([text.encode("utf-8", "replace") for text in texts], tf.string)


def as_arrays(
    function: Callable[..., dict[str, tf.Tensor]], texts: Sequence[str], **more: tf.Tensor
) -> dict[str, np.ndarray]:
    """The results of a function of texts `(B,)`, and of whatever else it takes, as arrays."""
    return {name: tensor.numpy() for name, tensor in function(text=strings(texts), **more).items()}


def unpadded(tokens: np.ndarray) -> list[str]:
    """The tokens `(T,)` of a row but for its padding, whose piece is the empty string."""
    return [token.decode() for token in tokens if token]


def zeroed(maps: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Weights `(B, layers, H, T, S)` in float32, zero in the rows where ids `(B, T)` are padding."""
    return tf.where((ids != PADDING)[:, None, None, :, None], tf.cast(maps, tf.float32), 0.0)
