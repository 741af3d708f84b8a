"""What all plots of scores share: where the scores are read, and how a figure becomes a file."""

from __future__ import annotations

import io
import pathlib
from typing import TYPE_CHECKING, Any

from zoo.atomic import write_whole
from zoo.extras import needs

from ..run_files import METRICS_FILE, MODEL_CHANGED, about_changed_model, checked_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SUFFIXES = (".png", ".svg", ".pdf")


def read_scores(folder: pathlib.Path, key: str, what: str) -> dict[str, Any]:
    """The scores of a run, or of the newest version of an exported model.

    Args:
        folder: the folder of the run or the model.
        key: the key of what is drawn.
        what: what the scores lack without it, for the error.

    Raises:
        FileNotFoundError: the folder has no scores.
        ValueError: the scores cannot be read, are those of a model that was replaced, or lack the key.
    """
    from zoo.serving.layout import newest_version

    scored = newest_version(folder) or folder
    metrics = checked_metrics(scored)
    if metrics.get("not_scored") == MODEL_CHANGED:
        raise ValueError(about_changed_model(scored))
    if not metrics.get(key):
        raise ValueError(f"{scored / METRICS_FILE} has no {what}")
    return metrics


def check_plot_file(path: pathlib.Path) -> None:
    """Refuses what `write_figure` cannot write, before anything is drawn.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ValueError: the suffix is none of .png, .svg and .pdf.
    """
    with needs("pictures"):
        import matplotlib  # noqa: F401

    if path.suffix.lower() not in _SUFFIXES:
        raise ValueError(f"`path` must end in {', '.join(_SUFFIXES)}. Received: path={str(path)!r}")


def write_figure(figure: Figure, path: pathlib.Path) -> pathlib.Path:
    """Writes a figure, in the kind of file that the suffix says; the same figure always gives the same bytes."""
    import matplotlib

    content, suffix = io.BytesIO(), path.suffix.lower()[1:]
    metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[suffix]
    with matplotlib.rc_context({"svg.hashsalt": "zoo"}):  # instead of random ids
        figure.savefig(content, format=suffix, dpi=200, metadata=metadata)
    return write_whole(path, content.getvalue())
