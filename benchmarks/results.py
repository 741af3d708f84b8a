"""The results of a benchmark as tables: printed, stored in `results/`, and shown in the documents.

A script adds `--record` to its options (`options`), and its tables and headlines to a `Recording`. With `--record` they
are stored, by the kind of processor: `results/avx512/attention.json`. So each kind keeps its figures when another one
is measured. `report.py` writes the documents from the stored files, so no figure there is typed by hand.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import shlex
import statistics
import sys
import time
from collections.abc import Sequence

from harness import Timing

from zoo.local_workers import cores

FOLDER = pathlib.Path(__file__).parent / "results"


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of Markdown.

    Attributes:
        caption: a line above it, or nothing.
        columns: the headings.
        rows: each with one cell for each column.
    """

    caption: str
    columns: list[str]
    rows: list[list[str]]

    def __str__(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return f"{self.caption}:\n\n{table}" if self.caption else table


@dataclasses.dataclass(frozen=True)
class Headline:
    """The README's figure for a benchmark: a peer's time divided by ours."""

    what: str
    peer: str
    ratio: str


def ratio(theirs: Timing, ours: Timing) -> float:
    """Their time divided by ours: the median over the rounds. The turns of a round share the machine's state."""
    return statistics.median(_ratios(theirs, ours))


def spread(theirs: Timing, ours: Timing) -> str:
    """The range of that over the rounds, as `1.69x - 1.85x`."""
    found = _ratios(theirs, ours)
    return f"{min(found):.2f}x - {max(found):.2f}x"


def _ratios(theirs: Timing, ours: Timing) -> list[float]:
    return [one / other for one, other in zip(theirs.rounds, ours.rounds, strict=True)]


def compared(timings: Sequence[Timing], caption: str = "", unit: str = "ms a step") -> Table:
    """A table of the medians, and of each time divided by the first, with the range over the rounds."""
    ours = timings[0]
    rows = [[ours.name, f"{ours.median * 1e3:.1f}", "", ""]]
    rows += [
        [each.name, f"{each.median * 1e3:.1f}", f"{ratio(each, ours):.2f}x", spread(each, ours)] for each in timings[1:]
    ]
    return Table(caption, ["", f"median {unit}", "its time / ours", "range over the rounds"], rows)


def options(documentation: str, rounds: int | None = None) -> argparse.ArgumentParser:
    """The options that every script has.

    Args:
        documentation: the script's docstring.
        rounds: the default number of turns of each contestant, in a benchmark with turns.
    """
    parser = argparse.ArgumentParser(description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter)
    if rounds is not None:
        parser.add_argument(
            "--rounds", type=int, default=rounds, help="turns each contestant takes (default %(default)s)"
        )
    parser.add_argument("--record", action="store_true", help="keep the figures for the documents, in results/")
    return parser


class Recording:
    """What one run of a script finds; as a context, it keeps it at the end if it was asked to.

    Args:
        script: the script's `__file__`.
        record: whether to keep it.
        packages: whose versions matter.
        timed: whether it depends on the processor. Figures that do not, such as scores, have one file.
    """

    def __init__(self, script: str, record: bool, *packages: str, timed: bool = True):
        self.name = pathlib.Path(script).stem
        self.record = record
        self.timed = timed
        self.tables: list[Table] = []
        self.headlines: list[Headline] = []
        self.notes: list[str] = []
        self.versions = {"Python": platform.python_version()} | {
            each: importlib.metadata.version(each) for each in packages
        }
        self.begin = time.monotonic()

    def __enter__(self) -> Recording:
        print(machine(), ", ".join(" ".join(each) for each in self.versions.items()), sep="\n", flush=True)
        return self

    def __exit__(self, kind, error, traceback) -> None:
        if kind is None and self.record:
            self.write()

    def table(self, table: Table) -> None:
        """Prints a table, and keeps it."""
        print(f"\n{table}", flush=True)
        self.tables.append(table)

    def note(self, sentence: str) -> None:
        """Prints a sentence that stands below the tables, and keeps it."""
        print(f"\n{sentence}", flush=True)
        self.notes.append(sentence)

    def headline(self, what: str, peer: str, *ratios: float) -> None:
        """Keeps what the README says: a ratio, or the least and the largest of several."""
        least, largest = f"{min(ratios):.1f}x", f"{max(ratios):.1f}x"
        self.headlines.append(Headline(what, peer, least if least == largest else f"{least} to {largest}"))

    def write(self) -> None:
        """Writes `results/KIND/NAME.json`, or `results/NAME.json` for what is not timed."""
        arguments = [each for each in sys.argv[1:] if each != "--record"]
        content = {
            "command": shlex.join(["python", f"benchmarks/{self.name}.py", *arguments]),
            "date": datetime.date.today().isoformat(),
            "seconds": round(time.monotonic() - self.begin),
            "machine": machine(),
            "versions": self.versions,
            "tables": [dataclasses.asdict(each) for each in self.tables],
            "notes": self.notes,
            "headlines": [dataclasses.asdict(each) for each in self.headlines],
        }
        folder = FOLDER / kind_of_processor() if self.timed else FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(content, ensure_ascii=False, indent=1) + "\n"
        (folder / f"{self.name}.json").write_text(text, encoding="utf-8")


# The flag of /proc/cpuinfo for each instruction set that decides the speed of a product, the fastest first.
INSTRUCTION_SETS = {"amx_tile": "AMX", "avx512f": "AVX-512", "avx2": "AVX2"}
# The kinds of processors in the documents: the folder of each, and what it is called.
KINDS = {"avx512": "AVX-512", "amx": "AVX-512 and AMX", "avx2": "AVX2 alone", "other": "other"}


def kind_of_processor() -> str:
    """The folder of this processor's figures, a key of `KINDS`."""
    fastest = next((name for name in INSTRUCTION_SETS.values() if name in instruction_sets()), "other")
    return fastest.lower().replace("-", "")


def machine() -> str:
    """The processor, its fastest instruction sets, its cores and the memory, as far as the system tells."""
    processor = _of_processor("model name") or platform.processor() or platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return ", ".join([f"{cores()} cores of {processor}", *instruction_sets(), f"{memory:.0f} GiB"])


def instruction_sets() -> list[str]:
    """Those of `INSTRUCTION_SETS` that the processor has."""
    flags = _of_processor("flags").split()
    return [name for flag, name in INSTRUCTION_SETS.items() if flag in flags]


def _of_processor(name: str) -> str:
    """A line of /proc/cpuinfo; empty where the system has none."""
    try:
        found = re.search(rf"^{name}\s*:\s*(.+)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        return ""
    return found[1] if found else ""
