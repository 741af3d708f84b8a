"""The page on recipes is what the tables say."""

import pathlib
import re

import pytest
from zoo_training.schema import recipe_reference
from zoo_training.schema.generator_tables import GeneratorRecipe
from zoo_training.schema.recipe_reference import page
from zoo_training.schema.translator_tables import TranslatorRecipe

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "recipes.md"


def test_the_page_is_as_the_program_writes_it():
    assert PAGE.read_text(encoding="utf-8") == page(), f"python -m {recipe_reference.__name__} > docs/recipes.md"


def test_the_example_is_the_recipe_itself():
    [example] = re.findall(r"^```toml\n(.*?)^```", page(), re.DOTALL | re.MULTILINE)
    assert example == (PAGE.parents[1] / "training" / "recipes" / "dates.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "row",
    [
        "| `label_smoothing` | number from 0 below 1 | `0.0` | probability spread over all labels in training |",
        "| `seed` | whole number from 0 below 2^32 | `0` | seed of the initial weights and of the order of the texts |",
        '| `cell` | `"gru"`, `"lstm"` | `"gru"` | recurrent cell, "gru" or "lstm" |',
        "| `embedding_dim` | whole number from 1 |  | width of the embeddings; `units` if left out |",
        "| `train` | string or list of 2 strings | required | training pairs: a TSV file, or a list of two files whose"
        " lines correspond |",
    ],
)
def test_rows(row):
    assert f"\n{row}\n" in page()


@pytest.mark.parametrize("recipe", [TranslatorRecipe, GeneratorRecipe])
def test_every_kind_has_its_keys(recipe):
    text = page()
    for _, kinds in recipe.kinds.values():
        for tag, table in kinds.items():
            assert f'"{tag}"`\n' in text
            for name in table.model_fields:
                assert name in ("kind", "family") or f"\n| `{name}` |" in text
