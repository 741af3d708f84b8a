"""How texts are held out of the files of a user, so that no text is in two splits."""

from __future__ import annotations

import abc
import hashlib
import logging
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import pydantic

from .corpus import CorpusError, KeptCorpus

logger = logging.getLogger(__name__)


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
    def _hold_out(self) -> list[str | None]:
        """For each row of `_train_rows` the split it is held out for, or None: `hold_out` of this module."""

    @abc.abstractmethod
    def _warn_of_overlap(self, first: str, second: str) -> None:
        """Warns if two splits of the cache, the second one with a file, have texts in common."""

    @pydantic.model_validator(mode="after")
    def _a_file_or_a_number(self) -> Self:
        for split in ("validation", "test"):
            number = f"{split}_{self._unit}"
            if getattr(self, split) is not None and getattr(self, number) is not None:
                raise ValueError(
                    f"Give `{split}` (a file) or `{number}` (held out of `train`), not both. "
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
        files = getattr(self, split)
        if files is not None and (split != "train" or not self._counts):
            return self._rows(files)
        wanted = None if split == "train" else split
        return (row for row, held in zip(self._train_rows, self._held, strict=True) if held == wanted)

    @property
    def _counts(self) -> dict[str, int | None]:
        """The splits to hold out of `train`; the test first, so that it does not depend on how many validate."""
        return {
            split: getattr(self, f"{split}_{self._unit}")
            for split in ("test", "validation")
            if split in self.splits and not getattr(self, split)
        }

    @cached_property
    def _train_rows(self) -> list[Any]:
        """The rows of `train`, kept because several splits come from it: a pipe can be read only once."""
        return list(self._rows(self.train))

    @cached_property
    def _held(self) -> list[str | None]:
        return self._hold_out()


class LargeClusters(CorpusError):
    """Rows that share texts hang together in clusters that are too large for a split."""


def hold_out(
    rows: Iterable[tuple[str, ...] | None],
    counts: Mapping[str, int | None],
    seed: int,
    where: str,
    what: str = "pairs",
    *,
    symmetric: bool = False,
    labels: Sequence[Collection[str]] | None = None,
    least: float = 0.0,
) -> list[str | None]:
    """Chooses the pairs or single texts to hold out of a corpus, so that no text is in two splits.

    Pairs that share a source or a target, directly or through other pairs, form a cluster, which stays together.
    The order of the clusters depends only on their texts and `seed`. A cluster that would make a split too
    large is skipped. So a split has exactly the requested size, unless too few small clusters are left.

    Args:
        rows: (source, target) or (text,), normalised, or None for a row that must not be held out. They are read once;
            only 64 bits of each text are kept.
        counts: how many are wanted for each split, in order of preference; None: one in twenty, at most 1,000.
        seed: another seed gives another choice.
        where: the place of the rows, for errors.
        what: what a row is, in the plural, for errors.
        symmetric: whether a text counts as the same on either side of a pair. If not, a source and an equal target are
            two texts, as in translation.
        labels: the classes of each row. A class that would be held out as a whole could not be learnt, so its clusters
            stay in the training split.
        least: the share of its wanted size that a split must exceed.

    Returns:
        For each row the split it is held out for, or None.

    Raises:
        LargeClusters: a split gets too few rows, because nearly all clusters are larger than it.
        CorpusError: nothing would be left to train on, at all or with the labels of a split.
    """
    clusters = _clusters(rows, seed, symmetric)
    sizes = Counter(clusters)
    del sizes[0]
    usable = sizes.total()
    default = min(1000, max(1, usable // 20))
    wanted = {split: default if count is None else count for split, count in counts.items()}
    asked = f"{where}: cannot hold out {' and '.join(f'{count} {what} for {split}' for split, count in wanted.items())}"
    if sum(wanted.values()) >= usable:
        raise CorpusError(f"{asked} of {usable} usable {what}; ask for fewer, or for 0 to have no such split.")
    chosen: dict[int, str] = {}
    short: dict[str, int] = {}
    # A cluster is named by the smallest hash of its texts. The name is hashed again for the order: the more texts a
    # cluster has, the smaller its name tends to be, so the large clusters would come first.
    left = sorted(sizes, key=lambda cluster: hashlib.blake2b(cluster.to_bytes(8)).digest())
    for split, count in wanted.items():
        missing, passed_over = count, []
        for cluster in left:
            if sizes[cluster] <= missing:
                chosen[cluster] = split
                missing -= sizes[cluster]
            else:
                passed_over.append(cluster)
        left = passed_over
        if count and count - missing <= least * count:
            raise LargeClusters(
                f"{asked}: {what} that share a text stay together, and of the {usable} usable {what} every such "
                "cluster left is larger than the split; ask for more, or for 0 to have no such split."
            )
        if missing:
            short[split] = missing
    for split, missing in short.items():
        logger.warning(
            "%s: held out %d %s for %s; %d were wanted, but %s that share a text stay together, and every "
            "cluster of them that is left is too large.",
            *(where, wanted[split] - missing, what, split, wanted[split], what),
        )
    held = [chosen.get(cluster) for cluster in clusters]
    if labels is None:
        return held
    of_rows = list(zip(clusters, held, labels, strict=True))
    learnt = {name for cluster, split, names in of_rows if cluster and split is None for name in names}
    kept = {cluster for cluster, _, names in of_rows if not learnt.issuperset(names)}
    held = [None if cluster in kept else split for cluster, split, _ in of_rows]
    if without := [split for split, count in wanted.items() if count and split not in held]:
        raise CorpusError(
            f"{asked}: nothing is left for {' and '.join(without)}, since each label keeps {what} to train on; give "
            "more of them for each label, or a file for the split, or ask for 0 to have no such split."
        )
    return held


def _clusters(rows: Iterable[tuple[str, ...] | None], seed: int, symmetric: bool) -> array[int]:
    """The cluster of each row: the smallest hash of its texts. 0 for None."""
    parents: dict[int, int] = {}
    sides = (b"source", b"source" if symmetric else b"target")

    def find(text: int) -> int:
        while (parent := parents.setdefault(text, text)) != text:
            parents[text] = text = parents[parent]
        return text

    heads = array("Q")
    for row in rows:
        if row is None:
            heads.append(0)
            continue
        texts = [find(_hash(text, side, seed)) for text, side in zip(row, sides, strict=False)]
        head = min(texts)
        parents.update(dict.fromkeys(texts, head))
        heads.append(head)
    return array("Q", (find(head) if head else 0 for head in heads))


def _hash(text: str, side: bytes, seed: int) -> int:
    """64 bits of a text. If two texts collide, their pairs stay together, which does no harm."""
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=str(seed).encode(), person=side).digest()
    return int.from_bytes(digest)
