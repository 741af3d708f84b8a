"""Dropout, whose noise does with half the random numbers."""

import keras
import numpy as np
import pytest
from keras import ops

from zoo.layers import Dropout


def test_places_that_share_a_number_are_dropped_independently():
    dropped = np.array(Dropout(0.3, seed=3)(ops.ones((100, 1000)), training=True)) == 0
    upper, lower = dropped[:, :500], dropped[:, 500:]
    for joint, share in ((upper & lower, 0.09), (upper & ~lower, 0.21), (~upper & lower, 0.21)):
        assert abs(joint.mean() - share) < 5 * (share * (1 - share) / joint.size) ** 0.5


@pytest.mark.parametrize(
    ("arguments", "training"), [({"rate": 0.5}, False), ({"rate": 0.0}, True), ({"rate": 1.0}, True)]
)
def test_nothing_to_draw(arguments, training):
    inputs = ops.reshape(ops.arange(12, dtype="float32"), (3, 4))
    ours, theirs = (layer(**arguments)(inputs, training=training) for layer in (Dropout, keras.layers.Dropout))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("shape", "noise_shape"), [((50, 40, 3), (50, 1, 3)), ((), None)])
def test_what_keras_does(shape, noise_shape):
    ours, theirs = (
        layer(0.5, noise_shape=noise_shape, seed=3)(ops.ones(shape), training=True)
        for layer in (Dropout, keras.layers.Dropout)
    )
    np.testing.assert_array_equal(ours, theirs)


def test_each_call_draws_anew_and_a_seed_draws_again():
    layer, again = Dropout(0.5, seed=3), Dropout(0.5, seed=3)
    inputs = ops.ones((30, 40))
    calls, repeated = ([np.array(each(inputs, training=True)) for _ in range(3)] for each in (layer, again))
    np.testing.assert_array_equal(calls, repeated)
    assert all((calls[i] != calls[j]).mean() > 0.4 for i, j in ((0, 1), (0, 2), (1, 2)))


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16", "float64"])
def test_dtypes(dtype):
    layer = Dropout(0.5, seed=3, dtype=dtype)
    outputs = layer(ops.ones((4, 6), dtype="float32"), training=True)
    assert keras.backend.standardize_dtype(outputs.dtype) == layer.compute_dtype
    np.testing.assert_array_equal(np.unique(ops.convert_to_numpy(ops.cast(outputs, "float32"))), [0, 2])


def test_in_a_functional_model_of_any_lengths_that_is_saved(tmp_path):
    inputs = keras.Input((None, None))
    keras.Model(inputs, Dropout(0.5, seed=3, name="drop")(inputs, training=True)).save(tmp_path / "model.keras")
    model = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(model.get_layer("drop"), Dropout)
    for shape in ((2, 3, 5), (1, 7, 4)):
        outputs = np.array(model(ops.ones(shape)))
        assert outputs.shape == shape
        assert set(np.unique(outputs)) <= {0, 2}
