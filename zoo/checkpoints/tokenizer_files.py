"""What the files beside `tokenizer.json` say of a checkpoint's tokenizer, and what takes its place where it is missing.

`tokenizer_config.json` names the tokenizer's class and describes its special and added tokens; in older checkpoints
`special_tokens_map.json` and `added_tokens.json` do too. The class decides which of two files has the last word.

Older checkpoints have no `tokenizer.json`. They have `vocab.json` with `merges.txt`, or `vocab.txt`, and leave the
rules to the class: `from_two_files` and `from_word_list` write down what `tokenizer.json` would say.
"""

from __future__ import annotations

import pathlib
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from zoo.checkpoints import ADDED_TOKENS_FILE, CONFIG_FILE, TOKENIZER_CONFIG_FILE
from zoo.checkpoints.hugging_face import read_json, read_settings
from zoo.text.words import QWEN_2

TOKENIZER_FILE = "tokenizer.json"
VOCABULARY_FILE, MERGES_FILE, WORD_LIST_FILE = "vocab.json", "merges.txt", "vocab.txt"
_SPECIAL_FILE = "special_tokens_map.json"
# Classes of `transformers` whose tokenizers can be read from `vocab.json` and `merges.txt` alone.
_QWEN = "Qwen2Tokenizer"
_OF_TWO_FILES = ("GPT2Tokenizer", "RobertaTokenizer", _QWEN)
# The same from `vocab.txt` alone; others cut words by rules of a language.
_OF_WORD_PIECES = ("BertTokenizer", "DistilBertTokenizer")
_GENERAL = ("PreTrainedTokenizer", "TokenizersBackend")
BERT_PURPOSES = ("cls_token", "sep_token", "mask_token", "pad_token", "unk_token")
# For messages: whatever stands in a file, they stay short.
SHORT = reprlib.Repr()
SHORT.maxdict = SHORT.maxstring = SHORT.maxother = 80


def class_name(path: pathlib.Path, known: tuple[str, ...] = ()) -> str:
    """The name of the tokenizer's class without `Fast`, by `tokenizer_config.json`, else by `config.json`; or empty.

    Raises:
        ValueError: it is named, and is none of the known ones.
    """
    file = path / CONFIG_FILE
    names = (content.get("tokenizer_class") for content in (tokenizer_config(path), read_settings(file)))
    name = str(next(filter(None, names), "")).removesuffix("Fast")
    if name and known and name not in known:
        raise ValueError(f"the tokenizer is a {name}; without {TOKENIZER_FILE}, only {', '.join(known)} can be read")
    return name


def tokenizer_config(path: pathlib.Path) -> dict[str, Any]:
    """The content of `tokenizer_config.json`; empty if there is none."""
    file = path / TOKENIZER_CONFIG_FILE
    return as_object(read_json(file), file.name) if file.is_file() else {}


def overriding_config(path: pathlib.Path) -> dict[str, Any]:
    """The content of `tokenizer_config.json`, if its options go before those of `tokenizer.json`.

    They do in `transformers` if the tokenizer's class belongs to a family. The general classes leave `tokenizer.json`
    as it is.
    """
    return {} if class_name(path) in _GENERAL else tokenizer_config(path)


def special_names(
    path: pathlib.Path,
    purposes: Iterable[str] = ("bos_token", "eos_token", "pad_token", "unk_token", "mask_token"),
) -> dict[str, str]:
    """The special tokens that the files beside the tokenizer name, by their purposes."""
    names = {}
    for file in (path / _SPECIAL_FILE, path / TOKENIZER_CONFIG_FILE):
        content = as_object(read_json(file), file.name) if file.is_file() else {}
        for purpose in purposes:
            value = content.get(purpose)
            value = value.get("content") if isinstance(value, dict) else value
            if isinstance(value, str):
                names[purpose] = value
    return names


