"""`zoo.distribution`: several processes on loopback train as one, and end together."""

import pathlib

import keras
import loopback
import numpy as np
import pytest
import tensorflow as tf
from worker_threads import in_threads

from zoo.distribution import ClusterError, Workers, _AveragedStep, _SharedMetrics, multi_worker

PROGRAM = pathlib.Path(__file__).with_name("workers_program.py")


class TestEnter:
    def test_a_port_in_use_is_said(self, monkeypatch):
        hosts = loopback.addresses(2)
        with loopback.socket.create_server(("127.0.0.1", int(hosts[0].rpartition(":")[2]))):
            monkeypatch.setenv("TF_CONFIG", loopback.config(hosts, 0))
            with (
                pytest.raises(ClusterError, match=r"port \d+ is in use: TF_CONFIG gives it to worker 0"),
                multi_worker(),
            ):
                pass

    def test_no_time_at_all(self, monkeypatch):
        monkeypatch.setenv("TF_CONFIG", loopback.config(loopback.addresses(2), 0))
        with pytest.raises(ClusterError, match=r"more than 0 seconds\. Received: wait=0$"), multi_worker(wait=0):
            pass


class TestOneWorker:
    def test_nothing_changes_without_a_cluster(self, monkeypatch):
        monkeypatch.delenv("TF_CONFIG", raising=False)
        dataset = tf.data.Dataset.range(6).batch(3)
        with multi_worker() as workers:
            assert (workers.count, workers.index, workers.is_chief) == (1, 0, True)
            assert workers.shard(dataset) is dataset
            assert workers.broadcast_bytes(b"abc") == b"abc"
            model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            step = model.train_step
            assert workers.distribute(model).train_step == step

    def test_the_gradient_of_an_embedding_is_summed_by_row(self):
        model = keras.Sequential([keras.Input((2,), dtype="int32"), keras.layers.Embedding(3, 1)])
        model.compile(keras.optimizers.Adam(0.1, beta_2=0.0, epsilon=0.0), "mse")
        Workers().distribute(model)
        table = model.trainable_variables[0]
        table.assign([[0.0], [0.0], [0.0]])
        slices = tf.IndexedSlices(tf.constant([[3.0], [4.0]]), tf.constant([1, 1]), tf.constant([3, 1]))
        model.optimizer.apply([slices], [table])
        # Adam's first step is 0.1 m / sqrt(v) with m = 0.1 * 7 / 0.1 and v = 7^2, not 3^2 + 4^2.
        np.testing.assert_allclose(table[1], [-0.1], rtol=1e-6)

    def test_a_model_without_weights_is_refused(self):
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        with pytest.raises(ValueError, match=r"must have its weights and be compiled.*built=False"):
            Workers().distribute(model)


@pytest.mark.parametrize(
    "given", [[b"", b"", b""], [b"\xff", b"", b"\x80\xff\x00"], [b"12345", b"\xff" * 7, b"\x00\x80" * 9]]
)
def test_every_worker_gets_the_bytes_of_all(given):
    """They share integers of four bytes, whose sum must not carry."""
    assert in_threads(3, lambda workers: workers.gather_bytes(given[workers.index])) == [given] * 3
    assert in_threads(3, lambda workers: workers.broadcast_bytes(given[workers.index])) == [given[0]] * 3


def test_each_worker_takes_its_rows():
    workers = Workers()
    workers.count, workers.index = 3, 1
    dataset = tf.data.Dataset.from_tensor_slices((tf.range(11), tf.range(22).numpy().reshape(11, 2))).batch(7)
    (first, pairs), (second, _) = workers.shard(dataset)
    np.testing.assert_array_equal(first, [1, 4])
    np.testing.assert_array_equal(pairs, [[2, 3], [8, 9]])
    np.testing.assert_array_equal(second, [8])
    with pytest.raises(tf.errors.InvalidArgumentError, match="fewer rows than there are workers"):
        list(workers.shard(dataset.unbatch().batch(10)))


