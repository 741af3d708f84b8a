"""What this layer has for itself; functions/test_positions.py has what all layers of positions share."""

import numpy as np
import pytest
import tensorflow as tf

from zoo.layers.rotary_embedding import RotaryEmbedding

ROWS = np.array([[0, 0, 0, 1, 2], [7, 300, 5, 1, 0]])


def rotated_by_the_paper(x, positions, pairs, width=None, max_wavelength=10_000):
    """Su et al. 2021, equation 34, pair by pair; `positions (B, T)`."""
    width = width or x.shape[-1]
    outputs = x.astype("float64")
    for b, t, *rest, i in np.ndindex(*x.shape[:-1], width // 2):
        first, second = (2 * i, 2 * i + 1) if pairs == "adjacent" else (i, i + width // 2)
        angle = positions[b, t] * max_wavelength ** (-2 * i / width)
        rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        row = (b, t, *rest)
        outputs[(*row, first)], outputs[(*row, second)] = rotation @ [x[(*row, first)], x[(*row, second)]]
    return outputs


def test_hand_computed():
    inputs = np.array([[[1.0, 2, 3, 4]] * 2])  # B=1, T=2, D=4
    # Angles at position 1: one, and a tenth.
    cos, sin, cos_tenth, sin_tenth = 0.540302, 0.841471, 0.995004, 0.0998334
    halves = [cos - 3 * sin, 2 * cos_tenth - 4 * sin_tenth, 3 * cos + sin, 4 * cos_tenth + 2 * sin_tenth]
    adjacent = [cos - 2 * sin, 2 * cos + sin, 3 * cos_tenth - 4 * sin_tenth, 4 * cos_tenth + 3 * sin_tenth]
    for layer, expected in (
        (RotaryEmbedding(100), halves),
        (RotaryEmbedding(100, pairs="halves"), halves),
        (RotaryEmbedding(100, pairs="adjacent"), adjacent),
        (RotaryEmbedding(100, rotary_dim=2), [*adjacent[:2], 3, 4]),
    ):
        np.testing.assert_allclose(layer(inputs), [[[1, 2, 3, 4], expected]], atol=1e-5)


@pytest.mark.parametrize("pairs", ["halves", "adjacent"])
@pytest.mark.parametrize(
    ("shape", "rotary_dim"), [((2, 5, 8), None), ((2, 5, 3, 8), 6), ((2, 5, 3, 4, 8), 8)], ids=["TD", "THD", "TGHD"]
)
def test_computes_what_the_paper_says(arrays, pairs, shape, rotary_dim):
    x = arrays(x=shape).x
    layer = RotaryEmbedding(pairs=pairs, rotary_dim=rotary_dim)
    expected = rotated_by_the_paper(x, np.tile(np.arange(5), (2, 1)), pairs, rotary_dim)
    np.testing.assert_allclose(layer(x), expected, atol=1e-6)
    expected = rotated_by_the_paper(x, ROWS, pairs, rotary_dim)
    np.testing.assert_allclose(layer(x, positions=ROWS), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("pairs", "rotary_dim", "positions"), [("halves", None, None), ("adjacent", None, (5,)), ("halves", 4, (2, 5))]
)
def test_layer_check(layer_check, arrays, pairs, rotary_dim, positions):
    given = {} if positions is None else {"positions": np.arange(np.prod(positions)).reshape(positions)}
    layer_check(
        RotaryEmbedding,
        {"max_wavelength": 1000.0, "pairs": pairs, "rotary_dim": rotary_dim, "scaling": None},
        {"inputs": arrays(x=(2, 5, 3, 6)).x, **given},
        weights={},
        outputs=[(2, 5, 3, 6)],
    )


def test_scaling_may_hold_numbers_of_numpy_which_are_saved_as_pythons():
    scaling = RotaryEmbedding(scaling={"rope_type": "linear", "factor": np.float32(2)}).get_config()["scaling"]
    assert scaling == {"rope_type": "linear", "factor": 2.0} and type(scaling["factor"]) is float


@pytest.mark.parametrize("pairs", ["halves", "adjacent"])
def test_features_beyond_rotary_dim_stay_and_the_others_turn_as_if_alone(arrays, pairs):
    x = arrays(x=(2, 5, 3, 10)).x
    x[0, 1, 2, 6:] = [np.inf, -0.0, np.nan, 1e-40]
    outputs = np.array(RotaryEmbedding(pairs=pairs, rotary_dim=6)(x))
    np.testing.assert_array_equal(outputs[..., 6:].view("int32"), x[..., 6:].view("int32"))
    np.testing.assert_array_equal(outputs[..., :6], RotaryEmbedding(pairs=pairs)(x[..., :6]))


@pytest.mark.parametrize(("width", "tolerance"), [(64, 0), (6, 2**-21)])
def test_longer_inputs_and_single_steps_get_the_same(arrays, width, tolerance):
    # To the last bit where the features fill a CPU's vectors: sines of a remainder are computed by another algorithm.
    layer, x = RotaryEmbedding(), arrays(x=(2, 37, 3, width)).x
    whole = layer(x)
    np.testing.assert_allclose(layer(x[:, :20]), whole[:, :20], rtol=0, atol=tolerance)
    for t in (0, 1, 19, 36):
        step = layer(x[:, t : t + 1], positions=np.array([[t]]))
        np.testing.assert_allclose(step, whole[:, t : t + 1], rtol=0, atol=tolerance)


def test_far_positions_are_as_good_as_promised(arrays):
    random = np.random.default_rng(0)
    positions = np.array([[*random.integers(0, 1000, 50), *random.integers(0, 100_000, 50), 100_000]])
    x = arrays(x=(1, 101, 64)).x
    expected = rotated_by_the_paper(x, positions, "halves")
    error = np.abs(RotaryEmbedding()(x, positions=positions) - expected).max(axis=-1)
    assert (error <= 2**-23 * (1 + positions) * 1.5 * np.abs(x).max(axis=-1)).all()  # turned by so little more
    assert np.abs(RotaryEmbedding(dtype="float64")(x, positions=positions) - expected).max() < 1e-9


@pytest.mark.parametrize(("pairs", "rotary_dim"), [("halves", None), ("adjacent", 6)])
def test_lower_precision_rounds_the_outputs_alone(arrays, pairs, rotary_dim):
    low, full = (RotaryEmbedding(pairs=pairs, rotary_dim=rotary_dim, dtype=d) for d in ("mixed_bfloat16", "float32"))
    positions = np.array([1, 257, 2049, 5000, 99_999])
    x = tf.cast(arrays(x=(2, 5, 3, 8)).x, "bfloat16")
    outputs = low(x, positions=positions)
    assert outputs.dtype == "bfloat16"
    np.testing.assert_array_equal(outputs, tf.cast(full(x, positions=positions), "bfloat16"))
    x = tf.ones((1, 3000, 8), "bfloat16")
    np.testing.assert_array_equal(low(x), tf.cast(full(x), "bfloat16"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_wavelength": -1}, r"^`max_wavelength` must be a positive number\. Received: max_wavelength=-1$"),
        ({"pairs": "thirds"}, r"^`pairs` must be one of 'halves', 'adjacent'\. Received: pairs='thirds'$"),
        ({"rotary_dim": 0}, r"^`rotary_dim` must be a positive integer\. Received: rotary_dim=0$"),
        ({"rotary_dim": 5}, r"^`rotary_dim` must be even\. Received: rotary_dim=5$"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        RotaryEmbedding(**arguments)


def test_refuses_widths():
    odd = r"The width D must be even, to rotate all features\. Received: D=7"
    narrow = r"The width D must be at least `rotary_dim`\. Received: D=7, rotary_dim=8"
    for layer, message in ((RotaryEmbedding(), odd), (RotaryEmbedding(rotary_dim=8), narrow)):
        with pytest.raises(ValueError, match=f"^{message}$"):
            layer.build((2, 5, 3, 7))
        with pytest.raises(ValueError, match=f"^{message}$"):
            layer.compute_output_shape((2, 5, 3, 7))
        with pytest.raises(ValueError, match=message):
            layer(np.zeros((2, 5, 3, 7)))
    # One layer serves inputs of several widths and ranks, and refuses one that does not fit after others too.
    layer = RotaryEmbedding()
    assert layer(np.zeros((2, 5, 3, 8))).shape == (2, 5, 3, 8)
    assert layer(np.zeros((2, 4, 6))).shape == (2, 4, 6)
    with pytest.raises(ValueError, match=odd):
        layer(np.zeros((2, 5, 7)))
    assert RotaryEmbedding(rotary_dim=4)(np.zeros((2, 5, 7))).shape == (2, 5, 7)
