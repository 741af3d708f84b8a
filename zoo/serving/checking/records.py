"""Reading a TFRecord file without trusting it: TensorFlow's reader makes room for any length that it finds."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

from zoo.serving.checking.crc import masked_crc32c
from zoo.serving.checking.protos import LARGEST_FILE


def read_records(path: pathlib.Path) -> Iterator[bytes]:
    """The records of a file, one at a time.

    Raises:
        ValueError: it is no file, or a record is not as it was written; the message says so, without a full stop.
    """
    if not os.path.isfile(path):
        raise ValueError("It is no file")
    try:
        with path.open("rb") as file:
            left = os.fstat(file.fileno()).st_size
            number = 0
            # A length of 8 bytes with its checksum, the record with its.
            while header := file.read(12):
                number += 1
                length = int.from_bytes(header[:8], "little")
                if not _is_right(header):
                    raise ValueError(f"Record {number} does not begin as one does")
                left -= 16 + length
                if left < 0:
                    raise ValueError(f"Record {number} is cut off")
                if length > LARGEST_FILE:
                    raise ValueError(f"Record {number} is larger than {LARGEST_FILE:,} bytes")
                record = file.read(length + 4)
                if not _is_right(record):
                    raise ValueError(f"Record {number} is not as it was written: its checksum is wrong")
                yield record[:-4]
    except OSError as error:
        raise ValueError(f"It cannot be read: {error.strerror}") from None


def _is_right(data: bytes) -> bool:
    """Whether the last four bytes are the checksum of those before."""
    return len(data) >= 4 and int.from_bytes(data[-4:], "little") == masked_crc32c(data[:-4])
