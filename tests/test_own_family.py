"""Families that are none of the zoo's, with no more than the page on adding one asks for."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo.text import CharacterTokenizer

SOURCE, TARGET = CharacterTokenizer("abc"), CharacterTokenizer("xyz1")


@keras.saving.register_keras_serializable(package="tests")
class BagOfWords(keras.Model):
    """What follows a token, given the mean of the source's embeddings."""

    def __init__(self, source_size, target_size, units=5, name=None):
        source = keras.Input((None,), dtype="int32", name="source")
        target = keras.Input((None,), dtype="int32", name="target")
        words = keras.layers.Embedding(source_size, units)
        tokens = keras.layers.Embedding(target_size, units)
        output = keras.layers.Dense(target_size)
        hidden = tokens(target) + self.mean(words(source), source)[:, None]
        super().__init__({"source": source, "target": target}, output(hidden), name=name)
        self.source_size, self.target_size, self.units = source_size, target_size, units
        self.words, self.tokens, self.output_layer = words, tokens, output

    def begin(self, source):
        return self.mean(self.words(source), source), ()

    def step(self, tokens, position, memory, cache):
        return self.output_layer(self.tokens(tokens) + memory[:, None]), cache, None

    def get_config(self):
        sizes = ("source_size", "target_size", "units", "name")
        return {name: getattr(self, name) for name in sizes}

    @staticmethod
    def mean(embedded, ids):
        known = keras.ops.cast(ids != 0, "float32")[..., None]
        return keras.ops.sum(known * embedded, axis=1) / keras.ops.maximum(keras.ops.sum(known, axis=1), 1)


@keras.saving.register_keras_serializable(package="tests")
class Bigrams(keras.Model):
    """A language model: what follows a token, whatever stands before it."""

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


@pytest.fixture(scope="module")
def translator(randomize):
    model = randomize(BagOfWords(SOURCE.size, TARGET.size), scale=2.0)
    return zoo.Translator(model, SOURCE, TARGET, max_target_length=6, beam_size=2)


def test_it_translates_and_says_the_same_when_it_is_saved_and_exported(translator, tmp_path):
    texts = ["abc", "", "c", "bbb"]
    found = translator.translate(texts)
    assert len({each.text for each in found}) > 2
    assert zoo.load(translator.save(tmp_path / "saved")).translate(texts) == found
    version = zoo.serving.export(translator, tmp_path / "exported")
    assert not zoo.serving.check(version)
    assert zoo.load(version).translate(texts) == found
    assert set(tf.saved_model.load(str(version)).signatures) == {"serving_default", "generate"}


def test_its_steps_are_its_model(translator):
    ids = tf.constant([[2, 4, 6, 3], [2, 7, 3, 0]])
    source = SOURCE.tokenize(["ab", "c"], add_end=True)
    memory, cache = translator.model.begin(source)
    steps = []
    for position in range(4):
        logits, cache, _ = translator.model.step(ids[:, position : position + 1], position, memory, cache)
        steps.append(logits[:, 0])
    np.testing.assert_allclose(np.stack(steps, 1), translator.model({"source": source, "target": ids}), atol=1e-5)


def test_it_tells_what_it_cannot_do(translator):
    with pytest.raises(ValueError, match="no attention to show"):
        translator.attend(["a"])
    with pytest.raises(ValueError, match="`score` needs a model with `without_logits`"):
        translator.score(["a"], ["x"])


@pytest.fixture(scope="module")
def generator(randomize):
    return zoo.TextGenerator(randomize(Bigrams(TARGET.size), scale=2.0), TARGET, context_length=12)


def test_a_language_model_goes_on_and_says_the_same_when_it_is_saved_and_exported(generator, tmp_path):
    texts, settings = ["xy", "", "1z1"], {"seed": 1, "max_new_tokens": 6, "temperature": [1.0, 0.5, 2.0]}
    found = generator.generate(texts, **settings)
    assert len({each.text for each in found}) > 1
    assert zoo.load(generator.save(tmp_path / "saved"))(texts, **settings) == [each.text for each in found]
    version = zoo.serving.export(generator, tmp_path / "exported")
    assert not zoo.serving.check(version)
    assert zoo.load(version)(texts, **settings) == [each.text for each in found]
    assert set(tf.saved_model.load(str(version)).signatures) == {"serving_default", "generate"}


def test_a_language_model_tells_what_it_cannot_do(generator):
    with pytest.raises(ValueError, match="`score` needs a model with `without_logits`"):
        generator.score(["x"])
    with pytest.raises(ValueError, match="needs one with `attention_maps`"):
        generator.attend(["x"])
    with pytest.raises(ValueError, match="`context_length` must be given"):
        zoo.TextGenerator(generator.model, TARGET)
    with pytest.raises(ValueError, match="`context_length` must be at least 2"):
        zoo.TextGenerator(generator.model, TARGET, context_length=1)
