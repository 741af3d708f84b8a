"""The layers of a transformer's encoder and decoder: Vaswani et al. 2017, section 3.1."""

from collections.abc import Callable
from typing import Any, Self

import keras
from keras import ops

from zoo.layers.checks import (
    check_built,
    check_choice,
    check_positive,
    check_positive_number,
    check_rate,
    check_width,
)
from zoo.layers.dropout import Dropout
from zoo.layers.feed_forward import FeedForward, check_activation, serialized_activation
from zoo.layers.functions.axes import token_mask
from zoo.layers.functions.tensors import Shape, Tensor, attached_mask, scores_dtype, without_mask
from zoo.layers.masked_layer import MaskedLayer
from zoo.layers.multi_head_attention import MultiHeadAttention
from zoo.layers.outer_layer import OuterLayer, keep_states

NORMALIZATIONS = {"layer": keras.layers.LayerNormalization, "rms": keras.layers.RMSNormalization}


def make_normalization(kind: str, epsilon: float, **kwargs: Any) -> keras.layers.Layer:
    """Keras' layer for "layer" (Ba et al. 2016) or "rms" (Zhang and Sennrich 2019).

    Raises:
        ValueError: another kind, or an `epsilon` that is not positive.
    """
    check_choice("normalization", kind, tuple(NORMALIZATIONS))
    layer = NORMALIZATIONS[kind](epsilon=check_positive_number("epsilon", epsilon), **kwargs)
    layer.supports_masking = True  # Keras sets it for one of the two, though both work per position
    return layer


