"""Scores a translator on pairs of texts: exact matches, BLEU of sentences, error rates of pronunciations."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from zoo.tasks.protocol import rows_of_batches
from zoo.tasks.results import Translation
from zoo.tasks.text_to_text import TextToText

from ..corpora.pairs import Pairs
from . import bleu, pronunciation

SHOWN_MISTAKES = 20

Metric = Literal["bleu", "exact_match", "word_error_rate", "spelling"]
"""What a split of pairs is scored by."""


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
        mistakes: source, target and output of the first outputs that differ from their target, or from all of their
            targets, which then have ` | ` between them.
        metric: the name of the most important score.
        scores: the scores of that kind: of `zoo_training.scoring.bleu.scores` if the texts are sentences, of
            `zoo_training.scoring.pronunciation.scores` if they are pronunciations; else none.
    """

    overall: Accuracy
    by_group: dict[str, Accuracy]
    by_length: dict[int, Accuracy]
    mistakes: list[dict[str, str]]
    metric: Metric = "exact_match"
    scores: dict[str, Any] = dataclasses.field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For `metrics.json`."""
        return {
            "metric": self.metric,
            **self.scores,
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
    metric: Metric = "exact_match",
    language: str | None = None,
) -> Evaluation:
    """Translates all sources and compares the outputs with the targets.

    Args:
        model: a `Translator` or an exported `ServableTranslator`.
        pairs: source texts and their targets.
        batch_size: how many texts are translated at once.
        advance: a function for a progress bar; it is called with the number of pairs just done.
        metric: the score of the task; with 'bleu' the result has BLEU beside the exact matches. With
            'word_error_rate' and 'spelling', pairs with the same source are one, which is right if the output is any
            of the targets.
        language: the language of the targets; None if unknown.
    """
    sources, groups = pairs.sources, pairs.groups
    targets: list[tuple[str, ...]] = [(target,) for target in pairs.targets]
    if metric in ("word_error_rate", "spelling"):
        sources, targets, groups = by_source(pairs)
    outputs = [""] * len(sources)

    def translated() -> Iterator[tuple[Translation, tuple[str, ...], str | None]]:
        for rows in rows_of_batches(sources, batch_size):
            translations = model.translate([sources[row] for row in rows], batch_size)
            for row, translation in zip(rows, translations, strict=True):
                outputs[row] = translation.text
                yield translation, targets[row], groups[row] if groups else None
            if advance:
                advance(sum(len(targets[row]) for row in rows))

    evaluation = compare_outputs(translated())
    evaluation.metric = metric
    if metric == "bleu":
        evaluation.scores = bleu.scores(pairs.sources, outputs, pairs.targets, language)
    elif metric == "word_error_rate":
        evaluation.scores = pronunciation.scores(outputs, targets)
    return evaluation


def by_source(pairs: Pairs) -> tuple[list[str], list[tuple[str, ...]], list[str] | None]:
    """The different sources in their order, all targets of each, and its group."""
    rows: dict[str, list[int]] = {}
    for row, source in enumerate(pairs.sources):
        rows.setdefault(source, []).append(row)
    targets = [tuple(pairs.targets[row] for row in each) for each in rows.values()]
    return [*rows], targets, pairs.groups and [pairs.groups[each[0]] for each in rows.values()]


def compare_outputs(results: Iterable[tuple[Translation, tuple[str, ...], str | None]]) -> Evaluation:
    """Compares each translation with its targets, and counts, from (translation, targets, group) triples."""
    evaluation = Evaluation(Accuracy(), collections.defaultdict(Accuracy), collections.defaultdict(Accuracy), [])
    for translation, targets, group in results:
        correct = translation.text in targets
        counts = [evaluation.overall, evaluation.by_length[len(translation.source)]]
        if group is not None:
            counts.append(evaluation.by_group[group])
        for each in counts:
            each.add(correct)
        if not correct and len(evaluation.mistakes) < SHOWN_MISTAKES:
            target = " | ".join(targets)
            evaluation.mistakes.append({"source": translation.source, "target": target, "output": translation.text})
    return evaluation
