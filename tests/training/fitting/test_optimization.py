"""Optimizers and learning rates, against updates written out in NumPy."""

import ast
import functools
import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo_training.fitting import optimization
from zoo_training.fitting.optimization import FusedAdam, InverseSquareRoot, Muon, learning_rate, make_optimizer
from zoo_training.schema.recipe_tables import TrainingConfig

from zoo.models import GPT, RNNSeq2Seq, Transformer

START = np.array([[1.0, -2.0], [3.0, 0.5]], "float32")
GRADIENTS = [np.array([[a, b], [-b, 0.0]], "float32") for a, b in [(0.1, 2.0), (-3.0, 0.2), (0.5, 0.5), (4.0, -1.0)]]


def config(**changes):
    return TrainingConfig(**{"learning_rate": 0.1, "schedule": "constant", "clip_norm": None, **changes})


def updated(config, gradients=GRADIENTS, start=START, name="kernel"):
    """The values of a variable after each gradient, and the optimizer."""
    variable = keras.Variable(start, name=name)
    optimizer = make_optimizer(config, 10)
    values = []
    for gradient in gradients:
        optimizer.apply([tf.convert_to_tensor(gradient)], [variable])
        values.append(np.array(variable))
    return values, optimizer


def by_hand(gradients, start=START, rate=0.1, beta_2=0.999, epsilon=1e-7, decay=0.0, clip=None):
    """Adam as in the paper (its epsilon hat), in float64, with decoupled weight decay."""
    value, m, v, values = start.astype("float64"), 0.0, 0.0, []
    for t, gradient in enumerate(gradients, start=1):
        gradient = gradient.astype("float64")
        if clip:
            gradient = gradient * min(1.0, clip / np.sqrt((gradient**2).sum()))
        value = value * (1 - decay * rate)
        m, v = 0.9 * m + 0.1 * gradient, beta_2 * v + (1 - beta_2) * gradient**2
        value = value - rate * np.sqrt(1 - beta_2**t) / (1 - 0.9**t) * m / (np.sqrt(v) + epsilon)
        values.append(value)
    return values


class TestUpdates:
    @pytest.mark.parametrize(
        ("changes", "arguments"),
        [
            ({}, {}),
            ({"beta_2": 0.98, "weight_decay": 0.5}, {"beta_2": 0.98, "decay": 0.5}),
            ({"clip_norm": 1.0, "weight_decay": 0.5, "epsilon": 0.1}, {"clip": 1.0, "decay": 0.5, "epsilon": 0.1}),
        ],
    )
    def test_adam(self, changes, arguments):
        values, _ = updated(config(**changes))
        np.testing.assert_allclose(values, by_hand(GRADIENTS, **arguments), rtol=1e-4)

    def test_in_a_graph_with_a_schedule_as_keras_own(self):
        def apply(optimizer, variable, gradient):
            optimizer.apply([gradient], [variable])

        schedule = keras.optimizers.schedules.CosineDecay(0.1, 4)
        values = []
        for optimizer in (FusedAdam(schedule, weight_decay=0.1), keras.optimizers.AdamW(schedule, weight_decay=0.1)):
            variable = keras.Variable(START)
            optimizer.build([variable])

            step = tf.function(functools.partial(apply, optimizer, variable), jit_compile=True)
            for gradient in GRADIENTS:
                step(tf.constant(gradient))
            values.append(np.array(variable))
        np.testing.assert_allclose(*values, rtol=1e-5)

    def test_a_gradient_of_named_rows_is_the_dense_one(self):
        """A row named twice counts with its sum, (6, 8), of the norm 10; the moments of the others decay."""
        slices = tf.IndexedSlices(tf.constant([[3.0, 4.0], [3.0, 4.0]]), tf.constant([1, 1]), tf.constant([2, 2]))
        variable, optimizer = keras.Variable(START), make_optimizer(config(clip_norm=1.0, epsilon=0.1), 10)
        for gradient in (tf.constant(GRADIENTS[0]), slices):
            optimizer.apply([gradient], [variable])
        dense = np.array([[0.0, 0.0], [6.0, 8.0]], "float32")
        np.testing.assert_allclose(variable, by_hand([GRADIENTS[0], dense], clip=1.0, epsilon=0.1)[-1], rtol=1e-5)

    def test_all_gradients_are_clipped_together(self):
        """Norms 3 and 4 together are 5."""
        variables = [keras.Variable([0.0]), keras.Variable([0.0])]
        optimizer = make_optimizer(config(clip_norm=1.0, epsilon=1.0), 10)
        optimizer.apply([tf.constant([3.0]), tf.constant([4.0])], variables)
        wanted = [by_hand([np.array([g])], np.zeros(1), clip=None, epsilon=1.0)[0] for g in (0.6, 0.8)]
        np.testing.assert_allclose(variables, wanted, rtol=1e-5)

    @pytest.mark.parametrize(("name", "kind"), [("adam", FusedAdam), ("muon", Muon)])
    def test_it_survives_serialization(self, name, kind):
        changes = {"schedule": "inverse_sqrt", "warmup_steps": 4, "weight_decay": 0.1, "average_decay": 0.9}
        optimizer = make_optimizer(config(optimizer=name, **changes), 10)
        again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
        assert type(again) is kind
        assert again.get_config() == optimizer.get_config()


