"""Where text pairs come from: each corpus gives a `tf.data.Dataset` of (source, target) per split."""

from training.corpora.error import CorpusError
from training.corpora.pairs.corpus import Corpus, Pairs
from training.corpora.pairs.dates import Dates
from training.corpora.pairs.multi30k import Multi30k
from training.corpora.pairs.text import TextPairs
from training.corpora.pairs.tfds import TfdsPairs

# Every corpus a recipe may name, told apart by `kind`.
CORPORA = Dates | Multi30k | TextPairs | TfdsPairs

__all__ = ["CORPORA", "Corpus", "CorpusError", "Dates", "Multi30k", "Pairs", "TextPairs", "TfdsPairs"]
