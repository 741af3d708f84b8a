"""Running text for language models: its splits; then the user's own files, Python's documentation, Shakespeare."""

from __future__ import annotations

import abc
import itertools
import logging
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import Field

from ..storage import hashes_if_large, key_of
from .corpus import Corpus, CorpusError, UserPath, expanded
from .files import PublicFiles, lines_of

logger = logging.getLogger(__name__)

# A document in pieces: it may be larger than memory. A piece ends before white space that follows another character,
# because no token of the zoo's tokenizers spans that place.
Document = Iterator[str]

PIECE = 1 << 20  # characters; a piece ends at the next white space after this many
_BREAK = re.compile(r"(?<=\S)\s")

# What a recipe may say where `FileTexts` has a tuple of paths.
_Paths = str | list[str] | None


class TextCorpus(Corpus):
    """Documents by split.

    A subclass defines `kind`, `_given` and `_read`. A split that is not given is cut off the end of the training text:
    first comes the text to train on, then `validation_share` of all characters, then `test_share`. Cuts may fall inside
    documents.
    """

    validation_share: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="share of the training text that is held out for validation, if no validation text is given. A "
        "training needs one. Default: 0.1",
    )
    test_share: float | None = Field(
        default=None, ge=0, lt=1, description="share to hold out for a test; default: nothing"
    )

    @property
    @abc.abstractmethod
    def _given(self) -> tuple[str, ...]:
        """The splits that can be read without holding anything out, 'train' among them."""

    @abc.abstractmethod
    def _read(self, split: str) -> Iterator[Document]:
        """The documents of a given split, in a fixed order; each must be read to its end before the next."""

    @pydantic.model_validator(mode="after")
    def _some_to_train_on(self) -> Self:
        default = " (0.1)" if self.validation_share is None else ""
        given = (self.validation_share or 0) + (self.test_share or 0)
        # The splits that are given are asked for only where they matter: those of `tfds` may need the network.
        if given >= 1 or (default and given + 0.1 >= 1 and "validation" not in self._given):
            raise ValueError(f"validation_share{default} and test_share together leave nothing to train on")
        return self

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits that can be read, 'train' first.

        Raises:
            CorpusError: a share was to be held out for a split that is given.
        """
        given = self._given
        for split in ("validation", "test"):
            if split in given and getattr(self, f"{split}_share") is not None:
                raise CorpusError(
                    f"Corpus {self.kind!r} already has a split {split!r}; remove {split}_share, which would hold a "
                    "second one out of train."
                )
        return tuple(split for split in ("train", "validation", "test") if split in given or self._shares.get(split))

    @property
    def _shares(self) -> dict[str, float]:
        """The share of `train` that is held out for each split that is not given."""
        shares = {"validation": 0.1 if self.validation_share is None else self.validation_share}
        shares["test"] = self.test_share or 0.0
        return {split: share for split, share in shares.items() if split not in self._given}

    def documents(self, split: str) -> Iterator[Document]:
        """The documents of a split, each an iterator over its pieces, which must be read to its end before the next.

        Nothing that was read is kept in memory.

        Raises:
            CorpusError: the split does not exist or is empty, or its text cannot be read.
        """
        self.expect(split)
        if split in self._given and not (split == "train" and any(self._shares.values())):
            return _not_empty(self._read(split), f"Split {split!r} of corpus {self.kind!r} holds no text.")
        begin, end = self._bounds[split]
        total = self._bounds["test"][1]
        what = f"Split {split!r} of corpus {self.kind!r} is empty: there are {total:,} characters in all."
        return _not_empty(_between(self._read("train"), begin, end), what)

    def key(self, split: str) -> str | None:
        """The hash of all that a split's text follows from; None if that is not known, or the text fits into memory."""
        return None

    def check(self, split: str) -> None:
        """Reads a split, to see whether it can be read."""
        for document in self.documents(split):
            for _ in document:
                pass

    @cached_property
    def _bounds(self) -> dict[str, tuple[int, int]]:
        """Where each split that is cut out of `train` begins and ends, in characters."""
        total = sum(len(piece) for document in self._read("train") for piece in document)
        left = 1.0
        ends = [total]
        for split in ("test", "validation"):
            left -= self._shares.get(split, 0.0)
            ends.append(int(total * left) if self._shares.get(split) else ends[-1])
        (test, validation, train) = ends
        return {"train": (0, train), "validation": (train, validation), "test": (validation, test)}


