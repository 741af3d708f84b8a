"""Several processes on loopback, each with a `TF_CONFIG` of its own."""

import json
import os
import socket
import subprocess
import sys


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


def _of_tensorflow(line):
    # Its library writes some notes before it knows the level of its log.
    return line.startswith("WARNING: All log") or line[:5] in ("I0000", "W0000", "E0000")
