"""Several workers as threads of this process, without TensorFlow's server."""

import concurrent.futures
import threading

import numpy as np
import tensorflow as tf

from zoo.distribution import Cluster, Workers


def in_threads(number, call):
    """What a function gives to each of some workers."""
    barrier, given = threading.Barrier(number), [None] * number

    def worker(index):
        workers = Workers()
        workers.count, workers.index, workers.is_chief = number, index, index == 0
        workers._cluster = Cluster(tuple(("worker", each, f"host{each}:2222") for each in range(number)), index)

        def add(tensor):
            given[index] = tensor.numpy()
            barrier.wait(60)
            total = np.sum(given, axis=0, dtype=given[0].dtype)
            barrier.wait(60)
            return tf.constant(total)

        workers.sum = add
        try:
            return call(workers)
        except BaseException:
            barrier.abort()  # the others would wait for this one
            raise

    with concurrent.futures.ThreadPoolExecutor(number) as pool:
        futures = [pool.submit(worker, index) for index in range(number)]
    # A thread that was about to leave the barrier when another one aborted it has only that to tell.
    for error in sorted(filter(None, (each.exception() for each in futures)), key=_is_of_the_barrier):
        raise error
    return [each.result() for each in futures]


def _is_of_the_barrier(error):
    return isinstance(error, threading.BrokenBarrierError)
