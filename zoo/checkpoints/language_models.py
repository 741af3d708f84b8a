"""Language models of Hugging Face as a `TextGenerator`: what their families share."""

from __future__ import annotations

import itertools
import pathlib
import reprlib
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from zoo.checkpoints import CONFIG_FILE, GENERATION_FILE, MODULES_FILE, gpt2, gpt_neo, gpt_neox, llama
from zoo.checkpoints.config import Config, generation_settings, warn_of_generation
from zoo.checkpoints.special_tokens import SpecialTokens, read_special_tokens
from zoo.checkpoints.tensors import Tensor, assign, check_tensors, picked, repeated, stored_tensors
from zoo.checkpoints.tokenizer_files import check_size
from zoo.checkpoints.tokenizer_json import read_tokenizer
from zoo.models import GPT
from zoo.tasks.text_generator import TextGenerator
from zoo.text import END, PADDING, START, UNKNOWN
from zoo.text.tokenizer import FIRST

FAMILIES: dict[str, ModuleType] = {
    "gpt2": gpt2,
    "gpt_neo": gpt_neo,
    "gpt_neox": gpt_neox,
    "llama": llama,
    "mistral": llama,
    "qwen2": llama,
    "qwen3": llama,
}
DEFAULT_END = "<|endoftext|>"  # if the checkpoint's files name no end of text, as in a GPT-2 with vocab.json


def load_language_model(path: pathlib.Path, config: Config) -> TextGenerator:
    """Reads a decoder-only language model of one of `FAMILIES`.

    The zoo's ids are the checkpoint's ids plus 4. The checkpoint's end of text becomes the zoo's end token. If the
    checkpoint's tokenizer puts a token before a text, a prompt begins with it; an empty prompt always begins with the
    start or the end of text. Special tokens in a text are read as plain characters, see `BytePairTokenizer.tokenize`.
    The model never writes ids beyond the vocabulary, whose embeddings are padding, nor the ids in `suppress_tokens` of
    `generation_config.json`, or of `config.json` if there is no such file.

    Args:
        path: the checkpoint's folder.
        config: its configuration.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file cannot be read, does not fit the others, or asks for something that `GPT` cannot do.
    """
    family = FAMILIES[config.get("model_type")]
    if (path / MODULES_FILE).is_file():
        raise ValueError(f"{path} has a {MODULES_FILE}, so it is an embedder; of language models these cannot be read.")
    config.only(is_causal=True)
    _check_task(config)
    arguments, size = family.arguments(config), config.whole("vocab_size")
    special = read_special_tokens(path)
    tokenizer = read_tokenizer(path, {DEFAULT_END}, size)
    check_size(path, tokenizer.size - FIRST, size)
    setting = generation_settings(path, config)
    warn_of_generation(path, setting, read={"do_sample", "suppress_tokens"}, requested="repetition_penalty")
    end = _end(path, config, setting, tokenizer, special, size)
    start, add_start = _start(path, tokenizer, special, end)

    def rows(embeddings: np.ndarray) -> np.ndarray:
        """From the checkpoint's rows `(V, D)` to the zoo's rows `(4 + V, D)`."""
        ids = np.arange(-FIRST, size)  # (4 + V,): the checkpoint's id of each of the zoo's
        ids[[PADDING, UNKNOWN, START, END]] = -1, -1, start, end
        return picked(embeddings, ids)

    stored = stored_tensors(path, lambda name: family.RENAMED.get(name, name).removeprefix(family.PREFIX))
    copies: list[Tensor] = []
    if arguments.get("tied_embeddings", True):
        table = next(each for each in family.tensors(arguments, size, rows) if each.weight == "embedding/embeddings")
        copies = repeated(stored, table, ("embed_out.weight", "lm_head.weight"))
    wanted = itertools.chain(family.tensors(arguments, size, rows), copies)
    tensors = check_tensors(path, stored, wanted, family.IGNORED)
    # The checkpoint's end of text, `FIRST + end`, is never written: the zoo's END is written in its place. It stands
    # directly behind the special ids here, where `end_piece` reads it. The ids behind the vocabulary are padding.
    unused = dict.fromkeys([*range(END), FIRST + end, *_suppressed(path, setting, size)])
    unused |= dict.fromkeys(range(tokenizer.size, FIRST + size))
    try:
        model = GPT(FIRST + size, **arguments, unused_ids=list(unused), name=config.get("model_type"))
    except ValueError as error:
        raise ValueError(f"{config.file} asks for a model that cannot be built: {error}") from None
    assign(model, tensors, stored, path)
    return TextGenerator(model, tokenizer, add_start=add_start)


