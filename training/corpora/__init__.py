"""Where text pairs come from: each corpus gives a `tf.data.Dataset` of (source, target) per split."""

from training.corpora.corpus import Corpus, CorpusError, Pairs
from training.corpora.dates import Dates
from training.corpora.multi30k import Multi30k
from training.corpora.text import TextPairs
from training.corpora.tfds import TfdsPairs

# Every corpus a recipe may name, told apart by `kind`.
CORPORA = Dates | Multi30k | TextPairs | TfdsPairs

__all__ = ["CORPORA", "Corpus", "CorpusError", "Dates", "Multi30k", "Pairs", "TextPairs", "TfdsPairs"]
