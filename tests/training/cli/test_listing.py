"""What `zoo list` shows."""

import json

import pytest
from zoo_training.cli.listing import print_models, print_recipes
from zoo_training.schema.recipe import read_recipe, recipe_names


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")


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
    version(
        "sentences/1",
        {"bleu": {"score": 41.016, "low": 39.62, "high": 42.4}, "exact_match": 0.1, "total": 1000, "split": "test"},
    )
    version("halves/1", {"bleu": 3, "exact_match": 0.1, "total": 1000, "split": "test"})
    version("bare/7")
    version("strange/1", ["no metrics of ours"])
    version("older/1", {"exact_match": None, "total": 9, "split": "test"})
    (tmp_path / "broken" / "3").mkdir(parents=True)
    (tmp_path / "no model").mkdir()
    (tmp_path / "file").touch()
    return tmp_path


def rows(printed):
    return {line.split()[0].rpartition("/")[2]: " ".join(line.split()[1:]) for line in printed.splitlines()[1:]}


def test_every_recipe_with_its_description(capsys):
    print_recipes()
    assert rows(capsys.readouterr().out) == {name: read_recipe(name).description for name in recipe_names()}


def test_every_model_with_the_score_of_its_newest_version(models, capsys):
    print_models(models)
    assert rows(capsys.readouterr().out) == {
        "bare": "7 no metrics.json",
        "broken": "3 no version holds a SavedModel",
        "older": "1 no metrics.json",
        "halves": "1 no metrics.json",
        "scored": "1, 2 98.77% exact match on 12,345 validation pairs",
        "sentences": "1 41.02 [39.6, 42.4] BLEU on 1,000 test pairs",
        "strange": "1 no metrics.json",
    }


@pytest.mark.parametrize("name", ["nowhere", "no model", "file"])
def test_where_there_are_none(models, capsys, name):
    print_models(models / name)
    assert capsys.readouterr().out == f"no exported models in {models / name}/\n"
