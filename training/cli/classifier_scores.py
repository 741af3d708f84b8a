"""How the scores of a classifier are printed."""

from __future__ import annotations

from typing import Any

import typer

_TABLE_CLASSES, _WORST_PAIRS, _WEAKEST_CLASSES, _MISTAKES = 12, 10, 5, 3
_LONGEST_HEADING = 10  # letters; the rows have the whole names in the same order


def print_classifier_scores(metrics: dict[str, Any], split: str) -> None:
    """Prints which classes are mixed up, the weakest classes, groups, the most confident mistakes, and the scores.

    Args:
        metrics: the scores, as in `metrics.json`.
        split: the split that was scored.
    """
    from ..scoring.classification import confusions, weakest_classes
    from ..scoring.headline import headlines, scored_on

    name = metrics["metric"]  # "accuracy", or "subset_accuracy" if a text may have several labels
    if "confusion" not in metrics:
        pass  # of several labels it is not known which one was given in place of another
    elif len(metrics["confusion"]["labels"]) <= _TABLE_CLASSES:
        _print_table(**metrics["confusion"])
    else:
        for label, given, count, total in confusions(metrics)[:_WORST_PAIRS]:
            typer.echo(f"{label} given as {given}: {count:,} of {total:,}")
    for label, scores in weakest_classes(metrics)[:_WEAKEST_CLASSES]:
        precision = "never given" if scores["precision"] is None else f"precision {scores['precision']:.2%}"
        typer.echo(
            f"class {label}: F1 {scores['f1']:.2%}, {precision}, recall {scores['recall']:.2%} of {scores['total']:,}"
        )
    for group, score in metrics.get("by_group", {}).items():
        typer.echo(f"{group:<12} {score['accuracy']:>8.2%}  {score['right']:>6,} of {score['total']:,}")
    for mistake in metrics["mistakes"][:_MISTAKES]:
        text = mistake["text"] if isinstance(mistake["text"], str) else " | ".join(mistake["text"])
        if name == "accuracy":
            given, label = f"{mistake['output']} ({mistake['probability']:.1%})", mistake["label"]
        else:
            given, label = (", ".join(mistake[key]) or "no label" for key in ("outputs", "labels"))
        typer.echo(f"wrong: {text!r} -> {given}, not {label}")
    scores = headlines(metrics)
    scores[next(iter(scores))] += (
        f" [{metrics[f'{name}_low']:.2%}, {metrics[f'{name}_high']:.2%}] on {scored_on({**metrics, 'split': split})}"
    )
    for name, value in scores.items():
        typer.echo(f"{split:<12} {name:<18} {value}")


def _print_table(labels: list[str], counts: list[list[int]]) -> None:
    """The table of confusions: a row for each true class, a column for each class given."""
    from rich.cells import cell_len, set_cell_size  # letters of Chinese are two columns wide

    def right(text: str, width: int) -> str:
        return " " * (width - cell_len(text)) + text

    corner = "true \\ given"
    headings = [each if cell_len(each) <= _LONGEST_HEADING else f"{each[: _LONGEST_HEADING - 1]}…" for each in labels]
    widths = [
        max(cell_len(heading), *(len(f"{row[column]:,}") for row in counts)) for column, heading in enumerate(headings)
    ]
    first = max(map(cell_len, [corner, *labels]))
    lines = [(corner, headings), *((label, [f"{n:,}" for n in row]) for label, row in zip(labels, counts, strict=True))]
    for name, cells in lines:
        typer.echo("  ".join([set_cell_size(name, first), *map(right, cells, widths)]))
