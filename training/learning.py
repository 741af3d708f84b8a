"""What every task learns alike: a tokenizer from texts, with errors that name the recipe's table."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from training.corpora.error import CorpusError
from training.recipe import RecipeError
from training.recipe_tables import BytePairConfig, CharactersConfig
from zoo.text import BytePairTokenizer, CharacterTokenizer, Tokenizer


def learn_tokenizer(config: CharactersConfig | BytePairConfig, texts: Iterable[str]) -> Tokenizer:
    """A tokenizer of the recipe's kind, learnt from texts."""
    if isinstance(config, BytePairConfig):
        return BytePairTokenizer.learn(texts, config.size, config.minimum_frequency, config.lowercase)
    return CharacterTokenizer.learn(texts, config.minimum_count, config.maximum_size)


@contextlib.contextmanager
def blamed_on(table: str) -> Iterator[None]:
    """Turns an error into one that names the recipe's table it comes from."""
    try:
        yield
    except CorpusError:  # which names its place itself
        raise
    except ValueError as error:
        raise RecipeError(f"{table}: {error}") from error
