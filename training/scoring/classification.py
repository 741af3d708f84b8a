"""Scores a classifier on texts whose classes are known: accuracy, F1, calibration, and which classes it mixes up."""

from __future__ import annotations

import collections
import dataclasses
import difflib
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from zoo.tasks.protocol import Classifies, rows_of_batches
from zoo.tasks.results import Classification, Text

from ..corpora.labelled import LabelledTexts
from .evaluation import SHOWN_MISTAKES, Accuracy
from .intervals import wilson_interval

_BINS = 15  # as in Guo et al.
# The upper ends of the ranges of lengths. Characters, because scripts without spaces have no words to count.
_LENGTHS = [scale * step for scale in (10, 100, 1000, 10_000, 100_000) for step in (1, 2, 5)]


@dataclasses.dataclass
class ClassificationScores:
    """The result of classifying a split and comparing each class with the true one.

    Only classes that occur are scored: as the class of a text, or as an answer. The other classes that the classifier
    knows do not lower the macro F1.

    Attributes:
        labels: the names of the classes, in the classifier's order.
        counts: how many texts of each class (row) were given each class (column), `(C, C)`.
        calibration: how far probabilities can be trusted. The highest one of each text falls into one of 15 ranges.
            For each range with texts, from low to high: its ends `above` and `up_to`, the mean probability
            (`confidence`), the `accuracy`, and the `total` of texts.
        by_group: the counts by the corpus' groups; empty if the corpus has no groups.
        by_length: the counts by length in characters, by ranges such as `21-50`; of a pair, both texts are counted.
        mistakes: text, label, output and probability of wrongly classified texts, the most confident first. The text
            of a pair is a list of two.
    """

    labels: list[str]
    counts: np.ndarray
    calibration: list[dict[str, float]]
    by_group: dict[str, Accuracy]
    by_length: dict[str, Accuracy]
    mistakes: list[dict[str, Any]]

    @property
    def overall(self) -> Accuracy:
        """The count of all texts."""
        return Accuracy(int(self.counts.trace()), int(self.counts.sum()))

    @property
    def by_class(self) -> dict[str, dict[str, Any]]:
        """Precision, recall and F1 of each class, and its total of texts.

        A class that was never given has no precision, and a class without texts has no recall: they are None. F1 is
        `2 right / (texts of the class + times it was given)`, which is 0 in both cases.
        """
        return scores_by_class(self.labels, self.counts.diagonal(), self.counts.sum(1), self.counts.sum(0))

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the classes that occur as the class of a text or as an answer."""
        f1 = 2 * self.counts.diagonal() / (self.counts.sum(0) + self.counts.sum(1))  # (C,)
        return float(f1.mean())

    @property
    def calibration_error(self) -> float:
        """The expected calibration error: the mean difference of probability and accuracy, weighted by texts.

        References:
            Guo et al. (2017), On Calibration of Modern Neural Networks, https://arxiv.org/abs/1706.04599, equation 3.
        """
        wrong_by = sum(abs(each["confidence"] - each["accuracy"]) * each["total"] for each in self.calibration)
        return wrong_by / self.overall.total

    def as_dict(self) -> dict[str, Any]:
        """For `metrics.json`."""
        overall = self.overall
        low, high = wilson_interval(overall.correct, overall.total)
        return {
            "metric": "accuracy",
            **overall.as_dict("accuracy"),
            "accuracy_low": round(low, 6),
            "accuracy_high": round(high, 6),
            "macro_f1": round(self.macro_f1, 6),
            "calibration_error": round(self.calibration_error, 6),
            "calibration": [{key: round(value, 6) for key, value in each.items()} for each in self.calibration],
            "by_class": self.by_class,
            "by_group": {group: accuracy.as_dict("accuracy") for group, accuracy in sorted(self.by_group.items())},
            "by_length": {length: accuracy.as_dict("accuracy") for length, accuracy in self.by_length.items()},
            "confusion": {"labels": self.labels, "counts": self.counts.tolist()},
            "mistakes": self.mistakes,
        }


def evaluate(
    classifier: Classifies,
    texts: LabelledTexts,
    batch_size: int = 64,
    advance: Callable[[int], None] | None = None,
) -> ClassificationScores:
    """Classifies all texts and compares their classes with the true ones.

    Args:
        classifier: a `TextClassifier` or an exported `ServableClassifier`.
        texts: texts, or pairs of texts, and their classes.
        batch_size: how many texts are classified at once.
        advance: a function for a progress bar; it is called with the number of texts just done.

    Raises:
        ValueError: there are no texts, the classifier does not know the class of a text, or it gives a class that it
            did not name.
    """
    results, known = classify_all(classifier, texts, set(texts.labels), batch_size, advance)
    return compare_classes(results, texts.labels, known, texts.groups)


def classify_all(
    classifier: Classifies,
    texts: LabelledTexts,
    occurring: set[str],
    batch_size: int,
    advance: Callable[[int], None] | None,
) -> tuple[list[Classification], Sequence[str]]:
    """The results of all texts in their order, and the classes that the classifier knows.

    Classes of an export, which does not say their order, are sorted.

    Args:
        classifier: as for `evaluate`.
        texts: the texts.
        occurring: the classes of the texts.
        batch_size: how many texts are classified at once.
        advance: a function for a progress bar, as for `evaluate`.

    Raises:
        ValueError: there are no texts, or the classifier does not know a class that occurs.
    """
    if not len(texts):
        raise ValueError("`texts` must hold at least one text. Received: none")
    inputs = texts.inputs
    labels = getattr(classifier, "labels", None) or sorted(classifier.classify(inputs[:1])[0].probabilities)
    if unknown := sorted(occurring.difference(labels)):
        nearest = difflib.get_close_matches(unknown[0], labels, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"`texts` must have classes that the classifier knows. Received: {unknown[0]!r}; the nearest one that it "
            f"knows is {nearest!r}"
        )
    found: dict[int, Classification] = {}
    for rows in rows_of_batches(["".join(text) for text in inputs], batch_size):
        found.update(zip(rows, classifier.classify([inputs[row] for row in rows], batch_size), strict=True))
        if advance:
            advance(len(rows))
    return [found[row] for row in range(len(texts))], labels


def compare_classes(
    results: Sequence[Classification],
    truth: Sequence[str],
    labels: Sequence[str],
    groups: Sequence[str] | None = None,
) -> ClassificationScores:
    """Compares the classes given with the true ones, and counts.

    Args:
        results: the classes that the texts were given.
        truth: the true class of each text.
        labels: the classes that the classifier knows.
        groups: the group of each text; None if there are none.

    Raises:
        ValueError: a result has a class that is not in `labels`.
    """
    occurring = {*truth, *(result.label for result in results)}
    if others := sorted(occurring.difference(labels)):
        raise ValueError(f"`labels` must hold every class that the classifier gives. Received: no {others[0]!r}")
    names = [label for label in labels if label in occurring]
    numbers = {label: number for number, label in enumerate(names)}
    counts = np.zeros([len(names), len(names)], np.int64)
    by_group: dict[str, Accuracy] = collections.defaultdict(Accuracy)
    by_range: dict[int, Accuracy] = collections.defaultdict(Accuracy)
    mistakes = []
    for row, (result, label) in enumerate(zip(results, truth, strict=True)):
        counts[numbers[label], numbers[result.label]] += 1
        counted = [by_range[length_range(result.text)]]
        if groups is not None:
            counted.append(by_group[groups[row]])
        for each in counted:
            each.add(result.label == label)
        if result.label != label:
            mistakes.append((result, label))
    mistakes.sort(key=lambda mistake: -mistake[0].probability)  # of equal ones the order of the texts stays
    return ClassificationScores(
        names,
        counts,
        _calibration(results, truth),
        by_group,
        {length_name(number): by_range[number] for number in sorted(by_range)},
        [_as_shown(*mistake) for mistake in mistakes[:SHOWN_MISTAKES]],
    )


# What is shown of the scores, from `metrics.json`.


def confusions(metrics: dict[str, Any]) -> list[tuple[str, str, int, int]]:
    """Which classes are mixed up, the most frequent first: true class, class given, how often, texts of the class."""
    labels, counts = metrics["confusion"]["labels"], metrics["confusion"]["counts"]
    found = [
        (labels[row], labels[column], count, sum(counts[row]))
        for row, column in itertools.permutations(range(len(labels)), 2)
        if (count := counts[row][column])
    ]
    return sorted(found, key=lambda each: (-each[2], each[3]))  # of equal counts, the larger share first


def weakest_classes(metrics: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The classes with texts and an F1 below 1, with their scores, the lowest F1 first."""
    weak = [(label, each) for label, each in metrics["by_class"].items() if each["total"] and each["f1"] < 1]
    return sorted(weak, key=lambda item: item[1]["f1"])


