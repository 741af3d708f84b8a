"""Model families: functional Keras models from ids to logits, with `begin` and `step` for decoding."""

from zoo.models.family import Family
from zoo.models.gpt import GPT
from zoo.models.rnn_seq2seq import RNNSeq2Seq
from zoo.models.transformer import Transformer

__all__ = ["GPT", "Family", "RNNSeq2Seq", "Transformer"]
