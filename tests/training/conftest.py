"""A real training of a few seconds, by the command `zoo`, that the tests of training share."""

import pathlib
import random
import subprocess
import sys

import pytest
from command_line import run
from zoo_training import ragged
from zoo_training.schema.recipe import read_recipe

# Words and a digit -> the same backwards, in capitals. To be right on a word not seen before takes attention that
# runs from the end to the beginning.
RECIPE = """
description = "words backwards"

[corpus]
kind = "text"
train = "words.tsv"

[model]
units = 64
embedding_dim = 16

[training]
batch_size = 32
epochs = 4
learning_rate = 1e-2
buckets = 1
jit_compile = false

[lengths]
max_source = 12
max_target = 12
"""


def write_words(path, number=2200):
    chance, words = random.Random(0), set()
    while len(words) < number:
        letters = chance.choices("abcdef", k=chance.randint(1, 5))
        words.add("".join(letters) + chance.choice("0123456789"))
    lines = [f"{word}\t{word[::-1].upper()}\n" for word in sorted(words)]
    chance.shuffle(lines)
    path.write_text("".join(lines), encoding="utf-8")


def pytest_collection_modifyitems(items):
    """Whatever needs the training is slow."""
    for item in items:
        if "training" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def eager_unless_long(request):
    """For modules whose quick tests prepare trainings, and whose long ones train: see `eager`."""
    if request.node.get_closest_marker("long") is None:
        request.getfixturevalue("eager")


@pytest.fixture
def without_export(monkeypatch):
    """Where the exported graphs are not what the test is about: trainings write the card and the metrics alone."""

    def export(task, path, files, **options):
        version = pathlib.Path(path, "1")
        version.mkdir(parents=True)
        for name, content in files(version).items():
            (version / name).write_text(content, encoding="utf-8")
        return version

    monkeypatch.setattr("zoo_training.run.export", export)
    monkeypatch.setattr("zoo_training.run.serving_metrics", lambda *_: {})


@pytest.fixture
def small(monkeypatch):
    """A memory so small that nearly every corpus goes to files."""
    monkeypatch.setattr(ragged, "IN_MEMORY", 300)
    monkeypatch.setattr(ragged, "_AT_ONCE", 7)
    monkeypatch.setattr(ragged, "_BUFFER", 64)
    monkeypatch.setattr(ragged, "_USUAL", 10)


@pytest.fixture(scope="session")
def zoo_command():
    """Runs the command `zoo` in a new process."""

    def run(*arguments, cwd, **options):
        command = [pathlib.Path(sys.executable).with_name("zoo"), *arguments]
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False, **options)

    return run


@pytest.fixture(scope="session")
def workplace(shared_folder, once):
    """A folder with a corpus and a recipe, which all workers of xdist share."""
    folder = shared_folder / "workplace"
    folder.mkdir(exist_ok=True)
    with once(folder / "backwards.toml") as first:
        if first:
            write_words(folder / "words.tsv")
            (folder / "backwards.toml").write_text(RECIPE, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def recipe(workplace):
    return read_recipe(str(workplace / "backwards.toml"), [f'corpus.train="{workplace / "words.tsv"}"'])


@pytest.fixture(scope="session")
def training(workplace, once):
    """What `zoo train backwards.toml` prints on stderr; it leaves a run and a model in the workplace."""
    told = workplace / "told"
    with once(told) as first, pytest.MonkeyPatch.context() as patch:
        if first:
            patch.chdir(workplace)
            patch.setattr(sys, "argv", ["zoo", "train", "backwards.toml"])
            finished = run("train", "backwards.toml")
            assert (finished.exit_code, finished.stdout) == (0, ""), finished.output
            told.write_text(finished.stderr, encoding="utf-8")
    return told.read_text(encoding="utf-8")


@pytest.fixture
def trained(training, workplace, monkeypatch):
    """The workplace after the training, as the working directory."""
    monkeypatch.chdir(workplace)
    return workplace
