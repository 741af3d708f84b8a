"""A training run from its recipe to its export, and the folder that it leaves behind.

`FOLDER/recipe.json` is what was run, with overrides and defaults; `zoo train` takes it as it takes a TOML file.
`history.csv` and `best.weights.h5` come from the fitting, as does `checkpoint.npz`. `translator/`, `generator/`,
`classifier/` or `filler/` is what `zoo.load` reads; `metrics.json` holds the scores on the test split, or on the
validation split where there is no test split, and a hash of the model that was scored.

A run has three stages, and a run that was stopped goes on with the stage that it was stopped in:

1. training, as long as there is a `checkpoint.npz`; at its end the model is saved;
2. scoring, as long as `metrics.json` says `"unfinished": "scoring"`;
3. export, as long as it says `"unfinished": "export"`.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import pathlib
import re
import shutil
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf

from zoo.atomic import make_folders, remove_abandoned, write_whole
from zoo.checkpoints import other_format
from zoo.cluster import ClusterError, read_cluster
from zoo.distribution import Workers, multi_worker
from zoo.extras import needs
from zoo.loading import load, models_in
from zoo.serving import export
from zoo.tasks.task import SavedTask

from . import classification, language_modelling, masked_language_modelling, translation
from .cards import serving_metrics
from .fitting.checkpoint import CheckpointError, changes, check_unfinished
from .fitting.fit import Prepared, fit
from .progress import be_silent, say
from .run_files import (
    CACHE_FOLDER,
    CARD_FILE,
    CHECKPOINT_FILE,
    HISTORY_FILE,
    METRICS_FILE,
    MODEL_CHANGED,
    RECIPE_FILE,
    about_changed_model,
    check_room,
    checked_metrics,
    locked,
    not_written,
    read_metrics,
    saved_digest,
)
from .schema.classifier_tables import ClassifierRecipe, MaskedLanguageModelRecipe
from .schema.generator_tables import GeneratorRecipe
from .schema.recipe import Recipe, read_recipe
from .schema.translator_tables import TranslatorRecipe

# The module of each kind of recipe. Each has `prepare`, `score`, `digest`, `card` and `SAVED_IN`, the model's folder.
_PROCEDURES: dict[type[Recipe], Any] = {
    TranslatorRecipe: translation,
    GeneratorRecipe: language_modelling,
    ClassifierRecipe: classification,
    MaskedLanguageModelRecipe: masked_language_modelling,
}
_SCORING, _EXPORT = "scoring", "export"
_TRAINING, _NOTHING, _REFUSED = b"training", b"nothing", b"refused: "  # what the chief tells the other workers
_READ = ("train", "validation")  # the splits that a training reads


@dataclasses.dataclass
class Run:
    """A trained run.

    Attributes:
        name: the recipe's name.
        recipe: what was run.
        task: the trained model with its tokenizers.
        metrics: what `metrics.json` holds.
    """

    name: str
    recipe: Recipe
    task: SavedTask
    metrics: dict[str, Any]

    @classmethod
    def load(cls, folder: pathlib.Path) -> Run:
        """Reads a run's folder. If its model was replaced, the scores of the former one are left out.

        Raises:
            FileNotFoundError: it is not one, or its model is not trained yet.
            ValueError: one of its files cannot be read.
        """
        for file in (RECIPE_FILE, METRICS_FILE):
            if not (folder / file).is_file():
                if (folder / CHECKPOINT_FILE).is_file():
                    raise FileNotFoundError(
                        f"{folder} holds a training that has not ended; the command that began it goes on with it"
                    )
                if instead := other_format(folder):
                    raise FileNotFoundError(f"{folder} holds {instead}")
                hint = ""
                if inside := models_in(folder):
                    hint = f"; the models in it are {inside}"
                elif any((folder / f"{each.SAVED_IN}.json").is_file() for each in _PROCEDURES.values()):
                    hint = "; it is a saved model, so give the run that has it, or call zoo.serving.export in Python"
                raise FileNotFoundError(
                    f"{folder} is not the folder of a finished training run: it has no {file}; nor is it a checkpoint "
                    f"of Hugging Face, which has config.json{hint}"
                )
        metrics = checked_metrics(folder)
        recipe = read_back(folder)
        task: Any = load(folder / _PROCEDURES[type(recipe)].SAVED_IN)
        if metrics.get("not_scored") == MODEL_CHANGED:
            say(about_changed_model(folder))
            metrics["parameters"] = task.model.count_params()
        return cls(metrics["name"], recipe, task, metrics)

    def models(self, folder: pathlib.Path) -> pathlib.Path | None:
        """The folder of exported models that the training exported to; None of a run of version 0.1.

        The run keeps it as seen from its own folder. If it is not there, since the run was moved or the models were
        removed, it is the folder of that name in the working directory.

        Args:
            folder: the run's folder.
        """
        if "models" not in self.metrics:
            return None
        place = pathlib.Path(self.metrics["models"])
        if place.is_absolute():
            return place
        found, here = pathlib.Path(os.path.normpath(folder.resolve() / place)), pathlib.Path.cwd()
        if not found.is_dir():
            return pathlib.Path(*(part for part in place.parts if part != os.pardir))
        return found.relative_to(here) if found.is_relative_to(here) else found

    def save(self, folder: pathlib.Path) -> None:
        """Writes what `load` reads; the metrics last, because they say that the model is there."""
        write_whole(folder / RECIPE_FILE, _recipe_text(self.recipe).encode())
        saved = folder / _PROCEDURES[type(self.recipe)].SAVED_IN
        check_room(saved, 4 * self.task.model.count_params())
        try:
            self.task.save(saved)
        except (OSError, RuntimeError) as error:  # h5py raises both where the disk is full
            raise not_written(saved, error) from error
        for other in {procedure.SAVED_IN for procedure in _PROCEDURES.values()} - {saved.name}:
            shutil.rmtree(folder / other, ignore_errors=True)  # of an earlier recipe, with another family
        self.save_metrics(folder)

    def save_metrics(self, folder: pathlib.Path) -> None:
        """Writes the metrics, with a hash of the saved model that they belong to."""
        self.metrics.setdefault("digests", {})["model"] = saved_digest(folder)
        write_whole(folder / METRICS_FILE, to_json(self.metrics).encode())

    def export(self, path: pathlib.Path, weights: str = "float32", explore: bool = False) -> pathlib.Path:
        """Exports the model with its card, metrics and recipe, and returns the new version's folder.

        The exported metrics also hold `start_up`, the result of `zoo.serving.measure_start_up`; `stored_as`, if the
        weights are not in float32; and `unpacked`, if the model has no packed form: the reason why.

        Args:
            path: the model's folder.
            weights: how the files store the weights, see `zoo.serving.export`.
            explore: whether people can choose tokens, see there.
        """

        def files(folder: pathlib.Path) -> dict[str, str]:
            metrics = self.metrics | serving_metrics(folder, self.task, weights, explore)
            for of_run in ("unfinished", "models"):
                metrics.pop(of_run, None)
            return {
                CARD_FILE: _PROCEDURES[type(self.recipe)].card(self.name, self.recipe, self.task, metrics),
                METRICS_FILE: to_json(metrics),
                RECIPE_FILE: _recipe_text(self.recipe),
            }

        return export(self.task, path, files, weights=weights, explore=explore)


def train(
    name: str,
    recipe: Recipe,
    folder: pathlib.Path,
    command: str,
    models: pathlib.Path,
    restart: bool = False,
    wait: float = 60.0,
) -> tuple[Run, pathlib.Path] | None:
    """Trains what the recipe says, saves it, scores it, and exports it.

    A run that was stopped goes on where it was stopped; one that is finished begins anew, and its model, recipe and
    scores stay until the new model is trained. If scoring fails, only the scores are missing: the model is saved
    before it and exported after it.

    Where `TF_CONFIG` names several workers, they train together; see `zoo.distribution`. The chief alone writes files,
    and scores and exports; the others end after the training, and the chief then goes on without them.

    Args:
        name: the model's name.
        recipe: what to train.
        folder: where the run's files go.
        command: the command that started it, for the card.
        models: the folder of exported models; the new version is `models/name/<version>`.
        restart: whether to start again, even if the folder holds an unfinished run.
        wait: how many seconds the workers may take to start.

    Returns:
        The run, and the folder of the exported version; None on a worker that is not the chief.

    Raises:
        MissingExtraError: the recipe asks for TensorBoard's logs, and it is not installed.
        BlockingIOError: another process trains in the folder.
        CheckpointError: the folder holds an unfinished training of another recipe or of other texts.
        ClusterError: `TF_CONFIG` is wrong, or the workers have different recipes or texts.
        CorpusError: the corpus cannot be read, or lacks a training or validation split.
        RecipeError: the recipe does not fit the corpus.
    """
    cluster = read_cluster(os.environ.get("TF_CONFIG"))
    if cluster is not None and cluster.index > 0:
        say(f"{cluster.name(cluster.index)}: the chief, {cluster.name(0)}, shows the progress")
        be_silent()
        with multi_worker(wait) as workers:
            workers.agree("recipe", recipe.model_dump_json(), _differing_keys)
            told = workers.broadcast_bytes(b"")
            if told.startswith(_REFUSED):
                raise CheckpointError(told.removeprefix(_REFUSED).decode())
            if told == _TRAINING:
                fit(recipe, _prepared(recipe, workers), folder, workers=workers)
        return None
    if recipe.training.tensorboard:  # said before anything else is done
        with needs("tensorboard"):
            importlib.import_module("tensorboard")
    make_folders(folder)
    with locked(folder):
        _remove_leftovers(folder)
        if restart:
            (folder / CHECKPOINT_FILE).unlink(missing_ok=True)
            try:
                is_over = _unfinished(folder) is None
            except CheckpointError:  # damaged
                is_over = False
            if not is_over:
                (folder / METRICS_FILE).unlink()
        try:
            with multi_worker(wait) as workers:
                workers.agree("recipe", recipe.model_dump_json(), _differing_keys)
                try:
                    run = _trained_before(folder, recipe)
                except (ValueError, OSError) as error:
                    workers.broadcast_bytes(_REFUSED + str(error).encode())
                    raise
                workers.broadcast_bytes(_NOTHING if run else _TRAINING)
                if run is None:
                    run = _trained(name, recipe, folder, command, workers)
        except ClusterError as error:
            # The others end after the training. Where a scheduler starts the chief alone again, they do not come.
            run = _trained_before(folder, recipe)
            if run is None:
                raise
            say(f"{error}; the chief goes on alone")
        return run, finish(run, folder, models)


def finish(run: Run, folder: pathlib.Path, models: pathlib.Path) -> pathlib.Path:
    """Scores a saved run, if that is not done, and exports it; returns the folder of the version.

    The caller holds the lock on the run's folder.

    Raises:
        OSError: a file cannot be written.
    """
    run.metrics["models"] = _place(models, folder)
    run.save_metrics(folder)
    if run.metrics["unfinished"] == _SCORING:
        _add_scores(run, folder)
    version = _exported(run, models / run.name)
    del run.metrics["unfinished"]
    run.save_metrics(folder)
    return version


def _place(models: pathlib.Path, folder: pathlib.Path) -> str:
    """The folder of exported models as a run keeps it: seen from the run's folder, so that both can move together."""
    return str(models) if models.is_absolute() else os.path.relpath(models.resolve(), folder.resolve())


