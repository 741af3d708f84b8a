"""Messages of protocol buffers, described at run time: so a file is read without the library that describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Of each field, its number, its type and its default, if that is another than usual. The type is one of
# `FieldDescriptorProto`, such as "INT32", or the name of a message; with a star before it, the field is repeated.
Fields = Mapping[str, tuple[int, str] | tuple[int, str, str]]


def message_class(name: str, messages: Mapping[str, Fields], syntax: str = "proto2") -> Any:
    """The class of a message.

    Args:
        name: the message.
        messages: the fields of this message, and of those in it.
        syntax: "proto2" or "proto3", which takes only strings in UTF-8, and knows no defaults.
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"zoo/{name}.proto", package="zoo", syntax=syntax)
    kinds = descriptor_pb2.FieldDescriptorProto
    for message, fields in messages.items():
        described = file.message_type.add(name=message)
        for field, (number, kind, *default) in fields.items():
            type_name = kind.removeprefix("*")
            described.field.add(
                name=field,
                number=number,
                label=kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL,
                type=kinds.TYPE_MESSAGE if type_name in messages else getattr(kinds, f"TYPE_{type_name}"),
                type_name=f".zoo.{type_name}" if type_name in messages else None,
                default_value=next(iter(default), None),
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"zoo.{name}"))
