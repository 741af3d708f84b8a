"""The encoding of texts in a user's files, which is UTF-8."""

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


def refuse_utf_16(name: str, beginning: bytes) -> None:
    """Checks that a file does not begin as one in UTF-16 or UTF-32 does.

    Args:
        name: the file's, for the error.
        beginning: its first bytes, four at least if it has them.

    Raises:
        ValueError: it does.
    """
    if what := next((MARKS[mark] for mark in MARKS if beginning.startswith(mark)), None):
        raise ValueError(f"{name}: {what}")
