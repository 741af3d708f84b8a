"""How texts are held out of the files of a user, so that no text is in two splits."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import hashlib
import itertools
import logging
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pydantic

from ..storage import hashes_if_large, key_of
from .corpus import CorpusError, KeptCorpus, expanded

logger = logging.getLogger(__name__)

_AT_ONCE = 1 << 16  # hashes that are Python's integers at once


class HeldOutFiles(KeptCorpus):
    """A corpus of the user's files. A validation or test split without a file is held out of `train`.

    A subclass has the fields `train`, `validation` and `test`, which name files, and `seed`. It has two more fields for
    how many rows to hold out, such as `validation_pairs` and `test_pairs` if `_unit` is "pairs": None for a default
    number, 0 for no such split. It defines `_rows`, `_hold_out` and `_warn_of_overlap`.
    """

    if TYPE_CHECKING:
        train: Any

    @abc.abstractmethod
    def _rows(self, files: Any) -> Iterator[Any]:
        """The raw rows of what a field such as `train` names."""

    @abc.abstractmethod
    def _hold_out(self, whole: Any) -> np.ndarray:
        """For each usable row of `train` the number of its split: `hold_out` of this module."""

    @abc.abstractmethod
    def _warn_of_overlap(self, first: str, second: str) -> None:
        """Warns if two splits of the cache, the second one with a file, have texts in common."""

    @pydantic.model_validator(mode="after")
    def _a_file_or_a_number(self) -> Self:
        for split in ("validation", "test"):
            number = f"{split}_{self._unit}"
            if getattr(self, split) is not None and getattr(self, number):
                raise ValueError(
                    f"Give `{split}` (a file) or `{number}` (held out of `train`; 0 for none), not both. "
                    f"Received: {split}={getattr(self, split)}, {number}={getattr(self, number)}"
                )
        return self

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits: 'train', and the others, given as files or held out of it."""
        others = ("validation", "test")
        return ("train", *(s for s in others if getattr(self, s) or getattr(self, f"{s}_{self._unit}") != 0))

    def read(self, split: str) -> Any:
        """All rows of a split, normalised; read once and kept. A warning says how many are also in other splits."""
        known = split in self._cache
        found = super().read(split)
        if not known:
            for other in [other for other in self.splits if other in self._cache and other != split]:
                # Two splits that come out of `train` have nothing in common.
                if any(getattr(self, each) for each in (split, other) if each != "train"):
                    self._warn_of_overlap(*sorted((split, other), key=self.splits.index))
        return found

    def _read(self, split: str) -> Iterable[tuple[Any, ...]]:
        return self._rows(getattr(self, split))

    def _usable(self, split: str) -> Any:
        if split != "train" and getattr(self, split) is not None:
            return super()._usable(split)
        whole, splits = self._whole
        if not self._counts:
            return whole
        found = whole.select(np.flatnonzero(splits == ["train", *self._counts].index(split)))
        if split == "train":  # all that was dropped counts as dropped from it
            found = dataclasses.replace(found, key=whole.key, dropped=whole.dropped)
        return found

    @property
    def _counts(self) -> dict[str, int | None]:
        """The splits to hold out of `train`; the test first, so that it does not depend on how many validate."""
        return {
            split: getattr(self, f"{split}_{self._unit}")
            for split in ("test", "validation")
            if split in self.splits and not getattr(self, split)
        }

    @cached_property
    def _whole(self) -> tuple[Any, np.ndarray]:
        """All usable rows of `train` and the split of each; kept, because several splits come from it.

        The files are read once, so a pipe works.
        """
        key = self._key()
        if entry := self.storage.find("texts", key):
            for message in entry.info.pop("warnings", ()):
                logger.warning("%s", message)
            whole = self._restored(entry)
            return dataclasses.replace(whole, key=key, **entry.info), entry.array("splits")
        with self.storage.writing("texts", key) as entry, _warnings() as told:
            whole = self._gather(self._rows(self.train), entry, training=True)
            if not len(whole):
                raise self._nothing_usable("train", whole.dropped)
            splits = self._hold_out(whole) if self._counts else np.zeros(len(whole), np.int8)
            if entry.is_used:
                whole = dataclasses.replace(whole, key=key)
                entry.save("splits", splits)
                entry.info |= {"dropped": whole.dropped, "warnings": told}
        return whole, splits

    def _key(self) -> str | None:
        """The hash of all that the rows follow from; None for pipes, and for files that are sure to fit into memory."""
        files = self.train if isinstance(self.train, tuple) else [self.train]
        hashes = hashes_if_large([*map(expanded, files)])
        options = self.model_dump(mode="json", exclude={"train", "validation", "test", "weight", "epochs", "teacher"})
        return None if hashes is None else key_of(hashes, options, sorted(self._counts))


