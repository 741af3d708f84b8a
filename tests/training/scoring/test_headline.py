"""The line that says how good a model is."""

import json
import pathlib
import re

import pytest
from zoo_training.scoring.headline import headline, headlines

MODELS = pathlib.Path(__file__).parents[3] / "saved_models"
COUNTS = {"exact_match": 0.98765, "total": 12345, "split": "validation"}
BLEU = {"score": 41.0151, "low": 39.649, "high": 42.351, "signature": "nrefs:1"}


def test_exact_match_where_nothing_else_is_told():
    for metrics in (COUNTS, {"metric": "exact_match", **COUNTS}):
        assert headlines(metrics) == {"exact match": "98.77%"}
        assert headline(metrics) == "98.77% exact match on 12,345 validation pairs"


def test_bleu_first_whatever_the_order_in_the_file():
    metrics = {**COUNTS, "chrf": {**BLEU, "score": 60}, "bleu_published_style": {**BLEU, "score": 42}, "bleu": BLEU}
    assert list(headlines(metrics).items()) == [
        ("BLEU", "41.02 [39.6, 42.4]"),
        ("BLEU, published style", "42.00 [39.6, 42.4]"),
        ("chrF", "60.00 [39.6, 42.4]"),
        ("exact match", "98.77%"),
    ]
    assert headline(metrics) == "41.02 [39.6, 42.4] BLEU on 12,345 validation pairs"


def test_a_classifier_has_accuracy_first():
    metrics = {"calibration_error": 0.03125, "macro_f1": 0.8, "accuracy": 0.845140, "metric": "accuracy"}
    metrics |= {"total": 1821, "split": "test", "accuracy_low": 0.8278}
    assert list(headlines(metrics).items()) == [
        ("accuracy", "84.51%"),
        ("macro F1", "80.00%"),
        ("calibration error", "3.12%"),
    ]
    assert headline(metrics) == "84.51% accuracy on 1,821 test texts"
    assert headline(metrics | {"total": 1}) == "84.51% accuracy on 1 test text"


def test_a_model_whose_scoring_failed():
    metrics = {"not_scored": "TypeError: why", "split": "test"}
    assert (headlines(metrics), headline(metrics)) == ({}, "not scored")


@pytest.mark.parametrize("file", sorted(MODELS.glob("*/*/metrics.json")), ids=lambda file: file.parts[-3])
def test_every_model_of_the_zoo_has_one(file):
    line = headline(json.loads(file.read_text(encoding="utf-8")))
    assert re.search(r" on [\d,]+ (test|validation) (pairs|texts|tokens|words)$", line)
