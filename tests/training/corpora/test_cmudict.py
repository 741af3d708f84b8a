"""CMUdict: lines of the dictionary, and words that are held out with all their pronunciations."""

import collections
import dataclasses
import hashlib
import logging
import re
from pathlib import Path

import pydantic
import pytest
from zoo_training.corpora import cmudict
from zoo_training.corpora.cmudict import CMUdict
from zoo_training.corpora.corpus import CorpusError
from zoo_training.schema.recipe import read_recipe

DATA = Path(__file__).parents[4] / "shared" / "data" / "cmudict"
LINES = """\
'bout B AW1 T
a AH0
a(2) EY1
a.m. EY2 EH1 M
aalborg AO1 L B AO0 R G # place, danish
aalborg(2) AA1 L B AO0 R G
aalborg(3) AO1 L B AO0 R G
x-ray EH1 K S R EY2
"""
PRONUNCIATIONS = {
    "'bout": ["B AW1 T"],
    "a": ["AH0", "EY1"],
    "a.m.": ["EY2 EH1 M"],
    "aalborg": ["AO1 L B AO0 R G", "AA1 L B AO0 R G"],  # the third is the first
    "x-ray": ["EH1 K S R EY2"],
}


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A folder with a small file in the public one's place."""
    (tmp_path / "cmudict.dict").write_text(LINES)
    checksums = {"cmudict.dict": hashlib.sha256(LINES.encode()).hexdigest()}
    monkeypatch.setattr(cmudict, "_PUBLIC", dataclasses.replace(cmudict._PUBLIC, checksums=checksums))
    return tmp_path


def by_word(pairs):
    words = collections.defaultdict(list)
    for word, sounds in zip(pairs.sources, pairs.targets, strict=True):
        words[word].append(sounds)
    return dict(words)


def test_lines_become_pairs_and_each_word_is_in_one_split(folder):
    corpus = CMUdict(folder=folder, validation_words=1, test_words=2)
    assert corpus.splits == ("train", "validation", "test")
    splits = {split: by_word(corpus.read(split)) for split in corpus.splits}
    assert {split: len(words) for split, words in splits.items()} == {"train": 2, "validation": 1, "test": 2}
    assert {word: sounds for words in splits.values() for word, sounds in words.items()} == PRONUNCIATIONS
    assert {corpus.metric(split) for split in corpus.splits} == {"word_error_rate"}


def test_the_seed_chooses_the_words(folder):
    def words(seed, **numbers):
        corpus = CMUdict(folder=folder, seed=seed, **({"validation_words": 2, "test_words": 1} | numbers))
        return [tuple(by_word(corpus.read(split))) for split in corpus.splits]

    assert words(3) == words(3)
    assert len({tuple(words(seed)) for seed in range(8)}) > 3
    assert words(5)[2] == words(5, validation_words=1)[2]  # the test does not depend on how many validate


HOMOPHONES = {
    "hi": ["HH AY1"],
    "high": ["HH AY1"],
    "a": ["AH0", "EY1"],
    "eh": ["EY1", "EH1"],
    "uh": ["AH0"],
    "sea": ["S IY1"],
    "see": ["S IY1"],
    "x-ray": ["EH1 K S R EY2"],
}


