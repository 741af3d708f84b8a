import numpy as np
import pytest

from zoo.layers import MaxoutReadout


def test_hand_computed():
    readout = MaxoutReadout(2)
    states, contexts = np.array([[[1.0, 2.0], [0.0, -1.0]]]), np.array([[[10.0], [3.0]]])  # B=1, T=2
    readout([states, contexts])
    kernel = np.array([[1.0, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, -1]])
    readout.set_weights([kernel, np.array([0.0, 0, -5, 5])])
    # First step: [1, 2, 10 - 5, 1 + 2 - 10 + 5]; second: [0, -1, 3 - 5, -1 - 3 + 5]; neighbours meet.
    np.testing.assert_allclose(readout([states, contexts]), [[[2, 5], [0, 1]]])


def test_an_empty_batch_stays_empty():
    assert MaxoutReadout(4)([np.ones((0, 3, 5)), np.ones((0, 3, 2))]).shape == (0, 3, 4)


def test_units_may_be_an_integer_of_numpy():
    assert MaxoutReadout(np.int64(4))([np.ones((2, 3, 5))]).shape == (2, 3, 4)


def test_layer_check(layer_check, arrays):
    x = arrays(states=(2, 3, 5), embedded=(2, 3, 6), contexts=(2, 3, 7))
    layer_check(
        MaxoutReadout,
        {"units": 4, "dropout": 0.25},
        {"inputs": [x.states, x.embedded, x.contexts]},
        weights={"dense/kernel": (18, 8), "dense/bias": (8,)},
        outputs=[(2, 3, 4)],
    )


def test_dropout_falls_on_the_maxima_in_training_only(arrays):
    inputs = [arrays(x=(2, 30, 5)).x]
    readout = MaxoutReadout(4, dropout=0.5)
    maxima = np.array(readout(inputs))
    dropped = np.array(readout(inputs, training=True))
    kept = dropped != 0
    np.testing.assert_allclose(dropped, np.where(kept, 2 * maxima, 0), rtol=1e-6)
    assert 0.3 < kept.mean() < 0.7  # of 240, more than 6 standard deviations either side
    np.testing.assert_array_equal(readout(inputs, training=False), maxima)


def test_inputs_may_have_any_rank_but_must_be_a_list(arrays):
    x = arrays(x=(2, 3, 5)).x
    readout = MaxoutReadout(4)
    for _ in range(2):  # not built, and built
        with pytest.raises(ValueError, match=r"`inputs` must be a list of tensors\. Received: .*\(2, 3, 5\)"):
            readout(x)
        np.testing.assert_allclose(readout([x[:, 0], x[:, 1]]), readout([x[:, :1], x[:, 1:2]])[:, 0], rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"units": 0}, "`units` must be a positive integer"),
        ({"units": 2, "dropout": 1.0}, "`dropout` must be at least"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        MaxoutReadout(**arguments)
