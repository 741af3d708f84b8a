"""Families that are none of the zoo's, tested by one import; and that these tests catch a family that is broken."""

import pathlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import zoo
from zoo.models import Family
from zoo.testing import FamilyTests


@keras.saving.register_keras_serializable(package="tests")
class BagOfWords(Family):
    """What follows a token, given the mean of the source's embeddings: attention that is the same everywhere."""

    has_attention = True

    def __init__(self, source_vocabulary_size, target_vocabulary_size, units=5, dtype=None, name=None, trainable=True):
        # Layers.
        self.words = keras.layers.Embedding(source_vocabulary_size, units, dtype=dtype)
        self.tokens = keras.layers.Embedding(target_vocabulary_size, units, dtype=dtype)
        self.output_layer = keras.layers.Dense(target_vocabulary_size, dtype=dtype)

        # Graph.
        source = keras.Input((None,), dtype="int32", name="source")
        target = keras.Input((None,), dtype="int32", name="target")
        memory, _ = self.begin(source)
        hidden = self.read(target) + memory["mean"][:, None]  # (B, T, D)
        logits = self.logits(hidden)  # (B, T, V)
        super().__init__({"source": source, "target": target}, logits, hidden, dtype=dtype, name=name)

        # Config.
        self.source_vocabulary_size = source_vocabulary_size
        self.target_vocabulary_size = target_vocabulary_size
        self.units = units

    def read(self, target):
        return self.tokens(target)

    def logits(self, hidden):
        return ops.cast(self.output_layer(hidden), "float32")

    def weights_of(self, source):
        known = ops.cast(source != 0, "float32")
        return known / ops.maximum(ops.sum(known, axis=1, keepdims=True), 1)  # (B, S)

    def begin(self, source):
        weights = self.weights_of(source)
        words = self.words(source)  # (B, S, D)
        mean = ops.sum(ops.cast(weights[..., None], words.dtype) * words, axis=1)
        return {"mean": mean, "weights": weights}, ()

    def step(self, tokens, position, memory, cache):
        logits = self.logits(self.tokens(tokens) + memory["mean"][:, None])  # (B, K, V)
        shape = (*ops.shape(tokens), ops.shape(memory["weights"])[1])
        return logits, cache, ops.broadcast_to(memory["weights"][:, None], shape)

    def output_weights(self):
        return ops.transpose(self.output_layer.kernel), self.output_layer.bias


@keras.saving.register_keras_serializable(package="tests")
class Bigrams(keras.Model):
    """A language model without the zoo's base class: it predicts from the last token only."""

    def __init__(self, size, units=5, name=None):
        tokens = keras.Input((None,), dtype="int32", name="tokens")
        embedding, output = keras.layers.Embedding(size, units), keras.layers.Dense(size)
        super().__init__(tokens, output(embedding(tokens)), name=name)
        self.size, self.units, self.embedding, self.output_layer = size, units, embedding, output

    def begin(self, source):
        return (), ()

    def step(self, tokens, position, memory, cache):
        return self.output_layer(self.embedding(tokens)), cache, None

    def get_config(self):
        return {name: getattr(self, name) for name in ("size", "units", "name")}


class TestBagOfWords(FamilyTests):
    def make_model(self):
        return BagOfWords(source_vocabulary_size=11, target_vocabulary_size=9)


class TestBigrams(FamilyTests):
    weight_scale = 2.0

    def make_model(self):
        return Bigrams(9)

    def tokenizers(self):
        return [zoo.text.CharacterTokenizer("abcde")]


def class_of_the_page():
    """The example of `docs/adding_a_family.md` with its tests, made of the page's blocks of Python."""
    page = pathlib.Path(__file__).parents[1] / "docs" / "adding_a_family.md"
    names: dict = {"__name__": __name__}
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        if re.search(r"^class (Test)?Mine\(", block, re.MULTILINE):
            exec(block, names)
    return names["TestMine"]


TestMine = class_of_the_page()


# One fault for every test of the suite, and which test must find it.


class InBfloat16(BagOfWords):
    def logits(self, hidden):
        return self.output_layer(hidden)


class DividedByZero(BagOfWords):
    def weights_of(self, source):
        known = ops.cast(source != 0, "float32")
        return known / ops.sum(known, axis=1, keepdims=True)


class OfPadding(BagOfWords):
    def weights_of(self, source):
        everything = ops.ones_like(ops.cast(source, "float32"))
        return everything / ops.sum(everything, axis=1, keepdims=True)


class OfNeighbours(BagOfWords):
    def read(self, target):
        tokens = self.tokens(target)
        return tokens - ops.mean(tokens, axis=0, keepdims=True)


class OfTheFuture(BagOfWords):
    def read(self, target):
        tokens = self.tokens(target)
        return tokens + ops.roll(tokens, -1, axis=1)


class DeafToTheFirst(BagOfWords):
    def weights_of(self, source):
        weights = super().weights_of(source)
        places = ops.cumsum(ops.ones_like(weights), axis=1)
        return weights * ops.cast(places > 1, "float32")


class Forgetful(BagOfWords):
    def step(self, tokens, position, memory, cache):
        return super().step(tokens, position, {**memory, "mean": memory["mean"] * 0}, cache)


class OfOneHypothesis(BagOfWords):
    def step(self, tokens, position, memory, cache):
        logits, cache, weights = super().step(tokens, position, memory, cache)
        return logits[:, :1] + 0 * logits, cache, weights


class WithoutAGraph(BagOfWords):
    def step(self, tokens, position, memory, cache):
        return super().step(tokens, position, memory, cache) if bool(ops.any(tokens > 0)) else None


