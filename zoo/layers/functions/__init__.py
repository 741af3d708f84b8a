"""Functions on tensors that the layers are made of: attention in one piece or in blocks, masks, softmax, positions.

They import only `keras`, have no weights and keep no state. Start with `scaled_dot_product_attention`.
"""

from zoo.layers.functions.masks import AttentionMask, masked_softmax
from zoo.layers.functions.scaled_dot_product_attention import forward_only, scaled_dot_product_attention

__all__ = ["AttentionMask", "forward_only", "masked_softmax", "scaled_dot_product_attention"]