MODELS = {
    "transformer": lambda: Transformer(9, 9, 8, 2, 16, 1, 1, activation="swiglu", positions="learned", max_length=9),
    "transformer, rms": lambda: Transformer(9, 9, 8, 2, 16, 1, 1, normalization="rms", tied_embeddings="none"),
    "rnn, additive": lambda: RNNSeq2Seq(9, 9, "additive", units=4),
    "rnn, concat, lstm": lambda: RNNSeq2Seq(9, 9, "concat", cell="lstm", units=4),
}


class TestWeightDecay:
    @pytest.mark.parametrize("name", MODELS)
    def test_kernels_and_embeddings_decay_and_nothing_else(self, name):
        """With gradients of zero nothing but the decay changes a weight."""
        model = MODELS[name]()
        for variable in model.trainable_variables:
            variable.assign(np.ones(variable.shape))
        optimizer = make_optimizer(config(weight_decay=0.5), 10)
        optimizer.apply([tf.zeros(each.shape) for each in model.trainable_variables], model.trainable_variables)
        decayed = {each.path for each in model.trainable_variables if np.all(np.array(each) < 1)}
        kept = {each.path for each in model.trainable_variables if np.all(np.array(each) == 1)}
        assert len(decayed) + len(kept) == len(model.trainable_variables)
        assert {path.rsplit("/", 1)[1] for path in kept} <= {"bias", "gamma", "beta", "scale"}
        assert all(path.endswith(("kernel", "embeddings")) for path in decayed)
        assert any("embedding" in path for path in decayed)


class TestAccumulation:
    def test_two_batches_are_one_update_by_the_mean(self):
        changes = {"clip_norm": 1.0, "weight_decay": 0.5}
        values, optimizer = updated(config(accumulate=2, **changes))
        halves, _ = updated(config(**changes), [(GRADIENTS[0] + GRADIENTS[1]) / 2, (GRADIENTS[2] + GRADIENTS[3]) / 2])
        assert np.array_equal(values[0], START)
        assert np.array_equal(values[1], values[2])
        np.testing.assert_allclose(values[1::2], halves, rtol=1e-6)
        assert int(optimizer.iterations) == 2

    def test_the_schedule_counts_updates_not_batches(self):
        rates = []
        variable = keras.Variable(START)
        optimizer = make_optimizer(config(accumulate=2, schedule="inverse_sqrt", warmup_steps=2), 2)
        for gradient in GRADIENTS:
            rates.append(float(optimizer.learning_rate))
            optimizer.apply([tf.constant(gradient)], [variable])
        assert rates == pytest.approx([0.05, 0.05, 0.1, 0.1])


