"""Scores of texts with several labels, by hand: a class never given, one of no text, texts of none."""

import pytest
from zoo_training.corpora.labelled import LabelledTexts
from zoo_training.scoring.label_sets import compare_sets, evaluate

from zoo.tasks.results import Classification

LABELS = ["ant", "bee", "cow", "dog", "elk"]
#           given above 0.5      true
ROWS = [
    ([0.9, 0.8, 0.1, 0.2, 0.0], ("ant", "bee")),  # right
    ([0.9, 0.4, 0.1, 0.2, 0.0], ("ant", "bee")),  # no bee, 0.6 sure of it
    ([0.1, 0.2, 0.1, 0.7, 0.0], ()),  # a dog too many
    ([0.1, 0.2, 0.5, 0.0, 0.0], ()),  # right: 0.5 is not above it
    ([0.6, 0.2, 0.05, 0.0, 0.0], ("ant", "cow")),  # no cow, 0.95 sure of it
]


def result(text, probabilities):
    of_labels = dict(sorted(zip(LABELS, probabilities, strict=True), key=lambda each: -each[1]))
    best = next(iter(of_labels))
    return Classification(text, best, of_labels[best], of_labels)


RESULTS = [result(f"text {number}" + 20 * "!" * (number == 4), row) for number, (row, _) in enumerate(ROWS)]
SCORES = compare_sets(RESULTS, [true for _, true in ROWS], LABELS).as_dict()


def test_a_text_is_right_if_its_labels_are_exactly_those_given():
    assert (SCORES["metric"], SCORES["subset_accuracy"], SCORES["right"], SCORES["total"]) == (
        *("subset_accuracy", 0.4, 2, 5),
    )
    # Wilson's interval of 2 of 5, as in his paper's formula by hand.
    assert SCORES["subset_accuracy_low"] == pytest.approx(0.1176, abs=1e-4)
    assert SCORES["subset_accuracy_high"] == pytest.approx(0.7693, abs=1e-4)


def test_precision_recall_and_f1_of_each_class():
    assert SCORES["by_class"] == {
        "ant": {"precision": 1.0, "recall": 1.0, "f1": 1.0, "total": 3},
        "bee": {"precision": 1.0, "recall": 0.5, "f1": round(2 / 3, 6), "total": 2},
        "cow": {"precision": None, "recall": 0.0, "f1": 0.0, "total": 1},
        "dog": {"precision": 0.0, "recall": None, "f1": 0.0, "total": 0},
        "elk": {"precision": None, "recall": None, "f1": None, "total": 0},
    }


def test_micro_f1_counts_decisions_and_macro_f1_classes_that_occur():
    assert SCORES["micro_f1"] == pytest.approx(2 * 4 / (6 + 5), abs=1e-6)
    assert SCORES["macro_f1"] == pytest.approx((1 + 2 / 3 + 0 + 0) / 4, abs=1e-6)


def test_the_mistake_of_most_confidence_is_first():
    assert [(each["text"][:6], each["probability"]) for each in SCORES["mistakes"]] == [
        *(("text 4", 0.95), ("text 2", 0.7), ("text 1", 0.6)),
    ]
    assert SCORES["mistakes"][0]["labels"] == ["ant", "cow"]
    assert SCORES["mistakes"][0]["outputs"] == ["ant"]


def test_lengths_have_scores():
    assert {name: each["total"] for name, each in SCORES["by_length"].items()} == {"1-10": 4, "21-50": 1}


def test_an_unknown_label_is_an_error_that_names_the_nearest():
    class Told:
        labels = LABELS

    with pytest.raises(ValueError, match="Received: 'bees'; the nearest one that it knows is 'bee'"):
        evaluate(Told(), LabelledTexts(texts=["a"], labels=["ant,bees"], separator=","))
