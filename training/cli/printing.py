"""Results out: on one line, as JSON, or piece by piece."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    import numpy as np

    from zoo.tasks.results import Classification, Score

RULE = "-" * 20  # a line between texts that may have several lines
_ROUNDING = 0.01  # by which probabilities of a softmax, which are stored in float32, may miss their sum of 1
_SHOWN = 60  # letters of a line in a message


def classes_above(above: float, result: Classification, scores: bool = False) -> str:
    """The line of all classes with a probability above a number, with their probabilities if `scores`."""
    shown = ((label, each) for label, each in result.probabilities.items() if each > above)
    return one_line(", ".join(f"{each:.4f} {label}" if scores else label for label, each in shown))


class SeveralLabels:
    """Says once on stderr that a text may have several labels, where only the most likely is printed."""

    def __init__(self):
        self._told = False

    def look_at(self, results: Iterable[Classification]) -> None:
        """Says it if the probabilities of a result do not sum to 1."""
        if self._told or all(abs(sum(each.probabilities.values()) - 1) <= _ROUNDING for each in results):
            return
        self._told = True
        typer.echo(
            "zoo: the probabilities do not sum to 1, so a text may have several labels, or none. This prints the most "
            "likely alone; --above 0.5 prints all above 0.5",
            err=True,
        )


def shortened(line: str) -> str:
    """The beginning of a line, for a message."""
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


def one_line(text: str) -> str:
    """A text without line breaks: one line in, one line out."""
    return text.replace("\n", " ")


def print_growing(text: str, pieces: Iterable[str]) -> None:
    """Prints a text and, as they come, the pieces that continue it."""
    typer.echo(text, nl=False)
    for piece in pieces:
        typer.echo(piece, nl=False)
        sys.stdout.flush()
    typer.echo()


def with_vector(text: str, vector: np.ndarray) -> dict[str, Any]:
    """A text and its vector for JSON: each number in the fewest digits that a float32 is read back from."""
    return {"text": text.encode("utf-8", "replace").decode(), "embedding": [float(str(each)) for each in vector]}


def score_line(score: Score) -> str:
    """Log-probability, number of tokens, perplexity and text, separated by tabs."""
    return f"{score.log_probability:.4f}\t{score.tokens}\t{score.perplexity:.4f}\t{one_line(score.text)}"
