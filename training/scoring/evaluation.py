"""Scores a translator on pairs of texts: exact matches, mistakes, and BLEU for sentences."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from zoo.tasks.protocol import Translation, rows_of_batches
from zoo.tasks.text_to_text import TextToText

from ..corpora.pairs import Pairs
from . import bleu

_SHOWN_MISTAKES = 20


@dataclasses.dataclass
class Accuracy:
    """How many outputs of a total are correct."""

    correct: int = 0
    total: int = 0

    def add(self, correct: bool) -> None:
        """Counts one more output."""
        self.correct += correct
        self.total += 1

    @property
    def rate(self) -> float:
        """The share of correct outputs, from 0 to 1."""
        return self.correct / self.total if self.total else 0.0

    def as_dict(self, rate: str = "exact_match") -> dict[str, Any]:
        """For `metrics.json`; `rate` is the name of the share."""
        return {rate: round(self.rate, 6), "right": self.correct, "total": self.total}


@dataclasses.dataclass
class Evaluation:
    """The result of translating a split and comparing each output with its target.

    Attributes:
        overall: the count of all pairs.
        by_group: the counts by the corpus' groups, such as the locale; empty if the corpus has no groups.
        by_length: the counts by source length in characters.
        mistakes: source, target and output of the first outputs that differ from their target.
        sentences: the scores of `zoo_training.scoring.bleu.scores`, if the texts are sentences.
    """

    overall: Accuracy
    by_group: dict[str, Accuracy]
    by_length: dict[int, Accuracy]
    mistakes: list[dict[str, str]]
    sentences: dict[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """For `metrics.json`."""
        return {
            "metric": "exact_match" if self.sentences is None else "bleu",
            **(self.sentences or {}),
            **self.overall.as_dict(),
            "by_group": {group: accuracy.as_dict() for group, accuracy in sorted(self.by_group.items())},
            "by_source_length": {length: accuracy.as_dict() for length, accuracy in sorted(self.by_length.items())},
            "mistakes": self.mistakes,
        }


def evaluate(
    model: TextToText,
    pairs: Pairs,
    batch_size: int = 256,
    advance: Callable[[int], None] | None = None,
    metric: Literal["bleu", "exact_match"] = "exact_match",
    language: str | None = None,
) -> Evaluation:
    """Translates all sources and compares the outputs with the targets.

    Args:
        model: a `Translator` or an exported `ServableTranslator`.
        pairs: source texts and their targets.
        batch_size: how many texts are translated at once.
        advance: a function for a progress bar; it is called with the number of pairs just done.
        metric: the score of the task; with 'bleu' the result has BLEU beside the exact matches.
        language: the language of the targets; None if unknown.
    """
    groups: Sequence[str | None] = pairs.groups or [None] * len(pairs)
    outputs = [""] * len(pairs)

    def translated() -> Iterator[tuple[Translation, str, str | None]]:
        for rows in rows_of_batches(pairs.sources, batch_size):
            translations = model.translate([pairs.sources[row] for row in rows], batch_size)
            for row, translation in zip(rows, translations, strict=True):
                outputs[row] = translation.text
                yield translation, pairs.targets[row], groups[row]
            if advance:
                advance(len(rows))

    evaluation = compare_outputs(translated())
    if metric == "bleu":
        evaluation.sentences = bleu.scores(pairs.sources, outputs, pairs.targets, language)
    return evaluation


def compare_outputs(results: Iterable[tuple[Translation, str, str | None]]) -> Evaluation:
    """Compares each translation with its target, and counts, from (translation, target, group) triples."""
    evaluation = Evaluation(Accuracy(), collections.defaultdict(Accuracy), collections.defaultdict(Accuracy), [])
    for translation, target, group in results:
        correct = translation.text == target
        counts = [evaluation.overall, evaluation.by_length[len(translation.source)]]
        if group is not None:
            counts.append(evaluation.by_group[group])
        for each in counts:
            each.add(correct)
        if not correct and len(evaluation.mistakes) < _SHOWN_MISTAKES:
            evaluation.mistakes.append({"source": translation.source, "target": target, "output": translation.text})
    return evaluation
