"""How much memory and time does attention to a long text take?

Causal self-attention of 8,192 tokens, 4 heads of width 64, float32, forward and backward. The rows of the tables:

- blocks, the default for so many tokens;
- strips (`blockwise=False`), the default for fewer tokens;
- the whole matrix of scores with TensorFlow's gradient, as in Keras' layer;
- PyTorch's `scaled_dot_product_attention`.

Memory is the peak of a separate process, less what it held before the first step. The last figure is of one step of
`fit` of a model with one `MultiHeadAttention` and 32,768 tokens: the peak of the whole process.

    python benchmarks/long_attention.py          # needs the 'peers' extra and about 8 GB of memory
"""

from __future__ import annotations

import concurrent.futures
import importlib
import multiprocessing
import os
import resource

from harness import Contestant, race
from results import Recording, Table, options, ratio, spread
from zoo_training.start_tensorflow import without_notes

HEADS, WIDTH = 4, 64
WAYS = ("blocks", "strips", "whole matrix")


def inputs(tokens: int):
    """Query, key, value and the gradient of the output, each `(1, tokens, HEADS, WIDTH)`."""
    import numpy as np

    random = np.random.default_rng(0)
    return [random.normal(size=(1, tokens, HEADS, WIDTH)).astype("float32") for _ in range(4)]


def attention_step(tokens: int, way: str, jit_compile: bool):
    """A call of attention and its gradients; it returns the output and the three gradients."""
    import tensorflow as tf

    from zoo.layers.functions import AttentionMask, scaled_dot_product_attention

    whole = way == "whole matrix"
    if whole:  # no strips of any length
        module = importlib.import_module("zoo.layers.functions.scaled_dot_product_attention")
        module.SHORTEST = module.SHORTEST_UNDER_XLA = tokens + 1
    query, key, value, direction = (tf.constant(array) for array in inputs(tokens))

    @tf.function(jit_compile=jit_compile)
    def run(query, key, value):
        with tf.GradientTape() as tape:
            tape.watch((query, key, value))
            inputs = query, key, value, AttentionMask(causal=True)
            output = scaled_dot_product_attention(*inputs, blockwise=way == "blocks", hand_gradient=not whole)
            loss = tf.reduce_sum(output * direction)
        return output, *tape.gradient(loss, (query, key, value))

    return lambda: [result.numpy() for result in run(query, key, value)]


def torch_step(tokens: int):
    """The same in PyTorch."""
    import torch

    query, key, value, direction = (torch.tensor(array).swapaxes(1, 2) for array in inputs(tokens))
    for each in (query, key, value):
        each.requires_grad_()

    def step():
        output = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        gradients = torch.autograd.grad((output * direction).sum(), (query, key, value))
        return [each.detach().swapaxes(1, 2).numpy() for each in (output, *gradients)]

    return step


def model_step(tokens: int, jit_compile: bool):
    """A step of `fit` of a model with one layer of causal self-attention, which chooses blocks automatically."""
    import keras
    import numpy as np

    from zoo.layers import MultiHeadAttention

    x = keras.Input((tokens, HEADS * WIDTH))
    model = keras.Model(x, MultiHeadAttention(HEADS, WIDTH)(x, x, use_causal_mask=True))
    model.compile("adam", "mse", jit_compile=jit_compile)
    x = np.random.default_rng(0).normal(size=(1, tokens, HEADS * WIDTH)).astype("float32")
    return lambda: model.fit(x, x, batch_size=1, verbose=0)


def _measured(pipe, build, arguments, steps):
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with without_notes():
        step = build(*arguments)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        results = step()
        for _ in range(steps - 1):
            step()
    pipe.send(
        (before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, results if isinstance(results, list) else [])
    )


def peak(build, *arguments, steps: int = 2):
    """Peak memory in MB in a separate process, before the first step and after the last, and the step's results."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_measured, args=(theirs, build, arguments, steps))
    process.start()
    before, after, results = ours.recv()
    process.join()
    return before / 1024, after / 1024, results  # ru_maxrss is in KiB on Linux


def main() -> None:
    """Measures memory, then runs the races, in a graph and compiled by XLA."""
    parser = options(__doc__, rounds=4)
    parser.add_argument("--tokens", type=int, default=8192, help="length for the comparison (default %(default)s)")
    parser.add_argument("--long", type=int, default=32_768, help="length for the training step (default %(default)s)")
    arguments = parser.parse_args()
    times, sizes = [], []  # of Keras' way, in blocks'
    with Recording(__file__, arguments.record, "tensorflow", "keras", "torch") as recording:
        for jit, mode in ((False, "graph"), (True, "XLA")):
            tries = {way: (attention_step, (arguments.tokens, way, jit)) for way in WAYS}
            tries["PyTorch"] = torch_step, (arguments.tokens,)
            with concurrent.futures.ThreadPoolExecutor(2) as pool:  # nothing is timed yet
                peaks = [pool.submit(peak, build, *values) for build, values in tries.values()]
                long = pool.submit(peak, model_step, arguments.long, jit, steps=1)
            memory = [after - before for before, after, _ in (each.result() for each in peaks)]
            results = [each.result()[2] for each in peaks]
            contestants = [Contestant(name, *each) for name, each in tries.items()]
            timings = race(contestants, arguments.rounds, steps=1, warm_up=1)
            rows = []
            for timing, megabytes, result in zip(timings, memory, results, strict=True):
                apart = max(abs(a - b).max() for a, b in zip(results[0], result, strict=True))
                cells = [timing.name, f"{megabytes:,.0f}", f"{megabytes / memory[0]:.1f}x", f"{timing.median:.2f}"]
                cells += [f"{ratio(timing, timings[0]):.2f}x", spread(timing, timings[0]), f"{apart:.0e}"]
                rows.append(cells)
            columns = ["", "peak, MB", "its peak / blocks'", "s a step", "its time / blocks'", "range", "difference"]
            recording.table(Table(f"{arguments.tokens:,} tokens, {mode}", columns, rows))
            whole = WAYS.index("whole matrix")
            times.append(ratio(timings[whole], timings[0]))
            sizes.append(memory[whole] / memory[0])
            _, whole_process, _ = long.result()
            recording.note(
                f"A training step of {arguments.long:,} tokens, {mode}: {whole_process:,.0f} MB, the whole process."
            )
        task = f"attention to {arguments.tokens:,} tokens, forward and backward"
        recording.headline(task, "the full score matrix", *times)
        recording.headline(f"{task}, memory", "the full score matrix", *sizes)


if __name__ == "__main__":
    main()
