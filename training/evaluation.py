"""How often the whole output is right: by group, by source length, and where it goes wrong."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from training.corpora import Pairs
from zoo.text_to_text import TextToText, Translation

SHOWN_MISTAKES = 20


@dataclasses.dataclass
class Tally:
    """How many of how many were right."""

    right: int = 0
    total: int = 0

    @property
    def rate(self) -> float:
        """The share of right ones, from 0 to 1."""
        return self.right / self.total if self.total else 0.0

    def to_json(self) -> dict[str, Any]:
        """For `metrics.json`."""
        return {"exact_match": round(self.rate, 6), "right": self.right, "total": self.total}


@dataclasses.dataclass
class Evaluation:
    """The result of translating a split and comparing each text, whole, with its target.

    Attributes:
        overall: all pairs.
        by_group: by the corpus' groups, such as the locale; empty where it has none.
        by_length: by source length in characters.
        mistakes: the first wrong ones: source, target and what came out.
    """

    overall: Tally
    by_group: dict[str, Tally]
    by_length: dict[int, Tally]
    mistakes: list[dict[str, str]]

    def to_json(self) -> dict[str, Any]:
        """For `metrics.json`."""
        return {
            **self.overall.to_json(),
            "by_group": {group: tally.to_json() for group, tally in sorted(self.by_group.items())},
            "by_source_length": {length: tally.to_json() for length, tally in sorted(self.by_length.items())},
            "mistakes": self.mistakes,
        }


def evaluate(
    model: TextToText, pairs: Pairs, batch_size: int = 256, advance: Callable[[int], None] | None = None
) -> Evaluation:
    """Translates all sources and counts the exact matches.

    Args:
        model: a `Translator` or an exported `Servable`.
        pairs: what to translate, and what should come out.
        batch_size: how many to translate at once.
        advance: called with the number of pairs done, for a progress bar.
    """
    groups = pairs.groups or [None] * len(pairs)
    rows = sorted(zip(pairs.sources, pairs.targets, groups, strict=True), key=lambda row: len(row[0]))

    def translated() -> Iterable[tuple[Translation, str, str | None]]:
        for begin in range(0, len(rows), batch_size):
            batch = rows[begin : begin + batch_size]
            sources, targets, names = zip(*batch, strict=True)
            yield from zip(model.translate(sources, batch_size), targets, names, strict=True)
            if advance:
                advance(len(batch))

    return tally(translated())


def tally(results: Iterable[tuple[Translation, str, str | None]]) -> Evaluation:
    """Counts (translation, target, group) triples."""
    evaluation = Evaluation(Tally(), collections.defaultdict(Tally), collections.defaultdict(Tally), [])
    for translation, target, group in results:
        right = translation.text == target
        tallies = [evaluation.overall, evaluation.by_length[len(translation.source)]]
        if group is not None:
            tallies.append(evaluation.by_group[group])
        for each in tallies:
            each.right += right
            each.total += 1
        if not right and len(evaluation.mistakes) < SHOWN_MISTAKES:
            evaluation.mistakes.append({"source": translation.source, "target": target, "output": translation.text})
    return evaluation
