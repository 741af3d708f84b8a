"""Tiny models, exported once, for all tests of serving."""

import numpy as np
import pytest

import zoo
from zoo import MaskFiller, TextClassifier, TextEmbedder, TextGenerator, Translator
from zoo.checkpoints.saving import save_checkpoint
from zoo.models import GPT, Classifier, Encoder, MaskedLanguageModel, RNNSeq2Seq, SentenceEmbedder, Transformer
from zoo.serving import ServableGenerator, ServableTranslator, export
from zoo.text import CharacterTokenizer, MarianTokenizer, SentencePieceTokenizer, WordPieceTokenizer

SCRIPTS = ["a man rides a horse", "мужчина едет на лошади", "ένας άντρας ιππεύει", "رجل يركب حصانا", "איש רוכב על סוס"]
SCRIPTS += ["एक आदमी घोड़े पर", "ผู้ชายขี่ม้า", "一个男人骑着马", "男の人が馬に乗る", "한 남자가 말을 탄다 😀"]


def build(attention="additive", cell="gru", dropout=0.0, seed=4):
    """Random weights, large enough that different texts give different outputs, of which some end early."""
    source, target = CharacterTokenizer("abcdé 1234😀"), CharacterTokenizer("zyxwü 987😀")
    model = RNNSeq2Seq(source.size, target.size, attention=attention, cell=cell, units=8, dropout=dropout)
    random = np.random.default_rng(seed)
    model.set_weights([0.7 * random.normal(size=weight.shape) for weight in model.get_weights()])
    return Translator(model, source, target, max_source_length=400, max_target_length=12)


def set_random_weights(model, seed):
    """All but the factors of norms, which stay 1."""
    random = np.random.default_rng(seed)
    ones = [weight.path.endswith("gamma") for weight in model.weights]
    model.set_weights(
        [
            np.ones(w.shape) if one else 0.7 * random.normal(size=w.shape)
            for w, one in zip(model.weights, ones, strict=True)
        ]
    )


def build_transformer(seed=28, **arguments):
    """Likewise a transformer, of two decoder layers and one encoder layer."""
    source, target = CharacterTokenizer("abcdé 1234😀"), CharacterTokenizer("zyxwü 987😀")
    sizes = dict(units=8, num_heads=2, feed_forward_units=12, encoder_layers=1, decoder_layers=2, dropout=0.3)
    model = Transformer(source.size, target.size, **sizes, tied_embeddings="none")
    set_random_weights(model, seed)
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
def imported(tmp_path_factory):
    """A translator read from a folder as Hugging Face's Marian has it, with four beams and random weights."""
    learnt = SentencePieceTokenizer.learn(SCRIPTS * 5, 150, character_coverage=1.0)
    model, pieces = learnt.get_config()["model"], learnt.tokens([range(4, learnt.size)]).numpy()[0]
    tokenizer = MarianTokenizer(model, [piece.decode() for piece in pieces])
    sizes = dict(units=12, num_heads=3, feed_forward_units=20, encoder_layers=1, decoder_layers=2)
    model = Transformer(tokenizer.size, tokenizer.size, **sizes, tied_embeddings="all", position_pairs="halves")
    set_random_weights(model, seed=2)
    settings = dict(beam_size=4, length_normalization="mean")
    folder = tmp_path_factory.mktemp("imported") / "opus-mt-mul-mul"
    save_checkpoint(Translator(model, tokenizer, tokenizer, 60, 12, **settings), folder)
    return zoo.load(folder)


@pytest.fixture(scope="session")
def exported_import(imported, exported_once):
    """The folder of its version 1."""
    return exported_once(imported, "opus")


@pytest.fixture(scope="session")
def readers():
    """A classifier of pairs, an embedder and a filler of masks, by their names."""
    tokenizer = WordPieceTokenizer.learn(SCRIPTS * 5, 150)

    def encoder():
        return Encoder(tokenizer.size, units=12, num_heads=3, num_layers=2, max_length=40, num_segments=2)

    classifier = Classifier(encoder(), 3, pooling="attention", hidden_units=7)
    tasks = {
        "classifier": TextClassifier(classifier, tokenizer, ["low", "middling", "high"], pairs=True),
        "embedder": TextEmbedder(SentenceEmbedder(encoder()), tokenizer),
        "filler": MaskFiller(MaskedLanguageModel(encoder()), tokenizer),
    }
    for task in tasks.values():
        set_random_weights(task.model, seed=5)
    return tasks


@pytest.fixture(scope="session")
def exported_readers(readers, exported_once):
    """The folders of their versions 1."""
    return {name: exported_once(task, name) for name, task in readers.items()}


@pytest.fixture(scope="session")
def servable_transformer(exported_transformer):
    return ServableTranslator(exported_transformer)


@pytest.fixture(scope="session")
def servable(exported):
    return ServableTranslator(exported)


@pytest.fixture(scope="session")
def servable_generator(exported_generator):
    return ServableGenerator(exported_generator)
