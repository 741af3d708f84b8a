"""Tokenizers as JSON and back."""

import json

import pytest

from zoo.text import CharacterTokenizer
from zoo.text.tokenizer import tokenizer_from_config, tokenizer_to_config

# Composed and decomposed, beyond the first plane, controls: what JSON or NFC could change.
TEXTS = ["e\u0301é", "😀\0\n", "\u2028\ufeff", "a\ufffd", ""]


@pytest.mark.parametrize("normalize", [True, False])
def test_a_tokenizer_survives_json(normalize):
    tokenizer = CharacterTokenizer('é😀\0\n\u2028\ufeffea"\\', normalize=normalize)
    copy = tokenizer_from_config(json.loads(json.dumps(tokenizer_to_config(tokenizer), ensure_ascii=False)))
    assert type(copy) is CharacterTokenizer
    ids = tokenizer.tokenize(TEXTS, add_end=True).numpy()
    assert copy.tokenize(TEXTS, add_end=True).numpy().tolist() == ids.tolist()
    assert copy.detokenize(ids).numpy().tolist() == tokenizer.detokenize(ids).numpy().tolist()
    assert len(set(map(tuple, ids.tolist()))) == len(TEXTS)


def test_the_config_is_not_changed_by_reading_it():
    config = tokenizer_to_config(CharacterTokenizer("ab"))
    before = dict(config)
    tokenizer_from_config(config)
    assert config == before == {"class": "CharacterTokenizer", "vocabulary": "ab", "normalize": True}


@pytest.mark.parametrize("config", [{"class": "Tokenizer"}, {"class": None}, {}, {"class": "os.system", "x": 1}])
def test_an_unknown_class(config):
    with pytest.raises(
        ValueError, match=r"^Unknown tokenizer class .*; known are BytePairTokenizer, CharacterTokenizer\.$"
    ):
        tokenizer_from_config(config)