def _described(path: pathlib.Path, ids: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The special tokens of a vocabulary that the files beside it describe with their flags, such as `lstrip`."""
    for file in (_SPECIAL_FILE, TOKENIZER_CONFIG_FILE):
        for value in read_settings(path / file).values():
            if isinstance(value, dict) and isinstance(value.get("content"), str) and value["content"] in ids:
                yield {key: each for key, each in value.items() if key != "__type"}


def added_tokens(path: pathlib.Path) -> list[dict[str, Any]]:
    """The added tokens of the files beside the tokenizer, with their ids."""
    entries = []
    decoder = as_object(tokenizer_config(path).get("added_tokens_decoder") or {}, "`added_tokens_decoder`")
    for number, entry in decoder.items():
        if not number.isdecimal():
            raise ValueError(f"{TOKENIZER_CONFIG_FILE} has an added token with the id {number!r}")
        entries.append({**as_object(entry, "an added token"), "id": int(number)})
    if (path / ADDED_TOKENS_FILE).is_file() and not (path / TOKENIZER_FILE).is_file():
        described, special = {entry.get("content") for entry in entries}, special_names(path).values()
        for content, number in as_object(read_json(path / ADDED_TOKENS_FILE), ADDED_TOKENS_FILE).items():
            if content in special:
                entries.append({"content": content, "id": number, "special": True})
            elif content not in described:
                raise ValueError(
                    f"{ADDED_TOKENS_FILE} adds {content!r}, and {TOKENIZER_CONFIG_FILE} does not describe it"
                )
    return entries


def from_two_files(path: pathlib.Path, vocabulary: Any) -> dict[str, Any]:
    """What `tokenizer.json` would say of `vocab.json` and `merges.txt`, which leave the rules to the class."""
    lines = (path / MERGES_FILE).read_text(encoding="utf-8").splitlines()
    ids = as_object(vocabulary, "it")
    kind = class_name(path, _OF_TWO_FILES)
    if not kind and str(read_settings(path / CONFIG_FILE).get("model_type")).startswith("qwen"):
        kind = _QWEN
    cuts: list[dict[str, Any]] = [{"type": "ByteLevel", "add_prefix_space": False, "use_regex": kind != _QWEN}]
    if kind == _QWEN:
        split = {"type": "Split", "pattern": {"Regex": QWEN_2}, "behavior": "Isolated", "invert": False}
        cuts.insert(0, split)
    return {
        "normalizer": {"type": "NFC"} if kind == _QWEN else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": cuts},
        "decoder": {"type": "ByteLevel"},
        "added_tokens": [{**token, "id": ids[token["content"]], "special": True} for token in _described(path, ids)],
        "model": {"type": "BPE", "vocab": ids, "merges": [line for line in lines if line]},
    }


def from_word_list(path: pathlib.Path, vocabulary: list[str]) -> dict[str, Any]:
    """What `tokenizer.json` would say of a `vocab.txt`."""
    class_name(path, _OF_WORD_PIECES)
    names = special_names(path, BERT_PURPOSES)
    start, end = (names.get(f"{name}_token", default) for name, default in (("cls", "[CLS]"), ("sep", "[SEP]")))
    places = {piece: place for place, piece in enumerate(vocabulary)}
    for place, piece in enumerate(vocabulary):
        if not piece:
            raise ValueError(f"line {place + 1} is empty")
        if places[piece] != place:
            raise ValueError(f"lines {place + 1} and {places[piece] + 1} have the same piece, {SHORT.repr(piece)}")
    return {
        "normalizer": {"type": "BertNormalizer"},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "cls": [start], "sep": [end]},
        "decoder": {"type": "WordPiece"},
        "model": {"type": "WordPiece", "vocab": places, "unk_token": names.get("unk_token", "[UNK]")},
    }


def flag(mapping: Mapping[str, Any], name: str, default: Any) -> Any:
    """A value that must be true or false; the default if it is missing or null."""
    value = mapping.get(name)
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"`{name}` must be true or false. It is {SHORT.repr(value)}")
    return default if value is None else value


def as_object(value: Any, what: str) -> dict[str, Any]:
    """The value, which must be an object; `what` names it in the error."""
    return _checked(value, dict, f"{what} must be an object")


def as_list(value: Any, what: str) -> list[Any]:
    """The value, which must be a list; `what` names it in the error."""
    return _checked(value, list, f"{what} must be a list")


def as_string(value: Any, what: str) -> str:
    """The value, which must be a string; `what` names it in the error."""
    return _checked(value, str, f"{what} must be a string")


def _checked(value: Any, kind: type, message: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{message}. It is {SHORT.repr(value)}")
    return value
