"""Every tokenizer against the contract of all, and what does not depend on a vocabulary."""

import ast
import pathlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo import text as zoo_text
from zoo.testing import TokenizerTests
from zoo.text import BytePairTokenizer, CharacterTokenizer, previous
from zoo.text.tokenizer import compiled_encoder, tokenizer_from_config, tokenizer_to_config

TEXTS = ("größer 中 😀", "ab\n", "", "a\0b \u2028\ufeff")


def test_half_a_surrogate_pair_is_read_as_a_question_mark():
    tokenizer = CharacterTokenizer("ab?")
    assert tokenizer.tokenize(["a\ud800b"]).numpy().tolist() == tokenizer.tokenize(["a?b"]).numpy().tolist()
    encoder = compiled_encoder(tokenizer)
    (ids, _), (read, _) = (encoder([text]) for text in ("\udc00b", "?b"))
    assert ids.tolist() == read.tolist()
    for dtype in (str, object):
        array = np.array(["a\ud800b", "b"], dtype)
        assert tokenizer.tokenize(array).numpy().tolist() == tokenizer.tokenize(["a?b", "b"]).numpy().tolist()


@pytest.mark.parametrize(
    ("texts", "received"),
    [
        (["a", None], r"\[b'a', None\]"),
        (["a", 1], r"\[b'a', 1\]"),
        (np.array(["a", None]), r"\[b'a', None\]"),
        ([["a"], ["b", "c"]], r"\[\['a'\], \['b', 'c'\]\]"),
        (None, "None"),
        (iter(["a"]), "<list_iterato.*>"),
        ([b"a" * 999, None], r"\[b'a{1,40}\.\.\.a{1,40}', None\]"),
    ],
)
def test_what_is_no_batch_of_strings_is_shown(texts, received):
    message = r"^`texts` must be a batch of strings `\(B,\)`; put a single string into a list\. Received: "
    with pytest.raises(ValueError, match=f"{message}{received}$"):
        CharacterTokenizer("ab").tokenize(texts)


def test_a_symbolic_input_is_refused_with_the_advice_of_keras():
    with pytest.raises(ValueError, match=r"^`texts` must be .* Received: <KerasTensor") as caught:
        CharacterTokenizer("ab").tokenize(keras.Input((), dtype="string"))
    assert "You can only use it as input to a Keras layer" in str(caught.value.__cause__)


@pytest.mark.parametrize("dtype", [str, object])
@pytest.mark.parametrize(("last", "expected"), [("b", [5, 0]), ("b\ud800", [5, 6])])
def test_texts_in_an_array(dtype, last, expected):
    ids = CharacterTokenizer("ab?").tokenize(np.array(["ab", last], dtype))
    np.testing.assert_array_equal(ids, [[4, 5], expected])


@pytest.mark.parametrize("length", [5.0, "5", True, np.float32(5), tf.constant("5")])
def test_a_limit_that_is_no_integer_is_refused(length):
    tokenizer = CharacterTokenizer("ab")
    for call in (
        lambda: tokenizer.tokenize(["a"], max_length=length),
        lambda: tokenizer.tokenize_pairs(["a"], ["b"], length),
    ):
        with pytest.raises(
            ValueError, match=f"^`max_length` must be an integer. Received: max_length={re.escape(repr(length))}$"
        ):
            call()


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, tf.constant])
def test_a_limit_may_be_an_integer_of_numpy_or_tensorflow(dtype):
    tokenizer = CharacterTokenizer("ab")
    assert tokenizer.tokenize(["abba"], add_start=True, max_length=dtype(3)).numpy().tolist() == [[2, 4, 5]]
    ids, segments = tokenizer.tokenize_pairs(["abba"], ["b"], max_length=dtype(6))
    assert (ids.numpy().tolist(), segments.numpy().tolist()) == ([[2, 4, 5, 3, 5, 3]], [[0, 0, 0, 0, 1, 1]])


class TestCharacters(TokenizerTests):
    texts = TEXTS
    test_it_is_exported_with_core_operations = None  # `test_text_export.py` tests more

    def make_tokenizer(self):
        return CharacterTokenizer("".join(sorted(set("".join(TEXTS)))))


class TestBytePairs(TokenizerTests):
    texts = (*TEXTS, "e\u0301é", "\U0010ffff<s>Ġ▁")
    test_it_is_exported_with_core_operations = None  # `test_text_export.py` tests more

    def make_tokenizer(self):
        return BytePairTokenizer.learn([*TEXTS * 3, "ab ab größer"], 280)


class TestBytePairsOfNormalisedTexts(TokenizerTests):
    texts = TEXTS
    test_it_is_exported_with_core_operations = None  # `test_text_export.py` tests more
    test_a_corpus_is_encoded_by_one_graph = None  # as those of other texts are

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
