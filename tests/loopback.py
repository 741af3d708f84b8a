"""Several processes on loopback, each with a `TF_CONFIG` of its own; and several workers as threads."""

import concurrent.futures
import json
import os
import socket
import subprocess
import sys
import threading

import numpy as np
import tensorflow as tf

from zoo.distribution import Cluster, Workers


def addresses(number):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    found = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return found


def config(hosts, index):
    return json.dumps({"cluster": {"worker": hosts}, "task": {"type": "worker", "index": index}})


def start(arguments, tf_config="", folder=None, **environment):
    """One process; its output is read by `ended`."""
    environment = {
        **os.environ,
        "TF_CONFIG": tf_config,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_NUM_INTRAOP_THREADS": "1",
        **environment,
    }
    command = [sys.executable, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, cwd=folder, stdout=pipe, stderr=pipe, text=True)


def start_all(arguments, number, **environment):
    """Processes of one program, which are workers of one cluster."""
    hosts = addresses(number)
    return [start(arguments, config(hosts, index), **environment) for index in range(number)]


def ended(process, seconds=100):
    """(exit code, stdout, our lines of stderr) of a process; one that hangs is killed, and fails the test."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"a process still ran after {seconds} seconds:\n{out}\n{err}") from None
    return process.returncode, out, [line for line in err.splitlines() if not _of_tensorflow(line)]


def in_threads(number, call):
    """What a function gives to each of some workers that are threads of this process, without TensorFlow's server."""
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


def _of_tensorflow(line):
    # Its library writes some notes before it knows the level of its log.
    return line.startswith("WARNING: All log") or line[:5] in ("I0000", "W0000", "E0000")
