"""The page that lists what recipes may say, written from the tables themselves.

python -m zoo_training.schema.recipe_reference > docs/recipes.md
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pydantic

from ..corpora.cleaning import CleanPairs, CleanTexts
from .classifier_tables import (
    ENCODERS,
    ClassifierConfig,
    ClassifierRecipe,
    ClassifierTraining,
    MaskedLanguageModelConfig,
    MaskedTraining,
    TextLengths,
)
from .generator_tables import GeneratorRecipe, GeneratorTraining
from .recipe import read_recipe, recipe_names
from .recipe_tables import TOKENIZERS, Recipe, TrainingConfig
from .translator_tables import DecodingConfig, LengthsConfig, TokenizersConfig, TranslatorRecipe, TranslatorTraining

_SHOWN = 8  # of a long list
_DEFAULT = re.compile(r"(.*)(?:;|\.) [dD]efault: ((?:(?!\. |;).)*)")  # in the last words of a description
_HEAD = """\
# Recipes

A recipe is a TOML file that says what to train, on what, and how. Keys that it leaves out have the defaults below.

```sh
zoo train dates                               # a recipe of the zoo
zoo train mine.toml                           # one of your own
zoo train mine.toml --set model.units=512     # with another value
zoo train runs/mine/recipe.json               # what a run keeps: all values, defaults included
```

