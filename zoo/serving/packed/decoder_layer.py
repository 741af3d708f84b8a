"""`zoo.layers.TransformerDecoderLayer`, packed."""

import tensorflow as tf

from zoo.serving.packed.cross_attention import PackedCrossAttention
from zoo.serving.packed.feed_forward import PackedFeedForward
from zoo.serving.packed.norms import Norm, normalized
from zoo.serving.packed.self_attention import PackedSelfAttention


class PackedDecoderLayer(tf.Module):
    """A decoder layer.

    What goes from layer to layer are the sums of what all have added to them if norms come first. If they come behind,
    it is what `normalized` gives of a sum, of which the next part reads the norm and `Norm.residual` is the sum's.

    Axes: B batch, K hypotheses a row, T tokens, S tokens in the cache, D width.

    Args:
        layer: the layer, with its weights.
        before: the last `Norm` of the layer before, or what stands in its place; None if norms come first.
    """

    def __init__(self, layer, before=None):
        super().__init__()
        self.norm_first = layer.norm_first
        norms = [layer.self_attention_norm]
        norms += [layer.memory_attention_norm] if layer.cross_attention else []
        norms = [Norm(each) for each in (*norms, layer.feed_forward_norm)]
        self.last = norms[-1]
        reads = norms if layer.norm_first else [before, *norms[:-1]]
        self.residuals = None if layer.norm_first else [each.residual() for each in reads]
        self.self_attention = PackedSelfAttention(layer.self_attention, reads[0], norms[0])
        self.cross_attention = None
        if layer.cross_attention:
            self.cross_attention = PackedCrossAttention(layer.memory_attention, reads[1], norms[1])
        self.feed_forward = PackedFeedForward(layer.feed_forward, reads[-1], norms[-1])

    def read(self, rows, shape, turns, mask=None, memory=None, memory_bias=None, return_weights=False):
        """All tokens of sequences at once.

        Args:
            rows: `(B T, D + 1)`.
            shape: B and T.
            turns: see `PackedSelfAttention.turns`.
            mask: boolean `(B, T)`, True at tokens that may be attended to; None allows all.
            memory: see `PackedCrossAttention.read`, as is its bias; None without a source.
            memory_bias: see above.
            return_weights: without a source, whether to return the weights of the attention to the past.

        Returns:
            The rows after the layer; the cache; and the weights `(B, H, T, S)` of the attention to the source, or
            `(B, H, T, T)` to the past, or None.
        """
        added, cache, past = self.self_attention.read(self._input(rows), shape, turns, mask, return_weights)
        rows, weights = self._rest(self._sum(0, rows, added), "read", shape[1], memory, memory_bias)
        return rows, cache, past if memory is None else weights

    def step(self, rows, hypotheses, turns, cache, bias=None, memory=None, memory_bias=None):
        """One more token of each hypothesis.

        Args:
            rows: `(B K, D + 1)`.
            hypotheses: K.
            turns: see `PackedSelfAttention.step`, as are the next two.
            cache: see above.
            bias: see above.
            memory: see `PackedCrossAttention.read`, as is its bias; None without a source.
            memory_bias: see above.

        Returns:
            The rows after the layer; the cache; and the weights `(B, K, H, 1, S)` of the attention to the source, or
            None.
        """
        added, cache = self.self_attention.step(self._input(rows), hypotheses, turns, cache, bias)
        rows, weights = self._rest(self._sum(0, rows, added), "step", hypotheses, memory, memory_bias)
        return rows, cache, weights

    def _rest(self, rows, way, queries, memory, memory_bias):
        """What follows the attention to the past; the way is to "read" or to "step"."""
        weights = None
        if self.cross_attention is not None:
            attend = getattr(self.cross_attention, way)
            added, weights = attend(self._input(rows), queries, memory, memory_bias)
            rows = self._sum(1, rows, added)
        return self._sum(-1, rows, self.feed_forward(self._input(rows))), weights

    def _input(self, rows):
        return normalized(rows) if self.norm_first else rows

    def _sum(self, part, rows, added):
        return rows + added if self.norm_first else normalized(self.residuals[part](rows) + added)
