"""What is found: by which rule, where, what it is, why a server minds, and how to mend it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

_PLACES, _FINDINGS, _LETTERS = 3, 20, 120


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that a stock TensorFlow Serving would refuse or stumble over.

    Attributes:
        rule: the rule's name, such as `unnamed-output`.
        folder: the version's folder, or the model's.
        where: the file, function and node, or signature and tensor; the first few of them where there are many.
        what: what is wrong there.
        why: what a server does then.
        fix: how to mend it.
    """

    rule: str
    folder: str
    where: str
    what: str
    why: str
    fix: str


@dataclasses.dataclass(frozen=True)
class Rule:
    """What a server minds, whatever the place: the part that findings of one kind share."""

    name: str
    why: str
    fix: str

    def at(self, where: str, what: str) -> Finding:
        """A finding; the folder is for whoever gathers those of a version to fill in."""
        return Finding(self.name, "", where, what, self.why, self.fix)

    def gather(self, found: Iterable[tuple[str, str]]) -> list[Finding]:
        """One finding for all places of the same trouble, and not many findings however many there are.

        Args:
            found: pairs of where and what.
        """
        places: dict[str, list[str]] = {}
        numbers: dict[str, int] = {}
        further = 0
        for where, what in found:
            if what not in places and len(places) == _FINDINGS:
                further += 1
                continue
            first = places.setdefault(what, [])
            numbers[what] = numbers.get(what, 0) + 1
            if len(first) < _PLACES:
                first.append(where)
        findings = []
        for what, first in places.items():
            more = numbers[what] - len(first)
            findings.append(self.at("; ".join(first) + (f"; and {more:,} more" if more else ""), what))
        if further:
            findings.append(self.at("elsewhere", f"{further:,} more findings of this kind"))
        return findings


def shown(name: str | bytes) -> str:
    """A name of somebody else's, fit for a terminal: in backticks, short, without control characters."""
    name = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
    if len(name) > _LETTERS:
        name = name[: _LETTERS - 20] + "..." + name[-17:]
    return "`" + "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in name) + "`"
