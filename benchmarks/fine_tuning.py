"""How fast is a step of fine-tuning a classifier of MiniLM's size, against `transformers` on PyTorch?

Both train all 22.7 million weights of BERT's architecture (6 layers, width 384, 12 heads, feed-forward 1536, a
vocabulary of 30,522 pieces), with a new head of two classes on the first token's vector. A batch has 32 texts padded to
32 tokens, a third of them shorter. Dropout is 0.1 everywhere, the optimizer AdamW, and the norm of all gradients is
clipped to 1. Ours is what a recipe trains (`ClassPrediction`). PyTorch's is `BertForSequenceClassification` with its
fused AdamW.

    python benchmarks/fine_tuning.py            # needs the 'peers' extra
    python benchmarks/fine_tuning.py --length 32 128      # texts of 128 tokens, too
"""

from __future__ import annotations

from harness import Contestant, race
from results import Recording, compared, options, ratio

TEXTS, LENGTH, VOCABULARY, CLASSES = 32, 32, 30_522, 2
LAYERS, UNITS, HEADS, FEED_FORWARD = 6, 384, 12, 1536


def numpy_batch(length: int):
    """(ids, labels), the rows of different lengths."""
    import numpy as np

    random = np.random.default_rng(0)
    ids = random.integers(1000, VOCABULARY, (TEXTS, length), "int32")
    lengths = np.where(random.random(TEXTS) < 1 / 3, random.integers(length // 2, length, TEXTS), length)
    ids[np.arange(length) >= lengths[:, None]] = 0
    return ids, random.integers(0, CLASSES, TEXTS, "int32")


def zoo_step(length: int, jit_compile: bool):
    """Ours."""
    import numpy as np
    import tensorflow as tf
    from zoo_training.fitting.loss import ClassPrediction
    from zoo_training.fitting.optimization import make_optimizer
    from zoo_training.schema.classifier_tables import ClassifierTraining

    from zoo.models import Classifier, Encoder

    encoder = Encoder(
        VOCABULARY,
        units=UNITS,
        num_heads=HEADS,
        num_layers=LAYERS,
        feed_forward_units=FEED_FORWARD,
        max_length=512,
        num_segments=2,
    )
    model = Classifier(encoder, CLASSES, pooling="first", hidden_units=UNITS)
    print(f"zoo: {model.count_params():,} parameters", flush=True)
    config = ClassifierTraining(learning_rate=5e-5, weight_decay=0.01, schedule="constant")
    fitted = ClassPrediction(model)
    fitted.compile(make_optimizer(config, 1000), jit_compile=jit_compile)
    ids, labels = numpy_batch(length)
    batch = {"ids": ids, "segments": np.zeros_like(ids)}, labels, np.ones(TEXTS, "float32")
    data = iter(tf.data.Dataset.from_tensors(batch).repeat())
    fitted.make_train_function()
    return lambda: float(fitted.train_function(data)["loss"])


def transformers_step(length: int):
    """`transformers`."""
    import torch
    import transformers

    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=UNITS,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=FEED_FORWARD,
        num_labels=CLASSES,
    )
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(config).train()
    print(f"transformers: {sum(each.numel() for each in model.parameters()):,} parameters", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), 5e-5, weight_decay=0.01, fused=True)
    ids, labels = (torch.from_numpy(each).long() for each in numpy_batch(length))
    mask = (ids != 0).long()

    def step():
        optimizer.zero_grad()
        loss = model(ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step


def main() -> None:
    """Runs the races, a table for each length."""
    parser = options(__doc__, rounds=5)
    parser.add_argument("--length", type=int, nargs="+", default=[LENGTH], help="tokens (default %(default)s)")
    arguments = parser.parse_args()
    with Recording(__file__, arguments.record, "tensorflow", "keras", "torch", "transformers") as recording:
        ratios = []
        for length in arguments.length:
            contestants = [
                Contestant("zoo, graph", zoo_step, (length, False)),
                Contestant("zoo, XLA", zoo_step, (length, True)),
                Contestant("`transformers`", transformers_step, (length,)),
            ]
            timings = race(contestants, arguments.rounds)
            recording.table(compared(timings, f"{TEXTS} texts of {length} tokens"))
            *ours, peer = timings
            ratios.append(ratio(peer, min(ours, key=lambda each: each.median)))
        recording.headline("a step of fine-tuning, MiniLM's size", "`transformers`", *ratios)


if __name__ == "__main__":
    main()
