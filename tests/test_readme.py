"""The README's blocks run, and its commands exist."""

import pathlib
import re

import pytest
import tensorflow as tf
from typer.testing import CliRunner
from zoo_training.cli import app

ROOT = pathlib.Path(__file__).parent.parent
PAGE = ROOT / "README.md"
README = PAGE.read_text(encoding="utf-8")


def test_there_are_blocks_to_run():
    assert README.count("```python\n") >= 4


@pytest.mark.slow
def test_python_block_runs(block, monkeypatch, tmp_path):
    (tmp_path / "saved_models").symlink_to(ROOT / "saved_models")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {})


def test_committed_model_answers_as_the_readme_says():
    import zoo

    dates = zoo.load(ROOT / "saved_models" / "dates" / "1")
    assert dates(["21 नवंबर 2026", "२१ नवंबर २०२६", "samedi 21 novembre 2026"]) == ["2026-11-21"] * 3


def test_committed_language_model_goes_on():
    import zoo

    pydoc = zoo.load(ROOT / "saved_models" / "gpt-pydoc" / "1")
    [found] = pydoc.generate(["The yield expression"], max_new_tokens=60, seed=1)
    assert (found.tokens, len(found.text) > 60) == (60, True)
    manual, mixed = pydoc.score(["The yield expression is evaluated.", "evaluated is The expression yield."])
    assert manual.perplexity < 0.1 * mixed.perplexity


@pytest.mark.parametrize("name", ["dates", "gpt-pydoc"])
def test_committed_models_are_small_and_have_nothing_to_mend(name):
    import zoo

    version = ROOT / "saved_models" / name / "1"
    assert sum(file.stat().st_size for file in version.rglob("*") if file.is_file()) < 5e6
    assert {"README.md", "metrics.json", "recipe.json"} <= {file.name for file in version.iterdir()}
    assert zoo.serving.check(version) == []
    card = (version / "README.md").read_text(encoding="utf-8")
    assert [each for each in tf.saved_model.load(str(version)).signatures if f"`{each}`" not in card] == []


@pytest.mark.parametrize("command", sorted(set(re.findall(r"\bzoo ([\w-]+) [A-Zm\[]", README)) | {"list"}))
def test_command_exists(command):
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0, result.output


def test_link_leads_somewhere(link):
    assert (ROOT / link).exists()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"^make (\w+)", README, re.MULTILINE))))
def test_make_target_exists(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
