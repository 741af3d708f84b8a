"""Vocabularies of characters or words: what they may hold, and which ones texts give."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from zoo.text.canonical import composed
from zoo.text.tokenizer import FIRST, REPLACEMENT, whole_number


def check_vocabulary(entries: Sequence[Any], kind: str, fault_of: Callable[[Any], str | None]) -> None:
    """Refuses entries that cannot be a vocabulary.

    Args:
        entries: the vocabulary.
        kind: what an entry is, for messages.
        fault_of: what a vocabulary must hold instead of an entry; None if nothing is wrong with it.

    Raises:
        ValueError: there are no entries, one of them is at fault, or one repeats.
    """
    if not entries:
        raise ValueError(f"`vocabulary` must hold at least one {kind}. Received: none")
    for entry in entries:
        if fault := fault_of(entry):
            raise ValueError(f"`vocabulary` must hold {fault}. Received: {entry!a}")
    check_each_once("vocabulary", entries, kind)


def check_each_once(name: str, entries: Iterable[Any], kind: str) -> None:
    """Refuses entries that repeat.

    Args:
        name: the argument that holds them, for messages.
        entries: the entries.
        kind: what an entry is, for messages.

    Raises:
        ValueError: one repeats.
    """
    repeated = [entry for entry, count in collections.Counter(entries).items() if count > 1]
    if repeated:
        some = f"{repeated[:3]}" + (f" and {len(repeated) - 3} others" if len(repeated) > 3 else "")
        raise ValueError(f"`{name}` must hold each {kind} once. Received: {some} more than once")


def pieces_in_order(ids: Any, name: str) -> list[str]:
    """The pieces of a vocabulary in the order of their ids.

    Args:
        ids: what should be the id of each piece.
        name: the file that holds them, for messages.

    Raises:
        ValueError: they are not pieces with the ids 0, 1, 2 and so on.
    """
    # As representations: True would equal 1, and strings cannot be sorted with numbers.
    if not isinstance(ids, dict) or sorted(map(repr, ids.values())) != sorted(map(repr, range(len(ids)))):
        raise ValueError(f"{name} must hold pieces with the ids 0, 1, 2 and so on, each once.")
    return sorted(ids, key=ids.__getitem__)


def fault_of_text(text: str, kind: str, normalize: bool) -> str | None:
    """What a vocabulary must hold instead of an entry that no text has, as texts are read; None for any other entry.

    Args:
        text: an entry of the vocabulary.
        kind: what an entry is, for messages.
        normalize: whether texts are brought into NFC.
    """
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "no surrogates, which have no UTF-8"
    if REPLACEMENT in text:
        return "no U+FFFD, which stands for what is unknown"
    if normalize and composed(text) != text:
        return (
            f"{kind}s that NFC leaves as they are (this one becomes {composed(text)!a}): "
            "normalise the vocabulary, or pass normalize=False"
        )
    return None


def most_frequent(
    pieces: Iterable[Iterable[str]],
    kind: str,
    minimum_count: int,
    maximum_size: int | None,
    is_allowed: Callable[[str], bool],
) -> list[str]:
    """The vocabulary of the most frequent pieces of texts first, equally frequent ones in alphabetical order.

    Args:
        pieces: the pieces of each text; read once, after the other arguments were checked.
        kind: what a piece is, for messages.
        minimum_count: how often a piece must occur.
        maximum_size: the largest size of the tokenizer, the four special ids included; no limit if None.
        is_allowed: whether a piece may be in the vocabulary.

    Raises:
        ValueError: `minimum_count` is below 1, `maximum_size` is no integer or leaves no room for a piece, or no piece
            is left.
    """
    if minimum_count < 1:
        raise ValueError(f"`minimum_count` must be at least 1. Received: minimum_count={minimum_count}")
    if maximum_size is not None and whole_number("maximum_size", maximum_size) <= FIRST:
        raise ValueError(
            f"`maximum_size` must be at least {FIRST + 1}, for {FIRST} special ids and a {kind}. "
            f"Received: maximum_size={maximum_size}"
        )
    every = collections.Counter(itertools.chain.from_iterable(pieces))
    counts = {piece: count for piece, count in every.items() if is_allowed(piece)}
    known = [piece for piece, count in counts.items() if count >= minimum_count]
    if not known:
        raise ValueError(
            f"`texts` must hold a {kind} that occurs at least minimum_count={minimum_count} times. "
            f"Received: {len(counts)} different {kind}s, none of them as often"
        )
    known.sort(key=lambda piece: (-counts[piece], piece))
    return known[: None if maximum_size is None else maximum_size - FIRST]
