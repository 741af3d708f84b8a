"""Alignments and grids: what they derive, what they choose and what they refuse."""

import dataclasses

import numpy as np
import pytest

from zoo.pictures import Alignment, AttentionGrid, AttentionMaps
from zoo.pictures.alignment import as_list, notes

WEIGHTS = np.array([[0.7, 0.2, 0.1], [0.0, 0.0, 0.0]])  # T = 2, S = 3
SOURCE, TARGET = ["a", "b", "</s>"], ["x", "</s>"]


def head_weights(layers=2, heads=3, rows=2, columns=3):
    random = np.random.default_rng(0).random((layers, heads, rows, columns))
    return random / random.sum(-1, keepdims=True)


def grid(**more):
    to_source = AttentionMaps("Attention to the source", SOURCE, TARGET, head_weights())
    within = AttentionMaps("Self-attention of the encoder", SOURCE, SOURCE, head_weights(4, 3, 3, 3))
    return AttentionGrid(to_source, within, **more)


def test_texts_are_derived_from_the_tokens():
    alignment = Alignment(["न", "ं", "</s>"], ["▁A", "▁b"], WEIGHTS)
    assert (alignment.source_text, alignment.target_text) == ("नं", "A b")
    given = Alignment(["a", "b", "c"], ["x", "y"], WEIGHTS, source_text="a b c", target_text="")
    assert (given.source_text, given.target_text) == ("a b c", "")
    assert (grid().source_text, grid().target_text, grid(source_text="A b").source_text) == ("ab", "x", "A b")


def test_weights_are_a_copy_that_cannot_be_changed():
    weights = WEIGHTS.astype("float16")
    alignment = Alignment(np.array(["a", "b", "c"]), ("x", "y"), weights)
    assert alignment.source_tokens == ["a", "b", "c"]
    of_heads = head_weights()
    maps = AttentionMaps("t", SOURCE, TARGET, of_heads)
    weights[:] = of_heads[:] = 0
    assert alignment.weights[0, 0] == pytest.approx(0.7, abs=1e-3)
    assert maps.weights.sum() == pytest.approx(2 * 3 * 2)
    for array in (alignment.weights, maps.weights):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        alignment.title = "x"


def test_rows_without_attention_and_half_precision_rounding_are_fine():
    Alignment(["a", "b", "c"], ["x", "y"], np.zeros((2, 3)))
    Alignment(["a"], ["x"], [[1.0009766]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": np.zeros((2, 4))}, r"`weights` must be .* `\(T, S\)`, here \(2, 3\).*Received: shape \(2, 4\)$"),
        ({"weights": np.zeros((3, 2))}, r"Received: shape \(3, 2\), which looks transposed$"),
        ({"weights": [[0.1, 0.2], [0.3]]}, r"array of numbers `\(T, S\)`\. Received: "),
        ({"weights": [[np.nan, 0, 0], [np.inf, 0, 0]]}, r"must be finite\. Received: 2 that are NaN or infinite$"),
        ({"weights": [[-0.1, 0, 0], [0, 0, 0]]}, r"from 0 to 1; pass them after the softmax\. Received: -0\.1 to 0$"),
        ({"weights": [[3.5, 0, 0], [0, 0, 0]]}, r"from 0 to 1; pass them after the softmax\. Received: 0 to 3\.5$"),
        ({"source_tokens": "abc"}, r"^`source_tokens` must be a list of tokens; .* Received: 'abc'$"),
        ({"source_tokens": []}, "^`source_tokens` must hold at least one token"),
        ({"target_tokens": ["a", b"b"]}, r"^`target_tokens` .*; decode bytes from UTF-8 first\. Received: b'b' at po"),
        ({"source_tokens": ["a", "b", 3]}, r"hold strings\. Received: 3 at position 2$"),
    ],
)
def test_an_alignment_refuses(changes, message):
    arguments = {"source_tokens": ["a", "b", "c"], "target_tokens": ["x", "y"], "weights": WEIGHTS}
    with pytest.raises(ValueError, match=message):
        Alignment(**{**arguments, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": np.ones((2, 3))}, r"^`weights` must be of shape `\(L, H, T, S\)`\. Received: shape \(2, 3\)$"),
        ({"weights": head_weights(rows=3)}, r"`\(L, H, T, S\)`, here \(2, 3, 2, 3\).*Received: shape \(2, 3, 3, 3\)$"),
        ({"layers": ["one"]}, r"^`layers` must name 2\. Received: layers=\['one'\]$"),
        ({"heads": list("abcd")}, r"`heads` must name 3"),
    ],
)
def test_maps_refuse(changes, message):
    arguments = {"title": "t", "source_tokens": SOURCE, "target_tokens": TARGET, "weights": head_weights()}
    with pytest.raises(ValueError, match=message):
        AttentionMaps(**{**arguments, **changes})


