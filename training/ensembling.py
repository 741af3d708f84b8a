"""Several trained translators as one run, which answers by the mean of their probabilities: see `zoo.models.Ensemble`.

Its folder is like that of a training, with the recipe of the first of them, so all commands work with it.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

from zoo.atomic import make_folders
from zoo.models import Ensemble
from zoo.tasks.translator import Translator
from zoo.text.tokenizer import tokenizer_to_config

from .progress import say
from .run import Run, default_split, finish, new_metrics
from .run_files import CHECKPOINT_FILE, HISTORY_FILE, METRICS_FILE, locked, read_metrics
from .scoring.seen_texts import about_seen_texts

_ENSEMBLE = "ensemble"  # in metrics: the folders of the runs


def join(
    folders: Sequence[pathlib.Path], folder: pathlib.Path, command: str, models: pathlib.Path
) -> tuple[Run, pathlib.Path]:
    """Joins finished runs, and saves, scores and exports the result, as the end of a training does.

    Args:
        folders: the runs. Lengths, decoding and corpus are those of the first. An ensemble counts as all its models.
        folder: where the files of the result go; its name is the model's name.
        command: the command that started it, for the card.
        models: the folder of exported models; the new version is `models/NAME/<version>`.

    Returns:
        The run, and the folder of the exported version.

    Raises:
        BlockingIOError: another process works in the folder.
        FileNotFoundError: a folder is not that of a finished run.
        OSError: a file cannot be written.
        ValueError: fewer than two runs, a run twice, or runs that are no translators with the same vocabularies; or the
            folder holds something else.
    """
    if len({each.resolve() for each in folders}) < max(2, len(folders)):
        raise ValueError(f"an ensemble is of two or more different runs. Received: {' '.join(map(str, folders))}")
    _check_place(folder)
    runs = [Run.load(each) for each in folders]
    task = _together(folders, [run.task for run in runs])
    first, split = runs[0], default_split(runs[0].recipe)
    for run, place in zip(runs[1:], folders[1:], strict=True):
        corpus, other = first.recipe.corpus, run.recipe.corpus
        if other != corpus and (told := about_seen_texts(corpus, split, other)):
            say(f"{place}: {told}")
    times = [run.metrics["training_seconds"] for run in runs if "training_seconds" in run.metrics]
    seconds = sum(times) if len(times) == len(runs) else None
    digests = {name: each for name, each in first.metrics.get("digests", {}).items() if name != "model"}
    sizes = {"training_pairs": first.metrics["training_pairs"], _ENSEMBLE: [*map(str, folders)]}
    metrics = new_metrics(folder.resolve().name, first.recipe, task, sizes, digests, seconds, command)
    run = Run(metrics["name"], first.recipe, task, metrics)
    make_folders(folder)
    with locked(folder):
        run.save(folder)
        return run, finish(run, folder, models)


def _check_place(folder: pathlib.Path) -> None:
    """Refuses a folder with a run that is no ensemble, finished or not, since it would be replaced."""
    is_trained = any((folder / file).exists() for file in (CHECKPOINT_FILE, HISTORY_FILE))
    # An ensemble that could not be saved has left its recipe alone.
    if is_trained or ((folder / METRICS_FILE).is_file() and _ENSEMBLE not in read_metrics(folder)):
        raise ValueError(f"{folder} holds a run that is no ensemble; choose another folder with --out")


def _together(folders: Sequence[pathlib.Path], tasks: Sequence[Any]) -> Translator:
    """The translator of all models, with the tokenizers and settings of the first."""
    first = tasks[0]
    for task, folder in zip(tasks, folders, strict=True):
        if not isinstance(task, Translator):
            raise ValueError(f"an ensemble is of translators; {folder} has a `{type(task).__name__}`")
        for side, own, other in zip(("source", "target"), task.tokenizers, first.tokenizers, strict=True):
            if tokenizer_to_config(own) != tokenizer_to_config(other):
                raise ValueError(
                    f"{folder} has another {side} vocabulary than {folders[0]}; train both with the same `[tokenizer]` "
                    "and the same texts"
                )
    models = [
        model for task in tasks for model in (task.model.models if isinstance(task.model, Ensemble) else [task.model])
    ]
    return first.with_model(Ensemble(models, name=_ENSEMBLE))
