"""Files of a public corpus, told by their checksums: from a folder, or downloaded into it."""

from __future__ import annotations

import dataclasses
import hashlib
import http.client
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from zoo.atomic import write_whole

from .error import CorpusError
from .paths import expanded

logger = logging.getLogger(__name__)

_TIMEOUT = 30  # seconds without a byte


@dataclasses.dataclass(frozen=True)
class PublicFiles:
    """Where the files of a corpus are, and how the right ones are known.

    Attributes:
        name: of the corpus, and of its folder in the user's cache.
        address: what stands before the files' names; what is behind it must never change.
        checksums: the SHA-256 of each file, by its name.
        licence: what the files may be used for, told before a download; None where that is anything.
    """

    name: str
    address: str
    checksums: Mapping[str, str]
    licence: str | None = None

    def content(self, name: str, folder: Path | None = None) -> bytes:
        """What a file holds. One that is not in the folder is downloaded, and put there once its checksum is right.

        Args:
            name: of the file.
            folder: where to look first; None for a folder of the user's cache.

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
        """What is wrong with the content of a file; nothing if it is the right one."""
        found, wanted = hashlib.sha256(content).hexdigest(), self.checksums[name]
        return "" if found == wanted else f"its SHA-256 is {found}, and should be {wanted}"


def _reason(error: Exception) -> str:
    inner = error.reason if type(error) is urllib.error.URLError else error  # which only wraps what went wrong
    return str(inner) or type(inner).__name__
