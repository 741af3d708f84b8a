"""Fine-tuning: the trained model that a recipe starts from, for all families."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pydantic

from zoo.loading import load
from zoo.tasks.task import SavedTask
from zoo.text import PADDING, UNKNOWN

from .corpora.corpus import expanded
from .progress import say
from .ragged import Rows, StoredRows
from .run_files import Digest
from .schema import generator_tables, translator_tables
from .schema.recipe import RecipeError
from .schema.recipe_tables import Recipe

_FAMILIES = {**translator_tables.FAMILIES, **generator_tables.FAMILIES}
_MANY_UNKNOWN = 0.05  # of all tokens
_ROWS, _TOKENS = 1000, 100_000  # of texts; of running text
_NOT_ARGUMENTS = ("start", "family", "kind", "encoder")


def say_unknown(texts: Rows | StoredRows | np.ndarray, name: str) -> None:
    """Says if many tokens are unknown to the tokenizer of `model.start`: nothing can be learnt about them.

    Args:
        texts: the ids of texts, of which 1,000 rows are looked at; or of running text, int `(N,)`, of which 100,000
            are.
        name: what the texts are, for the message.
    """
    if isinstance(texts, np.ndarray):
        ids = texts[:: -(-len(texts) // _TOKENS)]  # (N,)
    else:
        some = np.arange(0, len(texts), -(-len(texts) // _ROWS))  # (N,)
        ids = texts.padded(some, int(texts.lengths[some].max()))  # (N, T)
    share = np.count_nonzero(ids == UNKNOWN) / np.count_nonzero(ids != PADDING)
    if share > _MANY_UNKNOWN:
        say(
            f"warning: {share:.0%} of the tokens of the {name} are unknown to the tokenizer of model.start, so "
            "nothing is learnt about them"
        )


def load_pretrained(recipe: Recipe) -> Any:
    """Loads the task that `model.start` names. Training continues from its model and tokenizers.

    Raises:
        RecipeError: the folder holds no model, or it is an export, which cannot be trained.
    """
    try:
        task = load(expanded(recipe.model.start))
    except (FileNotFoundError, ValueError) as error:
        raise RecipeError(f"model.start: {error}") from None
    if not isinstance(task, SavedTask):
        raise RecipeError(
            f"model.start: {recipe.model.start} is an exported model, which cannot be trained; give a run"
        )
    return task


def clone_pretrained(
    table: pydantic.BaseModel, model: keras.Model, wanted: type[keras.Model], dtype: str, key: str = "model"
) -> Any:
    """Copies a trained model with its weights, so that training can continue with the copy.

    Args:
        table: the recipe's table of the model's arguments. Its rates of dropout, where set, replace those of the model.
        model: the trained model.
        wanted: the class that the recipe trains.
        dtype: the precision that it computes in.
        key: the table's place in the recipe, such as `model.encoder`, for error messages.

    Raises:
        RecipeError: the model is of another class, or the table sets an argument that is not the model's.
    """
    if not isinstance(model, wanted):
        chooses = "model.family" if key == "model" else f"{key}.kind"
        own = type(model).__name__
        family = type(model).__module__.rpartition(".")[2]  # each family has a module of its name
        hint = f"; its family is {family!r}" if key == "model" and family in _FAMILIES else ""
        raise RecipeError(f"model.start has a `{own}`, and {chooses} asks for a `{wanted.__name__}`{hint}")
    config = dict(model.get_config())
    states = config.pop("layer_states", {})
    if any("dtype" in state for state in states.values()):
        raise RecipeError("model.start has quantised layers, which cannot be trained; start from the model before that")
    changes: dict[str, Any] = {"dtype": dtype, "trainable": True}
    for name in sorted(table.model_fields_set - set(_NOT_ARGUMENTS)):
        if name not in config:
            raise RecipeError(f"{key}.{name} is no argument of the `{type(model).__name__}` of model.start")
        value, own = getattr(table, name), config[name]
        if name.endswith("dropout"):
            changes[name] = value
        elif value != own and not (value == "none" and own is None):
            raise RecipeError(
                f"{key}.{name} is {value!r}, and the model of model.start has {own!r}; leave the key out, or start "
                "from another model"
            )
    copy = type(model).from_config({**config, **changes})
    copy_weights(copy, model)
    return copy


def copy_weights(copy: keras.Model, model: keras.Model) -> None:
    """Gives a new model the weights of a loaded one of the same kind.

    Keras adds what LoRA has learnt to the kernels when it saves a model. So in a loaded one LoRA is zero, and left out.
    """
    copy.set_weights([weight.numpy() for weight in model.weights if "lora_" not in weight.name])


def position_limit(encoder: keras.Model, shortest: int) -> int | None:
    """The most tokens that an encoder with learned positions can read; None for an encoder with other positions.

    Args:
        encoder: a text encoder of the zoo.
        shortest: the fewest tokens of a text that the task can work with.

    Raises:
        RecipeError: the limit is below `shortest`.
    """
    most = getattr(encoder, "most_positions", None)
    if most is not None and most < shortest:
        raise RecipeError(
            f"the encoder has learned positions for {most} tokens, and a text needs room for {shortest}; "
            f"set model.encoder.max_length to {shortest} or more, or start from another model"
        )
    return most


def weights_digest(model: keras.Model) -> str:
    """A hash of all weights. A resumed training compares it, to check that the start is the same model."""
    digest = Digest()
    for array in model.get_weights():
        digest.add_bytes(np.ascontiguousarray(array).tobytes())
    return str(digest)
