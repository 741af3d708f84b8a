"""Files of any file system that Apache Beam knows: of this machine, or of a bucket."""

from __future__ import annotations

import contextlib
import os
import pathlib
import uuid
from collections.abc import Iterator
from typing import BinaryIO

from zoo.atomic import to_disk
from zoo.extras import needs

with needs("beam"):
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.io.filesystems import FileSystems


def open_file(path: str) -> BinaryIO:
    """A file of any file system of Beam, unpacked if its name ends in `.gz`."""
    return FileSystems.open(path, compression_type=compression(path))


@contextlib.contextmanager
def whole(path: str, folder: str | None = None) -> Iterator[BinaryIO]:
    """A file of any file system of Beam that appears when the block ends without an error.

    Args:
        path: the file.
        folder: where it is written until then; None for its own folder.
    """
    parent, slash, name = path.rpartition("/")
    partial = f"{parent + slash if folder is None else f'{folder}/'}{name}.tmp-{uuid.uuid4().hex[:8]}"
    try:
        with FileSystems.create(partial, compression_type=compression(path)) as file:
            yield file
        if (local := pathlib.Path(partial)).is_file():
            to_disk(local)  # or a power cut could leave an empty part, whose name says that its rows are done
        if FileSystems.exists(path):
            FileSystems.delete([path])
        FileSystems.rename([partial], [path])
    except BaseException as error:
        if FileSystems.exists(partial):
            FileSystems.delete([partial])
        if isinstance(error, OSError) and error.errno and error.filename in (None, partial):  # such as a full disk
            raise OSError(error.errno, error.strerror, path) from None
        raise


def compression(path: str) -> str:
    """How a file of this name is compressed."""
    return CompressionTypes.GZIP if path.endswith(".gz") else CompressionTypes.UNCOMPRESSED


def folder_exists(folder: str) -> bool:
    """Whether there is such a folder. A bucket has no folders, only files whose paths begin so."""
    return FileSystems.exists(folder) or bool(FileSystems.match([f"{folder}/*"], [1])[0].metadata_list)


def remove_folder(folder: str) -> None:
    """Removes a folder with all that is in it. In a bucket, only a path that ends in "/" means all that is below."""
    FileSystems.delete([f"{folder}/" if "://" in folder else folder])


def absolute(path: str) -> str:
    """A path that means the same in the folder of a worker."""
    return path if "://" in path else os.path.abspath(path)
