"""The noise that dropout multiplies by, drawn block by block and drawn again for the gradient."""

import keras
from keras import ops


class DropoutNoise:
    """Zeros with the probability `rate` and otherwise 1 / (1 - rate): Srivastava et al. 2014.

    The numbers of a block depend on the seed and the block's number alone, so a gradient can draw them again where
    keeping them would cost as much memory as the scores.

    Random numbers are most of what dropout costs, so one serves for two places along the last axis: whole for the one,
    and its lower 12 bits, which do not depend on the upper ones, for the other. There the rate is met to 1 / 4096.

    Args:
        rate: the share of zeros, at least 0 and below 1.
        seed: a `keras.random.SeedGenerator`; it takes one step.
    """

    def __init__(self, rate, seed):
        self.rate = rate
        self.state = seed.next()

    def __call__(self, shape, block=0):
        """Noise in float32.

        Args:
            shape: tuple of numbers and scalar tensors, at least one.
            block: number of the block, an integer or an integer scalar tensor.
        """
        # Steps of the generator count up the second number; blocks keep to the first.
        far = ops.cast(block, self.state.dtype) * 1_000_003
        seed = _Drawn(ops.stack([self.state[0] + far, self.state[1]]))
        *front, last = shape
        drawn = keras.random.uniform((*front, (last + 1) // 2), dtype="float32", seed=seed)  # multiples of 2^-23
        shifted = drawn * 2.0**11
        lower = shifted - ops.floor(shifted)
        kept = ops.concatenate([drawn >= self.rate, lower >= self.rate], axis=-1)[..., :last]
        return ops.cast(kept, "float32") * (1.0 / (1.0 - self.rate))


class _Drawn(keras.random.SeedGenerator):
    """A seed that is given, in the one form that Keras' random functions take a tensor in."""

    def __init__(self, state):
        # Not the parent's: it would make a variable.
        self.drawn = state

    def next(self, ordered=True):
        return self.drawn
