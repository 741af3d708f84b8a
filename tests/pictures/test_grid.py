import numpy as np
import pytest

from zoo.pictures import Alignment, AttentionGrid, AttentionMaps

SOURCE, TARGET = ["a", "b", "</s>"], ["x", "</s>"]


def weights(layers=2, heads=3, rows=2, columns=3):
    """Of each head others, its rows sums of one."""
    random = np.random.default_rng(0).random((layers, heads, rows, columns))
    return random / random.sum(-1, keepdims=True)


def grid(**more):
    to_source = AttentionMaps("Attention to the source", SOURCE, TARGET, weights())
    within = AttentionMaps("Self-attention of the encoder", SOURCE, SOURCE, weights(4, 3, 3, 3))
    return AttentionGrid(to_source, within, **more)


def test_names_and_texts_are_derived():
    whole = grid()
    assert whole.kinds[0].layers == ["layer 1", "layer 2"]
    assert whole.kinds[1].heads == ["head 1", "head 2", "head 3"]
    assert (whole.source_text, whole.target_text) == ("ab", "x")
    assert grid(source_text="A b").source_text == "A b"


@pytest.mark.parametrize(
    ("layers", "heads", "of_layers", "of_heads", "names"),
    [
        ("all", "all", [0, 1], [0, 1, 2], (["layer 1", "layer 2"], ["head 1", "head 2", "head 3"])),
        ("last", "all", [1], [0, 1, 2], (["layer 2"], ["head 1", "head 2", "head 3"])),
        (1, 3, [0], [2], (["layer 1"], ["head 3"])),
        ("all", 2, [0, 1], [1], (["layer 1", "layer 2"], ["head 2"])),
    ],
)
def test_chooses_layers_and_heads(layers, heads, of_layers, of_heads, names):
    chosen = grid().choose(layers, heads).kinds[0]
    np.testing.assert_array_equal(chosen.weights, weights()[of_layers][:, of_heads])
    assert (chosen.layers, chosen.heads) == names


def test_the_mean_is_of_the_heads():
    chosen = grid(title="T", caption="C", source_text="s", target_text="t").choose("last", "mean")
    np.testing.assert_allclose(chosen.kinds[0].weights[0, 0], weights()[1].mean(0))
    assert chosen.kinds[0].heads == ["mean of 3 heads"]
    assert (chosen.title, chosen.caption, chosen.source_text, chosen.target_text) == ("T", "C", "s", "t")


def test_last_is_of_each_kind_and_kinds_are_chosen():
    chosen = grid().choose("last")
    assert [kind.layers for kind in chosen.kinds] == [["layer 2"], ["layer 4"]]
    assert [kind.title for kind in grid().choose(kinds=[1]).kinds] == ["Self-attention of the encoder"]
    assert len(grid().choose(3, kinds=[1]).kinds[0].layers) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"layers": 3},
            r"^`layers` must be 'all', 'last' or a number from 1 to 2 \(attention to the source\)\. Received: layers=3",
        ),
        ({"layers": 0}, r"Received: layers=0$"),
        ({"layers": -1}, r"Received: layers=-1$"),
        ({"layers": "mean"}, r"`layers` must be 'all', 'last' or .* Received: layers='mean'"),
        ({"layers": True}, r"Received: layers=True$"),
        ({"heads": 4}, r"`heads` must be 'all', 'mean' or a number from 1 to 3 .* Received: heads=4"),
        ({"heads": "last"}, r"`heads` .* Received: heads='last'"),
        ({"heads": 1.0}, r"`heads` .* Received: heads=1\.0"),
    ],
)
def test_what_is_not_there(arguments, message):
    with pytest.raises(ValueError, match=message):
        grid().choose(**arguments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": np.ones((2, 3))}, r"^`weights` must be of shape `\(L, H, T, S\)`\. Received: shape \(2, 3\)$"),
        ({"weights": weights(2, 0)}, r"Received: shape \(2, 0, 2, 3\)"),
        ({"weights": weights(rows=3)}, r"of shape `\(T, S\)`, here \(2, 3\).*Received: shape \(3, 3\)$"),
        ({"weights": weights() * np.nan}, r"`weights` must be finite"),
        ({"weights": weights() * 9}, r"from 0 to 1"),
        ({"source_tokens": []}, r"at least one token"),
        ({"layers": ["one"]}, r"^`layers` must name 2\. Received: layers=\['one'\]$"),
        ({"heads": list("abcd")}, r"`heads` must name 3"),
    ],
)
def test_refuses(changes, message):
    arguments = {"title": "t", "source_tokens": SOURCE, "target_tokens": TARGET, "weights": weights(), **changes}
    with pytest.raises(ValueError, match=message):
        AttentionMaps(**arguments)


def test_a_grid_of_something_else():
    with pytest.raises(ValueError, match="at least one AttentionMaps"):
        AttentionGrid()
    with pytest.raises(ValueError, match="at least one AttentionMaps"):
        AttentionGrid(Alignment(["a"], ["b"], [[1.0]]))


def test_weights_are_a_copy_that_cannot_be_changed():
    given = weights()
    maps = AttentionMaps("t", SOURCE, TARGET, given)
    given[:] = 0
    assert maps.weights.sum() == pytest.approx(2 * 3 * 2)
    with pytest.raises(ValueError, match="read-only"):
        maps.weights[0] = 0
