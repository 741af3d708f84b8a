"""Writes the documents' figures from `results/`: `benchmarks/README.md`, and two tables of the README.

python benchmarks/report.py
"""

from __future__ import annotations

import ast
import json
import pathlib
import re

from results import FOLDER, Table

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
make bench                                        # all that fit in 20 minutes; installs the peers
.venv/bin/python benchmarks/serving.py --help     # one of them; --record stores its figures
```

`benchmarks/report.py` writes this page from the figures that the scripts store in [`results/`](results).
[`notes.md`](notes.md) says what was tried, and what it brought.
"""


def main() -> None:
    """Writes both files."""
    (HERE / "README.md").write_text(page(), encoding="utf-8")
    README.write_text(with_figures(README.read_text(encoding="utf-8")), encoding="utf-8")


def page() -> str:
    """`README.md`: the question, the method and the figures of each script."""
    return "\n".join([INTRODUCTION, *(section(script) for script in SCRIPTS if kept(script).is_file())])


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
    found = json.loads(kept(script).read_text(encoding="utf-8"))
    question, *paragraphs = documentation(script).strip().split("\n\n")
    text = "\n\n".join(as_block(each) for each in paragraphs)
    versions = ", ".join(" ".join(each) for each in found["versions"].items())
    origin = f"`{found['command']}` on {found['date']}{lasted(found['seconds'])}; {found['machine']}; {versions}."
    tables = [str(Table(**table)) for table in found["tables"]]
    parts = [f"## {script}.py: {lower(question)}", text, origin, *tables, *found["notes"], PICTURES.get(script, "")]
    return "\n\n".join(filter(None, parts)) + "\n"


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
    """The peers' times divided by ours, one row for each question."""
    peers: dict[str, list[tuple[str, str]]] = {}
    for script in SCRIPTS:
        if kept(script).is_file():
            for each in json.loads(kept(script).read_text(encoding="utf-8"))["headlines"]:
                peers.setdefault(each["what"], []).append((each["peer"], each["ratio"]))
    rows = [[what, *("; ".join(each) for each in zip(*found, strict=True))] for what, found in peers.items()]
    return Table("", ["", "against", "theirs / ours"], rows)


def models() -> Table:
    """The models that recipes train, with their scores."""
    return Table(**json.loads(kept("trained").read_text(encoding="utf-8"))["tables"][0])


def kept(script: str) -> pathlib.Path:
    """The file of a script's figures."""
    return FOLDER / f"{script}.json"


if __name__ == "__main__":
    main()
