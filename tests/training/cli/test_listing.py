"""What `zoo list` shows."""

import json
import pathlib

import pytest
from command_line import refuses, succeeds
from zoo_training.schema.recipe import read_recipe, recipe_names


@pytest.fixture(autouse=True)
def narrow_terminal(monkeypatch):
    """In a pipe, as here, it must not matter: a row is a line."""
    monkeypatch.setenv("COLUMNS", "40")


@pytest.fixture
def models(tmp_path):
    """Models: scored, in both ways; without metrics, with metrics of another kind, and without a whole version."""

    def version(name, metrics=None):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "saved_model.pb").touch()
        if metrics is not None:
            (tmp_path / name / "metrics.json").write_text(json.dumps(metrics))

    version("scored/1", {"exact_match": 0.1, "total": 9, "split": "test"})
    version("scored/2", {"exact_match": 0.98765, "total": 12345, "split": "validation"})
    bleu = {"score": 41.016, "low": 39.62, "high": 42.4}
    version("sentences/1", {"bleu": bleu, "exact_match": 0.1, "total": 1000, "split": "test"})
    version("halves/1", {"bleu": 3, "exact_match": 0.1, "total": 1000, "split": "test"})
    version("failed/1", {"not_scored": "OSError: disk full"})
    version("bare/7")
    version("strange/1", ["no metrics of ours"])
    version("[bold]x/1")
    (tmp_path / "broken" / "3").mkdir(parents=True)
    (tmp_path / "no model").mkdir()
    (tmp_path / "file").touch()
    return tmp_path


def rows(folder):
    """The table of recipes and that of models, by their first column."""
    recipes, models = succeeds("list", "--models", folder).split("exported model")
    prefix = f"{folder}/"
    return tuple(
        {first.removeprefix(prefix): " ".join(rest) for first, *rest in map(str.split, table.splitlines()[1:])}
        for table in (recipes, models)
    )


def test_every_recipe_and_every_model_with_the_score_of_its_newest_version(models):
    recipes, exported = rows(models)
    assert recipes == {name: read_recipe(name).description for name in recipe_names()}
    assert exported == {
        "[bold]x": "1 no metrics.json with scores",  # a name, no markup
        "bare": "7 no metrics.json with scores",
        "broken": "3 no version holds a SavedModel",
        "failed": "1 not scored",
        "halves": "1 no metrics.json with scores",
        "scored": "1, 2 98.77% exact match on 12,345 validation pairs",
        "sentences": "1 41.02 [39.6, 42.4] BLEU on 1,000 test pairs",
        "strange": "1 no metrics.json with scores",
    }


def test_where_there_are_none(models):
    for name in ("nowhere", "no model", "file"):
        assert succeeds("list", "--models", models / name).endswith(f"no exported models in {models / name}/\n")


def test_a_model_that_cannot_be_read_does_not_hide_the_others(models, monkeypatch):
    """Also for the administrator, who may read what `chmod 000` hides."""

    def iterdir(path):
        if path in denied:
            raise PermissionError(13, "Permission denied", str(path))
        return whole(path)

    denied, whole = {models / "scored"}, pathlib.Path.iterdir
    monkeypatch.setattr(pathlib.Path, "iterdir", iterdir)
    exported = rows(models)[1]
    assert exported["scored"] == "cannot be read: Permission denied"
    assert exported["sentences"].startswith("1 41.02")
    denied.add(models)
    assert refuses("list", "--models", models) == f"{models}: Permission denied"
