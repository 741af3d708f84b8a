"""Writing a file so that it is whole or not there."""

import os
import uuid
from pathlib import Path


def write_whole(path: str | os.PathLike[str], content: bytes) -> Path:
    """Writes a file beside its place and renames it into place, so that no one sees half of it.

    Args:
        path: Where to write; missing folders are made.
        content: All that the file is to hold.

    Returns:
        The path written.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.tmp-{uuid.uuid4().hex[:8]}")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path
