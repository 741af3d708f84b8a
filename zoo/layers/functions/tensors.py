"""Helpers for several layers: precision, shapes, the order of axes, compilation, attached masks."""

from typing import Any

import keras
from keras import ops

Tensor = Any  # a tensor of the backend that Keras runs on
Shape = tuple[Any, ...]  # of a tensor: a number for each axis, or None where it is not known


def scores_dtype(dtype: str) -> str:
    """The dtype of scores and attention weights in a layer that computes in `dtype`: float32 at least."""
    return "float64" if dtype == "float64" else "float32"


def at_least_float32(tensor: Tensor) -> Tensor:
    """The tensor in float32; float64 stays."""
    return ops.cast(tensor, scores_dtype(keras.backend.standardize_dtype(tensor.dtype)))


def heads_first(tensor: Tensor) -> Tensor:
    """`(B, T, H, d)` -> `(B, H, T, d)`."""
    first, second = tensor.shape[1:3]
    if 1 in (first, second) and None not in (first, second, tensor.shape[3]):
        # One token, or one head: no number moves, and a reshape is free where a transpose copies.
        return ops.reshape(tensor, (*sizes_of(tensor, slice(1)), second, first, tensor.shape[3]))
    return ops.swapaxes(tensor, 1, 2)


def positions_first(tensor: Tensor) -> Tensor:
    """`(B, H, T, d)` -> `(B, T, H, d)`: the way back."""
    return heads_first(tensor)  # both swap the second and the third axis


def sizes_of(tensor: Tensor, axes: slice = slice(None)) -> tuple:
    """The sizes of some axes for `ops.reshape`: -1 for one that is known at run time only.

    Reading a size at run time takes several operations, which slows a decoding loop of one token a step. It is needed
    only if more than one size is unknown, or if another size is 0.
    """
    sizes = tuple(tensor.shape[axes])
    if sizes.count(None) > 1 or 0 in sizes:
        return tuple(ops.shape(tensor)[axes])
    return tuple(-1 if size is None else size for size in sizes)


def compiled_by_xla(tensor: Tensor) -> bool:
    """Whether XLA will compile the graph of a tensor; False on other backends, and where TensorFlow does not say it.

    TensorFlow has no public name for this. A graph that `tf.function(jit_compile=True)` traces has a context that says
    it, and the graphs of functions and loops inside have that graph around them.
    """
    graph: Any = getattr(tensor, "graph", None)
    while hasattr(graph, "_get_control_flow_context"):
        context = graph._get_control_flow_context()
        while context is not None:
            if context.IsXLAContext():
                return True
            context = context.outer_context
        graph = getattr(graph, "outer_graph", None)
    return False


def on_gpu(tensor: Tensor) -> bool:
    """Whether a tensor is on a GPU; on TensorFlow and JAX, whether the machine has one."""
    if keras.backend.backend() in ("tensorflow", "jax"):
        # Other backends have no such list. It holds the GPUs if there are any, else the processors. To ask for "gpu" is
        # an error on JAX where there is none.
        return keras.distribution.list_devices()[0].startswith(("gpu", "cuda"))
    return getattr(getattr(tensor, "device", None), "type", "cpu") in ("cuda", "mps")


def attached_mask(tensor: Tensor) -> Tensor | None:
    """The mask that Keras attached to a tensor, as `Embedding(mask_zero=True)` does; None if it has none.

    Keras has no public name for this. Tensors of JAX take no attributes, so Keras keeps their masks in a table.
    """
    if keras.backend.backend() == "jax":
        from keras.src.backend import get_keras_mask

        return get_keras_mask(tensor)
    return getattr(tensor, "_keras_mask", None)


def without_mask(tensor: Tensor) -> Tensor:
    """The same numbers as another tensor, to which Keras has attached no mask."""
    if keras.backend.backend() == "jax":
        return ops.copy(tensor)  # JAX's reshape returns the tensor itself if the shape stays
    return ops.reshape(tensor, ops.shape(tensor))
