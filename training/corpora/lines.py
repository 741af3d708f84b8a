"""Lines of text files, plain or gzipped, and what can be wrong with them."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from .error import CorpusError

_PACKED = (".zip", ".tar", ".tar.gz", ".tgz", ".bz2", ".xz", ".zst", ".7z")


def lines_of(path: Path, ends: bool = False) -> Iterator[str]:
    r"""The lines of a file; read a line at a time, whatever the size of the file.

    A line ends at `\n` or `\r\n` and nowhere else.

    Args:
        path: the file, in UTF-8, gzipped if its name ends in `.gz`.
        ends: whether lines keep their ends, `\r\n` as `\n`.

    Raises:
        CorpusError: the file is missing, empty, a folder, packed otherwise, broken, or not UTF-8.
    """
    if path.name.lower().endswith(_PACKED):
        raise CorpusError(f"{path}: only plain text and .gz are read; unpack it first.")
    number = offset = 0
    try:
        with (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rb") as file:
            for number, line in enumerate(file, 1):
                end = "\n" if ends and line.endswith(b"\n") else ""
                yield _decoded(line, f"{path}:{number}", offset) + end
                offset += len(line)
    except FileNotFoundError:
        where = "" if path.is_absolute() else f" in the working directory, {Path.cwd()}"
        raise CorpusError(f"{path}: there is no such file{where}.") from None
    except IsADirectoryError:
        raise CorpusError(f"{path}: expected a file, found a folder.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CorpusError(
            f"{path}:{number + 1}: broken gzip file ({error}); download or pack it again, or drop the .gz from the "
            "name of a file that is not packed."
        ) from None
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {error.strerror or error}.") from None
    if not number:
        raise CorpusError(f"{path}: the file is empty.")


def _decoded(line: bytes, place: str, offset: int) -> str:
    # Not str.splitlines, nor a file in text mode: U+2028, U+0085 or a lone carriage return do not end a line.
    try:
        text = line.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{place}: not UTF-8: byte 0x{line[error.start]:02x} at offset {offset + error.start} of the text; "
            "convert the file, for example with iconv -t UTF-8 -f ITS-ENCODING."
        ) from None
    return text if offset else text.removeprefix("\ufeff")  # a byte order mark, which some editors write
