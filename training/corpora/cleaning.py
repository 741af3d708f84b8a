"""Cleaning of training text, as options of a corpus: which rows are dropped, and how many for each cause.

Rows are cleaned while they are read, some at a time. Of the rows that were kept only 64 bits of each are in memory, and
only if duplicates are to be dropped.
"""

from __future__ import annotations

import abc
import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import Annotated, Any

import numpy as np
import pydantic
from pydantic import Field

from zoo.extras import needs

_AT_ONCE = 1 << 16  # rows that are compared with the earlier ones at once
_JAPANESE = '`["Han", "Hiragana", "Katakana"]`'


def _known_scripts(value: Any) -> Any:
    """The value as a list, if it is the name of a script of Unicode or some of them."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError("must be the name of a script, or a list of names")
    for name in names:
        if not _is_script(name):
            near = get_close_matches(name.capitalize(), _script_names(), n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(f"{name!r} is no script of Unicode{hint}; such are Latin, Cyrillic, Han and Devanagari")
    return names


Scripts = Annotated[
    tuple[str, ...],
    pydantic.Strict(False),
    pydantic.BeforeValidator(_known_scripts, json_schema_input_type=str | list[str]),
]
"""The scripts of a text in a recipe: the name of one in Unicode, such as "Latin", or a list of them."""


class Cleaning(pydantic.BaseModel, abc.ABC):
    """What is dropped from the text to train on: the keys of a recipe's `[corpus.clean]` table.

    A subclass has further keys, and says in `_faults` what they drop.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    duplicates: bool = Field(
        default=False, description="drop a row that is equal to an earlier one in all its texts, and in its label"
    )
    script_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="the share of a text's letters that must be of its script. Digits, punctuation and all else that "
        "several scripts have in common do not count; a text without letters is kept",
    )

    @abc.abstractmethod
    def _faults(self) -> list[tuple[str, Callable[..., bool]]]:
        """What may be wrong with a row: the cause, and the function that finds it, of the row's texts."""

    def kept(self, rows: Iterable[tuple[Any, ...]], dropped: Counter[str], columns: int = 2) -> Iterator[Any]:
        """The rows that are clean, in their order. A row counts for the first cause that drops it.

        Args:
            rows: the rows; first come their texts.
            dropped: is told how many rows were dropped, by cause.
            columns: how many cells of a row must be equal to those of another one for a duplicate.
        """
        faults = self._faults()
        if faults:
            rows = self._faultless(rows, faults, dropped)
        return self._new(rows, dropped, columns) if self.duplicates else iter(rows)

    def _faultless(
        self, rows: Iterable[tuple[Any, ...]], faults: list[tuple[str, Callable[..., bool]]], dropped: Counter[str]
    ) -> Iterator[tuple[Any, ...]]:
        for row in rows:
            if cause := next((cause for cause, has_it in faults if has_it(*row[:2])), None):
                dropped[cause] += 1
            else:
                yield row

    def _new(self, rows: Iterable[tuple[Any, ...]], dropped: Counter[str], columns: int) -> Iterator[tuple[Any, ...]]:
        rows, known = iter(rows), KnownHashes()
        while batch := list(itertools.islice(rows, _AT_ONCE)):
            hashes = np.fromiter((_hash(row[:columns]) for row in batch), np.uint64, len(batch))
            new = known.add(hashes)
            dropped["duplicates"] += len(batch) - int(np.count_nonzero(new))
            yield from itertools.compress(batch, new)

    def _of_other_script(self, scripts: tuple[str, ...]) -> Callable[[str], bool]:
        """A function that says whether too few letters of a text are of some scripts."""
        regex = _regex()
        letters = r"\p{L}--\p{Script=Common}--\p{Script=Inherited}"
        wanted = "".join(rf"\p{{Script={name}}}" for name in scripts)
        others = regex.compile(f"[{letters}--[{wanted}]]", regex.VERSION1)
        right = regex.compile(f"[{letters}&&[{wanted}]]", regex.VERSION1)
        share = self.script_share

        def is_other(text: str) -> bool:
            if not others.search(text):  # nearly all texts, so they are looked at once
                return False
            wrong = len(others.findall(text))
            return len(right.findall(text)) < share * (wrong + len(right.findall(text)))

        return is_other