def _differing_keys(first: str, second: str) -> list[str]:
    return changes(json.loads(first), json.loads(second))


def _trained_before(folder: pathlib.Path, recipe: Recipe) -> Run | None:
    """The folder's run, if it is trained and was stopped in a later stage."""
    if (folder / CHECKPOINT_FILE).is_file() or not (folder / METRICS_FILE).is_file():
        return None
    stage = _unfinished(folder)
    if stage is None:
        return None
    run = Run.load(folder)
    if run.recipe != recipe:
        raise CheckpointError(
            f"{folder} holds a run of another recipe that was stopped before its {stage}; `zoo export {folder}` exports"
            " it, --restart begins anew there, and --out names another folder"
        )
    digest = _PROCEDURES[type(recipe)].digest
    if changed := changed_since(folder, {split: digest(run.task, recipe.corpus, split) for split in _READ}):
        raise CheckpointError(
            f"{folder} holds a run that was stopped before its {stage}, and its texts ({', '.join(changed)}) have "
            f"changed since; `zoo export {folder}` exports it, --restart begins anew there, and --out names another "
            "folder"
        )
    say(f"{folder} holds a trained model; going on with its {stage}")
    run.recipe = recipe  # equal, but its corpus knows the cache, and what is read of it
    return run


def _trained(name: str, recipe: Recipe, folder: pathlib.Path, command: str, workers: Workers) -> Run:
    """Trains a model, or goes on with its training, and saves it before anything else is tried with it."""
    if workers.count == 1:  # otherwise `fit` says it on each worker
        check_unfinished(folder, recipe)
    say(f"Reading the corpus {recipe.corpus.kind!r} ...")
    prepared = _prepared(recipe, workers)
    if (folder / METRICS_FILE).is_file() and not (folder / CHECKPOINT_FILE).is_file():
        say(
            f"{folder} holds a finished run; a new one begins, and replaces its model when the training is done"
            " (--out names another folder, and --models another place for its export)"
        )
    fitted = fit(recipe, prepared, folder, workers=workers)
    metrics = new_metrics(name, recipe, fitted.task, prepared.sizes, prepared.digests, fitted.seconds, command)
    run = Run(name, recipe, fitted.task, metrics)
    run.save(folder)
    (folder / CHECKPOINT_FILE).unlink(missing_ok=True)
    return run


