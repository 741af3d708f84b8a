"""Word and phoneme error rates of pronunciations, with stress marks and without."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .intervals import wilson_interval

_STRESS = re.compile(r"[012](?=\s|$)")  # behind a vowel of ARPAbet, as in AH0


def scores(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The error rates of the pronunciations of some words, as `metrics.json` holds them: shares from 0.

    The **word error rate** is the share of words whose output equals none of the word's pronunciations. The **phoneme
    error rate** compares each output with the nearest pronunciation of its word, which is the first of those with the
    smallest edit distance: how many phonemes must be replaced, inserted or left out. It is the sum of these distances,
    divided by the number of phonemes of these pronunciations.

    Args:
        outputs: a pronunciation of each word, phonemes with spaces between them.
        references: the right pronunciations of each word, at least one.

    Returns:
        `word_error_rate`, with its 95% interval by Wilson's formula in `word_error_rate_low` and
        `word_error_rate_high`, and `phoneme_error_rate`, of phonemes without stress marks;
        `word_error_rate_with_stress` and `phoneme_error_rate_with_stress`, where a wrong mark is a wrong phoneme.

    Example:
        >>> scores(["AH0 L", "B IY2"], [["AH0 L"], ["B", "B IY1 Z"]])["word_error_rate_with_stress"]
        0.5
    """
    bare = [without_stress(output) for output in outputs]
    bare_references = [[without_stress(reference) for reference in right] for right in references]
    wrong, rate = _errors(bare, bare_references)
    low, high = wilson_interval(wrong, len(outputs))
    wrong_with_stress, rate_with_stress = _errors(outputs, references)
    found = {
        "word_error_rate": wrong / len(outputs),
        "word_error_rate_low": low,
        "word_error_rate_high": high,
        "phoneme_error_rate": rate,
        "word_error_rate_with_stress": wrong_with_stress / len(outputs),
        "phoneme_error_rate_with_stress": rate_with_stress,
    }
    return {name: round(value, 6) for name, value in found.items()}


def without_stress(sounds: str) -> str:
    """A pronunciation without the digits of its vowels: `AH L OW` for `AH0 L OW1`."""
    return _STRESS.sub("", sounds)


def edit_distance(first: Sequence[str], second: Sequence[str]) -> int:
    """How many items must be replaced, inserted or left out to make one sequence of the other (Levenshtein 1966)."""
    row = list(range(len(second) + 1))  # from nothing to each beginning of `second`
    for number, item in enumerate(first, start=1):
        diagonal, row[0] = row[0], number
        for column, other in enumerate(second, start=1):
            replaced = diagonal + (item != other)
            diagonal = row[column]
            row[column] = min(replaced, diagonal + 1, row[column - 1] + 1)
    return row[-1]


def _errors(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[int, float]:
    """The number of wrong words, and the phoneme error rate."""
    wrong = errors = length = 0
    for output, right in zip(outputs, references, strict=True):
        sounds = [reference.split() for reference in right]
        distances = [edit_distance(output.split(), each) for each in sounds]
        nearest = min(range(len(right)), key=distances.__getitem__)
        wrong += distances[nearest] > 0
        errors += distances[nearest]
        length += len(sounds[nearest])
    return wrong, errors / length
