"""Functions on tensors that the layers are made of: masks, softmax, attention in one piece or in blocks, loops.

They import `keras` alone, have no weights and keep no state.
"""

from zoo.layers.functions.attention_mask import AttentionMask
from zoo.layers.functions.masked_softmax import masked_softmax
from zoo.layers.functions.scaled_dot_product_attention import scaled_dot_product_attention

__all__ = ["AttentionMask", "masked_softmax", "scaled_dot_product_attention"]
