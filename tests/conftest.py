"""Fixtures of the whole suite. Keras is imported inside them, so that tests without it start at once."""

import contextlib
import fcntl
import gc
import json
import os
import random
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

if "PYTEST_XDIST_WORKER" in os.environ:
    # There are as many workers as cores: a second thread for the products of each would wait for the other worker.
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")


# Tracing makes objects by the ten thousand that stay. To look for garbage among them every 700 objects, as Python does
# by default, takes a tenth of the time of a test.
gc.set_threshold(50_000, 10, 10)


def pytest_collection_finish():
    """What the imports have made is no garbage."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish():
    """Nobody looks for garbage in a process that ends."""
    gc.freeze()


# Methods of the suites of `zoo.testing` that trace or export for seconds, for each class that the suites go through.
LONG_METHODS = {
    "test_it_decodes_in_a_graph_of_unknown_sizes",
    "test_it_is_exported_with_core_operations",
    "test_what_is_exported_answers_as_what_was_exported",
}
# The folders whose long tests run graphs that TensorFlow has optimised.
OPTIMISED = ("serving", "packed", "training", "fitting")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Moves these methods to `make test-long`, but for the families of `test_own_family.py`, which are small."""
    for item in items:
        if item.originalname in LONG_METHODS and item.path.name != "test_own_family.py":
            item.add_marker(pytest.mark.long)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Sets the seeds, so that weights and dropout do not depend on the tests that ran before, and how graphs run.

    Keras draws the seeds of its initialisers and generators from Python's. `keras.utils.set_random_seed` would also
    set TensorFlow's seed, which clears its compiled functions: a test that calls an export would take seconds longer.

    The graphs of most tests run once or twice. To optimise them first would take longer than they run, a sixth of the
    time of a test of tasks. Graphs of long tests of exports and trainings, and in the processes that tests start, are
    optimised as a user's are.
    """
    random.seed(0)
    np.random.seed(0)
    if tensorflow := sys.modules.get("tensorflow"):
        optimised = item.get_closest_marker("long") is not None and item.path.parts[-2] in OPTIMISED
        tensorflow.config.optimizer.set_experimental_options({"disable_meta_optimizer": not optimised})


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory):
    """A folder of all workers of xdist, for what takes long to make; see `once`."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def once():
    """Whether to make a file or folder, for the worker that comes first; the others wait until it is made."""

    @contextlib.contextmanager
    def once(path):
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield not path.exists()

    return once


@pytest.fixture
def eager():
    """Functions run without a graph: to trace one takes longer than to run it once."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def no_collection(monkeypatch):
    """For tests that quantise: Keras collects the garbage of the whole process after each of a model's kernels."""
    monkeypatch.setattr(gc, "collect", lambda generation=2: 0)


@pytest.fixture(scope="session")
def randomize():
    """A function that gives a layer or model random nonzero weights, biases included, and returns it."""

    def randomize(layer, seed=0, scale=0.5):
        random = np.random.default_rng(seed)
        layer.set_weights([random.normal(0, scale, weight.shape).astype("float32") for weight in layer.weights])
        return layer

    return randomize


@pytest.fixture(scope="session")
def numpy_steps():
    """One step of each recurrent cell in NumPy: `(x, states, kernel, recurrent_kernel, bias) -> states`."""

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    def gru(x, states, kernel, recurrent_kernel, bias):
        (state,) = states
        x_z, x_r, x_n = np.split(x @ kernel + bias[0], 3, axis=-1)
        s_z, s_r, s_n = np.split(state @ recurrent_kernel + bias[1], 3, axis=-1)
        update, reset = sigmoid(x_z + s_z), sigmoid(x_r + s_r)
        return (update * state + (1 - update) * np.tanh(x_n + reset * s_n),)

    def lstm(x, states, kernel, recurrent_kernel, bias):
        hidden, carry = states
        write, forget, candidate, read = np.split(x @ kernel + hidden @ recurrent_kernel + bias, 4, axis=-1)
        carry = sigmoid(forget) * carry + sigmoid(write) * np.tanh(candidate)
        return (sigmoid(read) * np.tanh(carry), carry)

    return {"gru": gru, "lstm": lstm}


@pytest.fixture(scope="session")
def numpy_softmax():
    """Softmax of scores over the last axis where the mask allows; zeros where it allows nothing."""

    def softmax(scores, mask=True):
        rows = []
        mask = np.broadcast_to(mask, scores.shape).reshape(-1, scores.shape[-1])
        for row, allowed in zip(scores.reshape(mask.shape).astype("float64"), mask, strict=True):
            weights = np.zeros_like(row)
            if allowed.any():
                exponentials = np.exp(row[allowed] - row[allowed].max())
                weights[allowed] = exponentials / exponentials.sum()
            rows.append(weights)
        return np.array(rows).reshape(scores.shape)

    return softmax


