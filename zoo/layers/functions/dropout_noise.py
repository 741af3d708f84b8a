"""The noise that dropout multiplies by, drawn block by block and drawn again for the gradient."""

import keras
from keras import ops


class DropoutNoise:
    """Zeros with the probability `rate` and otherwise 1 / (1 - rate): Srivastava et al. 2014.

    The numbers of a block depend on the seed and the block's number alone, so a gradient can draw them again where
    keeping them would cost as much memory as the scores.

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
            shape: tuple of numbers and scalar tensors.
            block: number of the block, an integer or an integer scalar tensor.
        """
        # Steps of the generator count up the second number; blocks keep to the first.
        far = ops.cast(block, self.state.dtype) * 1_000_003
        seed = _Drawn(ops.stack([self.state[0] + far, self.state[1]]))
        kept = keras.random.uniform(shape, dtype="float32", seed=seed) >= self.rate
        return ops.cast(kept, "float32") * (1.0 / (1.0 - self.rate))


class _Drawn(keras.random.SeedGenerator):
    """A seed that is given, in the one form that Keras' random functions take a tensor in."""

    def __init__(self, state):
        # Not the parent's: it would make a variable.
        self.drawn = state

    def next(self, ordered=True):
        return self.drawn
