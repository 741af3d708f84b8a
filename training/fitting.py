"""A recipe's model, compiled and fitted: `model.fit` on the batches of its corpus."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import logging
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from training.averaging import WeightAverage
from training.bleu import corpus_bleu
from training.checkpoint import CHECKPOINT_FILE, Checkpoint
from training.corpora.pairs import Pairs
from training.optimization import make_optimizer
from training.pipeline import Batches, encode
from training.progress import say
from training.recipe import RecipeError
from training.recipe_tables import BytePairConfig, CharactersConfig, Recipe
from training.sampling import Sampler
from training.token_prediction import TokenPrediction
from training.training_progress import TrainingProgress
from training.validation import Divergence, Validation
from zoo.models import RNNSeq2Seq, Transformer
from zoo.text import BytePairTokenizer, CharacterTokenizer, Tokenizer
from zoo.translator import Translator

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Fitted:
    """What came of a training.

    Attributes:
        translator: the model with its best weights, and its tokenizers.
        history: the logs of each epoch.
        seconds: the time that fitting took, over all its stops.
    """

    translator: Translator
    history: list[dict[str, float]]
    seconds: float


def learn_tokenizers(recipe: Recipe, pairs: Pairs) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of both sides, learnt from the training pairs; one and the same where they are joint."""
    config = recipe.tokenizer
    if config.joint:
        joint = _learn(config.joint, [*pairs.sources, *pairs.targets])
        return joint, joint
    return _learn(config.source, pairs.sources), _learn(config.target, pairs.targets)


def _learn(config: CharactersConfig | BytePairConfig, texts: list[str]) -> Tokenizer:
    if isinstance(config, BytePairConfig):
        return BytePairTokenizer.learn(texts, config.size, config.minimum_frequency, config.lowercase)
    return CharacterTokenizer.learn(texts, config.minimum_count, config.maximum_size)


def build_model(recipe: Recipe, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer) -> keras.Model:
    """The recipe's model, with the initial values of its seed."""
    keras.utils.set_random_seed(recipe.seed)
    arguments = recipe.model.model_dump(exclude={"family"})
    if arguments.get("attention") == "none":  # TOML has no null
        arguments["attention"] = None
    family = {"rnn_seq2seq": RNNSeq2Seq, "transformer": Transformer}[recipe.model.family]
    sizes = source_tokenizer.size, target_tokenizer.size
    return family(*sizes, **arguments, dtype=recipe.training.precision, name=recipe.model.family)


def fit(
    recipe: Recipe,
    train: Pairs,
    validation: Pairs,
    folder: pathlib.Path,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> Fitted:
    """Learns the tokenizers, builds the model and fits it; the weights that validation likes best are kept.

    If the folder holds a checkpoint of the same recipe, the training goes on from there, and ends with the very weights
    that it would have ended with undisturbed.

    Args:
        recipe: what to train.
        train: pairs to fit.
        validation: pairs to choose the best epoch by.
        folder: where the best weights (`best.weights.h5`), the checkpoint and the log (`history.csv`) are written.
        callbacks: further Keras callbacks, called before those of the training itself.

    Returns:
        The translator, the logs of all epochs, and the time it took.

    Raises:
        RecipeError: the recipe does not fit the pairs, as where all are longer than its lengths; or the training
            diverged.
        CheckpointError: there is a checkpoint that it cannot go on from.
    """
    config = recipe.training
    if config.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise RecipeError("training: tensorboard=true needs `pip install 'attention-zoo[tensorboard]'`")
    folder.mkdir(parents=True, exist_ok=True)
    with _blamed_on("tokenizer"):
        tokenizers = learn_tokenizers(recipe, train)
    with _blamed_on("model"):
        model = build_model(recipe, *tokenizers)
    with _blamed_on("lengths"):
        batches = _batches(recipe, train, tokenizers, "train")
        checks = _batches(recipe, validation, tokenizers, "validation")
    steps = config.steps_per_epoch or batches.steps
    fitted = TokenPrediction(model, config.label_smoothing)
    fitted.compile(
        make_optimizer(config, max(1, config.epochs * steps // config.accumulate)), jit_compile=config.jit_compile
    )
    fitted.optimizer.build(fitted.trainable_variables)  # in the first step it would have that step traced twice
    best = folder / "best.weights.h5"
    average = WeightAverage(config)
    translator = Translator(model, *tokenizers, recipe.lengths.max_source, recipe.lengths.max_target)
    bleu = None
    if config.monitor == "bleu":

        def bleu() -> float:
            outputs = translator(validation.sources, batch_size=128)
            return corpus_bleu(outputs, validation.targets, recipe.corpus.language)

    judge = Validation(config, config.epochs, checks.validation(), bleu, average, best)
    checkpoint = Checkpoint(folder, recipe, average, judge)
    if checkpoint.restore(fitted):
        say(f"going on after epoch {checkpoint.epoch} of {config.epochs}")
    else:
        best.unlink(missing_ok=True)
    if checkpoint.epoch < config.epochs and not checkpoint.finished:
        tokens = batches.tokens * steps / batches.steps
        logs = [keras.callbacks.TensorBoard(folder / "tensorboard", write_graph=False)] if config.tensorboard else []
        with contextlib.closing(TrainingProgress(config.epochs, steps, tokens)) as progress:
            fitted.fit(
                batches.training(checkpoint.epoch * steps),
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
    model.load_weights(best)
    decoding = recipe.decoding.model_dump()
    translator = Translator(model, *tokenizers, recipe.lengths.max_source, recipe.lengths.max_target, **decoding)
    return Fitted(translator, checkpoint.history, checkpoint.seconds)


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
    config = recipe.training
    samplers = _samplers(recipe, pairs, tokenizers, encoded.kept) if split == "train" else (None, None)
    return Batches(encoded, config.batch_size, config.buckets, recipe.seed, config.batch_tokens, samplers)


def _samplers(
    recipe: Recipe, pairs: Pairs, tokenizers: tuple[Tokenizer, Tokenizer], kept: np.ndarray
) -> tuple[Sampler | None, Sampler | None]:
    """What draws the ids of sources and targets, where their tokenizer has dropout."""

    def sampler(texts: list[str], tokenizer: Tokenizer, config: Any, longest: int) -> Sampler | None:
        dropout = getattr(config, "dropout", 0.0)
        return Sampler([texts[index] for index in kept], tokenizer, dropout, longest) if dropout else None

    source, target = recipe.tokenizer.sides
    return (
        sampler(pairs.sources, tokenizers[0], source, recipe.lengths.max_source),
        sampler(pairs.targets, tokenizers[1], target, recipe.lengths.max_target),
    )
