"""A packed GPT against the model that it was made of."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from zoo import TextGenerator
from zoo.layers.functions import forward_only
from zoo.models import GPT
from zoo.serving import exporting
from zoo.serving.packed import pack
from zoo.text import CharacterTokenizer

# Sizes that differ from each other; rows of all lengths, one without any token.
SIZES = dict(vocabulary_size=13, units=12, num_heads=6, num_layers=2, context_length=16, feed_forward_units=10)
KINDS = {
    "GPT-2": dict(unused_ids=(0, 7)),
    "modern": dict(positions="rotary", normalization="rms", activation="swiglu", use_bias=False, num_key_value_heads=2),
    "untied": dict(tied_embeddings=False, activation="gelu", unused_ids=(0, 1)),
}
TOKENS = np.array([[4, 5, 6, 7, 8, 9], [0, 0, 5, 9, 3, 0], [0, 0, 0, 0, 0, 0], [12, 0, 0, 0, 0, 0]], "int32")
MORE = np.array([[4, 7, 5], [12, 8, 4], [2, 6, 11], [3, 4, 10]], "int32")


@pytest.fixture(scope="module", params=KINDS)
def model(request, randomize):
    """Of each kind one, with random weights."""
    return randomize(GPT(**{**SIZES, **KINDS[request.param]}))


@pytest.fixture(scope="module")
def packed(model):
    return pack(model, 16)


def stepped(model, tokens, hypotheses=1):
    """The logits of steps after a prompt, each hypothesis with tokens of its own."""
    memory, cache = model.begin(tf.constant(tokens))
    cache = tf.nest.map_structure(lambda each: tf.repeat(each, hypotheses, axis=1), cache)
    logits = []
    for i in range(MORE.shape[1]):
        ids = [np.roll(MORE, number, axis=0)[: len(tokens), i] for number in range(hypotheses)]
        one, cache, weights = model.step(tf.constant(np.stack(ids, 1)), tf.constant(i), memory, cache)
        assert weights is None
        logits.append(one)
    return np.stack(logits)


def test_steps_of_several_hypotheses_are_the_models(model, packed):
    with forward_only(16):
        np.testing.assert_allclose(stepped(packed, TOKENS, 3), stepped(model, TOKENS, 3), atol=2e-5)


@pytest.mark.parametrize("tokens", [TOKENS[:, :0], TOKENS[:0]], ids=["no prompt", "no rows"])
def test_steps_without_prompts_or_rows(model, packed, tokens):
    with forward_only(16):
        np.testing.assert_allclose(stepped(packed, tokens), stepped(model, tokens), atol=2e-5)


def test_what_logits_are_made_of_is_the_models(model, packed):
    weights, bias = packed.output_weights()
    tokens = tf.constant(MORE)
    with forward_only(16):
        logits = packed.without_logits()(tokens) @ tf.transpose(weights) + (0 if bias is None else bias)
    np.testing.assert_allclose(logits, model(tokens), atol=2e-5)


def test_attention_maps_are_the_models(model, packed):
    tokens = tf.constant(TOKENS[[0, 3]])
    with forward_only(16):
        maps = packed.attention_maps(tokens)
        assert maps.shape == (2, 2, 6, 6, 6)
        np.testing.assert_allclose(maps, model.attention_maps(tokens), atol=1e-5)


def test_positions_reach_as_far_as_the_longest_text(randomize):
    model = randomize(GPT(**SIZES))
    short = pack(model, 9)
    assert short.context_length == 9
    assert [9, 13] in [each.shape for each in short.variables]
    with forward_only(16):
        np.testing.assert_allclose(stepped(short, TOKENS[:, :6]), stepped(model, TOKENS[:, :6]), atol=2e-5)


def test_mixed_precision_is_packed_in_float32(randomize):
    model = randomize(GPT(**SIZES, dtype="mixed_bfloat16"))
    exact = GPT(**SIZES)
    exact.set_weights(model.get_weights())
    with forward_only(16):
        np.testing.assert_allclose(stepped(pack(model, 16), TOKENS), stepped(exact, TOKENS), atol=2e-5)


def step_operations(layers):
    """How many of each operation the body of an export's loop has."""
    tokenizer = CharacterTokenizer("abcd")
    generator = exporting.with_packed_model(TextGenerator(GPT(tokenizer.size, 12, 3, layers, 32), tokenizer))
    graph = generator.signatures()["generate"].get_concrete_function().graph.as_graph_def()
    bodies = [collections.Counter(node.op for node in function.node_def) for function in graph.library.function]
    return max(bodies, key=lambda counts: counts["EuclideanNorm"] if counts["TensorListSetItem"] else -1)


def test_a_step_has_few_operations_and_none_that_onednn_takes():
    one, two = step_operations(1), step_operations(2)
    of_layer = two - one
    assert of_layer.total() - of_layer["Const"] <= 38
    assert not {"MatMul", "BatchMatMulV2", "Softmax", "BiasAdd", "Shape", "Transpose", "StridedSlice"} & set(of_layer)
