"""The encoding of texts in a user's files, which is UTF-8."""

from __future__ import annotations

import codecs


def refuse_utf_16(name: str, beginning: bytes) -> None:
    """Checks that a file does not begin as one in UTF-16 does.

    Args:
        name: the file's, for the error.
        beginning: its first bytes, two at least if it has them.

    Raises:
        ValueError: it does.
    """
    if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(f"{name}: UTF-16, and not UTF-8; convert it, for example with iconv -f UTF-16 -t UTF-8")
