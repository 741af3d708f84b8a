"""The documents' figures are those that the benchmarks kept."""

import json
import pathlib
import re

import pytest
import report

ROOT = pathlib.Path(__file__).parents[2]


def test_page_shows_what_was_kept():
    assert (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8") == report.page()


def test_readme_shows_what_was_kept():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme == report.with_figures(readme)


def test_readme_shows_some_questions_and_slower_answers_among_them():
    rows = report.times_by_peer().rows
    assert [what for what, *_ in rows] == [*report.IN_README]
    assert len(rows) < len(report.times().rows)
    assert sum(bool(re.search(r"\b0\.", " ".join(cells))) for _, *cells in rows) >= 3


def test_links_of_the_page_lead_to_its_headings():
    page = report.page()
    headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
    links = re.findall(r"\]\(#([^)]+)\)", report.contents())
    assert links == [report.anchor(heading) for heading in headings] and len(set(links)) == len(links)
    assert report.anchor("x.py: how fast is `zoo --file`, and what?") == "xpy-how-fast-is-zoo---file-and-what"


@pytest.mark.parametrize("script", report.SCRIPTS)
def test_every_benchmark_has_figures(script):
    section = report.section(script)
    assert section.startswith(f"## {script}.py: ")
    assert "|---" in section.replace(" ", "")


def test_every_script_is_in_the_page():
    machinery = {"harness", "results", "report", "run_all", "ctranslate2_model"}
    assert {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - machinery == set(report.SCRIPTS)


def test_figures_stand_between_their_marks(monkeypatch):
    begin, end = "<!-- {0}: written by benchmarks/report.py -->\n", "<!-- end of {0} -->"
    both = [text.format(name) for name in ("models", "times") for text in (begin, end)]
    monkeypatch.setattr(report, "models", lambda: "MODELS")
    monkeypatch.setattr(report, "times_by_peer", lambda: "TIMES")
    found = report.with_figures(f"a\n{both[0]}old\n{both[1]}\nb\n{both[2]}{both[3]}\nc\n")
    assert found == f"a\n{both[0]}\nMODELS\n\n{both[1]}\nb\n{both[2]}\nTIMES\n\n{both[3]}\nc\n"
    with pytest.raises(ValueError, match="no place for the figures between '<!-- models"):
        report.with_figures("a")


def test_kinds_of_processors_stand_side_by_side(tmp_path, monkeypatch):
    def figures(machine, *headlines):
        told = [dict(zip(("what", "peer", "ratio"), each, strict=True)) for each in headlines]
        common = {"command": "c", "date": "d", "seconds": 0, "versions": {}, "notes": []}
        return json.dumps({**common, "machine": machine, "headlines": told, "tables": []})

    monkeypatch.setattr(report, "FOLDER", tmp_path)
    monkeypatch.setattr(report, "SCRIPTS", ("serving", "attention"))
    for kind in ("amx", "avx512"):
        (tmp_path / kind).mkdir()
    (tmp_path / "amx" / "serving.json").write_text(figures("Xeon", ("one", "A", "2.0x"), ("one", "B", "3.0x")))
    (tmp_path / "avx512" / "serving.json").write_text(figures("EPYC", ("one", "A", "4.0x")))
    (tmp_path / "avx512" / "attention.json").write_text(figures("EPYC", ("two", "C", "5.0x")))
    assert report.times().columns == ["", "against", "AVX-512", "AVX-512 and AMX"]
    assert report.times().rows == [["one", "A; B", "4.0x; -", "2.0x; 3.0x"], ["two", "C", "5.0x", ""]]
    section = report.section("serving")
    assert section.index("### AVX-512\n\n`c` on d; EPYC") < section.index("### AVX-512 and AMX\n\n`c` on d; Xeon")


def test_readme_has_the_range_over_processors_for_each_peer(monkeypatch):
    found = {
        "one": {"plain PyTorch": {"amx": "10.0x", "avx2": "0.9x to 2.0x"}, "KerasHub, XLA": {"amx": "3.0x"}},
        "two": {"Keras' layer": {"amx": "1.1x"}, "PyTorch's": {"amx": "0.7x"}},
        "three": {},
    }
    monkeypatch.setattr(report, "ratios", lambda: found)
    monkeypatch.setattr(report, "IN_README", ("two", "one"))
    monkeypatch.setattr(report, "PEERS", {"PyTorch": "PyTorch", "Keras": "Keras and its hub", "X": "x"})
    assert report.times_by_peer().columns == ["", "PyTorch", "Keras and its hub", "x"]
    assert report.times_by_peer().rows == [["two", "0.7x", "1.1x", ""], ["one", "0.9x to 10.0x", "3.0x", ""]]


def test_documentation_becomes_a_page():
    assert report.as_block("A paragraph.") == "A paragraph."
    assert report.as_block("    one\n    two  # comment") == "```sh\none\ntwo  # comment\n```"
    assert report.lower("How fast is it?") == "how fast is it?"
    assert report.listed(["One note."]) == "One note."
    assert report.listed(["One note.", "Another."]) == "- One note.\n- Another."
