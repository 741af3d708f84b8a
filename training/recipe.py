"""Recipes: everything a training run depends on, as data.

A recipe is a TOML file that says only what differs from the defaults. It is validated on reading, and what it does not
know it refuses, naming the nearest thing it does.
"""

from __future__ import annotations

import difflib
import json
import pathlib
import tomllib
from collections.abc import Iterable
from importlib import resources
from typing import Annotated, Any, Literal, get_args

import pydantic
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from training.corpora import CORPORA


class RecipeError(ValueError):
    """A recipe that cannot be used; the message says which key, and what is valid there."""


class _Table(pydantic.BaseModel):
    """A table of a recipe: unknown keys are errors, and nothing changes after reading."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class CharactersConfig(_Table):
    """A vocabulary of the characters that occur in training."""

    kind: Literal["characters"] = "characters"
    minimum_count: PositiveInt = Field(1, description="rarer characters are unknown")
    maximum_size: PositiveInt | None = Field(None, description="how many characters to keep, the commonest first")


class TokenizersConfig(_Table):
    """The tokenizers of both sides."""

    source: CharactersConfig = CharactersConfig()
    target: CharactersConfig = CharactersConfig()


class RNNSeq2SeqConfig(_Table):
    """The arguments of `zoo.models.RNNSeq2Seq`."""

    family: Literal["rnn_seq2seq"] = "rnn_seq2seq"
    attention: Literal["additive", "dot", "scaled", "general", "concat", "none"] = Field(
        "additive", description="how the decoder scores the source; 'none' is the thought vector"
    )
    cell: Literal["gru", "lstm"] = Field("gru", description="the recurrent cell")
    units: PositiveInt = Field(256, description="width of the states")
    embedding_dim: PositiveInt | None = Field(None, description="width of the embeddings; as `units` if not given")
    readout_units: PositiveInt | None = Field(None, description="width of the maxout layer; `units / 2` if not given")
    dropout: float = Field(0.0, ge=0, lt=1, description="rate, on embeddings and readout")


class TrainingConfig(_Table):
    """How the model is fitted."""

    batch_size: PositiveInt = Field(64, description="pairs a step")
    epochs: PositiveInt = Field(10, description="passes over the training pairs")
    learning_rate: PositiveFloat = Field(1e-3, description="Adam's highest learning rate")
    warmup_steps: NonNegativeInt = Field(0, description="steps over which the learning rate rises from zero")
    schedule: Literal["constant", "cosine"] = Field("cosine", description="after the warm-up; cosine falls to zero")
    clip_norm: PositiveFloat | None = Field(1.0, description="largest norm of all gradients together")
    buckets: PositiveInt = Field(4, description="how many lengths batches are padded to")
    jit_compile: bool = Field(True, description="whether XLA compiles the step, once a bucket")


class LengthsConfig(_Table):
    """How long texts may be, in tokens with the end token. What is longer is left out of training."""

    max_source: PositiveInt = Field(200, description="source tokens; in use, longer texts are cut off here")
    max_target: PositiveInt = Field(200, description="target tokens; in use, results end here at the latest")


class Recipe(_Table):
    """A training run as data: `zoo train NAME` runs it."""

    description: str = Field("", description="one line for `zoo list`")
    seed: int = Field(0, ge=0, lt=2**32, description="of the weights' initial values and of the order of the pairs")
    corpus: Annotated[CORPORA, Field(discriminator="kind")]
    tokenizer: TokenizersConfig = TokenizersConfig()
    model: RNNSeq2SeqConfig = RNNSeq2SeqConfig()
    training: TrainingConfig = TrainingConfig()
    lengths: LengthsConfig = LengthsConfig()


def recipe_names() -> list[str]:
    """The names of the recipes that come with the zoo."""
    folder = resources.files("training.recipes")
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def read_recipe(name: str, overrides: Iterable[str] = ()) -> Recipe:
    """Reads a recipe and validates it.

    Args:
        name: a recipe of the zoo (`dates`), or the path of a TOML file (`mine.toml`) or of a run's `recipe.json`.
        overrides: `key=value` each, the key dotted and the value as in TOML (`model.units=128`); a value that is
            not TOML is taken as a string.

    Raises:
        RecipeError: there is no such recipe, it cannot be parsed, or something in it is not valid.
    """
    tables = _tables(name)
    for override in overrides:
        _override(tables, override)
    try:
        return Recipe.model_validate(tables)
    except pydantic.ValidationError as error:
        faults = "; ".join(_explain(fault) for fault in error.errors())
        raise RecipeError(f"recipe {name!r}: {faults}") from None


def name_of(name: str) -> str:
    """What a recipe's models are called: its name without folder and suffix."""
    return pathlib.PurePath(name).stem


