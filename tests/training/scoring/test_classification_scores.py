"""Scores of a classifier: by hand, on unequal classes, one that is never given and one that never occurs."""

import json
import random

import keras
import numpy as np
import pytest
from zoo_training.corpora.labelled import LabelledTexts
from zoo_training.scoring.classification import (
    compare_classes,
    confusions,
    evaluate,
    weakest_classes,
)
from zoo_training.scoring.evaluation import SHOWN_MISTAKES
from zoo_training.scoring.intervals import wilson_interval

import zoo
from zoo import TextClassifier
from zoo.models import Classifier, RNNEncoder
from zoo.serving import export
from zoo.tasks.results import Classification
from zoo.text import CharacterTokenizer

LABELS = ["fox", "cow", "ant", "bee"]


class Told:
    """Gives each text the class and the probability that stand in the text, such as `cow 0.9`."""

    labels = LABELS

    def __init__(self):
        self.sizes = []

    def classify(self, texts, batch_size=32):
        assert 0 < len(texts) <= batch_size
        self.sizes.append(len(texts))
        results = []
        for text in texts:
            label, probability = (text if isinstance(text, str) else text[0]).split()[:2]
            others = {each: 0.0 for each in LABELS if each != label}
            results.append(Classification(text, label, float(probability), {label: float(probability), **others}))
        return results


# Of 7 texts, 4 are right. No text is a cow, and none is taken for an ant. Nothing is a bee.
TEXTS = LabelledTexts(
    texts=[
        "fox 0.95",
        "fox 0.91 and more",
        "fox 0.62",
        "cow 0.7",
        "fox 0.99 in a text of more than twenty letters",
        "fox 0.6",
        "fox 0.94 ...",
    ],
    labels=["fox", "fox", "fox", "fox", "ant", "ant", "fox"],
    groups=["x", "y", "y", "x", "y", "y", "y"],
)


class TestByHand:
    @pytest.fixture(scope="class")
    def scores(self):
        return evaluate(Told(), TEXTS, batch_size=3).as_dict()

    def test_accuracy_and_its_interval(self, scores):
        assert (scores["metric"], scores["accuracy"], scores["right"], scores["total"]) == ("accuracy", 0.571429, 4, 7)
        # z = 1.959964: (4/7 + z²/14 ± z sqrt(4/7 3/7 / 7 + z²/196)) / (1 + z²/7)
        assert scores["accuracy_low"] == pytest.approx(0.250458, abs=2e-6)
        assert scores["accuracy_high"] == pytest.approx(0.841780, abs=2e-6)

    def test_classes(self, scores):
        assert scores["by_class"] == {
            "fox": {"precision": 0.666667, "recall": 0.8, "f1": 0.727273, "total": 5},
            "cow": {"precision": 0.0, "recall": None, "f1": 0.0, "total": 0},
            "ant": {"precision": None, "recall": 0.0, "f1": 0.0, "total": 2},
        }
        assert scores["macro_f1"] == round(8 / 11 / 3, 6)

    def test_table_of_the_classes_that_occur_in_the_order_of_the_classifier(self, scores):
        assert scores["confusion"] == {"labels": ["fox", "cow", "ant"], "counts": [[4, 1, 0], [0, 0, 0], [2, 0, 0]]}
        assert confusions(scores) == [("ant", "fox", 2, 2), ("fox", "cow", 1, 5)]
        assert [label for label, _ in weakest_classes(scores)] == ["ant", "fox"]

    def test_calibration(self, scores):
        # The ranges are 1/15 wide: 0.6 is the upper end of the ninth, and 14/15 = 0.9333.
        found = [(each["total"], each["confidence"], each["accuracy"]) for each in scores["calibration"]]
        assert found == [(1, 0.6, 0.0), (1, 0.62, 1.0), (1, 0.7, 0.0), (1, 0.91, 1.0), (3, 0.96, 0.666667)]
        assert [each["up_to"] for each in scores["calibration"]] == [0.6, 0.666667, 0.733333, 0.933333, 1.0]
        assert [each["above"] for each in scores["calibration"]] == [0.533333, 0.6, 0.666667, 0.866667, 0.933333]
        error = (0.6 + 0.38 + 0.7 + 0.09 + 3 * (0.96 - 2 / 3)) / 7
        assert scores["calibration_error"] == pytest.approx(error, abs=1e-6)

    def test_groups_and_lengths(self, scores):
        assert scores["by_group"] == {
            "x": {"accuracy": 0.5, "right": 1, "total": 2},
            "y": {"accuracy": 0.6, "right": 3, "total": 5},
        }
        assert list(scores["by_length"].items()) == [
            ("1-10", {"accuracy": 0.5, "right": 2, "total": 4}),
            ("11-20", {"accuracy": 1.0, "right": 2, "total": 2}),
            ("21-50", {"accuracy": 0.0, "right": 0, "total": 1}),
        ]

    def test_the_most_confident_mistakes_first(self, scores):
        assert scores["mistakes"] == [
            {"text": TEXTS.texts[4], "label": "ant", "output": "fox", "probability": 0.99},
            {"text": "cow 0.7", "label": "fox", "output": "cow", "probability": 0.7},
            {"text": "fox 0.6", "label": "ant", "output": "fox", "probability": 0.6},
        ]

    def test_json_keeps_them(self, scores):
        assert json.loads(json.dumps(scores)) == scores


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_neither_order_nor_batches_matter(batch_size):
    rows = list(zip(TEXTS.texts, TEXTS.labels, TEXTS.groups, strict=True))
    random.Random(batch_size).shuffle(rows)
    shuffled = LabelledTexts(*(list(column) for column in zip(*rows, strict=True)))
    assert evaluate(Told(), shuffled, batch_size).as_dict() == evaluate(Told(), TEXTS).as_dict()


