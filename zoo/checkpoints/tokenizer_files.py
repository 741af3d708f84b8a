"""What the files beside `tokenizer.json` say of a checkpoint's tokenizer, and what takes its place where it is missing.

`tokenizer_config.json` names the tokenizer's class and describes its special and added tokens; in older checkpoints
`special_tokens_map.json` and `added_tokens.json` do too. The class decides whether it or `tokenizer.json` has the last
word.

Older checkpoints have no `tokenizer.json`. They have `vocab.json` with `merges.txt`, or `vocab.txt`, and leave the
rules to the class: `from_two_files` and `from_word_list` write down what `tokenizer.json` would say.
"""

from __future__ import annotations

import pathlib
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from zoo.checkpoints import ADDED_TOKENS_FILE, CONFIG_FILE, TOKENIZER_CONFIG_FILE
from zoo.checkpoints.config import read_json, read_settings
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
    return _content(path / TOKENIZER_CONFIG_FILE)


def _content(file: pathlib.Path) -> dict[str, Any]:
    return as_object(read_json(file), str(file)) if file.is_file() else {}


def overriding_config(path: pathlib.Path) -> dict[str, Any]:
    """The content of `tokenizer_config.json`, if its options go before those of `tokenizer.json`.

    They do in `transformers` if the tokenizer's class belongs to a family. The general classes leave `tokenizer.json`
    as it is. A model of Mistral has a general class whatever is named, one of Llama if none is named, and a
    `tokenizer.json` with pairs of bytes if Llama's is named.
    """
    name, kind = class_name(path), read_settings(path / CONFIG_FILE).get("model_type")
    general = name in _GENERAL or kind == "mistral" or (kind == "llama" and not name)
    if name == "LlamaTokenizer" and (path / TOKENIZER_FILE).is_file():
        general = general or b'"ByteLevel"' in (path / TOKENIZER_FILE).read_bytes()
    return {} if general else tokenizer_config(path)


def is_of_a_family(path: pathlib.Path) -> bool:
    """Whether `transformers` makes the tokenizer by the class of a family, named there or by the kind of the model."""
    name = class_name(path) or read_settings(path / CONFIG_FILE).get("model_type")
    return bool(name) and name not in _GENERAL


def _said(path: pathlib.Path) -> dict[str, Any]:
    """What the files beside the tokenizer say of it.

    As in `transformers`, `special_tokens_map.json` has the last word, but is not read if `tokenizer_config.json` has
    `added_tokens_decoder`.
    """
    config = tokenizer_config(path)
    return config if "added_tokens_decoder" in config else config | _content(path / _SPECIAL_FILE)


def special_names(
    path: pathlib.Path,
    purposes: Iterable[str] = ("bos_token", "eos_token", "pad_token", "unk_token", "mask_token"),
) -> dict[str, str]:
    """The special tokens that the files beside the tokenizer name, by their purposes."""
    said = _said(path)
    found = {purpose: _text(said.get(purpose)) for purpose in purposes}
    return {purpose: text for purpose, text in found.items() if text is not None}


