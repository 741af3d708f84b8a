"""The folder layout that TensorFlow Serving reads: NAME/<integer>/saved_model.pb."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Sequence

SAVED_MODEL_FILE = "saved_model.pb"
_AS_TEXT = "saved_model.pbtxt"
_TO_EXPORT = {  # what is no SavedModel yet, by a file in its folder
    "recipe.json": "a training run",
    "config.json": "a Hugging Face checkpoint",
}
LARGEST_VERSION = 2**63 - 1
WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"
MOST_WARM_UPS = 1000  # records; a server refuses a version with more


def is_version(name: str) -> bool:
    """Whether a server takes a folder of this name for a version; it counts them in 64 bits."""
    return re.fullmatch("[0-9]+", name) is not None and int(name) <= LARGEST_VERSION


def versions(path: str | pathlib.Path) -> dict[int, pathlib.Path]:
    """The versions in a model's folder: their numbers, in ascending order, and their folders."""
    path = pathlib.Path(path)
    if not path.is_dir():
        return {}
    found = {int(child.name): child for child in sorted(path.iterdir()) if is_version(child.name) and child.is_dir()}
    return dict(sorted(found.items()))


def newest_version(path: str | pathlib.Path) -> pathlib.Path | None:
    """The SavedModel that a path means: itself, or its newest version; None if it means none."""
    path = pathlib.Path(path)
    folders = [path, *reversed(versions(path).values())]
    return next((folder for folder in folders if (folder / SAVED_MODEL_FILE).is_file()), None)


def check_loadable(path: str | pathlib.Path) -> None:
    """Refuses a path from which TensorFlow, and so a server, loads no SavedModel.

    TensorFlow finds the file of the weights by a pattern: there, a pair of brackets stands for one of the characters
    between them, and a backslash for the character behind it.

    Raises:
        ValueError: it has such characters.
    """
    if re.search(r"\[.+\]|\\", pathlib.Path(path).as_posix()):  # on Windows, a backslash is between folders
        raise ValueError(
            f"{path}: TensorFlow loads no model from a path with brackets, [ ], or a backslash; choose another name"
        )


def version_folder(path: str | pathlib.Path) -> str:
    """The folder of the SavedModel that a path means, which may also be that of its `saved_model.pb`.

    Raises:
        FileNotFoundError: there is none. A path with `://` is not looked into.
        ValueError: TensorFlow loads nothing from it.
    """
    name = str(path).removesuffix(f"/{SAVED_MODEL_FILE}")
    if "://" in name:
        return name
    folder = newest_version(pathlib.Path(name))
    if folder is None:
        raise FileNotFoundError(
            f"{path} holds no SavedModel: neither {SAVED_MODEL_FILE} nor a version such as 1/"
            f"{models_within(pathlib.Path(name))}"
        )
    check_loadable(folder)
    return str(folder)


def models_within(path: pathlib.Path) -> str:
    """For the message that a folder is no model: what it is instead, or which of its own folders are. Else empty."""
    if path.is_file():
        return "; it is a file: give the folder of an exported model"
    for file, what in _TO_EXPORT.items():
        if (path / file).is_file():
            return f"; it is {what}, which `zoo export {path}` exports"
    for text in (folder / _AS_TEXT for folder in (path, *versions(path).values())):
        if text.is_file():
            return f"; {text} is a SavedModel as text, which the zoo does not read; export it as {SAVED_MODEL_FILE}"
    folders = sorted(path.iterdir()) if path.is_dir() else []
    found = [folder for folder in folders if _is_model(folder)]
    return f"; the models in it are {first_of(found)}" if found else ""


def _is_model(path: pathlib.Path) -> bool:
    try:
        return newest_version(path) is not None
    except OSError:  # such as a folder that may not be read
        return False


def first_of(paths: Sequence[pathlib.Path]) -> str:
    """Paths for a message: five at most, and how many more there are."""
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return ", ".join(map(str, paths[:5])) + more
