"""Tiny models, exported once, for all tests of serving."""

import numpy as np
import pytest

from zoo import TextGenerator, Translator
from zoo.models import GPT, RNNSeq2Seq, Transformer
from zoo.serving import ServableTranslator, export
from zoo.text import CharacterTokenizer


def build(attention="additive", cell="gru", dropout=0.0, seed=4):
    """Random weights, large enough that different texts give different outputs, of which some end early."""
    source, target = CharacterTokenizer("abcdé 1234😀"), CharacterTokenizer("zyxwü 987😀")
    model = RNNSeq2Seq(source.size, target.size, attention=attention, cell=cell, units=8, dropout=dropout)
    random = np.random.default_rng(seed)
    model.set_weights([0.7 * random.normal(size=weight.shape) for weight in model.get_weights()])
    return Translator(model, source, target, max_source_length=400, max_target_length=12)


def build_transformer(seed=28, **arguments):
    """Likewise a transformer, of two decoder layers and one encoder layer."""
    source, target = CharacterTokenizer("abcdé 1234😀"), CharacterTokenizer("zyxwü 987😀")
    sizes = dict(units=8, num_heads=2, feed_forward_units=12, encoder_layers=1, decoder_layers=2, dropout=0.3)
    model = Transformer(source.size, target.size, **sizes, tied_embeddings="none")
    random = np.random.default_rng(seed)
    ones = [weight.path.endswith("gamma") for weight in model.weights]
    model.set_weights(
        [
            np.ones(w.shape) if one else 0.7 * random.normal(size=w.shape)
            for w, one in zip(model.weights, ones, strict=True)
        ]
    )
    return Translator(model, source, target, **{"max_source_length": 400, "max_target_length": 12, **arguments})


@pytest.fixture(scope="session")
def exported_once(shared_folder, once):
    """A function that exports a task under a name, in the worker that comes first, and gives its version's folder."""

    def exported_once(task, name):
        folder = shared_folder / f"exported_{name}"  # it holds nothing else
        with once(folder) as first:
            return export(task, folder / name) if first else folder / name / "1"

    return exported_once


@pytest.fixture(scope="session")
def transformer():
    return build_transformer(beam_size=3)


@pytest.fixture(scope="session")
def exported_transformer(transformer, exported_once):
    """The folder of its version 1."""
    return exported_once(transformer, "with_heads")


@pytest.fixture(scope="session")
def translator():
    return build()


@pytest.fixture(scope="session")
def without_attention():
    return build(attention=None, cell="lstm", dropout=0.3)


@pytest.fixture(scope="session")
def exported_without_attention(without_attention, exported_once):
    """The folder of its version 1."""
    return exported_once(without_attention, "vector")


@pytest.fixture(scope="session")
def exported(translator, exported_once):
    """The model's folder, with a version 1."""
    return exported_once(translator, "tiny").parent


@pytest.fixture(scope="session")
def exported_generator(randomize, exported_once):
    """The version of a language model."""
    tokenizer = CharacterTokenizer("abcdé \n😀")
    generator = TextGenerator(randomize(GPT(tokenizer.size, 12, 3, 2, 48, positions="rotary"), scale=0.4), tokenizer)
    return exported_once(generator, "writer")


@pytest.fixture(scope="session")
def servable_transformer(exported_transformer):
    return ServableTranslator(exported_transformer)


@pytest.fixture(scope="session")
def servable(exported):
    return ServableTranslator(exported)
