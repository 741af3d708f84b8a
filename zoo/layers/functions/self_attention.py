"""What layers in which a sequence attends to itself share: which mask means what, and the shape of the weights."""

import keras
from keras import ops

from zoo.layers.functions.attention_axes import AttentionAxes
from zoo.layers.functions.attention_mask import AttentionMask
from zoo.layers.functions.masked_softmax import scores_dtype


def pairs_mask(mask, inputs, causal=False):
    """Which token may attend to which, `(B, T, T)`; None for all. For the mask of the layers of self-attention.

    Raises:
        ValueError: a mask that does not fit the inputs `(B, T, D)`.
    """
    axes = AttentionAxes(3)
    pairs = tokens = None
    if mask is not None and len(mask.shape) == 2:
        tokens = axes.fold_mask(mask, inputs)
    else:
        pairs = axes.fold_pairs(mask, inputs, inputs, name="mask", heads=False)
    length = ops.shape(inputs)[1]
    return AttentionMask(pairs, queries=tokens, keys=tokens, causal=causal).of_one_head(length, length)


def tokens_mask(inputs, mask):
    """What of the mask goes on with the context: a mask of tokens does, one of pairs does not."""
    return mask if mask is not None and len(mask.shape) == 2 else getattr(inputs, "_keras_mask", None)


def weights_spec(layer, inputs):
    """The symbolic weights `(B, T, T)` of a layer of self-attention."""
    return keras.KerasTensor((*inputs.shape[:-1], inputs.shape[1]), dtype=scores_dtype(layer.compute_dtype))