def test_moving_averages_are_averaged_and_frozen_weights_stay_as_they_are():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.BatchNormalization()])
    model.layers[0].trainable = False
    model.compile("sgd", "mse")
    for array, variable in enumerate(model.variables):
        variable.assign(keras.ops.full(variable.shape, 0.1 + array))
    before = [np.array(variable) for variable in model.layers[0].variables]
    sent = []
    workers = Workers()
    workers.count = 3
    workers.sums = lambda tensors: sent.extend(tensors) or [tensor + tensor + tensor for tensor in tensors]
    logs = _SharedMetrics(workers, model, _AveragedStep(workers, model))()
    assert {type(log) for log in logs.values()} == {float}, "JSON takes them"
    states = sum(len(metric.variables) for metric in model.metrics)
    assert len(sent) == states + 2, "those of batch normalisation"
    for old, variable in zip(before, model.layers[0].variables, strict=True):
        np.testing.assert_array_equal(old, variable)


def fitted_in_phases(workers):
    """Weights and logs of a model that is tried alone, then trained with a frozen layer, then as a whole."""
    chance = np.random.default_rng(0)
    inputs, classes = chance.normal(size=(24, 5)).astype("float32"), np.eye(3)[chance.integers(0, 3, 24)]
    data = tf.data.Dataset.from_tensor_slices((inputs, classes)).batch(7)  # the last one has three rows
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(4), keras.layers.Dense(3)])
    model.set_weights([chance.normal(size=each.shape) for each in model.get_weights()])
    loss, logs = keras.losses.CategoricalCrossentropy(from_logits=True), []
    for frozen in (True, False):
        model.layers[0].trainable = not frozen
        metrics = ["accuracy", keras.metrics.F1Score(average=None)]  # a number, and one for each class
        model.compile("sgd", loss, metrics=metrics, run_eagerly=True)
        if frozen:
            model.fit(data.take(1), verbose=0)  # without the other workers
        elif workers.count > 1:
            with pytest.raises(ValueError, match=r"^after `compile`, call `workers.distribute\(model\)` again"):
                model.fit(data.take(1), verbose=0)
        workers.distribute(model)
        logs.append(model.fit(workers.shard(data), epochs=2, verbose=0).history)
        logs.append(model.evaluate(workers.shard(data), verbose=0, return_dict=True))
    return model.get_weights(), logs


def test_phases_of_a_training_without_a_graph():
    """Each worker has the weights and logs of one alone, also where it was compiled again."""
    alone = fitted_in_phases(Workers())
    for together in in_threads(2, fitted_in_phases):
        for one, other in zip(*map(keras.tree.flatten, (alone, together)), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)


MODELS = ("gpt", "cnn-xla", "cnn-steps_per_execution", "cnn-accumulation", "cnn-mixed_float16")


def trained(number, folder, steps=50):
    """The weights of each model, by its name, after so many workers have trained it."""
    folder.mkdir()
    results = [loopback.ended(each, 300) for each in loopback.start_all([PROGRAM, steps, folder, *MODELS], number)]
    for code, out, err in results:
        assert code == 0, f"{out}\n{err}"
    assert len({out for _, out, _ in results}) == 1, "callbacks must see the same logs on each worker"
    found = {}
    for name in MODELS:
        with np.load(folder / f"{name}.npz") as arrays:
            found[name] = [arrays[each] for each in arrays.files]
    return found


@pytest.mark.long
def test_many_workers_train_as_one(tmp_path):
    """One worker with 64 rows, and three with 22, 21 and 21."""
    alone, together = (trained(number, tmp_path / str(number)) for number in (1, 3))
    for name in MODELS:
        assert any(abs(array).max() > 0.05 for array in together[name])
        error = 0.02 if name.endswith("float16") else 1e-5
        for one, other in zip(alone[name], together[name], strict=True):
            np.testing.assert_allclose(one, other, atol=error, err_msg=name)
