"""How texts are held out of a corpus, so that no text is in two splits."""

from __future__ import annotations

import hashlib
import logging
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping

from .corpus import CorpusError

logger = logging.getLogger(__name__)

_SIDES = (b"source", b"target")  # a text as a source and the same text as a target get different hashes


def hold_out(
    rows: Iterable[tuple[str, ...] | None],
    counts: Mapping[str, int | None],
    seed: int,
    where: str,
    what: str = "pairs",
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

    Returns:
        For each row the split it is held out for, or None.

    Raises:
        CorpusError: nothing would be left to train on, or all clusters are larger than a split.
    """
    clusters = _clusters(rows, seed)
    sizes = Counter(clusters)
    del sizes[0]
    usable = sizes.total()
    default = min(1000, max(1, usable // 20))
    wanted = {split: default if count is None else count for split, count in counts.items()}
    asked = f"{where}: cannot hold out {' and '.join(f'{count} {what} for {split}' for split, count in wanted.items())}"
    if sum(wanted.values()) >= usable:
        raise CorpusError(f"{asked} of {usable} usable {what}; ask for fewer, or for 0 to have no such split.")
    chosen: dict[int, str] = {}
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
        if missing == count > 0:
            raise CorpusError(
                f"{asked}: {what} that share a text stay together, and of the {usable} usable {what} every such "
                "cluster left is larger than the split; ask for more, or for 0 to have no such split."
            )
        if missing:
            logger.warning(
                "%s: held out %d %s for %s; %d were wanted, but %s that share a text stay together, and every "
                "cluster of them that is left is too large.",
                *(where, count - missing, what, split, count, what),
            )
    return [chosen.get(cluster) for cluster in clusters]


def _clusters(rows: Iterable[tuple[str, ...] | None], seed: int) -> array[int]:
    """The cluster of each row: the smallest hash of its texts. 0 for None."""
    parents: dict[int, int] = {}

    def find(text: int) -> int:
        while (parent := parents.setdefault(text, text)) != text:
            parents[text] = text = parents[parent]
        return text

    heads = array("Q")
    for row in rows:
        if row is None:
            heads.append(0)
            continue
        texts = [find(_hash(text, side, seed)) for text, side in zip(row, _SIDES, strict=False)]
        head = min(texts)
        parents.update(dict.fromkeys(texts, head))
        heads.append(head)
    return array("Q", (find(head) if head else 0 for head in heads))


def _hash(text: str, side: bytes, seed: int) -> int:
    """64 bits of a text. If two texts collide, their pairs stay together, which does no harm."""
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=str(seed).encode(), person=side).digest()
    return int.from_bytes(digest)