def _tables(name: str) -> dict[str, Any]:
    """The tables of a recipe's file, TOML or, as runs leave them behind, JSON."""
    if name in recipe_names():
        file = resources.files("training.recipes").joinpath(f"{name}.toml")
    else:
        file = pathlib.Path(name)
        if not file.is_file():
            hint = _nearest(name, recipe_names())
            raise RecipeError(f"no recipe {name!r}{hint}; there are {', '.join(recipe_names())}, or give a TOML file")
    parse = json.loads if name.endswith(".json") else tomllib.loads
    try:
        tables = parse(file.read_text(encoding="utf-8"))
    except ValueError as error:  # what both parsers' errors are, and what text that is not UTF-8 raises
        raise RecipeError(f"recipe {name!r} cannot be read: {error}") from None
    if not isinstance(tables, dict):
        raise RecipeError(f"recipe {name!r} cannot be read: expected tables, received a {type(tables).__name__}")
    return tables


def _override(tables: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise RecipeError(f"--set {override!r}: expected KEY=VALUE, such as model.units=128")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *parents, last = key.strip().split(".")
    table = tables
    for parent in parents:
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise RecipeError(f"--set {override!r}: {parent!r} is a value, not a table")
    table[last] = value


def _explain(fault: dict[str, Any]) -> str:
    """One fault of a recipe in one sentence."""
    path = [str(part) for part in fault["loc"]]
    model = _model_at(path[:-1])
    if path[:1] == ["corpus"] and len(path) > 1:
        path = [path[0], *path[2:]]  # pydantic puts the corpus' kind into the path; the recipe does not
    key = ".".join(path)
    if fault["type"] == "extra_forbidden":
        known = [] if model is None else list(model.model_fields)
        return f"unknown key {key!r}{_nearest(path[-1], known)}; valid here: {', '.join(known)}"
    if fault["type"] == "missing":
        return f"{key!r} is missing"
    if fault["type"] in ("union_tag_invalid", "union_tag_not_found"):
        given = fault["input"].get("kind") if isinstance(fault["input"], dict) else None
        kinds = [corpus.model_fields["kind"].default for corpus in _corpus_classes()]
        return f"'corpus.kind' must be one of {', '.join(kinds)}{_nearest(str(given), kinds)}, received {given!r}"
    message = fault["msg"].removeprefix("Value error, ")
    return f"{key!r}: {message[0].lower()}{message[1:]} (received {fault['input']!r})"


def _corpus_classes() -> tuple[type[pydantic.BaseModel], ...]:
    return get_args(CORPORA)


def _model_at(path: list[str]) -> type[pydantic.BaseModel] | None:
    """The pydantic model whose keys stand at a path of a recipe."""
    if path[:1] == ["corpus"] and len(path) == 2:
        return {corpus.model_fields["kind"].default: corpus for corpus in _corpus_classes()}.get(path[1])
    model: Any = Recipe
    for part in path:
        field = model.model_fields.get(part)
        model = field and field.annotation
        if not (isinstance(model, type) and issubclass(model, pydantic.BaseModel)):
            return None
    return model


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
