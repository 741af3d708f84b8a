"""What there is: recipes to train, and models that were exported."""

from __future__ import annotations

import pathlib

from rich.console import Console
from rich.table import Table

from zoo.serving.layout import newest_version, versions

from ..run_files import METRICS_FILE, read_metrics
from ..schema.recipe import read_recipe, recipe_names
from ..scoring.headline import headline


def print_recipes() -> None:
    """Prints the recipes that come with the zoo."""
    table = _table("recipe", "what it trains")
    for name in recipe_names():
        table.add_row(name, read_recipe(name).description)
    Console().print(table)


def print_models(folder: pathlib.Path) -> None:
    """Prints the models in a folder, with the score of each one's newest version."""
    models = [child for child in sorted(folder.iterdir()) if versions(child)] if folder.is_dir() else []
    if not models:
        Console().print(f"no exported models in {folder}/", markup=False)
        return
    table = _table("exported model", "versions", "score of the newest")
    for model in models:
        table.add_row(str(model), ", ".join(map(str, versions(model))), _score(model))
    Console().print(table)


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _score(model: pathlib.Path) -> str:
    """The score that stands beside the newest version, or why there is none."""
    version = newest_version(model)
    if version is None:
        return "no version holds a SavedModel"
    try:
        return headline(read_metrics(version))
    except (OSError, ValueError, KeyError, TypeError):
        return f"no {METRICS_FILE}"
