"""The documents' figures are those that the benchmarks kept."""

import pathlib

import pytest
import report

ROOT = pathlib.Path(__file__).parents[2]


def test_page_shows_what_was_kept():
    assert (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8") == report.page()


def test_readme_shows_what_was_kept():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme == report.with_figures(readme)


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
    monkeypatch.setattr(report, "times", lambda: "TIMES")
    found = report.with_figures(f"a\n{both[0]}old\n{both[1]}\nb\n{both[2]}{both[3]}\nc\n")
    assert found == f"a\n{both[0]}\nMODELS\n\n{both[1]}\nb\n{both[2]}\nTIMES\n\n{both[3]}\nc\n"
    with pytest.raises(ValueError, match="no place for the figures between '<!-- models"):
        report.with_figures("a")


def test_documentation_becomes_a_page():
    assert report.as_block("A paragraph.") == "A paragraph."
    assert report.as_block("    one\n    two  # comment") == "```sh\none\ntwo  # comment\n```"
    assert report.lower("How fast is it?") == "how fast is it?"
