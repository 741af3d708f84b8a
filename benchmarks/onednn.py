"""What do oneDNN's operations gain on a processor with AVX2 and without AVX-512, where TensorFlow does not use them?

TensorFlow's wheel has oneDNN's products and softmax. It uses them where the processor has instructions for neural
networks, such as AVX-512 VNNI, and elsewhere if `TF_ENABLE_ONEDNN_OPTS=1`. The zoo's commands set that variable
(`training/start_tensorflow.py`). This script has the measurements behind it: the same work with the variable at 1 and
at 0, answers with one thread for each operation.

On a processor with AVX-512, oneDNN is held to AVX2 (`ONEDNN_MAX_CPU_ISA=AVX2`). TensorFlow's own operations are not, so
on a processor with AVX2 alone oneDNN may gain more.

    python benchmarks/onednn.py
"""

from __future__ import annotations

import os
import pathlib
import tempfile

import attention
import embedding
import gpt_training
import rnn_training
import serving
import translation_training
from harness import Contestant, race
from results import Recording, Table, options, ratio, spread
from tokenizing import help_sentences


def with_onednn(on: bool, build, *arguments):
    """What `build` builds, in a process with oneDNN's operations or without them."""
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = str(int(on))
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"
    return build(*arguments)


def works(scratch: pathlib.Path) -> dict[str, tuple]:
    """What is measured: a function that builds a step, and its arguments, by name."""
    import zoo

    translator = serving.build()
    translator.beam_size = 5
    translating = str(zoo.serving.export(translator, scratch / "translator"))
    sentences = [text for text in help_sentences() if len(text.split()) in embedding.WORDS]
    (scratch / "encoder").mkdir()
    embedding.write_checkpoint(scratch / "encoder", sentences)
    encoding = str(zoo.serving.export(zoo.load(scratch / "encoder"), scratch / "exported"))
    found: dict[str, tuple] = {
        "training step, RNN with attention": (rnn_training.zoo_step, "additive", False),
        "training step, transformer": (translation_training.zoo_step, 0.1, 0.1, False),
        "training step, transformer, XLA": (translation_training.zoo_step, 0.1, 0.1, True),
        "training step, GPT": (gpt_training.zoo_step, "adam", False),
        "training step, GPT, XLA": (gpt_training.zoo_step, "adam", True),
    }
    size = attention.SIZES[1]
    for training, what in ((False, "forward"), (True, "forward and gradients")):
        name = f"`MultiHeadAttention` {size}, {what}"
        found[name] = (attention.keras_step, "zoo.layers", size, training, False, False)
    for rows in (32, 1):
        plural = "s" if rows > 1 else ""
        found[f"translate {rows} text{plural} with 5 beams"] = (translate, translating, rows)
        found[f"{rows} sentence{plural} to vectors"] = (embed, encoding, sentences[:rows])
    return found


def used() -> bool:
    """Whether this process uses oneDNN's operations."""
    return os.environ["TF_ENABLE_ONEDNN_OPTS"] == "1"


def translate(path: str, rows: int):
    """A request to the exported translator."""
    return serving.zoo_step(path, rows, 1, 1, used())


def embed(path: str, texts: list[str]):
    """A request to the exported encoder."""
    call = serving.session_call(path, 1, used(), "embedding")
    return lambda: call(texts)[0]


def main() -> None:
    """Runs the races; a row of the table is one of them."""
    parser = options(__doc__, rounds=5)
    parser.add_argument("--only", help="works whose name has this in it")
    arguments = parser.parse_args()
    with (
        Recording(__file__, arguments.record, "tensorflow", "keras") as recording,
        tempfile.TemporaryDirectory() as scratch,
    ):
        rows = []
        for name, work in works(pathlib.Path(scratch)).items():
            if arguments.only and arguments.only not in name:
                continue
            with_it, without = race(
                [Contestant(f"oneDNN {on}", with_onednn, (on, *work)) for on in (True, False)], arguments.rounds
            )
            times = (f"{each.median * 1e3:.1f} ms" for each in (with_it, without))
            rows.append([name, *times, f"{ratio(without, with_it):.2f}x", spread(without, with_it)])
            print(*rows[-1], flush=True)
        recording.table(Table("", ["", "with oneDNN", "without", "without / with", "range over the rounds"], rows))


if __name__ == "__main__":
    main()
