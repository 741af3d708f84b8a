"""`tokenizer.json` of a `BytePairTokenizer`: the inverse of what `tokenizer_json` reads."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from zoo.checkpoints import TOKENIZER_CONFIG_FILE
from zoo.checkpoints.config import write_json
from zoo.checkpoints.tokenizer_files import TOKENIZER_FILE
from zoo.text import BytePairTokenizer
from zoo.text.added_tokens import AddedToken
from zoo.text.pair_tokenizer import of_words
from zoo.text.words import GPT_2


def write_tokenizer(
    path: pathlib.Path,
    tokenizer: BytePairTokenizer,
    vocabulary: Sequence[str],
    special_tokens: dict[str, str],
    before: str | None,
    max_length: int,
) -> None:
    """Writes `tokenizer.json` and `tokenizer_config.json`.

    Args:
        path: the folder.
        tokenizer: the tokenizer.
        vocabulary: its pieces, in the order of the checkpoint's ids, and those of special tokens that it lacks.
        special_tokens: pieces by what they are for, such as `eos_token`. The library finds them in texts.
        before: the piece that the library puts before every text; None for none.
        max_length: the most tokens that the model reads at once.

    Raises:
        ValueError: the tokenizer adds a space before a text in a way that the library does not have; it leaves out
            white space around a text; or a piece of words comes behind an added token that no word may become.
    """
    made = tokenizer.get_config()
    ids = {piece: id_ for id_, piece in enumerate(vocabulary)}
    added = {entry["content"]: AddedToken(**entry) for entry in made["added_tokens"]}
    for piece in special_tokens.values():
        added.setdefault(piece, AddedToken(piece, special=True))
    # The library lets words become every piece of the model's own vocabulary. So it ends before the first token that
    # they may not become.
    apart = [piece for piece, token in added.items() if not (token.in_words or token.special)]
    own = min((ids[piece] for piece in apart), default=len(vocabulary))
    if behind := of_words(vocabulary[own:], added):
        raise ValueError(
            f"{behind[0]!a} comes behind {vocabulary[own]!a} in the vocabulary, an added token with in_words=False; "
            "the tokenizers library has such a token behind all pieces of words."
        )
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": ids[piece], **_flags(added[piece]), "single_word": False}
            for piece in sorted(added, key=ids.__getitem__)
        ],
        "normalizer": _sequence("normalizers", _normalizers(made)),
        "pre_tokenizer": _sequence("pretokenizers", _pre_tokenizers(made)),
        "post_processor": None if before is None else _template(before, ids[before]),
        "decoder": _byte_level(),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": made["unk_token"],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": made["fuse_unk"],
            "byte_fallback": False,
            "ignore_merges": made["ignore_merges"],
            "vocab": {piece: ids[piece] for piece in vocabulary[:own]},
            "merges": [merge.split(" ") for merge in made["merges"]],
        },
    }
    write_json(path / TOKENIZER_FILE, content)
    # Of this class, `transformers` takes everything from tokenizer.json; its GPT2Tokenizer has a chain of its own.
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **special_tokens, "model_max_length": max_length}
    write_json(path / TOKENIZER_CONFIG_FILE, settings)


def _flags(token: AddedToken) -> dict[str, Any]:
    return {name: value for name, value in vars(token).items() if name != "in_words"}


def _normalizers(made: dict[str, Any]) -> Iterable[dict[str, Any]]:
    if made["strip"]:
        raise ValueError("The tokenizer has strip=True, which the importer of a language model does not read.")
    if made["nfc"]:
        yield {"type": "NFC"}
    if made["lowercase"]:
        yield {"type": "Lowercase"}


def _pre_tokenizers(made: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """ByteLevel, which may cut texts as GPT-2 does, behind what cuts them before."""
    splits, by_gpt_2 = made["patterns"], made["patterns"][-1:] == [GPT_2]
    if by_gpt_2:
        splits = splits[:-1]
    if made["add_prefix_space"] and (splits or made["individual_digits"] is not None):
        raise ValueError("add_prefix_space=True; the tokenizers library has it only with the pattern of GPT-2 alone.")
    if made["individual_digits"] is not None:
        yield {"type": "Digits", "individual_digits": made["individual_digits"]}
    for pattern in splits:
        yield {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    yield _byte_level(add_prefix_space=made["add_prefix_space"], use_regex=by_gpt_2)


def _byte_level(add_prefix_space: bool = False, use_regex: bool = True) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True, "use_regex": use_regex}


def _sequence(name: str, components: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """No component, one, or a sequence of several."""
    components = list(components)
    if len(components) < 2:
        return components[0] if components else None
    return {"type": "Sequence", name: components}


def _template(piece: str, id_: int) -> dict[str, Any]:
    """The post-processor that puts a token before a text."""
    single: list[dict[str, Any]] = [
        {"SpecialToken": {"id": piece, "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {piece: {"id": piece, "ids": [id_], "tokens": [piece]}},
    }
