"""Decoding loops that live in the graph.

They drive any model through its `begin` and `step` (see the models) and know nothing of its family. A decoding step is
read in two files: `loop` has the loop that all share, and `search` (greedy, beam) or `sampling` what a step does.
`prefix` has decoding that begins with given tokens, `masks` decoding without some tokens and heads, `shortlist`
decoding with a few tokens of a large vocabulary.
"""

from zoo.decoding.logits import log_probabilities, score, score_in_windows, score_tokens
from zoo.decoding.masks import WithMasks, read_heads, read_hidden
from zoo.decoding.prefix import WithPrefix, logits_after, next_tokens, read_prefix
from zoo.decoding.sampling import Sampling, StopStrings, generate, sample
from zoo.decoding.search import Beams, Hypotheses, beam_search, greedy
from zoo.decoding.shortlist import Shortlist, WithShortlist, learn_shortlist

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
