"""Which folder is a version, and which version is the newest: as TensorFlow Serving sees it."""

import pathlib
import re

import pytest
import tensorflow as tf

from zoo.serving import newest_version, versions
from zoo.serving.layout import check_loadable, models_within, version_folder


@pytest.fixture
def model(tmp_path):
    """A folder with the versions 2, 10 (empty) and 9 (named 09), and with entries that are not versions."""
    for name in ("2", "09", ".tiny.tmp-3", "old", "11.bak", "-12", "1e3", "१४", str(2**63)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "saved_model.pb").touch()
    (tmp_path / "10").mkdir()
    (tmp_path / "13").touch()
    return tmp_path


def test_versions_are_the_folders_named_by_integers_in_ascending_order(model):
    assert versions(str(model)) == versions(model)
    assert list(versions(model).items()) == [(2, model / "2"), (9, model / "09"), (10, model / "10")]


def test_newest_version_is_the_highest_that_holds_a_saved_model(model):
    assert newest_version(str(model)) == newest_version(model) == model / "09"


def test_the_models_in_a_folder_that_is_none(model):
    for name in "gfedcb":
        (model / "models" / name / "1").mkdir(parents=True)
        (model / "models" / name / "1" / "saved_model.pb").touch()
    named = ", ".join(str(model / "models" / name) for name in "bcdef")
    assert models_within(model / "models") == f"; the models in it are {named} and 1 more"
    assert models_within(model / "10") == ""


def test_a_folder_that_may_not_be_read_is_no_model_for_the_message(tmp_path, monkeypatch):
    """Also for the administrator, who may read what `chmod 000` hides."""
    (tmp_path / "a" / "1").mkdir(parents=True)
    (tmp_path / "a" / "1" / "saved_model.pb").touch()
    (tmp_path / "hidden").mkdir()
    iterdir = pathlib.Path.iterdir

    def refuse(path):
        if path.name == "hidden":
            raise PermissionError(13, "Permission denied", str(path))
        return iterdir(path)

    monkeypatch.setattr(pathlib.Path, "iterdir", refuse)
    assert models_within(tmp_path) == f"; the models in it are {tmp_path / 'a'}"


def test_a_version_is_its_own_newest(model):
    assert newest_version(model / "2") == model / "2"


@pytest.mark.parametrize("name", ["10", "13", "nowhere", "13/nowhere"])
def test_what_holds_no_saved_model_has_no_version(model, name):
    assert versions(model / name) == {}
    assert newest_version(model / name) is None


def test_a_file_is_told(tmp_path):
    file = tmp_path / "model.keras"
    file.touch()
    with pytest.raises(FileNotFoundError, match=r"; it is a file: give the folder of an exported model$"):
        version_folder(file)


@pytest.mark.parametrize(
    ("file", "what"), [("recipe.json", "a training run"), ("config.json", "a Hugging Face checkpoint")]
)
def test_what_can_be_exported_is_told_with_the_way_to_a_model(tmp_path, file, what):
    (tmp_path / file).write_text("{}")
    assert models_within(tmp_path) == f"; it is {what}, which `zoo export {tmp_path}` exports"


@pytest.mark.parametrize("place", ["", "3"])
def test_a_saved_model_as_text_is_named(tmp_path, place):
    (tmp_path / place).mkdir(exist_ok=True)
    file = tmp_path / place / "saved_model.pbtxt"
    file.touch()
    told = f"; {file} is a SavedModel as text, which the zoo does not read; export it as saved_model.pb"
    with pytest.raises(FileNotFoundError, match=f"{re.escape(told)}$"):
        version_folder(tmp_path)


@pytest.mark.parametrize("name", ["a[1]", "a[b/c]d", "a\\b", "a[b", "a]b[", "a*b?", "é {a} 'b'"])
def test_paths_from_which_tensorflow_loads(tmp_path, name):
    module = tf.Module()
    module.weight = tf.Variable([1.0])
    folder = tmp_path / name
    tf.saved_model.save(module, str(folder))
    try:
        tf.saved_model.load(str(folder))
    except FileNotFoundError:
        with pytest.raises(ValueError, match="loads no model from a path with brackets"):
            check_loadable(folder)
    else:
        check_loadable(folder)
