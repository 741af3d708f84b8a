"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import tempfile
import uuid
from collections.abc import Iterator


def write_whole(path: str | os.PathLike[str], content: bytes) -> pathlib.Path:
    """Writes a file beside its place and renames it into place, so that no one sees half of it.

    Args:
        path: where to write; missing folders are made.
        content: all that the file is to hold.

    Returns:
        The path written.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.tmp-{uuid.uuid4().hex[:8]}")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def remove_partial(path: pathlib.Path) -> None:
    """Removes what killed calls of `write_whole` left beside a file that nobody writes to now."""
    for partial in path.parent.glob(f"{path.name}.tmp-*"):
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def replaced_folder(path: pathlib.Path, marker: str) -> Iterator[pathlib.Path]:
    """A new folder to write to, which takes the place of `path` when the block ends without an error.

    Args:
        path: where the folder shall stand.
        marker: a file by which a folder is known to be of our making; no other folder is ever replaced.

    Yields:
        A temporary folder beside `path`, removed again after an error.

    Raises:
        FileExistsError: `path` exists, is not empty, and has no such file.
    """
    if path.exists() and not (path / marker).is_file() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"{path} exists and holds something else (no {marker}); choose another place.")
    with temporary_sibling(path) as folder:
        yield folder
        if not path.exists():
            os.rename(folder, path)
            return
        # Two renames, since a folder cannot be renamed onto a full one: the old one is never lost, only aside.
        with temporary_sibling(path) as aside:
            old = aside / path.name
            os.rename(path, old)
            try:
                os.rename(folder, path)
            except BaseException:
                os.rename(old, path)
                raise


@contextlib.contextmanager
def temporary_sibling(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A temporary folder on the same file system as `path`, whose name no server takes for a version.

    Yields:
        The folder; what is left of it when the block ends is removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f".{path.name}.tmp-", dir=path.parent))
    folder.chmod(0o755)  # mkdtemp lets the owner alone in; a server may run as someone else
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
