"""Multi-head attention: Vaswani et al. 2017, section 3.2.2."""

import keras
from keras import ops

from zoo.layers.checks import check_inputs
from zoo.layers.functions.attention_axes import AttentionAxes
from zoo.layers.functions.attention_mask import AttentionMask
from zoo.layers.functions.dropout_noise import DropoutNoise
from zoo.layers.functions.masked_softmax import at_least_float32, scores_dtype
from zoo.layers.functions.scaled_dot_product_attention import scaled_dot_product_attention
from zoo.layers.functions.whole_attention import attention_with_weights, heads_first
from zoo.layers.multi_head_projections import MultiHeadProjections


@keras.saving.register_keras_serializable(package="zoo")
class MultiHeadAttention(MultiHeadProjections):
    """Several attentions side by side, each in a projection of its own.

        head_h = softmax(Q W_q^h (K W_k^h)^T / sqrt(key_dim) + mask) V W_v^h
        output = concat(head_1, ..., head_H) W_o

    It takes the place of `keras.layers.MultiHeadAttention` in one line: the same arguments with the same meaning, the
    same weights in the same order, so files and `set_weights` fit both ways. What it does otherwise, on purpose:

    - A query that may attend to nothing gets zero weights and a zero context on every path, so its output is the
      output bias. (Keras gives the mean of the values, or zeros if the weights are asked for.)
    - Scores and softmax are computed in float32 under a lower precision, and the weights are returned in it.
    - Masks given as `query_mask`, `value_mask` or `key_mask` are preferred to those that Keras attaches to tensors.
    - `flash_attention` works on every backend, with masks and dropout.

    And what it does beyond: grouped key and value heads, rotary positions, stepping with a cache.

    Axes: B batch, T queries, S keys, H heads, D width of the query, and any further axes of an input in the place of
    T or S.

    Args:
        num_heads: H.
        key_dim: width of a head's queries and keys.
        value_dim: width of a head's values; None for `key_dim`.
        dropout: the share of attention weights dropped in training.
        use_bias: whether the projections have biases.
        output_shape: the output's width or last axes; None for the query's width.
        attention_axes: the axes attended over, an integer or several; None for all but batch and features.
        sliding_window: a query attends only to keys less than this many positions away; None for no limit.
        flash_attention: True computes attention in blocks, in memory that grows with T + S and not with T x S; False
            never does; None does for more than 2**26 scores (256 MiB). The results are the same. The gradients of
            True and None cannot be differentiated again, those of False can.
        kernel_initializer: of all projections, as are the next five.
        bias_initializer: see above.
        kernel_regularizer: see above.
        bias_regularizer: see above.
        activity_regularizer: see above.
        kernel_constraint: see above.
        bias_constraint: see above.
        use_gate: whether a sigmoid of another projection of the query multiplies the context, element by element
            (https://arxiv.org/abs/2505.06708).
        seed: of the dropout.
        num_key_value_heads: heads of keys and values, a divisor of H: fewer than H is grouped-query attention
            (https://arxiv.org/abs/2305.13245), 1 multi-query attention (https://arxiv.org/abs/1911.02150). None for H.
        rotary_embedding: a `RotaryEmbedding` that turns queries and keys by their position, in the precision of its own
            dtype policy; None for none.
        **kwargs: the arguments of every Keras layer.

    Call arguments:
        query: `(B, T, D)`.
        value: `(B, S, any width)`.
        key: `(B, S, any width)`; None for `value`.
        query_mask: boolean `(B, T)`, True at real queries. A masked query attends to nothing.
        value_mask: boolean `(B, S)`, True at keys that may be attended to.
        key_mask: likewise.
        attention_mask: boolean `(T, S)`, `(B, T, S)` or `(B, H, T, S)`, where an axis may be 1, True where a query
            may attend to a key. All masks hold together.
        return_attention_scores: whether to return the attention weights too.
        training: whether to drop weights.
        use_causal_mask: whether a query may attend only to keys at its own position and before.

    Returns:
        The output `(B, T, D)`, and if asked for, the weights `(B, H, T, S)` in float32, before dropout. The query's
        implicit mask, if it has one, goes with the output.

    Raises:
        ValueError: an argument out of its range, inputs whose shapes do not fit each other, a causal mask, window or
            rotary positions for attention over several axes, weights asked for with `flash_attention=True`.

    Example:
        >>> import numpy as np
        >>> attention = MultiHeadAttention(num_heads=4, key_dim=8, num_key_value_heads=2)
        >>> x = np.ones((2, 5, 32))
        >>> output, weights = attention(x, x, use_causal_mask=True, return_attention_scores=True)
        >>> tuple(output.shape), tuple(weights.shape), np.array(weights[0, 0, 1], "float64").round(3).tolist()
        ((2, 5, 32), (2, 4, 5, 5), [0.5, 0.5, 0.0, 0.0, 0.0])

    Reference: https://arxiv.org/abs/1706.03762
    """

    def __call__(self, *args, **kwargs):
        """As `call`; the way that other layers are called in is refused."""
        check_inputs(self, args, kwargs)
        if "mask" in kwargs:
            raise ValueError(
                f"{type(self).__name__} has no `mask`: give `value_mask` (B, S) for the keys that may be attended to, "
                "`query_mask` (B, T) for the queries, or `attention_mask` (B, T, S) for pairs of both"
            )
        return super().__call__(*args, **kwargs)

    def call(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
    ):
        """Attends from each query to the values; see the class."""
        key = value if key is None else key
        axes = self._axes
        axes.check_shapes(query.shape, value.shape, key.shape)
        if use_causal_mask and len(axes.axes) > 1:
            raise ValueError(f"`use_causal_mask` needs one axis to count positions along. Received: {axes}")
        keys = axes.fold_mask(value_mask, value, "value_mask"), axes.fold_mask(key_mask, key, "key_mask")
        mask = AttentionMask(
            pairs=axes.fold_pairs(attention_mask, query, key),
            queries=axes.fold_mask(query_mask, query, "query_mask"),
            keys=_both(*keys),
            causal=use_causal_mask,
            window=self.sliding_window,
        )
        noise = None
        if training and self.dropout > 0:
            noise = DropoutNoise(self.dropout, self._dropout_layer.seed_generator)
        # Axes are folded after the projections, whose activity regularisation divides by the batch's size.
        context = scaled_dot_product_attention(
            self._rotated(axes.fold(self._query_dense(query))),
            self._rotated(axes.fold(self._key_dense(key))),
            axes.fold(self._value_dense(value)),
            mask,
            noise,
            return_weights=return_attention_scores,
            blockwise=self._blockwise(return_attention_scores),
        )
        context, weights = context if return_attention_scores else (context, None)
        output = self._project_out(axes.unfold(context, query), query)
        return (output, axes.unfold_weights(weights, query, key)) if return_attention_scores else output

    def project_memory(self, value, key=None, positions=None):
        """Keys and values of all heads: for attention to one memory again and again, computed once.

        Args:
            value: `(B, S, any width)`.
            key: `(B, S, any width)`; None for `value`.
            positions: integers `(S,)` or `(B, S)` for the rotary embedding; None counts from 0.

        Returns:
            Keys `(B, G, S, key_dim)` and values `(B, G, S, value_dim)`, where G is the number of key and value heads.
        """
        if not self.built:
            raise ValueError(f"{self.name} has no weights yet; call it once, or `build` it, before its parts.")
        keys = self._rotated(self._key_dense(value if key is None else key), positions)
        return heads_first(keys), heads_first(self._value_dense(value))

    def attend(self, query, memory, mask=None, return_attention_scores=False):
        """Attention to keys and values that `project_memory` has made.

        Args:
            query: `(B, T, D)`. With several hypotheses of a sentence in the place of T, all of them share its memory.
            memory: from `project_memory`.
            mask: boolean `(B, S)` or `(B, T, S)`, True where a key may be attended to; None allows all.
            return_attention_scores: whether to return the attention weights too.

        Returns:
            The output `(B, T, D)`, and if asked for, the weights `(B, H, T, S)` in float32.
        """
        mask = _as_attention_mask(mask, window=self.sliding_window)
        output, weights = self._attend_to(memory, query, mask)
        return (output, weights) if return_attention_scores else output

    def step(self, query, cache=None, mask=None, positions=None, return_attention_scores=False):
        """Causal self-attention of the next tokens, to all before them and to each other.

        Stepping through a sequence by any portions gives what the call gives for the whole with a causal mask.

        Args:
            query: the next tokens `(B, T, D)`: a prompt at first, then one by one.
            cache: what the last step returned; None at the start.
            mask: boolean `(B, S + T)`, or `(B, T, S + T)`, for the S tokens in the cache and the new ones, True where
                they may be attended to; None allows all.
            positions: integers `(T,)` or `(B, T)` for the rotary embedding; None goes on from S.
            return_attention_scores: whether to return the attention weights too.

        Returns:
            The output `(B, T, D)`; the cache, a pair of keys `(B, G, S + T, key_dim)` and values `(B, G, S + T,
            value_dim)`; and if asked for, the weights `(B, H, T, S + T)` in float32.
        """
        before = 0 if cache is None else ops.shape(cache[0])[2]
        length = ops.shape(query)[1]
        if positions is None and self.rotary_embedding is not None:
            positions = before + ops.arange(length)
        new = self.project_memory(query, positions=positions)
        cache = new if cache is None else tuple(ops.concatenate(each, axis=2) for each in zip(cache, new, strict=True))
        # The last token sees all before it without being told.
        mask = _as_attention_mask(mask, causal=query.shape[1] != 1, window=self.sliding_window, offset=before)
        output, weights = self._attend_to(cache, query, mask, positions)
        return (output, cache, weights) if return_attention_scores else (output, cache)

    def _attend_to(self, memory, query, mask, positions=None):
        """The output `(B, T, ...)` and the weights `(B, H, T, S)`."""
        queries = at_least_float32(self._rotated(self._query_dense(query), positions)) * self.key_dim**-0.5
        context, weights = attention_with_weights(heads_first(queries), *memory, mask)
        return self._project_out(heads_first(context), query), weights

    def _rotated(self, heads, positions=None):
        if self.rotary_embedding is None:
            return heads
        # Its precision is its own; a cache keeps that of this layer.
        return ops.cast(self.rotary_embedding(heads, positions=positions), self.compute_dtype)

    def _project_out(self, context, query):
        return self._output_dense(context * self._gate_dense(query) if self.use_gate else context)

    def _blockwise(self, return_attention_scores):
        """What `scaled_dot_product_attention` should do: the layer's choice, or Keras' for all layers."""
        chosen = keras.config.is_flash_attention_enabled() if self.flash_attention is None else self.flash_attention
        if return_attention_scores and self.flash_attention:
            raise ValueError(
                "`return_attention_scores` needs the whole matrix of scores, which `flash_attention=True` avoids. "
                "Received: return_attention_scores=True, flash_attention=True"
            )
        return None if return_attention_scores else chosen

    def compute_output_shape(self, query_shape, value_shape, key_shape=None):
        """The query's shape with `output_shape`, if that was given, in the place of its last axis."""
        axes = AttentionAxes(len(query_shape), self.attention_axes)
        axes.check_shapes(query_shape, value_shape, value_shape if key_shape is None else key_shape)
        return (*query_shape[:-1], *(self._output_shape or query_shape[-1:]))

    def compute_output_spec(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
    ):
        """The symbolic output, and the weights if asked for."""
        key = value if key is None else key
        shape = self.compute_output_shape(query.shape, value.shape, key.shape)
        output = keras.KerasTensor(shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        axes = AttentionAxes(len(query.shape), self.attention_axes)
        weights_shape = axes.weights_shape(query.shape, key.shape, self.num_heads)
        return output, keras.KerasTensor(weights_shape, dtype=scores_dtype(self.compute_dtype))


def _both(mask, other):
    """What both masks allow; None if there is neither."""
    if mask is None or other is None or mask is other:
        return other if mask is None else mask
    return ops.logical_and(mask, other)


def _as_attention_mask(mask, **rules):
    """A mask of keys `(B, S)` or of pairs `(B, T, S)` with rules of position."""
    if mask is None:
        return AttentionMask(**rules)
    mask = ops.cast(mask, "bool")
    if len(mask.shape) == 2:
        return AttentionMask(keys=mask, **rules)
    return AttentionMask(pairs=ops.expand_dims(mask, 1), **rules)
