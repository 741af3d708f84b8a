"""Every tokenizer against the contract of all, and what does not depend on a vocabulary."""

import ast
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from zoo import text as zoo_text
from zoo.testing import TokenizerTests
from zoo.text import BytePairTokenizer, CharacterTokenizer, previous
from zoo.text.tokenizer import tokenizer_from_config, tokenizer_to_config

TEXTS = ("größer 中 😀", "ab\n", "", "a\0b \u2028\ufeff")


class TestCharacters(TokenizerTests):
    texts = TEXTS

    def make_tokenizer(self):
        return CharacterTokenizer("".join(sorted(set("".join(TEXTS)))))


class TestBytePairs(TokenizerTests):
    texts = (*TEXTS, "e\u0301é", "\U0010ffff<s>Ġ▁")

    def make_tokenizer(self):
        return BytePairTokenizer.learn([*TEXTS * 3, "ab ab größer"], 280)


class TestBytePairsOfNormalisedTexts(TokenizerTests):
    texts = TEXTS

    def make_tokenizer(self):
        return BytePairTokenizer.learn(["ÀB größer ab"] * 3, 270, lowercase=True, nfc=True)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_what_is_read_to_write_ids(dtype):
    read = previous(tf.constant([[4, 5, 3], [6, 3, 0]], dtype))
    np.testing.assert_array_equal(read, np.array([[2, 4, 5], [2, 6, 3]], dtype), strict=True)


def test_the_class_is_in_the_config():
    config = {"class": "CharacterTokenizer", "vocabulary": "ab", "normalize": True, "lowercase": False}
    assert tokenizer_to_config(CharacterTokenizer("ab")) == config


@pytest.mark.parametrize("config", [{"class": "os.system", "x": 1}, {}])
def test_an_unknown_class(config):
    with pytest.raises(ValueError, match=r"^Unknown tokenizer class .*; known are .*CharacterTokenizer.*\.$"):
        tokenizer_from_config(config)


def test_every_tokenizer_can_be_loaded_wherever_zoo_text_is_imported():
    """A saved tokenizer is found by its class, which is known once its file has been imported."""
    files = pathlib.Path(zoo_text.__file__).parent.glob("*.py")
    classes = (
        node for file in files for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ClassDef)
    )
    names = {node.name for node in classes if any(ast.unparse(base).endswith("Tokenizer") for base in node.bases)}
    assert len(names) > 4
    assert names - {"PairTokenizer", "WordTokenizer"} <= {*zoo_text.__all__}  # bases of others