def new_metrics(
    name: str,
    recipe: Recipe,
    task: SavedTask,
    sizes: Mapping[str, Any],
    digests: Mapping[str, str],
    seconds: float | None,
    command: str,
) -> dict[str, Any]:
    """The metrics of a run whose model is trained, and neither scored nor exported.

    Args:
        name: the model's name.
        recipe: what was run.
        task: the trained model with its tokenizers.
        sizes: how much it was trained on, such as `training_pairs`.
        digests: hashes of what was used, by name.
        seconds: how long the training took, if that is known.
        command: the command that started it.
    """
    of_training = {
        **({} if seconds is None else {"training_seconds": round(seconds, 1)}),
        "command": command,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
    }
    return {
        "name": name,
        "split": default_split(recipe),
        "not_scored": "the scoring has not ended",
        "parameters": task.model.count_params(),
        **sizes,
        "digests": dict(digests),
        **of_training,
        "of_model": list(of_training),  # what `checked_metrics` leaves out if the model is replaced
        "unfinished": _SCORING,
    }


def _prepared(recipe: Recipe, workers: Workers) -> Prepared:
    if isinstance(recipe, TranslatorRecipe):
        return translation.prepare(recipe, workers=workers)  # they share the work of a teacher
    return _PROCEDURES[type(recipe)].prepare(recipe)


