"""A recipe's model, compiled and fitted: `model.fit` on the batches of its corpus."""

from __future__ import annotations

import contextlib
import logging
import pathlib
from collections.abc import Iterator, Sequence

import keras
import numpy as np

from training.corpora import Pairs
from training.pipeline import Batches, encode
from training.recipe import CharactersConfig, Recipe, RecipeError, TrainingConfig
from zoo.models import RNNSeq2Seq
from zoo.text import CharacterTokenizer, Tokenizer
from zoo.translator import Translator

logger = logging.getLogger(__name__)


def learn_tokenizers(recipe: Recipe, pairs: Pairs) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of both sides, learnt from the training pairs."""

    def learn(config: CharactersConfig, texts: list[str]) -> Tokenizer:
        return CharacterTokenizer.learn(texts, config.minimum_count, config.maximum_size)

    return learn(recipe.tokenizer.source, pairs.sources), learn(recipe.tokenizer.target, pairs.targets)


def build_model(recipe: Recipe, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer) -> keras.Model:
    """The recipe's model, with the initial values of its seed."""
    keras.utils.set_random_seed(recipe.seed)
    arguments = recipe.model.model_dump(exclude={"family"})
    if arguments["attention"] == "none":  # TOML has no null
        arguments["attention"] = None
    return RNNSeq2Seq(source_tokenizer.size, target_tokenizer.size, **arguments, name=recipe.model.family)


def compile_model(model: keras.Model, config: TrainingConfig, total_steps: int) -> None:
    """Sets the optimizer, the loss per token and the token accuracy."""
    model.compile(
        optimizer=keras.optimizers.Adam(_learning_rate(config, total_steps), global_clipnorm=config.clip_norm),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight"),
        weighted_metrics=[keras.metrics.SparseCategoricalAccuracy(name="token_accuracy")],
        jit_compile=config.jit_compile,
    )


def _learning_rate(config: TrainingConfig, total_steps: int):
    if config.schedule == "constant" and not config.warmup_steps:
        return config.learning_rate
    warmup = min(config.warmup_steps, total_steps - 1)
    return keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0 if warmup else config.learning_rate,
        decay_steps=max(1, total_steps - warmup),
        warmup_target=config.learning_rate if warmup else None,
        warmup_steps=warmup,
        alpha=1.0 if config.schedule == "constant" else 0.0,
    )


def fit(
    recipe: Recipe,
    train: Pairs,
    validation: Pairs,
    folder: pathlib.Path,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    verbose: int = 1,
) -> tuple[Translator, keras.callbacks.History]:
    """Learns the tokenizers, builds the model and fits it; the weights of the best validation loss are kept.

    Args:
        recipe: what to train.
        train: pairs to fit.
        validation: pairs to choose the best epoch by.
        folder: where the best weights (`best.weights.h5`) and the log (`history.csv`) are written as it goes.
        callbacks: further Keras callbacks.
        verbose: as in `model.fit`.

    Returns:
        The translator and the history.

    Raises:
        RecipeError: the recipe does not fit the pairs, as where all are longer than its lengths; or the training
            diverged.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _blamed_on("tokenizer"):
        tokenizers = learn_tokenizers(recipe, train)
    with _blamed_on("model"):
        model = build_model(recipe, *tokenizers)
    with _blamed_on("lengths"):
        batches = _batches(recipe, train, tokenizers, "train")
        checks = _batches(recipe, validation, tokenizers, "validation")
    compile_model(model, recipe.training, recipe.training.epochs * batches.steps)
    best = folder / "best.weights.h5"
    history = model.fit(
        batches.training(),
        steps_per_epoch=batches.steps,
        epochs=recipe.training.epochs,
        validation_data=checks.validation(),
        callbacks=[
            keras.callbacks.ModelCheckpoint(best, monitor="val_loss", save_best_only=True, save_weights_only=True),
            keras.callbacks.CSVLogger(folder / "history.csv"),
            *callbacks,
        ],
        shuffle=False,  # the batches come in an order of their own
        verbose=verbose,
    )
    if not np.isfinite(history.history["val_loss"]).any():
        raise RecipeError("training: no epoch ended with a validation loss that is a number; lower learning_rate")
    model.load_weights(best)
    lengths = recipe.lengths
    return Translator(model, *tokenizers, lengths.max_source, lengths.max_target), history


@contextlib.contextmanager
def _blamed_on(table: str) -> Iterator[None]:
    """Turns an error into one that names the recipe's table it comes from."""
    try:
        yield
    except ValueError as error:
        raise RecipeError(f"{table}: {error}") from error


def _batches(recipe: Recipe, pairs: Pairs, tokenizers: tuple[Tokenizer, Tokenizer], split: str) -> Batches:
    encoded = encode(pairs, *tokenizers, recipe.lengths.max_source, recipe.lengths.max_target)
    if encoded.too_long:
        logger.warning(
            "%s: %d of %d pairs have more than lengths.max_source=%d or lengths.max_target=%d tokens and are left out",
            *(split, encoded.too_long, len(pairs), recipe.lengths.max_source, recipe.lengths.max_target),
        )
    return Batches(encoded, recipe.training.batch_size, recipe.training.buckets, recipe.seed)
