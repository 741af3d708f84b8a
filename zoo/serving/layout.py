"""The folder layout that TensorFlow Serving reads: NAME/<integer>/saved_model.pb."""

from __future__ import annotations

import pathlib

SAVED_MODEL_FILE = "saved_model.pb"


def versions(path: pathlib.Path) -> list[int]:
    """The version numbers in a model's folder, in ascending order."""
    if not path.is_dir():
        return []
    return sorted(int(child.name) for child in path.iterdir() if child.is_dir() and child.name.isdecimal())


def newest_version(path: pathlib.Path) -> pathlib.Path | None:
    """The SavedModel that a path means: itself, or its newest version; None if it means none."""
    if (path / SAVED_MODEL_FILE).is_file():
        return path
    for version in reversed(versions(path)):
        if (path / str(version) / SAVED_MODEL_FILE).is_file():
            return path / str(version)
    return None
