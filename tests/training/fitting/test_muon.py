"""Muon, against updates written out in NumPy by the singular value decomposition that its iteration approximates."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo_training.fitting.muon import Muon
from zoo_training.fitting.optimization import make_optimizer
from zoo_training.schema.recipe_tables import TrainingConfig

from zoo.models import GPT


def config(**changes):
    return TrainingConfig(**{"optimizer": "muon", "learning_rate": 0.1, "schedule": "constant", **changes})


def updated(shape, name, gradient, **changes):
    variable = keras.Variable(np.zeros(shape, "float32"), name=name)
    make_optimizer(config(clip_norm=None, **changes), 10).apply([tf.constant(gradient)], [variable])
    return np.array(variable)


@pytest.mark.parametrize(
    ("shape", "name", "matrix"),
    [
        ((6, 15), "kernel", (6, 15)),
        ((15, 6), "kernel", (15, 6)),
        ((6, 3, 5), "query/kernel", (6, 15)),
        ((3, 2, 7), "attention_output/kernel", (6, 7)),
    ],
)
def test_the_update_of_a_matrix_is_nearly_orthogonal(shape, name, matrix):
    gradient = np.random.default_rng(0).normal(size=shape).astype("float32")
    with keras.name_scope(name.rpartition("/")[0] or "dense"):
        update = updated(shape, name.rpartition("/")[2], gradient).reshape(matrix)
    u, _, v = np.linalg.svd(gradient.reshape(matrix), full_matrices=False)
    size = 0.1 * 0.2 * np.sqrt(max(matrix))
    # The directions of the gradient, each with a size from 0.7 to 1.2 of that one.
    sizes = np.diag(u.T @ update @ v.T) / -size
    assert ((sizes > 0.65) & (sizes < 1.25)).all(), sizes
    np.testing.assert_allclose(update, -size * (u * sizes) @ v, atol=1e-3 * size)


@pytest.mark.parametrize(("shape", "name"), [((4, 3), "embeddings"), ((5,), "bias"), ((4, 3), "logits/kernel")])
def test_everything_else_is_adams(shape, name):
    gradient = np.random.default_rng(0).normal(size=shape).astype("float32")
    with keras.name_scope(name.rpartition("/")[0] or "layer"):
        update = updated(shape, name.rpartition("/")[2], gradient)
    np.testing.assert_allclose(update, -0.1 * np.sign(gradient), rtol=1e-4)


def test_which_weights_of_a_model_are_whose():
    model = GPT(9, 8, 2, 1, 6, tied_embeddings=False)
    optimizer = make_optimizer(config(), 10)
    optimizer.build(model.trainable_variables)
    muons = {each.path for each in model.trainable_variables if not optimizer._should_use_adamw(each)}
    projections = ("query", "key", "value", "attention_output")
    assert muons == {
        *(f"layer_1/self_attention/{name}/kernel" for name in projections),
        *(f"layer_1/feed_forward/{name}/kernel" for name in ("input", "output")),
    }


def test_weights_decay_but_for_biases_and_norms():
    model = GPT(9, 8, 2, 1, 6)
    for variable in model.trainable_variables:
        variable.assign(np.ones(variable.shape))
    optimizer = make_optimizer(config(weight_decay=0.5), 10)
    optimizer.apply([tf.zeros(each.shape) for each in model.trainable_variables], model.trainable_variables)
    for each in model.trainable_variables:
        expected = 0.95 if each.path.endswith(("kernel", "embeddings")) else 1.0
        np.testing.assert_allclose(np.array(each), expected, rtol=1e-6, err_msg=each.path)


def test_it_is_saved_and_read():
    optimizer = make_optimizer(config(weight_decay=0.1, average_decay=0.9), 10)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(again) is Muon
    assert again.get_config() == optimizer.get_config()
