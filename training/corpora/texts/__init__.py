"""Where running text comes from: each corpus gives the documents of a split, piece by piece."""

from training.corpora.texts.corpus import Document, TextCorpus
from training.corpora.texts.files import FileTexts
from training.corpora.texts.pydoc import PydocTopics
from training.corpora.texts.tfds import TfdsTexts
from training.corpora.texts.tiny_shakespeare import TinyShakespeare

# Every corpus that a language model's recipe may name, told apart by `kind`.
CORPORA = PydocTopics | FileTexts | TfdsTexts | TinyShakespeare

__all__ = ["CORPORA", "Document", "FileTexts", "PydocTopics", "TextCorpus", "TfdsTexts", "TinyShakespeare"]
