"""A training run from its recipe to its export, and the folder it leaves behind.

`FOLDER/recipe.json` is what was run, overrides and defaults included, and `zoo train` takes it as it takes a TOML file;
`history.csv` and `best.weights.h5` come from the fitting, as does `checkpoint.npz`, which is there until all is done;
`translator/` or `generator/` is what `zoo.load` reads; `metrics.json` is the score on the test split, or else on the
validation split.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from zoo.atomic import write_whole
from zoo.loading import load
from zoo.serving import export, measure_start_up
from zoo.serving.packed import unsupported
from zoo.tasks.text_generator import TextGenerator
from zoo.tasks.translator import Translator

from . import language_modelling, translation
from .fitting.checkpoint import CHECKPOINT_FILE
from .fitting.fit import fit
from .progress import say
from .run_files import CARD_FILE, METRICS_FILE, RECIPE_FILE, read_metrics
from .schema.generator_tables import GeneratorRecipe
from .schema.recipe import Recipe, read_recipe
from .schema.translator_tables import TranslatorRecipe

# What knows how each kind of recipe is prepared, scored and saved.
_TASKS = {TranslatorRecipe: translation, GeneratorRecipe: language_modelling}


@dataclasses.dataclass
class Run:
    """A finished training run.

    Attributes:
        name: the recipe's name.
        recipe: what was run.
        trained: what was trained.
        metrics: what `metrics.json` holds.
    """

    name: str
    recipe: Recipe
    trained: Translator | TextGenerator
    metrics: dict[str, Any]

    @classmethod
    def load(cls, folder: pathlib.Path) -> Run:
        """Reads a run's folder.

        Raises:
            FileNotFoundError: it is not one, or the run has not finished.
            ValueError: one of its files cannot be read.
        """
        for file in (RECIPE_FILE, METRICS_FILE):
            if not (folder / file).is_file():
                raise FileNotFoundError(f"{folder} is not the folder of a finished training run: it has no {file}")
        metrics = read_metrics(folder)
        recipe = read_back(folder)
        trained: Any = load(folder / _TASKS[type(recipe)].SAVED_IN)
        return cls(metrics["name"], recipe, trained, metrics)

    def export(self, path: pathlib.Path) -> pathlib.Path:
        """Exports the model with its card, metrics and recipe, and returns the new version's folder.

        The exported metrics also hold `start_up`, what `zoo.serving.measure_start_up` has found, and, if the model has
        no packed form, the reason as `unpacked`.
        """

        def files(folder: pathlib.Path) -> dict[str, str]:
            start_up = dataclasses.asdict(measure_start_up(folder, self.trained))
            metrics = {**self.metrics, "start_up": start_up}
            if reason := unsupported(self.trained.model):
                metrics["unpacked"] = reason
            return {
                CARD_FILE: _TASKS[type(self.recipe)].card(self.name, self.recipe, self.trained, metrics),
                METRICS_FILE: to_json(metrics),
                RECIPE_FILE: _recipe_text(self.recipe),
            }

        return export(self.trained, path, files)


def train(name: str, recipe: Recipe, folder: pathlib.Path, command: str, restart: bool = False) -> Run:
    """Trains what the recipe says, scores it on the test split, or else on the validation split, and saves both.

    A training that was stopped goes on from its last checkpoint; one that is finished begins anew, and its model,
    recipe and scores stay until the new ones are all there.

    Args:
        name: what the model is called.
        recipe: what to train.
        folder: where the run's files go.
        command: the command that started it, for the card.
        restart: whether to begin anew, whatever the folder holds.

    Raises:
        CheckpointError: the folder holds an unfinished training of another recipe.
        CorpusError: the corpus cannot be read, or lacks a training or validation split.
        RecipeError: the recipe does not fit the corpus.
    """
    if restart:
        (folder / CHECKPOINT_FILE).unlink(missing_ok=True)
    if (folder / METRICS_FILE).is_file() and not (folder / CHECKPOINT_FILE).is_file():
        say(
            f"{folder} holds a finished training; a new one begins, and takes the place of its model and scores when it"
            " is done (--out names another folder)"
        )
    say(f"Reading the corpus {recipe.corpus.kind!r} ...")
    task = _TASKS[type(recipe)]
    prepared = task.prepare(recipe)
    fitted = fit(recipe, prepared, folder)
    split = default_split(recipe)
    metrics = {
        "name": name,
        "split": split,
        **task.score(fitted.trained, recipe.corpus, split),
        "parameters": fitted.trained.model.count_params(),
        **prepared.sizes,
        "training_seconds": round(fitted.seconds, 1),
        "command": command,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
    }
    # All at once, after the minutes that scoring may take: until now an older training's files stand here.
    write_whole(folder / RECIPE_FILE, _recipe_text(recipe).encode())
    fitted.trained.save(folder / task.SAVED_IN)
    write_whole(folder / METRICS_FILE, to_json(metrics).encode())
    (folder / CHECKPOINT_FILE).unlink(missing_ok=True)
    return Run(name, recipe, fitted.trained, metrics)


def default_split(recipe: Recipe) -> str:
    """The split that a model is scored on: the test, or the validation where there is none."""
    return "test" if "test" in recipe.corpus.splits else "validation"


def score(model: Any, recipe: Recipe, split: str) -> dict[str, Any]:
    """What `metrics.json` says of a model on a split of the recipe's corpus, found with a progress bar.

    Raises:
        ValueError: the model is not of the kind that the recipe trains.
    """
    return _TASKS[type(recipe)].score(model, recipe.corpus, split)


def read_back(folder: pathlib.Path, overrides: Iterable[str] = ()) -> Recipe:
    """The recipe that a run's or an exported version's folder was made with.

    Args:
        folder: the folder.
        overrides: changes to it, as in `read_recipe`.

    Raises:
        FileNotFoundError: the folder holds no recipe.
        RecipeError: it holds one that is not valid.
    """
    file = folder / RECIPE_FILE
    if not file.is_file():
        raise FileNotFoundError(f"{folder} holds no {RECIPE_FILE}, so what it was trained on is not known")
    return read_recipe(str(file), overrides)


def _recipe_text(recipe: Recipe) -> str:
    return recipe.model_dump_json(indent=1) + "\n"


def to_json(metrics: dict[str, Any]) -> str:
    """Metrics as the text of `metrics.json`."""
    return json.dumps(metrics, ensure_ascii=False, indent=1) + "\n"
