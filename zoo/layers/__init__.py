"""Attention, recurrence and what models are made of, as Keras layers.

They import `keras` alone and run on any backend of it. In masks, True means *may be attended to*.
"""

from zoo.layers.additive_attention import AdditiveAttention
from zoo.layers.attention_decoder import AttentionDecoder
from zoo.layers.bidirectional_encoder import BidirectionalEncoder
from zoo.layers.concat_attention import ConcatAttention
from zoo.layers.dot_product_attention import DotProductAttention
from zoo.layers.maxout_readout import MaxoutReadout
from zoo.layers.scored_attention import ScoredAttention

__all__ = [
    "AdditiveAttention",
    "AttentionDecoder",
    "BidirectionalEncoder",
    "ConcatAttention",
    "DotProductAttention",
    "MaxoutReadout",
    "ScoredAttention",
]
