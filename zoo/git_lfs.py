"""Pointers of git-lfs: small texts that stand in place of large files until `git lfs pull` fetches these."""

from __future__ import annotations

import pathlib

_BEGINNING = b"version https://git-lfs"


def is_pointer(content: bytes) -> bool:
    """Whether a file with these bytes, or with these first hundred, is a pointer."""
    return content.startswith(_BEGINNING)


def check_no_pointer(name: str | pathlib.Path, content: bytes) -> None:
    """Checks that a file is not a pointer.

    Args:
        name: what to call the file in the error.
        content: its bytes, or the first hundred of them.

    Raises:
        ValueError: it is a pointer.
    """
    if is_pointer(content):
        raise ValueError(f"{name} is a pointer of git-lfs, not the file itself; run `git lfs pull` in its repository.")
