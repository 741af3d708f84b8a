"""The tokenizer of a checkpoint of BERT, read so that it runs in the graph: see `tokenizer_json`."""

from __future__ import annotations

import pathlib
import warnings
from typing import Any, NamedTuple

import numpy as np

from zoo.checkpoints import TOKENIZER_CONFIG_FILE
from zoo.checkpoints.config import read_json
from zoo.checkpoints.tokenizer_components import (
    OTHER_PAIRS,
    chain_of,
    check_options,
    model_of,
    pair_of,
    tokens_around,
    unknown_component,
    vocabulary_of,
)
from zoo.checkpoints.tokenizer_files import (
    BERT_PURPOSES,
    SHORT,
    TOKENIZER_FILE,
    WORD_LIST_FILE,
    AddedTokens,
    added_tokens,
    as_list,
    as_object,
    as_string,
    flag,
    from_word_list,
    is_of_a_family,
    overriding_config,
    special_names,
)
from zoo.text import WordPieceTokenizer
from zoo.text.word_piece import BERT_PIECES, MASK_PIECE, read_vocabulary, special_pieces_first

# Options of `tokenizer_config.json`, and what the normalizer calls them.
_BERT_OVERRIDES = {"do_lower_case": "lowercase", "tokenize_chinese_chars": "handle_chinese_chars"}
_BERT_PARTS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}


class WordPieces(NamedTuple):
    """The tokenizer of a checkpoint of BERT, and its order of the checkpoint's ids.

    Attributes:
        tokenizer: the tokenizer.
        order: the checkpoint's id of each of its ids, `(V,)`: row `order[i]` of the checkpoint's embedding belongs into
            row i.
    """

    tokenizer: WordPieceTokenizer
    order: np.ndarray


def read_word_pieces(path: str | pathlib.Path, size: int | None = None) -> WordPieces:
    """Reads the tokenizer of a checkpoint of BERT.

    Padding, unknown, start (`[CLS]`) and end (`[SEP]`) become the ids 0 to 3, and the others follow in their order.
    `truncation` and `padding` in the file are left to the caller.

    Args:
        path: the folder, with `tokenizer.json` or with `vocab.txt`. As in `transformers`, `tokenizer_config.json` has
            the last word on added tokens, capitals, accents and Chinese characters.
        size: the number of ids that the model has. Special tokens beyond it are left out.

    Returns:
        The tokenizer and the order of its ids.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file cannot be read, or is of another kind of tokenizer; the message names what is not known.
    """
    path = pathlib.Path(path)
    file = path / TOKENIZER_FILE
    if not file.is_file():
        file = path / WORD_LIST_FILE
        if not file.is_file():
            raise FileNotFoundError(f"{path} is not a whole checkpoint: it has no {TOKENIZER_FILE} and no {file.name}.")
    content = read_vocabulary(file) if file.name == WORD_LIST_FILE else read_json(file)
    overrides, settings = _bert_overrides(path), added_tokens(path)
    try:
        if file.name == WORD_LIST_FILE:
            content = from_word_list(path, content)
        return _word_pieces(path, as_object(content, "it"), overrides, settings, size)
    except ValueError as error:
        raise ValueError(f"{file} cannot be read: {error}") from None


def _bert_overrides(path: pathlib.Path) -> dict[str, Any]:
    """The options of the normalizer that go before those of `tokenizer.json`.

    The classes of `transformers` make the normalizer of `tokenizer_config.json` alone, so what is missing there has the
    class's default.
    """
    config, file = overriding_config(path), path / TOKENIZER_CONFIG_FILE
    overrides: dict[str, Any] = {}
    if is_of_a_family(path):
        overrides = {"clean_text": True, "handle_chinese_chars": True, "lowercase": True, "strip_accents": None}
    overrides |= {
        name: flag(config, key, True, file) for key, name in _BERT_OVERRIDES.items() if config.get(key) is not None
    }
    if "strip_accents" in config:  # null has a meaning: where there are no capitals
        overrides["strip_accents"] = flag(config, "strip_accents", None, file)
    return overrides


