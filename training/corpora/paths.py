"""Paths as users write them."""

from __future__ import annotations

import os
from pathlib import Path


def expanded(path: Path) -> Path:
    """The path, where it begins with `~` in the home folder."""
    return Path(os.path.expanduser(path))  # unlike Path.expanduser, no exception for an unknown user