def _text(token: Any) -> str | None:
    """The text of a token, which stands alone or with its flags; None if it is something else."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


class AddedTokens(NamedTuple):
    """The added tokens of the files beside `tokenizer.json`.

    The file's own added tokens override `named` and `listed`.

    Attributes:
        named: the special tokens that are named, without ids. One counts only if another file has its id.
        listed: those of `added_tokens.json` by their numbers, in ascending order.
        overrides: those that override the file's own.
    """

    named: list[dict[str, Any]]
    listed: dict[int, dict[str, Any]]
    overrides: list[dict[str, Any]]


def added_tokens(path: pathlib.Path) -> AddedTokens:
    """The added tokens of the files beside `tokenizer.json`.

    As in `transformers`, `added_tokens_decoder` of `tokenizer_config.json` has the last word. Only without it,
    `added_tokens.json` is read, where the last token of a number counts. Special tokens are added tokens even if they
    are only named.
    """
    config, file = tokenizer_config(path), path / TOKENIZER_CONFIG_FILE
    named = _special_tokens(path)
    listed = {}
    if "added_tokens_decoder" not in config:
        special = {token["content"] for token in named}
        for content, number in _content(path / ADDED_TOKENS_FILE).items():
            if type(number) is not int:
                raise ValueError(f"{path / ADDED_TOKENS_FILE} has an added token with the id {SHORT.repr(number)}")
            listed[number] = {"content": content, "special": content in special}
    overrides = []
    decoder = as_object(config.get("added_tokens_decoder") or {}, f"`added_tokens_decoder` in {file}")
    for number, entry in decoder.items():
        if not number.isdecimal():
            raise ValueError(f"{file} has an added token with the id {number!r}")
        overrides.append({**as_object(entry, f"an added token in {file}"), "id": int(number)})
    return AddedTokens(named, dict(sorted(listed.items())), overrides)


def _special_tokens(path: pathlib.Path) -> list[dict[str, Any]]:
    """The tokens that the files beside the tokenizer name as special, with their flags, such as `lstrip`."""
    said = _said(path)
    tokens = [token for name, token in said.items() if name.endswith("_token")]
    for name in ("additional_special_tokens", "extra_special_tokens"):
        more = said.get(name) or []
        where = f"`{name}` in {path / TOKENIZER_CONFIG_FILE} or {_SPECIAL_FILE}"
        tokens += as_list([*more.values()] if isinstance(more, dict) else more, where)
    return [
        {**(token if isinstance(token, dict) else {}), "content": _text(token), "special": True}
        for token in tokens
        if _text(token) is not None
    ]


def read_merges(path: pathlib.Path) -> list[str]:
    """The lines of `merges.txt`.

    Raises:
        ValueError: the file is not UTF-8.
    """
    try:
        return (path / MERGES_FILE).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path / MERGES_FILE} must be in UTF-8: {error}") from None


def from_two_files(path: pathlib.Path, vocabulary: Any, merges: list[str]) -> dict[str, Any]:
    """What `tokenizer.json` would say of `vocab.json` and `merges.txt`, which leave the rules to the class."""
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
        "model": {"type": "BPE", "vocab": ids, "merges": [line for line in merges if line]},
    }


def from_word_list(path: pathlib.Path, vocabulary: list[str]) -> dict[str, Any]:
    """What `tokenizer.json` would say of a `vocab.txt`."""
    class_name(path, _OF_WORD_PIECES)
    names = special_names(path, BERT_PURPOSES)
    start, end = (names.get(f"{name}_token", default) for name, default in (("cls", "[CLS]"), ("sep", "[SEP]")))
    places = {piece: place for place, piece in enumerate(vocabulary)}
    for place, piece in enumerate(vocabulary):
        if places[piece] != place:
            raise ValueError(f"lines {place + 1} and {places[piece] + 1} have the same piece, {SHORT.repr(piece)}")
    return {
        "normalizer": {"type": "BertNormalizer"},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "cls": [start], "sep": [end]},
        "decoder": {"type": "WordPiece"},
        "model": {"type": "WordPiece", "vocab": places, "unk_token": names.get("unk_token", "[UNK]")},
    }


def check_size(path: pathlib.Path, pieces: int, size: int) -> None:
    """Refuses a tokenizer with more pieces than its model has ids."""
    if pieces > size:
        raise ValueError(f"{path}: the tokenizer has {pieces} pieces, and {CONFIG_FILE} a vocab_size of {size}.")


def flag(mapping: Mapping[str, Any], name: str, default: Any, file: pathlib.Path | None = None) -> Any:
    """A value that must be true or false; the default if it is missing or null. An error names the `file`, if any."""
    value = mapping.get(name)
    if value is not None and not isinstance(value, bool):
        where = f" in {file}" if file else ""
        raise ValueError(f"`{name}`{where} must be true or false. It is {SHORT.repr(value)}")
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
