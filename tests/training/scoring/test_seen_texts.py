"""Texts that a model was trained on are found among those that it is scored on, by hand-made files."""

import os

import pytest
from zoo_training.schema.recipe import read_recipe
from zoo_training.scoring.seen_texts import about_seen_texts

NEWS = "The station in the old town was closed for an hour."
MORE = "Nobody knows what the weather will be like tomorrow."
GPT = '[model]\nfamily = "gpt"\n'
CLASSIFIER = '[model]\nfamily = "classifier"\n'


def corpus(text, *changes):
    with open("mine.toml", "w") as file:
        file.write(text)
    return read_recipe("mine.toml", changes).corpus


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_text("".join(f"word {n}\tWort {n}\n" for n in range(9)))
    (tmp_path / "new.tsv").write_text("new\tneu\nword 3\tein Wort\nword 4\tWort 4\n")
    (tmp_path / "other.tsv").write_text("other\tanderes\n")
    (tmp_path / "labels.tsv").write_text("".join(f"word {n}\t{n % 2}\n" for n in range(9)))
    (tmp_path / "text.txt").write_text(f"short\n{NEWS}\n{MORE}\n")
    (tmp_path / "new.txt").write_text(f"short\n  {MORE}\nThe first line that no training text has is this one.\n")


PAIRS = '[corpus]\nkind = "text"\ntrain = "pairs.tsv"\nvalidation = "other.tsv"\ntest_pairs = 0\n'
LABELS = '[corpus]\nkind = "labels"\ntrain = "labels.tsv"\nvalidation = "other.tsv"\ntest_texts = 0\n' + CLASSIFIER
SEVERAL = """corpus=[{kind="text",train="other.tsv",validation="new.tsv",test_pairs=0},
    {kind="text",train="pairs.tsv"}]""".replace("\n", "")
TEXTS = '[corpus]\nkind = "text"\ntrain = "text.txt"\nvalidation = "other.tsv"\n' + GPT


@pytest.mark.parametrize(
    ("recipe", "new", "told"),
    [
        (PAIRS, "new.tsv", "2 of the 3 texts of 'validation', such as 'word 3'; scores"),
        (LABELS, "new.tsv", "2 of the 3 texts of 'validation', such as 'word 3'; scores"),
        (TEXTS, "new.txt", f"1 of the 2 lines of 40 characters or more of 'validation', such as '{MORE}'"),
    ],
)
def test_are_counted_with_an_example(recipe, new, told):
    found = about_seen_texts(corpus(recipe, f"corpus.validation={new}"), "validation", corpus(recipe))
    assert found.startswith(f"warning: the model was trained on {told}")
    assert about_seen_texts(corpus(recipe), "validation", corpus(recipe)) is None


def test_of_several_corpora_all_are_looked_at():
    found = about_seen_texts(corpus(PAIRS, "corpus.validation=new.tsv"), "validation", corpus(PAIRS, SEVERAL))
    assert "2 of the 3 texts of 'validation'" in found


def test_without_the_training_files_it_is_not_known(tmp_path):
    trained = corpus(PAIRS)
    (tmp_path / "pairs.tsv").unlink()
    told = "it is not known whether the model was trained on texts of 'validation': pairs.tsv is not there any more, "
    assert about_seen_texts(corpus(PAIRS), "validation", trained).startswith(told)
    os.mkfifo("pairs.tsv")  # to read it would wait for ever
    assert about_seen_texts(corpus(PAIRS), "validation", trained).endswith("or is no file")
    assert about_seen_texts(corpus(PAIRS), "validation", corpus('[corpus]\nkind = "dates"\n')) is None
