"""Texts to try a model with where there are no better ones."""

from __future__ import annotations

import numpy as np

from zoo.text.tokenizer import END, Tokenizer

_LENGTHS = (12, 5, 20, 1)


def example_texts(tokenizer: Tokenizer) -> list[str]:
    """Some texts of a tokenizer's tokens, always the same ones, of different lengths."""
    random = np.random.default_rng(0)
    rows = [random.integers(END + 1, tokenizer.size, length) for length in _LENGTHS]
    return [tokenizer.detokenize(row[None]).numpy()[0].decode("utf-8") for row in rows]
