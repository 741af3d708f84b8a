"""What all kinds of recipes share in `prepare`: a new model with its tokenizers, and hashes of what is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import keras

from zoo.text import Tokenizer

from .fine_tuning import weights_digest
from .learn_tokenizer import vocabulary_digest
from .schema.recipe import blamed_on
from .schema.recipe_tables import Recipe

Tokenizers = TypeVar("Tokenizers", Tokenizer, tuple[Tokenizer, Tokenizer])


def new_model(
    learn: Callable[[], Tokenizers], build: Callable[[Tokenizers], keras.Model]
) -> tuple[keras.Model, Tokenizers]:
    """Learns the tokenizers and builds the model for them, for a recipe without `model.start`.

    Args:
        learn: learns a tokenizer, or those of both sides, from the training texts.
        build: builds the model from what `learn` returns.

    Raises:
        RecipeError: the table `[tokenizer]` or `[model]` does not fit the texts.
    """
    with blamed_on("tokenizer"):
        tokenizers = learn()
    with blamed_on("model"):
        return build(tokenizers), tokenizers


def digests(recipe: Recipe, model: keras.Model, tokenizers: Sequence[Tokenizer], **splits: str) -> dict[str, str]:
    """The hashes that a stopped training compares before it goes on.

    Args:
        recipe: the recipe.
        model: the model before its training.
        tokenizers: its tokenizers.
        splits: the hash of each split.
    """
    start = {} if recipe.model.start is None else {"start": weights_digest(model)}
    return {**splits, "vocabulary": vocabulary_digest(tokenizers), **start}
