"""What is said where a package of an extra is missing."""

import sys

import pytest
import typer

from zoo.extras import MissingExtraError, needs

ADVICE = r"babel is not installed: this needs `pip install 'attention-zoo\[train\]'`"


@pytest.fixture
def without_babel(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "babel"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "babel", None)


def test_the_extra_is_named(without_babel):
    with pytest.raises(MissingExtraError, match=f"^{ADVICE}$") as caught, needs("train"):
        import babel  # noqa: F401
    assert caught.value.name == "babel"


def test_other_errors_pass():
    with pytest.raises(ValueError, match=r"^mine$"), needs("train"):
        raise ValueError("mine")


def test_the_command_line_says_it_in_one_line(without_babel, capsys):
    from zoo_training.cli.shared import user_errors

    with pytest.raises(typer.Exit) as caught, user_errors(()), needs("train"):
        import babel  # noqa: F401
    assert caught.value.exit_code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_recipes_are_read_without_babel(without_babel, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("zoo_training.corpora", "zoo_training.schema"))]:
        monkeypatch.delitem(sys.modules, name)
    from zoo_training.schema.recipe import read_recipe

    recipe = read_recipe("dates")
    with pytest.raises(ModuleNotFoundError, match=f"^{ADVICE}$"):
        recipe.corpus.read("validation")
