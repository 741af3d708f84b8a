"""Tokenizers that run in the graph: strings in, ids out, and back."""

from zoo.text.byte_pair import BytePairTokenizer
from zoo.text.character_pair import CharacterPairTokenizer
from zoo.text.characters import CharacterTokenizer
from zoo.text.marian import MarianTokenizer
from zoo.text.normalization import Composition
from zoo.text.sentence_piece import SentencePieceTokenizer
from zoo.text.tokenizer import END, PADDING, START, UNKNOWN, Tokenizer, compiled_encoder, previous
from zoo.text.whitespace import WhitespaceTokenizer
from zoo.text.word_piece import WordPieceTokenizer

__all__ = [
    "END",
    "PADDING",
    "START",
    "UNKNOWN",
    "BytePairTokenizer",
    "CharacterPairTokenizer",
    "CharacterTokenizer",
    "Composition",
    "MarianTokenizer",
    "SentencePieceTokenizer",
    "Tokenizer",
    "WhitespaceTokenizer",
    "WordPieceTokenizer",
    "compiled_encoder",
    "previous",
]
