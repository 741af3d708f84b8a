"""What a signature takes and gives, read from a SavedModel without TensorFlow, which takes 3 s to import."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.message import DecodeError

from zoo.git_lfs import check_no_pointer
from zoo.protobuf import message_class
from zoo.serving.clients.messages import TensorSpec
from zoo.serving.layout import SAVED_MODEL_FILE

from .filesystem import open_file

# The fields of TensorFlow's `saved_model.proto` and `types.proto` that are read here; a map is a list of entries.
# TensorFlow's own class takes 3 s to import.
_SavedModel = message_class(
    "SavedModel",
    {
        "Axis": {"size": (1, "INT64")},
        "Shape": {"dim": (2, "*Axis"), "unknown_rank": (3, "BOOL")},
        "Tensor": {"dtype": (2, "INT32"), "tensor_shape": (3, "Shape")},
        "TensorEntry": {"key": (1, "STRING"), "value": (2, "Tensor")},
        "Signature": {"inputs": (1, "*TensorEntry"), "outputs": (2, "*TensorEntry")},
        "SignatureEntry": {"key": (1, "STRING"), "value": (2, "Signature")},
        "MetaGraph": {"signature_def": (5, "*SignatureEntry")},
        "SavedModel": {"meta_graphs": (2, "*MetaGraph")},
    },
    syntax="proto3",
)
_DTYPES = {1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 9: "int64"}
_DTYPES |= {10: "bool", 14: "bfloat16", 17: "uint16", 19: "float16", 22: "uint32", 23: "uint64"}


def signature_of(folder: str, name: str) -> tuple[dict[str, TensorSpec], dict[str, TensorSpec]]:
    """What a signature takes and gives, read without loading the model.

    Raises:
        ValueError: the file is damaged or a pointer of git-lfs, or there is no such signature.
    """
    path = f"{folder}/{SAVED_MODEL_FILE}"
    with open_file(path) as file:
        content = file.read()
    check_no_pointer(path, content)
    try:
        graphs = _SavedModel.FromString(content).meta_graphs
    except DecodeError as error:
        raise ValueError(f"{folder} cannot be loaded; its files may be damaged ({error})") from None
    found = {each.key: each.value for graph in graphs for each in graph.signature_def}
    if name not in found:
        known = sorted(key for key in found if not key.startswith("__"))
        raise ValueError(f"{folder} has no signature {name!r}; it has {', '.join(known) or 'none'}")

    def shape(given: Any) -> tuple[int | None, ...] | None:
        return None if given.unknown_rank else tuple(None if axis.size < 0 else axis.size for axis in given.dim)

    def specs(tensors: Iterable[Any]) -> dict[str, TensorSpec]:
        return {
            each.key: TensorSpec(_DTYPES.get(each.value.dtype, "unknown"), shape(each.value.tensor_shape))
            for each in sorted(tensors, key=lambda each: each.key)
        }

    return specs(found[name].inputs), specs(found[name].outputs)
