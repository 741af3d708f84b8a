"""The encoding of texts in a user's files, which is UTF-8."""

from __future__ import annotations

import codecs

UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""How a file in UTF-16 begins."""

IS_UTF_16 = "UTF-16, and not UTF-8; convert it, for example with iconv -f UTF-16 -t UTF-8"
"""What an error says of such a file."""


def refuse_utf_16(name: str, beginning: bytes) -> None:
    """Checks that a file does not begin as one in UTF-16 does.

    Args:
        name: the file's, for the error.
        beginning: its first bytes, two at least if it has them.

    Raises:
        ValueError: it does.
    """
    if beginning.startswith(UTF_16_MARKS):
        raise ValueError(f"{name}: {IS_UTF_16}")
