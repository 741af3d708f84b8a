"""How fast is multi-head attention, against Keras' layer and PyTorch's?

Self-attention in float32 without dropout, for inputs `(batch, tokens, width)` and a number of heads, without a mask and
with a causal one. The script times the forward pass, and a training step: forward, and the gradients of the inputs and
of all weights.

- Ours and Keras' run as a TensorFlow graph, and compiled by XLA.
- PyTorch's is `nn.MultiheadAttention` with `need_weights=False`. Its forward pass is timed with its fast path for
  inference and without, and the better time counts: for long inputs the fast path takes up to 1.5 times as long.

    python benchmarks/attention.py               # needs the 'peers' extra
"""

from __future__ import annotations

import statistics

from harness import Contestant, race
from results import Recording, Table, options, ratio, spread

SIZES = [(32, 128, 256, 8), (8, 512, 512, 8), (1, 2048, 512, 8)]


def keras_step(module: str, size: tuple, training: bool, causal: bool, jit_compile: bool):
    """A call of the layer of that name in the module, or of its gradients."""
    import importlib

    import numpy as np
    import tensorflow as tf

    batch, tokens, width, heads = size
    layer = importlib.import_module(module).MultiHeadAttention(heads, width // heads)
    inputs = tf.constant(np.random.default_rng(0).normal(size=(batch, tokens, width)).astype("float32"))
    layer.build(inputs.shape, inputs.shape)
    weights = [weight.value for weight in layer.trainable_weights]

    @tf.function(jit_compile=jit_compile)
    def run(x):
        if not training:
            return layer(x, x, use_causal_mask=causal)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(layer(x, x, use_causal_mask=causal) ** 2)
        return tape.gradient(loss, [x, *weights])

    def step():
        results = run(inputs)
        (results[0] if training else results).numpy()

    return step


def torch_step(size: tuple, training: bool, causal: bool, fast_path: bool):
    """The same in PyTorch."""
    import torch

    torch.backends.mha.set_fastpath_enabled(fast_path)
    batch, tokens, width, heads = size
    layer = torch.nn.MultiheadAttention(width, heads, batch_first=True).train(training)
    inputs = torch.randn(batch, tokens, width, requires_grad=training)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(tokens) if causal else None

    def step():
        with torch.set_grad_enabled(training):
            output = layer(inputs, inputs, inputs, need_weights=False, attn_mask=mask, is_causal=causal)[0]
        if training:
            torch.autograd.grad((output**2).sum(), [inputs, *layer.parameters()])

    return step


def main() -> None:
    """Runs the races: a table without a mask and one with it."""
    arguments = options(__doc__, rounds=5).parse_args()
    columns = ["batch, tokens, width, heads", "", "", "ours, ms", "Keras / ours", "range", "PyTorch / ours"]
    with Recording(__file__, arguments.record, "tensorflow", "keras", "torch") as recording:
        question = "`MultiHeadAttention`, forward pass and training step"
        every_keras, every_torch = [], []
        for causal in (False, True):
            rows, of_keras, of_torch = compare(causal, arguments.rounds)
            what = "a causal mask" if causal else "no mask"
            recording.table(Table(f"With {what}", columns, rows))
            mean = statistics.geometric_mean(of_keras)
            recording.note(f"Keras / ours in the geometric mean, with {what}: {mean:.2f}x.")
            every_keras += of_keras
            every_torch += of_torch
        recording.headline(question, "Keras' layer", *every_keras)
        recording.headline(question, "PyTorch's", *every_torch)


def compare(causal: bool, rounds: int) -> tuple[list[list[str]], list[float], list[float]]:
    """The rows of the table, and the ratios to Keras' layer and to PyTorch's."""
    rows, of_keras, of_torch = [], [], []
    for size in SIZES:
        for training in (False, True):
            contestants = [
                Contestant(f"{module} {jit}", keras_step, (module, size, training, causal, jit))
                for jit in (False, True)
                for module in ("zoo.layers", "keras.layers")
            ]
            contestants += [
                Contestant(f"torch, fast path {fast}", torch_step, (size, training, causal, fast))
                for fast in (True, False)[: 1 if training else 2]  # a training step never takes it
            ]
            timings = race(contestants, rounds)
            torch = min(timings[4:], key=lambda each: each.median)
            for mode, ours, keras in zip(("graph", "XLA"), timings[:4:2], timings[1:4:2], strict=True):
                of_keras.append(ratio(keras, ours))
                of_torch.append(ratio(torch, ours))
                rows.append(
                    [
                        ", ".join(map(str, size)),
                        "training step" if training else "forward",
                        mode,
                        f"{ours.median * 1e3:.1f}",
                        f"{of_keras[-1]:.2f}x",
                        spread(keras, ours),
                        f"{of_torch[-1]:.2f}x",
                    ]
                )
                print(*rows[-1], sep=" | ", flush=True)
    return rows, of_keras, of_torch


if __name__ == "__main__":
    main()
