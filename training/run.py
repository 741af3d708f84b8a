"""A training run from its recipe to its export, and the folder it leaves behind.

`FOLDER/recipe.json` is what was run, overrides and defaults included, and `zoo train` takes it as it takes a TOML file;
`history.csv` and `best.weights.h5` come from the fitting, as does `checkpoint.npz`, which is there until all is done;
`translator/` is what `zoo.load` reads; `metrics.json` is the score on the test split.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from training.card import card
from training.checkpoint import CHECKPOINT_FILE
from training.corpora.pairs import Corpus
from training.evaluation import evaluate
from training.fitting import fit
from training.progress import progress_bar, say
from training.recipe import Recipe, read_recipe
from training.run_files import CARD_FILE, METRICS_FILE, RECIPE_FILE, TRANSLATOR_FOLDER
from zoo.atomic import write_whole
from zoo.serving import export
from zoo.text_to_text import TextToText
from zoo.translator import Translator


@dataclasses.dataclass
class Run:
    """A finished training run.

    Attributes:
        name: the recipe's name.
        recipe: what was run.
        translator: what was trained.
        metrics: what `metrics.json` holds.
    """

    name: str
    recipe: Recipe
    translator: Translator
    metrics: dict[str, Any]

    @classmethod
    def load(cls, folder: pathlib.Path) -> Run:
        """Reads a run's folder.

        Raises:
            FileNotFoundError: it is not one, or the run has not finished.
        """
        for file in (RECIPE_FILE, METRICS_FILE):
            if not (folder / file).is_file():
                raise FileNotFoundError(f"{folder} is not the folder of a finished training run: it has no {file}")
        metrics = json.loads((folder / METRICS_FILE).read_text(encoding="utf-8"))
        return cls(metrics["name"], read_back(folder), Translator.load(folder / TRANSLATOR_FOLDER), metrics)

    def export(self, path: pathlib.Path) -> pathlib.Path:
        """Exports the model with its card, metrics and recipe, and returns the new version's folder."""
        files = {
            CARD_FILE: card(self.name, self.recipe, self.translator, self.metrics),
            METRICS_FILE: to_json(self.metrics),
            RECIPE_FILE: _recipe_text(self.recipe),
        }
        return export(self.translator, path, files)


def train(name: str, recipe: Recipe, folder: pathlib.Path, command: str, restart: bool = False) -> Run:
    """Trains what the recipe says, scores it on the test split, and saves both.

    A training that was stopped goes on from its last checkpoint; one that is finished begins anew.

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
    say(f"Reading the corpus {recipe.corpus.kind!r} ...")
    train_pairs, validation_pairs = recipe.corpus.read("train"), recipe.corpus.read("validation")
    say(f"{len(train_pairs):,} pairs to train on, {len(validation_pairs):,} to validate with")
    if restart:
        (folder / CHECKPOINT_FILE).unlink(missing_ok=True)
    fitted = fit(recipe, train_pairs, validation_pairs, folder)
    translator = fitted.translator
    write_whole(folder / RECIPE_FILE, _recipe_text(recipe).encode())
    translator.save(folder / TRANSLATOR_FOLDER)
    split = "test" if "test" in recipe.corpus.splits else "validation"
    metrics = {
        "name": name,
        "split": split,
        **score(translator, recipe.corpus, split),
        "parameters": translator.model.count_params(),
        "training_pairs": len(train_pairs),
        "training_seconds": round(fitted.seconds, 1),
        "command": command,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
    }
    write_whole(folder / METRICS_FILE, to_json(metrics).encode())
    (folder / CHECKPOINT_FILE).unlink(missing_ok=True)
    return Run(name, recipe, translator, metrics)


def score(model: TextToText, corpus: Corpus, split: str) -> dict[str, Any]:
    """Evaluates by what the corpus is judged by, with a progress bar; the result is as `Evaluation.to_json`."""
    pairs, language = corpus.read(split), corpus.language
    with progress_bar(f"Scoring {split}", len(pairs)) as advance:
        return evaluate(model, pairs, advance=advance, metric=corpus.metric(split), language=language).to_json()


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
