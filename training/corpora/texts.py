"""Running text for language models: the user's own files, Python's documentation, Shakespeare."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import Field

from .corpus import CorpusError, Document, TextCorpus, UserPath, expanded, in_pieces
from .files import PublicFiles, lines_of
from .tfds import TfdsTexts

__all__ = ["CORPORA", "Document", "FileTexts", "PydocTopics", "TextCorpus", "TfdsTexts", "TinyShakespeare"]

logger = logging.getLogger(__name__)


class FileTexts(TextCorpus):
    r"""Text from files, plain or gzipped (`.gz`), in UTF-8; each file is a document.

    A split is one path or a list of paths, and a path is a file or a folder. Of a folder all files are read, including
    those of its folders, in the order of their names, except hidden and empty ones. `~` is the home folder; a relative
    path is looked up in the working directory, then in the recipe's folder. Line ends are read as `\n`. Files are
    read several times rather than kept in memory, so a pipe is refused.

    Raises:
        CorpusError: from `documents`, where a file is missing, empty, a pipe, not UTF-8 or a broken `.gz`, or a folder
            holds no file.
    """

    kind: Literal["text"] = "text"
    train: tuple[UserPath, ...] = Field(
        strict=False, min_length=1, description="training text: a file, a folder, or a list of them"
    )
    validation: Annotated[tuple[UserPath, ...], pydantic.Strict(False)] | None = Field(
        default=None, description="validation text, in the same form; default: cut off the end of `train`"
    )
    test: Annotated[tuple[UserPath, ...], pydantic.Strict(False)] | None = Field(
        default=None, description="test text, in the same form"
    )
    pattern: str = Field(
        default="*", min_length=1, description="names of the files of a folder that are read, such as *.txt"
    )

    @pydantic.field_validator("train", "validation", "test", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return [value] if isinstance(value, str | Path) else value

    @pydantic.model_validator(mode="after")
    def _warn_of_overlap(self) -> Self:
        given = {split: set(map(os.path.realpath, map(expanded, getattr(self, split)))) for split in self._given}
        for one, other in itertools.combinations(given, 2):
            if common := sorted(given[one] & given[other]):
                logger.warning(
                    "corpus: %s and %s both name %s; scores on it do not show how the model does on new text",
                    *(one, other, ", ".join(common)),
                )
        return self

    @property
    def _given(self) -> tuple[str, ...]:
        return tuple(split for split in ("train", "validation", "test") if getattr(self, split))

    def _read(self, split: str) -> Iterator[Document]:
        for path in map(expanded, getattr(self, split)):
            for file in self._files(path) if path.is_dir() else [path]:
                if file.exists() and not file.is_file():
                    raise CorpusError(
                        f"{file} is not a regular file; running text is read several times, which a pipe does not "
                        "allow. Save it to a file first."
                    )
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


class PydocTopics(TextCorpus):
    """The topics of Python's `help()`: about 460,000 characters on the language, a document a topic.

    They come with Python (`pydoc_data.topics`), so nothing is downloaded. They differ a little between versions of
    Python, and so do scores.
    """

    kind: Literal["pydoc"] = "pydoc"

    @property
    def _given(self) -> tuple[str, ...]:
        return ("train",)

    def _read(self, split: str) -> Iterator[Document]:
        from pydoc_data.topics import topics

        for name in sorted(topics):
            yield in_pieces(topics[name].splitlines(keepends=True))


_PUBLIC = PublicFiles(
    name="tinyshakespeare",
    # A commit, not a branch: the file at this address never changes.
    address="https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare",
    checksums={"input.txt": "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"},
)


class TinyShakespeare(TextCorpus):
    """Forty thousand lines of Shakespeare's plays, 1,115,394 characters, as Karpathy 2015 collected them.

    The last tenth is the validation text, as in published figures. The file is in the public domain. It is read from
    `folder`, and downloaded into it if it is not there.

    Raises:
        CorpusError: from `documents`, where the file is missing and cannot be downloaded, or is not the public one.
    """

    kind: Literal["tiny_shakespeare"] = "tiny_shakespeare"
    folder: UserPath | None = Field(
        default=None,
        description="folder of input.txt, which is downloaded into it if missing; `~` is the home folder; default: "
        "attention-zoo/tinyshakespeare in XDG_CACHE_HOME or ~/.cache",
    )

    @property
    def _given(self) -> tuple[str, ...]:
        return ("train",)

    def _read(self, split: str) -> Iterator[Document]:
        text = _PUBLIC.content("input.txt", self.folder).decode()
        yield in_pieces(text.splitlines(keepends=True))


# Every corpus that a language model's recipe may name, told apart by `kind`.
CORPORA = PydocTopics | FileTexts | TfdsTexts | TinyShakespeare
