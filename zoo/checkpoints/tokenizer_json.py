"""The tokenizer of a Hugging Face checkpoint, read so that it runs in the graph.

`tokenizer.json` describes a tokenizer as a chain of components: a normalizer, a pre-tokenizer, a model and a decoder.
`read_tokenizer` knows the chains of two families: byte-level pairs (GPT-2, GPT-NeoX, SmolLM, Qwen2, Llama 3), which
become a `BytePairTokenizer`, and pairs of characters (Llama 1 and 2, TinyLlama), which become a
`CharacterPairTokenizer`. `read_word_pieces` knows the chain of BERT, which becomes a `WordPieceTokenizer`. A component,
an option or a value that they do not know changes the ids in some way, and is refused by its name.
"""

from __future__ import annotations

import dataclasses
import pathlib
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from zoo.checkpoints import TOKENIZER_CONFIG_FILE
from zoo.checkpoints.hugging_face import read_json
from zoo.checkpoints.tokenizer_files import (
    BERT_PURPOSES,
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
    from_word_list,
    is_of_a_family,
    overriding_config,
    read_merges,
    special_names,
    tokenizer_config,
)
from zoo.text import BytePairTokenizer, CharacterPairTokenizer, WordPieceTokenizer
from zoo.text.added_tokens import AddedToken
from zoo.text.word_piece import BERT_PIECES, MASK_PIECE, read_vocabulary, special_pieces_first
from zoo.text.words import GPT_2, PATTERNS

OTHER_PAIRS = "the tokenizer puts pairs of texts together otherwise than the zoo"  # a warning
_SPACE = "▁"
# Options of `tokenizer_config.json`, and what the normalizer calls them.
_BERT_OVERRIDES = {"do_lower_case": "lowercase", "tokenize_chinese_chars": "handle_chinese_chars"}
_BERT_PARTS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}
_FLAGS = [field.name for field in dataclasses.fields(AddedToken) if field.name != "content"]


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


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of a checkpoint by what they are for.

    Attributes:
        names: the token of each purpose that the files name: `bos_token`, `eos_token`, `pad_token`, `unk_token`,
            `mask_token`.
        before: the tokens that the library puts before a text.
        after: the tokens that it puts behind a text.
        separators: how many tokens `after` stand between the texts of a pair; None if a pair is put together otherwise.
    """

    names: dict[str, str]
    before: tuple[str, ...]
    after: tuple[str, ...]
    separators: int | None = None


def read_special_tokens(path: str | pathlib.Path) -> SpecialTokens:
    """Reads what a checkpoint's special tokens are for; `tokenizer.id_of` gives their ids.

    As in `transformers`, `add_bos_token` and `add_eos_token` of `tokenizer_config.json` count only if there is no
    `tokenizer.json`, whose post-processor has the last word.

    Args:
        path: the folder.

    Raises:
        ValueError: a file cannot be read, or the post-processor of `tokenizer.json` is not known.
    """
    path = pathlib.Path(path)
    before: list[str] = []
    after: list[str] = []
    separators = None
    if (path / TOKENIZER_FILE).is_file():
        content = read_json(path / TOKENIZER_FILE)
        try:
            for component in _chain(as_object(content, "it").get("post_processor"), "processors"):
                if component["type"] == "TemplateProcessing":
                    before, after = _around(component)
                    pair = [name for name, _ in _pair(component)]
                    found = (n for n in (1, 2) if pair == [*before, "A", *n * after, "B", *after])
                    separators = next(found, None)
                elif component["type"] == "RobertaProcessing":
                    parts = ((as_list(component.get(name), name), name) for name in ("cls", "sep"))
                    before, after = ([as_string(next(iter(part), None), name)] for part, name in parts)
                    separators = 2
                elif component["type"] != "ByteLevel":
                    raise _unknown("the post-processor", component)
        except ValueError as error:
            raise ValueError(f"{path / TOKENIZER_FILE} cannot be read: {error}") from None
        return SpecialTokens(special_names(path), tuple(before), tuple(after), separators)
    names, config, file = special_names(path), tokenizer_config(path), path / TOKENIZER_CONFIG_FILE
    for name, around in (("bos", before), ("eos", after)):
        if flag(config, f"add_{name}_token", False, file):
            around.append(as_string(names.get(f"{name}_token"), f"`{name}_token` in {file}"))
    return SpecialTokens(names, tuple(before), tuple(after))


def _around(component: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The tokens before and after the text in a template."""
    parts = [as_object(part, "a part of `single`") for part in as_list(component.get("single"), "`single`")]
    places = [i for i, part in enumerate(parts) if "Sequence" in part]
    if len(places) != 1:
        raise ValueError("TemplateProcessing must have one text in `single`")

    def tokens(parts: list[dict[str, Any]]) -> list[str]:
        return [as_string(as_object(part.get("SpecialToken"), "a part").get("id"), "an id") for part in parts]

    return tokens(parts[: places[0]]), tokens(parts[places[0] + 1 :])


