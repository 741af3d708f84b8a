"""A recipe's model, compiled and fitted: `model.fit` on the batches of its corpus."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import pathlib
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from zoo.tasks.text_generator import TextGenerator
from zoo.tasks.translator import Translator

from ..progress import say
from ..schema.recipe import RecipeError
from ..schema.recipe_tables import Recipe
from .averaging import WeightAverage
from .checkpoint import CHECKPOINT_FILE, Checkpoint
from .divergence import Divergence
from .optimization import make_optimizer
from .token_prediction import TokenPrediction
from .training_progress import TrainingProgress
from .validation import Validation


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What is to be fitted.

    Attributes:
        model: a model of ids, with its initial weights.
        steps: batches of an epoch.
        tokens: tokens of an epoch, of which the speed is told.
        training: gives the endless stream of batches for `model.fit`, from a number of batches on.
        validation: batches to choose the best epoch by.
        trained: gives the model with its tokenizers.
        sizes: how much there is to train on, for `metrics.json`.
        bleu: a function that scores the model as it is on the validation texts; None where the loss decides.
    """

    model: keras.Model
    steps: int
    tokens: int
    training: Callable[[int], tf.data.Dataset]
    validation: tf.data.Dataset
    trained: Callable[[], Translator | TextGenerator]
    sizes: dict[str, int]
    bleu: Callable[[], float] | None = None


@dataclasses.dataclass(frozen=True)
class Fitted:
    """What came of a training.

    Attributes:
        trained: the model with its best weights, and its tokenizers.
        history: the logs of each epoch.
        seconds: the time that fitting took, over all its stops.
    """

    trained: Translator | TextGenerator
    history: list[dict[str, float]]
    seconds: float


def fit(
    recipe: Recipe,
    prepared: Prepared,
    folder: pathlib.Path,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> Fitted:
    """Fits a model; the weights that validation likes best are kept.

    If the folder holds a checkpoint of the same recipe, the training goes on from there, and ends with the very weights
    that it would have ended with undisturbed.

    Args:
        recipe: what to train.
        prepared: the model, and the batches of its texts.
        folder: where the best weights (`best.weights.h5`), the checkpoint and the log (`history.csv`) are written.
        callbacks: further Keras callbacks, called before those of the training itself.

    Returns:
        What was trained, the logs of all epochs, and the time it took.

    Raises:
        RecipeError: the training diverged.
        CheckpointError: there is a checkpoint that it cannot go on from.
    """
    config = recipe.training
    if config.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise RecipeError("training: tensorboard=true needs `pip install 'attention-zoo[tensorboard]'`")
    folder.mkdir(parents=True, exist_ok=True)
    steps = config.steps_per_epoch or prepared.steps
    fitted = TokenPrediction(prepared.model, config.label_smoothing)
    fitted.compile(
        make_optimizer(config, max(1, config.epochs * steps // config.accumulate)), jit_compile=config.jit_compile
    )
    fitted.optimizer.build(fitted.trainable_variables)  # in the first step it would have that step traced twice
    best = folder / "best.weights.h5"
    average = WeightAverage(config)
    judge = Validation(config, prepared.validation, prepared.bleu, average, best)
    checkpoint = Checkpoint(folder, recipe, average, judge)
    if checkpoint.restore(fitted):
        say(f"going on after epoch {checkpoint.epoch} of {config.epochs}")
    else:
        best.unlink(missing_ok=True)
    if checkpoint.epoch < config.epochs and not checkpoint.finished:
        tokens = prepared.tokens * steps / prepared.steps
        logs = [keras.callbacks.TensorBoard(folder / "tensorboard", write_graph=False)] if config.tensorboard else []
        with contextlib.closing(TrainingProgress(config.epochs, steps, tokens)) as progress:
            fitted.fit(
                prepared.training(checkpoint.epoch * steps),
                steps_per_epoch=steps,
                initial_epoch=checkpoint.epoch,
                epochs=config.epochs,
                callbacks=[*callbacks, Divergence(), average, judge, checkpoint, *logs, progress],
                shuffle=False,  # the batches come in an order of their own
                verbose=0,
            )
    if judge.best_score is None:
        (folder / CHECKPOINT_FILE).unlink(missing_ok=True)  # it leads nowhere, and another recipe may have its place
        raise RecipeError("training: no epoch ended with a validation loss that is a number; lower learning_rate")
    prepared.model.load_weights(best)
    return Fitted(prepared.trained(), checkpoint.history, checkpoint.seconds)
