"""Where running text comes from: each corpus gives the documents of a split, piece by piece."""

from .corpus import Document, TextCorpus
from .files import FileTexts
from .pydoc import PydocTopics
from .tfds import TfdsTexts
from .tiny_shakespeare import TinyShakespeare

# Every corpus that a language model's recipe may name, told apart by `kind`.
CORPORA = PydocTopics | FileTexts | TfdsTexts | TinyShakespeare

__all__ = ["CORPORA", "Document", "FileTexts", "PydocTopics", "TextCorpus", "TfdsTexts", "TinyShakespeare"]
