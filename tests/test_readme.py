"""The README's blocks run, and its commands exist."""

import pathlib
import re

import pytest
from typer.testing import CliRunner

from training.cli import app

ROOT = pathlib.Path(__file__).parent.parent
PAGE = ROOT / "README.md"
README = PAGE.read_text(encoding="utf-8")


def test_there_are_blocks_to_run():
    assert README.count("```python\n") >= 4


@pytest.mark.slow
def test_python_block_runs(block, monkeypatch):
    monkeypatch.chdir(ROOT)
    exec(compile(block, "README.md", "exec"), {})


def test_committed_model_answers_as_the_readme_says():
    import zoo

    dates = zoo.load(ROOT / "saved_models" / "dates" / "1")
    assert dates(["21 नवंबर 2026", "२१ नवंबर २०२६", "samedi 21 novembre 2026"]) == ["2026-11-21"] * 3


@pytest.mark.parametrize("command", sorted(set(re.findall(r"\bzoo (\w+) [A-Zm\[]", README)) | {"list"}))
def test_command_exists(command):
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0, result.output


def test_link_leads_somewhere(link):
    assert (ROOT / link).exists()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"^make (\w+)", README, re.MULTILINE))))
def test_make_target_exists(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
