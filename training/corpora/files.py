"""Files of text: a user's lines, plain or gzipped, and public files that are known by their checksums."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import http.client
import logging
import os
import re
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from zoo.atomic import write_whole

from ..file_encoding import MARKS, PACKED, without_mark
from .corpus import CorpusError, expanded

logger = logging.getLogger(__name__)

_PACKED = (".zip", ".tar", ".tar.gz", ".tgz", ".bz2", ".xz", ".zst", ".7z")
# How files that are no plain text begin, what they are, and what to do.
_SPREADSHEET = "a spreadsheet or a ZIP archive; save the sheet as tab-separated text in UTF-8, or unpack the archive"
_OTHERS = {
    b"PK\x03\x04": _SPREADSHEET,
    b"\xd0\xcf\x11\xe0": _SPREADSHEET,
    b"PAR1\x15": "a Parquet file; write its columns into a TSV first",
    **PACKED,
    b"\x1f\x8b": "a gzipped file; give it a name that ends in .gz",
    **MARKS,
}
_ZEROS = (
    "zero bytes in the first line, so it is UTF-16 without a mark, or no text; convert it, for example with "
    "iconv -f UTF-16LE (or UTF-16BE) -t UTF-8"
)
_TIMEOUT = 30  # seconds without a byte


def lines_of(path: Path, ends: bool = False) -> Iterator[str]:
    r"""The lines of a file of any size, read one at a time.

    A line ends at `\n` or `\r\n` and nowhere else. It has no byte order mark, see `file_encoding.without_mark`.

    Args:
        path: the file, in UTF-8, gzipped if its name ends in `.gz`.
        ends: whether lines keep their ends, `\r\n` as `\n`.

    Raises:
        CorpusError: the file is missing, empty, a folder, packed otherwise, broken, or not UTF-8 text.
    """
    if path.name.lower().endswith(_PACKED):
        raise CorpusError(f"{path}: only plain text and .gz are read; unpack it first.")
    number, offset, line = 0, 0, b""
    try:
        with (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if number == 1:
                    what = next((_OTHERS[each] for each in _OTHERS if line.startswith(each)), None)
                    if what or b"\0" in line:
                        raise CorpusError(f"{path}: {what or _ZEROS}.")
                end = "\n" if ends and line.endswith(b"\n") else ""
                yield _decoded(line, f"{path}:{number}", offset) + end
                offset += len(line)
    except FileNotFoundError:
        where = "" if path.is_absolute() else f" in the working directory, {Path.cwd()}, nor in the recipe's folder"
        raise CorpusError(f"{path}: there is no such file{where}{_about_name(str(path))}.") from None
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
    if number == 1 and b"\r" in line.removesuffix(b"\n").removesuffix(b"\r"):
        advice = r"if it should be several, tr '\r' '\n' makes them"
        logger.warning("%s: one line with carriage returns in it; %s", path, advice)


def _about_name(name: str) -> str:
    """A hint for the name of a missing file that would mean something to a shell, a browser or a TOML parser."""
    if re.match("[a-z][a-z0-9]+:/", name):
        return "; nothing is downloaded from an address, so give the path of a file"
    if re.search("[\t\n\r\f\b]", name):
        return r"; a \ in double quotes of TOML, as in \t, stands for a special character, so write / or \\"
    if re.search(r"[*?\[$%]", name):
        return "; wildcards such as * and variables such as $HOME are not replaced in a name; ~ is"
    return ""


def _decoded(line: bytes, place: str, offset: int) -> str:
    # Not str.splitlines, nor a file in text mode: U+2028, U+0085 or a lone carriage return do not end a line.
    text = without_mark(line)
    try:
        return text.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        offset += len(line) - len(text) + error.start
        raise CorpusError(
            f"{place}: not UTF-8: byte 0x{text[error.start]:02x} at offset {offset} of the text; "
            "convert the file, for example with iconv -t UTF-8 -f ITS-ENCODING, such as CP1252 for Windows in Western "
            "Europe."
        ) from None


@dataclasses.dataclass(frozen=True)
class PublicFiles:
    """The files of a public corpus, and how the right ones are recognised.

    Attributes:
        name: name of the corpus, and of its folder in the user's cache.
        address: the address of the folder of the files, whose content must never change.
        checksums: the SHA-256 of each file, by its name.
        licence: how the files may be used, shown before a download; None for a free licence.
    """

    name: str
    address: str
    checksums: Mapping[str, str]
    licence: str | None = None

    def content(self, name: str, folder: Path | None = None) -> bytes:
        """The content of a file. A missing file is downloaded into the folder once its checksum is right.

        Args:
            name: name of the file.
            folder: the folder; None for a folder of the user's cache.

        Raises:
            CorpusError: the file is not the public one, or is missing and cannot be downloaded.
        """
        path = (self._cache_folder() if folder is None else expanded(folder)) / name
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return self._download(path)
        except OSError as error:
            raise CorpusError(f"{path}: cannot be read: {error.strerror}.") from None
        if fault := self._fault(name, content):
            raise CorpusError(
                f"{path} is not the public file: {fault}. It was left as it is; move it away, and the public one will "
                "be downloaded in its place."
            )
        return content

    def _cache_folder(self) -> Path:
        base = os.environ.get("XDG_CACHE_HOME", "")
        # Its specification says that a relative path is to be ignored.
        cache = Path(base) if os.path.isabs(base) else expanded(Path("~/.cache"))
        if not cache.is_absolute():  # it would be a folder called ~ in the working directory
            raise CorpusError(
                f"{self.name}: this user has no home folder to keep it in; set corpus.folder to a folder."
            )
        return cache / "attention-zoo" / self.name

    def _download(self, path: Path) -> bytes:
        url = f"{self.address}/{path.name}"
        terms = f"; {self.licence}" if self.licence else ""
        logger.warning("%s: downloading %s into %s%s", self.name, url, path.parent, terms)
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
                content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise CorpusError(
                f"{path} is missing, and {url} cannot be downloaded: {_reason(error)}. Download it where there is a "
                f"network, and put it into {path.parent}; or set corpus.folder to a folder that has it."
            ) from None
        if fault := self._fault(path.name, content):
            raise CorpusError(
                f"{url} is not the public file that it was: {fault}. Nothing was written to {path.parent}."
            )
        try:
            write_whole(path, content)
        except OSError as error:
            raise CorpusError(
                f"{path}: cannot be written: {error.strerror}; set corpus.folder to another folder."
            ) from None
        return content

    def _fault(self, name: str, content: bytes) -> str:
        """What is wrong with the content of a file; empty if it is the right one."""
        found, wanted = hashlib.sha256(content).hexdigest(), self.checksums[name]
        return "" if found == wanted else f"its SHA-256 is {found}, and should be {wanted}"


def _reason(error: Exception) -> str:
    inner = error.reason if type(error) is urllib.error.URLError else error  # a URLError only wraps the reason
    return str(inner) or type(inner).__name__
