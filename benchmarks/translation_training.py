"""How fast is a training step of the transformer, against the same model made of PyTorch's and of KerasHub's parts?

All three have the same layers, sizes, parameters and sinusoidal positions, one matrix for both embeddings and the
output, post-norm, dropout, and Adam. A batch has 128 pairs of 16 + 16 tokens; there are 10,000 words.

- Ours is `Transformer` as recipes train it (`TokenPrediction` with label smoothing).
- PyTorch's is made of `nn.TransformerEncoderLayer` and `nn.TransformerDecoderLayer`, with its own smoothed cross
  entropy and fused Adam. It also has dropout inside the feed-forward network; ours has it too in this race.
- KerasHub's is made of `TransformerEncoder`, `TransformerDecoder` and `ReversibleEmbedding`, with Keras' sparse cross
  entropy, without label smoothing. It has no dropout inside the feed-forward network, and neither has ours in this
  race.

    python benchmarks/translation_training.py            # needs the 'peers' extra
"""

from __future__ import annotations

from harness import Contestant, race
from results import Recording, compared, options, ratio
from serving import best

PAIRS, LENGTH, VOCABULARY = 128, 16, 10_000
LAYERS, UNITS, HEADS, FEED_FORWARD = 4, 128, 4, 256


def numpy_batch():
    """({source, target}, labels, weights), all positions filled."""
    import numpy as np

    random = np.random.default_rng(0)
    source, target, labels = (random.integers(4, VOCABULARY, (PAIRS, LENGTH), "int32") for _ in range(3))
    return {"source": source, "target": target}, labels, np.ones(labels.shape, "float32")


def keras_step(model):
    """A call of the training step that `model.fit` runs."""
    import tensorflow as tf

    data = iter(tf.data.Dataset.from_tensors(numpy_batch()).repeat())
    model.make_train_function()
    return lambda: float(model.train_function(data)["loss"])


def zoo_step(dropout: float, feed_forward_dropout: float, jit_compile: bool):
    """Ours."""
    from zoo_training.fitting.loss import TokenPrediction
    from zoo_training.fitting.optimization import FusedAdam

    from zoo.models import Transformer

    model = Transformer(
        VOCABULARY,
        VOCABULARY,
        units=UNITS,
        num_heads=HEADS,
        feed_forward_units=FEED_FORWARD,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        dropout=dropout,
        attention_dropout=dropout,
        feed_forward_dropout=feed_forward_dropout,
        tied_embeddings="all",
    )
    print(f"zoo: {model.count_params():,} parameters", flush=True)
    fitted = TokenPrediction(model, label_smoothing=0.1)
    fitted.compile(FusedAdam(1e-3), jit_compile=jit_compile)
    return keras_step(fitted)


def keras_hub_step(dropout: float, jit_compile: bool):
    """KerasHub's layers."""
    import keras
    import keras_hub

    def parts(layer):
        arguments = {"dropout": dropout, "activation": "relu"}
        return [layer(FEED_FORWARD, HEADS, **arguments) for _ in range(LAYERS)]

    embedding = keras_hub.layers.ReversibleEmbedding(VOCABULARY, UNITS)
    positions, drop = keras_hub.layers.SinePositionEncoding(), keras.layers.Dropout(dropout)

    def embedded(ids):
        vectors = embedding(ids) * UNITS**0.5
        return drop(vectors + positions(vectors))

    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    mask = keras.ops.not_equal(source, 0)
    memory = embedded(source)
    for layer in parts(keras_hub.layers.TransformerEncoder):
        memory = layer(memory, padding_mask=mask)
    hidden = embedded(target)
    for layer in parts(keras_hub.layers.TransformerDecoder):
        hidden = layer(hidden, memory, encoder_padding_mask=mask)
    model = keras.Model({"source": source, "target": target}, embedding(hidden, reverse=True))
    print(f"KerasHub: {model.count_params():,} parameters", flush=True)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
    model.compile(keras.optimizers.Adam(1e-3), loss, jit_compile=jit_compile)
    return keras_step(model)


def torch_step(dropout: float):
    """The parts of `nn.Transformer`."""
    import math

    import torch
    from torch import nn

    def sinusoids():
        angles = torch.arange(LENGTH)[:, None] * torch.exp(-math.log(10000.0) * torch.arange(0, UNITS, 2) / UNITS)
        return torch.cat([angles.sin(), angles.cos()], dim=1)

    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            arguments = {"dim_feedforward": FEED_FORWARD, "dropout": dropout, "batch_first": True}
            self.embedding = nn.Embedding(VOCABULARY, UNITS)
            nn.init.normal_(self.embedding.weight, std=UNITS**-0.5)
            self.dropout = nn.Dropout(dropout)
            self.encoder = nn.TransformerEncoder(
                nn.TransformerEncoderLayer(UNITS, HEADS, **arguments), LAYERS, enable_nested_tensor=False
            )
            self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(UNITS, HEADS, **arguments), LAYERS)
            self.register_buffer("positions", sinusoids())

        def embedded(self, ids):
            return self.dropout(self.embedding(ids) * UNITS**0.5 + self.positions)

        def forward(self, source, target):
            padding = source == 0
            memory = self.encoder(self.embedded(source), src_key_padding_mask=padding)
            causal = nn.Transformer.generate_square_subsequent_mask(LENGTH)
            hidden = self.decoder(
                self.embedded(target),
                memory,
                tgt_mask=causal,
                tgt_is_causal=True,
                memory_key_padding_mask=padding,
            )
            return hidden @ self.embedding.weight.T

    torch.manual_seed(0)
    model = Translator()
    print(f"PyTorch: {sum(each.numel() for each in model.parameters()):,} parameters", flush=True)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    inputs, labels, _ = numpy_batch()
    source, target, labels = (torch.from_numpy(each).long() for each in (inputs["source"], inputs["target"], labels))

    def step():
        optimizer.zero_grad()
        logits = model(source, target).flatten(0, 1)
        loss = nn.functional.cross_entropy(logits, labels.flatten(), ignore_index=0, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def main() -> None:
    """Runs the races, with dropout and without."""
    parser = options(__doc__, rounds=5)
    parser.add_argument("--dropout", type=float, nargs="+", default=[0.1, 0.0])
    arguments = parser.parse_args()
    with Recording(__file__, arguments.record, "tensorflow", "keras", "torch", "keras-hub") as recording:
        for dropout in arguments.dropout:
            ours = {"zoo, graph": False, "zoo, XLA": True}
            as_keras_hub = [Contestant(name, zoo_step, (dropout, 0.0, xla)) for name, xla in ours.items()]
            as_torch = [Contestant(name, zoo_step, (dropout, dropout, xla)) for name, xla in ours.items()]
            keras_hub = [
                Contestant("KerasHub, graph", keras_hub_step, (dropout, False)),
                Contestant("KerasHub, XLA", keras_hub_step, (dropout, True)),
            ]
            torch = [Contestant("PyTorch", torch_step, (dropout,))]
            races = {
                "PyTorch": (", everywhere", as_torch + torch),
                "KerasHub": (", none inside the feed-forward", as_keras_hub + keras_hub),
            }
            if not dropout:  # there is but one model
                races = {"": ("", as_torch + keras_hub + torch)}
            for peer, (where, contestants) in races.items():
                timings = race(contestants, arguments.rounds)
                recording.table(compared(timings, f"Dropout {dropout:g}{where}"))
                if dropout:
                    recording.headline("a training step, transformer", peer, ratio(best(timings, peer), timings[0]))


if __name__ == "__main__":
    main()
