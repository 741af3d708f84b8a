"""Batches of strings, and what in them is UTF-8 and white space."""

from __future__ import annotations

import contextlib
import reprlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

SPACE = r"[\t-\r\x1c-\x20\x{85}\p{Z}]"  # the characters for which `str.isspace` is true
_AROUND = rf"\A{SPACE}+|{SPACE}+\z"
_UTF_8 = r"[\x{0}-\x{d7ff}\x{e000}-\x{10ffff}]*"  # all but surrogates, which have no UTF-8


def checked_texts(texts: Any) -> tf.Tensor:
    """The texts as a tensor of strings `(B,)`.

    Raises:
        ValueError: they are not strings with one axis.
    """
    wanted = "`texts` must be a batch of strings `(B,)`; put a single string into a list. Received: "
    if isinstance(texts, np.ndarray) and texts.size:
        with contextlib.suppress(TypeError, ValueError):  # such as half a surrogate pair
            texts = tf.convert_to_tensor(texts)  # several times as fast as the loop below
    if isinstance(texts, list | tuple) or (isinstance(texts, np.ndarray) and texts.ndim == 1):
        # An empty list would become a tensor of floats, and half a surrogate pair would be an error.
        texts = [as_utf8(text) if isinstance(text, str) else text for text in texts] or tf.constant([], tf.string)
    try:
        texts = tf.convert_to_tensor(texts)
    except (TypeError, ValueError) as error:  # None among strings, or a KerasTensor, about which Keras says more
        raise ValueError(f"{wanted}{reprlib.repr(texts)}") from error
    if texts.dtype != tf.string or texts.shape.rank not in (None, 1):
        raise ValueError(f"{wanted}{texts.dtype.name} of shape {texts.shape}")
    return tf.ensure_shape(texts, [None])


def as_utf8(text: str) -> bytes:
    """The text in UTF-8, with "?" for half a surrogate pair, which has none."""
    return text.encode("utf-8", "replace")


def is_utf8(texts: tf.Tensor) -> tf.Tensor:
    """Whether each string is valid UTF-8, of the same shape."""
    return tf.strings.regex_full_match(texts, _UTF_8)


def valid_utf8(texts: tf.Tensor) -> tf.Tensor:
    """Strings of any bytes, with U+FFFD for bytes that are no UTF-8, as `bytes.decode("utf-8", "replace")` reads them.

    `unicode_transcode` takes a hundred times as long as the regular expression, which is enough for valid texts.
    """
    return tf.cond(
        tf.reduce_all(is_utf8(texts)),
        lambda: texts,
        lambda: tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace"),
    )


def strip(texts: tf.Tensor) -> tf.Tensor:
    """Texts `(B,)` without the white space around them, as `str.strip`; `tf.strings.strip` knows only ASCII's."""
    return tf.strings.regex_replace(texts, _AROUND, "")


def to_learn_from(texts: Iterable[str]) -> Iterator[str]:
    """Passes texts on to what learns a vocabulary, as `tokenize` reads them.

    Raises:
        ValueError: `texts` is no iterable of strings.
    """
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise ValueError(f"`texts` must be an iterable of strings. Received: one {type(texts).__name__}")
    return map(_learnable, texts)


def _learnable(text: str) -> str:
    if not isinstance(text, str):
        raise ValueError(f"`texts` must hold strings. Received: {text!r} of type {type(text).__name__}")
    return as_utf8(text).decode()