def _add_scores(run: Run, folder: pathlib.Path) -> None:
    """Scores a run; if that fails, the metrics say why."""
    split = run.metrics["split"]
    say(f"Scoring the model on the {split} split ...")
    try:
        scores = score(run.task, run.recipe, split)
    except Exception as error:
        # Any error is caught: hours of training must not be lost because their scoring failed.
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        say(f"the scoring failed ({reason}); the model is saved, and `zoo evaluate {folder}` scores it again")
        run.metrics["not_scored"] = reason
    else:
        run.metrics["digests"] |= scores.pop("digests")
        del run.metrics["not_scored"]
        run.metrics["of_model"] = [*run.metrics.get("of_model", ()), *scores]
        run.metrics = {"name": run.name, "split": split} | scores | run.metrics
    run.metrics["unfinished"] = _EXPORT
    run.save_metrics(folder)


def _unfinished(folder: pathlib.Path) -> str | None:
    """The stage after training that a run was stopped in, if it was.

    Raises:
        CheckpointError: the metrics, which say so, are damaged.
    """
    try:
        return read_metrics(folder).get("unfinished") if (folder / METRICS_FILE).is_file() else None
    except ValueError as error:
        raise CheckpointError(f"{error}; --restart begins anew there, and --out names another folder") from None