class _Told(logging.Handler):
    """Keeps the messages of warnings, which are shown as if it were not there."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
        if logging.lastResort and not logging.getLogger().handlers:  # which shows what has no handler
            logging.lastResort.handle(record)


@contextlib.contextmanager
def _warnings() -> Iterator[list[str]]:
    """What this package warns of in the block, such as of a table that it reads."""
    told, package = _Told(), logging.getLogger(__package__)
    package.addHandler(told)
    try:
        yield told.messages
    finally:
        package.removeHandler(told)


class LargeClusters(CorpusError):
    """Rows that share texts hang together in clusters that are too large for a split."""


def hold_out(
    rows: Iterable[tuple[str, ...]],
    counts: Mapping[str, int | None],
    seed: int,
    where: str,
    what: str = "pairs",
    *,
    symmetric: bool = False,
    labels: Sequence[Collection[str]] | None = None,
    least: float = 0.0,
) -> np.ndarray:
    """Chooses the pairs or single texts to hold out of a corpus, so that no text is in two splits.

    Pairs that share a source or a target, directly or through other pairs, form a cluster, which stays together.
    The order of the clusters depends only on their texts and `seed`. A cluster that would make a split too
    large is skipped. So a split has exactly the requested size, unless too few small clusters are left.

    Args:
        rows: (source, target) or (text,), normalised. They are read once; only 64 bits of each text are kept.
        counts: how many are wanted for each split, in order of preference; None: one in twenty, at most 1,000.
        seed: another seed gives another choice.
        where: the place of the rows, for errors.
        what: what a row is, in the plural, for errors.
        symmetric: whether a text counts as the same on either side of a pair. If not, a source and an equal target are
            two texts, as in translation.
        labels: the classes of each row. A class that is held out as a whole could not be learnt, so a cluster with all
            that is left of a class is skipped, too.
        least: the share that a split must exceed: of its wanted size or, if that is smaller, of the rows that labels
            can spare.

    Returns:
        For each row 0, or the number of the split that it is held out for: from 1 on, in the order of `counts`. int8
        `(N,)`.

    Raises:
        LargeClusters: a split gets too few rows, because nearly all clusters are larger than it, or have all that is
            left of a label.
        CorpusError: nothing would be left to train on.
    """
    names, clusters = _clusters(rows, seed, symmetric)
    sizes = np.bincount(clusters, minlength=len(names))
    usable = len(clusters)
    default = min(1000, max(1, usable // 20))
    wanted = {split: default if count is None else count for split, count in counts.items()}
    numbers = [f"{count} {what if count != 1 else what[:-1]} for {split}" for split, count in wanted.items()]
    linked = "equal texts" if what == "texts" else f"{what} that share a text"
    asked = f"{where}: cannot hold out {' and '.join(numbers)}"
    if sum(wanted.values()) >= usable:
        keys = " and ".join(f"{split}_{what}" for split in wanted)
        all_of_them = f"{usable} usable {what if usable != 1 else what[:-1]}"
        raise CorpusError(
            f"{asked} of {all_of_them}; ask for fewer by {keys}, or give a file{_or_no_test(wanted, what)}."
        )
    chosen = np.zeros(len(names), np.int8)  # the split of each cluster
    take = _taker(clusters, sizes, labels)
    # A cluster is named by the smallest hash of its texts. The name is hashed again for the order: the more texts a
    # cluster has, the smaller its name tends to be, so the large clusters would come first.
    again = (int.from_bytes(hashlib.blake2b(name).digest()[:8]) for name in _bytes_of(names))
    order = np.argsort(np.fromiter(again, np.uint64, len(names)), kind="stable").astype(np.int32)
    for number, (split, count) in enumerate(wanted.items(), 1):
        missing, spared = count, 0  # rows; spared are those that a label needs
        for cluster in order:
            if not missing:
                break
            if not chosen[cluster] and sizes[cluster] <= missing:
                if take(cluster):
                    chosen[cluster] = number
                    missing -= int(sizes[cluster])
                else:
                    spared += int(sizes[cluster])
        enough = least * count
        if spared and least:
            enough = least * min(count, _spare(labels or (), (chosen == 0) | (chosen == number), clusters))
        if count and count - missing <= enough < count - missing + spared:
            or_no_test = _or_no_test([split], what) if missing < count or len(wanted) == 1 else ""
            raise LargeClusters(
                f"{asked}: too few are left for {split}, since each label keeps {what} to train on; give more of them "
                f"for each label, or a file for the split{or_no_test}."
            )
        if count and count - missing <= enough:
            smallest = int(sizes[chosen == 0].min(initial=usable))
            fits = 2 * smallest < usable
            # If nothing fits, there is none for validation either.
            or_no_test = _or_no_test([split], what) if fits or len(wanted) == 1 else ""
            raise LargeClusters(
                f"{asked}: {linked} stay together, and of the {usable} usable {what} the smallest such "
                f"group left has {smallest}; {f'ask for {smallest} or more, or ' if fits else ''}give a file for the "
                f"split{or_no_test}."
            )
        if missing:
            logger.warning(
                "%s: held out %d %s for %s; %d were wanted, but %s stay together, and every "
                "cluster of them that is left is too large%s.",
                *(where, count - missing, what, split, count, linked),
                " or has all that is left of a label" if spared else "",
            )
    return chosen[clusters]


def _taker(clusters: np.ndarray, sizes: np.ndarray, labels: Sequence[Collection[str]] | None) -> Callable[[int], bool]:
    """A function that takes a cluster out of the training split, if each label stays there; says whether it did."""
    if labels is None:
        return lambda cluster: True
    left = Counter(itertools.chain.from_iterable(labels))
    rows, ends = np.argsort(clusters, kind="stable").astype(np.int32), np.cumsum(sizes)  # (N,), (C,)

    def take(cluster: int) -> bool:
        own = rows[ends[cluster] - sizes[cluster] : ends[cluster]].tolist()
        taken = Counter(name for row in own for name in labels[row])
        if any(left[name] == number for name, number in taken.items()):
            return False
        left.subtract(taken)
        return True

    return take


def _spare(labels: Sequence[Collection[str]], is_open: np.ndarray, clusters: np.ndarray) -> int:
    """How many rows of the open clusters could be held out, if rows did not stay together, and each label keeps one."""
    rows = [labels[row] for row in np.flatnonzero(is_open[clusters]).tolist()]
    left = Counter(itertools.chain.from_iterable(rows))
    spare = 0
    for names in rows:
        if all(left[name] > 1 for name in names):
            left.subtract(names)
            spare += 1
    return spare


def _or_no_test(splits: Collection[str], what: str) -> str:
    """Advice for a test that cannot be held out. A training needs its validation split."""
    return f", or have no test, by test_{what} = 0" if "test" in splits else ""


def _clusters(rows: Iterable[tuple[str, ...]], seed: int, symmetric: bool) -> tuple[np.ndarray, np.ndarray]:
    """The connected components of the graph whose vertices are texts, and whose edges are rows.

    Returns:
        The smallest hash of the texts of each cluster, ascending, uint64 `(C,)`; and the number of the cluster of each
        row, int32 `(N,)`.
    """
    sides = (b"source", b"source" if symmetric else b"target")
    ends = array("Q"), array("Q")  # the hashes of both texts of each row, or of the only one twice
    for row in rows:
        found = [_hash(text, side, seed) for text, side in zip(row, sides, strict=False)]
        ends[0].append(found[0])
        ends[1].append(found[-1])
    hashes = np.concatenate([np.frombuffer(side, np.uint64) for side in ends])  # (2N,)
    del ends
    # `np.unique` would give the same, and take twice the memory.
    order = np.argsort(hashes)
    hashes = hashes[order]
    is_new = np.concatenate([np.ones(min(1, len(hashes)), bool), hashes[1:] != hashes[:-1]])
    texts = hashes[is_new]
    del hashes
    vertices = np.empty(len(order), np.int32)
    vertices[order] = np.cumsum(is_new, dtype=np.int32) - 1
    del order
    first, second = vertices.reshape(2, -1)  # (N,) each
    # Each vertex points to a smaller one of its cluster, a root to itself. In a round, each root that has an edge to a
    # smaller root is hung below it; then all chains are shortened. Few rounds join any graph.
    parents = np.arange(len(texts), dtype=np.int32)
    one, other = first, second
    while True:
        one, other = parents[one], parents[other]
        apart = one != other
        if not apart.any():
            break
        one, other = one[apart], other[apart]
        np.minimum.at(parents, np.maximum(one, other), np.minimum(one, other))
        while not np.array_equal(above := parents[parents], parents):
            parents = above
    is_root = parents == np.arange(len(texts), dtype=np.int32)
    numbers = np.cumsum(is_root, dtype=np.int32) - 1
    return texts[is_root], numbers[parents[first]]


def _bytes_of(hashes: np.ndarray) -> Iterator[bytes]:
    """Each hash as eight bytes, the highest first."""
    for begin in range(0, len(hashes), _AT_ONCE):
        for each in hashes[begin : begin + _AT_ONCE].tolist():
            yield each.to_bytes(8)


def _hash(text: str, side: bytes, seed: int) -> int:
    """64 bits of a text. If two texts collide, their pairs stay together, which does no harm."""
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=str(seed).encode(), person=side).digest()
    return int.from_bytes(digest)
