"""Reading `variables.index`, a sorted table of keys and values, without trusting it.

TensorFlow's own reader believes the sizes that it finds, and a made-up one ends the process.
"""

from __future__ import annotations

from collections.abc import Iterator

from zoo.serving.checking.crc import masked_crc32c
from zoo.serving.checking.protos import varint

_MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_FOOTER, _TRAILER = 48, 5
_LONGEST_KEY = 1 << 16
_SMALLEST_BLOCK = 512  # but for the last; TensorFlow's are larger by far


def table_entries(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values, in order.

    Args:
        data: the file. Its last 48 bytes say where the block is that says where the other blocks are.

    Raises:
        ValueError: it is no such table, or not as it was written; the message says how, without a full stop.
    """
    if len(data) < _FOOTER or data[-8:] != _MAGIC:
        raise ValueError(f"It is no table of variables, or its end is cut off, in {len(data):,} bytes")
    at = len(data) - _FOOTER
    for _ in range(2):  # a block that nobody uses is named first
        _, at = varint(data, at)
    start, at = varint(data, at)
    size, _ = varint(data, at)
    end = 0
    for number, (_, handle) in enumerate(_block(data, start, size)):
        start, at = varint(handle, 0)
        # Or a small file could have a billion entries, and a large one take hours.
        if start < end or number > len(data) // _SMALLEST_BLOCK:
            raise ValueError("Its blocks are not one after the other, or there are too many")
        size, _ = varint(handle, at)
        yield from _block(data, start, size)
        end = start + size + _TRAILER


def _block(data: bytes, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """A block: keys without what they share with the one before, and values; then where one may begin to read."""
    end = start + size
    if end + _TRAILER > len(data):
        raise ValueError("A block of it ends after the file")
    if int.from_bytes(data[end + 1 : end + _TRAILER], "little") != masked_crc32c(data[start : end + 1]):
        raise ValueError("A block of it is not as it was written: its checksum is wrong")
    if data[end] != 0:
        raise ValueError("It is compressed, which TensorFlow's variables are not")
    restarts = int.from_bytes(data[end - 4 : end], "little") if size >= 4 else 0
    end -= 4 * (restarts + 1)
    key, at = b"", start
    while at < end:
        shared, at = varint(data, at)
        length, at = varint(data, at)
        value_length, at = varint(data, at)
        if shared > len(key) or shared + length > _LONGEST_KEY or at + length + value_length > end:
            raise ValueError("A key or value of it ends after its block")
        key = key[:shared] + data[at : at + length]
        at += length + value_length
        yield key, data[at - value_length : at]
