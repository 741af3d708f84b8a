"""A way for whoever decodes or exports to say that nothing in a graph will be trained."""

import contextlib
import contextvars

_LONGEST = contextvars.ContextVar("longest", default=None)


@contextlib.contextmanager
def inference(longest):
    """What is traced inside is only computed, never trained, and for sequences of bounded length.

    Hand-written gradients are left out: the same forward pass, without the wrappers that a SavedModel cannot keep and
    warns of when it is loaded. And where lengths are unknown, ways that only longer sequences take are left out.

    Args:
        longest: the most positions a sequence has.
    """
    token = _LONGEST.set(longest)
    try:
        yield
    finally:
        _LONGEST.reset(token)


def is_inference():
    """Whether this is inside `inference`."""
    return _LONGEST.get() is not None


def at_most(size):
    """Whether no sequence is longer than this, as far as `inference` has said."""
    return is_inference() and _LONGEST.get() <= size
