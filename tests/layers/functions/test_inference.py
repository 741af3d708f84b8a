"""What leaves hand-written gradients out must leave the numbers, and the gradients, as they are."""

import importlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.layers import BidirectionalEncoder, MultiHeadAttention
from zoo.layers.functions import blockwise_attention
from zoo.layers.functions.inference import at_most, inference, is_inference


def test_holds_inside_and_ends_with_it_also_by_an_error():
    assert not is_inference() and not at_most(10**9)
    with pytest.raises(KeyError), inference(100):
        assert is_inference() and at_most(100) and not at_most(99)
        with inference(5):
            assert at_most(5)
        assert not at_most(99)
        raise KeyError
    assert not is_inference()


def layers():
    yield MultiHeadAttention(2, 3), lambda layer, x: layer(x, x, use_causal_mask=True)
    yield BidirectionalEncoder(4), lambda layer, x: layer(x, tf.constant([[True, True, False], [True] * 3]))[0]


@pytest.mark.parametrize(("layer", "call"), list(layers()), ids=["attention", "encoder"])
def test_outputs_and_gradients_are_the_same(layer, call):
    x = tf.constant(np.random.default_rng(0).normal(size=(2, 3, 4)), tf.float32)
    call(layer, x)

    def run():
        with tf.GradientTape() as tape:
            tape.watch(x)
            output = call(layer, x)
            loss = tf.reduce_sum(output**2)
        return output, tape.gradient(loss, x)

    wanted = run()
    with inference(3):
        for result, want in zip(run(), wanted, strict=True):
            np.testing.assert_allclose(result, want, atol=1e-5)


@pytest.mark.parametrize(("layer", "call"), list(layers()), ids=["attention", "encoder"])
@pytest.mark.parametrize("longest", [512, 513])
def test_the_graph_has_neither_gradients_nor_what_only_longer_sequences_take(layer, call, longest):
    call(layer, tf.zeros((2, 3, 4)))

    def nodes(function):
        graph = tf.function(function, input_signature=[tf.TensorSpec([2, None, 4])]).get_concrete_function().graph
        definition = graph.as_graph_def()
        return [*definition.node, *(node for each in definition.library.function for node in each.node_def)]

    def inside(x):
        with inference(longest):
            return (
                call(layer, x) if isinstance(layer, MultiHeadAttention) else layer(x, tf.ones(tf.shape(x)[:2], bool))[0]
            )

    def outside(x):
        return call(layer, x) if isinstance(layer, MultiHeadAttention) else layer(x, tf.ones(tf.shape(x)[:2], bool))[0]

    assert any("_gradient_op_type" in node.attr for node in nodes(outside)), "or this test says nothing"
    assert not any("_gradient_op_type" in node.attr for node in nodes(inside))
    if isinstance(layer, MultiHeadAttention):
        branches = [node.op for node in nodes(inside) if node.op in ("If", "StatelessIf", "While", "StatelessWhile")]
        assert (branches == []) == (longest <= blockwise_attention.BLOCK)


def test_long_sequences_are_still_computed_in_blocks(monkeypatch):
    """Where the bound allows them and their number asks for it."""
    module = importlib.import_module("zoo.layers.functions.scaled_dot_product_attention")
    monkeypatch.setattr(module, "LARGE", 1000)
    layer = MultiHeadAttention(1, 4)
    x = tf.constant(np.random.default_rng(0).normal(size=(1, 600, 4)), tf.float32)
    wanted = layer(x, x)

    @tf.function(input_signature=[tf.TensorSpec([None, None, 4])])
    def run(x):
        with inference(1000):
            return layer(x, x)

    np.testing.assert_allclose(run(x), wanted, atol=1e-5)
    assert keras.ops.shape(run(x[:, :5])) == (1, 5, 4)
