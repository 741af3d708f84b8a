"""How results are printed, by a model in a folder and by one on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoo.tasks.results import Score

RULE = "-" * 20  # between texts that may have several lines


def one_line(text: str) -> str:
    """A text without line breaks: one line in, one line out."""
    return text.replace("\n", " ")


def score_line(score: Score) -> str:
    """Log-probability, tokens, perplexity and the text, with tabs between."""
    return f"{score.log_probability:.4f}\t{score.tokens}\t{score.perplexity:.4f}\t{one_line(score.text)}"
