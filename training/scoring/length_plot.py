"""BLEU by source length, several models in one picture: figure 2 of Bahdanau et al. (2014)."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .plot_files import check_plot_file, read_scores, write_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KINDS = {"bleu_published_style": "BLEU (lowercased, tokenised)", "bleu": "BLEU"}
_LINES, _MARKERS = ("-", "--", "-.", ":"), "osD^vP"  # these distinguish the models in black and white


def draw(models: dict[str, dict[str, Any]], least: int = 10) -> Figure:
    """Draws one line for each model with its 95% intervals as a band, and below it the number of pairs.

    The line is BLEU in the style of published figures if all models have it, else BLEU of the plain texts.

    Args:
        models: the contents of `metrics.json`, by each model's name in the legend.
        least: ranges of lengths with fewer pairs are left out.

    Raises:
        ValueError: the models were scored on different pairs, or no range of lengths has enough of them.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    counts = _common_counts(models)
    kept = [bucket for bucket, pairs in counts.items() if pairs >= least]
    if not kept:
        raise ValueError(f"Some length must have at least {least} pairs. Received: {sum(counts.values())} pairs in all")
    middles = [sum(map(int, bucket.split("-"))) / 2 for bucket in kept]
    tables = {name: metrics["bleu_by_source_words"] for name, metrics in models.items()}
    kind = next(kind for kind in _KINDS if all(kind in table[kept[0]] for table in tables.values()))
    figure = Figure(figsize=(7, 4.6), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes, below = figure.subplots(2, sharex=True, height_ratios=(6, 1))
    for number, (name, table) in enumerate(tables.items()):
        scores = {key: [table[bucket][kind][key] for bucket in kept] for key in ("score", "low", "high")}
        style = {"linestyle": _LINES[number % len(_LINES)], "marker": _MARKERS[number % len(_MARKERS)]}
        (line,) = axes.plot(middles, scores["score"], label=name, linewidth=1.6, markersize=5, **style)
        axes.fill_between(middles, scores["low"], scores["high"], color=line.get_color(), alpha=0.12, linewidth=0)
    axes.set(ylabel=_KINDS[kind])
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    for text in axes.legend().get_texts():
        text.set_parse_math(False)
    bars = below.bar(middles, [counts[bucket] for bucket in kept], width=3.6, color="0.75")
    below.bar_label(bars, [f"{counts[bucket]:,}" for bucket in kept], fontsize=8, padding=1)
    below.set(xlabel="source length (words)", ylabel="pairs", yticks=[])
    below.set_xticks(middles, [bucket.replace("-", "–") for bucket in kept])
    below.margins(y=0.45)
    for spine in ("top", "right", "left"):
        below.spines[spine].set_visible(False)
    return figure


def save(folders: Sequence[pathlib.Path], path: pathlib.Path) -> pathlib.Path:
    """Reads the scores of runs or exported models, and draws them into a file.

    Args:
        folders: folders of runs or of exported models; each becomes a line with its model's name.
        path: a .png, .svg or .pdf file. If drawing fails, an older file of that name stays unchanged.

    Raises:
        FileNotFoundError: a folder has no scores.
        ValueError: the suffix is another one, there are no scores by source length, or they cannot be compared.
    """
    check_plot_file(path)
    lacks = "BLEU by source length; what was scored by exact match alone has none"
    scores = [read_scores(folder, "bleu_by_source_words", lacks) for folder in folders]
    names = [str(each.get("name", folder)) for each, folder in zip(scores, folders, strict=True)]
    # Models with the same name, such as two versions of one model, are labelled by their folders.
    labels = [name if names.count(name) == 1 else str(folder) for name, folder in zip(names, folders, strict=True)]
    if repeated := sorted({label for label in labels if labels.count(label) > 1}):
        raise ValueError(f"Give each model once. Received: {', '.join(repeated)} more than once")
    return write_figure(draw(dict(zip(labels, scores, strict=True))), path)


def _common_counts(models: dict[str, dict[str, Any]]) -> dict[str, int]:
    """The number of pairs in each range of lengths, which must be the same for all models."""
    found = {
        name: {bucket: each["pairs"] for bucket, each in metrics["bleu_by_source_words"].items()}
        for name, metrics in models.items()
    }
    (first, counts), *others = found.items()
    for name, each in others:
        if each != counts:
            raise ValueError(
                f"{first} and {name} were scored on different pairs ({sum(counts.values()):,} and "
                f"{sum(each.values()):,}), so they cannot be compared"
            )
    return counts
