"""What the importers share: the files of a Hugging Face checkpoint, checked before a model is built.

An importer says what a checkpoint must hold, as a list of `Tensor`: a name, a shape, and the weight of our model that
it is read into. `check_tensors` compares the list with the files and reads only their headers. Then `assign` reads one
tensor after the other. So a wrong or malicious configuration is found before anything large is built, and an import
needs little more memory than the model.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import re
import reprlib
import stat
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import keras
import ml_dtypes  # noqa: F401, with it safetensors knows bfloat16
import numpy as np

from zoo.checkpoints import CONFIG_FILE, GENERATION_FILE, other_format
from zoo.checkpoints.pytorch_file import StoredArray, read_pytorch
from zoo.git_lfs import check_no_pointer

# In the order in which they are looked for.
_SAFETENSORS, _PYTORCH = "model.safetensors", "pytorch_model.bin"
_WEIGHTS_FILES = (_SAFETENSORS, f"{_SAFETENSORS}.index.json", _PYTORCH, f"{_PYTORCH}.index.json")
# Gemma's tokenizer.json, with 35 MB, is among the largest published ones.
_LARGEST_JSON = 2**27
# The names of Hugging Face for activations, and ours.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "gelu_python": "gelu",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
}


# Other names of keys, by the kind of the model. `transformers` sets them last: if both are there, they win.
_ALIASES = {
    "gpt2": {
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
    "gpt_neo": {"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"},
    "distilbert": {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
    "marian": {
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    },
}


def activation_name(family: str, model: Any) -> str:
    """The name of Hugging Face for a model's activation.

    Raises:
        ValueError: Hugging Face has no name for it.
    """
    names: dict[str, str] = {}
    for theirs, ours in ACTIVATIONS.items():
        names.setdefault(ours, theirs)
    if model.activation not in names:
        raise ValueError(f"activation={model.activation!r}; a {family} checkpoint has {', '.join(names)}.")
    return names[model.activation]


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


def transposed(array: np.ndarray) -> np.ndarray:
    """The kernel `(in, out)` of a PyTorch weight `(out, in)`."""
    return array.T


def picked(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Some rows of `(N, ...)`, by their indices `(M,)`; zeros where the index is -1. `(M, ...)`."""
    chosen = array[np.maximum(rows, 0)]  # (M, ...)
    chosen[rows < 0] = 0
    return chosen


def norm(theirs: str, ours: str, width: int) -> Iterator[Tensor]:
    """Scale and shift of a layer normalisation."""
    yield Tensor(f"{theirs}.weight", (width,), f"{ours}/gamma")
    yield Tensor(f"{theirs}.bias", (width,), f"{ours}/beta")


def dense(theirs: str, ours: str, shape: tuple[int, int]) -> Iterator[Tensor]:
    """Kernel and bias of a projection, whose weight PyTorch stores as `(out, in)`."""
    yield Tensor(f"{theirs}.weight", shape, f"{ours}/kernel", transposed)
    yield Tensor(f"{theirs}.bias", shape[:1], f"{ours}/bias")


def read_json(file: pathlib.Path) -> Any:
    """The content of a JSON file.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: it cannot be read.
    """
    if not file.is_file():
        raise FileNotFoundError(f"{file.parent} is not a whole checkpoint: it has no {file.name}.")
    size = file.stat().st_size
    if size > _LARGEST_JSON:
        raise ValueError(f"{file} cannot be read: it has {size:,} bytes, and more than {_LARGEST_JSON:,} are refused")
    content = file.read_bytes()
    check_no_pointer(file, content)
    try:
        return json.loads(content.decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} cannot be read: {error}") from None
    except RecursionError:
        raise ValueError(f"{file} cannot be read: its brackets are nested too deeply") from None


def read_settings(file: pathlib.Path) -> dict[str, Any]:
    """The content of a JSON file of settings; empty if there is none, or if it holds something else.

    Raises:
        ValueError: it is no JSON.
    """
    content = read_json(file) if file.is_file() else {}
    return content if isinstance(content, dict) else {}


# Settings of `generation_config.json` that change texts, and their values if they are off.
_GENERATION = {
    "do_sample": False,
    "num_beams": 1,
    "num_beam_groups": 1,
    "penalty_alpha": None,
    "guidance_scale": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "stop_strings": None,
    "min_length": 0,
    "min_new_tokens": 0,
    "bad_words_ids": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "forced_decoder_ids": None,
    "sequence_bias": None,
    "exponential_decay_length_penalty": None,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
}


def generation_settings(path: pathlib.Path, config: Config) -> Callable[..., Any]:
    """A function from a key and its default to the value in `generation_config.json`.

    Without that file, the values are those of `config.json`, as in `transformers`.

    Raises:
        ValueError: the file cannot be read.
    """
    file = path / GENERATION_FILE
    if not file.is_file():
        return config.get
    content = read_json(file)
    if not isinstance(content, dict):
        raise ValueError(f"{file} must hold an object. It holds a {type(content).__name__}.")

    def setting(name: str, default: Any = None) -> Any:
        value = content.get(name)
        return default if value is None else value

    return setting


