"""The page that lists all commands, written from their help; typer writes the part of each command.

python -m zoo_training.cli.reference > docs/commands.md
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import typer

from . import app

_HEAD = """\
# Commands

This page lists all commands and their options, as `zoo COMMAND --help` does.

```sh
zoo list                                                        # recipes, and exported models with their scores
zoo train mine.toml --set training.epochs=5                     # runs/mine, and saved_models/mine/1
zoo translate saved_models/mine --file texts.txt > answers.txt  # one result a line
zoo serve saved_models/mine                                     # http://127.0.0.1:8501
```

A mistake in a file, a model or a recipe ends a command with one line on stderr, a wrong option with the usage of the
command. The exit code is 2.
"""
_FOOT = "This page is written by `python -m zoo_training.cli.reference > docs/commands.md`."
_TYPE = re.compile(r" <[A-Za-z\[\] ]+>`")  # of a value, in words of Python


def page() -> str:
    """The page as Markdown."""
    typers = [sys.executable, "-m", "typer", __package__, "utils", "docs", "--name", "zoo"]
    found = subprocess.run(typers, capture_output=True, text=True, check=True).stdout
    _, first, rest = found.partition("## `zoo ")  # without typer's own table, which cuts the sentences
    return "\n".join([_HEAD, *_table(), "", _TYPE.sub("`", first + rest).rstrip(), "", _FOOT, ""])


def _table() -> Iterator[str]:
    yield "| command | what it does |"
    yield "|---|---|"
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        first, _, _ = command.help.partition("\n\n")
        yield f"| [`zoo {name}`](#zoo-{name}) | {' '.join(first.split())} |"


if __name__ == "__main__":
    print(page(), end="")