def _calibration(results: Sequence[Classification], truth: Sequence[str]) -> list[dict[str, float]]:
    """The rows of `ClassificationScores.calibration`; the ranges have equal width and hold their upper end."""
    rows: dict[int, list[tuple[float, bool]]] = collections.defaultdict(list)
    for result, label in zip(results, truth, strict=True):
        number = min(max(math.ceil(result.probability * _BINS) - 1, 0), _BINS - 1)
        rows[number].append((result.probability, result.label == label))
    return [
        {
            "above": number / _BINS,
            "up_to": (number + 1) / _BINS,
            "confidence": statistics.fmean(probability for probability, _ in rows[number]),
            "accuracy": statistics.fmean(right for _, right in rows[number]),
            "total": len(rows[number]),
        }
        for number in sorted(rows)
    ]


def length_range(text: Text) -> int:
    """The number of the range that the length of a text, or of both texts of a pair, falls into."""
    length = sum(map(len, text))
    return next((number for number, end in enumerate(_LENGTHS) if length <= end), len(_LENGTHS))


def length_name(number: int) -> str:
    """The ends of a range of lengths, such as `21-50`."""
    begin = _LENGTHS[number - 1] + 1 if number else 1
    return f"{begin}-{_LENGTHS[number]}" if number < len(_LENGTHS) else f"{begin} or more"


def _as_shown(result: Classification, label: str) -> dict[str, Any]:
    return {
        "text": shown_text(result.text),
        "label": label,
        "output": result.label,
        "probability": round(result.probability, 6),
    }


def shown_text(text: Text) -> str | list[str]:
    """The text, or both texts of a pair, for JSON."""
    return text if isinstance(text, str) else list(text)


def scores_by_class(
    labels: Sequence[str], right: np.ndarray, totals: np.ndarray, given: np.ndarray
) -> dict[str, dict[str, Any]]:
    """Precision, recall and F1 of each class, and its total of texts; see `ClassificationScores.by_class`.

    Args:
        labels: the names of the classes.
        right: how many texts of each class were given it, `(C,)`.
        totals: how many texts have each class, `(C,)`.
        given: how many texts were given each class, `(C,)`.
    """
    return {
        label: {
            "precision": _share(of_right, of_given),
            "recall": _share(of_right, total),
            "f1": _share(2 * of_right, total + of_given),
            "total": int(total),
        }
        for label, of_right, total, of_given in zip(labels, right, totals, given, strict=True)
    }


def _share(part: Any, whole: Any) -> float | None:
    """The part of a whole, rounded; None if the whole is 0."""
    return round(float(part / whole), 6) if whole else None
