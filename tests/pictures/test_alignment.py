import dataclasses

import numpy as np
import pytest

from zoo.pictures import Alignment
from zoo.pictures.drawable import as_list

WEIGHTS = np.array([[0.7, 0.2, 0.1], [0.0, 0.0, 0.0]])  # T = 2, S = 3


def test_texts_are_derived_from_the_tokens():
    alignment = Alignment(["न", "ं", "</s>"], ["▁A", "b", "▁c"][:2], WEIGHTS)
    assert alignment.source_text == "नं"
    assert alignment.target_text == "Ab"


def test_metaspaces_become_spaces_in_the_derived_text():
    assert Alignment(["▁on", "▁the", "▁ar"], ["x", "y"], WEIGHTS).source_text == "on the ar"


def test_given_texts_win():
    alignment = Alignment(["a", "b", "c"], ["x", "y"], WEIGHTS, source_text="a b c", target_text="")
    assert (alignment.source_text, alignment.target_text) == ("a b c", "")


def test_takes_any_sequences_and_keeps_its_own_copy():
    weights = WEIGHTS.astype("float16")
    alignment = Alignment(np.array(["a", "b", "c"]), ("x", "y"), weights)
    weights[0, 0] = 0.5
    assert alignment.weights[0, 0] == pytest.approx(0.7, abs=1e-3)
    assert alignment.source_tokens == ["a", "b", "c"]
    with pytest.raises(ValueError, match="read-only"):
        alignment.weights[0, 0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        alignment.title = "x"


def test_rows_without_attention_and_half_precision_rounding_are_fine():
    Alignment(["a", "b", "c"], ["x", "y"], np.zeros((2, 3)))
    Alignment(["a"], ["x"], [[1.0009766]])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.zeros((2, 4)), r"^`weights` must be of shape `\(T, S\)`, here \(2, 3\).*Received: shape \(2, 4\)$"),
        (np.zeros((3, 2)), r"Received: shape \(3, 2\), which looks transposed$"),
        (np.zeros((1, 2, 3)), r"Received: shape \(1, 2, 3\)$"),
        ([[0.1, 0.2], [0.3]], r"array of numbers `\(T, S\)`\. Received: "),
        ([["a", "b", "c"]] * 2, r"array of numbers `\(T, S\)`\. Received: "),
        ([[np.nan, 0, 0], [np.inf, 0, 0]], r"^`weights` must be finite\. Received: 2 that are NaN or infinite$"),
        ([[-0.1, 0, 0], [0, 0, 0]], r"from 0 to 1; pass them after the softmax\. Received: -0\.1 to 0$"),
        ([[3.5, 0, 0], [0, 0, 0]], r"from 0 to 1; pass them after the softmax\. Received: 0 to 3\.5$"),
    ],
)
def test_refuses_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        Alignment(["a", "b", "c"], ["x", "y"], weights)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ("abc", r"^`source_tokens` must be a list of tokens; .* Received: 'abc'$"),
        ([], "^`source_tokens` must hold at least one token"),
        (["a", b"b", "c"], r"hold strings; decode bytes from UTF-8 first\. Received: b'b' at position 1$"),
        (["a", "b", 3], r"hold strings\. Received: 3 at position 2$"),
    ],
)
def test_refuses_tokens(tokens, message):
    with pytest.raises(ValueError, match=message):
        Alignment(tokens, ["x", "y"], WEIGHTS)


def test_as_list_takes_one_or_several_and_nothing_else():
    one = Alignment(["a", "b", "c"], ["x", "y"], WEIGHTS)
    assert as_list(one) == [one]
    assert as_list(iter([one, one])) == [one, one]
    with pytest.raises(ValueError, match=r"at least one Alignment to draw\. Received: an empty list$"):
        as_list([])
    with pytest.raises(ValueError, match=r"must be Alignment objects\. Received: ndarray$"):
        as_list([WEIGHTS])
