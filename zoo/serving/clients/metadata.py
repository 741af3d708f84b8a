"""What a server tells of a model: its signatures, and the state of its versions."""

from __future__ import annotations

import dataclasses

_NAMES = {"half": "float16", "float": "float32", "double": "float64"}  # where NumPy's name is another


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """What a signature takes or gives under one name.

    Attributes:
        dtype: NumPy's name of it, or "string".
        shape: the sizes of the axes, None for any; None where not even their number is known.
    """

    dtype: str
    shape: tuple[int | None, ...] | None


@dataclasses.dataclass(frozen=True)
class Signature:
    """A function of a model.

    Attributes:
        inputs: by name.
        outputs: by name.
    """

    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]


@dataclasses.dataclass(frozen=True)
class VersionStatus:
    """How it stands with a version of a model.

    Attributes:
        version: its number.
        state: "AVAILABLE" if it answers, or "START", "LOADING", "UNLOADING" or "END".
        error: why it could not be loaded; "" if nothing is wrong.
    """

    version: int
    state: str
    error: str = ""


def signatures_of(definitions: dict) -> dict[str, Signature]:
    """The signatures in a `SignatureDefMap`, as a dict with the field names of the proto."""
    return {
        name: Signature(_specs(signature.get("inputs", {})), _specs(signature.get("outputs", {})))
        for name, signature in sorted(definitions["signature_def"].items())
        if not name.startswith("__")  # the initializer is listed too, and nobody's to call
    }


def versions_of(response: dict) -> list[VersionStatus]:
    """The versions in a `GetModelStatusResponse`, as a dict with the field names of the proto, in ascending order."""
    found = [
        VersionStatus(
            version=int(each.get("version", 0)),  # 64-bit numbers are strings in JSON
            state=each.get("state", "UNKNOWN"),
            error=each.get("status", {}).get("error_message", ""),
        )
        for each in response.get("model_version_status", ())
    ]
    return sorted(found, key=lambda each: each.version)


def _specs(tensors: dict) -> dict[str, TensorSpec]:
    specs = {}
    for name, tensor in sorted(tensors.items()):
        dtype = tensor.get("dtype", "DT_INVALID").removeprefix("DT_").lower()
        specs[name] = TensorSpec(_NAMES.get(dtype, dtype), _shape(tensor.get("tensor_shape", {})))
    return specs


def _shape(shape: dict) -> tuple[int | None, ...] | None:
    if shape.get("unknown_rank"):
        return None
    sizes = (int(axis.get("size", 0)) for axis in shape.get("dim", ()))
    return tuple(None if size < 0 else size for size in sizes)