def in_pieces(texts: Iterable[str]) -> Document:
    """Joins consecutive texts, such as lines with their ends, and cuts the result into pieces."""
    held: list[str] = []
    size = 0
    for text in texts:
        held.append(text)
        size += len(text)
        if size > PIECE:
            together, begin = "".join(held), 0
            while len(together) - begin > PIECE and (cut := _BREAK.search(together, begin + PIECE)):
                yield together[begin : cut.start()]
                begin = cut.start()
            held, size = [together[begin:]], len(together) - begin
    if size:
        yield "".join(held)


def _between(documents: Iterator[Document], begin: int, end: int) -> Iterator[Document]:
    """The text from character number `begin` up to `end` of all documents together."""
    position = 0

    def part(document: Document) -> Document:
        nonlocal position
        for piece in document:
            first, last = max(begin - position, 0), end - position
            position += len(piece)
            if first < min(last, len(piece)):
                yield piece[first:last]

    for document in documents:
        if position >= end:
            return
        yield part(document)


def _not_empty(documents: Iterator[Document], what: str) -> Iterator[Document]:
    """The documents that hold text; an error if none does."""
    empty = True
    for document in documents:
        first = next((piece for piece in document if piece), None)
        if first is not None:
            empty = False
            yield itertools.chain([first], document)
    if empty:
        raise CorpusError(what)


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

    @pydantic.field_validator("train", "validation", "test", mode="before", json_schema_input_type=_Paths)
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return [value] if isinstance(value, str | Path) else value

    @pydantic.model_validator(mode="after")
    def _warn_of_overlap(self) -> Self:
        given: dict[str, set[str]] = {}
        for split in self._given:
            try:
                files = list(map(os.path.realpath, self._all_files(split)))
            except CorpusError:  # of a folder without files; it is raised where the folder is read
                continue
            given[split] = set(files)
            if twice := [file for file, times in Counter(files).items() if times > 1]:
                logger.warning(
                    "corpus: %s names %s more than once; the text counts as often, and what is held out of it may also "
                    "be trained on",
                    *(split, _listed(twice)),
                )
        for one, other in itertools.combinations(given, 2):
            if common := given[one] & given[other]:
                logger.warning(
                    "corpus: %s and %s both have %s; scores on such text do not show how the model does on new text",
                    *(one, other, _listed(common)),
                )
        return self

    @property
    def _given(self) -> tuple[str, ...]:
        return tuple(split for split in ("train", "validation", "test") if getattr(self, split))

    def key(self, split: str) -> str | None:
        """The hash of the files that a split is read from, and of the shares that are held out of them."""
        hashes = hashes_if_large(self._all_files(split if split in self._given else "train"))
        shares = None if split in self._given and split != "train" else [split, self._shares]
        return None if hashes is None else key_of(hashes, shares)

    def _all_files(self, split: str) -> list[Path]:
        paths = map(expanded, getattr(self, split))
        return [file for path in paths for file in (self._files(path) if path.is_dir() else [path])]

    def _read(self, split: str) -> Iterator[Document]:
        named = set(map(expanded, getattr(self, split)))
        for file in self._all_files(split):
            if file.exists() and not file.is_file():
                raise CorpusError(
                    f"{file} is not a regular file; running text is read several times, which a pipe does not allow. "
                    "Save it to a file first."
                )
            yield in_pieces(lines_of(file, ends=True) if file in named else _lines_in_folder(file))

    def _files(self, folder: Path) -> list[Path]:
        try:
            found = sorted(
                file
                for file in folder.rglob(self.pattern)
                if file.is_file()
                and file.stat().st_size
                and not any(part.startswith(".") for part in file.relative_to(folder).parts)
            )
        except (NotImplementedError, ValueError) as error:
            raise CorpusError(f"corpus.pattern = {self.pattern!r} is no pattern of names: {error}.") from None
        if not found:
            raise CorpusError(f"{folder} holds no file with text whose name fits pattern = {self.pattern!r}.")
        return found


def _lines_in_folder(file: Path) -> Iterator[str]:
    """The lines of a file that the user has not named; an error says how to leave it out."""
    try:
        yield from lines_of(file, ends=True)
    except CorpusError as error:
        raise CorpusError(f'{error} Or leave it out, by corpus.pattern = "*.txt" or another pattern.') from None


def _listed(files: Collection[str]) -> str:
    """The first of some files, and how many more there are."""
    more = len(files) - 1
    return min(files) + (f" and {more} more file{'s' if more > 1 else ''}" if more else "")


class PydocTopics(TextCorpus):
    """The topics of Python's `help()`: about 460,000 characters on the language; each topic is a document.

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
