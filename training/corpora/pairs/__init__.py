"""Where text pairs come from: each corpus reads the pairs of a split."""

from .corpus import PairCorpus, Pairs
from .dates import Dates
from .files import FilePairs
from .multi30k import Multi30k
from .tfds import TfdsPairs

# Every corpus a recipe may name, told apart by `kind`.
CORPORA = Dates | Multi30k | FilePairs | TfdsPairs

__all__ = ["CORPORA", "Dates", "FilePairs", "Multi30k", "PairCorpus", "Pairs", "TfdsPairs"]