| you train | `[model] family` | it learns from | keys |
|---|---|---|---|
| a translator | `rnn_seq2seq`, the default, or `transformer` | pairs of texts | \
[corpus](#corpus-of-a-translator), [lengths](#lengths-of-a-translator), [decoding](#decoding-of-a-translator) |
| a language model | `gpt` | running text | [corpus](#corpus-of-a-language-model) |
| a model that fills gaps | `masked_language_model` | running text | [corpus](#corpus-of-a-language-model) |
| a classifier | `classifier` | texts with labels | \
[corpus](#corpus-of-a-classifier), [lengths](#lengths-of-a-classifier) |
| any of these, fine-tuned | that of the model in `[model] start` | as above | [Fine-tuning](own_data.md#fine-tuning) |

All have [`[tokenizer]`](#tokenizer), `[model]` and [`[training]`](#training).

- The keys of `[model]` are the arguments of the classes in `zoo.models`. Their docstrings explain the letters, such as
  D and H.
- An unknown key is an error that names the nearest valid one.
- A translator may have [several corpora](better_translators.md#several-corpora): `[[corpus]]` in place of `[corpus]`.
- A relative path of a file is looked up in the working directory, then in the recipe's folder.
- With `[model] start`, `[model]`, `[lengths]` and `[decoding]` come from that model, except for the keys that you set.
  Of these three tables, the run's `recipe.json` has only the keys that you set.

This page is written by `python -m zoo_training.schema.recipe_reference > docs/recipes.md`.

## An example

The recipe `dates`, which `zoo train dates` runs:

```toml
{example}
```

## Recipes that come with the zoo
"""


def page() -> str:
    """The page as Markdown."""
    example = resources.files("zoo_training.recipes").joinpath("dates.toml").read_text(encoding="utf-8")
    return "\n".join([_HEAD.format(example=example.strip()), *_recipes(), *_keys()])


def _recipes() -> Iterator[str]:
    yield "| recipe | what it trains |"
    yield "|---|---|"
    for name in recipe_names():
        yield f"| [`{name}`](../training/recipes/{name}.toml) | {read_recipe(name).description} |"
    yield ""


def _keys() -> Iterator[str]:
    yield from _section("Every recipe", Recipe, but=("training",), what="Keys before the first table.")
    yield from _kinds("[corpus]", "of a translator", TranslatorRecipe, "corpus")
    yield from _kinds("[corpus]", "of a language model", GeneratorRecipe, "corpus")
    yield from _kinds("[corpus]", "of a classifier", ClassifierRecipe, "corpus")
    yield from _section("`[corpus.clean]` of a translator", CleanPairs)
    yield from _section("`[corpus.clean]` of a classifier", CleanTexts)
    yield "## `[tokenizer]`\n"
    yield "A translator has `[tokenizer.source]` and `[tokenizer.target]`, or `[tokenizer.joint]` for both sides."
    yield "Translators and GPTs use `characters` by default. A masked language model takes `wordpiece`, which is also"
    yield "the default of a classifier.\n"
    sample = "Keys of a translator's `[tokenizer]`, beside these tables."
    yield from _section(
        "`[tokenizer]` of a translator", TokenizersConfig, 3, ("source", "target", "joint"), what=sample
    )
    for kind, table in TOKENIZERS.items():
        yield from _section(f'`kind = "{kind}"`', table, level=3, but=("kind",))
    for recipe in (TranslatorRecipe, GeneratorRecipe):
        _, families = recipe.kinds[("model",)]
        for family, table in families.items():
            yield from _section(f'`[model]`, `family = "{family}"`', table, but=("family",))
    yield from _section('`[model]`, `family = "classifier"`', ClassifierConfig, but=("family", "encoder"))
    masked = MaskedLanguageModelConfig
    yield from _section('`[model]`, `family = "masked_language_model"`', masked, but=("family", "encoder"))
    for kind, table in ENCODERS.items():
        yield from _section(f'`[model.encoder]`, `kind = "{kind}"`', table, but=("kind",))
    yield from _section("`[training]`", TrainingConfig)
    yield from _section("`[training]` of a translator, in addition", TranslatorTraining, only=TrainingConfig)
    yield from _section("`[training]` of a language model, in addition", GeneratorTraining, only=TrainingConfig)
    yield from _section("`[training]` of a classifier, in addition", ClassifierTraining, only=TrainingConfig)
    yield from _section("`[training]` of a masked language model, in addition", MaskedTraining, only=TrainingConfig)
    yield from _section("`[lengths]` of a translator", LengthsConfig)
    yield from _section("`[lengths]` of a classifier", TextLengths)
    yield from _section("`[decoding]` of a translator", DecodingConfig)


def _kinds(title: str, whose: str, recipe: type[Recipe], table: str) -> Iterator[str]:
    yield f"## `{title}` {whose}\n"
    _, kinds = recipe.kinds[(table,)]
    tables = dict(sorted(kinds.items(), key=lambda item: item[0] not in ("text", "labels")))  # your own files first
    first, *others = (each.model_json_schema()["properties"] for each in tables.values())
    shared = tuple(name for name in first if all(each.get(name) == first[name] for each in others))
    if shared:
        alone = next(iter(tables.values()))
        rest = tuple(name for name in first if name not in shared)
        yield from _section("Keys of every kind", alone, level=3, but=rest, what="Each kind below has these keys, too.")
    for kind, each in tables.items():
        yield from _section(f'`kind = "{kind}"`', each, level=3, but=("kind", *shared))


def _section(
    title: str,
    table: type[pydantic.BaseModel],
    level: int = 2,
    but: tuple[str, ...] = (),
    only: type[pydantic.BaseModel] | None = None,
    what: str | None = None,
) -> Iterator[str]:
    """A heading, the purpose of the table (`what`), and a row for each key, without the keys that `only` also has."""
    whole = table.model_json_schema()
    known = only.model_json_schema()["properties"] if only else {}
    yield f"{'#' * level} {title}\n"
    yield f"{what or (table.__doc__ or '').strip().splitlines()[0]}\n"
    rows = []
    for name, schema in whole["properties"].items():
        if name in but or known.get(name) == schema:
            continue
        told = " ".join(schema.get("description", "").split()).replace("|", "\\|")
        default = "required" if name in whole.get("required", ()) else _default(schema.get("default"))
        if not default and (found := _DEFAULT.fullmatch(told)):  # one that is not known before the texts are read
            told, default = found.groups()
        rows.append(f"| `{name}` | {_values(schema)} | {default} | {told} |")
    if rows:
        yield from ("| key | value | default | meaning |", "|---|---|---|---|", *rows, "")


def _default(value: Any) -> str:
    if value is None or isinstance(value, dict):  # a table, whose keys are listed elsewhere
        return ""
    if isinstance(value, list) and len(value) > _SHOWN:
        return f"`{json.dumps(value[:_SHOWN])[:-1]}, ...]`, {len(value)} of them"
    return f"`{json.dumps(value)}`"


def _values(schema: dict[str, Any]) -> str:
    """The values of a key in words."""
    if "$ref" in schema:
        return "table"
    if "anyOf" in schema:
        return " or ".join(_values(each) for each in schema["anyOf"] if each.get("type") != "null")
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(each)}`" for each in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "prefixItems" in schema:
        return f"list of {len(schema['prefixItems'])} strings"
    if schema.get("type") == "array":
        return f"list of {_values(schema.get('items', {}))}".replace("number", "numbers").replace("string", "strings")
    kind = {"integer": "whole number", "number": "number", "boolean": "true or false"}
    kind |= {"string": "string", "object": "table"}
    words = kind.get(schema.get("type", ""), "")
    bounds = {"minimum": "from {}", "exclusiveMinimum": "above {}", "maximum": "to {}", "exclusiveMaximum": "below {}"}
    limits = [text.format(_number(schema[key])) for key, text in bounds.items() if key in schema]
    if schema.get("exclusiveMinimum") == 0 and schema.get("type") == "integer":
        limits[0] = "from 1"
    return f"{words} {' '.join(limits)}".strip()


def _number(value: float) -> str:
    return f"2^{value.bit_length() - 1}" if isinstance(value, int) and value >= 2**32 else f"{value:,g}"


if __name__ == "__main__":
    print(page(), end="")
