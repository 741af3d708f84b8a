"""The tensors of a file that PyTorch wrote with `torch.save`, read without PyTorch.

Such a file is a pickle, and a pickle is a program: `pickle.load` runs whatever a stranger put into it. Here the pickle
may use only the names in `_ALLOWED`, which a dictionary of tensors needs. Any other name is refused and never called.

The formats are those of `torch/serialization.py`: since 1.6 a zip with `data.pkl` and a member for each storage, before
several pickles, followed by the storages. Numbers stay in the file until a tensor is read.

Reference: https://pytorch.org/docs/stable/notes/serialization.html
"""

from __future__ import annotations

import collections
import io
import math
import mmap
import pathlib
import pickle
import struct
import zipfile
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

_STORAGES = {
    "DoubleStorage": np.dtype(np.float64),
    "FloatStorage": np.dtype(np.float32),
    "HalfStorage": np.dtype(np.float16),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "LongStorage": np.dtype(np.int64),
    "IntStorage": np.dtype(np.int32),
    "ShortStorage": np.dtype(np.int16),
    "CharStorage": np.dtype(np.int8),
    "ByteStorage": np.dtype(np.uint8),
    "BoolStorage": np.dtype(np.bool_),
}
_OLD_MAGIC, _OLD_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_LARGEST_PICKLE = 2**24  # bytes; a pickle of names and shapes has a few hundred for each tensor


class StoredArray(NamedTuple):
    """An array in a file.

    Attributes:
        shape: its shape.
        read: a function that reads it.
    """

    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]


class _Kind(NamedTuple):
    """The type of a storage. A pickle cannot change it, nor anything else that it may name here."""

    dtype: str


class _Storage(NamedTuple):
    """A row of numbers in the file."""

    dtype: np.dtype
    key: str
    size: int


class _Tensor(NamedTuple):
    """A view of a storage."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_pytorch(file: pathlib.Path) -> dict[str, StoredArray]:
    """The tensors of a file by name, not yet read.

    Raises:
        ValueError: it is not a file of `torch.save`, it is damaged, it holds something else than tensors by name, or
            its pickle names anything that tensors do not need.
    """
    if not file.stat().st_size:
        raise ValueError(f"{file} cannot be read: it is empty")
    try:
        with file.open("rb") as stream:
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        zipped = content[:4] == b"PK\x03\x04"
        tensors, places = _of_zip(file, content) if zipped else _of_pickles(content)
    except ValueError as error:
        raise ValueError(f"{file} cannot be read: {error}") from None
    except Exception as error:  # damage can break the readers of zips and pickles anywhere
        raise ValueError(f"{file} is damaged or cut off, or is no file of PyTorch: {error}") from None

    def array(name: str, tensor: _Tensor) -> StoredArray:
        begin, end = places.get(tensor.storage.key, (0, -1))
        try:
            _check(tensor, begin, min(end, len(content)))
        except ValueError as error:
            raise ValueError(f"{file}: {name} {error}") from None
        return StoredArray(tensor.shape, lambda: _read(tensor, content, begin))

    return {name: array(name, tensor) for name, tensor in tensors.items()}


def _of_zip(file: pathlib.Path, content: mmap.mmap) -> tuple[dict[str, _Tensor], dict[str, tuple[int, int]]]:
    """The tensors, and where the bytes of each storage begin and end; of the format since PyTorch 1.6."""
    with zipfile.ZipFile(file) as archive:
        members = {info.filename: info for info in archive.infolist()}
        pickles = [name for name in members if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(pickles) != 1:
            raise ValueError("it is a zip without the data.pkl of PyTorch")
        folder = pickles[0].removesuffix("data.pkl")
        for name, info in members.items():
            if info.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"its member {name[:80]} is compressed, which PyTorch never does")
            if not name.startswith(f"{folder}data/") and info.file_size > _LARGEST_PICKLE:
                raise ValueError(f"its member {name[:80]} has {info.file_size:,} bytes")
        if f"{folder}byteorder" in members and archive.read(f"{folder}byteorder") != b"little":
            raise ValueError("its numbers are big-endian")
        program = archive.read(pickles[0])
    places = {}
    for name, info in members.items():
        if not name.startswith(f"{folder}data/"):
            continue
        # The lengths of name and extra field are those of the member's own header, of 30 bytes.
        name_length, extra_length = struct.unpack("<HH", content[info.header_offset + 26 : info.header_offset + 30])
        begin = info.header_offset + 30 + name_length + extra_length
        places[name.removeprefix(f"{folder}data/")] = begin, begin + info.file_size
    return _tensors(_Unpickler(io.BytesIO(program)).load()), places


def _of_pickles(content: mmap.mmap) -> tuple[dict[str, _Tensor], dict[str, tuple[int, int]]]:
    """The same of the format before PyTorch 1.6: five pickles, and the storages in the order of the last one."""
    pickles = io.BytesIO(content[:_LARGEST_PICKLE])
    if _Unpickler(pickles).load() != _OLD_MAGIC:
        raise ValueError("it is not a file of `torch.save`")
    if _Unpickler(pickles).load() != _OLD_PROTOCOL:
        raise ValueError("it has an unknown version")
    if not _Unpickler(pickles).load().get("little_endian", False):
        raise ValueError("its numbers are big-endian")
    unpickler = _Unpickler(pickles)
    tensors = _tensors(unpickler.load())
    keys = _Unpickler(pickles).load()
    place, places = pickles.tell(), {}
    for key in keys:
        storage = unpickler.storages[key]
        (size,) = struct.unpack("<q", content[place : place + 8])
        if size != storage.size:
            raise ValueError(f"its storage {key[:80]} has {size} numbers instead of {storage.size}")
        end = place + 8 + size * storage.dtype.itemsize
        places[key] = place + 8, end
        place = end
    return tensors, places


def _tensors(found: Any) -> dict[str, _Tensor]:
    """What the pickle made, if it is tensors by name; those of a checkpoint's `state_dict` too."""
    if isinstance(found, dict) and isinstance(found.get("state_dict"), dict):
        found = found["state_dict"]
    if not isinstance(found, dict):
        raise ValueError(f"it holds a {type(found).__name__} instead of tensors by name")
    for name, each in found.items():
        if not isinstance(name, str):
            raise ValueError("a name in it is no string")
        if not isinstance(each, _Tensor):
            raise ValueError(f"{name[:80]!r} in it is no tensor")
    return dict(found)


