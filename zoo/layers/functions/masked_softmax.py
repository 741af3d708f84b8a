"""Softmax over the positions that may be attended to."""

import keras
from keras import ops

# Stands for minus infinity in float32 and above, without its NaN: inf - inf in a row with no allowed position.
LOWEST = -3.0e38


def at_least_float32(tensor):
    """The tensor in float32, or in float64 if it is: the precision of scores and of their softmax."""
    return ops.cast(tensor, scores_dtype(keras.backend.standardize_dtype(tensor.dtype)))


def scores_dtype(dtype):
    """The name of the precision that a layer that computes in this one has its scores and weights in."""
    return "float64" if dtype == "float64" else "float32"


def softmax(scores):
    """Softmax over the last axis, of one score too, where Keras warns that the result is always 1."""
    return ops.softmax(scores, axis=-1) if scores.shape[-1] != 1 else ops.exp(scores - scores)


def masked_softmax(scores, mask=None):
    """Softmax over the last axis, in float32, with zero weight wherever the mask forbids.

    A row with nothing to attend to gets zero weights, where a softmax over very negative scores would give the
    mean of the values.

    Args:
        scores: float tensor `(..., S)`.
        mask: boolean tensor that broadcasts to `scores`, True where a position may be attended to; None allows all.

    Returns:
        Tensor of the shape of `scores`, in float32 (float64 if the scores are); each row sums to 1, or is all zeros.
    """
    scores = at_least_float32(ops.convert_to_tensor(scores))
    if mask is None:
        return softmax(scores)
    weights = softmax(ops.where(mask, scores, LOWEST))
    # Zero already, but in a row where nothing is allowed.
    return ops.where(mask, weights, 0.0)
