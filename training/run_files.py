"""The files of a run and of a version exported from it: their names, their metrics, and who may write them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

from zoo.tasks import CLASSIFIER_FOLDER, FILLER_FOLDER, GENERATOR_FOLDER, MODEL_FILE, TRANSLATOR_FOLDER

try:
    import fcntl
except ImportError:  # Windows: two trainings in one folder are not noticed there
    fcntl = None  # type: ignore[assignment]

RECIPE_FILE = "recipe.json"
METRICS_FILE = "metrics.json"
HISTORY_FILE = "history.csv"
CHECKPOINT_FILE = "checkpoint.npz"
BEST_FILE = "best.weights.h5"
LOGS_FOLDER = "tensorboard"
CARD_FILE = "README.md"
MODEL_CHANGED = "model_changed"  # as `not_scored` in metrics
_SAVED_IN = (TRANSLATOR_FOLDER, GENERATOR_FOLDER, CLASSIFIER_FOLDER, FILLER_FOLDER)
LOCK_FILE = ".lock"
_TABLES = 1 << 20  # bytes of an HDF5 file that are not weights, and a margin
CACHE_FOLDER = "cache"  # of a corpus that is larger than memory, see `storage`


def read_metrics(folder: pathlib.Path) -> dict[str, Any]:
    """The metrics of a run or an exported version.

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


def checked_metrics(folder: pathlib.Path) -> dict[str, Any]:
    """The metrics of a run or an exported version; if a run's model was replaced, without those of the former model.

    These are the entries that `of_model` names: scores, and facts of the training. `not_scored` is then
    `MODEL_CHANGED`. A run of version 0.1 does not know which model was scored.

    Raises:
        FileNotFoundError: the folder has none.
        ValueError: they cannot be read.
    """
    metrics = read_metrics(folder)
    known, found = metrics.get("digests", {}).get("model"), saved_digest(folder)
    if known is None or found in (None, known):
        return metrics
    former = {*metrics.get("of_model", ()), "of_model"}
    return {name: value for name, value in metrics.items() if name not in former} | {"not_scored": MODEL_CHANGED}


def saved_digest(folder: pathlib.Path) -> str | None:
    """A hash of the files of the model that is saved in a run's folder; None if there is none."""
    for name in _SAVED_IN:
        files = folder / name / f"{name}.json", folder / name / MODEL_FILE
        if all(file.is_file() for file in files):
            return str(Digest(hash_of_file(file) for file in files))
    return None


def hash_of_file(path: pathlib.Path) -> str:
    """The SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def about_changed_model(folder: pathlib.Path) -> str:
    """The message where `checked_metrics` has no scores since the model was replaced."""
    return (
        f"the model in {folder} has changed since it was trained, so the scores in {METRICS_FILE} are not its own; "
        f"`zoo evaluate {folder}` prints its scores"
    )


def not_written(path: str | os.PathLike[str], error: OSError | RuntimeError) -> OSError:
    """What to raise where a file cannot be written, in one line: HDF5's own error has several, and no file name."""
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error).partition("\n")[0]
    return OSError(f"{path} cannot be written: {reason}; once it can, give the same command again")


def check_room(path: pathlib.Path, size: int) -> None:
    """Reserves space for a moment before Keras writes a file: where it ends, HDF5 prints pages of errors or crashes.

    The free space of the disk is not all: a quota or a limit of a file's size may leave less.

    Raises:
        OSError: fewer than `size` bytes, and some for the tables of the file, can be written.
    """
    size += _TABLES
    usage = shutil.disk_usage(path.parent)
    if usage.free < size and usage.total:  # a file system that does not tell its size has 0
        raise not_written(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    if not hasattr(os, "posix_fallocate"):  # macOS, Windows
        return
    try:
        with tempfile.TemporaryFile(dir=path.parent) as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):  # others: the file system cannot reserve
            raise not_written(path, error) from error


def check_replaceable(folder: pathlib.Path, name: str, recipe: str, restart: bool) -> None:
    """Refuses a folder with files that are not of earlier runs of a recipe, since a training would replace them.

    Args:
        folder: the folder of the run.
        name: the recipe's name.
        recipe: the recipe as it was given. It may be the folder's own `recipe.json`, which is then replaced.
        restart: whether the run of another recipe may be replaced, too.

    Raises:
        ValueError: there are such files.
    """
    is_own = (folder / RECIPE_FILE).resolve() == pathlib.Path(recipe).resolve()
    replaced = (METRICS_FILE, CHECKPOINT_FILE, BEST_FILE, LOGS_FOLDER, *([] if is_own else [RECIPE_FILE]))
    for file in (folder / each for each in replaced):
        if file.exists() and not (folder / HISTORY_FILE).is_file():
            raise ValueError(
                f"{file} would be replaced, and is not of a training, which has {HISTORY_FILE}; move it away, or "
                "choose another folder with --out"
            )
    for saved in (folder / each for each in _SAVED_IN):  # of another family, one would be removed at the end
        if saved.exists() and not (saved / f"{saved.name}.json").is_file():
            raise ValueError(
                f"{saved} is no model of a run, and would be in the way of one; move it away, or choose another folder "
                "with --out"
            )
    # The recipe of an unfinished training is in its checkpoint, and is compared later.
    if is_own or restart or (folder / CHECKPOINT_FILE).is_file():
        return
    try:
        other = read_metrics(folder).get("name", name)
    except (FileNotFoundError, ValueError):  # a damaged file is refused later
        return
    if other != name:
        raise ValueError(
            f"{folder} holds a run of another recipe, {other!r}; --restart begins anew there, and --out names another "
            "folder"
        )


class Digest:
    """A hash of texts that are read one by one; `str` gives it in hexadecimal.

    Args:
        texts: the first texts.

    Attributes:
        size: the bytes of all texts, in UTF-8.
    """

    def __init__(self, texts: Iterable[str] = ()):
        self.size = 0
        self._hash = hashlib.sha256()
        for text in texts:
            self.add(text)

    def add(self, text: str, end: str = "\0") -> str:
        """Adds a text and the mark of its end, and returns the text."""
        self.add_bytes(text.encode("utf-8", "replace") + end.encode())
        self.size -= len(end.encode())
        return text

    def add_bytes(self, content: bytes) -> None:
        """Adds bytes."""
        self.size += len(content)
        self._hash.update(content)

    def __str__(self) -> str:
        return self._hash.hexdigest()[:32]


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    """Holds a lock on a run's folder, so that no two trainings write to it.

    Raises:
        BlockingIOError: another process holds it.
    """

    def told(owner):
        return f"{folder} is in use: {owner} trains there; wait until it has ended, or choose another folder with --out"

    with locked_file(folder / LOCK_FILE, told):
        yield


@contextlib.contextmanager
def locked_file(path: pathlib.Path, told: Callable[[str], str]) -> Iterator[None]:
    """Holds a lock on a file for the length of the block.

    The system frees it when its process ends, however it ends; a file that a killed process left is taken over.

    Args:
        path: the file, which is made, and removed at the end.
        told: gives the message of the error, called with the process that holds it.

    Raises:
        BlockingIOError: another process holds it.
    """
    with _opened_and_locked(path, told) as file:
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # before it is unlocked


def _opened_and_locked(path: pathlib.Path, told: Callable[[str], str]) -> TextIO:
    while True:
        file = path.open("a+", encoding="utf-8")
        if fcntl is None:
            return file
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with file:
                file.seek(0)
                owner = file.read() or "another process"
            raise BlockingIOError(told(owner)) from None
        except OSError:  # a file system without locks
            return file
        # The process that held it may have removed the file in between; then the lock is on a file without a name.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()
