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
# The parts of the page, with their scripts in the order in which they run and are shown.
GROUPS = {
    "Attention": ("attention", "long_attention"),
    "Training": ("rnn_training", "translation_training", "gpt_training", "fine_tuning", "input_pipeline", "workers"),
    "Decoding and serving": (
        "generation",
        "serving",
        "distilled",
        "shortlist",
        "opus_mt",
        "embedding",
        "onednn",
        "load",
        "batch",
    ),
    "Tokenizers": ("tokenizing",),
    "Scores": (
        "thought_vector",
        "trained",
        "imported_translator",
        "language_identification",
        "pronunciation",
        "published_pronunciation",
    ),
}
SCRIPTS = tuple(script for scripts in GROUPS.values() for script in scripts)
# The questions that the README answers: one of each sort, and among them those in which a peer is faster.
IN_README = (
    "`MultiHeadAttention`, forward pass and training step",
    "a training step, small GPT",
    "256 tokens of a small GPT, from the SavedModel",
    "32 texts translated with 5 beams, as a server does",
    "1 text translated with 5 beams, as a server does",
    "32 sentences to vectors, by an encoder of MiniLM's size",
    "byte-pair tokenizer, all cores, 64 texts at once",
)
# The columns of the README's table: what the name of a peer contains, and the column's title.
PEERS = {
    "PyTorch": "PyTorch",
    "Keras": "Keras, KerasHub",
    "transformers": "`transformers`",
    "CTranslate2": "CTranslate2",
    "tokenizers": "`tokenizers`",
}
PICTURES = {
    "thought_vector": "Without attention (black), the longer the line, the fewer are right:\n\n"
    "![Exact match by source length](thought_vector.png)",
    "trained": "BLEU by the length of the source, with its 95% interval. The model without attention (green) is behind "
    "at every length, and most at 16 to 20 words:\n\n"
    "![BLEU by source length of the three models](bleu_by_length.png)\n\n"
    "The picture is of 2026-11-21. Its transformer is an earlier one, with 40.19 BLEU.",
}

INTRODUCTION = """# Benchmarks

This page shows how fast the zoo is, compared with other libraries (*peers*) in the same run, and what its models score.

Each script answers one question. Machines are noisy, so an absolute time means little. The zoo and its peers take
turns of a few steps, each in its own process ([`harness.py`](harness.py)). What counts is the ratio: the peer's time
divided by the zoo's, **above 1x if the zoo is faster**. The tables show its median over the rounds, and its range. In
tables, "ours" means the zoo. PyTorch runs eagerly: `torch.compile` needs a C++ compiler, and was not measured. Run the
scripts while nothing else runs.

```sh
make bench                                        # all but the longest, in 25 to 40 minutes; installs the peers
.venv/bin/python benchmarks/serving.py --help     # one of them; --record stores its figures
```

`benchmarks/report.py` writes this page from the figures that the scripts store in [`results/`](results), by the kind
of processor. Kinds differ by the fastest instruction set, which decides how fast matrix products are.
[`notes.md`](notes.md) says what was tried, and what it gained.
"""

SUMMARY = """## Summary

Each cell is the peer's time or memory, divided by the zoo's: above 1x, the zoo is better. Semicolons separate the
peers, in the order of column 2. Columns are kinds of processor. An empty cell was not measured.
"""


def main() -> None:
    """Writes both files."""
    (HERE / "README.md").write_text(page(), encoding="utf-8")
    README.write_text(with_figures(README.read_text(encoding="utf-8")), encoding="utf-8")


def page() -> str:
    """`README.md`: links to the sections, all ratios, and the question, the method and the figures of each script."""
    return "\n".join([INTRODUCTION, contents(), SUMMARY, f"{times()}\n", *map(section, SCRIPTS)])


def contents() -> str:
    """Links to the sections, by the parts of the page."""
    lines = ["- [Summary](#summary)"]
    for group, scripts in GROUPS.items():
        lines.append(f"- {group}")
        for script in scripts:
            title = heading(script)
            name, question = title.split(": ", 1)
            lines.append(f"    - [{name}](#{anchor(title)}): {question}")
    return "\n".join(lines) + "\n"


def anchor(title: str) -> str:
    """What a link to a heading says after `#`."""
    return re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")


