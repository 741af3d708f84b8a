"""Text that comes a few bytes at a time."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence


def whole_text(chunks: Iterable[bytes], stop: Sequence[bytes] = ()) -> Iterator[str]:
    """Characters as soon as they are whole, up to the first stop string.

    Args:
        chunks: pieces of UTF-8, which may end within a character; broken sequences become U+FFFD.
        stop: strings, none of them empty, before the first of which the text ends.

    Yields:
        Text, never empty. What may be the beginning of a stop string waits until it is known.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    held = b""
    for chunk in chunks:
        held += chunk
        ends = [place for place in map(held.find, stop) if place >= 0]
        if ends:
            held = held[: min(ends)]
            break
        known = len(held) - _begun(held, stop)
        text, held = decoder.decode(held[:known]), held[known:]
        if text:
            yield text
    text = decoder.decode(held, final=True)
    if text:
        yield text


def _begun(text: bytes, stop: Sequence[bytes]) -> int:
    """How many of the last bytes may be the beginning of a stop string."""
    longest = max((len(each) - 1 for each in stop), default=0)
    numbers = range(min(longest, len(text)), 0, -1)
    return next((number for number in numbers if any(each.startswith(text[-number:]) for each in stop)), 0)