def _check(tensor: _Tensor, begin: int, end: int) -> None:
    """Refuses a view that leaves its storage, or a storage that is larger than its bytes, from `begin` to `end`."""
    storage = tensor.storage
    numbers = (tensor.offset, *tensor.shape, *tensor.strides)
    if len(tensor.shape) != len(tensor.strides) or not all(type(n) is int and 0 <= n < 2**63 for n in numbers):
        raise ValueError("has an impossible shape.")
    if begin + storage.size * storage.dtype.itemsize > end:
        raise ValueError("is not whole: the file is too short.")
    last = tensor.offset + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.strides, strict=True))
    # Strides of zero could make a huge array of one number.
    if 0 not in tensor.shape and (last >= storage.size or math.prod(tensor.shape) > storage.size):
        raise ValueError(f"is larger than its storage of {storage.size} numbers: shape {tensor.shape}.")


def _read(tensor: _Tensor, content: mmap.mmap, begin: int) -> np.ndarray:
    """A copy of the numbers, in rows."""
    numbers = np.frombuffer(content, tensor.storage.dtype, tensor.storage.size, begin)[tensor.offset :]
    strides = [stride * numbers.itemsize for stride in tensor.strides]
    return np.array(np.lib.stride_tricks.as_strided(numbers, tensor.shape, strides, writeable=False), order="C")


class _RebuildTensor:
    """Stands for `torch._utils._rebuild_tensor_v2`. Without attributes, so that a pickle can change nothing."""

    __slots__ = ()

    def __call__(self, storage: Any, offset: int, shape: tuple, strides: tuple, *_: Any) -> _Tensor:
        """A view; what follows the strides concerns gradients."""
        if not isinstance(storage, _Storage):
            raise pickle.UnpicklingError("a tensor without a storage")
        return _Tensor(storage, offset, tuple(shape), tuple(strides))


class _RebuildParameter:
    """Stands for `torch._utils._rebuild_parameter`."""

    __slots__ = ()

    def __call__(self, tensor: Any, *_: Any) -> Any:
        """The tensor of a parameter."""
        return tensor


# All that the pickle may name, and what is called in its place.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _RebuildTensor(),
    ("torch._utils", "_rebuild_tensor"): _RebuildTensor(),
    ("torch._utils", "_rebuild_parameter"): _RebuildParameter(),
    ("torch", "Size"): tuple,
}
_ALLOWED |= {("torch", name): _Kind(name) for name in _STORAGES}


class _Unpickler(pickle.Unpickler):
    """Reads a pickle that may name only `_ALLOWED`."""

    def __init__(self, stream: Any):
        super().__init__(stream)
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise ValueError(
                f"its pickle names {module}.{name}, which tensors do not need. It was not called. If you trust the "
                "file, load it with PyTorch and save the tensors as safetensors."
            )
        return _ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        word, kind, key, _, size, *view = pid
        if word != "storage" or not isinstance(kind, _Kind):
            raise pickle.UnpicklingError("an unknown kind of data")
        if not isinstance(key, str) or type(size) is not int or not 0 <= size < 2**48:
            raise pickle.UnpicklingError("a storage with an impossible size")
        if any(each is not None for each in view):
            raise ValueError("it holds views of storages, which are not read; save its tensors as safetensors")
        return self.storages.setdefault(key, _Storage(_STORAGES[kind.dtype], key, size))
