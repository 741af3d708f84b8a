"""Model families: functional Keras models from ids to logits, with `begin` and `step` for decoding."""

from zoo.models.rnn_seq2seq import RNNSeq2Seq
from zoo.models.transformer import Transformer

__all__ = ["RNNSeq2Seq", "Transformer"]
