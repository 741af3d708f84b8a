"""The command `zoo list`."""

from __future__ import annotations

import pathlib
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ..run_files import METRICS_FILE, read_metrics
from ..scoring.headline import headline
from .shared import MODELS, app, user_errors

if TYPE_CHECKING:
    from rich.table import Table

_WIDE = 1000  # letters, more than any row has


@app.command("list")
def list_(
    models: Annotated[pathlib.Path, typer.Option(metavar="FOLDER", help="Folder of the exported models.")] = MODELS,
) -> None:
    """List the recipes that come with the zoo, and the exported models with their scores."""
    with user_errors():
        from rich.console import Console

        from ..schema.recipe import read_recipe, recipe_names

        recipes = {name: [read_recipe(name).description] for name in recipe_names()}
        children = sorted(models.iterdir()) if models.is_dir() else []
        exported = {str(child): row for child in children if (row := _row(child))}
        # In a file or a pipe, a row is a line: `zoo list | grep` finds whole ones.
        console = Console(width=None if sys.stdout.isatty() else _WIDE)
        console.print(_table(["recipe", "what it trains"], recipes))
        if exported:
            console.print(_table(["exported model", "versions", "score of the newest"], exported))
        else:
            typer.echo(f"no exported models in {models}/")


def _row(model: pathlib.Path) -> list[str] | None:
    """The versions of a model and the score of the newest; None if the folder is no exported model."""
    from zoo.serving.layout import newest_version, versions

    try:
        numbers = ", ".join(map(str, versions(model)))
        version = newest_version(model)
    except OSError as error:
        return ["", f"cannot be read: {error.strerror}"]
    if not numbers:
        return None
    if version is None:
        return [numbers, "no version holds a SavedModel"]
    try:
        return [numbers, headline(read_metrics(version))]
    except (OSError, ValueError, KeyError, TypeError):  # of another kind, or written by another program
        return [numbers, f"no {METRICS_FILE} with scores"]


def _table(headings: list[str], rows: dict[str, list[str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for name, cells in rows.items():
        # Texts, because Rich reads strings as markup: a folder called [bold]x would be listed as x.
        table.add_row(*map(Text, [name, *cells]))
    return table
