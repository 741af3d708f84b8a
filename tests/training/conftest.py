"""A real training of a few seconds, by the command `zoo`, that the tests of training share."""

import pathlib
import random
import subprocess
import sys

import pytest
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


@pytest.fixture(scope="session")
def zoo_command():
    """Runs the command `zoo` in a new process."""

    def run(*arguments, cwd, **options):
        command = [pathlib.Path(sys.executable).with_name("zoo"), *arguments]
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False, **options)

    return run


@pytest.fixture(scope="session")
def workplace(tmp_path_factory):
    """A folder with a corpus and a recipe."""
    folder = tmp_path_factory.mktemp("workplace")
    write_words(folder / "words.tsv")
    (folder / "backwards.toml").write_text(RECIPE, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def recipe(workplace):
    return read_recipe(str(workplace / "backwards.toml"), [f'corpus.train="{workplace / "words.tsv"}"'])


@pytest.fixture(scope="session")
def training(workplace, zoo_command):
    """The finished process of `zoo train backwards.toml`, which leaves a run and a model in the workplace."""
    finished = zoo_command("train", "backwards.toml", cwd=workplace)
    assert finished.returncode == 0, finished.stderr
    return finished


@pytest.fixture
def trained(training, workplace, monkeypatch):
    """The workplace after the training, as the working directory."""
    monkeypatch.chdir(workplace)
    return workplace
