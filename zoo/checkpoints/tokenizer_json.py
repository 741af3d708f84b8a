"""The tokenizer of a Hugging Face checkpoint, read so that it runs in the graph.

`tokenizer.json` describes a tokenizer as a chain of components: a normalizer, a pre-tokenizer, a model and a decoder.
`read_tokenizer` knows the chains of two families: byte-level pairs (GPT-2, GPT-NeoX, SmolLM, Qwen2, Llama 3), which
become a `BytePairTokenizer`, and pairs of characters (Llama 1 and 2, TinyLlama), which become a
`CharacterPairTokenizer`. The chain of BERT is in `word_piece_json`, and what all chains share in
`tokenizer_components`. A component, an option or a value that is not known there changes the ids in some way, and is
refused by its name.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from typing import Any

from zoo.checkpoints import TOKENIZER_CONFIG_FILE
from zoo.checkpoints.config import read_json
from zoo.checkpoints.tokenizer_components import (
    chain_of,
    check_options,
    model_of,
    unknown_component,
    vocabulary_of,
)
from zoo.checkpoints.tokenizer_files import (
    MERGES_FILE,
    SHORT,
    TOKENIZER_FILE,
    VOCABULARY_FILE,
    WORD_LIST_FILE,
    AddedTokens,
    added_tokens,
    as_list,
    as_object,
    as_string,
    flag,
    from_two_files,
    overriding_config,
    read_merges,
)
from zoo.text import BytePairTokenizer, CharacterPairTokenizer
from zoo.text.words import GPT_2, PATTERNS

_SPACE = "▁"


def read_tokenizer(
    path: str | pathlib.Path, special_tokens: Iterable[str] = (), size: int | None = None, **options: Any
) -> BytePairTokenizer | CharacterPairTokenizer:
    """Reads the tokenizer of a checkpoint.

    The ids are the checkpoint's plus 4. `truncation` and `padding` in the file are left to the caller, and so is what
    the post-processor puts around a text: see `read_special_tokens`.

    Args:
        path: the folder, with `tokenizer.json` or with `vocab.json` and `merges.txt`. As in `transformers`,
            `tokenizer_config.json` has the last word on added tokens and on `add_prefix_space`.
        special_tokens: pieces that are special tokens even if no file says so.
        size: the number of ids that the model has. Special tokens beyond it, such as a padding token that was added
            later, are left out; no text gives them.
        options: further arguments of a `BytePairTokenizer`, which no file says.

    Returns:
        The tokenizer.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file cannot be read, or is of another kind of tokenizer; the message names what is not known.
    """
    path = pathlib.Path(path)
    file = path / TOKENIZER_FILE
    if not file.is_file():
        for name in (VOCABULARY_FILE, MERGES_FILE):
            if not (path / name).is_file():
                raise FileNotFoundError(_without_tokenizer(path, name))
        file = path / VOCABULARY_FILE
    content = read_json(file)
    merges = read_merges(path) if file.name == VOCABULARY_FILE else []
    space = flag(overriding_config(path), "add_prefix_space", None, path / TOKENIZER_CONFIG_FILE)
    settings = added_tokens(path)
    try:
        if file.name == VOCABULARY_FILE:
            content = from_two_files(path, content, merges)
        return _tokenizer(as_object(content, "it"), settings, special_tokens, size, space, options)
    except ValueError as error:
        files = f"{file} and {MERGES_FILE}" if file.name == VOCABULARY_FILE else file
        raise ValueError(f"{files} cannot be read: {error}") from None


def _without_tokenizer(path: pathlib.Path, missing: str) -> str:
    """The message about a folder without `tokenizer.json` and without one of the two files of GPT-2."""
    if (path / "tokenizer.model").is_file():
        return (
            f"{path} is not a whole checkpoint: it has no {TOKENIZER_FILE}. tokenizer.model is not read; load the "
            "tokenizer with `AutoTokenizer` of `transformers` and save it to get a tokenizer.json."
        )
    if (path / WORD_LIST_FILE).is_file():  # such as a GPT-2 of Chinese characters
        return (
            f"{path} has the tokenizer {WORD_LIST_FILE}; this kind of model is read only with byte pairs: "
            f"{TOKENIZER_FILE}, or {VOCABULARY_FILE} and {MERGES_FILE}."
        )
    return f"{path} is not a whole checkpoint: it has no {missing} (and no {TOKENIZER_FILE})."


def _tokenizer(
    content: dict[str, Any],
    settings: AddedTokens,
    special_tokens: Iterable[str],
    size: int | None,
    add_prefix_space: bool | None,
    options: dict[str, Any],
) -> BytePairTokenizer | CharacterPairTokenizer:
    """The tokenizer of the content of `tokenizer.json`; `add_prefix_space` replaces the file's, unless it is None."""
    model = model_of(content, "BPE")
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option):
            raise ValueError(f"its model has the option {option} = {model[option]!r}, which cannot be read")
    vocabulary, added = vocabulary_of(content, model, settings, special_tokens, size)
    arguments: dict[str, Any] = {
        "vocabulary": vocabulary,
        "merges": _merges(model),
        "ignore_merges": flag(model, "ignore_merges", False),
        "unk_token": None if model.get("unk_token") is None else as_string(model["unk_token"], "`unk_token`"),
        "fuse_unk": flag(model, "fuse_unk", False),
        "added_tokens": added,
    }
    byte_fallback = flag(model, "byte_fallback", False)
    cuts = chain_of(content.get("pre_tokenizer"), "pretokenizers")
    changes = chain_of(content.get("normalizer"), "normalizers")
    decoders = chain_of(content.get("decoder"), "decoders")
    if any(component["type"] == "ByteLevel" for component in (*cuts, *decoders)):
        if byte_fallback:
            raise ValueError("its model has the option byte_fallback = True beside ByteLevel, which cannot be read")
        arguments |= {
            **_byte_level_cuts(cuts, add_prefix_space),
            **_byte_level_changes(changes),
            "allow_missing_bytes": True,
        }
        if [component["type"] for component in decoders] != ["ByteLevel"]:
            raise unknown_component("the decoder", *decoders)
        return BytePairTokenizer(**arguments, **options)
    arguments |= {**_metaspace(changes, cuts), "byte_fallback": byte_fallback}
    prepends = arguments.get("prepend", True) and arguments.get("prepend_scheme") != "never"
    if add_prefix_space not in (None, prepends):
        adds = "adds a space" if prepends else "adds none"
        raise ValueError(
            f"{TOKENIZER_CONFIG_FILE} has add_prefix_space = {add_prefix_space}, but {TOKENIZER_FILE} {adds}."
        )
    return CharacterPairTokenizer(**arguments, strip_space=_strips_space(decoders, byte_fallback))


