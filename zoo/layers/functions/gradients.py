"""Gradients that are written out by hand."""

from keras import ops


def once_differentiable(tensor, *sources):
    """The tensor, with a gradient that refuses.

    A hand-written gradient uses numbers that the forward pass left behind, and to a second differentiation these
    would look like constants: the answer would be wrong without a word. So the results of such gradients go through
    here.

    Args:
        tensor: a gradient.
        *sources: what it depends on, whether the backend has seen that or not. Without them a gradient whose way back
            leads by constants alone would have no second gradient, and that missing part of a sum nobody would notice.

    Raises:
        NotImplementedError: when the result is differentiated, by the tensor or by a source.
    """

    @ops.custom_gradient
    def identity(tensor, *sources):
        def gradient(*args, upstream=None):
            raise NotImplementedError(
                "The gradient of this attention cannot be differentiated again. "
                "`flash_attention=False` gives a path where it can."
            )

        return tensor, gradient

    return identity(tensor, *sources)
