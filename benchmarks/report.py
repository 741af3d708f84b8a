"""Writes the documents' figures from `results/`: `benchmarks/README.md`, and two tables of the README.

python benchmarks/report.py
"""

from __future__ import annotations

import ast
import json
import pathlib
import re
from typing import Any

from results import FOLDER, KINDS, Table

HERE = pathlib.Path(__file__).parent
README = HERE.parent / "README.md"
# In the order in which they run and are shown.
SCRIPTS = (
    "attention",
    "long_attention",
    "rnn_training",
    "translation_training",
    "gpt_training",
    "fine_tuning",
    "input_pipeline",
    "onednn",
    "generation",
    "serving",
    "distilled",
    "shortlist",
    "opus_mt",
    "embedding",
    "tokenizing",
    "load",
    "batch",
    "workers",
    "thought_vector",
    "trained",
    "imported_translator",
    "language_identification",
    "pronunciation",
    "published_pronunciation",
)
PICTURES = {
    "thought_vector": "![Exact match by source length](thought_vector.png)",
    "trained": "![BLEU by source length of the three models](bleu_by_length.png)",
}

INTRODUCTION = """# Benchmarks

This page shows how fast the zoo is, against peers measured in the same run, and what its models score.

Each script answers one question. Machines are noisy, so an absolute time means little. Contestants take turns of a few
steps, each in its own process ([`harness.py`](harness.py)), and what counts is the ratio: the peer's time divided by
ours, **above 1x if ours is faster**, as the median over the rounds with its range. Run them while nothing else runs.

```sh
make bench                                        # all but the longest, in 35 to 50 minutes; installs the peers
.venv/bin/python benchmarks/serving.py --help     # one of them; --record stores its figures
```

`benchmarks/report.py` writes this page from the figures that the scripts store in [`results/`](results), by the kind
of processor. Kinds differ by the fastest instruction set, which decides how fast matrix products are.
[`notes.md`](notes.md) says what was tried, and what it gained.
"""


def main() -> None:
    """Writes both files."""
    (HERE / "README.md").write_text(page(), encoding="utf-8")
    README.write_text(with_figures(README.read_text(encoding="utf-8")), encoding="utf-8")


def page() -> str:
    """`README.md`: the question, the method and the figures of each script."""
    return "\n".join([INTRODUCTION, *(section(script) for script in SCRIPTS if kept(script))])


def with_figures(readme: str) -> str:
    """The README with its two tables of figures filled in."""
    for name, table in (("models", models()), ("times", times())):
        begin, end = f"<!-- {name}: written by benchmarks/report.py -->\n", f"<!-- end of {name} -->"
        if begin not in readme or end not in readme:
            raise ValueError(f"README.md has no place for the figures between {begin.strip()!r} and {end!r}")
        before, rest = readme.split(begin)
        readme = f"{before}{begin}\n{table}\n\n{end}{rest.split(end)[1]}"
    return readme


def section(script: str) -> str:
    """A script's part of the page."""
    question, *paragraphs = documentation(script).strip().split("\n\n")
    text = "\n\n".join(as_block(each) for each in paragraphs)
    runs = [run(kept(script)[kind], KINDS.get(kind, "")) for kind in kept(script)]
    parts = [f"## {script}.py: {lower(question)}", text, *runs, PICTURES.get(script, "")]
    return "\n\n".join(filter(None, parts)) + "\n"


def run(found: dict[str, Any], kind: str) -> str:
    """What one run of a script found, with the kind of processor above it, if that matters."""
    versions = ", ".join(" ".join(each) for each in found["versions"].items())
    origin = f"`{found['command']}` on {found['date']}{lasted(found['seconds'])}; {found['machine']}; {versions}."
    tables = [str(Table(**table)) for table in found["tables"]]
    heading = f"### {kind}" if kind else ""
    return "\n\n".join(filter(None, [heading, origin, *tables, *found["notes"]]))


def lasted(seconds: int) -> str:
    """How long it took, after a comma; empty if it took no time."""
    if not seconds:
        return ""
    return f", {seconds} s" if seconds < 90 else f", {seconds / 60:.0f} min"


def documentation(script: str) -> str:
    """A script's docstring."""
    return ast.get_docstring(ast.parse((HERE / f"{script}.py").read_text(encoding="utf-8"))) or ""


def as_block(paragraph: str) -> str:
    """A paragraph; an indented one becomes a block of commands."""
    if not paragraph.startswith("    "):
        return paragraph
    return "```sh\n" + re.sub(r"^    ", "", paragraph, flags=re.MULTILINE) + "\n```"


def lower(question: str) -> str:
    """A question after a colon."""
    return question[0].lower() + question[1:]


def times() -> Table:
    """The peers' times divided by ours, one row for each question, one column for each kind of processor."""
    found: dict[str, dict[str, dict[str, str]]] = {}  # by question, peer and kind
    for script in SCRIPTS:
        for kind, figures in kept(script).items():
            for each in figures["headlines"]:
                found.setdefault(each["what"], {}).setdefault(each["peer"], {})[kind] = each["ratio"]
    kinds = [kind for kind in KINDS if any(kind in ratios for peers in found.values() for ratios in peers.values())]
    rows = []
    for what, peers in found.items():
        cells = []
        for kind in kinds:
            ratios = [ratios.get(kind, "") for ratios in peers.values()]
            cells.append("; ".join(ratio or "-" for ratio in ratios) if any(ratios) else "")
        rows.append([what, "; ".join(peers), *cells])
    return Table("", ["", "against", *(KINDS[kind] for kind in kinds)], rows)


def models() -> Table:
    """The models that recipes train, with their scores."""
    return Table(**kept("trained")[""]["tables"][0])


def kept(script: str) -> dict[str, dict[str, Any]]:
    """A script's figures by kind of processor, in the order of `KINDS`; the kind of figures without times is empty."""
    files = {kind: FOLDER / kind / f"{script}.json" for kind in ("", *KINDS)}
    return {kind: json.loads(file.read_text(encoding="utf-8")) for kind, file in files.items() if file.is_file()}


if __name__ == "__main__":
    main()
