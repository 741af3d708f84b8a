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

    call = tf.function(run, input_signature=[tf.TensorSpec([None] * n) for n in (3, 2, 2)]) if compiled else run
    inputs = tf.constant([[[1.0], [2.0], [3.0]], [[0.0], [5.0], [0.0]]])
    outputs = call(inputs, tf.constant([[0.0], [10.0]]), tf.constant([[100.0], [0.0]]))
    expected = [[[1, 101], [3, 104], [6, 110]], [[10, 10], [15, 25], [15, 40]]]
    np.testing.assert_array_equal(outputs, expected)


def test_sees_tensors_from_outside_and_differentiates_through_all_steps():
    inputs, factor, start = tf.ones((2, 3, 1)), tf.constant(2.0), tf.constant([[1.0], [4.0]])
    with tf.GradientTape() as tape:
        tape.watch([factor, start])

        def step(inputs, states):
            state = factor * states[0] + inputs
            return state, [state]

        last = recur(step, inputs, (start,), 1, "float32")[:, -1]
        total = tf.reduce_sum(last)
    # s_3 = f^3 s_0 + f^2 + f + 1
    np.testing.assert_array_equal(last, [[15.0], [39.0]])
    to_factor, to_start = tape.gradient(total, [factor, start])
    np.testing.assert_array_equal(to_factor, 3 * 4 * (1 + 4) + 2 * (2 * 2 + 1))
    np.testing.assert_array_equal(to_start, [[8.0], [8.0]])
