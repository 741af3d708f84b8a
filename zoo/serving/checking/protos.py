"""Parsing messages that may be anything, in bounded memory."""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

LARGEST_FILE = 2**31 - 1  # protobuf's own limit, and so a server's
# A message takes up to 50 times its size in memory if all of it is small messages. That many bytes of structure is ten
# times what a large model has, however large its constants.
LARGEST_STRUCTURE = 64 << 20
_SMALL, _EACH = 4096, 32
_AS_LARGE_IN_MEMORY = (FieldDescriptor.CPPTYPE_STRING, FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)


def parse(kind: type[Message], data: bytes) -> Message:
    """A message of this kind.

    Raises:
        ValueError: the bytes are no such message, or one that would take too much memory.
    """
    if len(data) > LARGEST_STRUCTURE and _structure(data, kind.DESCRIPTOR) > LARGEST_STRUCTURE:
        raise ValueError(f"Its structure alone is larger than {LARGEST_STRUCTURE >> 20} MB, which is not read")
    try:
        return kind.FromString(data)
    except DecodeError:
        raise ValueError(f"It does not parse as a {kind.DESCRIPTOR.name}") from None


def varint(data: bytes, at: int) -> tuple[int, int]:
    """An integer as protobuf and tables write it, of 64 bits at most, and where it ends.

    Raises:
        ValueError: it does not end.
    """
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
    raise ValueError("An integer does not end")


def _structure(data: bytes, kind: Descriptor) -> int:
    """How many bytes are not in large strings, such as constants, with something added for each field.

    It stops at more than `LARGEST_STRUCTURE`. Small messages are not looked into.
    """
    total, left = 0, [(0, len(data), kind)]
    while left and total <= LARGEST_STRUCTURE:
        at, end, kind = left.pop()
        fields = kind.fields_by_number
        while at < end and total <= LARGEST_STRUCTURE:
            tag, at = varint(data, at)
            total += _EACH
            if tag & 7 == 2:
                length, at = varint(data, at)
                field = fields.get(tag >> 3)
                if field is None or field.cpp_type in _AS_LARGE_IN_MEMORY:
                    pass
                elif field.message_type is not None and length > _SMALL:
                    left.append((at, min(at + length, end), field.message_type))
                else:
                    total += length
                at += length
            elif tag & 7 in (1, 5):
                at += 8 if tag & 7 == 1 else 4
            elif tag & 7 == 0:
                at = varint(data, at)[1]
            else:
                raise ValueError("It has groups, which no such message has")
    return total
