"""Texts in: the arguments of a command, or the lines of a file or of stdin as they come."""

from __future__ import annotations

import collections
import pathlib
import select
import sys
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import typer

from zoo.local_workers import cores

from ..answering import More, at_once
from ..file_encoding import refuse_other, without_mark
from ..start_tensorflow import import_tensorflow
from .printing import shortened

LINES = 16  # times the batch size: how many lines to gather, so that a batch has texts of similar lengths
_PIECE = 1 << 16  # bytes that are read at once: as many as a pipe holds
_PATIENCE = 3  # seconds until a command says that it waits for stdin


class Lines(Iterator[str]):
    """Lines of text.

    Attributes:
        more: whether another line, or the end, comes within so many seconds.
    """

    def __init__(self, lines: Iterator[str], more: More = at_once):
        self._lines, self.more = lines, more

    def __next__(self) -> str:
        return next(self._lines)


class _Stream(Iterator[bytes]):
    """Lines of a file or pipe. Python's own cannot tell whether the next one would have to be waited for."""

    def __init__(self, stream: BinaryIO):
        self._stream: Any = stream
        self._lines: collections.deque[bytes] = collections.deque()
        self._begun: list[bytes] = []  # of the last line

    def __next__(self) -> bytes:
        while not self._lines:
            piece = self._stream.read1(_PIECE)
            if not piece:
                last, self._begun = b"".join(self._begun), []
                if not last:
                    raise StopIteration
                return last
            end, *others = piece.split(b"\n")
            self._begun.append(end)
            if others:
                self._lines += [b"".join(self._begun), *others]
                self._begun = [self._lines.pop()]
        return self._lines.popleft()

    def more(self, seconds: float) -> bool:
        try:
            return bool(self._lines or select.select([self._stream], [], [], seconds)[0])
        except OSError:  # no file of the system; or a pipe of Windows
            return True


def read_lines(texts: list[str] | None, file: pathlib.Path | None) -> Lines:
    """Gives the texts of the arguments, or the lines of a file or of stdin as they come.

    Mistakes are found by the call, before a model is loaded.
    """
    if texts and file:
        raise ValueError("texts and --file were both given; give one of them")
    if texts:  # bytes that are not UTF-8 come as half surrogate pairs
        return Lines(_decoded("TEXT", (text.encode("utf-8", "surrogateescape") for text in texts)))
    if file:
        return _lines(file.open("rb"))
    if sys.stdin is None:  # as in `zoo translate MODEL <&-`
        raise ValueError("there are no texts, and stdin is closed; give texts as arguments or by --file")
    if sys.stdin.isatty():
        typer.echo("zoo: reading lines from the terminal; Ctrl-D ends", err=True)
    return _lines(sys.stdin.buffer)


def read_whole(file: pathlib.Path) -> str:
    r"""The text of a file, decoded as `read_lines` decodes its lines, with \n at the line ends."""
    with file.open("rb") as stream:
        return _whole(stream)


def read_piped() -> str:
    """The text of stdin, without its last line end, which `echo` adds; empty if stdin is a terminal or closed.

    A service may have a stdin that nobody writes to nor closes. So a line says what is waited for.
    """
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    if not _Stream(sys.stdin.buffer).more(_PATIENCE):
        told = 'zoo: waiting for a prompt on stdin; give "" as the prompt to begin a text without one'
        typer.echo(told, err=True)
    return _whole(sys.stdin.buffer).removesuffix("\n")


def _whole(stream: BinaryIO) -> str:
    return "".join(_decoded(_name(stream), stream)).replace("\r\n", "\n")


def _lines(stream: BinaryIO) -> Lines:
    """Decoded lines without their ends."""
    lines = _Stream(stream)
    return Lines((line.rstrip("\r\n") for line in _decoded(_name(stream), lines)), lines.more)


def _name(stream: BinaryIO) -> str:
    return getattr(stream, "name", "<stdin>")


def _decoded(name: str, lines: Iterable[bytes]) -> Iterator[str]:
    """Lines without byte order marks; broken UTF-8 becomes U+FFFD, with one warning.

    UTF-16 and a packed file are errors.
    """
    warned = False
    for number, line in enumerate(lines):
        if number == 0:
            refuse_other(name, line)
        line = without_mark(line)
        try:
            text = line.decode()
        except UnicodeDecodeError:
            text = line.decode("utf-8", "replace")
            if not warned:
                told = f"{name}:{number + 1}: not UTF-8; broken bytes are read as U+FFFD"
                typer.echo(f"zoo: warning: {told}", err=True)
            warned = True
        yield text


def read_pairs(
    lines: Iterable[str], texts: list[str] | None = None, skip_empty: bool = False
) -> Iterator[tuple[str, str]]:
    """The two texts of each line, for a model of pairs.

    Args:
        lines: of two texts with a tab between.
        texts: the arguments, if the lines are those.
        skip_empty: whether lines without a text are left out.

    Raises:
        ValueError: a line has no tab, or several.
    """
    for number, line in enumerate(lines, 1):
        if skip_empty and not line.strip():
            continue
        first, tab, second = line.partition("\t")
        if not tab or "\t" in second:
            raise ValueError(
                f"{'text' if texts else 'line'} {number} must hold two texts with one tab between, since the model "
                f"reads pairs. Received: {shortened(line)!r}"
            )
        yield first, second


def threads_for(texts: list[str] | None, file: pathlib.Path | None = None) -> int:
    """How many batches to compute at once: one a core for a file or a pipe, unless there is a GPU.

    Batches with one thread each on every core are faster than one batch with all threads, see `benchmarks/notes.md`.
    """
    if texts or (file is None and sys.stdin is not None and sys.stdin.isatty()):
        return 1
    gpus = import_tensorflow(operation_threads=1).config.list_physical_devices("GPU")
    return 1 if gpus else cores()