class FaintAttention(BagOfWords):
    def step(self, tokens, position, memory, cache):
        logits, cache, weights = super().step(tokens, position, memory, cache)
        return logits, cache, weights / 2


class MapsOfPadding(BagOfWords):
    def attention_maps(self, source, target):
        shape = (len(source), 1, 1, target.shape[1], source.shape[1])
        return ops.ones(shape) / shape[-1], ops.ones((*shape[:3], shape[4], shape[4])) / shape[-1]


class Severed(BagOfWords):
    def read(self, target):
        return ops.stop_gradient(self.tokens(target))


class NeverLearning(BagOfWords):
    def logits(self, hidden):
        return ops.stop_gradient(super().logits(hidden)) + 0 * super().logits(hidden)


class OtherOutputWeights(BagOfWords):
    def output_weights(self):
        weights, bias = super().output_weights()
        return weights, bias + 1


class WithoutUnits(BagOfWords):
    def get_config(self):
        config = super().get_config()
        del config["units"]
        return config


class NeverRegistered(BagOfWords):
    def get_config(self):
        return super().get_config()


class CoarseSteps(BagOfWords):
    def step(self, tokens, position, memory, cache):
        logits, cache, weights = super().step(tokens, position, memory, cache)
        coarse = ops.cast(self.compute_dtype == "bfloat16", "float32")
        return logits * (1 - coarse / 4), cache, weights


class InPython(BagOfWords):
    def step(self, tokens, position, memory, cache):
        logits, cache, weights = super().step(tokens, position, memory, cache)
        same = tf.numpy_function(lambda array: array, [logits], tf.float32)
        return tf.ensure_shape(same, logits.shape), cache, weights


FAULTS = [
    (InBfloat16, "test_lower_precision", "logits are .*bfloat16"),
    (CoarseSteps, "test_lower_precision", "off by"),
    (DividedByZero, "test_it_gives_logits_in_float32_of_any_batch_and_length", "not all logits are finite"),
    (OfPadding, "test_rows_and_padding_change_nothing", "off by"),
    (OfNeighbours, "test_rows_and_padding_change_nothing", "off by"),
    (OfTheFuture, "test_a_token_changes_nothing_before_it", "off by"),
    (DeafToTheFirst, "test_every_source_token_matters_to_its_row", "source token 0 is ignored"),
    (Forgetful, "test_steps_give_the_one_shot_pass", "off by"),
    (OfOneHypothesis, "test_hypotheses_are_independent_and_can_be_reordered", "off by"),
    (WithoutAGraph, "test_it_decodes_in_a_graph_of_unknown_sizes", "Using a symbolic `tf.Tensor` as a Python `bool`"),
    (FaintAttention, "test_attention_weights_of_a_step", "off by 0.5"),
    (MapsOfPadding, "test_attention_maps", "padding is attended to"),
    (Severed, "test_gradients_reach_every_weight", "gets no gradient"),
    (NeverLearning, "test_it_learns", "losses"),
    (OtherOutputWeights, "test_the_last_product_can_be_taken_off", "off by 1"),
    (WithoutUnits, "test_its_configuration_makes_it_again", r"leaves out \['units'\]"),
    (NeverRegistered, "test_a_saved_model_is_loaded_as_it_was", "Could not locate class 'NeverRegistered'"),
    (InPython, "test_an_export_says_the_same", "EagerPyFunc|PyFunc"),
]


@pytest.mark.parametrize(("family", "test", "message"), FAULTS, ids=lambda part: getattr(part, "__name__", ""))
def test_a_broken_family_is_found(family, test, message):
    class Suite(FamilyTests):
        def make_model(self):
            return family(source_vocabulary_size=11, target_vocabulary_size=9)

    with pytest.raises((AssertionError, TypeError), match=message):
        getattr(Suite(), test)()


def test_every_test_of_the_suite_has_a_fault_to_find():
    assert {name for name in dir(FamilyTests) if name.startswith("test_")} == {test for _, test, _ in FAULTS}


# What tasks say of a family that lacks an optional part.


def test_a_task_says_which_part_is_missing():
    model, tokenizers = TestBigrams().model, TestBigrams().tokenizers()
    generator = zoo.TextGenerator(model, *tokenizers, context_length=12)
    with pytest.raises(ValueError, match="`score` needs a model with `without_logits`"):
        generator.score(["a"])
    with pytest.raises(ValueError, match="a language model needs `attention_maps`"):
        generator.attend(["a"])
    with pytest.raises(ValueError, match="`context_length` must be given"):
        zoo.TextGenerator(model, *tokenizers)
    with pytest.raises(ValueError, match="`context_length` must be at least 2"):
        zoo.TextGenerator(model, *tokenizers, context_length=1)


def test_attention_of_a_familys_own_is_shown():
    translator = zoo.Translator(TestBagOfWords().model, *TestBagOfWords().tokenizers(), max_target_length=6)
    (alignment,) = translator.attend(["ab"])
    np.testing.assert_allclose(alignment.weights, 1 / 3, rtol=1e-6)  # two letters and the end


def test_the_model_of_the_page_generates_without_and_with_a_tokenizer(eager):
    model = TestMine().make_model()
    assert zoo.decoding.generate(model, [[4, 5], [6, 0]], max_new_tokens=3).ids.shape[0] == 2
    generator = zoo.TextGenerator(model, zoo.text.CharacterTokenizer("abcde"))
    assert generator.generate(["ab"], max_new_tokens=3, seed=1)[0].tokens <= 3
