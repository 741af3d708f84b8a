"""The files that a run, and a version exported from it, are made of: their names, and what the metrics hold."""

from __future__ import annotations

import json
import pathlib
from typing import Any

RECIPE_FILE = "recipe.json"
METRICS_FILE = "metrics.json"
CARD_FILE = "README.md"


def read_metrics(folder: pathlib.Path) -> dict[str, Any]:
    """What the metrics of a run or an exported version hold.

    Raises:
        FileNotFoundError: the folder has none.
        ValueError: they cannot be read.
    """
    file = folder / METRICS_FILE
    if not file.is_file():
        raise FileNotFoundError(
            f"{folder} must be the folder of a finished run or of an exported model, with a {METRICS_FILE}"
        )
    try:
        metrics = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:  # text that is not UTF-8 raises one, too
        raise ValueError(f"{file} cannot be read: {error}") from None
    if not isinstance(metrics, dict):
        raise ValueError(f"{file} must hold a JSON object. Received: {type(metrics).__name__}")
    return metrics
