"""The embedding that is tied to the output: Press and Wolf 2017."""

from typing import Any

import keras
from keras import ops

from zoo.layers.checks import check_built_width


@keras.saving.register_keras_serializable(package="zoo")
class ReversibleEmbedding(keras.layers.ReversibleEmbedding):
    """`keras.layers.ReversibleEmbedding` with a dense gradient.

    The gradient of a look-up is a list of rows (`IndexedSlices`), that of the product with the vocabulary is a matrix.
    TensorFlow joins the two to a list of V + B T rows: more memory, a second pass of the optimizer, and lists of
    different lengths for the replicas of a `MirroredStrategy`. Here the look-up goes through a reshape, whose gradient
    is a matrix. The sum of both gradients is then a matrix, too. With `mask_zero=True` Keras' own look-up is used.

    Its arguments, weights and results are those of Keras' layer.

    Reference: https://arxiv.org/abs/1608.05859
    """

    def call(self, inputs: Any, reverse: bool = False) -> Any:
        """Ids `(...)` -> vectors `(..., D)`, or with `reverse` vectors -> logits `(..., V)`."""
        if reverse:
            check_built_width("inputs", inputs, self.output_dim)
        if reverse or self.mask_zero:
            return super().call(inputs, reverse=reverse)
        table = ops.reshape(self.embeddings, (self.input_dim, self.output_dim))
        return ops.cast(ops.take(table, ops.cast(inputs, "int32"), axis=0), self.compute_dtype)

    def quantize(self, mode: Any = None, type_check: bool = True, config: Any = None) -> None:
        """As Keras' layer, whose type check refuses subclasses."""
        super().quantize(mode, type_check=False, config=config)
