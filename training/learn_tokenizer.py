"""The tokenizer of a recipe, learnt from the training texts of any task."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from zoo.text import (
    BytePairTokenizer,
    CharacterTokenizer,
    SentencePieceTokenizer,
    Tokenizer,
    WhitespaceTokenizer,
    WordPieceTokenizer,
)

from .run_files import Digest
from .schema.recipe_tables import (
    BytePairConfig,
    CharactersConfig,
    SentencePieceConfig,
    Table,
    WhitespaceConfig,
    WordPieceConfig,
)

logger = logging.getLogger(__name__)

# Words of training text for each piece: Multi30k has 75 of them with 10,000. With few, most pieces occur too rarely
# to be learnt (Gowda and May 2020 want each of them a hundred times). The recipe for few pairs, in
# docs/better_translators.md, has 15.
_FEW_WORDS, _ENOUGH_WORDS = 15, 50
_WORD = 6  # characters, of scripts without spaces
_TOKENIZERS: dict[type[Table], Any] = {
    CharactersConfig: CharacterTokenizer,
    BytePairConfig: BytePairTokenizer,
    SentencePieceConfig: SentencePieceTokenizer,
    WordPieceConfig: WordPieceTokenizer,
    WhitespaceConfig: WhitespaceTokenizer,
}


def learn_tokenizer(config: Table, texts: Iterable[str], nfc: bool = False) -> Tokenizer:
    """A tokenizer of the recipe's kind, learnt from texts; a warning suggests fewer pieces for little text.

    Args:
        config: the recipe's table, one of `TOKENIZERS`.
        texts: the training texts, read once.
        nfc: for byte pairs, whether the texts are in NFC and the tokenizer brings its inputs into it. Characters and
            words between white space always do; pieces of sentencepiece and word pieces follow the recipe.
    """
    arguments = config.model_dump(exclude={"kind", "dropout"})  # the keys of a table are those of `learn`
    if isinstance(config, BytePairConfig):
        arguments["nfc"] = nfc
    learn = _TOKENIZERS[type(config)].learn
    if isinstance(config, CharactersConfig | WhitespaceConfig):
        return learn(texts, **arguments)
    words = 0

    def counted() -> Iterator[str]:
        nonlocal words
        for text in texts:
            words += max(len(text.split()), len(text) // _WORD)
            yield text

    tokenizer = learn(counted(), **arguments)
    suggested = max(300, words // _ENOUGH_WORDS // 100 * 100)
    if words < _FEW_WORDS * tokenizer.size and suggested < tokenizer.size:
        logger.warning(
            "tokenizer: a vocabulary of %s for %s words of training text is large, and most of its pieces are rare; "
            "size = %d suits that text better",
            *(f"{tokenizer.size:,}", f"{words:,}", suggested),
        )
    return tokenizer


def vocabulary_digest(tokenizers: Iterable[Tokenizer]) -> str:
    """A hash of all tokens in the order of their ids."""
    tokens = (
        token for tokenizer in tokenizers for token in tokenizer.tokens(np.arange(tokenizer.size)[None])[0].numpy()
    )
    return str(Digest(token.decode("utf-8", "backslashreplace") for token in tokens))
