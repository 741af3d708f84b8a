"""Dropout masks that a gradient can draw again."""

from typing import Any

import keras
from keras import ops

from zoo.layers.functions.tensors import Tensor


class DropoutMask:
    """Draws 0 with the probability `rate` and 1 / (1 - rate) otherwise: Srivastava et al. 2014.

    The numbers of a block depend only on the seed and the block's number. So the gradient of attention in blocks draws
    them again; saving them would take as much memory as the scores.

    Drawing takes most of the time of dropout, so one random number of 23 bits decides two places. The whole number
    decides the first. Its lower 12 bits, which are independent of the upper ones, decide the second, where the rate is
    rounded to a multiple of 1 / 4096. (`benchmarks/notes.md`, translation_training.py)

    Args:
        rate: the share of zeros, at least 0 and below 1.
        seed: a `keras.random.SeedGenerator`, which advances by one step.
    """

    def __init__(self, rate: float, seed: keras.random.SeedGenerator):
        self.rate = rate
        self.state = seed.next()

    def __call__(self, shape: tuple, block: Tensor | int = 0) -> Tensor:
        """A mask in float32.

        Args:
            shape: numbers and scalar tensors, at least one.
            block: the number of the block, an integer or an integer scalar tensor.
        """
        # The steps of the generator increase the second number of the state, and blocks the first. So no two blocks
        # share a seed.
        far = ops.cast(block, self.state.dtype) * 1_000_003
        *front, last = shape
        drawn = _uniform((*front, (last + 1) // 2), ops.stack([self.state[0] + far, self.state[1]]))
        shifted = drawn * 2.0**11
        lower = shifted - ops.floor(shifted)
        stays = ops.concatenate([drawn >= self.rate, lower >= self.rate], axis=-1)[..., :last]
        return ops.cast(stays, "float32") * (1.0 / (1.0 - self.rate))


def _uniform(shape: tuple, state: Tensor) -> Tensor:
    """Random numbers from 0 to below 1, float32 multiples of 2^-23, that depend only on the state `(2,)`."""
    if keras.backend.backend() != "tensorflow":
        return keras.random.uniform(shape, dtype="float32", seed=_GivenSeed(state))
    import tensorflow as tf

    # As `keras.random.uniform` draws them, but for the algorithm, which that function leaves to TensorFlow. A graph
    # takes Philox anyway. XLA for a CPU takes another one: 180 ns for a number, where Philox needs 4.
    # (`benchmarks/notes.md`, attention.py)
    seed = state if state.dtype == tf.int32 else tf.cast(tf.math.floormod(state, tf.int32.max - 1), tf.int32)
    return tf.random.stateless_uniform(shape, seed, alg="philox")


class _GivenSeed(keras.random.SeedGenerator):
    """A given seed. Keras' random functions take a seed in a tensor only in the form of a generator."""

    def __init__(self, state: Any):
        # Without the parent's `__init__`, which would create a variable.
        self.given = state

    def next(self, ordered: bool = True) -> Tensor:
        return self.given
