"""Scores a classifier on texts that may belong to several classes: exact sets, and F1 by class and over all classes."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from zoo.tasks.protocol import Classifies
from zoo.tasks.results import Classification

from ..corpora.labelled import LabelledTexts
from .classification import classify_all, length_name, length_range, scores_by_class, shown_text
from .evaluation import SHOWN_MISTAKES, Accuracy
from .intervals import wilson_interval

THRESHOLD = 0.5  # a class of a higher probability is given


@dataclasses.dataclass
class LabelSetScores:
    """The result of classifying a split and comparing the classes given to each text with the true ones.

    Attributes:
        labels: the names of the classes that the classifier knows.
        right: how many texts of each class were given it, `(C,)`.
        totals: how many texts have each class, `(C,)`.
        given: how many texts were given each class, `(C,)`.
        overall: how many texts were given exactly their classes.
        by_length: likewise by length in characters; of a pair, both texts are counted.
        mistakes: text, labels, outputs, and `probability`: that of the class that is wrong with the most confidence,
            by which they are sorted. The text of a pair is a list of two.
    """

    labels: list[str]
    right: np.ndarray
    totals: np.ndarray
    given: np.ndarray
    overall: Accuracy
    by_length: dict[str, Accuracy]
    mistakes: list[dict[str, Any]]

    @property
    def by_class(self) -> dict[str, dict[str, Any]]:
        """Precision, recall and F1 of each class, and its total of texts; see `ClassificationScores.by_class`."""
        return scores_by_class(self.labels, self.right, self.totals, self.given)

    @property
    def micro_f1(self) -> float:
        """The F1 of all decisions together: `2 right / (classes of all texts + classes given to all texts)`."""
        return float(2 * self.right.sum() / max(1, self.totals.sum() + self.given.sum()))

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the classes that some text has or was given."""
        sizes = self.totals + self.given  # (C,)
        return float((2 * self.right[sizes > 0] / sizes[sizes > 0]).mean()) if sizes.any() else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For `metrics.json`."""
        low, high = wilson_interval(self.overall.correct, self.overall.total)
        return {
            "metric": "subset_accuracy",
            **self.overall.as_dict("subset_accuracy"),
            "subset_accuracy_low": round(low, 6),
            "subset_accuracy_high": round(high, 6),
            "micro_f1": round(self.micro_f1, 6),
            "macro_f1": round(self.macro_f1, 6),
            "threshold": THRESHOLD,
            "by_class": self.by_class,
            "by_length": {length: each.as_dict("subset_accuracy") for length, each in self.by_length.items()},
            "mistakes": self.mistakes,
        }


def evaluate(
    classifier: Classifies,
    texts: LabelledTexts,
    batch_size: int = 64,
    advance: Callable[[int], None] | None = None,
) -> LabelSetScores:
    """Classifies all texts and compares their classes with the true ones.

    Args:
        classifier: a `TextClassifier` or an exported `ServableClassifier`, with a probability for each class on its
            own.
        texts: texts, or pairs of texts, and their classes.
        batch_size: how many texts are classified at once.
        advance: a function for a progress bar; it is called with the number of texts just done.

    Raises:
        ValueError: there are no texts, or the classifier does not know a class of a text.
    """
    occurring = {label for given in texts.label_sets for label in given}
    results, known = classify_all(classifier, texts, occurring, batch_size, advance)
    return compare_sets(results, texts.label_sets, known)


def compare_sets(
    results: Sequence[Classification], truth: Sequence[Collection[str]], labels: Sequence[str]
) -> LabelSetScores:
    """Compares the classes given with the true ones, and counts.

    Args:
        results: the probabilities of the classes of each text; a class above 0.5 is given.
        truth: the true classes of each text.
        labels: the classes that the classifier knows.
    """
    probabilities = np.array([[result.probabilities[label] for label in labels] for result in results])  # (N, C)
    given = probabilities > THRESHOLD  # (N, C)
    true = np.array([[label in names for label in labels] for names in truth])  # (N, C)
    right = (given == true).all(axis=1)  # (N,)
    ranges: dict[int, Accuracy] = collections.defaultdict(Accuracy)
    for result, is_right in zip(results, right.tolist(), strict=True):
        ranges[length_range(result.text)].add(is_right)
    confidence = np.where(given, probabilities, 1 - probabilities)  # (N, C), of the decision
    worst = np.where(given != true, confidence, 0.0).max(axis=1)  # (N,)
    mistakes = [row for row in np.argsort(-worst, kind="stable") if not right[row]][:SHOWN_MISTAKES]

    def names(row: np.ndarray) -> list[str]:
        return [label for label, holds in zip(labels, row, strict=True) if holds]

    return LabelSetScores(
        list(labels),
        (given & true).sum(axis=0),
        true.sum(axis=0),
        given.sum(axis=0),
        Accuracy(int(right.sum()), len(right)),
        {length_name(number): ranges[number] for number in sorted(ranges)},
        [
            {
                "text": shown_text(results[row].text),
                "labels": names(true[row]),
                "outputs": names(given[row]),
                "probability": round(float(worst[row]), 6),
            }
            for row in mistakes
        ],
    )
