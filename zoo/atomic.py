"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", None)}


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A temporary file in the same folder, renamed when the block ends without an error: no reader sees half a file.

    Args:
        path: where to write; missing folders are made.

    Yields:
        The open file; it is removed after an error.
    """
    path = pathlib.Path(path)
    make_folders(path.parent)
    partial = path.with_name(f"{path.name}.tmp-{uuid.uuid4().hex[:8]}")
    try:
        with partial.open("wb") as file:
            yield file
        put_in_place(partial, path)
    except OSError as error:
        raise _about(error, path, partial) from None
    finally:
        partial.unlink(missing_ok=True)


def make_folders(path: pathlib.Path) -> None:
    """Makes a folder and those above it, as far as they are missing, with their names on the disk; see `to_disk`."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # "File exists" would not say that a folder is wanted
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(error.filename)) from None
    for each in missing:
        _names_to_disk(each.parent)


def put_in_place(partial: pathlib.Path, path: pathlib.Path) -> None:
    """Renames a file that is complete to its final name, where it may replace another one; see `to_disk`."""
    to_disk(partial)
    os.replace(partial, path)
    _names_to_disk(path.parent)


def rename_folder(folder: pathlib.Path, path: pathlib.Path) -> None:
    """Renames a folder that is complete to its final name, which must be free; see `to_disk`."""
    to_disk(folder)
    os.rename(folder, path)
    _names_to_disk(path.parent)


def to_disk(path: pathlib.Path) -> None:
    """Waits until the content of a file, or of all files in a folder, is on the disk.

    This comes before a rename: otherwise a machine that loses power may keep the new name without the content, and so
    lose what had the name before, too.
    """
    if path.is_dir():
        for child in path.iterdir():
            to_disk(child)
        _names_to_disk(path)
        return
    _sync(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)  # Windows wants a file that may be written


def _names_to_disk(folder: pathlib.Path) -> None:
    """The same for the names in a folder."""
    with contextlib.suppress(OSError):  # Windows and some network file systems cannot do this
        _sync(folder, os.O_RDONLY)


def _sync(path: pathlib.Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: str | os.PathLike[str], content: bytes) -> pathlib.Path:
    """Writes a file whole or not at all, see `whole_file`.

    Args:
        path: where to write; missing folders are made.
        content: the whole content of the file.

    Returns:
        The path written.
    """
    with whole_file(path) as file:
        file.write(content)
    return pathlib.Path(path)


def remove_partial(path: pathlib.Path) -> None:
    """Removes temporary files that killed processes left of `whole_file`. No process may be writing the file now."""
    for partial in path.parent.glob(f"{path.name}.tmp-*"):
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def replaced_folder(path: pathlib.Path, marker: str | None) -> Iterator[pathlib.Path]:
    """A new folder to write to, which takes the place of `path` when the block ends without an error.

    Args:
        path: the folder's final place.
        marker: the name of a file that only our folders contain. An existing folder is replaced only if it has this
            file or is empty; with None, only if it is empty.

    Yields:
        A temporary folder next to `path`, removed after an error.

    Raises:
        FileExistsError: `path` exists, is not empty, and has no such file.
    """
    ours = marker is not None and (path / marker).is_file()
    if path.exists() and not ours and (not path.is_dir() or any(path.iterdir())):
        why = "is not empty" if marker is None else f"holds something else (no {marker})"
        raise FileExistsError(f"{path} exists and {why}; choose another place.")
    with temporary_folder(path.parent, f".{path.name}.tmp-") as folder:
        yield folder
        if not path.exists():
            rename_folder(folder, path)
            return
        # Two renames, since a folder cannot be renamed onto a non-empty one. The old one is moved aside, never lost.
        with temporary_folder(path.parent, f".{path.name}.tmp-") as aside:
            old = aside / path.name
            to_disk(folder)  # now, so that the time without a name is short
            os.rename(path, old)
            try:
                rename_folder(folder, path)
            except BaseException:
                os.rename(old, path)
                raise


@contextlib.contextmanager
def temporary_folder(parent: pathlib.Path, prefix: str) -> Iterator[pathlib.Path]:
    """A folder in `parent` that is removed, with what is left in it, when the block ends.

    A killed process leaves its folder behind; `remove_abandoned` removes it. A living process holds a lock on its
    folder, if the file system has locks.

    Yields:
        The folder. It may be renamed away.
    """
    make_folders(parent)
    while True:
        try:
            folder = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        except OSError as error:
            raise _about(error, parent) from None
        lock = _lock(folder, wait=True)
        if folder.exists():  # no other process removed it as abandoned before it was locked
            break
        _unlock(lock)
    try:
        folder.chmod(0o755)  # mkdtemp gives access to the owner only; a server may run as another user
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _unlock(lock)


def remove_abandoned(folder: pathlib.Path) -> None:
    """Removes the `temporary_folder` of a killed process; folders of living processes stay."""
    lock = _lock(folder, wait=False)
    if lock is not None:
        shutil.rmtree(folder, ignore_errors=True)
        _unlock(lock)


def _about(error: OSError, path: pathlib.Path, partial: pathlib.Path | None = None) -> OSError:
    """The error with the name that the user knows; of other files than `partial`, if that is given, as it is."""
    # The error of a full disk names no file. It comes from an open one, most likely from this one.
    of_writing = error.filename is None and error.errno in _FULL
    if error.errno is None or (partial is not None and not of_writing and str(error.filename) != str(partial)):
        return error
    return OSError(error.errno, error.strerror, str(path))


def _lock(folder: pathlib.Path, wait: bool) -> int | None:
    """The file descriptor that holds a lock on a folder, which ends with its process; None without a lock."""
    if fcntl is None:
        return None
    descriptor = None
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # another process holds the lock, or the file system has none
        _unlock(descriptor)
        return None
    return descriptor


def _unlock(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)