@pytest.mark.parametrize("seed", range(12))
def test_reversed_pairs_never_tell_an_answer_in_training(monkeypatch, tmp_path, seed):
    """Against the words that the same seed holds out in the other direction, and every word with their sounds."""
    content = "".join(
        f"{word}({number}) {sounds}\n" if number > 1 else f"{word} {sounds}\n"
        for word, pronunciations in HOMOPHONES.items()
        for number, sounds in enumerate(pronunciations, start=1)
    )
    (tmp_path / "cmudict.dict").write_text(content)
    checksums = {"cmudict.dict": hashlib.sha256(content.encode()).hexdigest()}
    monkeypatch.setattr(cmudict, "_PUBLIC", dataclasses.replace(cmudict._PUBLIC, checksums=checksums))
    given = {"folder": tmp_path, "seed": seed, "validation_words": 2, "test_words": 1}
    words, reverse = CMUdict(**given), CMUdict(**given, reverse=True)
    every = {(sounds, word) for word, told in HOMOPHONES.items() for sounds in told}
    found = {}
    for split in reverse.splits:
        pairs = reverse.read(split)
        found[split] = set(zip(pairs.sources, pairs.targets, strict=True))
        assert len(found[split]) == len(pairs)
    test = set(words.read("test").targets)
    validation = set(words.read("validation").targets) - test
    assert found["test"] == {(sounds, word) for sounds, word in every if sounds in test}
    assert found["validation"] == {(sounds, word) for sounds, word in every if sounds in validation}
    answers = {word for sounds, word in found["test"] | found["validation"]}
    assert found["train"] == {(sounds, word) for sounds, word in every if word not in answers}
    assert reverse.metric("test") == "spelling"


def test_more_words_than_there_are(folder):
    told = "`validation_words` and `test_words` must be below 5 together, the words of CMUdict. Received: 5"
    with pytest.raises(CorpusError, match=f"^{re.escape(told)}$"):
        CMUdict(folder=folder, validation_words=2, test_words=3).read("train")
    with pytest.raises(pydantic.ValidationError, match="greater than 0"):
        CMUdict(test_words=0)


def test_another_file_is_refused(folder):
    (folder / "cmudict.dict").write_text(LINES + "b B IY1\n")
    with pytest.raises(CorpusError, match=r"cmudict\.dict is not the public file: its SHA-256 is"):
        CMUdict(folder=folder).read("test")


def test_the_public_file_is_known_by_commit_and_checksum():
    address = r"https://raw\.githubusercontent\.com/cmusphinx/cmudict/[0-9a-f]{40}"
    assert re.fullmatch(address, cmudict._PUBLIC.address)
    assert "Carnegie Mellon University" in CMUdict().licence


def test_the_recipe_reads_words_as_letters_and_sounds_as_tokens():
    recipe = read_recipe("pronounce", ["corpus.folder=a", "corpus.test_words=7"])
    assert isinstance(recipe.corpus, CMUdict)
    assert (recipe.corpus.folder, recipe.corpus.test_words) == (Path("a"), 7)
    assert (recipe.tokenizer.source.kind, recipe.tokenizer.target.kind) == ("characters", "whitespace")


def test_the_recipe_of_the_other_direction():
    recipe, other = read_recipe("spell"), read_recipe("pronounce")
    assert isinstance(recipe.corpus, CMUdict) and recipe.corpus.reverse
    assert (recipe.tokenizer.source.kind, recipe.tokenizer.target.kind) == ("whitespace", "characters")
    assert (recipe.model, recipe.training) == (other.model, other.training)


@pytest.mark.skipif(not DATA.is_dir(), reason="shared/data/cmudict is not there")
def test_the_public_file(caplog):
    with caplog.at_level(logging.WARNING):
        corpus = CMUdict(folder=DATA)
        splits = {split: by_word(corpus.read(split)) for split in corpus.splits}
    assert caplog.text == ""
    assert {split: len(words) for split, words in splits.items()} == {
        "train": 107_750,
        "validation": 5447,
        "test": 12_855,
    }
    reverse = CMUdict(folder=DATA, reverse=True)
    asked = {split: len(by_word(reverse.read(split))) for split in reverse.splits}
    assert asked == {"train": 96_825, "validation": 5568, "test": 13_466}
    words = {word: sounds for split in splits.values() for word, sounds in split.items()}
    assert (len(words), sum(map(len, words.values()))) == (126_052, 135_164)
    assert words["record"] == ["R AH0 K AO1 R D", "R EH1 K ER0 D", "R IH0 K AO1 R D"]
    sounds = {sound for each in words.values() for pronunciation in each for sound in pronunciation.split()}
    assert len({sound.rstrip("012") for sound in sounds}) == 39
