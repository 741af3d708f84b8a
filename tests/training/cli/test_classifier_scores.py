"""What `zoo evaluate` prints of a classifier."""

import numpy as np
import pytest
from zoo_training.cli.classifier_scores import print_classifier_scores
from zoo_training.scoring.classification import compare_classes
from zoo_training.scoring.label_sets import compare_sets

from zoo.tasks.results import Classification


def printed(capsys, truth, given, labels, groups=None, texts=None):
    texts = texts or ["a text"] * len(truth)
    results = [
        Classification(text, label, 0.5 + 0.0001 * row, {})
        for row, (text, label) in enumerate(zip(texts, given, strict=True))
    ]
    print_classifier_scores(compare_classes(results, truth, labels, groups).as_dict(), "test")
    return capsys.readouterr().out.splitlines()


def test_few_classes_as_a_table_with_aligned_columns(capsys):
    labels = ["好", "a long name of a class", "b"]
    truth = ["好"] * 1200 + [labels[1]] * 3
    given = ["好"] * 1198 + ["b"] * 2 + ["好"] + [labels[1]] * 2
    lines = printed(capsys, truth, given, labels, groups=["x"] * 1200 + ["y"] * 3, texts=["t"] * 1200 + ["u", "v", "w"])
    assert lines == [
        "true \\ given               好  a long na…  b",
        "好                      1,198           0  2",
        "a long name of a class      1           2  0",
        "b                           0           0  0",
        "class a long name of a class: F1 80.00%, precision 100.00%, recall 66.67% of 3",
        "class 好: F1 99.87%, precision 99.92%, recall 99.83% of 1,200",
        "x              99.83%   1,198 of 1,200",
        "y              66.67%       2 of 3",
        "wrong: 'u' -> 好 (62.0%), not a long name of a class",
        "wrong: 't' -> b (62.0%), not 好",
        "wrong: 't' -> b (62.0%), not 好",
        "test         accuracy           99.75% [99.27%, 99.92%] on 1,203 test texts",
        *lines[-2:],
    ]
    assert [line.split()[:2] for line in lines[-2:]] == [["test", "macro"], ["test", "calibration"]]


def test_many_classes_by_the_worst_pairs(capsys):
    labels = [f"c{number}" for number in range(14)]
    truth = np.repeat(labels, 20).tolist()
    # Of class n, n texts are given the next class, and the first class is never given.
    given = [labels[(row // 20 + (row % 20 < row // 20)) % 14] for row in range(280)]
    given = ["c1" if label == "c0" else label for label in given]
    lines = printed(capsys, truth, given, labels)
    assert lines[:2] == ["c0 given as c1: 20 of 20", "c13 given as c1: 13 of 20"]
    assert lines[9] == "c5 given as c6: 5 of 20"
    assert lines[10] == "class c0: F1 0.00%, never given, recall 0.00% of 20"
    assert sum(line.startswith("class ") for line in lines) == 5
    assert sum(line.startswith("wrong: ") for line in lines) == 3


def test_several_labels_have_no_table(capsys):
    rows = [
        ("x", {"a": 0.9, "b": 0.8}, ("a", "b")),
        ("y", {"a": 0.3, "b": 0.2}, ("b",)),
        ("z", {"a": 0.7, "b": 0.6}, ()),
    ]
    results = [Classification(text, "a", found["a"], found) for text, found, _ in rows]
    print_classifier_scores(compare_sets(results, [true for *_, true in rows], ["a", "b"]).as_dict(), "test")
    assert capsys.readouterr().out.splitlines() == [
        "class b: F1 50.00%, precision 50.00%, recall 50.00% of 2",
        "class a: F1 66.67%, precision 50.00%, recall 100.00% of 1",
        "wrong: 'y' -> no label, not b",
        "wrong: 'z' -> a, b, not no label",
        "test         all labels right   33.33% [6.15%, 79.23%] on 3 test texts",
        "test         micro F1           57.14%",
        "test         macro F1           58.33%",
    ]


@pytest.mark.parametrize("text", [("one", "two")])
def test_both_texts_of_a_pair_are_shown(capsys, text):
    assert "wrong: 'one | two' -> b (50.0%), not a" in printed(capsys, ["a"], ["b"], ["a", "b"], texts=[text])
