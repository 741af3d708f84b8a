"""What comes of texts, whoever makes it: a model in this process, a SavedModel or a server."""

from __future__ import annotations

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Translation:
    """One text and what it was turned into.

    Attributes:
        source: the text that was given.
        text: the text that came out.
        score: the natural logarithm of the model's probability of `text`, its end included; at most 0.
        alternatives: the next best translations of the same text, best first, where more than one was asked for. Which
            is best the length penalty decides as well, so an alternative may have the higher score; and two of them
            may be one text, spelt by different tokens.
    """

    source: str
    text: str
    score: float
    alternatives: tuple[Translation, ...] = ()


@dataclasses.dataclass(frozen=True)
class Generation:
    """A text, and how the model went on.

    Attributes:
        prompt: the text that was given.
        text: what follows it, without a stop string.
        log_probability: the natural logarithm of the model's probability of the tokens drawn, whatever the settings.
        tokens: how many were drawn, the end token and those of a stop string counted.
    """

    prompt: str
    text: str
    log_probability: float
    tokens: int


@dataclasses.dataclass(frozen=True)
class Score:
    """How likely a text is.

    Attributes:
        text: the text; of a translator, the translation.
        log_probability: the natural logarithm of its probability: of all its tokens, an end counted, if a translator
            scores it; or of all but the first, where a language model predicts none from nothing.
        tokens: how many there are.
    """

    text: str
    log_probability: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """The model is as unsure of each token as among so many equally likely ones; 1 for a text without tokens."""
        return math.exp(-self.log_probability / max(self.tokens, 1))
