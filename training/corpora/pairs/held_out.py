"""Holding pairs out of a corpus so that no text is in two splits."""

from __future__ import annotations

import hashlib
import logging
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping

from ..error import CorpusError

logger = logging.getLogger(__name__)


def hold_out(
    pairs: Iterable[tuple[str, str] | None], counts: Mapping[str, int | None], seed: int, where: str
) -> list[str | None]:
    """Chooses the pairs of the splits that are held out of a corpus.

    Pairs that share a source or a target, directly or through other pairs, form a family, and a family stays together.
    Families are taken in an order that depends on their texts and `seed` alone; one that would make a split too large
    is passed over, so a split has exactly the size asked for unless too few small families are left.

    Args:
        pairs: (source, target), normalised, or None for a pair that is not to be held out. They are read once and
            not kept, only 64 bits a text.
        counts: the pairs wanted for each split, in order of preference; None: one in twenty, at most 1,000.
        seed: another seed gives another choice.
        where: what an error calls the place the pairs come from.

    Returns:
        For each pair the split it is held out for, or None.

    Raises:
        CorpusError: there are not more pairs than are to be held out, or all families are larger than a split.
    """
    families = _families(pairs, seed)
    sizes = Counter(families)
    del sizes[0]
    usable = sizes.total()
    default = min(1000, max(1, usable // 20))
    wanted = {split: default if count is None else count for split, count in counts.items()}
    asked = f"{where}: cannot hold out {' and '.join(f'{count} pairs for {split}' for split, count in wanted.items())}"
    if sum(wanted.values()) >= usable:
        raise CorpusError(f"{asked} of {usable} usable pairs; ask for fewer, or for 0 to have no such split.")
    chosen: dict[int, str] = {}
    # By a hash of the least hash: of itself the least would bring forward the families with many texts.
    left = sorted(sizes, key=lambda family: hashlib.blake2b(family.to_bytes(8)).digest())
    for split, count in wanted.items():
        missing, passed_over = count, []
        for family in left:
            if sizes[family] <= missing:
                chosen[family] = split
                missing -= sizes[family]
            else:
                passed_over.append(family)
        left = passed_over
        if missing == count > 0:
            raise CorpusError(
                f"{asked}: the {usable} usable pairs share sources or targets in too large families; ask for more, or "
                "for 0 to have no such split."
            )
        if missing:
            logger.warning("%s: held out %d pairs for %s, not %d.", where, count - missing, split, count)
    return [chosen.get(family) for family in families]


def _families(pairs: Iterable[tuple[str, str] | None], seed: int) -> array[int]:
    """For each pair its family, the least hash of any text in it; 0 for None."""
    parents: dict[int, int] = {}

    def find(text: int) -> int:
        while (parent := parents.setdefault(text, text)) != text:
            parents[text] = text = parents[parent]
        return text

    heads = array("Q")
    for pair in pairs:
        if pair is None:
            heads.append(0)
            continue
        source, target = find(_hash(pair[0], b"source", seed)), find(_hash(pair[1], b"target", seed))
        parents[max(source, target)] = min(source, target)
        heads.append(source)
    return array("Q", (find(head) if head else 0 for head in heads))


def _hash(text: str, side: bytes, seed: int) -> int:
    """64 bits of a text; were two texts ever to collide, their pairs would merely stay together."""
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=str(seed).encode(), person=side).digest()
    return int.from_bytes(digest)
