import numpy as np
import pytest
import tensorflow as tf

from zoo.layers.functions.gradients import once_differentiable

MESSAGE = r"gradient of this attention cannot be differentiated again.*`flash_attention=False`"


@pytest.mark.parametrize("compiled", [True, False], ids=["graph", "eager"])
def test_the_tensor_itself_comes_out(compiled):
    call = tf.function(once_differentiable) if compiled else once_differentiable
    result = call(tf.constant([1.5, -2.0], "float64"))
    assert result.dtype == "float64"
    np.testing.assert_array_equal(result, [1.5, -2.0])


@pytest.mark.parametrize("compiled", [True, False], ids=["graph", "eager"])
def test_its_gradient_refuses(compiled):
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = once_differentiable(x * 2.0) + x
        return tape.gradient(y, x)

    with pytest.raises(NotImplementedError, match=MESSAGE):
        (tf.function(gradient) if compiled else gradient)(tf.constant([1.0, 2.0]))


@pytest.mark.parametrize("compiled", [True, False], ids=["graph", "eager"])
def test_it_refuses_for_sources_that_it_does_not_depend_on_in_the_graph(compiled):
    def gradient(x, y):
        with tf.GradientTape() as tape:
            tape.watch(y)
            z = once_differentiable(2.0 * x, x, tf.sin(y)) + y
        return tape.gradient(z, y)

    with pytest.raises(NotImplementedError, match=MESSAGE):
        (tf.function(gradient) if compiled else gradient)(tf.constant([1.0, 2.0]), tf.constant([3.0, 4.0]))


def test_what_does_not_come_through_it_has_a_gradient():
    x = tf.constant([1.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        once_differentiable(x)
        y = x * x
    np.testing.assert_array_equal(tape.gradient(y, x), [2.0, 6.0])
