"""Weights that an export stores in float16 and computes with in float32."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from zoo.models.family import NEVER

_LARGEST = float(np.finfo(np.float16).max)  # 65504
_SMALL = 4096  # numbers: what has fewer, such as norms and most biases, stays exact


class HalfWeights(tf.Module):
    """What an export tracks instead of its float32 variables.

    The SavedModel holds float16 variables. When a server or Python has restored them, an initialiser casts each to the
    float32 weight that the functions read, then empties the float16 variable. So only the files are halved: the memory
    of a loaded model and its speed are those of float32. A cast inside the functions would be repeated for every
    request.

    Such a SavedModel cannot be loaded and saved again with `tf.saved_model.save`.

    Args:
        variables: float32 variables that traced functions read.

    Raises:
        ValueError: a weight is beyond float16, whose largest number is 65,504.
    """

    def __init__(self, variables: Iterable[tf.Variable]):
        super().__init__()
        variables = list(variables)
        large = [each for each in variables if each.dtype == tf.float32 and each.shape.num_elements() >= _SMALL]
        chosen = {id(each) for each in large}
        self.exact = [each for each in variables if id(each) not in chosen]
        self.weights = [_HalfWeight(each) for each in large]
        self.stored = [each.stored for each in self.weights]


class _HalfWeight(tf.saved_model.experimental.TrackableResource):
    """A float32 variable of the graph, made from a float16 one of the files."""

    def __init__(self, variable: tf.Variable):
        # A bias of -1e9 keeps an id from being predicted. The lowest number of float16 stands for it in the files only:
        # at a high temperature such an id would be drawn.
        never = variable <= NEVER / 2
        self._has_never = bool(tf.reduce_any(never))
        values = tf.where(never, -_LARGEST, variable)
        largest = float(tf.reduce_max(tf.abs(values)))
        if not largest <= _LARGEST:
            raise ValueError(
                f"The weights cannot be stored in float16: {variable.name.split(':')[0]} has a value of {largest:g}."
            )
        super().__init__()
        self.variable = variable
        self._name = f"half_weight_{uuid.uuid4().hex}"  # `tf.saved_model.load` adds a number for each load
        # Of unknown shape, so that it can be emptied.
        self.stored = tf.Variable(
            tf.cast(values, tf.float16), shape=tf.TensorShape(None), trainable=False, dtype=tf.float16
        )
        _ = self.resource_handle  # calls `_create_resource` while there is no graph

    def _create_resource(self) -> tf.Tensor:
        if tf.executing_eagerly():
            return self.variable.handle  # which the functions have captured; an export puts the next one in its place
        return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=self.variable.shape, shared_name=self._name)

    def _initialize(self) -> None:
        value = tf.ensure_shape(tf.cast(self.stored.read_value(), tf.float32), self.variable.shape)
        if self._has_never:
            value = tf.where(value <= -_LARGEST, NEVER, value)
        assigned = tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=value)
        with tf.control_dependencies([assigned]):
            tf.raw_ops.AssignVariableOp(resource=self.stored.handle, value=tf.zeros([0], tf.float16))
