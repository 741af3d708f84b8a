"""Batches that are made ahead, in threads of TensorFlow, while the process ends."""

import subprocess
import sys

import numpy as np
import tensorflow as tf
from zoo_training.batches.buckets import numbered_batches

PROGRAM = """
import time
import numpy as np, tensorflow as tf
from zoo_training.batches.buckets import numbered_batches

def make(step):
    end = time.perf_counter() + 0.01
    while time.perf_counter() < end:  # as NumPy does, it keeps Python to itself
        pass
    return (np.full(3, step, np.int32),)

dataset = numbered_batches(make, [tf.TensorSpec([3], tf.int32)], lambda step, array: array, 5, None)
iterator = iter(dataset)
print([next(iterator).numpy().tolist() for _ in range(60)][-1], flush=True)
"""


def test_a_process_ends_while_batches_are_made_that_nobody_takes():
    """Without a care for them, one process in four never ended."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, timeout=120, check=True, text=True)
    assert done.stdout == "[64, 64, 64]\n"


def test_no_thread_tunes_how_many_are_made_ahead():
    """It may sleep for half a minute, and the end of a training waits for it."""
    spec = tf.TensorSpec([3], tf.int32)
    dataset = numbered_batches(lambda step: (np.full(3, step, np.int32),), [spec], lambda step, array: array, 5, 9)
    assert dataset.options().autotune.enabled is False
    assert dataset.take(2).repeat(2).options().autotune.enabled is False  # what a training makes of it