def test_a_batch_is_one_call_and_told_as_progress():
    told, classifier = [], Told()
    evaluate(classifier, TEXTS, batch_size=4, advance=told.append)
    assert told == classifier.sizes == [4, 3]


def test_pairs():
    pairs = LabelledTexts(["cow 0.8", "ant 0.7", "cow 0.9"], ["cow", "cow", "cow"], None, ["b", "c" * 40, "d"])
    scores = evaluate(Told(), pairs, batch_size=2).as_dict()
    assert scores["mistakes"] == [{"text": ["ant 0.7", "c" * 40], "label": "cow", "output": "ant", "probability": 0.7}]
    assert {length: each["total"] for length, each in scores["by_length"].items()} == {"1-10": 2, "21-50": 1}
    assert scores["by_group"] == {}


def test_a_sigmoid_s_probabilities_and_zero_have_a_range():
    results = [Classification("a", "fox", probability, {}) for probability in (0.0, 1 / 15, 1.0)]
    table = compare_classes(results, ["fox", "cow", "fox"], LABELS).calibration
    assert [(each["above"], each["total"]) for each in table] == [(0.0, 2), (14 / 15, 1)]


def test_calibration_is_that_of_a_sum_over_intervals():
    """The error in numpy, range by range, for 3,000 answers of 4 classes."""
    rng = np.random.default_rng(3)
    probabilities, right = rng.uniform(0.25, 1, 3000), rng.random(3000) < 0.6
    results = [Classification("a", "fox", float(each), {}) for each in probabilities]
    found = compare_classes(results, ["fox" if each else "cow" for each in right], LABELS)
    error = 0.0
    for low in range(15):
        inside = (probabilities > low / 15) & (probabilities <= (low + 1) / 15)
        if inside.any():
            error += inside.mean() * abs(probabilities[inside].mean() - right[inside].mean())
    assert found.calibration_error == pytest.approx(error, rel=1e-9)


@pytest.mark.parametrize(
    ("right", "total", "interval"),
    [
        (0, 10, (0.0, 0.277533)),  # z² / (10 + z²)
        (10, 10, (0.722467, 1.0)),
        (81, 263, (0.255289, 0.366181)),  # Newcombe (1998), table I, method 3: 0.2553 and 0.3662
        (15, 148, (0.062386, 0.160533)),  # the same: 0.0624 and 0.1605
    ],
)
def test_interval_of_wilson(right, total, interval):
    assert wilson_interval(right, total) == pytest.approx(interval, abs=6e-5)


def test_long_texts_have_wide_ranges():
    texts = [f"fox 0.9{' ' * n}" for n in (0, 993, 994, 600_000)]
    scores = evaluate(Told(), LabelledTexts(texts, ["fox"] * 4))
    assert list(scores.by_length) == ["1-10", "501-1000", "1001-2000", "500001 or more"]
    assert (scores.macro_f1, scores.mistakes) == (1.0, [])


def test_not_more_mistakes_are_kept_than_anyone_reads():
    texts = [f"fox {0.5 + number / 100}" for number in range(SHOWN_MISTAKES + 10)]
    scores = evaluate(Told(), LabelledTexts(texts, ["ant"] * len(texts)))
    assert [each["text"] for each in scores.mistakes] == texts[: -SHOWN_MISTAKES - 1 : -1]


def test_the_classes_of_an_export_which_does_not_say_their_order_are_sorted():
    export = Told()
    export.labels = None
    assert evaluate(export, TEXTS).labels == ["ant", "cow", "fox"]


class TestErrors:
    def test_a_class_that_the_classifier_does_not_know(self):
        classifier = Told()
        with pytest.raises(
            ValueError, match=r"^`texts` must have .* Received: 'foxes'; the nearest .* knows is 'fox'$"
        ):
            evaluate(classifier, LabelledTexts(["fox 0.9", "fox 0.8"], ["fox", "foxes"]))
        assert not classifier.sizes, "it is said before the classifier works"

    def test_an_answer_that_is_no_known_class(self):
        with pytest.raises(ValueError, match=r"^`labels` must hold every class .* gives\. Received: no 'eel'$"):
            evaluate(Told(), LabelledTexts(["eel 0.9"], ["fox"]))

    def test_no_texts(self):
        with pytest.raises(ValueError, match=r"^`texts` must hold at least one text\. Received: none$"):
            evaluate(Told(), LabelledTexts())


def test_a_trained_classifier_and_its_export_have_the_same_scores(tmp_path):
    tokenizer = CharacterTokenizer("abcdefghij")
    keras.utils.set_random_seed(5)
    model = Classifier(RNNEncoder(tokenizer.size, units=4), 3)
    classifier = TextClassifier(model, tokenizer, ["high", "low", "middle"], max_length=12)
    texts = LabelledTexts(["ab", "cdefg", "h", "jihgfedcb", "aaaa"], ["high", "low", "low", "middle", "high"])
    mine = evaluate(classifier, texts, batch_size=2)
    exported = evaluate(zoo.load(export(classifier, tmp_path / "model")), texts, batch_size=5)
    assert mine.labels == exported.labels
    np.testing.assert_array_equal(mine.counts, exported.counts)
    answers = classifier(texts.texts)
    assert mine.overall.correct == sum(map(str.__eq__, answers, texts.labels))
    assert mine.calibration_error == pytest.approx(exported.calibration_error, abs=1e-5)
