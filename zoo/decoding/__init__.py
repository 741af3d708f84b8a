"""Decoding loops that live in the graph.

They drive any model through its `begin` and `step` (see the models) and know nothing of its family.

- `loop`: the loop that all share.
- `search`: a step of greedy and of beam search. `sampling`: a step that draws a token, and texts longer than the
  model's context. `token_choice`: which token is drawn. `stop_strings`: what ends a text early.
- `prefix`: decoding that begins with given tokens. `masks`: without some tokens and heads. `shortlist`: with a few
  tokens of a large vocabulary.
- `inputs`: checks of what they are given. `logits`: the largest of many logits, and how likely a given text is.
"""

from zoo.decoding.logits import log_probabilities, score, score_in_windows, score_tokens
from zoo.decoding.masks import WithMasks, read_heads, read_hidden
from zoo.decoding.prefix import WithPrefix, logits_after, next_tokens, read_prefix
from zoo.decoding.sampling import generate, sample
from zoo.decoding.search import Beams, Hypotheses, beam_search, greedy
from zoo.decoding.shortlist import Shortlist, WithShortlist, learn_shortlist
from zoo.decoding.stop_strings import StopStrings
from zoo.decoding.token_choice import Sampling

__all__ = [
    "Beams",
    "Hypotheses",
    "Sampling",
    "Shortlist",
    "StopStrings",
    "WithMasks",
    "WithPrefix",
    "WithShortlist",
    "beam_search",
    "generate",
    "greedy",
    "learn_shortlist",
    "log_probabilities",
    "logits_after",
    "next_tokens",
    "read_heads",
    "read_hidden",
    "read_prefix",
    "sample",
    "score",
    "score_in_windows",
    "score_tokens",
]
