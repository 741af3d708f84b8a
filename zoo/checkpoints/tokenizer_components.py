"""The components of a `tokenizer.json`: its model, vocabulary and added tokens, and the chains of the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from zoo.checkpoints.tokenizer_files import (
    SHORT,
    AddedTokens,
    as_list,
    as_object,
    as_string,
    flag,
)
from zoo.text.added_tokens import AddedToken

OTHER_PAIRS = "the tokenizer puts pairs of texts together otherwise than the zoo"  # a warning
_FLAGS = [field.name for field in dataclasses.fields(AddedToken) if field.name not in ("content", "in_words")]


def model_of(content: dict[str, Any], wanted: str) -> dict[str, Any]:
    """The model of the content of `tokenizer.json`, which must be of the wanted kind.

    The first versions of the library wrote no `type`. As in the library, merges then tell byte pairs from word pieces.
    """
    model = as_object(content.get("model"), "`model`")
    kind = model.get("type") or ("BPE" if "merges" in model else "WordPiece")
    if kind != wanted:
        raise ValueError(f"its model is {kind!r}; only {wanted!r} can be read")
    return model


def vocabulary_of(
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
    words = ids  # an added token that is not among them comes from no word
    ids = dict(words)
    for entry in (*defaults, *own, *settings.overrides):  # the last entry for a token counts
        piece, number = as_string(entry.get("content"), "the content of an added token"), entry.get("id")
        if type(number) is not int:
            raise ValueError(f"the id of the added token {piece!r} must be a number. It is {SHORT.repr(number)}")
        if ids.setdefault(piece, number) != number:
            raise ValueError(f"the added token {piece!r} has two ids, {ids[piece]} and {number}")
        if flag(entry, "single_word", False):
            raise ValueError(f"the added token {piece!r} has single_word = True, which cannot be read")
        flags = {name: flag(entry, name, name == "normalized" and not entry.get("special")) for name in _FLAGS}
        added[piece] = {"content": piece, **flags, "in_words": piece in words}
    vocabulary = sorted(ids, key=ids.__getitem__)
    while size is not None and len(vocabulary) > size and added.get(vocabulary[-1], {}).get("special"):
        del added[vocabulary.pop()]
    wrong = next((piece for i, piece in enumerate(vocabulary) if ids[piece] != i), None)
    if wrong is not None:
        raise ValueError(f"its ids must be 0 to {len(vocabulary) - 1}, each once. {wrong!r} has the id {ids[wrong]}")
    return vocabulary, [added[piece] for piece in sorted(added, key=ids.__getitem__)]


def chain_of(component: Any, name: str) -> list[dict[str, Any]]:
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


def tokens_around(component: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The tokens before and after the text in a template."""
    parts = [as_object(part, "a part of `single`") for part in as_list(component.get("single"), "`single`")]
    places = [i for i, part in enumerate(parts) if "Sequence" in part]
    if len(places) != 1:
        raise ValueError("TemplateProcessing must have one text in `single`")

    def tokens(parts: list[dict[str, Any]]) -> list[str]:
        return [as_string(as_object(part.get("SpecialToken"), "a part").get("id"), "an id") for part in parts]

    return tokens(parts[: places[0]]), tokens(parts[places[0] + 1 :])


def pair_of(component: dict[str, Any]) -> list[tuple[Any, Any]]:
    """The tokens and texts of a pair in a template, each with the number of its segment."""
    parts = [as_object(part, "a part of `pair`") for part in as_list(component.get("pair") or [], "`pair`")]
    parts = [as_object(next(iter(part.values()), None), "a part of `pair`") for part in parts]
    return [(part.get("id"), part.get("type_id")) for part in parts]


def unknown_component(what: str, *components: dict[str, Any]) -> ValueError:
    """The error for components that are not known."""
    names = []
    for component in components:
        options = {name: value for name, value in component.items() if name != "type"}
        names.append(repr(component["type"]) + (f" with {SHORT.repr(options)}" if options else ""))
    return ValueError(f"{what} {', '.join(names) or None} cannot be read")


def check_options(component: dict[str, Any], options: set[str]) -> None:
    """Refuses a component with other options than these."""
    for option in component.keys() - options - {"type"}:
        raise ValueError(f"its {component['type']} has the option {option} = {SHORT.repr(component[option])}")
