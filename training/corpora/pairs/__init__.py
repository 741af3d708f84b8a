"""Where text pairs come from: each corpus reads the pairs of a split."""

from training.corpora.pairs.corpus import PairCorpus, Pairs
from training.corpora.pairs.dates import Dates
from training.corpora.pairs.files import FilePairs
from training.corpora.pairs.multi30k import Multi30k
from training.corpora.pairs.tfds import TfdsPairs

# Every corpus a recipe may name, told apart by `kind`.
CORPORA = Dates | Multi30k | FilePairs | TfdsPairs

__all__ = ["CORPORA", "Dates", "FilePairs", "Multi30k", "PairCorpus", "Pairs", "TfdsPairs"]
