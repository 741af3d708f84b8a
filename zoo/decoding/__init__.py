"""Decoding loops that live in the graph.

They drive any model through `begin` and `step` (see the models) and know nothing of its family.
"""

from zoo.decoding.beam import Beams, beam_search
from zoo.decoding.greedy import Hypotheses, greedy
from zoo.decoding.sampling import Sampling, sample
from zoo.decoding.scoring import log_probabilities, score
from zoo.decoding.stop_strings import StopStrings

__all__ = [
    "Beams",
    "Hypotheses",
    "Sampling",
    "StopStrings",
    "beam_search",
    "greedy",
    "log_probabilities",
    "sample",
    "score",
]