class TransformerLayer(OuterLayer):
    """Self-attention and a feed-forward network, each with dropout, a residual connection and a normalisation.

    The arguments are described at its subclasses.
    """

    def __init__(
        self,
        num_heads: int,
        feed_forward_units: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        feed_forward_dropout: float = 0.0,
        activation: str | Callable = "relu",
        normalization: str = "layer",
        norm_first: bool = False,
        use_bias: bool = True,
        key_dim: int | None = None,
        num_key_value_heads: int | None = None,
        rotary_embedding: keras.layers.Layer | None = None,
        sliding_window: int | None = None,
        flash_attention: bool | None = None,
        epsilon: float = 1e-5,
        kernel_initializer: Any = "glorot_uniform",
        seed: int | None = None,
        use_qkv_bias: bool | None = None,
        use_query_key_norm: bool = False,
        score_scale: float | None = None,
        parallel_residual: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.num_heads = check_positive("num_heads", num_heads)
        self.feed_forward_units = check_positive("feed_forward_units", feed_forward_units)
        self.dropout = check_rate("dropout", dropout)
        self.attention_dropout = check_rate("attention_dropout", attention_dropout)
        self.feed_forward_dropout = check_rate("feed_forward_dropout", feed_forward_dropout)
        self.activation = check_activation(activation)
        self.normalization = check_choice("normalization", normalization, tuple(NORMALIZATIONS))
        self.norm_first = norm_first
        self.use_bias = use_bias
        self.key_dim = None if key_dim is None else check_positive("key_dim", key_dim)
        self.num_key_value_heads = num_key_value_heads
        self.rotary_embedding = rotary_embedding
        self.sliding_window = sliding_window
        self.flash_attention = flash_attention
        self.epsilon = check_positive_number("epsilon", epsilon)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self.use_qkv_bias = use_qkv_bias
        self.use_query_key_norm = use_query_key_norm
        self.score_scale = score_scale
        self.parallel_residual = parallel_residual
        if parallel_residual and not norm_first:
            raise ValueError("`parallel_residual` needs `norm_first=True`. Received: norm_first=False")
        self.feed_forward = FeedForward(
            feed_forward_units,
            activation,
            feed_forward_dropout,
            use_bias,
            self.kernel_initializer,
            self._seed(1),
            dtype=self.dtype_policy,
            name="feed_forward",
        )

    def build(self, inputs_shape: Shape) -> None:
        """Creates the self-attention, the feed-forward network and their normalisations."""
        self._build_parts(inputs_shape)
        keep_states(self)

    def _build_parts(self, inputs_shape: Shape) -> None:
        self.self_attention = self._attention(
            "self_attention",
            check_width("inputs", inputs_shape),
            seed=self._seed(2),
            rotary_embedding=self.rotary_embedding,
            sliding_window=self.sliding_window,
            use_query_key_norm=self.use_query_key_norm,
            norm_epsilon=self.epsilon,
        )
        self.self_attention.build(inputs_shape, inputs_shape)
        self.self_attention_norm = self._norm("self_attention_norm", inputs_shape)
        self.feed_forward.build(inputs_shape)
        self.feed_forward_norm = self._norm("feed_forward_norm", inputs_shape)
        self._dropout_layer = Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy)

    def _seed(self, number: int) -> int | None:
        """Another seed for every part, since equal seeds draw the same dropout mask; None for None."""
        return None if self.seed is None else self.seed + number

    def _attention(self, name: str, width: int, **options: Any) -> MultiHeadAttention:
        if self.key_dim is None and width % self.num_heads:
            raise ValueError(
                f"The width D must be a multiple of `num_heads` where `key_dim` is not given. "
                f"Received: D={width}, num_heads={self.num_heads}"
            )
        return MultiHeadAttention(
            self.num_heads,
            self.key_dim or width // self.num_heads,
            dropout=self.attention_dropout,
            use_bias=self.use_bias,
            flash_attention=self.flash_attention,
            kernel_initializer=self.kernel_initializer,
            num_key_value_heads=self.num_key_value_heads,
            use_qkv_bias=self.use_qkv_bias,
            score_scale=self.score_scale,
            dtype=self.dtype_policy,
            name=name,
            **options,
        )

    def _norm(self, name: str, inputs_shape: Shape) -> keras.layers.Layer:
        norm = make_normalization(self.normalization, self.epsilon, dtype=self.dtype_policy, name=name)
        norm.build(inputs_shape)
        return norm

    @staticmethod
    def _masks(inputs: Tensor, mask: Tensor | None, name: str) -> Any:
        """The inputs without the mask that Keras attached to them, and the masks as arguments of the attention.

        Left there, the attention would take the attached mask for the queries too, even if another one was given.
        """
        attached = attached_mask(inputs)
        if attached is not None:
            inputs = without_mask(inputs)
        if mask is not None and len(mask.shape) == 3:  # (B, T, T)
            return inputs, {"attention_mask": mask, "value_mask": attached}
        return inputs, {"value_mask": attached if mask is None else token_mask(mask, inputs, name)}  # (B, T)

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None = None) -> Any:
        """A mask of tokens goes on, a mask of pairs does not: then the one that Keras attached to the inputs does."""
        if previous_mask is not None and len(previous_mask.shape) == 3:
            return attached_mask(inputs)
        return token_mask(previous_mask, inputs)

    def _residual(self, part: Any, norm: keras.layers.Layer, inputs: Tensor, training: bool | None = None) -> Tensor:
        """The sum of the inputs and the part's first output, normalised; its other outputs are passed on.

        Returns:
            The sum `(B, T, D)`, and a tuple of the rest.
        """
        output, *rest = part(norm(inputs) if self.norm_first else inputs)
        total = inputs + self._dropout_layer(output, training=training)
        return (total if self.norm_first else norm(total)), tuple(rest)

    def _feed_forward(self, inputs: Tensor, attended: Tensor, training: bool | None = None) -> Tensor:
        """The last part: of the layer's inputs and of these after attention, both `(B, T, D)`."""
        if self.parallel_residual:
            output = self.feed_forward(self.feed_forward_norm(inputs), training=training)
            return attended + self._dropout_layer(output, training=training)  # (B, T, D)

        def part(x):
            return (self.feed_forward(x, training=training),)

        return self._residual(part, self.feed_forward_norm, attended, training)[0]

    def compute_output_shape(self, inputs_shape: Shape, *others: Shape) -> Shape:
        """The inputs' shape."""
        return inputs_shape

    def _weights_spec(self, inputs: Tensor, keys: Any) -> keras.KerasTensor:
        shape = (inputs.shape[0], self.num_heads, inputs.shape[1], keys.shape[1])
        return keras.KerasTensor(shape, dtype=scores_dtype(self.compute_dtype))

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        names = (
            "num_heads feed_forward_units dropout attention_dropout feed_forward_dropout normalization "
            "norm_first use_bias key_dim num_key_value_heads sliding_window flash_attention epsilon seed "
            "use_qkv_bias use_query_key_norm score_scale parallel_residual"
        )
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in names.split()},
            "activation": serialized_activation(self.activation),
            "rotary_embedding": keras.saving.serialize_keras_object(self.rotary_embedding),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The layer that `get_config` describes, its rotary embedding included."""
        rotary = keras.saving.deserialize_keras_object(config.get("rotary_embedding"))
        return cls(**{**config, "rotary_embedding": rotary})


@keras.saving.register_keras_serializable(package="zoo")
class TransformerEncoderLayer(MaskedLayer, TransformerLayer):
    """Self-attention, then a feed-forward network, each added to its inputs and normalised.

        x = norm(x + dropout(self_attention(x)))
        y = norm(x + dropout(feed_forward(x)))

    Or, with `norm_first`, `x + dropout(f(norm(x)))` in both places. See `parallel_residual` for a third form.

    Axes: B batch, T length, D width, H heads.

    Args:
        num_heads: H.
        feed_forward_units: width of the hidden layer of the feed-forward network.
        dropout: the share of each part's output features dropped in training, before it is added.
        attention_dropout: the share of attention weights dropped in training.
        feed_forward_dropout: the share of features dropped inside the feed-forward network in training.
        activation: of the feed-forward network, see `FeedForward`: "relu" in the paper, "gelu_tanh" in GPT-2,
            "swiglu" in Llama.
        normalization: "layer" (Ba et al. 2016) or "rms" (Zhang and Sennrich 2019).
        norm_first: False normalises each sum, `norm(x + f(x))`, as in the paper. True normalises the input of each
            part, `x + f(norm(x))`: it trains without a warm-up (Xiong et al. 2020) and needs a norm after the last
            layer.
        use_bias: whether projections and feed-forward network have biases.
        key_dim: width of a head; None for D / H.
        num_key_value_heads: see `MultiHeadAttention`, as the next three.
        rotary_embedding: of the self-attention.
        sliding_window: of the self-attention.
        flash_attention: of every attention.
        epsilon: of the normalisation.
        kernel_initializer: of projections and feed-forward network.
        seed: of all dropout.
        use_qkv_bias: see `MultiHeadAttention`, as the next two.
        use_query_key_norm: of the self-attention.
        score_scale: of every attention.
        parallel_residual: whether both parts read the layer's inputs, each through its own norm, as in GPT-NeoX:
            `x + self_attention(norm_1(x)) + feed_forward(norm_2(x))`. Needs `norm_first`.
        **kwargs: the arguments of every Keras layer.

    Call arguments:
        inputs: `(B, T, D)`.
        mask: boolean `(B, T)`, or `(1, T)` for all rows, True at tokens that may be attended to, or `(B, T, T)`, True
            where token i (axis 1) may attend to token j (axis 2). None takes the mask that Keras attached to the
            inputs, or allows all. `(B, T)` replaces the attached mask, `(B, T, T)` is combined with it.
        training: whether to drop features.
        return_attention_scores: whether to return the attention weights too.
        head_mask: `(B, H)`, 0 switches a head off, see `MultiHeadAttention`.

    Returns:
        `(B, T, D)`, and if asked for, the weights `(B, H, T, T)` in float32.

    Raises:
        ValueError: an argument out of its range, a width that the heads do not divide, a mask that does not fit.

    Example:
        >>> import numpy as np
        >>> layer = TransformerEncoderLayer(num_heads=4, feed_forward_units=64)
        >>> mask = np.array([[True, True, True], [True, True, False]])
        >>> tuple(layer(np.ones((2, 3, 32)), mask=mask).shape)
        (2, 3, 32)

    References: https://arxiv.org/abs/1706.03762, https://arxiv.org/abs/2002.04745 (norm_first)
    """

    def call(
        self,
        inputs: Tensor,
        mask: Tensor | None = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
        head_mask: Tensor | None = None,
    ) -> Any:
        """Both parts; see the class."""
        inputs, masks = self._masks(inputs, mask, "mask")
        options = dict(training=training, return_attention_scores=return_attention_scores, head_mask=head_mask)

        def attend(x):
            output = self.self_attention(x, x, **masks, **options)  # (B, T, D), maybe (B, H, T, T)
            return output if return_attention_scores else (output,)

        attended, weights = self._residual(attend, self.self_attention_norm, inputs, training)
        outputs = self._feed_forward(inputs, attended, training)
        return (outputs, *weights) if return_attention_scores else outputs

    def compute_output_spec(
        self,
        inputs: Tensor,
        mask: Tensor | None = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
        head_mask: Tensor | None = None,
    ) -> Any:
        """The symbolic outputs, and the weights if asked for."""
        outputs = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        return (outputs, self._weights_spec(inputs, inputs)) if return_attention_scores else outputs


@keras.saving.register_keras_serializable(package="zoo")
class TransformerDecoderLayer(TransformerLayer):
    """Causal self-attention, attention to a memory, then a feed-forward network, each added and normalised.

        x = norm(x + dropout(causal_self_attention(x)))
        x = norm(x + dropout(attention(x, memory)))
        y = norm(x + dropout(feed_forward(x)))

    Or, with `norm_first`, `x + dropout(f(norm(x)))` in all places. Without a memory (`cross_attention=False`) the
    second line is missing, and the layer is what GPT is made of.

    Axes: B batch, T length, S length of the memory, D width, H heads, G heads of keys and values.

    Args:
        *args: as for `TransformerEncoderLayer`.
        cross_attention: whether there is a memory to attend to.
        **kwargs: as for `TransformerEncoderLayer`.

    Call arguments:
        inputs: `(B, T, D)`.
        memory: what the encoder returns, `(B, S, any width)`; needed with cross attention, not taken without.
        inputs_mask: boolean `(B, T)` or `(B, T, T)`, as `mask` of `TransformerEncoderLayer`; causality comes on top.
            It is not passed on to later layers: only a mask that Keras attached to the inputs is.
        memory_mask: boolean `(B, S)`, or `(1, S)` for all rows, True at tokens of the memory that may be attended to.
        training: whether to drop features.
        return_attention_scores: whether to return the attention weights too.
        head_mask: `(B, H)` of the self-attention, 0 switches a head off, see `MultiHeadAttention`.
        memory_head_mask: the same for the attention to the memory.

    Returns:
        `(B, T, D)`, and if asked for, the weights of the self-attention `(B, H, T, T)` and, with cross attention, of
        that `(B, H, T, S)`, in float32.

    Raises:
        ValueError: an argument out of its range, a width that the heads do not divide, a memory that is missing or
            has no place, a mask that does not fit.

    Example:
        >>> import numpy as np
        >>> layer = TransformerDecoderLayer(num_heads=4, feed_forward_units=64)
        >>> x, memory = np.random.default_rng(0).normal(size=(2, 3, 32)), np.ones((2, 5, 32))
        >>> whole = layer(x, memory)
        >>> prepared, cache = layer.prepare(memory), None
        >>> for t in range(3):
        ...     last, cache = layer.step(x[:, t : t + 1], cache, prepared)
        >>> bool(np.allclose(last[:, 0], whole[:, 2], atol=1e-5))
        True

    References: https://arxiv.org/abs/1706.03762, https://arxiv.org/abs/2002.04745 (norm_first)
    """

    def __init__(self, *args: Any, cross_attention: bool = True, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.cross_attention = cross_attention
        if cross_attention and self.parallel_residual:
            raise ValueError("`parallel_residual` needs `cross_attention=False`. Received: cross_attention=True")

    def build(self, inputs_shape: Shape, memory_shape: Any = None) -> None:
        """Creates the attentions, the feed-forward network and their normalisations."""
        self._check_memory(memory_shape)
        self._build_parts(inputs_shape)
        if self.cross_attention:
            self.memory_attention = self._attention("memory_attention", inputs_shape[-1], seed=self._seed(3))
            self.memory_attention.build(inputs_shape, memory_shape)
            self.memory_attention_norm = self._norm("memory_attention_norm", inputs_shape)
        keep_states(self)

    def _check_memory(self, memory: Tensor) -> None:
        if self.cross_attention and memory is None:
            raise ValueError("`memory` is missing; a layer without one has cross_attention=False.")
        if memory is not None and not self.cross_attention:
            raise ValueError("`memory` was given to a layer with cross_attention=False.")

    def call(
        self,
        inputs: Tensor,
        memory: Tensor | None = None,
        inputs_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
        head_mask: Tensor | None = None,
        memory_head_mask: Tensor | None = None,
    ) -> Any:
        """All parts, with all tokens at once; see the class."""
        self._check_memory(memory)
        inputs, masks = self._masks(inputs, inputs_mask, "inputs_mask")
        options = dict(training=training, return_attention_scores=return_attention_scores)

        def attend(x):
            attention = self.self_attention
            output = attention(x, x, **masks, use_causal_mask=True, head_mask=head_mask, **options)  # and (B, H, T, T)
            return output if return_attention_scores else (output,)

        def attend_to_memory(x):
            masks = dict(value_mask=token_mask(memory_mask, memory, "memory_mask"), head_mask=memory_head_mask)
            output = self.memory_attention(x, memory, **masks, **options)  # (B, T, D), (B, H, T, S)
            return output if return_attention_scores else (output,)

        outputs, weights = self._residual(attend, self.self_attention_norm, inputs, training)
        if self.cross_attention:
            outputs, more = self._residual(attend_to_memory, self.memory_attention_norm, outputs, training)
            weights += more
        outputs = self._feed_forward(inputs, outputs, training)
        return (outputs, *weights) if return_attention_scores else outputs

    def prepare(self, memory: Tensor) -> Any:
        """The keys and values of the memory, which every step needs, computed once for each source.

        Args:
            memory: `(B, S, any width)`.

        Returns:
            Keys `(B, G, S, key_dim)` and values `(B, G, S, key_dim)`.
        """
        self._check_memory(memory)
        check_built(self)
        return self.memory_attention.project_memory(memory)

    def step(
        self,
        inputs: Tensor,
        cache: Any = None,
        prepared: Any = None,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        positions: Tensor | None = None,
        return_attention_scores: bool = False,
        head_mask: Tensor | None = None,
        memory_head_mask: Tensor | None = None,
    ) -> Any:
        """The next tokens, after those in the cache; stepping through a sequence gives what the call gives.

        Rows may be K hypotheses of each row of the memory, one after the other. They share what `prepare` returned,
        which is never copied.

        Args:
            inputs: the next tokens `(B, T, D)`, or `(B K, T, D)` with K hypotheses for each row of the memory.
            cache: what the last step returned; None at the start.
            prepared: from `prepare`; None without cross attention.
            mask: boolean `(B, S + T)` for the S tokens in the cache and the new ones, True where they may be attended
                to; its rows are those of the inputs. None allows all.
            memory_mask: boolean `(B, S)`; its rows are those of the memory. None allows all.
            positions: see `MultiHeadAttention.step`.
            return_attention_scores: whether to return the attention weights too.
            head_mask: `(B, H)` as in the call; its rows are those of the inputs.
            memory_head_mask: `(B, H)` as in the call; its rows are those of the memory.

        Returns:
            The outputs, of the inputs' shape; the new cache, see `MultiHeadAttention.step`; and if asked for, the
            weights as in the call.
        """
        self._check_memory(prepared)
        check_built(self)
        inputs = ops.cast(inputs, self.compute_dtype)
        shape = ops.shape(inputs)

        def attend(x):
            return self.self_attention.step(x, cache, mask, positions, return_attention_scores, head_mask)

        def attend_to_memory(x):
            rows = ops.shape(prepared[0])[0]
            # Hypotheses become more queries of their row, so that its keys and values are read once, never copied.
            folded = ops.reshape(x, (rows, -1, shape[2]))  # (B, K T, D)
            # One token has few scores. To compute them always saves a graph the choice between the matrix and blocks.
            with_weights = return_attention_scores or inputs.shape[1] == 1
            output = self.memory_attention.attend(folded, prepared, memory_mask, with_weights, memory_head_mask)
            if not with_weights:
                return (ops.reshape(output, shape),)  # (B K, T, D)
            output, weights = output
            sizes = ops.shape(weights)  # (B, H, K T, S)
            weights = ops.reshape(weights, (rows, sizes[1], -1, shape[1], sizes[3]))  # (B, H, K, T, S)
            weights = ops.swapaxes(weights, 1, 2)  # (B, K, H, T, S)
            weights = ops.reshape(weights, (-1, sizes[1], shape[1], sizes[3]))  # (B K, H, T, S)
            return ops.reshape(output, shape), weights  # (B K, T, D), (B K, H, T, S)

        outputs, (cache, *weights) = self._residual(attend, self.self_attention_norm, inputs)
        if self.cross_attention:
            outputs, more = self._residual(attend_to_memory, self.memory_attention_norm, outputs)
            weights += more
        outputs = self._feed_forward(inputs, outputs)
        return (outputs, cache, *weights) if return_attention_scores else (outputs, cache)

    def compute_output_spec(
        self,
        inputs: Tensor,
        memory: Tensor | None = None,
        inputs_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
        head_mask: Tensor | None = None,
        memory_head_mask: Tensor | None = None,
    ) -> Any:
        """The symbolic outputs, and the weights if asked for."""
        self._check_memory(memory)
        outputs = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        weights = [self._weights_spec(inputs, keys) for keys in (inputs, memory) if keys is not None]
        return (outputs, *weights) if return_attention_scores else outputs

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "cross_attention": self.cross_attention}