def _pair(component: dict[str, Any]) -> list[tuple[Any, Any]]:
    """The tokens and texts of a pair in a template, each with the number of its segment."""
    parts = [as_object(part, "a part of `pair`") for part in as_list(component.get("pair") or [], "`pair`")]
    parts = [as_object(next(iter(part.values()), None), "a part of `pair`") for part in parts]
    return [(part.get("id"), part.get("type_id")) for part in parts]


def _tokenizer(
    content: dict[str, Any],
    settings: AddedTokens,
    special_tokens: Iterable[str],
    size: int | None,
    add_prefix_space: bool | None,
    options: dict[str, Any],
) -> BytePairTokenizer | CharacterPairTokenizer:
    """The tokenizer of the content of `tokenizer.json`; `add_prefix_space` replaces the file's, unless it is None."""
    model = _model(content, "BPE")
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option):
            raise ValueError(f"its model has the option {option} = {model[option]!r}, which cannot be read")
    vocabulary, added = _vocabulary(content, model, settings, special_tokens, size)
    arguments: dict[str, Any] = {
        "vocabulary": vocabulary,
        "merges": _merges(model),
        "ignore_merges": flag(model, "ignore_merges", False),
        "unk_token": None if model.get("unk_token") is None else as_string(model["unk_token"], "`unk_token`"),
        "fuse_unk": flag(model, "fuse_unk", False),
        "added_tokens": added,
    }
    byte_fallback = flag(model, "byte_fallback", False)
    cuts = _chain(content.get("pre_tokenizer"), "pretokenizers")
    changes = _chain(content.get("normalizer"), "normalizers")
    decoders = _chain(content.get("decoder"), "decoders")
    if any(component["type"] == "ByteLevel" for component in (*cuts, *decoders)):
        if byte_fallback:
            raise ValueError("its model has the option byte_fallback = True beside ByteLevel, which cannot be read")
        arguments |= {
            **_byte_level_cuts(cuts, add_prefix_space),
            **_byte_level_changes(changes),
            "allow_missing_bytes": True,
        }
        if [component["type"] for component in decoders] != ["ByteLevel"]:
            raise _unknown("the decoder", *decoders)
        return BytePairTokenizer(**arguments, **options)
    arguments |= {**_metaspace(changes, cuts), "byte_fallback": byte_fallback}
    prepends = arguments.get("prepend", True) and arguments.get("prepend_scheme") != "never"
    if add_prefix_space not in (None, prepends):
        adds = "adds a space" if prepends else "adds none"
        raise ValueError(
            f"{TOKENIZER_CONFIG_FILE} has add_prefix_space = {add_prefix_space}, but {TOKENIZER_FILE} {adds}."
        )
    return CharacterPairTokenizer(**arguments, strip_space=_strips_space(decoders, byte_fallback))


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
    model, names = _model(content, "WordPiece"), special_names(path, BERT_PURPOSES)
    _only(model, {"vocab", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word"})
    prefix = as_string(model.get("continuing_subword_prefix", "##"), "`continuing_subword_prefix`")
    longest = model.get("max_input_chars_per_word", 100)
    if type(longest) is not int or longest < 0:
        raise ValueError(f"`max_input_chars_per_word` must be a number. It is {SHORT.repr(longest)}")
    chains = [_chain(content.get(part), name) for part, name in _BERT_PARTS.items()]
    for part, chain, kind in zip(_BERT_PARTS, chains, ("BertNormalizer", "BertPreTokenizer", "WordPiece"), strict=True):
        if [component["type"] for component in chain] != [kind]:
            raise _unknown(f"the {part.replace('pre_', 'pre-')}", *chain)
    (normalizer,), (cut,), (decoder,) = chains
    flags = ("clean_text", "handle_chinese_chars", "lowercase")
    _only(normalizer, {*flags, "strip_accents"})
    _only(cut, set())
    _only(decoder, {"prefix", "cleanup"})
    if decoder.get("prefix", "##") != prefix:
        raise _unknown("the decoder", decoder)
    normalizer |= overrides
    if is_of_a_family(path):  # like the normalizer, the model is made anew by the class
        longest = 100
    unknown, mask = as_string(model.get("unk_token"), "`unk_token`"), names.get("mask_token", MASK_PIECE)
    start, end = _start_and_end(content)
    if is_of_a_family(path):  # so are the unknown token and what stands around a text
        unknown, start, end = (
            names.get(f"{purpose}_token", found) for purpose, found in (("unk", unknown), ("cls", start), ("sep", end))
        )
    elif not _is_usual_pair(content, start, end):
        warnings.warn(f"{path}: {OTHER_PAIRS}", stacklevel=6)
    special = [names.get("pad_token", BERT_PIECES[0]), unknown, start, end]
    vocabulary, added = _vocabulary(content, model, settings, (*special, mask), size)
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


def _model(content: dict[str, Any], wanted: str) -> dict[str, Any]:
    """The model of the content of `tokenizer.json`, which must be of the wanted kind.

    The first versions of the library wrote no `type`. As in the library, merges then tell byte pairs from word pieces.
    """
    model = as_object(content.get("model"), "`model`")
    kind = model.get("type") or ("BPE" if "merges" in model else "WordPiece")
    if kind != wanted:
        raise ValueError(f"its model is {kind!r}; only {wanted!r} can be read")
    return model


def _start_and_end(content: dict[str, Any]) -> tuple[str, str]:
    """The token before a text, and the one behind it, which also stands between two texts."""
    chain = _chain(content.get("post_processor"), "processors")
    if [component["type"] for component in chain] == ["BertProcessing"]:
        both = [as_list(chain[0].get(name), f"`{name}`") for name in ("cls", "sep")]
        if all(both):
            return as_string(both[0][0], "`cls`"), as_string(both[1][0], "`sep`")
    if [component["type"] for component in chain] == ["TemplateProcessing"]:
        before, after = _around(chain[0])
        if len(before) == len(after) == 1:
            return before[0], after[0]
    raise _unknown("the post-processor", *chain)


def _is_usual_pair(content: dict[str, Any], start: str, end: str) -> bool:
    """Whether a pair of texts is put together as BERT does."""
    (component,) = _chain(content.get("post_processor"), "processors")
    usual = [(start, 0), ("A", 0), (end, 0), ("B", 1), (end, 1)]
    return component["type"] == "BertProcessing" or _pair(component) == usual


def _vocabulary(
    content: dict[str, Any],
    model: dict[str, Any],
    settings: AddedTokens,
    special_tokens: Iterable[str],
    size: int | None,
) -> tuple[list[str], list[dict[str, Any]]]:
    """The pieces in the order of their ids, and the arguments of the added tokens."""
    ids = as_object(model.get("vocab"), "`vocab`")
    for piece, number in ids.items():
        if type(number) is not int:
            raise ValueError(f"the id of {piece!r} must be a number. It is {SHORT.repr(number)}")
    own = as_list(content.get("added_tokens") or [], "`added_tokens`")
    own = [as_object(entry, "an added token") for entry in own]
    known = ids | {as_string(entry.get("content"), "the content of an added token"): entry.get("id") for entry in own}
    # As in `transformers`, numbers in `added_tokens.json` only order its tokens. A token keeps the id that it has
    # elsewhere, or gets the next one. It is left out if its number is the id of an added token of `tokenizer.json`.
    taken = [entry.get("id") for entry in own]
    listed = [entry for number, entry in settings.listed.items() if number not in taken]
    for entry in listed:
        known.setdefault(entry["content"], len(known))
    defaults = [*({"content": piece, "special": True} for piece in special_tokens), *settings.named, *listed]
    defaults = [{**entry, "id": known[entry["content"]]} for entry in defaults if entry["content"] in known]
    added: dict[str, dict[str, Any]] = {}
    ids = dict(ids)
    for entry in (*defaults, *own, *settings.overrides):  # the last entry for a token counts
        piece, number = as_string(entry.get("content"), "the content of an added token"), entry.get("id")
        if type(number) is not int:
            raise ValueError(f"the id of the added token {piece!r} must be a number. It is {SHORT.repr(number)}")
        if ids.setdefault(piece, number) != number:
            raise ValueError(f"the added token {piece!r} has two ids, {ids[piece]} and {number}")
        if flag(entry, "single_word", False):
            raise ValueError(f"the added token {piece!r} has single_word = True, which cannot be read")
        flags = {name: flag(entry, name, name == "normalized" and not entry.get("special")) for name in _FLAGS}
        added[piece] = {"content": piece, **flags}
    vocabulary = sorted(ids, key=ids.__getitem__)
    while size is not None and len(vocabulary) > size and added.get(vocabulary[-1], {}).get("special"):
        del added[vocabulary.pop()]
    wrong = next((piece for i, piece in enumerate(vocabulary) if ids[piece] != i), None)
    if wrong is not None:
        raise ValueError(f"its ids must be 0 to {len(vocabulary) - 1}, each once. {wrong!r} has the id {ids[wrong]}")
    return vocabulary, [added[piece] for piece in sorted(added, key=ids.__getitem__)]


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
            _only(component, {"individual_digits"})
            digits = flag(component, "individual_digits", False)
        elif kind == "Split":
            _only(component, {"pattern", "behavior", "invert"})
            if (component.get("behavior"), component.get("invert")) != ("Isolated", False):
                raise _unknown("the pre-tokenizer", component)
            pattern = as_object(component.get("pattern"), "a `pattern`")
            patterns.append(as_string(pattern.get("Regex"), "the `Regex` of a `pattern`"))
            if patterns[-1] not in PATTERNS:
                raise ValueError(
                    f"its pre-tokenizer cuts texts by the expression {SHORT.repr(patterns[-1])}; only those of GPT-2, "
                    "Qwen and Llama 3, and of runs of digits, can be read"
                )
        else:
            raise _unknown("the pre-tokenizer", component)
    last = cuts[-1] if cuts else {"type": None}
    if last["type"] != "ByteLevel":
        raise _unknown("the pre-tokenizer", *cuts)
    _only(last, {"add_prefix_space", "trim_offsets", "use_regex"})
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
        raise _unknown("the normalizer", *changes)
    for component in changes:
        _only(component, set())
    return {"nfc": "NFC" in kinds, "lowercase": "Lowercase" in kinds}


def _metaspace(changes: list[dict[str, Any]], cuts: list[dict[str, Any]]) -> dict[str, Any]:
    """The arguments for the normalizers Prepend and Replace, or for the pre-tokenizer Metaspace."""
    if changes and not cuts:
        prepend = changes[0] == {"type": "Prepend", "prepend": _SPACE}
        if changes[prepend:] == [{"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}]:
            return {"prepend": prepend}
    if not changes and [component["type"] for component in cuts] == ["Metaspace"]:
        (component,) = cuts
        _only(component, {"replacement", "prepend_scheme", "split", "add_prefix_space"})
        scheme = component.get("prepend_scheme", "always")
        if component.get("replacement") == _SPACE and component.get("add_prefix_space") in (None, scheme != "never"):
            return {"prepend_scheme": scheme, "split": flag(component, "split", True)}
    if cuts or not changes:
        raise _unknown("the pre-tokenizer", *cuts)
    raise _unknown("the normalizer", *changes)


def _strips_space(decoders: list[dict[str, Any]], byte_fallback: bool) -> bool:
    """Whether the decoder takes a space off the beginning of a text."""
    wanted: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}]
    wanted += [{"type": "ByteFallback"}] * byte_fallback
    wanted.append({"type": "Fuse"})
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    if decoders not in (wanted, [*wanted, strip]):
        raise _unknown("the decoder", *decoders)
    return decoders[-1] == strip


def _chain(component: Any, name: str) -> list[dict[str, Any]]:
    """A component of `tokenizer.json` as a list of components that are no sequences; `name` is a sequence's list."""
    if component is None:
        return []
    chain, rest = [], [component]
    while rest:  # no recursion, which a file could make too deep
        component = as_object(rest.pop(0), "a component")
        if as_string(component.get("type"), "the `type` of a component") == "Sequence":
            rest[:0] = as_list(component.get(name), f"`{name}`")
        else:
            chain.append(component)
    return chain


def _unknown(what: str, *components: dict[str, Any]) -> ValueError:
    """The error for components that are not known."""
    names = []
    for component in components:
        options = {name: value for name, value in component.items() if name != "type"}
        names.append(repr(component["type"]) + (f" with {SHORT.repr(options)}" if options else ""))
    return ValueError(f"{what} {', '.join(names) or None} cannot be read")


def _only(component: dict[str, Any], options: set[str]) -> None:
    """Refuses a component with other options than these."""
    for option in component.keys() - options - {"type"}:
        raise ValueError(f"its {component['type']} has the option {option} = {SHORT.repr(component[option])}")
