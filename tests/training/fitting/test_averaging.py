"""Averaged weights: in for as long as they are wanted, and out again as if nothing had been."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo_training.fitting.averaging import WeightAverage
from zoo_training.fitting.optimization import make_optimizer
from zoo_training.schema.recipe_tables import TrainingConfig


def averaged(**changes):
    """(average, model), the model with one vector of weights, from zero."""
    config = TrainingConfig(schedule="constant", **changes)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(make_optimizer(config, 10), "mse")
    average = WeightAverage(config)
    average.set_model(model)
    put(model, 0.0, 0.0)
    return average, model


def put(model, *values):
    model.trainable_variables[0].assign(np.array(values, "float32")[:, None])


def weights(model):
    return np.array(model.trainable_variables[0])[:, 0].tolist()


def epochs(average, model, *values):
    for epoch, value in enumerate(values):
        put(model, value, -value)
        average.on_epoch_end(epoch)


class TestTheLastEpochs:
    @pytest.mark.parametrize(
        ("values", "mean"), [([1.0], 1.0), ([1.0, 2.0], 1.5), ([1.0, 2.0, 6.0], 3.0), ([9.0, 1.0, 2.0, 6.0], 3.0)]
    )
    def test_their_mean(self, values, mean):
        average, model = averaged(average_last=3)
        epochs(average, model, *values)
        with average.in_place():
            assert weights(model) == [mean, -mean]
        assert weights(model) == [values[-1], -values[-1]]

    def test_of_one_it_is_the_last(self):
        average, model = averaged(average_last=1)
        epochs(average, model, 1.0, 5.0)
        with average.in_place():
            assert weights(model) == [5.0, -5.0]

    def test_what_is_remembered_does_not_change_with_the_model(self):
        average, model = averaged(average_last=2)
        epochs(average, model, 1.0)
        put(model, 7.0, 7.0)
        with average.in_place():
            assert weights(model) == [1.0, -1.0]
        assert weights(model) == [7.0, 7.0]

    def test_before_the_first_epoch_the_weights_are_as_they_are(self):
        average, model = averaged(average_last=2)
        with average.in_place():
            assert weights(model) == [0.0, 0.0]

    def test_an_odd_number_comes_back_bit_for_bit(self):
        average, model = averaged(average_last=3)
        epochs(average, model, 0.1, 0.2, 1e-30)
        with average.in_place():
            pass
        assert weights(model) == [float(np.float32(1e-30)), -float(np.float32(1e-30))]

    @pytest.mark.parametrize("done", [0, 1, 2, 3, 5])
    def test_state_and_back(self, done):
        """Also with fewer epochs than are averaged, and then in the right order."""
        average, model = averaged(average_last=3)
        epochs(average, model, *map(float, range(done)))
        again, other = averaged(average_last=3)
        again.restore(average.state())
        assert len(average.state()) == min(done, 3)
        for each, its in ((average, model), (again, other)):
            epochs(each, its, 10.0)
        with average.in_place(), again.in_place():
            assert weights(model) == weights(other)

    def test_state_of_more_than_ten(self):
        """Names are numbers, and ten comes after two."""
        average, model = averaged(average_last=12)
        epochs(average, model, *map(float, range(12)))
        again, other = averaged(average_last=12)
        again.restore(average.state())
        for each, its in ((average, model), (again, other)):
            epochs(each, its, 100.0, 200.0, 300.0)
        with again.in_place():
            assert weights(other)[0] == pytest.approx((sum(range(3, 12)) + 600) / 12)


class TestMovingAverage:
    def test_over_the_updates(self):
        average, model = averaged(average_decay=0.75, learning_rate=0.1)
        values = []
        for gradient in (1.0, -3.0, 0.5):
            model.optimizer.apply([tf.constant([[gradient], [1.0]])], model.trainable_variables)
            values.append(np.array(weights(model)))
        wanted = 0.75 * (0.75 * values[0] + 0.25 * values[1]) + 0.25 * values[2]
        with average.in_place():
            np.testing.assert_allclose(weights(model), wanted, rtol=1e-6)
        assert weights(model) == values[-1].tolist()

    def test_the_optimizer_holds_its_state(self):
        average, _ = averaged(average_decay=0.75)
        assert average.state() == {}
        average.restore({})


@pytest.mark.parametrize("changes", [{"average_last": 2}, {"average_decay": 0.5}])
def test_after_an_error_the_weights_are_back(changes):
    average, model = averaged(**changes)
    model.optimizer.apply([tf.constant([[1.0], [1.0]])], model.trainable_variables)
    epochs(average, model, 1.0, 2.0)
    with pytest.raises(KeyboardInterrupt), average.in_place():
        assert weights(model) != [2.0, -2.0]
        raise KeyboardInterrupt
    assert weights(model) == [2.0, -2.0]


def test_without_an_average_nothing_is_done():
    average, model = averaged()
    epochs(average, model, 1.0)
    with average.in_place():
        assert weights(model) == [1.0, -1.0]
    assert average.state() == {}
