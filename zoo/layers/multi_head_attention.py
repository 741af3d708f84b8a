"""Multi-head attention: Vaswani et al. 2017, section 3.2.2."""

import numbers
from collections.abc import Sequence
from typing import Any, Self

import keras
from keras import ops

from zoo.layers.checks import check_built, check_inputs, check_positive, check_positive_number, check_rate
from zoo.layers.functions.axes import AttentionAxes, check_rows, fit, memory_mask
from zoo.layers.functions.masks import AttentionMask, both
from zoo.layers.functions.random import DropoutMask
from zoo.layers.functions.scaled_dot_product_attention import attention, attention_with_weights
from zoo.layers.functions.tensors import Shape, Tensor, heads_first, positions_first, scores_dtype
from zoo.layers.outer_layer import OuterLayer, keep_states
from zoo.layers.projection import Projection

Cache = tuple[Tensor, Tensor]  # keys `(B, G, S, key_dim)` and values `(B, G, S, value_dim)`


@keras.saving.register_keras_serializable(package="zoo")
class MultiHeadAttention(OuterLayer):
    """Several attentions side by side, each with its own projections of query, key and value.

        head_h = softmax(Q W_q^h (K W_k^h)^T / sqrt(key_dim)) V W_v^h    (softmax over the allowed keys)
        output = concat(head_1, ..., head_H) W_o

    It replaces `keras.layers.MultiHeadAttention`: the same arguments with the same meaning, and the same weights in the
    same order, so either layer can read the files and weights of the other. Four differences are intended:

    - A query that may attend to nothing gets zero weights and a zero context, always, so its output is the
      output bias. (Keras gives the mean of the values, or zeros if the weights are asked for.)
    - Scores and softmax are computed in float32 under a lower precision, and the weights are returned in it.
    - Masks given as `query_mask`, `value_mask` or `key_mask` are preferred to those that Keras attaches to tensors.
    - `flash_attention` works on every backend, with masks and dropout.

    It adds grouped key and value heads, rotary positions, normalised queries and keys, and steps with a cache.

    Axes: B batch, T queries, S keys, H heads, D width of the query. An input may have several axes in place of T or
    S.

    Args:
        num_heads: H.
        key_dim: width of a head's queries and keys.
        value_dim: width of a head's values; None for `key_dim`.
        dropout: the share of attention weights dropped in training.
        use_bias: whether the projections have biases.
        output_shape: the output's width or last axes; None for the query's width.
        attention_axes: the axes attended over, an integer or several; None for all but batch and features.
        sliding_window: a query attends only to keys less than this many positions away; None for no limit.
        flash_attention: True computes attention in blocks: its memory grows with T + S instead of T x S. False never
            uses blocks. None uses them for more than 2**26 scores (256 MiB), and under XLA from 2,048 tokens on; on a
            GPU, for more than 2**28 scores (1 GiB). The results are the same. In blocks the gradient cannot be
            differentiated again.
        kernel_initializer: of all projections; the next six arguments too.
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
        rotary_embedding: a `RotaryEmbedding` that rotates queries and keys by their position, in the precision of its
            own dtype policy; None for none.
        use_qkv_bias: True gives the projections of query, key and value biases, as in Qwen2; False gives them none, as
            in GPT-Neo. Then `use_bias` is for the output only. None for `use_bias`.
        use_query_key_norm: whether every head of queries and keys is normalised by its root mean square before it is
            rotated, with a learned scale, as in Qwen3 (https://arxiv.org/abs/2010.04245).
        norm_epsilon: of that normalisation.
        score_scale: the factor of the scores; None for 1 / sqrt(key_dim).
        **kwargs: the arguments of every Keras layer.

    Call arguments:
        query: `(B, T, D)`.
        value: `(B, S, any width)`.
        key: `(B, S, any width)`; None for `value`.
        query_mask: boolean `(B, T)`, True at real queries. A masked query attends to nothing. In this mask and the
            next two, an axis of 1 in place of B stands for all rows.
        value_mask: boolean `(B, S)`, True at keys that may be attended to.
        key_mask: as `value_mask`.
        attention_mask: boolean `(T, S)`, `(B, T, S)` or `(B, H, T, S)`, where an axis may be 1, True where a query
            may attend to a key. A query attends to a key only if all masks allow it.
        return_attention_scores: whether to return the attention weights too.
        training: whether to drop weights.
        use_causal_mask: whether a query may attend only to keys at its own position and before.
        head_mask: `(B, H)`, or 1 in place of B: what each head's weights are multiplied by, 1 keeps a head, 0
            switches it off; as in PyTorch's `transformers`.

    Returns:
        The output `(B, T, D)`, and if asked for, the weights `(B, H, T, S)` in float32, before dropout. The query's
        implicit mask, if it has one, is passed on with the output.

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

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: int | Sequence[int] | None = None,
        attention_axes: int | Sequence[int] | None = None,
        sliding_window: int | None = None,
        flash_attention: bool | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        use_gate: bool = False,
        seed: int | None = None,
        num_key_value_heads: int | None = None,
        rotary_embedding: keras.layers.Layer | None = None,
        use_qkv_bias: bool | None = None,
        use_query_key_norm: bool = False,
        norm_epsilon: float = 1e-6,
        score_scale: float | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        # Phrases such as "argument `num_heads`" are Keras' wording: this layer passes Keras' own tests.
        self.num_heads = check_positive("num_heads", num_heads, "The argument `num_heads`")
        self.key_dim = check_positive("key_dim", key_dim, "The argument `key_dim`")
        value_dim = key_dim if value_dim is None else value_dim
        self.value_dim = check_positive("value_dim", value_dim, "The argument `value_dim`")
        self.dropout = check_rate("dropout", dropout)
        self.use_bias = use_bias
        # Not `output_shape`, which means something else on the layers of a functional model.
        self._output_shape = _as_shape(output_shape)
        self.attention_axes = _as_axes(attention_axes)
        self.sliding_window = None if sliding_window is None else check_positive("sliding_window", sliding_window)
        self.flash_attention = flash_attention
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        # Keras applies a layer's own `activity_regularizer` to its output; this one is for the outputs of the
        # projections.
        self._activity_regularizer = keras.regularizers.get(activity_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.use_gate = use_gate
        self.seed = seed
        self.num_key_value_heads = num_key_value_heads
        self._groups = num_heads
        if num_key_value_heads is not None:
            self._groups = check_positive("num_key_value_heads", num_key_value_heads)
            if num_heads % num_key_value_heads:
                raise ValueError(
                    f"`num_key_value_heads` must divide `num_heads`. Received: "
                    f"num_key_value_heads={num_key_value_heads}, num_heads={num_heads}"
                )
        if rotary_embedding is not None and not isinstance(rotary_embedding, keras.layers.Layer):
            raise ValueError(
                "`rotary_embedding` must be a layer that rotates heads, such as `RotaryEmbedding()`, or None. "
                f"Received: rotary_embedding={rotary_embedding!r}"
            )
        self.rotary_embedding = rotary_embedding
        self.use_qkv_bias = use_qkv_bias
        self.use_query_key_norm = use_query_key_norm
        self.norm_epsilon = check_positive_number("norm_epsilon", norm_epsilon)
        self.score_scale = None if score_scale is None else check_positive_number("score_scale", score_scale)

    def build(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> None:
        """Creates the projections.

        Args:
            query_shape: shape of the query.
            value_shape: shape of the value.
            key_shape: shape of the key; None for that of the value.

        Raises:
            ValueError: shapes that do not fit each other or the attention axes.
        """
        key_shape = value_shape if key_shape is None else key_shape
        self._axes = AttentionAxes(len(query_shape), self.attention_axes)
        self._axes.check_shapes(query_shape, value_shape, key_shape)
        if len(self._axes.axes) > 1 and (self.sliding_window is not None or self.rotary_embedding is not None):
            name = "sliding_window" if self.sliding_window is not None else "rotary_embedding"
            raise ValueError(f"`{name}` needs one axis to count positions along. Received: {self._axes}")
        # In Keras' order, which is also the order of the weights.
        # 1 and 2: how many last axes of its input a product sums over, (D,) or (H, width).
        self._query_dense = self._projection("query", 1, (self.num_heads, self.key_dim))
        self._key_dense = self._projection("key", 1, (self._groups, self.key_dim))
        if self.use_gate:
            self._gate_dense = self._projection("gate", 1, (self.num_heads, self.value_dim), activation="sigmoid")
            self._gate_dense.build(query_shape)
        self._value_dense = self._projection("value", 1, (self._groups, self.value_dim))
        # Keras' layer, used only for its seeds, which a file of `keras.layers.MultiHeadAttention` holds.
        self._dropout_layer = keras.layers.Dropout(self.dropout, dtype=self.dtype_policy, seed=self.seed)
        self._output_dense = self._projection("attention_output", 2, self._output_shape or (query_shape[-1],))
        self._query_dense.build(query_shape)
        self._key_dense.build(key_shape)
        self._value_dense.build(value_shape)
        self._output_dense.build((*query_shape[:-1], self.num_heads, self.value_dim))
        if self.use_query_key_norm:
            self._query_norm, self._key_norm = (self._norm(name) for name in ("query_norm", "key_norm"))
        if self.rotary_embedding is not None and not self.rotary_embedding.built:
            self.rotary_embedding.build((*query_shape[:-1], self.num_heads, self.key_dim))
        keep_states(self)

    def _projection(self, name: str, contracted: int, output_shape: Shape, activation: Any = None) -> Projection:
        use_bias = self.use_bias
        if name != "attention_output" and self.use_qkv_bias is not None:
            use_bias = self.use_qkv_bias
        return Projection(
            contracted,
            output_shape,
            use_bias,
            activation=activation,
            kernel_initializer=self.kernel_initializer,
            bias_initializer=self.bias_initializer,
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            activity_regularizer=self._activity_regularizer,
            kernel_constraint=self.kernel_constraint,
            bias_constraint=self.bias_constraint,
            dtype=self.dtype_policy,
            name=name,
        )

    def _norm(self, name: str) -> keras.layers.Layer:
        norm = keras.layers.RMSNormalization(epsilon=self.norm_epsilon, dtype=self.dtype_policy, name=name)
        norm.supports_masking = True  # it works per position; without this Keras warns that the mask is lost
        norm.build((None, None, None, self.key_dim))
        return norm

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As `call`; refuses arguments in the form that other attention layers take."""
        check_inputs(self, args, kwargs)
        if "mask" in kwargs:
            raise ValueError(
                f"{type(self).__name__} has no `mask`: give `value_mask` (B, S) for the keys that may be attended to, "
                "`query_mask` (B, T) for the queries, or `attention_mask` (B, T, S) for pairs of both"
            )
        return super().__call__(*args, **kwargs)

    def call(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None = None,
        query_mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
        head_mask: Tensor | None = None,
    ) -> Any:
        """Attends from each query to the values; see the class."""
        key = value if key is None else key
        axes = self._axes
        axes.check_shapes(query.shape, value.shape, key.shape)
        if use_causal_mask and len(axes.axes) > 1:
            raise ValueError(f"`use_causal_mask` needs one axis to count positions along. Received: {axes}")
        blockwise = self._blockwise(return_attention_scores)
        # A mask that is None stays None, and for inputs of rank 3 no mask is reshaped.
        keys_allowed = axes.fold_mask(value_mask, value, "value_mask"), axes.fold_mask(key_mask, key, "key_mask")
        # (B, H, T, S), where axes may be 1
        pairs = axes.fold_pairs(attention_mask, query, key, heads=self.num_heads)
        mask = AttentionMask(
            pairs=pairs,
            queries=axes.fold_mask(query_mask, query, "query_mask"),  # (B, T)
            keys=both(*keys_allowed),  # (B, S)
            causal=use_causal_mask,
            window=self.sliding_window,
        )
        dropout_mask = None
        if training and self.dropout > 0:
            dropout_mask = DropoutMask(self.dropout, self._dropout_layer.seed_generator)

        # For inputs of rank 3 `fold` and `unfold` do nothing. Otherwise they fold further axes into B, T and S. This
        # comes after the projections, whose activity regularisation divides by B.
        queries = heads_first(self._queries(axes.fold(self._query_dense(query))))  # (B, H, T, key_dim)
        keys = heads_first(self._keys(axes.fold(self._key_dense(key))))  # (B, G, S, key_dim)
        values = heads_first(axes.fold(self._value_dense(value)))  # (B, G, S, value_dim)
        # softmax(queries keys^T / sqrt(key_dim)) values: `_forward` of functions/scaled_dot_product_attention.py
        weights = None
        if return_attention_scores:
            context, weights = attention_with_weights(queries, keys, values, mask, dropout_mask)  # weights (B, H, T, S)
        else:
            # An export calls with training=False. The whole matrix then has no custom gradient, which a SavedModel
            # could not keep. Blocks have one, and so has a graph that does not know its lengths, except in
            # `forward_only`.
            by_hand = training is not False
            context = attention(queries, keys, values, mask, dropout_mask, blockwise, hand_gradient=by_hand)
        context = axes.unfold(positions_first(context), query)  # (B, T, H, value_dim)
        output = self._project_out(context, query, head_mask)  # (B, T, D)
        if not return_attention_scores:
            return output
        weights = axes.unfold_weights(weights, query, key)  # (B, others..., H, T..., S...)
        return output, _of_heads(weights, head_mask, len(axes.others))

    def project_memory(
        self, value: Tensor, key: Tensor | None = None, positions: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Keys and values of all heads, computed once for repeated attention to the same memory.

        Args:
            value: `(B, S, any width)`.
            key: `(B, S, any width)`; None for `value`.
            positions: integers `(S,)` or `(B, S)` for the rotary embedding; None counts from 0.

        Returns:
            Keys `(B, G, S, key_dim)` and values `(B, G, S, value_dim)`, where G is the number of key and value heads.
        """
        check_built(self)
        keys = self._keys(self._key_dense(value if key is None else key), positions)  # (B, S, G, key_dim)
        return heads_first(keys), heads_first(self._value_dense(value))

    def attend(
        self,
        query: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        return_attention_scores: bool = False,
        head_mask: Tensor | None = None,
    ) -> Any:
        """Attention to keys and values that `project_memory` has made.

        Args:
            query: `(B, T, D)`. T may also stand for several hypotheses of one sentence, which share its memory. With a
                `rotary_embedding` or a `sliding_window` it may not: query t is then at position t of the memory.
            memory: from `project_memory`.
            mask: boolean `(B, S)` or `(B, T, S)`, True where a key may be attended to; None allows all.
            return_attention_scores: whether to return the attention weights too.
            head_mask: `(B, H)`, see the class.

        Returns:
            The output `(B, T, D)`, and if asked for, the weights `(B, H, T, S)` in float32.

        Raises:
            ValueError: the memory has other rows than the query (one row is for all), or a mask has another shape.
        """
        if memory[0].shape[0] != 1:
            check_rows("memory", memory[0], query)
        mask = _as_attention_mask(mask, query, memory, window=self.sliding_window)
        output, weights = self._attend_to(memory, query, mask, None, return_attention_scores, head_mask)
        return (output, weights) if return_attention_scores else output

    def step(
        self,
        query: Tensor,
        cache: Any = None,
        mask: Tensor | None = None,
        positions: Tensor | None = None,
        return_attention_scores: bool = False,
        head_mask: Tensor | None = None,
    ) -> Any:
        """Causal self-attention of the next tokens, to all before them and to each other.

        Stepping through a sequence by any portions gives what the call gives for the whole with a causal mask.

        Args:
            query: the next tokens `(B, T, D)`: a prompt at first, then one by one.
            cache: what the last step returned; None at the start.
            mask: boolean `(B, S + T)`, or `(B, T, S + T)`, for the S tokens in the cache and the new ones, True where
                they may be attended to; None allows all.
            positions: integers `(T,)` or `(B, T)` for the rotary embedding; None goes on from S.
            return_attention_scores: whether to return the attention weights too.
            head_mask: `(B, H)`, see the class.

        Returns:
            The output `(B, T, D)`; the cache, a pair of keys `(B, G, S + T, key_dim)` and values `(B, G, S + T,
            value_dim)`; and if asked for, the weights `(B, H, T, S + T)` in float32.

        Raises:
            ValueError: the cache has other rows than the query, or a mask has another shape.
        """
        if cache is not None:
            check_rows("cache", cache[0], query)
        before = 0 if cache is None else ops.shape(cache[0])[2]
        length = ops.shape(query)[1]
        if positions is None and self.rotary_embedding is not None:
            positions = before + ops.arange(length, dtype="int32")
        new = self.project_memory(query, positions=positions)  # (B, G, T, key_dim) and (B, G, T, value_dim)
        # A cache that grows is copied each step, and yet faster than a masked one of full length, whose scores are all
        # computed. (`benchmarks/notes.md`, serving.py)
        cache = new if cache is None else tuple(ops.concatenate(each, axis=2) for each in zip(cache, new, strict=True))
        # A single token sees all before it, without a causal mask.
        rules = dict(causal=query.shape[1] != 1, window=self.sliding_window, offset=before)
        mask = _as_attention_mask(mask, query, cache, **rules)
        output, weights = self._attend_to(cache, query, mask, positions, return_attention_scores, head_mask)
        return (output, cache, weights) if return_attention_scores else (output, cache)

    def _attend_to(
        self,
        memory: tuple[Tensor, Tensor],
        query: Tensor,
        mask: AttentionMask,
        positions: Tensor | None,
        return_attention_scores: bool,
        head_mask: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        """The output `(B, T, ...)`, and the weights `(B, H, T, S)` or None."""
        queries = heads_first(self._queries(self._query_dense(query), positions))  # (B, H, T, key_dim)
        if return_attention_scores:
            context, weights = attention_with_weights(queries, *memory, mask)  # (B, H, T, value_dim), (B, H, T, S)
            weights = _of_heads(weights, head_mask, 1)
        else:
            # The scores of a single token are one row: blocks would save no memory.
            blockwise = False if query.shape[1] == 1 else self._blockwise(False)
            context, weights = attention(queries, *memory, mask, None, blockwise, hand_gradient=False), None
        return self._project_out(positions_first(context), query, head_mask), weights

    def _queries(self, heads: Tensor, positions: Tensor | None = None) -> Tensor:
        """Projected queries `(B, T, H, key_dim)`, normalised, rotated and scaled as the arguments say."""
        heads = self._rotated(self._query_norm(heads) if self.use_query_key_norm else heads, positions)
        # The attention divides the scores by sqrt(key_dim). Multiplying the queries by it leaves only `score_scale`.
        return heads if self.score_scale is None else heads * (self.score_scale * self.key_dim**0.5)

    def _keys(self, heads: Tensor, positions: Tensor | None = None) -> Tensor:
        """Projected keys `(B, S, G, key_dim)`, normalised and rotated as the arguments say."""
        return self._rotated(self._key_norm(heads) if self.use_query_key_norm else heads, positions)

    def _rotated(self, heads: Tensor, positions: Tensor | None = None) -> Tensor:
        """Queries or keys `(B, T, H, key_dim)`, rotated by their positions."""
        if self.rotary_embedding is None:
            return heads
        # The embedding has its own precision; a cache must have this layer's.
        return ops.cast(self.rotary_embedding(heads, positions=positions), self.compute_dtype)

    def _project_out(self, context: Tensor, query: Tensor, head_mask: Tensor | None) -> Tensor:
        context = _of_heads(context, head_mask, -2)  # (B, T, H, value_dim)
        return self._output_dense(context * self._gate_dense(query) if self.use_gate else context)

    def _blockwise(self, return_attention_scores: bool) -> bool | None:
        """Whether to attend in blocks: the layer's setting, else Keras' setting for all layers, else None."""
        if return_attention_scores and self.flash_attention:
            raise ValueError(
                "Returning attention scores is not supported when flash attention is enabled: "
                "`return_attention_scores` needs the whole matrix of scores, which `flash_attention=True` avoids. "
                "Received: return_attention_scores=True, flash_attention=True"
            )
        return keras.config.is_flash_attention_enabled() if self.flash_attention is None else self.flash_attention

    def compute_output_shape(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> Shape:
        """The query's shape with `output_shape`, if that was given, in place of its last axis."""
        axes = AttentionAxes(len(query_shape), self.attention_axes)
        axes.check_shapes(query_shape, value_shape, value_shape if key_shape is None else key_shape)
        return (*query_shape[:-1], *(self._output_shape or query_shape[-1:]))

    def compute_output_spec(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None = None,
        query_mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
        head_mask: Tensor | None = None,
    ) -> Any:
        """The symbolic output, and the weights if asked for."""
        key = value if key is None else key
        self._blockwise(return_attention_scores)
        shape = self.compute_output_shape(query.shape, value.shape, key.shape)
        output = keras.KerasTensor(shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        axes = AttentionAxes(len(query.shape), self.attention_axes)
        weights_shape = axes.weights_shape(query.shape, key.shape, self.num_heads)
        return output, keras.KerasTensor(weights_shape, dtype=scores_dtype(self.compute_dtype))

    @property
    def query_dense(self) -> Projection:
        """The query's projection, a `keras.layers.EinsumDense`."""
        return self._query_dense

    @property
    def key_dense(self) -> Projection:
        """The key's projection."""
        return self._key_dense

    @property
    def value_dense(self) -> Projection:
        """The value's projection."""
        return self._value_dense

    @property
    def output_dense(self) -> Projection:
        """The projection of the heads' contexts to the output."""
        return self._output_dense

    @property
    def query_norm(self) -> keras.layers.Layer:
        """The normalisation of the heads of queries, where there is one."""
        return self._query_norm

    @property
    def key_norm(self) -> keras.layers.Layer:
        """The normalisation of the heads of keys, where there is one."""
        return self._key_norm

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "output_shape": self._output_shape,
            "attention_axes": self.attention_axes,
            "sliding_window": self.sliding_window,
            "flash_attention": self.flash_attention,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": keras.regularizers.serialize(self.bias_regularizer),
            "activity_regularizer": keras.regularizers.serialize(self._activity_regularizer),
            "kernel_constraint": keras.constraints.serialize(self.kernel_constraint),
            "bias_constraint": keras.constraints.serialize(self.bias_constraint),
            "use_gate": self.use_gate,
            "seed": self.seed,
            "num_key_value_heads": self.num_key_value_heads,
            "rotary_embedding": keras.saving.serialize_keras_object(self.rotary_embedding),
            "use_qkv_bias": self.use_qkv_bias,
            "use_query_key_norm": self.use_query_key_norm,
            "norm_epsilon": self.norm_epsilon,
            "score_scale": self.score_scale,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The layer that `get_config` describes, here or in `keras.layers.MultiHeadAttention`."""
        rotary = keras.saving.deserialize_keras_object(config.get("rotary_embedding"))
        return cls(**{**config, "rotary_embedding": rotary})


def _as_attention_mask(mask: Tensor | None, query: Tensor, memory: Cache, **rules: Any) -> AttentionMask:
    """A mask of keys `(B, S)` or of pairs `(B, T, S)` with rules of position."""
    if mask is None:
        return AttentionMask(**rules)
    mask = memory_mask(mask, query, memory[0].shape[2])
    if len(mask.shape) == 2:
        return AttentionMask(keys=mask, **rules)
    return AttentionMask(pairs=ops.expand_dims(mask, 1), **rules)


def _of_heads(values: Tensor, head_mask: Tensor | None, axis: int) -> Tensor:
    """Values with heads on an axis, times their mask `(B, H)`; None changes nothing."""
    if head_mask is None:
        return values
    rows, heads = values.shape[0], values.shape[axis]
    given = tuple(head_mask.shape)
    if not (fit(given, (rows, heads)) or fit(given, (1, heads))):
        raise ValueError(f"`head_mask` must have the shape ({rows}, {heads}) or (1, {heads}). Received: {given}")
    shape = [1] * len(values.shape)
    shape[0], shape[axis] = ops.shape(head_mask)
    return values * ops.reshape(ops.cast(head_mask, values.dtype), shape)


def _as_shape(output_shape: int | Sequence[int] | None) -> tuple[int, ...] | None:
    """The output's last axes as a tuple, None if the query decides."""
    if output_shape is None:
        return None
    sizes = (output_shape,) if isinstance(output_shape, numbers.Integral) else output_shape
    if not isinstance(sizes, (list, tuple)) or not sizes:
        raise ValueError(
            f"Invalid `output_shape`: it must be an integer or several. Received: output_shape={output_shape!r}"
        )
    return tuple(check_positive("output_shape", size) for size in sizes)


def _as_axes(attention_axes: int | Sequence[int] | None) -> tuple[int, ...] | None:
    """The attention axes as a tuple, None for all."""
    if attention_axes is None:
        return None
    axes = (attention_axes,) if isinstance(attention_axes, numbers.Integral) else attention_axes
    if not isinstance(axes, (list, tuple)) or not axes or not all(isinstance(axis, numbers.Integral) for axis in axes):
        raise ValueError(f"`attention_axes` must be an integer or several. Received: attention_axes={attention_axes!r}")
    return tuple(map(int, axes))
