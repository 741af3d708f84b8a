"""The weights of a Hugging Face checkpoint, whose shapes are checked before a model is built.

An importer says what a checkpoint must hold, as a list of `Tensor`: a name, a shape, and the weight of our model that
it is read into. `check_tensors` compares the list with the files and reads only their headers. Then `assign` reads one
tensor after the other. So a wrong or malicious configuration is found before anything large is built, and an import
needs little more memory than the model. `collect` is the way back.
"""

from __future__ import annotations

import itertools
import pathlib
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import keras
import ml_dtypes  # noqa: F401, with it safetensors knows bfloat16
import numpy as np

from zoo.checkpoints import CONFIG_FILE, other_format
from zoo.checkpoints.config import read_json
from zoo.checkpoints.pytorch_file import StoredArray, read_pytorch
from zoo.git_lfs import check_no_pointer

# In the order in which they are looked for.
_SAFETENSORS, _PYTORCH = "model.safetensors", "pytorch_model.bin"
_WEIGHTS_FILES = (_SAFETENSORS, f"{_SAFETENSORS}.index.json", _PYTORCH, f"{_PYTORCH}.index.json")


class Tensor(NamedTuple):
    """A tensor of a checkpoint, and the weight that it becomes.

    Attributes:
        name: its name in the files.
        shape: its shape there.
        weight: the path of our weight; None for a tensor that repeats another one.
        change: a function from the tensor to the numbers of our weight; None if only the shapes differ. It may move
            numbers, leave some out and insert zeros. It must not compute new numbers: see `collect`.
        copy_of: the name of the tensor that it repeats.
        optional: whether the files may lack the tensor. The weight, a bias, then stays zero.
    """

    name: str
    shape: tuple[int, ...]
    weight: str | None
    change: Callable[[np.ndarray], np.ndarray] | None = None
    copy_of: str | None = None
    optional: bool = False


def norm(theirs: str, ours: str, width: int) -> Iterator[Tensor]:
    """Scale and shift of a layer normalisation."""
    yield Tensor(f"{theirs}.weight", (width,), f"{ours}/gamma")
    yield Tensor(f"{theirs}.bias", (width,), f"{ours}/beta")


def dense(theirs: str, ours: str, shape: tuple[int, int]) -> Iterator[Tensor]:
    """Kernel and bias of a projection, whose weight PyTorch stores as `(out, in)`."""
    yield Tensor(f"{theirs}.weight", shape, f"{ours}/kernel", transposed)
    yield Tensor(f"{theirs}.bias", shape[:1], f"{ours}/bias")


def transposed(array: np.ndarray) -> np.ndarray:
    """The kernel `(in, out)` of a PyTorch weight `(out, in)`."""
    return array.T