def with_figures(readme: str) -> str:
    """The README with its two tables of figures filled in."""
    for name, table in (("models", models()), ("times", times_by_peer())):
        begin, end = f"<!-- {name}: written by benchmarks/report.py -->\n", f"<!-- end of {name} -->"
        if begin not in readme or end not in readme:
            raise ValueError(f"README.md has no place for the figures between {begin.strip()!r} and {end!r}")
        before, rest = readme.split(begin)
        readme = f"{before}{begin}\n{table}\n\n{end}{rest.split(end)[1]}"
    return readme


def section(script: str) -> str:
    """A script's part of the page."""
    _, *paragraphs = documentation(script).strip().split("\n\n")
    text = "\n\n".join(as_block(each) for each in paragraphs)
    runs = [run(kept(script)[kind], KINDS.get(kind, "")) for kind in kept(script)]
    parts = [f"## {heading(script)}", text, *runs, PICTURES.get(script, "")]
    return "\n\n".join(filter(None, parts)) + "\n"


def heading(script: str) -> str:
    """A script's name and its question."""
    return f"{script}.py: {lower(documentation(script).splitlines()[0])}"


def run(found: dict[str, Any], kind: str) -> str:
    """What one run of a script found, with the kind of processor above it, if that matters."""
    versions = ", ".join(" ".join(each) for each in found["versions"].items())
    origin = f"`{found['command']}` on {found['date']}{lasted(found['seconds'])}; {found['machine']}; {versions}."
    tables = [str(Table(**table)) for table in found["tables"]]
    processor = f"### {kind}" if kind else ""
    return "\n\n".join(filter(None, [processor, origin, *tables, listed(found["notes"])]))


def listed(notes: list[str]) -> str:
    """The notes below the tables: a list, if there are several."""
    return "\n".join(notes if len(notes) < 2 else [f"- {note}" for note in notes])


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
    """All ratios: one row for each question, one column for each kind of processor."""
    found = ratios()
    kinds = [kind for kind in KINDS if any(kind in by_kind for peers in found.values() for by_kind in peers.values())]
    rows = []
    for what, peers in found.items():
        cells = []
        for kind in kinds:
            cell = [by_kind.get(kind, "") for by_kind in peers.values()]
            cells.append("; ".join(ratio or "-" for ratio in cell) if any(cell) else "")
        rows.append([what, "; ".join(peers), *cells])
    return Table("", ["", "against", *(KINDS[kind] for kind in kinds)], rows)


def times_by_peer() -> Table:
    """The ratios of the README: one column for each peer, the range over all kinds of processor."""
    found = ratios()
    rows = []
    for what in IN_README:
        cells: dict[str, list[str]] = {name: [] for name in PEERS}
        for peer, by_kind in found[what].items():
            name = next(name for name in PEERS if name in peer)
            cells[name] += re.findall(r"[\d.]+x", "; ".join(by_kind.values()))
        rows.append([what, *map(span, cells.values())])
    return Table("", ["", *PEERS.values()], rows)


def span(found: list[str]) -> str:
    """From the least to the greatest of ratios such as `1.2x`."""
    if not found:
        return ""
    least, greatest = (most(found, key=lambda ratio: float(ratio.removesuffix("x"))) for most in (min, max))
    return least if least == greatest else f"{least} to {greatest}"


def ratios() -> dict[str, dict[str, dict[str, str]]]:
    """The peers' times divided by the zoo's, by question, peer and kind of processor."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for script in SCRIPTS:
        for kind, figures in kept(script).items():
            for each in figures["headlines"]:
                found.setdefault(each["what"], {}).setdefault(each["peer"], {})[kind] = each["ratio"]
    return found


def models() -> Table:
    """The models that recipes train, with their scores."""
    return Table(**kept("trained")[""]["tables"][0])


def kept(script: str) -> dict[str, dict[str, Any]]:
    """A script's figures by kind of processor, in the order of `KINDS`; the kind of figures without times is empty."""
    files = {kind: FOLDER / kind / f"{script}.json" for kind in ("", *KINDS)}
    return {kind: json.loads(file.read_text(encoding="utf-8")) for kind, file in files.items() if file.is_file()}


if __name__ == "__main__":
    main()