@pytest.mark.parametrize(
    ("layers", "heads", "of_layers", "of_heads", "names"),
    [
        ("all", "all", [0, 1], [0, 1, 2], (["layer 1", "layer 2"], ["head 1", "head 2", "head 3"])),
        ("last", "all", [1], [0, 1, 2], (["layer 2"], ["head 1", "head 2", "head 3"])),
        (1, 3, [0], [2], (["layer 1"], ["head 3"])),
    ],
)
def test_chooses_layers_and_heads(layers, heads, of_layers, of_heads, names):
    chosen = grid().choose(layers, heads).kinds[0]
    np.testing.assert_array_equal(chosen.weights, head_weights()[of_layers][:, of_heads])
    assert (chosen.layers, chosen.heads) == names


def test_chooses_the_mean_of_the_heads_the_last_layer_of_each_kind_and_kinds():
    chosen = grid(title="T", caption="C", source_text="s", target_text="t").choose("last", "mean")
    np.testing.assert_allclose(chosen.kinds[0].weights[0, 0], head_weights()[1].mean(0))
    assert chosen.kinds[0].heads == ["mean of 3 heads"]
    assert [kind.layers for kind in chosen.kinds] == [["layer 2"], ["layer 4"]]
    assert (chosen.title, chosen.caption, chosen.source_text, chosen.target_text) == ("T", "C", "s", "t")
    assert [kind.title for kind in grid().choose(3, kinds=[1]).kinds] == ["Self-attention of the encoder"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"layers": 3},
            r"^`layers` must be 'all', 'last' or a number from 1 to 2 \(attention to the source\)\. Received: layers=3",
        ),
        ({"layers": True}, r"Received: layers=True$"),
        ({"heads": 4}, r"`heads` must be 'all', 'mean' or a number from 1 to 3 .* Received: heads=4"),
        ({"heads": 1.0}, r"`heads` .* Received: heads=1\.0"),
    ],
)
def test_there_is_no_such_layer_or_head(arguments, message):
    with pytest.raises(ValueError, match=message):
        grid().choose(**arguments)


def test_lists_of_pictures():
    one = Alignment(["a", "b", "c"], ["x", "y"], WEIGHTS)
    assert as_list(one) == [one]
    both = [one, grid()]
    assert as_list(iter(both)) == both
    for wrong, message in (
        ([], r"at least one Alignment to draw\. Received: an empty list$"),
        ([WEIGHTS], r"must be Alignment or AttentionGrid objects\. Received: ndarray$"),
    ):
        with pytest.raises(ValueError, match=message):
            as_list(wrong)
    for wrong in ([], [one]):
        with pytest.raises(ValueError, match="at least one AttentionMaps"):
            AttentionGrid(*wrong)


@pytest.mark.parametrize(
    ("tokens", "text", "unread"),
    [
        (["a", "b", "</s>"], "abc d", "c d"),
        (["<s>", "a", "b"], "ab", None),
        (["▁the", "▁c", "at"], " the  cat sat on the mat " + "m" * 40, f"sat on the mat {'m' * 24}…"),
        (["a", "<unk>", "c"], "a☃cd", "d"),
        (["a", "\\xe2", "\\x98", "\\x83", "c"], "a☃cd", "d"),  # three bytes of one character
        (["a", "\\xe2", "\\x98", "\\x83"], "a☃", None),
        (["▁a", "<unk>"], "a 👍🏽", None),  # an unknown token may stand for a word
        (["▁a", "<unk>", "▁b"], "a 👍🏽 b c b d", "d"),  # as far as the tokens may reach
        (["[UNK]", "x"], "abc", None),
        (["a", "▁\\\\"], r"a \\", None),  # signs of the text, no byte
        (["é"], "e\u0301e", "e"),  # tokens are of normalised text
        (["two", "words"], "two words", None),
        (["other"], "text", None),
    ],
)
def test_a_source_cut_at_its_limit_says_so(tokens, text, unread):
    """Only what the tokens spell from the beginning of the text on counts as read."""
    weights = np.full((1, len(tokens)), 0.1)
    told = f"The source was cut after {len(tokens)} tokens. The model did not read “{unread}”."
    assert notes(Alignment(tokens, ["x"], weights, source_text=text)) == ([told] if unread else [])
    maps = AttentionMaps("t", tokens, ["x"], weights[None, None])
    assert notes(AttentionGrid(maps, source_text=text, caption="C")) == (["C", told] if unread else ["C"])