class CleanPairs(Cleaning):
    """What is dropped from the pairs to train on. Nothing is, unless a key says so."""

    identical: bool = Field(default=False, description="drop a pair whose two texts are the same")
    max_ratio: float | None = Field(
        default=None,
        ge=1,
        description="drop a pair whose longer text has more than this many times the characters of the shorter one. "
        "Languages differ: an English text has about three times the characters of its Chinese translation",
    )
    source_script: Scripts | None = Field(
        default=None,
        description="drop a pair whose source is in another script. The name of a script in Unicode, such as Latin, "
        f"Cyrillic, Han or Devanagari, or a list of them: Japanese is {_JAPANESE}",
    )
    target_script: Scripts | None = Field(default=None, description="the same of the target")

    def _faults(self) -> list[tuple[str, Callable[..., bool]]]:
        found: list[tuple[str, Callable[..., bool]]] = []
        if self.identical:
            found.append(("with identical sides", lambda source, target: source == target))
        if (ratio := self.max_ratio) is not None:
            found.append(
                (
                    "of unequal lengths",
                    lambda source, target: len(source) > ratio * len(target) or len(target) > ratio * len(source),
                )
            )
        if self.source_script is not None:
            source_is_other = self._of_other_script(self.source_script)
            found.append(("with a source in another script", lambda source, target: source_is_other(source)))
        if self.target_script is not None:
            target_is_other = self._of_other_script(self.target_script)
            found.append(("with a target in another script", lambda source, target: target_is_other(target)))
        return found


class CleanTexts(Cleaning):
    """What is dropped from the labelled texts to train on. Nothing is, unless a key says so."""

    script: Scripts | None = Field(
        default=None,
        description="drop a text in another script; of a pair, if one of both is. The name of a script in Unicode, "
        f"such as Latin, Cyrillic, Han or Devanagari, or a list of them: Japanese is {_JAPANESE}",
    )

    def _faults(self) -> list[tuple[str, Callable[..., bool]]]:
        if self.script is None:
            return []
        is_other = self._of_other_script(self.script)
        return [("in another script", lambda text, second: is_other(text) or bool(second and is_other(second)))]


class KnownHashes:
    """The hashes of all rows so far, 8 bytes each.

    They are in sorted arrays. Arrays of similar size are merged, so there are few, each at least twice as large as the
    next.
    """

    def __init__(self) -> None:
        self._arrays: list[np.ndarray] = []

    def add(self, hashes: np.ndarray) -> np.ndarray:
        """Adds hashes `(n,)`, and says which were not there before, also not earlier among these: bool `(n,)`."""
        values, firsts = np.unique(hashes, return_index=True)
        new = np.ones(len(values), bool)
        for array in self._arrays:
            places = np.minimum(np.searchsorted(array, values), len(array) - 1)
            new &= array[places] != values
        found = np.zeros(len(hashes), bool)
        found[firsts[new]] = True
        added = values[new]
        while self._arrays and len(self._arrays[-1]) < 2 * len(added):
            added = np.concatenate([self._arrays.pop(), added])
            added.sort(kind="stable")  # which merges what is sorted already
        if len(added):
            self._arrays.append(added)
        return found


def _hash(texts: tuple[str | None, ...]) -> int:
    """64 bits of some texts. The chance that two of ten million different rows have the same ones is 1 in 370,000."""
    content = "\0".join(text or "" for text in texts).encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest())


def _regex() -> Any:
    """The package, which knows Unicode's scripts; only recipes that name one need it."""
    with needs("train"):
        import regex
    return regex


def _is_script(name: str) -> bool:
    regex = _regex()
    try:
        # The library reads a name with other characters as letters.
        return bool(regex.fullmatch("[A-Za-z_ ]+", name) and regex.compile(rf"\p{{Script={name}}}"))
    except regex.error:
        return False


def _script_names() -> list[str]:
    """The names of scripts to suggest to someone who wrote an unknown one."""
    with needs("train"):
        from babel import Locale
    return list(filter(_is_script, Locale("en").scripts.values()))
