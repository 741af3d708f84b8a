"""Lookup tables of what Unicode knows, in the graph."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf


def code_point_table(mapping: Mapping[str, int]) -> Any:
    """A table from code points to numbers, int32 to int32; see `lookup_table`."""
    return lookup_table([ord(character) for character in mapping], list(mapping.values()), tf.int32)


def lookup_table(keys: list[int], values: list[int], key_dtype: tf.DType) -> Any:
    """A table which gives 0 for what it lacks, or None if there is nothing in it."""
    if not keys:
        return None
    pairs = tf.lookup.KeyValueTensorInitializer(tf.constant(keys, key_dtype), tf.constant(values, tf.int32))
    return tf.lookup.StaticHashTable(pairs, default_value=0)
