import numpy as np
import tensorflow as tf

from zoo.decoding.counted_uniform import _STEP, _mixed, counted_uniform


def test_the_finaliser_is_splitmix64s():
    """The first two numbers that the published algorithm gives for the seed 1234567."""
    states = tf.constant(1234567, tf.int64) + tf.constant([1, 2], tf.int64) * _STEP
    assert [int(each) % 2**64 for each in _mixed(states)] == [6457827717110365317, 3203168211198807973]


def by_hand(seed, counter):
    def mixed(state):
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
        return state ^ state >> 31

    step = 0x9E3779B97F4A7C15
    return (mixed((mixed((seed + step) % 2**64) + (counter + 1) * step) % 2**64) >> 40) / 2**24


def test_follows_from_seed_and_counter_alone():
    seeds = [0, 1, -1, 7, 2**63 - 1, -(2**63), 1234567890123]
    for counter in (0, 1, 5, 2**31 - 1):
        found = counted_uniform(tf.constant(seeds, tf.int64), counter)
        assert found.dtype == "float32"
        assert found.numpy().tolist() == [by_hand(seed, counter) for seed in seeds]
    counters = tf.constant([3, 4])
    found = counted_uniform(tf.constant([5, 5], tf.int64), counters).numpy().tolist()
    assert found == [by_hand(5, 3), by_hand(5, 4)]


def test_is_even_and_independent_along_seeds_and_counters():
    seeds = tf.range(1000, dtype=tf.int64)
    drawn = np.stack([counted_uniform(seeds, counter) for counter in range(100)])
    assert drawn.min() >= 0 and drawn.max() < 1
    counts = np.histogram(drawn, 50, (0, 1))[0]
    assert ((counts - 2000) ** 2 / 2000).sum() < 94  # chi-square of 49 degrees of freedom, 1 in 10,000
    for one, other in ((drawn[1:], drawn[:-1]), (drawn[:, 1:], drawn[:, :-1]), (drawn[1:, :-1], drawn[:-1, 1:])):
        correlation = np.corrcoef(one.ravel(), other.ravel())[0, 1]
        assert abs(correlation) < 5 / one.size**0.5