class TestMovingAverage:
    @staticmethod
    def average(optimizer):
        variable = keras.Variable(START)
        optimizer.finalize_variable_values([variable])
        return np.array(optimizer._model_variables_moving_average[0])

    @pytest.mark.parametrize(
        ("warmup", "decays", "accumulate"),
        [(True, [2 / 11, 3 / 12, 4 / 13, 0.35], 1), (True, [2 / 11, 3 / 12, 4 / 13, 0.35], 2), (False, [0.35] * 4, 1)],
    )
    def test_begins_with_the_first_update_and_decays_with_updates(self, warmup, decays, accumulate):
        """Not with batches. Version 0.1 knew no warm-up, and its trainings go on without it."""
        optimizer = make_optimizer(config(average_decay=0.35, accumulate=accumulate), 10)
        optimizer.average_warmup = warmup
        variable, values = keras.Variable(START), []
        for gradient in (GRADIENTS + GRADIENTS[:1]) * accumulate:
            optimizer.apply([tf.constant(gradient)], [variable])
            values.append(np.array(variable))
        first, *rest = values[accumulate - 1 :: accumulate]
        for value, decay in zip(rest, decays, strict=True):
            first = decay * first + (1 - decay) * value
        np.testing.assert_allclose(self.average(optimizer), first, rtol=1e-6)


class TestLearningRate:
    @pytest.mark.parametrize(
        ("changes", "rates"),
        [
            ({"schedule": "constant"}, {0: 0.5, 50: 0.5, 99: 0.5}),
            ({"schedule": "constant", "warmup_steps": 10}, {0: 0, 5: 0.25, 10: 0.5, 50: 0.5, 99: 0.5}),
            ({}, {0: 0.5, 50: 0.25, 100: 0}),  # a cosine
            ({"warmup_steps": 20}, {0: 0, 10: 0.25, 20: 0.5, 60: 0.25, 100: 0}),
            ({"schedule": "inverse_sqrt"}, {0: 0.5, 3: 0.25}),
            ({"schedule": "inverse_sqrt", "warmup_steps": 4}, {0: 0.125, 1: 0.25, 3: 0.5, 15: 0.25, 63: 0.125}),
        ],
    )
    def test_by_hand(self, changes, rates):
        rate = learning_rate(TrainingConfig(learning_rate=0.5, **changes), 100)
        found = {step: rate if isinstance(rate, float) else float(rate(step)) for step in rates}
        assert found == pytest.approx(rates, abs=1e-6)

    @pytest.mark.parametrize("schedule", ["constant", "cosine", "inverse_sqrt"])
    def test_a_warm_up_longer_than_the_training(self, schedule):
        config = TrainingConfig(learning_rate=0.5, schedule=schedule, warmup_steps=1000)
        for total in (1, 5):
            rates = [float(learning_rate(config, total)(step)) for step in range(total)]
            assert all(0 <= rate <= 0.5 for rate in rates)
            assert max(rates) > 0

    def test_the_papers_formula(self):
        """Vaswani et al. 2017, equation 3, whose steps count from 1."""
        schedule = InverseSquareRoot((512 * 4000) ** -0.5, 4000)
        for step in (1, 100, 3999, 4000, 4001, 100_000):
            wanted = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
            assert float(schedule(step - 1)) == pytest.approx(wanted, rel=1e-5)
        with pytest.raises(ValueError, match=r"^`warmup_steps` must be at least 1\. Received: warmup_steps=0$"):
            InverseSquareRoot(0.1, 0)


def orthogonal_sizes(update, gradient, matrix):
    """The sizes of an update along the singular directions of the gradient, as matrices, and the part outside them."""
    u, _, v = np.linalg.svd(gradient.reshape(matrix), full_matrices=False)
    sizes = np.diag(u.T @ update.reshape(matrix) @ v.T)
    return sizes, update.reshape(matrix) - (u * sizes) @ v


