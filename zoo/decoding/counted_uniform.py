"""Random numbers that are told by what they are for, and not by what was drawn before."""

import tensorflow as tf

# Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators" (SplitMix64); as signed numbers.
_STEP = 0x9E3779B97F4A7C15 - 2**64
_FACTORS = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64


def counted_uniform(seeds, counter):
    """Uniform numbers from 0 to below 1, multiples of 2^-24: each follows from its seed and the counter alone.

    TensorFlow's stateless random numbers follow from one seed for a whole tensor, so a row's would depend on its place
    in the batch.

    Args:
        seeds: int64, any shape.
        counter: an integer, or an integer tensor of the seeds' shape.

    Returns:
        float32 of the seeds' shape.
    """
    counter = tf.cast(counter, tf.int64) + 1
    # A seed is mixed first, so that neighbouring seeds do not give the same numbers one step apart.
    mixed = _mixed(_mixed(tf.cast(seeds, tf.int64) + _STEP) + counter * _STEP)
    return tf.cast(_shifted(mixed, 40), tf.float32) * 2.0**-24


def _mixed(state):
    """SplitMix64's finaliser: every bit of the result depends on every bit of the state."""
    state = (state ^ _shifted(state, 30)) * _FACTORS[0]
    state = (state ^ _shifted(state, 27)) * _FACTORS[1]
    return state ^ _shifted(state, 31)


def _shifted(state, bits):
    """A shift to the right that fills with zeros, which int64 does not have."""
    return tf.bitwise.right_shift(state, tf.constant(bits, tf.int64)) & ((1 << (64 - bits)) - 1)