def _word_pieces(
    path: pathlib.Path,
    content: dict[str, Any],
    overrides: dict[str, Any],
    settings: AddedTokens,
    size: int | None,
) -> WordPieces:
    """The tokenizer of the content of `tokenizer.json`; `overrides` go before the options of its normalizer.

    `settings` are the added tokens of the files beside it.
    """
    model, names = model_of(content, "WordPiece"), special_names(path, BERT_PURPOSES)
    check_options(model, {"vocab", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word"})
    prefix = as_string(model.get("continuing_subword_prefix", "##"), "`continuing_subword_prefix`")
    longest = model.get("max_input_chars_per_word", 100)
    if type(longest) is not int or longest < 0:
        raise ValueError(f"`max_input_chars_per_word` must be a number. It is {SHORT.repr(longest)}")
    chains = [chain_of(content.get(part), name) for part, name in _BERT_PARTS.items()]
    for part, chain, kind in zip(_BERT_PARTS, chains, ("BertNormalizer", "BertPreTokenizer", "WordPiece"), strict=True):
        if [component["type"] for component in chain] != [kind]:
            raise unknown_component(f"the {part.replace('pre_', 'pre-')}", *chain)
    (normalizer,), (cut,), (decoder,) = chains
    flags = ("clean_text", "handle_chinese_chars", "lowercase")
    check_options(normalizer, {*flags, "strip_accents"})
    check_options(cut, set())
    check_options(decoder, {"prefix", "cleanup"})
    if decoder.get("prefix", "##") != prefix:
        raise unknown_component("the decoder", decoder)
    normalizer |= overrides
    unknown, mask = as_string(model.get("unk_token"), "`unk_token`"), names.get("mask_token", MASK_PIECE)
    start, end = _start_and_end(content)
    if is_of_a_family(path):  # like the normalizer, the class makes all of these anew
        longest = 100
        unknown, start, end = (
            names.get(f"{purpose}_token", found) for purpose, found in (("unk", unknown), ("cls", start), ("sep", end))
        )
    elif not _is_usual_pair(content, start, end):
        warnings.warn(f"{path}: {OTHER_PAIRS}", stacklevel=6)
    special = [names.get("pad_token", BERT_PIECES[0]), unknown, start, end]
    vocabulary, added = vocabulary_of(content, model, settings, (*special, mask), size)
    pieces, order = special_pieces_first(vocabulary, special)
    tokenizer = WordPieceTokenizer(
        pieces,
        **{name: flag(normalizer, name, True) for name in flags},
        strip_accents=None if normalizer.get("strip_accents") is None else flag(normalizer, "strip_accents", False),
        continuing_subword_prefix=prefix,
        max_input_chars_per_word=longest,
        cleanup=flag(decoder, "cleanup", True),
        mask_token=mask,
        added_tokens=[token for token in added if token["content"] not in special],
    )
    return WordPieces(tokenizer, order)


def _start_and_end(content: dict[str, Any]) -> tuple[str, str]:
    """The token before a text, and the one behind it, which also stands between two texts."""
    chain = chain_of(content.get("post_processor"), "processors")
    if [component["type"] for component in chain] == ["BertProcessing"]:
        both = [as_list(chain[0].get(name), f"`{name}`") for name in ("cls", "sep")]
        if all(both):
            return as_string(both[0][0], "`cls`"), as_string(both[1][0], "`sep`")
    if [component["type"] for component in chain] == ["TemplateProcessing"]:
        before, after = tokens_around(chain[0])
        if len(before) == len(after) == 1:
            return before[0], after[0]
    raise unknown_component("the post-processor", *chain)


def _is_usual_pair(content: dict[str, Any], start: str, end: str) -> bool:
    """Whether a pair of texts is put together as BERT does."""
    (component,) = chain_of(content.get("post_processor"), "processors")
    usual = [(start, 0), ("A", 0), (end, 0), ("B", 1), (end, 1)]
    return component["type"] == "BertProcessing" or pair_of(component) == usual
