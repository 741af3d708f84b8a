"""Masked language models: from a recipe and its text to a model and batches, and from a model to its scores."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np

from zoo.models import Encoder, MaskedLanguageModel
from zoo.tasks import FILLER_FOLDER as SAVED_IN
from zoo.tasks.encoder_tasks import MaskFiller
from zoo.text import END, START, Tokenizer

from .batches.masked_windows import MaskedWindows
from .cards import filler_card as card
from .corpora.corpus import CorpusError
from .corpora.texts import TextCorpus
from .fine_tuning import clone_pretrained, copy_weights, load_pretrained, position_limit, say_unknown
from .fitting.fit import Prepared
from .fitting.loss import MaskedTokenPrediction
from .language_modelling import BATCH_TOKENS, encoded_split, encoded_splits, learnt_tokenizer
from .preparing import digests, new_model
from .schema.classifier_tables import MaskedLanguageModelRecipe
from .schema.recipe import RecipeError, blamed_on

__all__ = ["SAVED_IN", "card", "prepare", "score"]

_SCORED = 0.15  # share of the tokens that are hidden in scoring, whatever the recipe hides
_SHORTEST = 8  # tokens of a window


def prepare(recipe: MaskedLanguageModelRecipe) -> Prepared:
    """Learns the tokenizer, reads the texts, builds the model and makes batches.

    Raises:
        CorpusError: the corpus cannot be read, or lacks a training or validation split.
        RecipeError: the recipe does not fit the text, for example because the text is shorter than a batch.
    """
    corpus, config = recipe.corpus, recipe.training
    if recipe.model.start is None:
        model, tokenizer = new_model(
            lambda: learnt_tokenizer(recipe),
            lambda tokenizer: build_model(recipe, tokenizer),
        )
    else:
        model, tokenizer = pretrained_model(recipe)
    length = _window(config.window, model.encoder)
    (train, validation), split_digests = encoded_splits(corpus, tokenizer)
    with blamed_on("training"):
        task = MaskFiller(model, tokenizer, length)
        segments = "segments" in model.input
        windows = MaskedWindows(train, tokenizer, length, config.batch_size, config.masked, segments, recipe.seed)
        once = _scoring_windows(validation, task, config.masked, "validation", config.batch_size).once()
    if recipe.model.start is not None:
        say_unknown(train, "texts")
    return Prepared(
        model=model,
        objective=MaskedTokenPrediction(model, config.label_smoothing, config.r_drop),
        steps=windows.steps,
        tokens=windows.tokens,
        fewest_rows=windows.batch_size,
        training_from=windows.training,
        validation=once,
        task=task,
        sizes={"training_tokens": len(train)},
        digests=digests(recipe, model, [tokenizer], **split_digests),
    )


def build_model(recipe: MaskedLanguageModelRecipe, tokenizer: Tokenizer) -> MaskedLanguageModel:
    """The recipe's model, with the initial values of its seed."""
    keras.utils.set_random_seed(recipe.seed)
    arguments = recipe.model.encoder.model_dump(exclude={"kind"})
    encoder = Encoder(tokenizer.size, **arguments, dtype=recipe.training.precision, name="encoder")
    return MaskedLanguageModel(encoder)


def pretrained_model(recipe: MaskedLanguageModelRecipe) -> tuple[MaskedLanguageModel, Tokenizer]:
    """The model that the recipe starts from, and its tokenizer; the head is new unless the start is a `MaskFiller`."""
    keras.utils.set_random_seed(recipe.seed)
    task = load_pretrained(recipe)
    if not isinstance(getattr(task, "encoder", None), Encoder) or task.tokenizer.mask_id is None:
        raise RecipeError(
            f"model.start: {recipe.model.start} is a {type(task).__name__} without a text encoder or without a mask"
        )
    encoder = clone_pretrained(recipe.model.encoder, task.encoder, Encoder, recipe.training.precision, "model.encoder")
    if not isinstance(task, MaskFiller):
        return MaskedLanguageModel(encoder), task.tokenizer
    old = task.model
    model = MaskedLanguageModel(encoder, old.activation, old.epsilon, old.unused_ids)
    copy_weights(model, old)
    return model, task.tokenizer


def digest(task: MaskFiller, corpus: TextCorpus, split: str) -> str:
    """A hash of a split's texts, as in `Prepared.digests`.

    Raises:
        CorpusError: the split cannot be read.
    """
    return encoded_split(corpus, split, task.tokenizer).digest


def score(filler: MaskFiller, corpus: TextCorpus, split: str) -> dict[str, Any]:
    """How well a model predicts hidden tokens of a split: 15% of all, drawn once with a fixed seed.

    Returns:
        `loss`, the mean negative log-likelihood of a hidden token in nats; `perplexity`, its exponential;
        `token_accuracy`, the share of hidden tokens that are predicted; `total`, the number of hidden tokens; and in
        `digests` a hash of the split's texts.

    Raises:
        CorpusError: the split cannot be read.
        ValueError: the model is not a masked language model, or it is an export.
    """
    if not isinstance(filler, MaskFiller):
        raise ValueError("only the run of a masked language model can be scored on hidden tokens, such as runs/NAME")
    ids, digest, _ = encoded_split(corpus, split, filler.tokenizer)
    windows = _scoring_windows(ids, filler, _SCORED, split)
    scored = MaskedTokenPrediction(filler.model)
    scored.compile(jit_compile=False)
    scores = scored.evaluate(windows.once(), verbose=0, return_dict=True)
    return {
        "metric": "masked_loss",
        "loss": round(scores["loss"], 6),
        "perplexity": round(math.exp(scores["loss"]), 6),
        "token_accuracy": round(scores["token_accuracy"], 6),
        "total": windows.steps * windows.batch_size * windows.hidden,
        "digests": {split: digest},
    }


def _window(window: int | None, encoder: Encoder) -> int:
    """The length of the windows to train on, in tokens."""
    limit = position_limit(encoder, _SHORTEST)
    length = window or encoder.max_length
    if not _SHORTEST <= length <= (limit or length):
        most = f" to {limit}, the tokens that the encoder has learned positions for" if limit else " tokens on"
        raise RecipeError(f"training.window must be from {_SHORTEST}{most}; received {length}")
    return length


def _scoring_windows(ids: np.ndarray, filler: MaskFiller, masked: float, split: str, least: int = 1) -> MaskedWindows:
    """Windows in batches of one size that leave out as few windows as possible.

    If the split has as many, a batch has at least `least` windows, so that each of several workers has some.

    Raises:
        CorpusError: the split is too short for one window.
    """
    length = filler.max_length
    content = int(np.count_nonzero((ids != START) & (ids != END)))
    # `Windows` needs one window more than it gives, because it shifts the borders by up to a window.
    if content < (needed := 2 * (length - 2) + 1):
        raise CorpusError(
            f"Split {split!r} has {content:,} tokens, too few for windows of {length} tokens: it takes {needed:,} or "
            "more. Give it more text, or train with a smaller training.window."
        )
    windows = max(1, (content - 1) // (length - 2) - 1)
    batches = max(1, min(-(-windows // max(1, BATCH_TOKENS // length)), windows // least))
    return MaskedWindows(ids, filler.tokenizer, length, windows // batches, masked, "segments" in filler.model.input)
