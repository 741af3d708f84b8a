"""How fast is a training step of the recurrent translator, against the same model written in PyTorch?

Both have the same layers and sizes, the same loss over 10,000 words, Adam with the same settings, and one batch of
64 pairs of 16 + 16 tokens. Ours is `RNNSeq2Seq` under `model.fit`'s own training step, compiled by XLA. PyTorch's is
written as its users write it (`nn.GRU`, `nn.GRUCell`, fused Adam); all that can be computed outside the loop is.

    python benchmarks/rnn_training.py            # needs the 'peers' extra
"""

from __future__ import annotations

from harness import Contestant, race
from results import Recording, compared, options, ratio

BATCH, SOURCE, TARGET, UNITS, VOCABULARY = 64, 16, 16, 256, 10_000


def zoo_step(attention: str | None, jit_compile: bool):
    """A call of the training step that `model.fit` runs."""
    import keras
    import numpy as np
    import tensorflow as tf

    from zoo.models import RNNSeq2Seq

    model = RNNSeq2Seq(VOCABULARY, VOCABULARY, attention=attention, units=UNITS)
    model.compile(
        keras.optimizers.Adam(1e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight"),
        jit_compile=jit_compile,
    )
    random = np.random.default_rng(0)
    ids = {side: random.integers(4, VOCABULARY, (BATCH, n), "int32") for side, n in (("source", 16), ("target", 16))}
    labels = random.integers(4, VOCABULARY, (BATCH, TARGET), "int32")
    batch = (ids, labels, np.ones(labels.shape, "float32"))
    data = iter(tf.data.Dataset.from_tensors(batch).repeat())
    model.make_train_function()

    def step():
        float(model.train_function(data)["loss"])

    return step


def torch_step(attention: str | None):
    """The same step in PyTorch."""
    import torch
    from torch import nn

    class Additive(nn.Module):
        def __init__(self):
            super().__init__()
            self.query = nn.Linear(UNITS, UNITS, bias=False)
            self.key = nn.Linear(2 * UNITS, UNITS, bias=False)
            self.score = nn.Linear(UNITS, 1, bias=False)

        def forward(self, state, keys, annotations):
            scores = self.score(torch.tanh(self.query(state)[:, None] + keys)).squeeze(-1)
            return torch.bmm(scores.softmax(-1)[:, None], annotations).squeeze(1)

    class Seq2Seq(nn.Module):
        def __init__(self):
            super().__init__()
            self.source_embedding = nn.Embedding(VOCABULARY, UNITS)
            self.target_embedding = nn.Embedding(VOCABULARY, UNITS)
            self.encoder = nn.GRU(UNITS, UNITS, bidirectional=True, batch_first=True)
            self.initial = nn.Linear(UNITS if attention else 2 * UNITS, UNITS)
            self.attention = Additive() if attention else None
            self.cell = nn.GRUCell(3 * UNITS, UNITS)
            self.readout = nn.Linear(4 * UNITS, UNITS)
            self.output = nn.Linear(UNITS // 2, VOCABULARY)

        def forward(self, source, target):
            annotations, last = self.encoder(self.source_embedding(source))
            embedded = self.target_embedding(target)
            thought = torch.cat([last[0], last[1]], -1)
            state = torch.tanh(self.initial(last[1] if attention else thought))
            keys = self.attention.key(annotations) if attention else None
            states, contexts = [], []
            for position in range(target.shape[1]):
                context = self.attention(state, keys, annotations) if attention else thought
                state = self.cell(torch.cat([embedded[:, position], context], -1), state)
                states.append(state)
                contexts.append(context)
            readout = self.readout(torch.cat([torch.stack(states, 1), embedded, torch.stack(contexts, 1)], -1))
            return self.output(readout.unflatten(-1, (-1, 2)).amax(-1))

    torch.manual_seed(0)
    model = Seq2Seq()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    source, target, labels = (torch.randint(4, VOCABULARY, (BATCH, n)) for n in (SOURCE, TARGET, TARGET))

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(source, target).flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def main() -> None:
    """Runs the races, with attention and without."""
    arguments = options(__doc__, rounds=6).parse_args()
    with Recording(__file__, arguments.record, "tensorflow", "keras", "torch") as recording:
        for attention, caption in (("additive", "With additive attention"), (None, "Without attention")):
            contestants = [
                Contestant("zoo, XLA", zoo_step, (attention, True)),
                Contestant("zoo, graph", zoo_step, (attention, False)),
                Contestant("PyTorch", torch_step, (attention,)),
            ]
            timings = race(contestants, arguments.rounds)
            recording.table(compared(timings, caption))
            if attention:
                recording.headline("a training step, GRU with attention", "PyTorch", ratio(timings[-1], timings[0]))


if __name__ == "__main__":
    main()
