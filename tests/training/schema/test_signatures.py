"""Tables that follow from signatures: compared with the functions as Python sees them, and with what models accept."""

import inspect
import subprocess
import sys
from typing import get_args

import pytest
from zoo_training.schema import generator_tables, translator_tables
from zoo_training.schema.recipe_tables import TOKENIZERS
from zoo_training.schema.signatures import arguments_of

FAMILIES = {**translator_tables.FAMILIES, **generator_tables.FAMILIES}
CHOICES = {
    ("rnn_seq2seq", "attention"): {"additive", "dot", "scaled", "general", "concat", "none"},
    ("rnn_seq2seq", "cell"): {"gru", "lstm"},
    ("rnn_seq2seq", "tied_embeddings"): {"none", "target", "all"},
    ("transformer", "tied_embeddings"): {"none", "target", "all"},
    ("transformer", "positions"): {"sinusoidal", "learned", "rotary"},
    ("transformer", "position_pairs"): {"adjacent", "halves"},
    ("transformer", "normalization"): {"layer", "rms"},
    ("transformer", "activation"): {"relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"},
    ("gpt", "positions"): {"learned", "rotary"},
    ("gpt", "normalization"): {"layer", "rms"},
    ("gpt", "activation"): {"relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"},
}


def function(family):
    from zoo import models, text

    return {
        "rnn_seq2seq": models.RNNSeq2Seq,
        "transformer": models.Transformer,
        "gpt": models.GPT,
        "characters": text.CharacterTokenizer.learn,
        "byte_pair": text.BytePairTokenizer.learn,
        "sentencepiece": text.SentencePieceTokenizer.learn,
        "wordpiece": text.WordPieceTokenizer.learn,
        "whitespace": text.WhitespaceTokenizer.learn,
    }[family]


@pytest.mark.parametrize(("kind", "table"), [*FAMILIES.items(), *TOKENIZERS.items()])
def test_keys_and_defaults_are_those_of_the_function(kind, table):
    parameters = inspect.signature(function(kind)).parameters
    unset = {"dtype", "name", "trainable", "unused_ids", "texts", "normalize", "nfc", "user_defined"}
    own = {"family", "kind", "start"} | ({"dropout"} if kind == "byte_pair" else set())
    keys = set(table.model_fields) - own
    assert keys == {name for name in parameters if not name.endswith("vocabulary_size")} - unset
    differ = {name for name in keys if table.model_fields[name].default != parameters[name].default}
    smaller = {
        "gpt": {"units", "num_heads", "num_layers", "context_length"},
        "byte_pair": {"size"},
        "sentencepiece": {"size"},
        "wordpiece": {"size"},
    }
    assert differ == smaller.get(kind, set())


def test_choices():
    found = {}
    for family, table in FAMILIES.items():
        for name, field in table.model_fields.items():
            if name != "family" and isinstance(field.default, str):
                found[family, name] = set(get_args(field.annotation))
    assert found == CHOICES


@pytest.mark.parametrize(
    "file",
    [
        "zoo/models/gpt.py:GPT.__init__",
        "zoo/text/byte_pair.py:BytePairTokenizer.learn",
        "zoo/text/sentence_piece.py:SentencePieceTokenizer.learn",
        "zoo/text/word_piece.py:WordPieceTokenizer.learn",
    ],
)
def test_every_argument_is_described(file):
    for name, annotation, _, text in arguments_of(file):
        assert annotation and text and "\n" not in text and not text.endswith("."), name


def test_a_recipe_is_validated_without_keras():
    code = "import sys; from zoo_training.schema.recipe import read_recipe; read_recipe('gpt-pydoc'); "
    code += "sys.exit(bool({'keras', 'tensorflow', 'babel'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
