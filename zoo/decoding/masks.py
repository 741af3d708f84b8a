"""Models with tokens hidden and heads switched off, and how requests name these."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from zoo.decoding.inputs import ModelWrapper
from zoo.decoding.prefix import NUMBER


class WithMasks(ModelWrapper):
    """A model that leaves out tokens and heads, with the methods that decoding, scoring and attention maps call.

    Args:
        model: one with `head_sizes`, see `zoo.models.Masks`.
        masks: what it leaves out, a `zoo.models.Masks`.
    """

    PASSED_ON = (*ModelWrapper.PASSED_ON, "output_weights", "logits_of")

    def __init__(self, model: Any, masks: Any):
        self.model, self.masks = model, masks
        self.step = model.step

    def begin(self, source: Any) -> tuple[Any, Any]:
        """As the model's."""
        return self.model.begin(source, self.masks)

    def without_logits(self) -> Any:
        """As the model's."""
        return lambda inputs: self.model.vectors(inputs, masks=self.masks)

    def attention_maps(self, *inputs: tf.Tensor) -> Any:
        """As the model's."""
        return self.model.attention_maps(*inputs, masks=self.masks)


def read_hidden(hidden: tf.Tensor, length: int | tf.Tensor) -> tf.Tensor:
    """Boolean `(B, S)`: False at the positions that strings `(B,)` such as "2 3" name.

    A part that is no position of the row is ignored, since an error would also fail the other rows of a server's batch.

    Args:
        hidden: decimal numbers, from 0, with spaces between them.
        length: S.
    """
    parts = tf.strings.split(hidden)
    is_number = tf.strings.regex_full_match(parts.flat_values, NUMBER)
    positions = tf.strings.to_number(tf.where(is_number, parts.flat_values, "0"), tf.int32)
    rows = tf.cast(parts.value_rowids(), tf.int32)
    named = tf.boolean_mask(tf.stack([rows, positions], axis=1), is_number & (positions < length))  # (P, 2)
    shown = tf.ones([tf.shape(hidden)[0], length], tf.bool)
    return tf.tensor_scatter_nd_update(shown, named, tf.zeros_like(named[:, 0], tf.bool))


def read_heads(heads: tf.Tensor, sizes: dict[str, tuple[int, int]]) -> dict[str, tf.Tensor]:
    """For each kind of attention float32 `(B, N, H)`: 0 for the heads that strings `(B,)` name, 1 for the others.

    A head is named by kind, layer and number, both from 1, such as "encoder.1.3"; "1.3" if the kind has no name. Other
    parts are ignored. Of each string, only as many parts are read as there are heads.

    Args:
        heads: such names with spaces between them.
        sizes: see `zoo.models.Masks`.
    """
    most = sum(layers * number for layers, number in sizes.values())
    parts = tf.strings.split(heads)[:, :most].to_tensor("")  # (B, P)
    found = {}
    for kind, (layers, number) in sizes.items():
        names = [f"{kind}.{n // number + 1}.{n % number + 1}".lstrip(".") for n in range(layers * number)]
        off = tf.reduce_any(parts[:, :, None] == tf.constant(names), axis=1)  # (B, N H)
        found[kind] = tf.reshape(tf.where(off, 0.0, 1.0), [-1, layers, number])
    return found
