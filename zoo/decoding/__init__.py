"""Decoding loops that live in the graph.

They drive any model through `begin` and `step` (see the models) and know nothing of its family.
"""

from zoo.decoding.beam import Beams, beam_search, check_beam
from zoo.decoding.greedy import Hypotheses, greedy
from zoo.decoding.halves import in_halves
from zoo.decoding.sampling import Sampling, draw, sample
from zoo.decoding.scoring import log_probabilities

__all__ = [
    "Beams",
    "Hypotheses",
    "Sampling",
    "beam_search",
    "check_beam",
    "draw",
    "greedy",
    "in_halves",
    "log_probabilities",
    "sample",
]
