"""Shapes for `ops.reshape`, with no more work in the graph than they need."""

from keras import ops


def sizes_of(tensor, axes=slice(None)):
    """The sizes of some axes, to be part of a shape: -1 in the place of one that is known at run time only.

    To read a size at run time takes several operations of a graph, which a loop over single tokens feels. Where more
    than one is unknown, or one of the others is 0, there is no way around it.
    """
    sizes = tuple(tensor.shape[axes])
    if sizes.count(None) > 1 or 0 in sizes:
        return tuple(ops.shape(tensor)[axes])
    return tuple(-1 if size is None else size for size in sizes)
