"""Which classes a classifier mixes up, as a picture: a table with a row for each true class."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.pictures.fonts import families_for
from zoo.pictures.labels import readable, width

from .headline import headline
from .plot_files import check_plot_file, read_scores, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WITH_NUMBERS = 20  # classes; of more, the numbers would be too small to read
_MOST_CLASSES = 100
_LONGEST_LABEL = 32  # letters
_ACROSS, _DOWN = "class given", "true class"


def draw(metrics: dict[str, Any], name: str = "") -> Figure:
    """Draws the table of confusions: a row for each true class, a column for each class given.

    A shade is the share of the texts of its row. Up to 20 classes have their counts in the cells. Of more classes, the
    right answers are grey and the mistakes red, on a scale that ends at the largest share of mistakes. Of more than
    100, those with the most mistakes are drawn.

    Args:
        metrics: the content of `metrics.json`.
        name: the model's name in the title.

    Raises:
        ValueError: no font has a character of a label.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names, counts = metrics["confusion"]["labels"], np.array(metrics["confusion"]["counts"])  # (C, C)
    totals = counts.sum(1, keepdims=True)  # (C, 1)
    shares = counts / np.maximum(totals, 1)  # (C, C)
    title = ": ".join(filter(None, [readable(name), headline(metrics)]))
    if len(names) > _MOST_CLASSES:
        wrong = counts.sum(0) + counts.sum(1) - 2 * counts.diagonal()  # (C,)
        kept = np.sort(np.argsort(-wrong, kind="stable")[:_MOST_CLASSES])
        title += f"\nthe {_MOST_CLASSES} of {len(names)} classes with the most mistakes"
        names, counts, shares = [names[row] for row in kept], counts[kept][:, kept], shares[kept][:, kept]
    labels = [_label(each) for each in names]
    families = families_for(
        [*title.splitlines(), _ACROSS, _DOWN, "0123456789%,−", *labels], otherwise="Read the table in metrics.json"
    )
    few = len(labels) <= _WITH_NUMBERS
    cell, font = (0.62 if len(labels) <= 8 else 0.46, 9) if few else (0.14, 7)  # inches, points
    # The table keeps the size of its cells, and the labels get the room that they need.
    longest = max(map(width, labels)) * font / 72  # inches
    side = max(cell * len(labels), 1.9)
    upright = few and longest < side / len(labels)
    size = (longest + side + 1.8, (0.2 if upright else longest) + side + 0.9)
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    (_few if few else _many)(axes, counts, shares)
    style: dict[str, Any] = dict(fontfamily=families, parse_math=False)
    axes.set_xticks(range(len(labels)), labels, rotation=0 if upright else 90, fontsize=font, **style)
    axes.set_yticks(range(len(labels)), labels, fontsize=font, **style)
    axes.set_xlabel(_ACROSS)
    axes.set_ylabel(_DOWN)
    axes.tick_params(length=0 if few else 1.5, width=0.5)
    axes.spines[:].set(color="0.55", linewidth=0.5)
    # Above the whole picture, since a title is often wider than a table of two classes.
    figure.suptitle(title, fontsize=11, wrap=True, **style)
    return figure


def save(folder: pathlib.Path, path: pathlib.Path) -> pathlib.Path:
    """Reads the scores of a run or of an exported model, and draws their table of confusions into a file.

    Args:
        folder: the folder of a run or of an exported model.
        path: a .png, .svg or .pdf file. If drawing fails, an older file of that name stays unchanged.

    Raises:
        FileNotFoundError: the folder has no scores.
        ValueError: the suffix is another one, there is no table of confusions, or no font has a character.
    """
    check_plot_file(path)
    lacks = "table of confusions; only a scored classifier of one label per text has one"
    metrics = read_scores(folder, "confusion", lacks)
    return write_figure(draw(metrics, str(metrics.get("name", folder.name))), path)


def _few(axes: Axes, counts: np.ndarray, shares: np.ndarray) -> None:
    """Counts in the cells, on a shade of the share of the row."""
    _bar(axes, axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, interpolation="none"), "share of the true class")
    longest = len(f"{counts.max():,}")
    for (row, column), count in np.ndenumerate(counts):
        dark = shares[row, column] > 0.55
        style: dict[str, Any] = dict(color="white" if dark else "0.2" if count else "0.7")
        axes.text(column, row, f"{count:,}", ha="center", va="center", fontsize=9 if longest < 6 else 7, **style)


def _many(axes: Axes, counts: np.ndarray, shares: np.ndarray) -> None:
    """Right answers grey, mistakes red: beside right answers of 90% a mistake of 2% would be white."""
    right = np.eye(len(shares), dtype=bool)
    axes.imshow(np.ma.masked_where(~right, shares), cmap="Greys", vmin=0, vmax=2, interpolation="none")
    hidden = right | (counts == 0)
    worst = np.where(right, 0, shares).max() or 1.0
    # The root lets small shares be seen, too.
    from matplotlib.colors import PowerNorm

    norm = PowerNorm(0.5, vmin=0, vmax=worst)
    image = axes.imshow(np.ma.masked_where(hidden, shares), cmap="Reds", norm=norm, interpolation="none")
    _bar(axes, image, "mistakes: share of the true class")
    # Lines at each fifth class lead the eye from a cell to its labels.
    lines = np.arange(4.5, len(shares) - 1, 5)
    axes.vlines(lines, -0.5, len(shares) - 0.5, color="0.9", linewidth=0.4, zorder=0.5)
    axes.hlines(lines, -0.5, len(shares) - 0.5, color="0.9", linewidth=0.4, zorder=0.5)


def _bar(axes: Axes, image: Any, label: str) -> None:
    from matplotlib.ticker import PercentFormatter

    bar = axes.figure.colorbar(image, ax=axes, label=label, format=PercentFormatter(1), shrink=0.8, aspect=25)
    bar.outline.set(color="0.55", linewidth=0.5)  # type: ignore[operator]


def _label(name: str) -> str:
    shown = readable(name)
    return shown if len(shown) <= _LONGEST_LABEL else f"{shown[: _LONGEST_LABEL - 1]}…"
