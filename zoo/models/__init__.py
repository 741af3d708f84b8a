"""Functional Keras models of ids: families, with `begin` and `step` for decoding, and encoders with their heads."""

from zoo.models.encoder import Encoder, RNNEncoder
from zoo.models.ensemble import Ensemble
from zoo.models.family import Family
from zoo.models.gpt import GPT
from zoo.models.heads import Classifier, MaskedLanguageModel, SentenceEmbedder, TokenClassifier
from zoo.models.masks import Masks
from zoo.models.ngram_encoder import NgramEncoder
from zoo.models.rnn_seq2seq import RNNSeq2Seq
from zoo.models.transformer import Transformer

__all__ = [
    "GPT",
    "Classifier",
    "Encoder",
    "Ensemble",
    "Family",
    "MaskedLanguageModel",
    "Masks",
    "NgramEncoder",
    "RNNEncoder",
    "RNNSeq2Seq",
    "SentenceEmbedder",
    "TokenClassifier",
    "Transformer",
]