@pytest.fixture
def layer_check(tmp_path):
    """What every layer must do, as a function to call; see `check` below."""
    import keras
    import tensorflow as tf

    def tensors(outputs):
        return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]

    def check(layer_class, arguments, inputs, weights, outputs, options=None, mask_goes_on=False):
        """Configuration, building, symbolic and eager calls, saving, training and lower precision.

        The latter is float16, which is narrower than bfloat16 and rounds less; `FamilyTests` has bfloat16.

        Args:
            layer_class: the class.
            arguments: its constructor's, all of them.
            inputs: the call's tensors by name, as NumPy arrays or lists of them.
            weights: the expected shape of each weight by its path inside the layer.
            outputs: the expected shapes of the outputs.
            options: further call arguments.
            mask_goes_on: whether the second input, called `mask`, is attached to the first output, for the layers
                after.
        """
        options = options or {}

        def called(layer, inputs=inputs):
            inputs = dict(inputs)
            return tensors(layer(inputs.pop(next(iter(inputs))), **inputs, **options))

        def symbolic_model(layer):
            # Batch and lengths unknown, as in a user's model.
            def make(array):
                free = (None,) * (array.ndim - 1 - (array.dtype != bool))
                return keras.Input((*free, *array.shape[1 + len(free) :]), dtype=str(array.dtype))

            specs = keras.tree.map_structure(make, inputs)
            return keras.Model(keras.tree.flatten(specs), called(layer, specs))

        # The configuration makes the same layer again, also by way of JSON, and is left as it is.
        layer = layer_class(**arguments)
        config = layer.get_config()
        for argument, value in arguments.items():
            told = config[argument]
            assert told == value or isinstance(told, dict)  # an object that Keras has serialised
        text = json.dumps(config, sort_keys=True)
        assert json.dumps(layer_class.from_config(config).get_config(), sort_keys=True) == text
        assert json.dumps(config, sort_keys=True) == text
        serialized = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
        assert serialized["registered_name"] == f"zoo>{layer_class.__name__}"
        assert keras.saving.deserialize_keras_object(serialized).get_config() == config

        # The eager call creates the expected weights, takes masks without a warning, and attaches no unexpected ones.
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            results = called(layer)
        carrying = [getattr(result, "_keras_mask", None) is not None for result in results]
        assert carrying == [mask_goes_on, *(False for _ in results[1:])]
        if mask_goes_on:  # and also without its name
            assert getattr(tensors(layer(*inputs.values(), **options))[0], "_keras_mask", None) is not None
        assert {w.path.removeprefix(f"{layer.name}/"): tuple(w.shape) for w in layer.weights} == weights
        assert [tuple(result.shape) for result in results] == outputs

        # The symbolic call promises the shapes and types that come.
        model = symbolic_model(layer)
        for promise, result in zip(model.outputs, results, strict=True):
            assert len(promise.shape) == len(result.shape)
            assert all(size in (None, real) for size, real in zip(promise.shape, result.shape, strict=True))
            assert promise.shape[0] is None and promise.dtype == result.dtype.name
        arrays = [tf.constant(array) for array in keras.tree.flatten(inputs)]
        for promised, result in zip(tensors(model(arrays)), results, strict=True):
            np.testing.assert_array_equal(promised, result)

        # A saved model gives the same again.
        model.save(tmp_path / "model.keras")
        for reloaded, result in zip(
            tensors(keras.models.load_model(tmp_path / "model.keras")(arrays)), results, strict=True
        ):
            np.testing.assert_array_equal(reloaded, result)

        # A step of training in the graph, down the gradient, makes the loss smaller. The loss is a random linear form:
        # each output counts, and weights of attention, which sum to one, do not cancel.
        random = np.random.default_rng(1)
        directions = [random.normal(size=result.shape).astype("float32") for result in results]
        if layer.trainable_weights:
            optimizer = keras.optimizers.SGD(1e-3)

            @tf.function(autograph=False)
            def train_step():
                with tf.GradientTape() as tape:
                    loss = tf.add_n([tf.reduce_sum(o * d) for o, d in zip(called(layer), directions, strict=True)])
                gradients = tape.gradient(loss, layer.trainable_weights)
                assert all(gradient is not None for gradient in gradients)
                optimizer.apply(gradients, layer.trainable_weights)
                return loss

            losses = [float(train_step()) for _ in range(3)]
            assert losses[2] < losses[1] < losses[0]

        # In lower precision the outputs have its type, except those documented as float32, and nearly the same values.
        low = layer_class.from_config({**with_policy(config, "mixed_float16"), "name": f"{layer.name}_low"})
        model = symbolic_model(low)
        low.set_weights(layer.get_weights())
        for promise, result, precise in zip(model.outputs, called(low), called(layer), strict=True):
            assert promise.dtype == result.dtype.name
            assert result.dtype.name in ("float16", "float32")
            scale = np.abs(precise).max()
            np.testing.assert_allclose(tf.cast(result, "float32"), precise, rtol=0, atol=2**-7 * scale)  # 16 roundings
        assert model.outputs[0].dtype == "float16"
        return layer

    def with_policy(config, policy):
        """The configuration with another precision, in the layers inside too."""
        if isinstance(config, dict):
            if config.get("class_name") == "DTypePolicy":
                return {**config, "config": {"name": policy}}
            return {key: with_policy(value, policy) for key, value in config.items()}
        return config

    return check


@pytest.fixture(scope="session")
def arrays():
    """A function that makes a namespace of random float32 arrays of the shapes given by name."""

    def arrays(seed=0, **shapes):
        random = np.random.default_rng(seed)
        return SimpleNamespace(**{n: random.normal(size=shape).astype("float32") for n, shape in shapes.items()})

    return arrays
