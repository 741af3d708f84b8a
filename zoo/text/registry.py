"""Tokenizers as data: which class, with which arguments."""

from __future__ import annotations

from typing import Any

from zoo.text.byte_pair import BytePairTokenizer
from zoo.text.characters import CharacterTokenizer
from zoo.text.tokenizer import Tokenizer

_CLASSES = {cls.__name__: cls for cls in (BytePairTokenizer, CharacterTokenizer)}


def tokenizer_to_config(tokenizer: Tokenizer) -> dict[str, Any]:
    """The tokenizer's class and arguments, fit for JSON."""
    return {"class": type(tokenizer).__name__, **tokenizer.get_config()}


def tokenizer_from_config(config: dict[str, Any]) -> Tokenizer:
    """The tokenizer that `tokenizer_to_config` has described.

    Raises:
        ValueError: its class is not known.
    """
    arguments = dict(config)
    name = arguments.pop("class", None)
    if name not in _CLASSES:
        raise ValueError(f"Unknown tokenizer class {name!r}; known are {', '.join(_CLASSES)}.")
    return _CLASSES[name].from_config(arguments)