def picked(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Some rows of `(N, ...)`, by their indices `(M,)`; zeros where the index is -1. `(M, ...)`."""
    chosen = array[np.maximum(rows, 0)]  # (M, ...)
    chosen[rows < 0] = 0
    return chosen


def weights_file(path: pathlib.Path) -> pathlib.Path:
    """The file of a checkpoint that holds its weights, or the index of their files.

    Raises:
        FileNotFoundError: there is none.
    """
    found = next((path / name for name in _WEIGHTS_FILES if (path / name).is_file()), None)
    if found is None:
        instead = other_format(path)
        it_holds = f" It holds {instead}." if instead else ""
        raise FileNotFoundError(f"{path} is not a whole checkpoint: it has no {_SAFETENSORS} or {_PYTORCH}.{it_holds}")
    return found


def stored_tensors(path: pathlib.Path, renamed: Callable[[str], str] = str) -> dict[str, StoredArray]:
    """The tensors of a checkpoint by name, not yet read.

    They are in `model.safetensors` or `pytorch_model.bin`, or in the files that the index beside them lists.

    Args:
        path: the checkpoint's folder.
        renamed: a function from the name of a tensor in the files, of which it may have several, to the one used here.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file cannot be read, or the files hold two names of one tensor.
    """
    found = weights_file(path)
    files = [found]
    if found.suffix == ".json":
        index = read_json(found)
        places = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
            raise ValueError(f"{found} cannot be read: it has no weight_map from names to files")
        names = sorted(set(places.values()))
        outside = [name for name in names if pathlib.PurePath(name).name != name]
        if outside or not names:
            raise ValueError(f"{found} must name files of its folder. It names {outside or 'none'}.")
        files = [path / name for name in names]
    tensors: dict[str, StoredArray] = {}
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(
                f"{path} is not a whole checkpoint: it has no {file.name}, which {found.name} lists; download it too."
            )
        with file.open("rb") as opened:
            check_no_pointer(file, opened.read(100))
        tensors |= _safetensors(file) if file.suffix == ".safetensors" else read_pytorch(file)
    names_there: dict[str, str] = {}
    for name in tensors:
        other = names_there.setdefault(renamed(name), name)
        if other != name:
            raise ValueError(f"{path}: the weights hold {other} and {name}, which are names of the same tensor.")
    return {name: tensors[there] for name, there in names_there.items()}


def _safetensors(file: pathlib.Path) -> dict[str, StoredArray]:
    import safetensors

    try:
        opened = safetensors.safe_open(file, framework="np")
        slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118, no dict
        shapes = {name: tuple(each.get_shape()) for name, each in slices.items()}
        types = {name: each.get_dtype() for name, each in slices.items()}
    except safetensors.SafetensorError as error:
        raise ValueError(f"{file} cannot be read: it is damaged or cut off ({error}); download it again") from None
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error}") from None

    def array(name: str) -> StoredArray:
        def read() -> np.ndarray:
            if types[name].startswith("F8"):
                raise ValueError(f"{file}: {name} cannot be read: its numbers are {types[name]}, quantised to 8 bits")
            try:
                return opened.get_tensor(name)
            except (safetensors.SafetensorError, TypeError) as error:
                raise ValueError(f"{file}: {name} cannot be read: {error}") from None

        return StoredArray(shapes[name], read)

    return {name: array(name) for name in shapes}


def repeated(stored: dict[str, StoredArray], tensor: Tensor, copies: Iterable[str]) -> list[Tensor]:
    """The copies of a tensor that a checkpoint holds, such as the output matrix beside a tied embedding.

    If it holds a copy alone, this takes the tensor's place in `stored`, as in `transformers`. Such files are written by
    `safetensors.torch.save_model`, which keeps the first one of equal tensors in the order of the alphabet.

    Args:
        stored: what the checkpoint holds; may be changed.
        tensor: the tensor.
        copies: names that its copies may have.
    """
    found = [name for name in copies if name in stored]
    if found and tensor.name not in stored:
        stored[tensor.name] = stored.pop(found.pop(0))
    return [Tensor(name, tensor.shape, None, copy_of=tensor.name) for name in found]


def check_tensors(
    path: pathlib.Path, stored: Mapping[str, StoredArray], tensors: Iterable[Tensor], ignored: Iterable[str] = ()
) -> list[Tensor]:
    """Compares what a checkpoint must hold with what it holds.

    Args:
        path: the checkpoint's folder, for messages.
        stored: what it holds.
        tensors: what it must hold.
        ignored: regular expressions of names that it may hold as well.

    Returns:
        The list of tensors that it holds.

    Raises:
        ValueError: tensors are missing, have other shapes or are unknown; the message names some.
    """
    wanted: list[Tensor] = []
    missing: list[str] = []
    for tensor in tensors:
        if tensor.name not in stored and tensor.optional:
            continue
        if tensor.name not in stored:
            missing.append(tensor.name)
            if len(missing) > len(stored) + 3:  # the list may be endless, if the configuration says so
                break
        elif stored[tensor.name].shape != tensor.shape:
            raise ValueError(
                f"{path}: {tensor.name} has the shape {stored[tensor.name].shape}, and {CONFIG_FILE} asks for "
                f"{tensor.shape}."
            )
        wanted.append(tensor)
    known = {tensor.name for tensor in wanted}
    patterns = [re.compile(pattern) for pattern in ignored]
    extra = [name for name in stored if name not in known and not any(each.fullmatch(name) for each in patterns)]
    if missing:
        is_whole = len(missing) <= len(stored) + 3  # else what comes later in the list would count as extra
        instead = f"; they hold {_some(extra)}" if extra and is_whole else ""
        raise ValueError(f"{path}: the weights lack {_some(missing)}{instead}.")
    if extra:
        raise ValueError(f"{path}: the weights hold {_some(extra)}, which a model of {CONFIG_FILE} does not have.")
    return wanted


def _some(names: list[str]) -> str:
    return ", ".join(itertools.islice(names, 3)) + (" and others" if len(names) > 3 else "")


def assign(model: keras.Model, tensors: list[Tensor], stored: Mapping[str, StoredArray], path: pathlib.Path) -> None:
    """Gives each weight of a new model its numbers, read one tensor after the other.

    Raises:
        ValueError: a tensor holds NaN, infinity or integers, cannot be read, or has other numbers than the one that it
            repeats.
    """
    for copy in tensors:
        if copy.copy_of and not np.array_equal(stored[copy.name].read(), stored[copy.copy_of].read()):
            raise ValueError(
                f"{path}: {copy.name} and {copy.copy_of} differ, and by {CONFIG_FILE} they are the same matrix."
            )
    sources = {tensor.weight: tensor for tensor in tensors}
    for weight in model.weights:
        if weight.path not in sources and weight.path.endswith("/bias"):
            continue  # of an optional tensor; it begins with zeros
        tensor = sources[weight.path]
        array = stored[tensor.name].read()
        if array.dtype.kind in "iub":
            raise ValueError(f"{path}: {tensor.name} holds {array.dtype.name}; quantised weights cannot be read.")
        with np.errstate(over="ignore"):  # float64 may hold numbers that are infinite in float32
            is_finite = np.isfinite(array.astype(weight.dtype, copy=False)).all()
        if not is_finite:
            raise ValueError(f"{path}: {tensor.name} holds NaN or infinity; the checkpoint is broken.")
        array = array if tensor.change is None else tensor.change(array)
        weight.assign(array.astype(weight.dtype, copy=False).reshape(weight.shape))


def collect(model: keras.Model, tensors: Iterable[Tensor]) -> dict[str, np.ndarray]:
    """The inverse of `assign`: the tensors, in float32, from which `assign` would give the model its weights.

    A `Tensor` needs no inverse of `change`, because `change` only moves numbers. Applied to a tensor of the numbers 1,
    2, 3 and so on, it shows from which place each number of our weight comes; 0 means from no place.

    A bias that the model does not have becomes zeros, which give the same results.

    Raises:
        ValueError: the model has weights that belong to no tensor, such as those of LoRA.
    """
    weights = {weight.path: weight for weight in model.weights}
    taken: set[str] = set()
    found: dict[str, np.ndarray] = {}
    for tensor in tensors:
        array = found.setdefault(tensor.name, np.zeros(tensor.shape, np.float32))
        if tensor.weight not in weights and str(tensor.weight).endswith("/bias"):
            continue
        taken.add(str(tensor.weight))
        numbers = np.asarray(weights[str(tensor.weight)], np.float32).ravel()
        if tensor.change is None:
            array[...] = numbers.reshape(tensor.shape)
            continue
        counted = np.arange(1, array.size + 1, dtype=np.min_scalar_type(array.size))
        places = tensor.change(counted.reshape(tensor.shape)).ravel()
        known = places > 0
        array.reshape(-1)[places[known] - 1] = numbers[known]
    left = [path for path in weights if path not in taken]
    if left:
        raise ValueError(f"The model has the weights {_some(left)}, which no tensor of the checkpoint takes.")
    return found


def write_tensors(path: pathlib.Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes the weights of a checkpoint, in one file."""
    import safetensors.numpy

    # Without the format, `transformers` before version 5 does not read the file.
    file = path / _SAFETENSORS
    file.touch()
    mode = stat.S_IMODE(file.stat().st_mode)
    safetensors.numpy.save_file(dict(tensors), file, metadata={"format": "pt"})
    file.chmod(mode)  # the library gives access to the owner only; a new file has what the user's umask allows