def _exported(run: Run, path: pathlib.Path) -> pathlib.Path:
    """Exports a run; a failure, such as a full disk, becomes an `OSError` of one line."""
    say("Exporting the model ...")
    try:
        return run.export(path)
    except OSError as error:
        if error.errno is None:  # one of our own
            raise
        raise not_written(path, error) from error
    except (ValueError, tf.errors.OpError) as error:
        reason = str(error).partition("\n")[0]
        raise OSError(f"the export to {path} failed ({reason}); the same command goes on with it") from error


def _remove_leftovers(folder: pathlib.Path) -> None:
    """Removes what killed processes were writing in a run's folder; the caller holds the lock on it.

    The folder may hold files of others, as where it is `--out .`: only names that a run writes are looked for.
    """
    folders = (CACHE_FOLDER, *(f".{procedure.SAVED_IN}" for procedure in _PROCEDURES.values()))
    written = (RECIPE_FILE, METRICS_FILE, HISTORY_FILE, CHECKPOINT_FILE, *folders)
    left = [path for name in written for path in folder.glob(f"{name}.tmp-*")]
    for path in (*left, folder / ".best.tmp.weights.h5"):  # the last one is of `Validation`
        if path.name.startswith(f"{CACHE_FOLDER}.tmp-"):  # another worker of this training may be reading the corpus
            remove_abandoned(path)
        elif path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def how_to_go_on(folder: pathlib.Path) -> str:
    """The message after a training was stopped with Ctrl-C: how to continue it."""
    if (folder / CHECKPOINT_FILE).is_file():
        return "stopped; the same command goes on after the last finished epoch"
    if stage := _unfinished(folder):
        return f"stopped; the model is saved, and the same command goes on with its {stage}"
    return "stopped before the first epoch ended; the same command begins anew"


def default_split(recipe: Recipe) -> str:
    """The split that a model is scored on: the test, or the validation where there is none."""
    return "test" if "test" in recipe.corpus.splits else "validation"


def score(model: Any, recipe: Recipe, split: str) -> dict[str, Any]:
    """The scores of a model on a split of the recipe's corpus, as for `metrics.json`; shows a progress bar.

    Returns:
        The scores, and in `digests` a hash of the split's texts, by the split's name.

    Raises:
        ValueError: the model is not of the kind that the recipe trains.
    """
    return _PROCEDURES[type(recipe)].score(model, recipe.corpus, split)


def changed_since(folder: pathlib.Path, digests: dict[str, str]) -> list[str]:
    """The splits whose texts differ from those of the run or exported version in a folder, as far as it knows them."""
    if not (folder / METRICS_FILE).is_file():
        return []
    known = read_metrics(folder).get("digests", {})
    return [split for split, digest in digests.items() if known.get(split, digest) != digest]


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
    text = json.dumps(metrics, ensure_ascii=False, indent=1)
    # Lists of numbers, such as the rows of a table of confusions, on one line. A string of JSON has no line break, so
    # what is matched here is never inside of one.
    return re.sub(r"\[\n\s*([-+\d.e,\s]+?)\s*\n\s*\]", lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"
