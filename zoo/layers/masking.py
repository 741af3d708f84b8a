"""Softmax over the positions that may be attended to."""

from keras import ops


def masked_softmax(scores, mask=None):
    """Softmax over the last axis, in float32, with zero weight wherever the mask forbids.

    A row with nothing to attend to gets zero weights, where a softmax over very negative scores would give the
    mean of the values.

    Args:
        scores: float tensor `(..., S)`.
        mask: boolean tensor that broadcasts to `scores`, True where a position may be attended to; None allows all.

    Returns:
        float32 tensor of the shape of `scores`; each row sums to 1, or is all zeros.
    """
    scores = ops.cast(scores, "float32")
    if mask is None:
        return ops.softmax(scores, axis=-1)
    # The lowest finite number rather than -inf: inf - inf in a row without any allowed position would be NaN.
    scores = ops.where(mask, scores, -3.0e38)
    exponentials = ops.exp(scores - ops.stop_gradient(ops.max(scores, axis=-1, keepdims=True)))
    exponentials = ops.where(mask, exponentials, 0.0)
    total = ops.sum(exponentials, axis=-1, keepdims=True)
    return exponentials / ops.where(total > 0.0, total, 1.0)
