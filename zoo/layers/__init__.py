"""Keras layers: attention, recurrence and other parts of models.

They import `keras` alone and run on any backend of it. In masks, True means *may be attended to*.
"""

from zoo.layers.additive_attention import AdditiveAttention
from zoo.layers.attention_decoder import AttentionDecoder
from zoo.layers.bidirectional_encoder import BidirectionalEncoder
from zoo.layers.causal_self_attention import CausalSelfAttention
from zoo.layers.concat_attention import ConcatAttention
from zoo.layers.dot_product_attention import DotProductAttention
from zoo.layers.dropout import Dropout
from zoo.layers.feed_forward import FeedForward
from zoo.layers.learned_positional_embedding import LearnedPositionalEmbedding
from zoo.layers.maxout_readout import MaxoutReadout
from zoo.layers.multi_head_attention import MultiHeadAttention
from zoo.layers.pooling import AttentionPooling, SequencePooling
from zoo.layers.reversible_embedding import ReversibleEmbedding
from zoo.layers.rotary_embedding import RotaryEmbedding
from zoo.layers.scored_attention import ScoredAttention
from zoo.layers.self_attention import SelfAttention
from zoo.layers.simple_self_attention import SimpleSelfAttention
from zoo.layers.sinusoidal_positional_encoding import SinusoidalPositionalEncoding
from zoo.layers.swapping import swap_attention
from zoo.layers.transformer_layers import TransformerDecoderLayer, TransformerEncoderLayer

__all__ = [
    "AdditiveAttention",
    "AttentionDecoder",
    "AttentionPooling",
    "BidirectionalEncoder",
    "CausalSelfAttention",
    "ConcatAttention",
    "DotProductAttention",
    "Dropout",
    "FeedForward",
    "LearnedPositionalEmbedding",
    "MaxoutReadout",
    "MultiHeadAttention",
    "ReversibleEmbedding",
    "RotaryEmbedding",
    "ScoredAttention",
    "SelfAttention",
    "SequencePooling",
    "SimpleSelfAttention",
    "SinusoidalPositionalEncoding",
    "TransformerDecoderLayer",
    "TransformerEncoderLayer",
    "swap_attention",
]
