"""Writes the documents' figures from what the benchmarks have kept: `README.md` here, and two tables of the README.

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
# In the order in which they are told, which is that in which they run.
SCRIPTS = (
    "attention",
    "long_attention",
    "rnn_training",
    "translation_training",
    "gpt_training",
    "generation",
    "serving",
    "tokenizing",
    "load",
    "thought_vector",
    "trained",
)
PICTURES = {
    "thought_vector": "![Exact match by source length](thought_vector.png)",
    "trained": "![BLEU by source length of the three models](bleu_by_length.png)",
}

INTRODUCTION = """# Benchmarks

One script a question, each against a peer in the same run. Contestants take turns of a few steps, each in a process of
its own ([`harness.py`](harness.py)), because machines are noisy: an absolute time means little. What means something is
how many times as long as ours a peer takes, **above 1x where ours is faster**: the median over the rounds, with its
range. Run them while nothing else runs.

```sh
make bench                                        # all that fit in 20 minutes; sets up the peers
.venv/bin/python benchmarks/serving.py --help     # one of them; --record keeps its figures
```

This page is written by `benchmarks/report.py` from the figures in [`results/`](results), which the scripts keep. What
was tried to get there, what it brought and what not, is in [`notes.md`](notes.md).
"""


def main() -> None:
    """Writes both files."""
    (HERE / "README.md").write_text(page(), encoding="utf-8")
    README.write_text(with_figures(README.read_text(encoding="utf-8")), encoding="utf-8")


def page() -> str:
    """`README.md`: of each script the question, how it is asked, and what was found."""
    return "\n".join([INTRODUCTION, *(section(script) for script in SCRIPTS if kept(script).is_file())])


def with_figures(readme: str) -> str:
    """The README with its two tables of figures as they were found last."""
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
    """How long it took, after a comma; nothing of what takes no time."""
    if not seconds:
        return ""
    return f", {seconds} s" if seconds < 90 else f", {seconds / 60:.0f} min"


def documentation(script: str) -> str:
    """A script's docstring."""
    return ast.get_docstring(ast.parse((HERE / f"{script}.py").read_text(encoding="utf-8"))) or ""


def as_block(paragraph: str) -> str:
    """A paragraph, as a block of commands if it is indented."""
    if not paragraph.startswith("    "):
        return paragraph
    return "```sh\n" + re.sub(r"^    ", "", paragraph, flags=re.MULTILINE) + "\n```"


def lower(question: str) -> str:
    """A question after a colon."""
    return question[0].lower() + question[1:]


def times() -> Table:
    """How many times as long as ours the peers take: a row a question."""
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
    """Where a script's figures are."""
    return FOLDER / f"{script}.json"


if __name__ == "__main__":
    main()
