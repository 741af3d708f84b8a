"""The tokenizer of a recipe."""

import pytest
from zoo_training.learn_tokenizer import learn_tokenizer
from zoo_training.schema.recipe_tables import (
    BytePairConfig,
    CharactersConfig,
    SentencePieceConfig,
    WhitespaceConfig,
    WordPieceConfig,
)


def test_each_kind_has_its_options():
    texts = iter(["É ab ab ab"] * 2)
    characters = learn_tokenizer(CharactersConfig(minimum_count=3, maximum_size=6), texts)
    assert characters.get_config() == {"vocabulary": " a", "normalize": True, "lowercase": False}
    lower = learn_tokenizer(CharactersConfig(lowercase=True, maximum_size=6), ["ABa", "b", "bc"])
    assert lower.get_config() == {"vocabulary": "ba", "normalize": True, "lowercase": True}
    pieces = learn_tokenizer(BytePairConfig(size=261, lowercase=True), ["É ab ab ab"] * 2, nfc=True)
    assert (pieces.size, pieces.lowercase, pieces.nfc) == (261, True, True)
    options = {"size": 268, "model_type": "bpe", "byte_fallback": True, "normalization": "nmt_nfkc_cf"}
    lower = learn_tokenizer(SentencePieceConfig(character_coverage=1.0, **options), ["É ab ab ab"] * 2)
    assert lower.size <= 268
    assert lower.detokenize(lower.tokenize(["É AB"])).numpy()[0].decode() == "é ab"
    words = learn_tokenizer(WordPieceConfig(size=12, strip_accents=False, minimum_frequency=1), ["É ab ab"])
    assert words.get_config()["vocabulary"] == ["[MASK]", "a", "b", "é", "##b", "ab"]
    sounds = learn_tokenizer(WhitespaceConfig(minimum_count=2, maximum_size=6), iter(["L AH0 L", "L AH0 B B K"]))
    assert sounds.get_config() == {"vocabulary": ["L", "AH0"], "normalize": True}


@pytest.mark.parametrize(
    ("number", "size", "suggested"),
    [
        (40_000, 1000, None),  # 40 words for each piece
        (15_222, 1000, None),  # the recipe for few pairs in docs/better_translators.md
        (14_000, 1000, 300),
        (14_000, 961, 300),
        (24_000, 3000, 400),
        (100, 300, None),  # there are no fewer to suggest
    ],
)
def test_a_smaller_size_for_little_text(caplog, number, size, suggested):
    words = [f"{n % 3989:x}" for n in range(number)]
    learn_tokenizer(BytePairConfig(size=size, minimum_frequency=1), [" ".join(words)])
    found = [message.partition("size = ")[2].split()[0] for message in caplog.messages]
    assert found == ([str(suggested)] if suggested else [])
