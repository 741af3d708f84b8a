"""`zoo.load`, and what importing the zoo costs."""

import ast
import json
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import zoo
from zoo import TextGenerator, Translator
from zoo.models import GPT, RNNSeq2Seq
from zoo.serving import ServableTranslator, export
from zoo.text import CharacterTokenizer


@pytest.fixture(scope="module")
def translator():
    source, target = CharacterTokenizer("abc"), CharacterTokenizer("zyx")
    return Translator(RNNSeq2Seq(source.size, target.size, units=4), source, target, max_target_length=5)


@pytest.fixture(scope="module")
def folder(translator, tmp_path_factory):
    """Everything that can be loaded."""
    folder = tmp_path_factory.mktemp("loading")
    translator.save(folder / "run" / "translator")
    export(translator, folder / "models" / "tiny")
    shutil.copytree(folder / "models" / "tiny" / "1", folder / "models" / "tiny" / "2")
    (folder / "models" / "tiny" / "3").mkdir()
    (folder / "empty").mkdir()
    (folder / "file").touch()
    return folder


@pytest.mark.parametrize("path", ["run/translator", "run"])
def test_a_saved_translator(folder, translator, path):
    loaded = zoo.load(str(folder / path))
    assert isinstance(loaded, Translator)
    for ours, theirs in zip(loaded.model.get_weights(), translator.model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_saved_generator(tmp_path):
    tokenizer = CharacterTokenizer("abc")
    generator = TextGenerator(GPT(tokenizer.size, units=4, num_heads=2, num_layers=1, context_length=8), tokenizer)
    generator.save(tmp_path / "run" / "generator")
    for path in (tmp_path / "run" / "generator", tmp_path / "run"):
        assert isinstance(zoo.load(path), TextGenerator)


def test_a_run_with_one_of_each_kind(tmp_path):
    for kind in ("translator", "generator"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / f"{kind}.json").touch()
    told = rf"holds models of several kinds; give {tmp_path}/translator or {tmp_path}/generator\.$"
    with pytest.raises(ValueError, match=told):
        zoo.load(tmp_path)


def test_an_exported_model_or_a_version_of_it(folder):
    """That it answers as what was exported is in `zoo.testing.TaskTests`."""
    for name, version in (("tiny", "2"), ("tiny/1", "1")):
        loaded = zoo.load(folder / "models" / name)
        assert isinstance(loaded, ServableTranslator)
        assert loaded.path == folder / "models" / "tiny" / version


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("nowhere", "does not exist"),
        ("empty", "holds no saved model of the zoo, no SavedModel and no checkpoint"),
        ("file", "holds no saved model of the zoo, no SavedModel and no checkpoint"),
        ("models/tiny/3", "holds no saved model of the zoo, no SavedModel and no checkpoint"),
    ],
)
def test_what_is_neither(folder, name, fault):
    with pytest.raises(FileNotFoundError, match=rf"{name} {fault}\.$"):
        zoo.load(folder / name)


def test_a_folder_of_runs_or_exports_names_them(folder):
    for name, model in (("models", "models/tiny"), (".", "run")):
        told = (
            f"holds no saved model of the zoo, no SavedModel and no checkpoint; the models in it are {folder}/{model}."
        )
        with pytest.raises(FileNotFoundError, match=re.escape(told) + "$"):
            zoo.load(folder / name)


