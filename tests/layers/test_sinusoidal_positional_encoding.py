"""What this layer has for itself; functions/test_positions.py has what all layers of positions share."""

import numpy as np
import pytest
import tensorflow as tf

from zoo.layers.sinusoidal_positional_encoding import SinusoidalPositionalEncoding


def encoding_of_the_paper(positions, width, max_wavelength=10_000):
    """Vaswani et al. 2017, section 3.5, feature by feature: `(..., width)`."""
    encoding = np.zeros((*np.shape(positions), width))
    for *row, feature in np.ndindex(encoding.shape):
        pair, wave = feature // 2, np.sin if feature % 2 == 0 else np.cos
        encoding[(*row, feature)] = wave(positions[tuple(row)] / max_wavelength ** (2 * pair / width))
    return encoding


def encode(positions, width, **kwargs):
    """The encoding alone: added to zeros."""
    positions = np.array(positions)
    return SinusoidalPositionalEncoding(**kwargs)(np.zeros((1, len(positions), width)), positions=positions)[0]


def test_hand_computed():
    inputs = np.array([[[1.0, 10, 100, 1000]] * 3])
    # Angles: the position itself, and a tenth of it.
    encoding = [[0, 1, 0, 1], [0.841471, 0.540302, 0.0998334, 0.995004], [0.909297, -0.416147, 0.198669, 0.980067]]
    outputs = SinusoidalPositionalEncoding(max_wavelength=100)(inputs)
    np.testing.assert_allclose(outputs - inputs, [encoding], atol=1e-4)
    np.testing.assert_allclose(SinusoidalPositionalEncoding(100)(np.zeros((1, 3, 4))), [encoding], atol=1e-6)


@pytest.mark.parametrize(("width", "max_wavelength"), [(1, 10_000), (6, 10_000), (7, 50)])
def test_computes_what_the_paper_says(arrays, width, max_wavelength):
    x = arrays(x=(2, 5, width)).x
    layer = SinusoidalPositionalEncoding() if max_wavelength == 10_000 else SinusoidalPositionalEncoding(max_wavelength)
    encoding = encoding_of_the_paper(np.arange(5), width, max_wavelength)
    np.testing.assert_allclose(layer(x), x + encoding, atol=1e-6)
    positions = np.array([[0, 0, 0, 1, 2], [7, 300, 5, 1, 0]])
    encoding = encoding_of_the_paper(positions, width, max_wavelength)
    np.testing.assert_allclose(layer(x, positions=positions), x + encoding, atol=3e-5)


@pytest.mark.parametrize("positions", [None, (5,), (2, 5)], ids=["counted", "shared", "rows"])
def test_layer_check(layer_check, arrays, positions):
    given = {} if positions is None else {"positions": np.arange(np.prod(positions)).reshape(positions)}
    width = 6 if positions is None else 7
    layer_check(
        SinusoidalPositionalEncoding,
        {"max_wavelength": 1000.0, "pairs": "adjacent"},
        {"inputs": arrays(x=(2, 5, width)).x, **given},
        weights={},
        outputs=[(2, 5, width)],
    )


def test_longer_inputs_and_single_steps_get_the_same():
    # To the last bit where the waves fill a CPU's vectors: sines of a remainder are computed by another algorithm.
    for width, tolerance in ((64, 0), (10, 2**-23)):
        layer, x = SinusoidalPositionalEncoding(), np.zeros((2, 37, width), "float32")
        whole = layer(x)
        np.testing.assert_allclose(layer(x[:, :20]), whole[:, :20], rtol=0, atol=tolerance)
        for t in (0, 1, 19, 36):
            step = layer(x[:, t : t + 1], positions=np.array([[t]]))
            np.testing.assert_allclose(step, whole[:, t : t + 1], rtol=0, atol=tolerance)


def test_far_positions_are_as_good_as_promised():
    random = np.random.default_rng(0)
    positions = np.array([*random.integers(0, 1000, 200), *random.integers(0, 100_000, 200), 100_000])
    for width in (9, 64):
        error = np.abs(encode(positions, width) - encoding_of_the_paper(positions, width)).max(axis=1)
        assert (error <= 2**-23 * (1 + positions)).all()
    error = np.abs(encode(positions, 9, dtype="float64") - encoding_of_the_paper(positions, 9))
    assert error.max() < 1e-10


def test_lower_precision_rounds_the_encoding_alone():
    positions = [0, 1, 257, 2049, 5000, 5001, 99_999]
    encoding = encode(positions, 10, dtype="mixed_bfloat16")
    np.testing.assert_array_equal(encoding, tf.cast(encode(positions, 10), "bfloat16"))
    counted = [SinusoidalPositionalEncoding(dtype=d)(np.zeros((1, 3000, 2))) for d in ("mixed_bfloat16", "float32")]
    np.testing.assert_array_equal(counted[0], tf.cast(counted[1], "bfloat16"))


def test_refuses_wavelengths_and_heads():
    with pytest.raises(ValueError, match=r"^`max_wavelength` must be a pos.*max_wavelength='10000'$"):
        SinusoidalPositionalEncoding("10000")
    with pytest.raises(ValueError, match=r"expected ndim=3, found ndim=4.*\(2, 5, 3, 6\)"):
        SinusoidalPositionalEncoding()(np.zeros((2, 5, 3, 6)))