def _merges(model: dict[str, Any]) -> list[str]:
    """The merges, each as two pieces with a space between."""
    merges = []
    for merge in as_list(model.get("merges"), "`merges`"):
        if isinstance(merge, list):
            if len(merge) != 2 or any(" " in as_string(piece, "a piece of a merge") for piece in merge):
                raise ValueError(f"a merge must be two pieces without a space. It is {SHORT.repr(merge)}")
            merge = " ".join(merge)
        if not as_string(merge, "a merge").startswith("#version"):
            merges.append(merge)
    return merges


def _byte_level_cuts(cuts: list[dict[str, Any]], space: bool | None) -> dict[str, Any]:
    """The arguments for pre-tokenizers that end in ByteLevel: it, with Digits or Split before it."""
    patterns: list[str] = []
    digits = None
    for component in cuts[:-1]:
        kind = component["type"]
        if kind == "Digits" and digits is None and not patterns:
            check_options(component, {"individual_digits"})
            digits = flag(component, "individual_digits", False)
        elif kind == "Split":
            check_options(component, {"pattern", "behavior", "invert"})
            if (component.get("behavior"), component.get("invert")) != ("Isolated", False):
                raise unknown_component("the pre-tokenizer", component)
            pattern = as_object(component.get("pattern"), "a `pattern`")
            patterns.append(as_string(pattern.get("Regex"), "the `Regex` of a `pattern`"))
            if patterns[-1] not in PATTERNS:
                raise ValueError(
                    f"its pre-tokenizer cuts texts by the expression {SHORT.repr(patterns[-1])}; only those of GPT-2, "
                    "Qwen and Llama 3, and of runs of digits, can be read"
                )
        else:
            raise unknown_component("the pre-tokenizer", component)
    last = cuts[-1] if cuts else {"type": None}
    if last["type"] != "ByteLevel":
        raise unknown_component("the pre-tokenizer", *cuts)
    check_options(last, {"add_prefix_space", "trim_offsets", "use_regex"})
    add_prefix_space = flag(last, "add_prefix_space", True) if space is None else space
    if add_prefix_space and len(cuts) > 1:
        raise ValueError("its ByteLevel has the option add_prefix_space = True behind another pre-tokenizer")
    if flag(last, "use_regex", True):
        patterns.append(GPT_2)
    return {"patterns": patterns, "individual_digits": digits, "add_prefix_space": add_prefix_space}


def _byte_level_changes(changes: list[dict[str, Any]]) -> dict[str, Any]:
    """The arguments for the normalizers NFC and Lowercase, in this order."""
    kinds = [component["type"] for component in changes]
    if kinds not in ([], ["NFC"], ["Lowercase"], ["NFC", "Lowercase"]):
        raise unknown_component("the normalizer", *changes)
    for component in changes:
        check_options(component, set())
    return {"nfc": "NFC" in kinds, "lowercase": "Lowercase" in kinds}


def _metaspace(changes: list[dict[str, Any]], cuts: list[dict[str, Any]]) -> dict[str, Any]:
    """The arguments for the normalizers Prepend and Replace, or for the pre-tokenizer Metaspace."""
    if changes and not cuts:
        prepend = changes[0] == {"type": "Prepend", "prepend": _SPACE}
        if changes[prepend:] == [{"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}]:
            return {"prepend": prepend}
    if not changes and [component["type"] for component in cuts] == ["Metaspace"]:
        (component,) = cuts
        check_options(component, {"replacement", "prepend_scheme", "split", "add_prefix_space"})
        scheme = component.get("prepend_scheme", "always")
        if component.get("replacement") == _SPACE and component.get("add_prefix_space") in (None, scheme != "never"):
            return {"prepend_scheme": scheme, "split": flag(component, "split", True)}
    if cuts or not changes:
        raise unknown_component("the pre-tokenizer", *cuts)
    raise unknown_component("the normalizer", *changes)


def _strips_space(decoders: list[dict[str, Any]], byte_fallback: bool) -> bool:
    """Whether the decoder takes a space off the beginning of a text."""
    wanted: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}]
    wanted += [{"type": "ByteFallback"}] * byte_fallback
    wanted.append({"type": "Fuse"})
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    if decoders not in (wanted, [*wanted, strip]):
        raise unknown_component("the decoder", *decoders)
    return decoders[-1] == strip
