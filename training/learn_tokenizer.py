"""What every task learns alike: a tokenizer from texts."""

from __future__ import annotations

from collections.abc import Iterable

from training.schema.recipe_tables import BytePairConfig, CharactersConfig
from zoo.text import BytePairTokenizer, CharacterTokenizer, Tokenizer


def learn_tokenizer(config: CharactersConfig | BytePairConfig, texts: Iterable[str]) -> Tokenizer:
    """A tokenizer of the recipe's kind, learnt from texts."""
    if isinstance(config, BytePairConfig):
        return BytePairTokenizer.learn(texts, config.size, config.minimum_frequency, config.lowercase)
    return CharacterTokenizer.learn(texts, config.minimum_count, config.maximum_size)
