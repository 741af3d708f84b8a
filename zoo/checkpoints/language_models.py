"""Language models of Hugging Face as a `TextGenerator`: what their families share."""

from __future__ import annotations

import pathlib
import warnings
from types import ModuleType
from typing import Any

import numpy as np

from zoo.checkpoints import gpt2, gpt_neo, gpt_neox, llama
from zoo.checkpoints.hugging_face import CONFIG_FILE, Config, assign, check_tensors, read_json, stored_tensors
from zoo.checkpoints.tokenizer_json import SpecialTokens, read_special_tokens, read_tokenizer
from zoo.models import GPT
from zoo.tasks.text_generator import TextGenerator
from zoo.text import END, START

FAMILIES: dict[str, ModuleType] = {
    "gpt2": gpt2,
    "gpt_neo": gpt_neo,
    "gpt_neox": gpt_neox,
    "llama": llama,
    "mistral": llama,
    "qwen2": llama,
    "qwen3": llama,
}
_FIRST = END + 1  # the zoo's ids are the checkpoint's plus this
_DEFAULT_END = "<|endoftext|>"  # of a checkpoint whose files name no end, such as a GPT-2 with vocab.json


def load_language_model(path: pathlib.Path, config: Config) -> TextGenerator:
    """Reads a decoder-only language model of one of `FAMILIES`.

    The zoo's ids are the checkpoint's ids plus 4. The checkpoint's end of text becomes the zoo's end token. If the
    checkpoint's tokenizer puts a token before a text, a prompt begins with it; an empty prompt always begins with the
    start or the end of text. Special tokens in a text are read as plain characters, see `BytePairTokenizer.tokenize`.
    Rows of the embeddings beyond the vocabulary (padding) are never written.

    Args:
        path: the checkpoint's folder.
        config: its configuration.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file cannot be read, does not fit the others, or asks for what no argument of `GPT` can do.
    """
    family = FAMILIES[config.get("model_type")]
    made, size = family.arguments(config), config.whole("vocab_size")
    special = read_special_tokens(path)
    tokenizer = read_tokenizer(path, {_DEFAULT_END}, size)
    if tokenizer.size - _FIRST > size:
        raise ValueError(
            f"{path}: the tokenizer has {tokenizer.size - _FIRST} pieces, and {CONFIG_FILE} a vocab_size of {size}."
        )
    end = _end(path, config, tokenizer, special)
    start, add_start = _start(path, tokenizer, special, end)

    def rows(embeddings: np.ndarray) -> np.ndarray:
        """From the checkpoint's rows `(V, D)` to the zoo's rows `(4 + V, D)`."""
        first = np.zeros((_FIRST, embeddings.shape[1]), embeddings.dtype)
        first[START], first[END] = embeddings[start], embeddings[end]
        return np.concatenate([first, embeddings])

    stored = stored_tensors(path, family.PREFIX)
    stored = {family.RENAMED.get(name, name): tensor for name, tensor in stored.items()}
    ignored = (*family.IGNORED, *([r"lm_head\.weight|embed_out\.weight"] if made.get("tied_embeddings", True) else ()))
    tensors = check_tensors(path, stored, family.tensors(made, size, rows), ignored)
    # The end of text has its own id in the checkpoint, which the zoo's end replaces; padded rows mean nothing.
    unused = [*range(END), _FIRST + end, *range(tokenizer.size, _FIRST + size)]
    try:
        model = GPT(_FIRST + size, **made, unused_ids=unused, name=config.get("model_type"))
    except ValueError as error:
        raise ValueError(f"{config.file} asks for a model that cannot be built: {error}") from None
    assign(model, tensors, stored, path)
    return TextGenerator(model, tokenizer, add_start=add_start)


def _end(path: pathlib.Path, config: Config, tokenizer: Any, special: SpecialTokens) -> int:
    """The checkpoint's id of the end of text: of the generation, else of the model, else of the tokenizer."""
    generation = path / "generation_config.json"
    found = read_json(generation) if generation.is_file() else {}
    found = found.get("eos_token_id") if isinstance(found, dict) else None
    end = config.get("eos_token_id") if found is None else found
    config.token("eos_token_id")  # its type
    if isinstance(end, list):
        if len(end) > 1:
            warnings.warn(
                f"{path}: the tokens {end} all end a text. Here the first one does; the others are written as text.",
                stacklevel=4,
            )
        end = end[0] if end else None
    if end is None:
        piece = special.names.get("eos_token", _DEFAULT_END)
        if piece not in tokenizer.get_config()["vocabulary"]:
            raise ValueError(f"{path}: the tokenizer has no piece {piece!r}.")
        end = tokenizer.id_of(piece) - _FIRST
    if isinstance(end, bool) or not isinstance(end, int) or not 0 <= end < tokenizer.size - _FIRST:
        raise ValueError(f"{path}: eos_token_id is {end!r}, which is no id of its tokenizer.")
    return end


def _start(path: pathlib.Path, tokenizer: Any, special: SpecialTokens, end: int) -> tuple[int, bool]:
    """The checkpoint's id of the start token, and whether every text begins with it."""
    if len(special.before) > 1 or special.after:
        around = (*special.before, "TEXT", *special.after)
        raise ValueError(f"{path}: its tokenizer reads a text as {' '.join(around)}; one start token can be read.")
    if special.before:
        return tokenizer.id_of(special.before[0]) - _FIRST, True
    name = special.names.get("bos_token")
    try:
        return (end if name is None else tokenizer.id_of(name) - _FIRST), False
    except ValueError:
        return end, False
