"""Several workers on one machine, one for each GPU: `python -m zoo.local_workers --devices all train.py`.

It sets `TF_CONFIG` for each of them, as a scheduler does for machines; see `zoo.distribution`. This module imports no
TensorFlow.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from zoo.cluster import read_cluster

_END_SECONDS = 10.0  # how long a worker may take to end
_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux
_DEVICES = pathlib.Path("/dev")
_LIBRARY = ctypes.CDLL(None) if sys.platform == "linux" else None


def gpus() -> list[str]:
    """The GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` names them."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [each.strip() for each in chosen.split(",") if each.strip() not in ("", "-1")]
    # CUDA counts from 0 what it finds: in a container with nvidia2 and nvidia3 these are 0 and 1.
    return [str(index) for index, _ in enumerate(_DEVICES.glob("nvidia[0-9]*"))]


def cores() -> int:
    """The processor's cores that this process may use, as far as the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def environments(number: int) -> Iterator[dict[str, str]]:
    """What is added to the environment of each worker: the cluster, its own GPU, and its share of the cores."""
    with contextlib.ExitStack() as stack:
        # All sockets are open at once, so that all ports differ.
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for index in range(number):
        task = {"type": "worker", "index": index}
        added = {"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task})}
        if index < len(gpus()):
            added["CUDA_VISIBLE_DEVICES"] = gpus()[index]
        else:  # more threads than cores only wait for each other
            added["TF_NUM_INTRAOP_THREADS"] = str(max(1, cores() // number))
        yield added


def check_alone() -> None:
    """Refuses a `TF_CONFIG` of several workers: each worker of this machine gets another one.

    Raises:
        ValueError: there is one.
    """
    text = os.environ.get("TF_CONFIG")
    if read_cluster(text) is not None:
        raise ValueError(
            "--devices is for one machine, and TF_CONFIG is set. For several machines, give each device a worker of "
            f"its own in TF_CONFIG, and leave --devices out. Received: TF_CONFIG={text}"
        )


def start(command: Sequence[str], number: int) -> int:
    """Runs a command once for each worker, and waits for all. If this process is ended, the workers end too.

    Returns:
        The exit code: 0 if all ended well, otherwise that of the first that did not.

    Raises:
        ValueError: there are GPUs, but fewer than workers.
    """
    if 0 < len(gpus()) < number:
        raise ValueError(
            "each process takes a GPU of its own; start fewer, or hide the GPUs by CUDA_VISIBLE_DEVICES=-1 to train on "
            f"the CPU. Received: {number} processes, and GPU {', '.join(gpus())}"
        )
    # A signal that is ignored stays so, as after `nohup`.
    signals = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) != signal.SIG_IGN]
    before = [signal.signal(each, _exit) for each in signals]
    workers: list[subprocess.Popen] = []
    try:
        for added in environments(number) if number > 1 else [{}]:
            bound = functools.partial(_end_with_parent, os.getpid())
            workers.append(subprocess.Popen(command, env={**os.environ, **added}, preexec_fn=bound))
        codes = [worker.wait() for worker in workers]
    except BaseException as error:
        # A terminal sends Ctrl-C to all, and they end by themselves.
        own = _END_SECONDS if isinstance(error, KeyboardInterrupt) else 0.0
        for seconds, end in ((own, subprocess.Popen.terminate), (_END_SECONDS, subprocess.Popen.kill)):
            deadline = time.monotonic() + seconds
            for worker in workers:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.wait(max(0.0, deadline - time.monotonic()))
            for worker in workers:
                end(worker)  # nothing happens to one that has ended
        for worker in workers:
            worker.wait()
        raise
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)
    # A negative code means that a signal killed the worker: the cause. The others then end with 75.
    failed = sorted(code for code in codes if code)
    return 0 if not failed else 128 - failed[0] if failed[0] < 0 else failed[0]


def _exit(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _end_with_parent(parent: int) -> None:
    """In a new worker. A killed parent cannot end its workers, so Linux does."""
    if _LIBRARY is not None:
        _LIBRARY.prctl(_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:  # killed already
            os._exit(1)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m zoo.local_workers", description=__doc__)
    parser.add_argument("--devices", default="all", help="how many workers: `all` GPUs of this machine, or a number")
    parser.add_argument("script", help="a Python script that uses zoo.distribution")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what follows is for the script")
    options = parser.parse_args()
    if options.devices != "all" and not (options.devices.isdigit() and int(options.devices)):
        parser.error(f"--devices must be `all` or a number from 1. Received: {options.devices}")
    number = max(1, len(gpus())) if options.devices == "all" else int(options.devices)
    try:
        check_alone()
        code = start([sys.executable, options.script, *options.arguments], number)
    except ValueError as error:
        parser.error(str(error))
    sys.exit(code)


if __name__ == "__main__":
    main()
