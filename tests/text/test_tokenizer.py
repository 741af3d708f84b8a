"""Every tokenizer against the contract of all, and what does not depend on a vocabulary."""

import numpy as np
import pytest
import tensorflow as tf

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
    config = {"class": "CharacterTokenizer", "vocabulary": "ab", "normalize": True}
    assert tokenizer_to_config(CharacterTokenizer("ab")) == config


@pytest.mark.parametrize("config", [{"class": "os.system", "x": 1}, {}])
def test_an_unknown_class(config):
    with pytest.raises(ValueError, match=r"^Unknown tokenizer class .*; known are .*CharacterTokenizer.*\.$"):
        tokenizer_from_config(config)
