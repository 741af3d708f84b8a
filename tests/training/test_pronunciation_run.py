"""A run on a small pronouncing dictionary, from the recipe to the card and the answers."""

import dataclasses
import hashlib
import itertools
import json
import re

import pytest
from zoo_training import run
from zoo_training.corpora import cmudict
from zoo_training.schema.recipe import read_recipe

import zoo

SOUNDS = {"b": "B", "d": "D", "k": "K", "a": "AE1", "i": "IY0", "o": "OW2"}
SMALL = (
    "corpus.validation_words=40",
    "corpus.test_words=50",
    "model.units=32",
    "model.embedding_dim=16",
    "model.readout_units=16",
    "model.dropout=0.0",
    "model.annotation_dropout=0.0",
    "training.batch_size=32",
    "training.buckets=1",
    "training.epochs=15",
    "training.learning_rate=1e-2",
    "training.warmup_steps=10",
    "training.average_decay=0.9",
)


@pytest.mark.long
def test_from_the_recipe_to_the_answers(monkeypatch, tmp_path, without_export):
    """Each letter has its sound."""
    words = ["".join(letters) for size in (2, 3, 4) for letters in itertools.product(SOUNDS, repeat=size)][::2]
    lines = "".join(f"{word} {' '.join(SOUNDS[letter] for letter in word)}\n" for word in words)
    (tmp_path / "cmudict.dict").write_text(lines)
    checksums = {"cmudict.dict": hashlib.sha256(lines.encode()).hexdigest()}
    monkeypatch.setattr(cmudict, "_PUBLIC", dataclasses.replace(cmudict._PUBLIC, checksums=checksums))
    recipe = read_recipe("pronounce", [f"corpus.folder={tmp_path}", *SMALL])
    _, version = run.train("sounds", recipe, tmp_path / "run", "zoo train pronounce", tmp_path / "models")
    metrics = json.loads((version / "metrics.json").read_text())
    assert (metrics["metric"], metrics["total"], metrics["split"]) == ("word_error_rate", 50, "test")
    assert metrics["word_error_rate"] <= metrics["word_error_rate_with_stress"] < 0.2
    assert metrics["phoneme_error_rate"] <= metrics["word_error_rate"]
    card = (version / "README.md").read_text()
    rate = re.escape(f"{metrics['word_error_rate']:.2%}")
    assert re.search(rf"^\| word error rate \| \*\*{rate} \[[\d., ]+\]\*\* of 50 test words \|$", card, re.MULTILINE)
    assert "Carnegie Mellon University" in card
    pronounce = zoo.load(tmp_path / "run")
    known = ["badi", "KODA", "dabo"]
    wanted = [" ".join(SOUNDS[letter] for letter in word.lower()) for word in known]
    assert sum(map(str.__eq__, pronounce(known), wanted)) >= 2
    [alignment] = pronounce.attend(["badi"])
    assert alignment.source_tokens[:4] == [*"badi"]
