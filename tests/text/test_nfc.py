"""NFC in the graph, against that of the `tokenizers` library."""

import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from characters import EVERY
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from zoo.text import BytePairTokenizer
from zoo.text.normalization import Nfc

CONCERNED = [each for each in EVERY if unicodedata.normalize("NFD", each) != each or unicodedata.combining(each)]
TEXTS = [
    "",
    "plain",
    "e\u0301t\u00e9",
    "\u0958\u0915\u093c",
    "\u1112\u1161\u11ab\uae00",
    "a\u0323\u0307 a\u0307\u0323",
    "\u212b\n\u0301",
    "e\u1df9\u0301",  # marks and letters that Python knows and the library does not
    "\U00011935\U00011930",
]


@pytest.fixture(scope="module")
def nfc():
    module = Nfc()
    function = tf.function(module.__call__, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    return lambda texts: [
        each.decode() for each in function(tf.constant([each.encode() for each in texts], tf.string)).numpy()
    ]


def of_library(texts):
    return [normalizers.NFC().normalize_str(each) for each in texts]


def test_of_every_character_and_of_its_pieces(nfc):
    assert nfc(EVERY) == of_library(EVERY)
    for form in ("NFC", "NFD"):  # which change no other character
        texts = [unicodedata.normalize(form, each) for each in CONCERNED]
        assert nfc(texts) == of_library(texts)


def test_alone_and_beside_others(nfc):
    assert nfc(TEXTS) == of_library(TEXTS)
    for text in TEXTS:
        assert nfc([text]) == of_library([text])


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.text(
            st.one_of(st.sampled_from(CONCERNED), st.sampled_from("aeiouAE \n\u0301\u1112\u1161\u11ab")), max_size=12
        ),
        max_size=12,
    )
)
def test_of_what_is_concerned_in_any_order(nfc, texts):
    assert nfc(texts) == of_library(texts)


@pytest.mark.parametrize("lowercase", [False, True])
def test_pieces_are_those_of_the_composed_text(lowercase):
    learnt = ["Un \u00e9t\u00e9 \u00e0 l'\u00e9cole", "\u0915\u093c\u0932\u092e", "\uae00"] * 3
    composing = BytePairTokenizer.learn(learnt, 400, lowercase=lowercase, nfc=True)
    plain = BytePairTokenizer(**{**composing.get_config(), "nfc": False})
    texts = [unicodedata.normalize("NFD", each) for each in learnt[:3]] + ["\u0958\u0932\u092e", "E\u0301t\u00e9"]
    assert not np.array_equal(composing.tokenize(texts), plain.tokenize(texts))
    np.testing.assert_array_equal(composing.tokenize(texts), plain.tokenize(of_library(texts)))
    np.testing.assert_array_equal(composing.sample(texts, 0.3, [1, 2]), plain.sample(of_library(texts), 0.3, [1, 2]))
    assert (
        BytePairTokenizer.learn(
            [unicodedata.normalize("NFD", each) for each in learnt], 400, lowercase=lowercase, nfc=True
        ).get_config()
        == composing.get_config()
    )