def test_a_training_that_has_not_ended(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint.npz").touch()
    with pytest.raises(FileNotFoundError, match=r"run holds a training that has not ended; the command that began it"):
        zoo.load(tmp_path / "run")


def test_a_keras_file(folder):
    with pytest.raises(ValueError, match=r"model\.keras is a Keras file: .*load_model.* Wrap it: zoo\.Trans"):
        zoo.load(next(folder.rglob("model.keras")))


@pytest.mark.parametrize("file", ["translator.json", "model.keras"])
def test_half_a_translator(folder, tmp_path, file):
    shutil.copytree(folder / "run" / "translator", tmp_path / "half")
    (tmp_path / "half" / file).unlink()
    with pytest.raises(FileNotFoundError, match=rf"half is not a saved Translator: it has no {file}\.$"):
        Translator.load(tmp_path / "half")


@pytest.mark.parametrize(
    ("model", "file", "content", "told"),
    [
        ("run/translator", "translator.json", b"{}", r"damaged/translator\.json cannot be read; .* \(KeyError"),
        ("run/translator", "translator.json", b"", r"damaged/translator\.json cannot be read; it may be damaged \("),
        ("run/translator", "model.keras", None, r"damaged/model\.keras cannot be loaded; it may be damaged, or need"),
        ("run/translator", "model.keras", b"", r"damaged/model\.keras cannot be loaded; it may be damaged, or need"),
        ("models/tiny/1", "variables/variables.index", None, r"damaged cannot be loaded; its files may be damaged \("),
        (
            "models/tiny/1",
            "saved_model.pb",
            None,
            r"may be damaged \(.*\)\. `zoo check --run '.*/is damaged'` looks for",
        ),
        (
            "models/tiny/1",
            "saved_model.pb",
            b"",
            r"may be damaged \(.*\)\. `zoo check --run '.*/is damaged'` looks for",
        ),
    ],
)
def test_a_damaged_file_is_a_value_error(folder, tmp_path, model, file, content, told):
    shutil.copytree(folder / model, tmp_path / "is damaged")
    path = tmp_path / "is damaged" / file
    path.write_bytes(path.read_bytes()[:-60] if content is None else content)
    with pytest.raises(ValueError, match=told):
        zoo.load(tmp_path / "is damaged")


@pytest.mark.parametrize(("content", "error"), [(b"{}", "KeyError"), (b"[]", "TypeError"), (b'"a"', "AttributeError")])
def test_a_class_names_the_file_that_is_damaged(folder, tmp_path, content, error):
    shutil.copytree(folder / "run" / "translator", tmp_path / "damaged")
    (tmp_path / "damaged" / "translator.json").write_bytes(content)
    with pytest.raises(ValueError, match=rf"damaged/translator\.json cannot be read; .* \({error}: "):
        Translator.load(tmp_path / "damaged")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("beam_size", "a", r"`beam_size` must be an integer\. Received: beam_size='a'$"),
        ("max_source_length", "x", r"`max_source_length` must be an integer\. Received: max_source_length='x'$"),
        ("length_penalty", None, r"`length_penalty` must be a number\. Received: length_penalty=None$"),
        ("source_tokenizer", {"class": "Words"}, "Unknown tokenizer class 'Words'; known are "),
    ],
)
def test_a_value_that_is_refused(folder, tmp_path, name, value, told):
    shutil.copytree(folder / "run" / "translator", tmp_path / "changed")
    file = tmp_path / "changed" / "translator.json"
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), name: value}), "utf-8")
    with pytest.raises(ValueError, match=rf"changed/translator\.json: {told}"):
        zoo.load(tmp_path / "changed")


def test_a_setting_of_a_newer_version(folder, tmp_path):
    shutil.copytree(folder / "run" / "translator", tmp_path / "new")
    file = tmp_path / "new" / "translator.json"
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), "temperature": 1}), "utf-8")
    with pytest.raises(ValueError, match=r"it may be damaged, or of a newer version of the zoo \(.* 'temperature'\)$"):
        zoo.load(tmp_path / "new")


class TestImporting:
    def run(self, code):
        code = f"import sys; heavy = {{'tensorflow', 'keras', 'matplotlib', 'babel'}}; {code}"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

    def test_the_zoo_and_the_command_line_import_nothing_heavy(self):
        self.run("import zoo, zoo.serving, zoo.serving.layout, zoo_training.cli; assert not heavy & set(sys.modules)")

    def test_after_import_zoo_keras_loads_its_files(self, folder):
        """In a new process, where nothing else has imported the model's class; before Keras, and then after it."""
        path = str(folder / "run" / "translator")
        load = f"keras.models.load_model({path + '/model.keras'!r}, compile=False)"
        self.run(
            "import zoo; zoo.serving.versions; zoo.__version__; assert not heavy & set(sys.modules)\n"
            f"import keras\n{load}\n"
            "for name in [name for name in sys.modules if name.partition('.')[0] == 'zoo']: del sys.modules[name]\n"
            f"keras.saving.get_custom_objects().clear()\nimport zoo\n{load}; zoo.load({path!r})"
        )

    @pytest.mark.parametrize("module", [zoo, zoo.serving])
    def test_what_is_promised_is_there_and_nothing_else(self, module):
        assert all(getattr(module, name) for name in module.__all__)
        assert {"__name__", *module.__all__} <= set(dir(module))
        # Type checkers and editors do not run `__getattr__`: they read the stub beside it.
        stub = ast.parse(pathlib.Path(module.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
        names = {name.name for node in stub.body if isinstance(node, ast.ImportFrom) for name in node.names}
        assert names == {*module.__all__, *getattr(module, "_PACKAGES", ())}
        assert [ast.literal_eval(node.value) for node in stub.body if isinstance(node, ast.Assign)] == [module.__all__]
        with pytest.raises(AttributeError, match=rf"module '{module.__name__}' has no attribute 'Translater'"):
            _ = module.Translater
