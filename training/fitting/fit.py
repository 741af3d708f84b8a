"""A recipe's model, compiled and fitted: `model.fit` on the batches of its corpus."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from zoo.distribution import Workers
from zoo.tasks.task import SavedTask

from ..progress import say
from ..run_files import BEST_FILE, CHECKPOINT_FILE, HISTORY_FILE, LOGS_FOLDER
from ..schema.recipe import RecipeError, blamed_on
from ..schema.recipe_tables import Recipe
from .callbacks import Divergence, TrainingProgress, Validation, WeightAverage
from .checkpoint import Checkpoint, CheckpointError
from .layer_depths import frozen, rate_factors
from .optimization import make_optimizer

_FEW_UPDATES = 1000  # the recipes of the zoo make more
_ALL_RIGHT = 0.9995  # an accuracy that is shown as 100.0%


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A model and its batches, ready to be fitted.

    Attributes:
        model: a model of ids, with its initial weights.
        objective: the model with its loss, which `fit` trains; see `loss`.
        steps: batches of an epoch.
        tokens: tokens of an epoch, for the speed that is shown.
        fewest_rows: rows of the smallest batch to train on.
        training_from: gives the endless stream of batches for `model.fit`, from a number of batches on.
        validation: batches to choose the best epoch by.
        task: the model with its tokenizers, such as a `Translator`.
        sizes: how much there is to train on, for `metrics.json`.
        digests: hashes of the training and validation texts and of the vocabularies, by name.
        measure_bleu: scores the model as it is on the validation texts; None where the loss decides.
    """

    model: keras.Model
    objective: keras.Model
    steps: int
    tokens: int
    fewest_rows: int
    training_from: Callable[[int], tf.data.Dataset]
    validation: tf.data.Dataset
    task: SavedTask
    sizes: Mapping[str, int]
    digests: Mapping[str, str]
    measure_bleu: Callable[[], float] | None = None


@dataclasses.dataclass(frozen=True)
class Fitted:
    """The result of a training.

    Attributes:
        task: the task: the model with its best weights, and its tokenizers; of several workers, the chief has it.
        history: the logs of all epochs.
        seconds: the time that fitting took, without the time between a stop and the next start.
    """

    task: Any
    history: list[dict[str, float]]
    seconds: float


def fit(
    recipe: Recipe,
    prepared: Prepared,
    folder: pathlib.Path,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    workers: Workers | None = None,
) -> Fitted:
    """Fits a model, and keeps the weights of the epoch with the best validation.

    If the folder holds a checkpoint of the same recipe and texts, the training goes on from there, and ends with
    exactly the weights of an uninterrupted training.

    Args:
        recipe: what to train.
        prepared: the model, and the batches of its texts.
        folder: where the best weights (`best.weights.h5`), the checkpoint and the log (`history.csv`) are written.
        callbacks: further Keras callbacks, called before those of the training itself.
        workers: who train it together; each takes its rows of every batch, and the chief alone reads and writes the
            folder.

    Raises:
        RecipeError: the training diverged, has `r_drop` without dropout, has too few batches for an update, or these
            have fewer rows than there are workers.
        ClusterError: the workers have different recipes or texts.
        CheckpointError: there is a checkpoint that it cannot go on from.
    """
    workers = workers or Workers()
    if workers.is_chief:
        folder.mkdir(parents=True, exist_ok=True)
    workers.agree("texts or vocabularies", json.dumps(dict(prepared.digests), sort_keys=True))
    with contextlib.ExitStack() as stack:
        with blamed_on("training"):
            if recipe.training.r_drop and not _has_dropout(prepared.model):
                raise ValueError(
                    "r_drop compares two passes with different dropout, and the model has no dropout; set it in "
                    f"[model], or leave r_drop out. Received: r_drop={recipe.training.r_drop}"
                )
            batches = recipe.training.epochs * _steps(recipe, prepared)
            if batches < recipe.training.accumulate:
                raise ValueError(
                    f"accumulate={recipe.training.accumulate} is more than the {batches:,} batches of the training, so "
                    "no update would be made; lower it, or raise epochs"
                )
            if prepared.fewest_rows < workers.count:
                raise ValueError(
                    f"each worker takes rows of every batch, and the smallest batch has {prepared.fewest_rows} for "
                    f"{workers.count} workers; raise batch_size or batch_tokens, or use fewer workers"
                )
            stack.enter_context(frozen(prepared.model, recipe.training.frozen_layers))
        return _fitted(recipe, prepared, folder, callbacks, workers)


