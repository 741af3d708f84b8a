"""The lookup tables of tokenizers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf


def lookup_table(
    keys: Iterable[Any], values: Iterable[int], key_dtype: tf.DType, default: int, dtype: tf.DType = tf.int32
) -> tf.lookup.StaticHashTable:
    """A table from strings or numbers to numbers. As an attribute of a `tf.Module`, it is saved with it.

    Args:
        keys: strings or numbers, each once.
        values: the value of each.
        key_dtype: the type of the keys.
        default: the value of everything else.
        dtype: the type of the values.
    """
    # TensorFlow does not allow an empty table. A key with the value of everything else changes nothing.
    keys = [*keys] or ["" if key_dtype == tf.string else 0]
    values = [*values] or [default]
    pairs = tf.lookup.KeyValueTensorInitializer(tf.constant(keys, key_dtype), tf.constant(values, dtype))
    return tf.lookup.StaticHashTable(pairs, default_value=default)
