"""How much does attention matter? Exact match by source length, without attention and with each score.

The task: write lines of one to four dates in eight languages as ISO dates, in reverse order. Reading a date is easy.
The longer the line, the more the model must remember until it writes it. Without attention, all of it has to pass
through one vector of fixed width, the "thought vector". All models get the same data in the same order, the same
number of steps, the same optimizer and the same widths. No day of the test set is in any training line.

    python benchmarks/thought_vector.py          # 45 minutes; prints a table and writes runs/thought_vector.png

If it is stopped, the same command continues with the models that are not trained yet.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import tempfile
import time

import numpy as np
from results import Recording, Table, options
from zoo_training.corpora.dates import Dates
from zoo_training.corpora.pairs import Pairs
from zoo_training.fitting.fit import fit
from zoo_training.schema.translator_tables import TranslatorRecipe
from zoo_training.scoring.evaluation import Accuracy, Evaluation, evaluate
from zoo_training.translation import prepare

ATTENTIONS = ("none", "additive", "concat", "general", "dot", "scaled")
LOCALES = ("en", "fr", "de", "es", "pt", "it", "nl", "sv")
MOST_DATES = 4
BIN = 10  # characters
PLOT = pathlib.Path(__file__).with_suffix(".png")
SO_FAR = pathlib.Path("runs", "thought_vector.json")


def lines(split: str, number: int, seed: int = 0) -> Pairs:
    """Lines of 1 to `MOST_DATES` dates and their ISO forms in reverse order; the groups say how many dates."""
    dates = Dates(locales=LOCALES, train_examples=number * MOST_DATES, test_days=10_000).read(split)
    random = np.random.Generator(np.random.Philox(key=[seed, len(dates)]))
    taken = iter(random.permutation(len(dates)))
    result = Pairs(groups=[])
    while len(result) < number:
        rows = list(itertools.islice(taken, 1 + len(result) % MOST_DATES))
        if not rows:
            break  # each date of the held-out splits stands in one line only
        result.sources.append("; ".join(dates.sources[row] for row in rows))
        result.targets.append(" ".join(dates.targets[row] for row in reversed(rows)))
        result.groups.append(str(len(rows)))
    return result


def train(attention: str, pairs: Pairs, validation: Pairs, epochs: int, units: int):
    """The model with that attention, trained on the lines, and the seconds it took."""
    recipe = TranslatorRecipe.model_validate(
        {
            "corpus": {"kind": "dates"},
            "model": {"attention": attention, "units": units, "embedding_dim": 64},
            "training": {
                "batch_size": 64,
                "epochs": epochs,
                "learning_rate": 2e-3,
                "warmup_steps": 200,
                "buckets": 8,
                "jit_compile": False,
            },
            "lengths": {"max_source": 140, "max_target": 50},
        }
    )
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        translator = fit(recipe, prepare(recipe, (pairs, validation)), pathlib.Path(folder)).task
    return translator, time.monotonic() - begin


def by_bin(evaluation: Evaluation) -> dict[int, Accuracy]:
    """Exact match by source length, in bins of `BIN` characters, named by their lower end."""
    bins: dict[int, Accuracy] = {}
    for length, counted in evaluation.by_length.items():
        each = bins.setdefault(length // BIN * BIN, Accuracy())
        each.correct += counted.correct
        each.total += counted.total
    return dict(sorted(bins.items()))


def table(results: dict[str, dict]) -> Table:
    """A row a model, a column a number of dates, then all lines."""
    numbers = range(1, MOST_DATES + 1)
    columns = ["attention", *(f"{n} date{'s' if n > 1 else ''}" for n in numbers), "all"]
    rows = [
        [name, *(f"{result['by_dates'][str(n)]:.1%}" for n in numbers), f"{result['all']:.1%}"]
        for name, result in results.items()
    ]
    return Table("", columns, rows)


def plot(results: dict[str, dict], path: pathlib.Path, least: int = 20) -> None:
    """Exact match against source length; bins with few lines are left out."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for name, result in results.items():
        points = [(b + BIN / 2, rate) for b, rate, total in result["by_length"] if total >= least]
        style = {"color": "black", "linewidth": 2.5} if name == "none" else {"marker": ".", "linewidth": 1.2}
        axes.plot(*zip(*points, strict=True), label="no attention" if name == "none" else name, **style)
    axes.set(xlabel="source length (characters)", ylabel="exact match", ylim=(-0.02, 1.02))
    axes.grid(alpha=0.3)
    axes.legend(title="attention")
    FigureCanvasAgg(figure).print_png(path, metadata={"Software": None})


def main() -> None:
    """Trains all models one after another, and prints and draws the result."""
    parser = options(__doc__)
    parser.add_argument("--lines", type=int, default=100_000, help="training lines (default %(default)s)")
    parser.add_argument("--epochs", type=int, default=2, help="(default %(default)s)")
    parser.add_argument("--units", type=int, default=128, help="(default %(default)s)")
    parser.add_argument("--only", nargs="*", choices=ATTENTIONS, default=ATTENTIONS)
    arguments = parser.parse_args()
    sizes = {"train": arguments.lines, "validation": 400, "test": 4000}
    train_lines, validation, test = (lines(split, number) for split, number in sizes.items())
    settings = [arguments.lines, arguments.epochs, arguments.units]
    so_far = json.loads(SO_FAR.read_text()) if SO_FAR.exists() else {}
    results = so_far.get("results", {}) if so_far.get("settings") == settings else {}
    with Recording(__file__, arguments.record, "tensorflow", "keras") as recording:
        recording.begin -= sum(each["seconds"] for each in results.values())  # of a run that was stopped
        for attention in arguments.only:
            if attention not in results:
                translator, seconds = train(attention, train_lines, validation, arguments.epochs, arguments.units)
                evaluation = evaluate(translator, test)
                results[attention] = {
                    "all": evaluation.overall.rate,
                    "by_dates": {group: each.rate for group, each in evaluation.by_group.items()},
                    "by_length": [(length, each.rate, each.total) for length, each in by_bin(evaluation).items()],
                    "seconds": seconds,
                }
                SO_FAR.parent.mkdir(exist_ok=True)
                SO_FAR.write_text(json.dumps({"settings": settings, "results": results}, indent=1))
            print(f"{attention}: {results[attention]['all']:.1%}", flush=True)
        shown = {name: results[name] for name in ATTENTIONS if name in arguments.only}
        recording.table(table(shown))
        recording.note(f"{len(train_lines):,} training lines, {arguments.epochs} epochs, {len(test):,} test lines.")
        path = PLOT if arguments.record else SO_FAR.with_suffix(".png")
        plot(shown, path)
        print(f"plot: {path}")
        if len(shown) == len(ATTENTIONS):
            SO_FAR.unlink()  # the next run measures anew


if __name__ == "__main__":
    main()
