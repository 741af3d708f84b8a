"""The configuration of a Hugging Face checkpoint: its JSON files, whose errors name the file and the key."""

from __future__ import annotations

import json
import pathlib
import reprlib
import warnings
from collections.abc import Callable, Container, Mapping
from typing import Any

from zoo.checkpoints import CONFIG_FILE, GENERATION_FILE
from zoo.git_lfs import check_no_pointer

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
# Settings of `generation_config.json` that change texts, and their values if they are off.
_GENERATION = {
    "do_sample": False,
    "num_beams": 1,
    "num_beam_groups": 1,
    "penalty_alpha": None,
    "guidance_scale": 1.0,
    "dola_layers": None,
    "watermarking_config": None,
    "token_healing": False,
    "max_time": None,
    "min_p": 0.0,
    "top_h": None,
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
    "force_words_ids": None,
    "sequence_bias": None,
    "exponential_decay_length_penalty": None,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
}


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