def warn_of_generation(
    path: pathlib.Path, setting: Callable[[str, Any], Any], read: Container[str], requested: str | None = None
) -> None:
    """Warns of settings of a generation that are left out.

    Args:
        path: the checkpoint's folder, for the message.
        setting: a function from a key and its default to its value.
        read: the keys that the importer reads, or that need no warning.
        requested: a key that is a setting of each request.
    """
    found = {name: setting(name, usual) for name, usual in _GENERATION.items() if name not in read}
    left_out = {name: value for name, value in found.items() if value not in (_GENERATION[name], None, [])}
    if left_out:
        told = f"{path}: these settings of the generation are left out: {left_out!r}"
        if requested in left_out:
            value, option = left_out[requested], requested.replace("_", "-")
            told += (
                f"; give {requested}={value} with each request "
                f"(`zoo generate --{option} {value}`, `zoo serve-client --set {requested}={value}`)"
            )
        warnings.warn(f"{told}.", stacklevel=5)


def write_json(file: pathlib.Path, content: Any) -> None:
    """Writes a JSON file."""
    file.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


class Config:
    """A checkpoint's `config.json`, whose errors name the file and the key.

    Args:
        path: the checkpoint's folder.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it cannot be read.
    """

    def __init__(self, path: pathlib.Path):
        self.file = path / CONFIG_FILE
        self._content = read_json(self.file)
        if not isinstance(self._content, dict):
            raise ValueError(f"{self.file} must hold an object. It holds a {type(self._content).__name__}.")
        for alias, name in _ALIASES.get(str(self._content.get("model_type")), {}).items():
            if self._content.get(alias) is not None:
                self._content[name] = self._content[alias]

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a key; the default where it is missing or null."""
        value = self._content.get(name)
        return default if value is None else value

    def __contains__(self, name: str) -> bool:
        """Whether there is such a key, be it null."""
        return name in self._content

    def whole(self, name: str, default: int | None = None) -> int:
        """The value of a key, a whole number above 0.

        Raises:
            ValueError: it is missing and has no default, or is something else.
        """
        value = self.get(name)
        if value is None and default is not None:
            return default
        if value is None:
            raise ValueError(f"{self.file} lacks {name}.")
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
            raise self.wrong(name, "a whole number above 0")
        return value

    def layers(self, name: str) -> int:
        """The value of a key that counts layers, of which lists are made: at most 10,000.

        Raises:
            ValueError: it is missing or something else.
        """
        if self.whole(name) > 10_000:
            raise self.wrong(name, "at most 10,000")
        return self.whole(name)

    def flag(self, name: str, default: bool) -> bool:
        """The value of a key, true or false.

        Raises:
            ValueError: it is something else.
        """
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def number(self, name: str, default: float) -> float:
        """The value of a key, a number above 0.

        Raises:
            ValueError: it is something else.
        """
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self.wrong(name, "a number above 0")
        return float(value)

    def token(self, name: str) -> int | None:
        """The value of a key that holds an id, or the first id of a list; None if there is none.

        Raises:
            ValueError: it is something else.
        """
        value = self.get(name)
        first = value[0] if isinstance(value, list) and value else value
        if first is not None and (isinstance(first, bool) or not isinstance(first, int) or first < 0):
            raise self.wrong(name, "an id")
        return first

    def only(self, **values: Any) -> None:
        """Checks keys that change the computation, and for which only one value is supported.

        Raises:
            ValueError: one has another value.
        """
        for name, value in values.items():
            if self.get(name, value) != value:
                raise self.wrong(name, f"only {value!r} can be read")

    def one_of(self, name: str, known: Mapping[str, str], default: str | None = None) -> str:
        """What the value of a key stands for.

        Raises:
            ValueError: the value is not known.
        """
        value = self.get(name, default)
        if not isinstance(value, str) or value not in known:
            raise self.wrong(name, f"only {', '.join(known)} can be read")
        return known[value]

    def wrong(self, name: str, wanted: str) -> ValueError:
        """The error of a key with a value that cannot be read."""
        found = reprlib.repr(self._content.get(name))
        relation = "; " if wanted.startswith("only") else ", and must be "
        return ValueError(f"{self.file}: {name} is {found}{relation}{wanted}.")


def write_tensors(path: pathlib.Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes the weights of a checkpoint, in one file."""
    import safetensors.numpy

    # Without the format, `transformers` before version 5 does not read the file.
    file = path / _SAFETENSORS
    file.touch()
    mode = stat.S_IMODE(file.stat().st_mode)
    safetensors.numpy.save_file(dict(tensors), file, metadata={"format": "pt"})
    file.chmod(mode)  # the library gives access to the owner only; a new file has what the user's umask allows


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


def stored_tensors(path: pathlib.Path, prefix: str = "") -> dict[str, StoredArray]:
    """The tensors of a checkpoint by name, not yet read.

    They are in `model.safetensors` or `pytorch_model.bin`, or in the files that the index beside them lists.

    Args:
        path: the checkpoint's folder.
        prefix: removed from the names that begin with it.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file cannot be read.
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
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}


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


def assign(
    model: keras.Model, tensors: Iterable[Tensor], stored: Mapping[str, StoredArray], path: pathlib.Path
) -> None:
    """Gives each weight of a new model its numbers, read one tensor after the other.

    Raises:
        ValueError: a tensor holds NaN, infinity or integers, cannot be read, or has other numbers than the one that it
            repeats.
    """
    tensors = list(tensors)
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
        if not np.isfinite(array).all():
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
