"""What every task learns alike: a tokenizer from texts."""

from __future__ import annotations

from collections.abc import Iterable

from zoo.text import BytePairTokenizer, CharacterTokenizer, Tokenizer

from .schema.recipe_tables import BytePairConfig, CharactersConfig


def learn_tokenizer(config: CharactersConfig | BytePairConfig, texts: Iterable[str], nfc: bool = False) -> Tokenizer:
    """A tokenizer of the recipe's kind, learnt from texts.

    `nfc`, of byte pairs: these are in NFC, and what the tokenizer gets is to be. Characters always are.
    """
    if isinstance(config, BytePairConfig):
        return BytePairTokenizer.learn(texts, config.size, config.minimum_frequency, config.lowercase, nfc)
    return CharacterTokenizer.learn(texts, config.minimum_count, config.maximum_size)
