"""The checksum of TensorFlow's files."""

from __future__ import annotations

import google_crc32c


def masked_crc32c(data: bytes) -> int:
    """CRC-32C as it is stored: rotated, and a constant added."""
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
