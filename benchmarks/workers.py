"""What does it cost that several workers average their gradients: milliseconds and bytes a step?

Each worker is a process on this machine, connected by loopback through `zoo.distribution`, as in a training. Buffers of
several sizes are summed over the workers. The bytes are those that the kernel counted on the loopback interface, for
all workers together; the ideal of a ring is 2 (n - 1) times the buffer, 2 (n - 1) / n for each. Two rows compare one
buffer of many small tensors with a message for each of them.

    python benchmarks/workers.py                       # 2 and 4 workers
    python benchmarks/workers.py --workers 3 --steps 50
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from results import Recording, Table, options

from zoo.local_workers import environments

MILLIONS = (0.01, 0.1, 1.0, 10.0)  # of float32 numbers in a buffer
SMALL = 100  # tensors of a model, which together have 0.1 million numbers


def loopback_bytes() -> int:
    """What the kernel has sent over the loopback interface so far."""
    return int(pathlib.Path("/sys/class/net/lo/statistics/tx_bytes").read_text())


def worker(steps: int) -> None:
    """One of the processes; the chief prints its results as JSON."""
    import tensorflow as tf

    from zoo.distribution import multi_worker

    with multi_worker() as workers:
        rows = []
        buffers = [(f"{size:g} million numbers", [tf.ones([int(size * 1e6)])]) for size in MILLIONS]
        small = [tf.ones([int(0.1e6) // SMALL])] * SMALL
        for name, tensors, together in [
            *((name, tensors, True) for name, tensors in buffers),
            (f"{SMALL} tensors, together 0.1 million", small, True),
            (f"{SMALL} tensors, one by one", small, False),
        ]:
            function = tf.function(lambda *parts, all_at_once=together: _sums(workers, parts, all_at_once))
            function(*tensors)
            workers.barrier()
            before, times = loopback_bytes(), []
            for _ in range(steps):
                begin = time.perf_counter()
                function(*tensors)[0].numpy()
                times.append(time.perf_counter() - begin)
            workers.barrier()
            content = sum(tensor.shape.num_elements() * 4 for tensor in tensors)
            sent = (loopback_bytes() - before) / steps
            rows.append([name, statistics.median(times), content, sent])
        if workers.is_chief:
            print(json.dumps(rows))


def _sums(workers, tensors, together):
    return workers.sums(tensors) if together else [workers.sum(tensor) for tensor in tensors]


def measured(number: int, steps: int) -> list[list[str]]:
    """The rows of the table for so many workers."""
    command = [sys.executable, __file__, "--as-worker", "--steps", str(steps)]
    processes = [
        subprocess.Popen(command, env={**os.environ, **added}, stdout=subprocess.PIPE, text=True)
        for added in environments(number)
    ]
    rows = []
    chief, *_ = [process.communicate()[0] for process in processes]
    for name, seconds, content, sent in json.loads(chief):
        ideal = 2 * (number - 1) * content
        speed = f"{ideal / number / seconds / 1e9:.2f}"
        rows.append([str(number), name, f"{seconds * 1e3:.1f}", speed, f"{sent / 1e6:.2f}", f"{sent / ideal:.2f}x"])
    return rows


def main() -> None:
    """The command line."""
    parser = options(__doc__ or "")
    parser.add_argument("--workers", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--as-worker", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if chosen.as_worker:
        worker(chosen.steps)
        return
    with Recording(__file__, chosen.record, "tensorflow", "keras") as recording:
        columns = ["workers", "buffer", "ms", "GB/s a worker", "MB sent by all", "of the ring's ideal"]
        recording.table(Table("", columns, [row for each in chosen.workers for row in measured(each, chosen.steps)]))


if __name__ == "__main__":
    main()
