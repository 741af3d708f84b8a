"""The encoding of texts in a user's files, which is UTF-8, and how files that are no such text begin."""

from __future__ import annotations

import codecs

_IS = "{0}, and not UTF-8; convert it, for example with iconv -f {0} -t UTF-8"
MARKS = {  # that of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF32_LE: _IS.format("UTF-32"),
    codecs.BOM_UTF32_BE: _IS.format("UTF-32"),
    codecs.BOM_UTF16_LE: _IS.format("UTF-16"),
    codecs.BOM_UTF16_BE: _IS.format("UTF-16"),
}
"""How a file in another encoding begins, and what an error says of it; the first that fits counts."""

PACKED = {
    b"\x1f\x8b": "packed by gzip; unpack it first",
    b"BZh91AY&SY": "packed by bzip2; unpack it first",
    b"\xfd7zXZ\0": "packed by xz; unpack it first",
    b"\x28\xb5\x2f\xfd": "packed by zstd; unpack it first",
}
"""How a packed file begins, and what an error says of it."""


def without_mark(line: bytes) -> bytes:
    """A line of UTF-8 without a byte order mark: editors begin files with one, and `cat` puts it in the middle."""
    return line.removeprefix(codecs.BOM_UTF8)


def refuse_other(name: str, beginning: bytes) -> None:
    """Checks that a file does not begin as a packed one does, or as one in UTF-16 or UTF-32.

    Args:
        name: the file's, for the error.
        beginning: its first bytes, ten at least if it has them.

    Raises:
        ValueError: it does.
    """
    for begin, what in (*PACKED.items(), *MARKS.items()):
        if beginning.startswith(begin):
            raise ValueError(f"{name}: {what}")
