"""How fast is a training step of a small GPT, against `transformers`' GPT-2 and a plain one in PyTorch?

nanoGPT's laptop configuration: 4 layers of 4 heads, width 128, 12 windows of 64 characters, a vocabulary of 65, no
dropout, AdamW, gradients clipped to a norm of 1.

- Ours is `GPT` as recipes train it.
- The plain one is what a good PyTorch programmer writes: pre-norm layers, one projection for queries, keys and values,
  `scaled_dot_product_attention`, fused AdamW.
- `transformers`' is its `GPT2LMHeadModel` with the same optimizer.

    python benchmarks/gpt_training.py                    # needs the 'peers' extra
"""

from __future__ import annotations

from harness import Contestant, race, threads
from results import Recording, compared, options, ratio

WINDOWS, LENGTH, CHARACTERS = 12, 64, 65
LAYERS, UNITS, HEADS = 4, 128, 4


def numpy_batch():
    """(tokens, labels, weights), all of them counted."""
    import numpy as np

    ids = np.random.default_rng(0).integers(4, CHARACTERS, (WINDOWS, LENGTH + 1), "int32")
    return ids[:, :-1], ids[:, 1:], np.ones((WINDOWS, LENGTH), "float32")


def zoo_step(optimizer: str, jit_compile: bool):
    """Ours."""
    import tensorflow as tf
    from zoo_training.fitting.loss import TokenPrediction
    from zoo_training.fitting.optimization import make_optimizer
    from zoo_training.schema.recipe_tables import TrainingConfig

    from zoo.models import GPT

    model = GPT(CHARACTERS, UNITS, HEADS, LAYERS, LENGTH)
    print(f"zoo: {model.count_params():,} parameters", flush=True)
    fitted = TokenPrediction(model)
    config = TrainingConfig(optimizer=optimizer, schedule="constant", weight_decay=0.1)
    fitted.compile(make_optimizer(config, 1000), jit_compile=jit_compile)
    fitted.optimizer.build(fitted.trainable_variables)
    data = iter(tf.data.Dataset.from_tensors(numpy_batch()).repeat())
    fitted.make_train_function()
    return lambda: float(fitted.train_function(data)["loss"])


def torch_step(make_model, threads: int):
    """A model of PyTorch's that gives logits."""
    import torch
    from torch import nn

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = make_model()
    print(f"PyTorch: {sum(each.numel() for each in model.parameters()):,} parameters", flush=True)
    decayed = [each for each in model.parameters() if each.dim() > 1]
    others = [each for each in model.parameters() if each.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, 1e-3, fused=True)
    tokens, labels = (torch.from_numpy(each).long() for each in numpy_batch()[:2])

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()

    return step


def plain():
    """A GPT in plain PyTorch."""
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(UNITS) for _ in range(2))
            self.qkv, self.out = nn.Linear(UNITS, 3 * UNITS), nn.Linear(UNITS, UNITS)
            self.network = nn.Sequential(
                nn.Linear(UNITS, 4 * UNITS), nn.GELU(approximate="tanh"), nn.Linear(4 * UNITS, UNITS)
            )

        def forward(self, x):
            split = self.qkv(self.norms[0](x)).unflatten(2, (3, HEADS, UNITS // HEADS)).permute(2, 0, 3, 1, 4)
            attended = nn.functional.scaled_dot_product_attention(*split, is_causal=True)
            x = x + self.out(attended.transpose(1, 2).flatten(2))
            return x + self.network(self.norms[1](x))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.positions = nn.Embedding(CHARACTERS, UNITS), nn.Embedding(LENGTH, UNITS)
            self.layers, self.norm = nn.Sequential(*(Layer() for _ in range(LAYERS))), nn.LayerNorm(UNITS)

        def forward(self, tokens):
            x = self.embedding(tokens) + self.positions(torch.arange(tokens.shape[1]))
            return self.norm(self.layers(x)) @ self.embedding.weight.T

    return Model()


def transformers_gpt2():
    """`transformers`' GPT-2."""
    import transformers
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            config = transformers.GPT2Config(
                vocab_size=CHARACTERS,
                n_positions=LENGTH,
                n_embd=UNITS,
                n_layer=LAYERS,
                n_head=HEADS,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                use_cache=False,
            )
            self.model = transformers.GPT2LMHeadModel(config)

        def forward(self, tokens):
            return self.model(tokens).logits

    return Model()


def main() -> None:
    """Runs the race."""
    arguments = options(__doc__, rounds=5).parse_args()
    peers = {"plain PyTorch": plain, "`transformers`": transformers_gpt2}
    contestants = [
        Contestant("zoo, XLA", zoo_step, ("adam", True)),
        Contestant("zoo, graph", zoo_step, ("adam", False)),
        Contestant("zoo, XLA, Muon", zoo_step, ("muon", True)),
        *(Contestant(f"{name}, {threads(n)}", torch_step, (peer, n)) for name, peer in peers.items() for n in (2, 1)),
    ]
    with Recording(__file__, arguments.record, "tensorflow", "keras", "torch", "transformers") as recording:
        timings = race(contestants, arguments.rounds, steps=20)
        recording.table(compared(timings))
        speed = WINDOWS * LENGTH / timings[0].median
        recording.note(f"The first row is {speed:,.0f} characters a second.")
        for name in peers:
            best = min((each for each in timings if each.name.startswith(name)), key=lambda each: each.median)
            recording.headline("a training step, small GPT", name, ratio(best, timings[0]))


if __name__ == "__main__":
    main()
