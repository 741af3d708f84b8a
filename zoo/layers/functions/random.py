"""Dropout masks that a gradient can draw again."""

import math
from typing import Any

import keras
from keras import ops

from zoo.layers.functions.tensors import Tensor, compiled_by_xla


class DropoutMask:
    """Draws 0 with the probability `rate` and 1 / (1 - rate) otherwise: Srivastava et al. 2014.

    The numbers of a block depend only on the seed and the block's number. So the gradient of attention in blocks draws
    them again; saving them would take as much memory as the scores.

    Drawing takes most of the time of dropout, so one random number decides several places. Its bits are independent.

    - In a graph and without one, `keras.random.uniform` gives numbers of 23 bits. The whole number decides one place,
      its lower 12 bits decide a second, where the rate is rounded to a multiple of 1 / 4096. (`benchmarks/notes.md`,
      translation_training.py)
    - Under XLA that function may take 180 ns for a number on a CPU, so `threefry` draws there. Its 32 bits decide two
      places, where the rate is rounded to a multiple of 1 / 65536. (`benchmarks/notes.md`, attention.py)

    Args:
        rate: the share of zeros, at least 0 and below 1.
        seed: a `keras.random.SeedGenerator`, which advances by one step.
    """

    def __init__(self, rate: float, seed: keras.random.SeedGenerator):
        self.rate = rate
        self.state = seed.next()
        # Decided once: a gradient must draw as its forward pass did.
        self._xla = compiled_by_xla(self.state)

    def __call__(self, shape: tuple, block: Tensor | int = 0) -> Tensor:
        """A mask in float32.

        Args:
            shape: numbers and scalar tensors, at least one.
            block: the number of the block, an integer or an integer scalar tensor.
        """
        # The steps of the generator increase the second number of the state, and blocks the first. So no two blocks
        # share a seed.
        far = ops.cast(block, self.state.dtype) * 1_000_003
        seed = ops.stack([self.state[0] + far, self.state[1]])
        stays = self._by_words(shape, seed) if self._xla else self._by_fractions(shape, seed)
        return ops.cast(stays[..., : shape[-1]], "float32") * (1.0 / (1.0 - self.rate))

    def _by_fractions(self, shape: tuple, seed: Tensor) -> Tensor:
        *front, last = shape
        drawn = keras.random.uniform((*front, (last + 1) // 2), dtype="float32", seed=_GivenSeed(seed))
        shifted = drawn * 2.0**11  # a multiple of 2^-12, since `drawn` is one of 2^-23
        lower = shifted - ops.floor(shifted)
        return ops.concatenate([drawn >= self.rate, lower >= self.rate], axis=-1)

    def _by_words(self, shape: tuple, seed: Tensor) -> Tensor:
        *front, last = shape
        sizes = *front, (last + 3) // 4  # two words for each counter, two places for each word
        key = ops.cast(seed, "uint32")
        counters = ops.cast(ops.reshape(ops.arange(math.prod(sizes), dtype="int32"), sizes), "uint32")
        words = threefry((counters, ops.zeros_like(counters)), (key[0], key[1]))
        halves = [half for word in words for half in (ops.right_shift(word, 16), ops.bitwise_and(word, 0xFFFF))]
        return ops.cast(ops.concatenate(halves, axis=-1), "int32") >= round(self.rate * 2**16)


def threefry(counters: tuple[Tensor, Tensor], keys: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Two words of 32 random bits for each pair of counters: Threefry-2x32 with 20 rounds, Salmon et al. 2011.

    Only additions, rotations and exclusive ors of 32 bits, which a compiler makes vector instructions of.

    Args:
        counters: two uint32 tensors of one shape.
        keys: two uint32 scalar tensors.

    Returns:
        Two uint32 tensors of that shape.

    Reference: https://doi.org/10.1145/2063384.2063405
    """
    third = ops.bitwise_xor(ops.bitwise_xor(*keys), ops.cast(0x1BD11BDA, "uint32"))
    schedule = *keys, third
    left, right = counters[0] + keys[0], counters[1] + keys[1]
    for number in range(20):
        left = left + right
        turn = (13, 15, 26, 6, 17, 29, 16, 24)[number % 8]
        right = ops.bitwise_or(ops.left_shift(right, turn), ops.right_shift(right, 32 - turn))
        right = ops.bitwise_xor(right, left)
        if number % 4 == 3:  # a key after every fourth round
            step = number // 4 + 1
            left, right = left + schedule[step % 3], right + schedule[(step + 1) % 3] + ops.cast(step, "uint32")
    return left, right


class _GivenSeed(keras.random.SeedGenerator):
    """A given seed. Keras' random functions take a seed in a tensor only in the form of a generator."""

    def __init__(self, state: Any):
        # Without the parent's `__init__`, which would create a variable.
        self.given = state

    def next(self, ordered: bool = True) -> Tensor:
        return self.given
