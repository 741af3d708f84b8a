"""Running text from the user's own files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pydantic
from pydantic import Field

from ..error import CorpusError
from ..lines import lines_of
from ..paths import expanded
from .corpus import Document, TextCorpus, in_pieces


class FileTexts(TextCorpus):
    r"""Text from files, plain or gzipped (`.gz`), in UTF-8; each file is a document.

    A split is one path or a list of paths, and a path is a file or a folder: of a folder all files are read, those of
    its folders too, in the order of their names, but for hidden and empty ones. `~` is the home folder; a relative path
    is relative to the working directory. Line ends are read as `\n`.

    Raises:
        CorpusError: from `documents`, where a file is missing, empty, not UTF-8 or a broken `.gz`, or a folder holds
            no file.
    """

    kind: Literal["text"] = "text"
    train: tuple[Path, ...] = Field(min_length=1, description="training text: a file, a folder, or a list of them")
    validation: tuple[Path, ...] | None = Field(
        default=None, description="validation text, told as in `train`; if left out, it is cut off the end of `train`"
    )
    test: tuple[Path, ...] | None = Field(default=None, description="test text, told as in `train`")
    pattern: str = Field(
        default="*", min_length=1, description="which files of a folder are read, by their names, such as *.txt"
    )

    @pydantic.field_validator("train", "validation", "test", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return [value] if isinstance(value, str | Path) else value

    @property
    def _given(self) -> tuple[str, ...]:
        return tuple(split for split in ("train", "validation", "test") if getattr(self, split))

    def _read(self, split: str) -> Iterator[Document]:
        for path in map(expanded, getattr(self, split)):
            for file in self._files(path) if path.is_dir() else [path]:
                yield in_pieces(lines_of(file, ends=True))

    def _files(self, folder: Path) -> list[Path]:
        found = sorted(
            file
            for file in folder.rglob(self.pattern)
            if file.is_file()
            and file.stat().st_size
            and not any(part.startswith(".") for part in file.relative_to(folder).parts)
        )
        if not found:
            raise CorpusError(f"{folder} holds no file with text whose name fits pattern = {self.pattern!r}.")
        return found