class TestMuon:
    """Against the singular value decomposition that its iteration approximates."""

    def updated(self, shape, path, gradient):
        scope, _, name = path.rpartition("/")
        with keras.name_scope(scope):
            variable = keras.Variable(np.zeros(shape, "float32"), name=name)
        make_optimizer(config(optimizer="muon"), 10).apply([tf.constant(gradient)], [variable])
        return np.array(variable)

    @pytest.mark.parametrize(
        ("shape", "path", "matrix"),
        [
            ((15, 6), "dense/kernel", (15, 6)),
            ((6, 3, 5), "query/kernel", (6, 15)),
            ((3, 2, 7), "attention_output/kernel", (6, 7)),
        ],
    )
    def test_the_update_of_a_matrix_is_nearly_orthogonal(self, shape, path, matrix):
        gradient = np.random.default_rng(0).normal(size=shape).astype("float32")
        size = 0.1 * 0.2 * np.sqrt(max(matrix))
        sizes, rest = orthogonal_sizes(self.updated(shape, path, gradient), gradient, matrix)
        # The directions of the gradient, with a size from 0.7 to 1.2 of the one that is wanted.
        assert ((sizes / -size > 0.65) & (sizes / -size < 1.25)).all(), sizes
        np.testing.assert_allclose(rest, 0, atol=1e-3 * size)

    @pytest.mark.parametrize(
        ("shape", "path"), [((4, 3), "layer/embeddings"), ((5,), "layer/bias"), ((4, 3), "logits/kernel")]
    )
    def test_everything_else_is_adams(self, shape, path):
        gradient = np.random.default_rng(0).normal(size=shape).astype("float32")
        np.testing.assert_allclose(self.updated(shape, path, gradient), -0.1 * np.sign(gradient), rtol=1e-4)

    def test_which_weights_of_a_model_are_whose_and_which_decay(self):
        model = GPT(9, 8, 2, 1, 6, tied_embeddings=False)
        for variable in model.trainable_variables:
            variable.assign(np.ones(variable.shape))
        optimizer = make_optimizer(config(optimizer="muon", weight_decay=0.5), 10)
        optimizer.apply([tf.zeros(each.shape) for each in model.trainable_variables], model.trainable_variables)
        muons = {each.path for each in model.trainable_variables if not optimizer._should_use_adamw(each)}
        assert muons == {
            *(f"layer_1/self_attention/{name}/kernel" for name in ("query", "key", "value", "attention_output")),
            *(f"layer_1/feed_forward/{name}/kernel" for name in ("input", "output")),
        }
        for each in model.trainable_variables:
            expected = 0.95 if each.path.endswith(("kernel", "embeddings")) else 1.0
            np.testing.assert_allclose(np.array(each), expected, rtol=1e-6, err_msg=each.path)


# The private names of Keras that the optimizers read or replace. Keras 3.15.0 and 3.15.1 have all of them.
PRIVATE = {
    keras.optimizers.Optimizer: {
        *("_get_variable_index", "_get_current_learning_rate", "_learning_rate", "_iterations"),
        *("_update_model_variables_moving_average", "_model_variables_moving_average"),
        *("_apply_weight_decay", "_use_weight_decay"),
    },
    keras.optimizers.Adam: {"_momentums", "_velocities"},
    keras.optimizers.Muon: {"_should_use_adamw", "_muon_update_step"},
}


@pytest.mark.parametrize("kind", PRIVATE)
def test_private_names_that_keras_has(kind):
    optimizer = keras.optimizers.Adam(use_ema=True) if kind is keras.optimizers.Optimizer else kind()
    optimizer.build([keras.Variable(START)])
    assert {name for name in PRIVATE[kind] if not hasattr(optimizer, name)} == set()


def test_no_other_private_name_is_read():
    tree = ast.parse(inspect.getsource(optimization))
    own = {"_matrix_shapes", "_update_average", "_rate", "_factors"}
    private = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} | {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
    }
    read = {name for name in private if name.startswith("_") and not name.startswith("__")}
    assert read - own - {"_matrix_shape"} == set().union(*PRIVATE.values())
