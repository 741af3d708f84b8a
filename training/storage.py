"""The cache of a run: what was computed from a corpus that is larger than memory, such as its ids.

1. The files of such a corpus, see `ragged`, are the entries of a `Storage`, the folder `cache` of a run. An entry is
   named by a hash of all that it follows from: the content of the corpus' files, the options of the corpus, the
   tokenizers, the lengths. So the next run finds it, and an entry of another corpus is never taken for it.
2. An entry is written in a temporary folder, which is renamed when it is complete. Its header has the size and hash of
   each file, which are checked before it is used.

Text that comes from a pipe or from a generator has no hash before it is read. Its files are removed when the process
ends, as all files are without a cache.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.atomic import remove_abandoned, temporary_folder

from . import ragged
from .progress import say
from .ragged import Entry
from .run_files import hash_of_file

_FORM = 1  # of the files; entries of another form are written again
_HEADER = "header.json"
_LARGE = ("texts", "ids", "validation", "test")  # the entries that are told of; others are small


class Storage:
    """The entries of a run's cache, or of a temporary folder that is removed when the process ends.

    Attributes:
        cache: the folder that entries are kept in; None to keep none.
        near: the folder to make the temporary folder in; None for the system's place. /tmp is often memory, so a run
            takes its own folder.
        keeps: whether new entries are kept in the cache; if not, it is only read.
    """

    def __init__(self, cache: Path | None = None, near: Path | None = None, keeps: bool = True):
        self.cache, self.near, self.keeps = cache, near, keeps

    @functools.cached_property
    def _temporary(self) -> Path:
        stack = contextlib.ExitStack()
        folder = stack.enter_context(temporary_folder(self.near or Path(tempfile.gettempdir()), "cache.tmp-"))
        folder.chmod(0o700)  # in /tmp, nobody else may read the texts
        weakref.finalize(self, stack.close)  # at the end of the process at the latest
        return folder

    def fact(self, kind: str, key: str | None, compute: Callable[[], Any]) -> Any:
        """What a function gives, or gave in an earlier run; fit for JSON. See `find` for `kind` and `key`."""
        if key is None:
            return compute()
        if entry := self.find(kind, key):
            return json.loads(entry.array("fact").tobytes())
        found = compute()
        if not self.keeps:
            return found
        with self.writing(kind, key) as entry:
            entry.save("fact", np.frombuffer(json.dumps(found).encode(), np.uint8))
        return found

    def find(self, kind: str, key: str | None) -> Entry | None:
        """The entry with a key, if the cache has it whole.

        Args:
            kind: what it holds, such as "texts".
            key: the hash of all that it follows from, see `key_of`; None if that is not known.
        """
        folder = self._place(kind, key)
        if folder is None or not folder.is_dir():
            return None
        try:
            header = json.loads((folder / _HEADER).read_text("utf-8"))
            whole = header["form"] == _FORM and header["key"] == key and header["files"] == _described(folder)
        except (OSError, ValueError, KeyError):
            whole = False
        if not whole:
            if self.keeps:
                say(f"{folder} is damaged or of another version, and is written again")
                shutil.rmtree(folder, ignore_errors=True)
            return None
        if kind in _LARGE:
            say(f"{kind}: read from {folder}")
        return Entry(lambda: folder, header["info"])

    @contextlib.contextmanager
    def writing(self, kind: str, key: str | None) -> Iterator[Entry]:
        """A new entry. If the block writes to it and ends without an error, the cache has it from then on.

        Raises:
            OSError: it cannot be written, for example because the disk is full.
        """
        parent = Path()

        def made() -> Path:
            nonlocal parent
            place = self._kept_in(kind, key)
            parent = self._temporary if place is None else place.parent
            for left in parent.glob(f".{kind}.tmp-*"):
                remove_abandoned(left)
            return stack.enter_context(temporary_folder(parent, f".{kind}.tmp-"))

        with contextlib.ExitStack() as stack:
            entry = Entry(made, {})
            try:
                yield entry
                if entry.is_used:
                    self._complete(entry, kind, key)
            except OSError as error:
                if not entry.is_used or error.errno is None:
                    raise
                raise OSError(
                    f"{parent} cannot be written: {error.strerror}. A corpus that is larger than memory needs two to "
                    "three times its size there; --out names another place"
                ) from error

    def folder(self, kind: str, key: str) -> Path:
        """A folder for files that are written one by one, and kept as they come.

        See `find` for `kind` and `key`. Without a cache it is removed at the end.
        """
        folder = self._kept_in(kind, key) or self._temporary / f"{kind}-{key[:16]}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def remove_others(self, kind: str, place: Path) -> None:
        """Removes the entries of a kind but one: those of other texts and options would only fill the disk."""
        entries = f"{kind}-{'[0-9a-f]' * 16}"
        for other in self.cache.glob(entries) if self.cache is not None and self.keeps else ():
            if other != place:
                shutil.rmtree(other, ignore_errors=True)

    def _complete(self, entry: Entry, kind: str, key: str | None) -> None:
        files = _described(entry.folder)
        size = f"{sum(each['size'] for each in files.values()) / 1e6:,.0f} MB"
        place = self._kept_in(kind, key)
        if place is None:
            say(f"{kind}: {size} in {entry.folder.parent}, removed at the end")
            # No name is needed any more: what is open or mapped stays readable until the process ends.
            return
        # Nothing waits for the disk, as for other folders: `find` compares the hashes, and what a power cut has left
        # incomplete is written again.
        header = {"form": _FORM, "key": key, "files": files, "info": entry.info}
        (entry.folder / _HEADER).write_text(json.dumps(header, indent=1), "utf-8")
        try:
            os.rename(entry.folder, place)
        except OSError:
            if not place.is_dir():  # another worker of the same training has just written it, and may be reading it
                raise
        self.remove_others(kind, place)
        if kind in _LARGE:
            say(f"{kind}: {size}, kept in {place} for the next run (--no-cache keeps nothing)")

    def _place(self, kind: str, key: str | None) -> Path | None:
        """Where the cache has an entry; None without a cache or a key."""
        return None if self.cache is None or key is None else self.cache / f"{kind}-{key[:16]}"

    def _kept_in(self, kind: str, key: str | None) -> Path | None:
        """Where a new entry is kept; None if it is removed at the end."""
        return self._place(kind, key) if self.keeps else None


def set_storage(corpus: Any, cache: Path | None, near: Path | None, keeps: bool = True) -> None:
    """Says where texts and ids of a recipe's corpus go if they are larger than memory; see `Storage`.

    Several corpora have a folder each, as a folder keeps one entry of each kind.
    """
    for number, part in enumerate(corpus.parts):
        several = len(corpus.parts) > 1
        part.storage.cache = cache / f"corpus-{number}" if cache and several else cache
        part.storage.near, part.storage.keeps = near, keeps
    corpus.storage.cache, corpus.storage.near, corpus.storage.keeps = cache, near, keeps


def key_of(*parts: Any) -> str:
    """The hash of everything that an entry follows from: values that are fit for JSON."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def hashes_if_large(files: Sequence[Path]) -> list[str] | None:
    """The hash of each file; None if one is a pipe or not there, and if all are sure to fit into memory."""
    if not all(file.is_file() for file in files):
        return None
    if sum(file.stat().st_size for file in files) < ragged.IN_MEMORY / 8:  # a .gz grows by up to eight times
        return None
    return [hash_of_file(file) for file in files]


def _described(folder: Path) -> dict[str, Any]:
    """Size and hash of each file of an entry but its header."""
    files = sorted(file for file in folder.iterdir() if file.name != _HEADER)
    return {file.name: {"size": file.stat().st_size, "sha256": hash_of_file(file)} for file in files}
