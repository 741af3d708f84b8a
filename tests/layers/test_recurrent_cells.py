import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.layers.recurrent_cells import GRUCell, LSTMCell, make_cell

ROWS, WIDTH, UNITS = 2, 5, 3
CELLS = {"gru": (GRUCell, keras.layers.GRUCell), "lstm": (LSTMCell, keras.layers.LSTMCell)}


@pytest.fixture(params=CELLS)
def kind(request):
    return request.param


@pytest.fixture
def cell(kind, randomize):
    cell = make_cell(kind, UNITS)
    cell.build((None, WIDTH))
    return randomize(cell)


@pytest.fixture
def states(cell, arrays):
    both = arrays(hidden=(ROWS, UNITS), carry=(ROWS, UNITS))
    return tuple(getattr(both, name) for name in cell.states)


@pytest.fixture
def inputs(arrays):
    return arrays(seed=2, x=(ROWS, WIDTH)).x


def test_are_made_by_name(kind):
    assert type(make_cell(kind, UNITS)) is CELLS[kind][0]
    assert make_cell("gru", 3).states == ("hidden",)
    assert make_cell("lstm", 3).states == ("hidden", "carry")


def test_keras_cell_with_the_same_weights_gives_the_same(kind, cell, states, inputs):
    peer = CELLS[kind][1](UNITS)
    peer.build((None, WIDTH))
    assert [w.name for w in peer.weights] == [w.name for w in cell.weights]
    peer.set_weights(cell.get_weights())
    _, expected = peer(inputs, states)
    stepped = cell.step(cell.project(inputs) + cell.input_bias, states)
    assert len(stepped) == len(expected) == len(states)
    for ours, theirs, called in zip(stepped, expected, cell(inputs, states)[1], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
        np.testing.assert_allclose(called, theirs, atol=1e-6)


def test_inputs_may_be_projected_in_parts_and_many_steps_at_once(cell, arrays):
    x = arrays(x=(ROWS, 4, WIDTH)).x
    whole = cell.project(x)
    parts = cell.project(x[..., :2], slice(0, 2)) + cell.project(x[..., 2:], slice(2, None))
    np.testing.assert_allclose(parts, whole, atol=1e-6)
    np.testing.assert_allclose(whole[:, 3], x[:, 3] @ cell.get_weights()[0], atol=1e-6)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_a_step_outside_a_call_keeps_the_policys_type(kind, policy, inputs, states):
    cell = make_cell(kind, UNITS, dtype=policy)
    cell.build((None, WIDTH))
    inputs, *states = (tf.cast(tensor, cell.compute_dtype) for tensor in (inputs, *states))
    stepped = cell.step(cell.project(inputs) + cell.input_bias, tuple(states))
    assert {state.dtype.name for state in stepped} == {cell.compute_dtype}


def test_configuration_makes_the_cell_again(kind, cell):
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(cell))
    assert type(again) is CELLS[kind][0]
    assert again.get_config() == cell.get_config()


def test_reset_before_the_product_is_refused():
    with pytest.raises(ValueError, match=r"^`reset_after` must be True.*Received: False$"):
        GRUCell(UNITS, reset_after=False)


def test_unknown_cell():
    with pytest.raises(ValueError, match=r"^`cell` must be one of 'gru', 'lstm'\. Received: cell='rnn'$"):
        make_cell("rnn", UNITS)
