"""What tasks answer, alike for a model in this process, a SavedModel and a server."""

from __future__ import annotations

import dataclasses
import math

Text = str | tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Translation:
    """One text and its translation.

    Attributes:
        source: the text that was given.
        text: the translation.
        score: the natural logarithm of the model's probability of `text`; at most 0. The end token counts, unless the
            text was cut off at the length limit.
        alternatives: the next best translations of the same text, best first, if more than one was asked for. The order
            also depends on the length penalty, so an alternative may have a higher score. Two of them may be the same
            text, made of different tokens.
    """

    source: str
    text: str
    score: float
    alternatives: tuple[Translation, ...] = ()


@dataclasses.dataclass(frozen=True)
class Generation:
    """A text, and how the model continued it.

    Attributes:
        prompt: the text that was given.
        text: what follows it, without a stop string.
        log_probability: the natural logarithm of the model's probability of the new tokens. It does not depend on the
            settings, such as the temperature.
        tokens: the number of new tokens; the end token and those of a stop string count.
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
        log_probability: the natural logarithm of its probability. A translator scores all its tokens, the end token
            included. A language model without a start token scores all but the first.
        tokens: the number of tokens that were scored.
    """

    text: str
    log_probability: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """The number of equally likely tokens that would be as uncertain; 1 for a text without tokens.

        Infinite for a text that the model cannot write.
        """
        try:
            return math.exp(-self.log_probability / max(self.tokens, 1))
        except OverflowError:
            return math.inf


@dataclasses.dataclass(frozen=True)
class Tokens:
    """The tokens of a text with their probabilities.

    Attributes:
        tokens: the visible piece of each token.
        log_probabilities: the natural logarithm of the model's probability of each, given those before it.
        text: the text that they make.
        ids: their ids, where a translator gives them.
    """

    tokens: tuple[str, ...]
    log_probabilities: tuple[float, ...]
    text: str
    ids: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class NextToken:
    """A token that may come next.

    Attributes:
        token: its visible piece.
        probability: its probability among all tokens that the model may write.
        id: its id, where a translator gives it.
    """

    token: str
    probability: float
    id: int | None = None


@dataclasses.dataclass(frozen=True)
class Classification:
    """A text and its class.

    Attributes:
        text: the text, or the pair of texts, that was given.
        label: the most probable class.
        probability: its probability.
        probabilities: the probability of every class, the most probable first. They sum to 1, unless a text may belong
            to several classes.
    """

    text: Text
    label: str
    probability: float
    probabilities: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Filling:
    """A text whose masks are filled.

    Attributes:
        text: the text that was given, with its masks.
        filled: the text with the most probable token in place of each mask. It is written as the tokenizer
            writes, for example in lower case.
        candidates: for each mask the most probable tokens and their probabilities, the most probable first.
    """

    text: str
    filled: str
    candidates: tuple[dict[str, float], ...]


@dataclasses.dataclass(frozen=True)
class Failure:
    """The result of a row that failed, in place of its outputs.

    Attributes:
        reason: one line.
    """

    reason: str