def _check_task(config: Config) -> None:
    """Refuses a model with the head of another task, such as GPT2ForSequenceClassification."""
    names = config.get("architectures") or []
    if isinstance(names, list) and any("For" in str(name) and not str(name).endswith("ForCausalLM") for name in names):
        raise config.wrong("architectures", "only language models, such as those that end in ForCausalLM, can be read")


def end_piece(generator: TextGenerator) -> str | None:
    """The piece that the zoo's end stands for in an imported model; None in a model that was not imported."""
    unused = tuple(generator.model.unused_ids)
    # The 0 is for a list without a further id.
    if unused[:END] != (PADDING, UNKNOWN, START) or not FIRST <= (*unused, 0)[END] < generator.tokenizer.size:
        return None
    return generator.tokenizer.get_config()["vocabulary"][unused[END] - FIRST]


def _suppressed(path: pathlib.Path, setting: Callable[..., Any], size: int) -> list[int]:
    """The zoo's ids of what the checkpoint never writes. A number that is no id, such as -1, forbids nothing."""
    ids = setting("suppress_tokens") or []
    if not isinstance(ids, list) or not all(type(id_) is int for id_ in ids):
        file = path / (GENERATION_FILE if (path / GENERATION_FILE).is_file() else CONFIG_FILE)
        raise ValueError(f"{file}: suppress_tokens is {reprlib.repr(ids)}, and must be ids.")
    return [FIRST + id_ for id_ in ids if 0 <= id_ < size]


def _end(
    path: pathlib.Path, config: Config, setting: Callable[..., Any], tokenizer: Any, special: SpecialTokens, size: int
) -> int:
    """The checkpoint's id of the end of text: by generation_config.json, else config.json, else the tokenizer.

    An end beyond the model's `size` ids cannot be meant. One that the model has and its tokenizer lacks is refused: the
    model ends its texts by it.
    """
    found = setting("eos_token_id")
    end = config.get("eos_token_id") if found is None else found
    config.token("eos_token_id")  # checks its type
    if isinstance(end, list):
        ids, vocabulary = end, tokenizer.get_config()["vocabulary"]
        # A chat model ends a turn with the token that its tokenizer names, which need not be the first of the list.
        named = [id_ for id_, piece in enumerate(vocabulary) if piece == special.names.get("eos_token") and id_ in ids]
        end = next(iter([*named, *ids]), None)
        if len(ids) > 1:
            warnings.warn(
                f"{path}: each of the tokens {ids} ends a text. Here only {end} does; the others are written like any "
                "token.",
                stacklevel=4,
            )
    piece = special.names.get("eos_token", DEFAULT_END)
    if type(end) is int and end >= size and piece in tokenizer.get_config()["vocabulary"]:
        # Who trains a small GPT-2 may forget to change the default, 50256.
        warnings.warn(
            f"{path}: eos_token_id is {end}, which is no id of its model. Here {piece}, its end of text, ends a text.",
            stacklevel=4,
        )
        end = None
    if end is None:
        end = _id_of(path, tokenizer, piece)
    if type(end) is not int or not 0 <= end < tokenizer.size - FIRST:
        raise ValueError(f"{path}: eos_token_id is {end!r}, which is no id of its tokenizer.")
    return end


def _id_of(path: pathlib.Path, tokenizer: Any, piece: str) -> int:
    """The checkpoint's id of a piece that its tokenizer must have."""
    if piece not in tokenizer.get_config()["vocabulary"]:
        raise ValueError(f"{path}: the tokenizer has no piece {piece!r}.")
    return tokenizer.id_of(piece) - FIRST


def _start(path: pathlib.Path, tokenizer: Any, special: SpecialTokens, end: int) -> tuple[int, bool]:
    """The checkpoint's id of the start token, and whether every text begins with it."""
    if len(special.before) > 1 or special.after:
        around = (*special.before, "TEXT", *special.after)
        raise ValueError(
            f"{path}: its tokenizer puts tokens around a text: {' '.join(around)}. Only one token in front of the text "
            "is supported."
        )
    if special.before:
        return _id_of(path, tokenizer, special.before[0]), True
    name = special.names.get("bos_token")
    try:
        return (end if name is None else tokenizer.id_of(name) - FIRST), False
    except ValueError:
        return end, False
