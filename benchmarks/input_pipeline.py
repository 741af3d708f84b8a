"""How many batches a second does the input of a training make, against the steps a second of the model?

If batches are made slower than the model takes them, it waits. Each row is a recipe of the zoo. Its model takes its
training step on batches that are made already; its pipeline makes batches that nobody takes. Neither runs while the
other one is timed. In a training both share the cores, so the ratio should be well above 1. `In files` is the same
corpus, written to files as one that is larger than memory; language models have their ids in memory.

    python benchmarks/input_pipeline.py                           # recipes that need no download
    python benchmarks/input_pipeline.py --data ~/corpora          # also of ~/corpora/multi30k, tinyshakespeare, cmudict
"""

from __future__ import annotations

import pathlib
import statistics

from harness import Contestant, Timing, race
from results import Recording, Table, options

READY = 32  # batches that the model takes in turn
AT_ONCE = 400  # batches that are timed together, more than are made ahead between two turns
# The values that make a recipe quick to prepare: how large a corpus is does not change the time of a batch.
RECIPES = {
    "shakespeare-tiny": [],
    "dates": ["corpus.train_examples=20_000", "corpus.test_days=100"],
    "pronounce": [],
    "gpt-pydoc": [],
    "bert-pydoc": [],
    "languages": ["corpus.train_examples=20_000", "corpus.sentences=false"],
    "multi30k-transformer": [],
}
# The key of a recipe that names the folder of its public corpus, and the name of that folder in --data.
FOLDERS = {
    "shakespeare-tiny": ("corpus.folder", "tinyshakespeare"),
    "pronounce": ("corpus.folder", "cmudict"),
    "multi30k-transformer": ("corpus.*.folder", "multi30k"),
}


def prepared(name: str, changes: list[str], in_files: bool = False):
    """The recipe's model and batches, as for its training, and the recipe."""
    from zoo_training import classification, language_modelling, masked_language_modelling, ragged, translation
    from zoo_training.schema.recipe import read_recipe

    if in_files:
        ragged.IN_MEMORY = 0
    recipe = read_recipe(name, changes)
    kinds = {
        "gpt": language_modelling,
        "masked_language_model": masked_language_modelling,
        "classifier": classification,
    }
    return kinds.get(recipe.model.family, translation).prepare(recipe), recipe


def step_of_model(name: str, changes: list[str]):
    """A call of the training step that `model.fit` runs."""
    from zoo_training.fitting.optimization import make_optimizer

    found, recipe = prepared(name, changes)
    model = found.objective
    model.compile(make_optimizer(recipe.training, 1000), jit_compile=recipe.uses_xla(gpu=False))
    model.optimizer.build(model.trainable_variables)
    model.make_train_function()
    data = iter(found.training_from(0).take(READY).cache().repeat())
    for _ in range(READY):  # each shape is compiled before anything is timed
        model.train_function(data)
    return lambda: float(model.train_function(data)["loss"])


def batches_of_pipeline(name: str, changes: list[str], in_files: bool):
    """A call that takes some hundred batches."""
    data = iter(prepared(name, changes, in_files)[0].training_from(0))

    def step():
        for _ in range(AT_ONCE):
            next(data)

    return step


def a_second(timing: Timing, number: int = 1) -> float:
    """How many there are in a second."""
    return number / timing.median


def times(pipeline: Timing, model: Timing) -> str:
    """How many batches are made in the time of a step: the median over the rounds."""
    ratios = (AT_ONCE * step / batches for step, batches in zip(model.rounds, pipeline.rounds, strict=True))
    return f"{statistics.median(ratios):.0f}x"


def row(name: str, changes: list[str], rounds: int) -> list[str]:
    """The cells of a recipe."""
    from zoo_training.schema.recipe import read_recipe

    contestants = [
        Contestant("model", step_of_model, (name, changes)),
        Contestant("in memory", batches_of_pipeline, (name, changes, False)),
    ]
    if read_recipe(name, changes).model.family not in ("gpt", "masked_language_model"):
        contestants.append(Contestant("in files", batches_of_pipeline, (name, changes, True)))
    model, *pipelines = race(contestants, rounds)
    cells = [cell for each in pipelines for cell in (f"{a_second(each, AT_ONCE):,.0f}", times(each, model))]
    return [f"`{name}`", f"{a_second(model):,.1f}", *cells, *[""] * (4 - len(cells))]


def main() -> None:
    """Measures each recipe."""
    parser = options(__doc__, rounds=6)
    parser.add_argument("--data", type=pathlib.Path, help="folder of the folders of public corpora")
    parser.add_argument("--only", nargs="+", choices=RECIPES, default=[*RECIPES], metavar="RECIPE")
    arguments = parser.parse_args()
    with Recording(__file__, arguments.record, "tensorflow", "keras") as recording:
        rows = []
        for name in arguments.only:
            changes = RECIPES[name]
            if name in FOLDERS:
                if arguments.data is None:
                    continue
                key, folder = FOLDERS[name]
                changes = [*changes, f'{key}="{arguments.data.expanduser() / folder}"']
            rows.append(row(name, changes, arguments.rounds))
            print(" | ".join(rows[-1]), flush=True)
        columns = ["recipe", "steps a second", "batches a second, in memory", "of a step", "in files", "of a step"]
        recording.table(Table("", columns, rows))


if __name__ == "__main__":
    main()
