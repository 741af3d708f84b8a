"""Lines and bars that show the progress of a command: on stderr, so that stdout holds only results."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

# Many build servers set FORCE_COLOR; with it, rich would take a file for a terminal.
console = Console(stderr=True, highlight=False, force_terminal=sys.stderr.isatty())


def say(line: str) -> None:
    """Prints a line about the progress."""
    console.print(line, markup=False, soft_wrap=True)


def be_silent() -> None:
    """Shows no progress from now on: of several workers only the chief does."""
    console.quiet = True


def time_left(seconds: float) -> str:
    """How long something still takes, such as "40 s left" or "1:05 h left"."""
    if seconds < 90:
        return f"{round(seconds)} s left"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours}:{minutes:02} h left" if hours else f"{minutes} min left"


@contextlib.contextmanager
def progress_bar(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar with counts and the time left, shown on a terminal only.

    Yields:
        A function to call with the number of items just done.
    """
    if not console.is_terminal:
        yield lambda done: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task(label, total=total)
        yield lambda done: progress.advance(task, done)
