"""The decoder-only language model: Radford et al. 2018, 2019."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from zoo.layers import (
    Dropout,
    LearnedPositionalEmbedding,
    ReversibleEmbedding,
    RotaryEmbedding,
    TransformerDecoderLayer,
)
from zoo.layers.checks import check_choice, check_positive, check_positive_number, check_rate
from zoo.layers.functions.tensors import Tensor
from zoo.layers.transformer_layers import make_normalization
from zoo.models.family import Family, add_bias, bias_against, through, to_logits, weights_and_bias
from zoo.models.masks import NO_MASKS, Masks


@keras.saving.register_keras_serializable(package="zoo")
class GPT(Family):
    """Layers of causal self-attention that predict every token from the tokens before it.

    The graph, with x the tokens and E their embeddings, one row for each position:

        h = E x + positions,    h = layer(h), N times,    h = norm(h)       TransformerDecoderLayer, norm first
        p(x_{i+1}) = softmax(h_i E^T)

    The defaults are those of the smallest GPT-2, except for its vocabulary. A model with the choices of Llama is

        GPT(size, positions="rotary", normalization="rms", activation="swiglu", use_bias=False, num_key_value_heads=4)

    Inputs are ids. Padding (0) is behind the tokens, where the causal mask hides it. The outputs are logits. To
    generate from ids, without a tokenizer: `zoo.decoding.generate`. Text needs a `zoo.TextGenerator`.

    Axes: B batch, T length, V vocabulary, D width, H heads, G key and value heads, d width of a head, K hypotheses of
    a row.

    Args:
        vocabulary_size: V.
        units: width of the model, D.
        num_heads: attention heads, H, a divisor of D.
        num_layers: layers, N.
        context_length: the most tokens of a text. Learned positions allow no more.
        feed_forward_units: width of the hidden layer of the feed-forward networks; 4 D if None.
        num_key_value_heads: heads of keys and values, G, a divisor of H; fewer make the cache smaller (Ainslie et al.
            2023). H if None.
        positions: how positions are encoded: "learned" adds a vector, "rotary" rotates queries and keys.
        normalization: normalisation layers, "layer" or "rms".
        activation: activation of the feed-forward networks, see `FeedForward`.
        dropout: rate, on the embeddings and after each part of a layer.
        attention_dropout: rate, on the attention weights.
        feed_forward_dropout: rate, inside the feed-forward networks.
        tied_embeddings: whether E is the matrix of the output as well.
        use_bias: whether projections and feed-forward networks have biases.
        unused_ids: ids that are never predicted, such as the padding of a checkpoint's vocabulary: their logits are
            -1e9.
        key_dim: width of a head; D / H if None.
        use_qkv_bias: whether the projections of query, key and value have biases: True in Qwen2, False in GPT-Neo,
            `use_bias` if None.
        use_query_key_norm: whether the heads of queries and keys are normalised, as in Qwen3.
        score_scale: the factor of the attention's scores, or one for each layer; 1 / sqrt(width of a head) if None.
            GPT-Neo has 1, and some GPT-2 divide by the number of the layer as well.
        sliding_window: the most positions that a token attends to, its own included; no limit if None. A list has a
            number or None for each layer; a shorter list is repeated, as in GPT-Neo.
        max_wavelength: of rotary positions; models for long texts take more than 10,000. See `RotaryEmbedding`.
        rotary_dim: how many features of a head are rotated, as in GPT-NeoX; all if None.
        rotary_scaling: how rotary positions are scaled for longer texts, such as Llama 3's; not at all if None.
        parallel_residual: whether attention and feed-forward network of a layer read the same inputs, as in GPT-NeoX.
        epsilon: of the normalisations.
        dtype: name or policy that all layers compute in, such as "mixed_bfloat16"; the global policy if None.
        name: name of the model.
        trainable: whether training changes the weights.

    Call arguments:
        tokens: ids `(B, T)`.

    Returns:
        logits `(B, T, V)` in float32; those of position i are for token i + 1.

    Raises:
        ValueError: an argument out of its range, a width that the heads do not divide, or an id that does not exist.

    Example:
        >>> import numpy as np
        >>> model = GPT(20, units=8, num_heads=2, num_layers=1, context_length=16)
        >>> tuple(model(np.ones((2, 5), "int32")).shape)
        (2, 5, 20)

    References: https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf,
    https://arxiv.org/abs/2305.13245 (key and value heads)
    """

    def __init__(
        self,
        vocabulary_size: int,
        units: int = 768,
        num_heads: int = 12,
        num_layers: int = 12,
        context_length: int = 1024,
        feed_forward_units: int | None = None,
        num_key_value_heads: int | None = None,
        positions: str = "learned",
        normalization: str = "layer",
        activation: str | Callable = "gelu_tanh",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        feed_forward_dropout: float = 0.0,
        tied_embeddings: bool = True,
        use_bias: bool = True,
        unused_ids: Sequence[int] = (),
        key_dim: int | None = None,
        use_qkv_bias: bool | None = None,
        use_query_key_norm: bool = False,
        score_scale: float | Sequence[float] | None = None,
        sliding_window: int | Sequence[int | None] | None = None,
        max_wavelength: float = 10_000.0,
        rotary_dim: int | None = None,
        rotary_scaling: dict[str, Any] | None = None,
        parallel_residual: bool = False,
        epsilon: float = 1e-5,
        dtype: Any = None,
        name: str | None = None,
        trainable: bool = True,
    ):
        vocabulary_size = check_positive("vocabulary_size", vocabulary_size)
        units = check_positive("units", units)
        num_layers = check_positive("num_layers", num_layers)
        context_length = check_positive("context_length", context_length)
        check_choice("positions", positions, ("learned", "rotary"))
        check_rate("dropout", dropout)
        check_positive_number("epsilon", epsilon)
        dtype = keras.dtype_policies.get(dtype)
        scales = _for_each_layer("score_scale", score_scale, num_layers)
        windows = _for_each_layer("sliding_window", sliding_window, num_layers)
        # One for each layer: an initializer gives the same numbers each time it is asked.
        new_initializer = functools.partial(keras.initializers.RandomNormal, stddev=0.02)

        # Layers.
        embedding = ReversibleEmbedding if tied_embeddings else keras.layers.Embedding
        self.embedding = embedding(
            vocabulary_size, units, embeddings_initializer=new_initializer(), dtype=dtype, name="embedding"
        )
        self.position_embedding = None
        if positions == "learned":
            self.position_embedding = LearnedPositionalEmbedding(
                context_length, new_initializer(), dtype=dtype, name="positions"
            )

        def make_rotary():
            options = dict(max_wavelength=max_wavelength, rotary_dim=rotary_dim, scaling=rotary_scaling)
            return RotaryEmbedding(**options, dtype=dtype) if positions == "rotary" else None

        self.embedding_dropout = Dropout(dropout, dtype=dtype, name="embedding_dropout")
        self.decoder = [
            TransformerDecoderLayer(
                num_heads,
                4 * units if feed_forward_units is None else feed_forward_units,
                dropout=dropout,
                attention_dropout=attention_dropout,
                feed_forward_dropout=feed_forward_dropout,
                activation=activation,
                normalization=normalization,
                norm_first=True,
                use_bias=use_bias,
                num_key_value_heads=num_key_value_heads,
                rotary_embedding=make_rotary(),
                kernel_initializer=new_initializer(),
                key_dim=key_dim,
                use_qkv_bias=use_qkv_bias,
                use_query_key_norm=use_query_key_norm,
                score_scale=scales[index],
                sliding_window=windows[index],
                parallel_residual=parallel_residual,
                epsilon=epsilon,
                cross_attention=False,
                dtype=dtype,
                name=f"layer_{index + 1}",
            )
            for index in range(num_layers)
        ]
        self.norm = make_normalization(normalization, epsilon, dtype=dtype, name="norm")
        self.output_layer = None
        if not tied_embeddings:
            self.output_layer = keras.layers.Dense(
                vocabulary_size, use_bias=False, kernel_initializer=new_initializer(), dtype=dtype, name="logits"
            )
        self._unused_bias = bias_against(unused_ids, vocabulary_size)

        # Graph.
        tokens = keras.Input((None,), dtype="int32", name="tokens")  # (B, T)
        hidden = self.vectors(tokens)  # (B, T, D)
        super().__init__(tokens, self.logits_of(hidden), hidden, dtype, name, trainable)

        # Config.
        self.vocabulary_size = vocabulary_size
        self.units = units
        self.num_heads = num_heads
        self.num_layers = num_layers
        self.context_length = context_length
        self.feed_forward_units = feed_forward_units
        self.num_key_value_heads = num_key_value_heads
        self.positions = positions
        self.normalization = normalization
        self.activation = self.decoder[0].activation
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.feed_forward_dropout = feed_forward_dropout
        self.tied_embeddings = tied_embeddings
        self.use_bias = use_bias
        self.unused_ids = tuple(unused_ids)
        self.key_dim = key_dim
        self.use_qkv_bias = use_qkv_bias
        self.use_query_key_norm = use_query_key_norm
        self.score_scale = score_scale
        self.sliding_window = sliding_window
        self.max_wavelength = max_wavelength
        self.rotary_dim = rotary_dim
        self.rotary_scaling = rotary_scaling
        self.parallel_residual = parallel_residual
        self.epsilon = epsilon

        # Each layer adds to the residual stream twice. Kernels that start smaller by the root of this number keep the
        # variance of the sum independent of the depth (Radford et al. 2019, section 2.3).
        for layer in self.decoder:
            for kernel in (layer.self_attention.output_dense.kernel, layer.feed_forward.output_projection.kernel):
                kernel.assign(kernel * (2 * num_layers) ** -0.5)

    def _embed(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """Ids `(B, T)` -> vectors `(B, T, D)`, with learned positions if there are any."""
        hidden = self.embedding(tokens)  # (B, T, D)
        if self.position_embedding is not None:
            hidden = self.position_embedding(hidden, positions=positions)
        return self.embedding_dropout(hidden)

    def logits_of(self, hidden: Any) -> Any:
        """What `without_logits` gives, `(..., D)` -> logits `(..., V)` in float32."""
        return add_bias(to_logits(hidden, self.output_layer, self.embedding), self._unused_bias)

    @property
    def head_sizes(self) -> dict[str, tuple[int, int]]:
        """The layers and heads that `Masks` can switch off; there is one kind of attention, without a name."""
        return {"": (self.num_layers, self.num_heads)}

    def vectors(self, tokens: Any, masks: Masks = NO_MASKS, maps: Any = None) -> Any:
        """What `without_logits` gives for ids `(B, T)`: vectors `(B, T, D)`, with tokens and heads left out.

        A list given as `maps` is filled with the weights `(B, H, T, T)` of each layer.
        """
        hidden, pairs = self._embed(tokens), visible_pairs(masks.shown)
        for index, layer in enumerate(self.decoder):
            heads = masks.of_layer("", index)
            hidden = through(layer, maps, hidden, inputs_mask=pairs, head_mask=heads)  # (B, T, D), maps (B, H, T, T)
        return self.norm(hidden)

    def output_weights(self) -> tuple[Any, Any]:
        """The last product's weights `(V, D)` and its bias `(V,)` or None: logits = vectors times weights^T + bias.

        Raises:
            ValueError: the weights are quantised.
        """
        weights, _ = weights_and_bias(self.output_layer, self.embedding)
        return weights, add_bias(None, self._unused_bias)

    def begin(self, tokens: Any) -> tuple[dict[str, Any], tuple]:
        """Reads the prompts, all tokens at once.

        Args:
            tokens: ids `(B, T)`, any number of them in a row, and zeros before or behind them.

        Returns:
            memory: what belongs to a row: a dict with the mask `(B, T)` and the number of tokens `(B,)`.
            cache: what belongs to a hypothesis, with one hypothesis for each row (K = 1): for each layer the keys and
                values `(B, 1, G, T, d)` of the tokens, behind the padding.
        """
        tokens, mask, lengths, positions = align_right(tokens)
        hidden, cache = self._embed(tokens, positions), []  # (B, T, D)
        for layer in self.decoder:
            hidden, cached = layer.step(hidden, mask=mask, positions=positions)
            cache.append(tuple(array[:, None] for array in cached))  # (B, 1, G, T, d)
        return {"mask": mask, "lengths": lengths}, tuple(cache)

    def step(self, tokens: Any, position: Any, memory: dict[str, Any], cache: tuple) -> tuple[Any, tuple, None]:
        """Reads the next token of each hypothesis and predicts the one after it.

        Args:
            tokens: the last ids `(B, K)`.
            position: how many tokens the hypotheses have had since `begin`.
            memory: from `begin`.
            cache: from `begin` or the last step, its tensors `(B, K, ...)`.

        Returns:
            logits `(B, K, V)` in float32; the cache; and None, where models with a source give attention weights.
        """
        hypotheses = tokens.shape[1] or ops.shape(tokens)[1]
        positions, padding = memory["lengths"] + ops.cast(position, "int32"), memory["mask"]  # (B,), (B, P)
        if self.position_embedding is not None:
            # A row that has ended is stepped on with the others, maybe beyond the context.
            positions = ops.minimum(positions, self.context_length - 1)
        batch, length = ops.shape(padding)[0], ops.shape(cache[0][0])[3]
        generated = ops.ones((batch, length + 1 - ops.shape(padding)[1]), "bool")
        mask = ops.concatenate([padding, generated], axis=1)  # (B, T)
        if hypotheses != 1:
            positions = ops.repeat(positions, hypotheses, axis=0)  # (B K,)
            mask = ops.repeat(mask, hypotheses, axis=0)  # (B K, T)

        # One hypothesis for each row is the common case, where an index costs less than a reshape of unknown sizes.
        def flat(array):  # (B, K, ...) -> (B K, ...)
            return array[:, 0] if hypotheses == 1 else ops.reshape(array, (-1, *ops.shape(array)[2:]))

        def unflat(array):  # (B K, ...) -> (B, K, ...)
            return array[:, None] if hypotheses == 1 else ops.reshape(array, (batch, hypotheses, *ops.shape(array)[1:]))

        positions = positions[:, None]  # (B K, 1)
        hidden = self._embed(ops.reshape(tokens, (-1, 1)), positions)  # (B K, 1, D)
        new_cache = []
        for layer, cached in zip(self.decoder, cache, strict=True):
            hidden, cached = layer.step(hidden, tuple(map(flat, cached)), mask=mask, positions=positions)
            new_cache.append(tuple(map(unflat, cached)))
        hidden = ops.reshape(self.norm(hidden), (batch, hypotheses, self.units))  # (B, K, D)
        return self.logits_of(hidden), tuple(new_cache), None

    def attention_maps(self, tokens: Any, masks: Masks = NO_MASKS) -> Any:
        """The attention weights of every head of every layer, of all tokens at once.

        Args:
            tokens: ids `(B, T)`.
            masks: tokens and heads to leave out.

        Returns:
            Weights `(B, N, H, T, T)` in float32. The weights in rows of padding have no meaning.
        """
        maps: list[Any] = []
        self.vectors(tokens, masks, maps)
        return ops.stack(maps, axis=1)  # (B, N, H, T, T)


def visible_pairs(shown: Any) -> Any:
    """A mask `(B, T, T)` in which hidden tokens are attended to by themselves alone; None of None."""
    return None if shown is None else shown[:, None, :] | ops.eye(ops.shape(shown)[1], dtype="bool")


def align_right(tokens: Any) -> tuple[Any, Any, Any, Any]:
    """Moves the padding before the tokens: a cache grows at its end, where tokens must follow tokens.

    Args:
        tokens: ids `(B, T)`, any number of them in a row, and zeros before or behind them.

    Returns:
        The ids `(B, T)`, the mask of tokens `(B, T)`, the number of tokens `(B,)`, and the positions of the tokens in
        their text `(B, T)`, 0 for padding.
    """
    is_token = ops.not_equal(tokens, 0)
    length = ops.shape(tokens)[1]
    places = ops.arange(length, dtype="int32")
    # Sorted by place, with T added for tokens: padding first, and the tokens in their order.
    order = ops.argsort(places + length * ops.cast(is_token, "int32"), axis=1)  # (B, T)
    tokens, mask = (ops.take_along_axis(array, order, axis=1) for array in (tokens, is_token))
    lengths = ops.sum(ops.cast(is_token, "int32"), axis=1)  # (B,)
    return tokens, mask, lengths, ops.maximum(places - (length - lengths[:, None]), 0)


def _for_each_layer(name: str, values: Any, layers: int) -> list[Any]:
    """One value for each layer: the same for all, or a list that is repeated."""
    if not isinstance(values, Sequence):
        return [values] * layers
    if not values or len(values) > layers:
        raise ValueError(f"`{name}` must hold 1 to {layers} values, one for each layer. Received: {name}={values!r}")
    return [values[index % len(values)] for index in range(layers)]