def _with_rows_for(batches: tf.data.Dataset, workers: int) -> tf.data.Dataset:
    """Batches of (inputs, labels, weights) with a row for each worker; a smaller one repeats rows with weight zero."""
    if workers == 1:
        return batches

    def filled(inputs: Any, labels: tf.Tensor, weights: tf.Tensor) -> Any:
        rows = tf.shape(weights)[0]
        places = tf.range(tf.maximum(rows, workers))
        batch = tf.nest.map_structure(lambda array: tf.gather(array, places % rows), (inputs, labels, weights))
        counted = tf.reshape(tf.cast(places < rows, weights.dtype), [-1, *[1] * (len(weights.shape) - 1)])
        return *batch[:2], batch[2] * counted

    return batches.map(filled)


def _steps(recipe: Recipe, prepared: Prepared) -> int:
    """Batches of what counts as an epoch."""
    return recipe.training.steps_per_epoch or prepared.steps


def _has_dropout(model: keras.Model) -> bool:
    rates = (getattr(layer, name, 0) for layer in model._flatten_layers() for name in ("rate", "dropout"))
    return any(isinstance(rate, float) and rate > 0 for rate in rates)


def _fitted(
    recipe: Recipe,
    prepared: Prepared,
    folder: pathlib.Path,
    callbacks: Sequence[keras.callbacks.Callback],
    workers: Workers,
) -> Fitted:
    config = recipe.training
    steps = _steps(recipe, prepared)

    # The model, with its loss, which is the objective's own, and its optimizer.
    model = prepared.objective
    updates = config.epochs * steps // config.accumulate
    factors = rate_factors(prepared.model, config.layer_decay)
    compiled = recipe.uses_xla(gpu=bool(tf.config.list_physical_devices("GPU")))
    model.compile(make_optimizer(config, updates, factors), jit_compile=compiled)
    model.optimizer.build(model.trainable_variables)  # otherwise built in the first step, which is then traced twice

    # What happens at the end of an epoch, and the state of the last one, if there is one.
    best, logs_folder = folder / BEST_FILE, folder / LOGS_FOLDER
    average = WeightAverage(config)
    batches = workers.shard(_with_rows_for(prepared.validation, workers.count))
    validation = Validation(config, batches, prepared.measure_bleu, average, best, workers)
    checkpoint = Checkpoint(folder, recipe, average, validation, prepared.digests, workers)
    if checkpoint.restore(model):
        kept = b"kept" if best.is_file() else b""
        if validation.best_score is not None and not workers.broadcast_bytes(kept):  # only the chief has the file
            raise CheckpointError(f"{best} is missing; --restart begins anew there, and --out names another folder")
        say(f"going on after epoch {checkpoint.epoch} of {config.epochs}")
    elif workers.is_chief:  # what an earlier training left
        best.unlink(missing_ok=True)
        shutil.rmtree(logs_folder, ignore_errors=True)  # TensorBoard would join the curves of both
        (folder / HISTORY_FILE).touch()  # what is written before the end of the first epoch is of a run, too
    workers.distribute(model)

    if checkpoint.epoch < config.epochs and not checkpoint.finished:
        tokens = prepared.tokens * steps / prepared.steps
        logs = []
        if config.tensorboard and workers.is_chief:
            logs = [keras.callbacks.TensorBoard(logs_folder, write_graph=False)]
        if compiled:
            say(
                "Compiling the training step with XLA: some seconds for each length of batches, or a minute for a deep "
                "model ..."
            )
        else:
            say("Making the graph of the training step: some seconds, or a minute and more for a deep model ...")
        with contextlib.closing(TrainingProgress(config.epochs, steps, tokens)) as progress:
            model.fit(
                workers.shard(prepared.training_from(checkpoint.epoch * steps)),
                steps_per_epoch=steps,
                initial_epoch=checkpoint.epoch,
                epochs=config.epochs,
                # Average before validation, which scores the averaged weights; both before the checkpoint of them.
                callbacks=[*callbacks, Divergence(), average, validation, checkpoint, *logs, progress],
                shuffle=False,  # the batches are in their order already
                verbose=0,
            )
    if validation.best_score is None:
        if workers.is_chief:  # otherwise the next try, with another recipe, is refused
            (folder / CHECKPOINT_FILE).unlink(missing_ok=True)
        raise RecipeError("training: it diverged, no epoch ended with a finite validation loss; lower learning_rate")
    if workers.is_chief:
        prepared.model.load_weights(best)
        last = checkpoint.history[-1]
        better = max(last.get("val_token_accuracy", 0), last.get("val_accuracy", 0)) < _ALL_RIGHT  # is possible
        if checkpoint.epoch == config.epochs and not validation.waited and updates < _FEW_UPDATES and better:
            say(
                f"the best epoch was the last one, and the training had few updates ({updates:,}); more epochs may "
                f"help, such as --set training.epochs={config.epochs * _FEW_UPDATES // updates + 1}"
            )
    return Fitted(prepared.task, checkpoint.history, checkpoint.seconds)
