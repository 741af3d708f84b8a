import numpy as np
import pytest
import tensorflow as tf

from zoo.layers.functions.recurrence import recur


def add_up(inputs, states):
    """Two running sums; the second adds up the first. The output is both, side by side."""
    first = states[0] + inputs
    second = states[1] + first
    return tf.concat([first, second], -1), [first, second]


@pytest.mark.parametrize("compiled", [True, False], ids=["graph", "eager"])
def test_steps_through_time_from_the_initial_states(compiled):
    def run(inputs, first, second):
        return recur(add_up, inputs, (first, second), 2, "float32")

    call = (
        tf.function(run, input_signature=[tf.TensorSpec([None] * n) for n in (3, 2, 2)], autograph=False)
        if compiled
        else run
    )
    inputs = tf.constant([[[1.0], [2.0], [3.0]], [[0.0], [5.0], [0.0]]])
    outputs = call(inputs, tf.constant([[0.0], [10.0]]), tf.constant([[100.0], [0.0]]))
    expected = [[[1, 101], [3, 104], [6, 110]], [[10, 10], [15, 25], [15, 40]]]
    np.testing.assert_array_equal(outputs, expected)


def test_no_positions_are_an_error():
    with pytest.raises(ValueError, match=r"^A sequence needs at least one position\. Received: .* shape \(2, 0, 1\)$"):
        recur(add_up, tf.zeros([2, 0, 1]), (tf.zeros([2, 1]), tf.zeros([2, 1])), 2, "float32")
