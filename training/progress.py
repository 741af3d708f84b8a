"""What a command tells on the terminal while it works: all on stderr, so that stdout holds results alone."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

# FORCE_COLOR and its like, which many build servers set, make no terminal of a file.
console = Console(stderr=True, highlight=False, force_terminal=sys.stderr.isatty())


def say(line: str) -> None:
    """A line about what goes on."""
    console.print(line, markup=False, soft_wrap=True)


@contextlib.contextmanager
def progress_bar(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar with counts and the time left, shown on a terminal only.

    Yields:
        A function to be called with the number of things just done.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=total)
        yield lambda done: progress.advance(task, done)
