"""Gradients that are written out by hand."""

from keras import ops


def once_differentiable(tensor):
    """The tensor, with a gradient that refuses.

    A hand-written gradient uses numbers that the forward pass left behind, and to a second differentiation these
    would look like constants: the answer would be wrong without a word. So the results of such gradients go through
    here.

    Raises:
        NotImplementedError: when the result is differentiated.
    """

    @ops.custom_gradient
    def identity(tensor):
        def gradient(*args, upstream=None):
            raise NotImplementedError(
                "The gradient of this attention cannot be differentiated again. "
                "`flash_attention=False` gives a path where it can."
            )

        return tensor, gradient

    return identity(tensor)
