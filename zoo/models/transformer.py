"""The transformer, an encoder-decoder without recurrence: Vaswani et al. 2017."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from zoo.layers import (
    Dropout,
    LearnedPositionalEmbedding,
    ReversibleEmbedding,
    RotaryEmbedding,
    SinusoidalPositionalEncoding,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
)
from zoo.layers.checks import check_choice, check_positive, check_positive_number, check_rate
from zoo.layers.functions.tensors import Tensor
from zoo.layers.transformer_layers import make_normalization
from zoo.models.family import (
    Family,
    OutputBias,
    add_bias,
    bias_against,
    check_ties,
    through,
    to_logits,
    weights_and_bias,
)
from zoo.models.masks import NO_MASKS, Masks


@keras.saving.register_keras_serializable(package="zoo")
class Transformer(Family):
    """An encoder of self-attention, and a decoder of causal self-attention and attention to the encoder's output.

    The graph, with x the source, y the target and E their embeddings, one row for each position:

        h = E_x x sqrt(D) + positions,    h = encoder layer(h), N times             TransformerEncoderLayer
        s = E_y y sqrt(D) + positions,    s = decoder layer(s, h), M times          TransformerDecoderLayer
        p(y_{i+1}) = softmax(s_i W_o)

    With `norm_first` a normalisation follows each stack, since its layers do not normalise their sums.

    Inputs are ids, 0 for padding; the masks are computed from them. The outputs are logits. To translate ids, without
    tokenizers: `zoo.decoding.greedy`, `beam_search`. Text needs a `zoo.Translator`.

    Axes: B batch, S source length, T target length, V target vocabulary, D width, H heads, K hypotheses of a source
    row.

    Args:
        source_vocabulary_size: number of source ids.
        target_vocabulary_size: number of target ids, V.
        units: width of the model, D.
        num_heads: attention heads, H, a divisor of D.
        feed_forward_units: width of the hidden layer of the feed-forward networks.
        encoder_layers: layers of the encoder, N.
        decoder_layers: layers of the decoder, M.
        dropout: rate, on the embeddings and after each part of a layer.
        attention_dropout: rate, on the attention weights.
        feed_forward_dropout: rate, inside the feed-forward networks.
        activation: activation of the feed-forward networks, see `FeedForward`.
        normalization: normalisation layers, "layer" or "rms".
        norm_first: whether the input of each part is normalised (True), or the sum of its input and output (False), see
            `TransformerEncoderLayer`.
        positions: how positions are encoded: "sinusoidal" as in the paper, "learned", or "rotary", which rotates the
            queries and keys of the self-attention.
        max_length: the longest source and target for learned positions; the others allow any length.
        tied_embeddings: shared matrices: "none"; "target", where E_y is also W_o (Press and Wolf 2017); or "all", where
            E_x is the same too, as in the paper, which needs one vocabulary for both sides.
        use_bias: whether projections and feed-forward networks have biases.
        use_output_bias: whether the logits have a learned bias; if None, only without tied embeddings.
        unused_ids: target ids that are never predicted: their logits are -1e9.
        scale_embeddings: whether embeddings are multiplied by sqrt(D).
        position_pairs: for sinusoidal positions, the places of sine and cosine of a frequency: "adjacent" as in the
            paper, or "halves" as in Marian, see `SinusoidalPositionalEncoding`.
        epsilon: of the normalisations.
        dtype: name or policy that all layers compute in, such as "mixed_bfloat16"; the global policy if None.
        name: name of the model.
        trainable: whether training changes the weights.

    Call arguments (a dict; Keras also takes a list in this order, with a warning):
        source: ids `(B, S)`.
        target: ids of the previous tokens `(B, T)`, that is the start token and then the target without its last.

    Returns:
        logits `(B, T, V)` in float32.

    Raises:
        ValueError: an argument out of its range, a width that the heads do not divide, vocabularies that cannot be
            tied, learned positions without `max_length`.

    Example:
        >>> import numpy as np
        >>> model = Transformer(20, 10, units=8, num_heads=2, feed_forward_units=16, encoder_layers=1, decoder_layers=1)
        >>> tuple(model({"source": np.ones((2, 5), "int32"), "target": np.ones((2, 3), "int32")}).shape)
        (2, 3, 10)

    Reference: https://arxiv.org/abs/1706.03762
    """

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        units: int = 512,
        num_heads: int = 8,
        feed_forward_units: int = 2048,
        encoder_layers: int = 6,
        decoder_layers: int = 6,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        feed_forward_dropout: float = 0.0,
        activation: str | Callable = "relu",
        normalization: str = "layer",
        norm_first: bool = False,
        positions: str = "sinusoidal",
        max_length: int | None = None,
        tied_embeddings: str = "target",
        use_bias: bool = True,
        use_output_bias: bool | None = None,
        unused_ids: Sequence[int] = (),
        scale_embeddings: bool = True,
        position_pairs: str = "adjacent",
        epsilon: float = 1e-5,
        dtype: Any = None,
        name: str | None = None,
        trainable: bool = True,
    ):
        source_vocabulary_size = check_positive("source_vocabulary_size", source_vocabulary_size)
        target_vocabulary_size = check_positive("target_vocabulary_size", target_vocabulary_size)
        units = check_positive("units", units)
        encoder_layers = check_positive("encoder_layers", encoder_layers)
        decoder_layers = check_positive("decoder_layers", decoder_layers)
        check_rate("dropout", dropout)
        check_choice("positions", positions, ("sinusoidal", "learned", "rotary"))
        check_ties(tied_embeddings, source_vocabulary_size, target_vocabulary_size)
        if max_length is not None:
            max_length = check_positive("max_length", max_length)
        elif positions == "learned":
            raise ValueError("`positions='learned'` needs `max_length`. Received: max_length=None")
        check_choice("position_pairs", position_pairs, ("adjacent", "halves"))
        check_positive_number("epsilon", epsilon)
        dtype = keras.dtype_policies.get(dtype)

        # Layers.
        def make_embedding(size, name, tied):
            embedding = ReversibleEmbedding if tied else keras.layers.Embedding
            # `_embed` multiplies by the root of D, so that they are as large as sinusoidal positions.
            initializer = keras.initializers.RandomNormal(stddev=units**-0.5)
            return embedding(size, units, embeddings_initializer=initializer, dtype=dtype, name=name)

        def make_positions(name):
            if positions == "sinusoidal":
                return SinusoidalPositionalEncoding(pairs=position_pairs, dtype=dtype, name=name)
            return LearnedPositionalEmbedding(max_length, dtype=dtype, name=name) if positions == "learned" else None

        def make_stack(layer, number, name):
            options = dict(
                num_heads=num_heads,
                feed_forward_units=feed_forward_units,
                dropout=dropout,
                attention_dropout=attention_dropout,
                feed_forward_dropout=feed_forward_dropout,
                activation=activation,
                normalization=normalization,
                norm_first=norm_first,
                use_bias=use_bias,
                epsilon=epsilon,
                rotary_embedding=RotaryEmbedding(dtype=dtype) if positions == "rotary" else None,
                dtype=dtype,
            )
            return [layer(**options, name=f"{name}_{index + 1}") for index in range(number)]

        def make_norm(name):
            return make_normalization(normalization, epsilon, dtype=dtype, name=name) if norm_first else None

        self.target_embedding = make_embedding(target_vocabulary_size, "target_embedding", tied_embeddings != "none")
        self.source_embedding = self.target_embedding
        if tied_embeddings != "all":
            self.source_embedding = make_embedding(source_vocabulary_size, "source_embedding", tied=False)
        self.target_positions = make_positions("target_positions")
        self.source_positions = make_positions("source_positions")
        self.embedding_dropout = Dropout(dropout, dtype=dtype, name="embedding_dropout")
        self.encoder = make_stack(TransformerEncoderLayer, encoder_layers, "encoder_layer")
        self.encoder_norm = make_norm("encoder_norm")
        self.decoder = make_stack(TransformerDecoderLayer, decoder_layers, "decoder_layer")
        self.decoder_norm = make_norm("decoder_norm")
        self.output_layer = self.output_bias = None
        if tied_embeddings == "none":
            self.output_layer = keras.layers.Dense(
                target_vocabulary_size, use_bias=use_output_bias is not False, dtype=dtype, name="logits"
            )
        elif use_output_bias:
            self.output_bias = OutputBias(dtype="float32", name="output_bias")
        self._unused_bias = bias_against(unused_ids, target_vocabulary_size)

        # Graph.
        source = keras.Input((None,), dtype="int32", name="source")  # (B, S)
        target = keras.Input((None,), dtype="int32", name="target")  # (B, T)
        self._scale = units**0.5 if scale_embeddings else 1.0
        hidden = self._decode(target, *self._encode(source))  # (B, T, D)
        logits = self.logits_of(hidden)  # (B, T, V)
        super().__init__({"source": source, "target": target}, logits, hidden, dtype, name, trainable)

        # Config.
        self.source_vocabulary_size = source_vocabulary_size
        self.target_vocabulary_size = target_vocabulary_size
        self.units = units
        self.num_heads = num_heads
        self.feed_forward_units = feed_forward_units
        self.encoder_layers = encoder_layers
        self.decoder_layers = decoder_layers
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.feed_forward_dropout = feed_forward_dropout
        self.activation = self.decoder[0].activation
        self.normalization = normalization
        self.norm_first = norm_first
        self.positions = positions
        self.max_length = max_length
        self.most_positions = max_length if positions == "learned" else None
        self.tied_embeddings = tied_embeddings
        self.use_bias = use_bias
        self.use_output_bias = use_output_bias
        self.unused_ids = tuple(unused_ids)
        self.scale_embeddings = scale_embeddings
        self.position_pairs = position_pairs
        self.epsilon = epsilon

    def _embed(
        self,
        ids: Tensor,
        embedding: keras.layers.Layer,
        position_embedding: keras.layers.Layer,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Ids `(B, T)` -> vectors `(B, T, D)` with their positions."""
        hidden = embedding(ids) * self._scale  # (B, T, D)
        if position_embedding is not None:
            hidden = position_embedding(hidden, positions=positions)
        return self.embedding_dropout(hidden)

    def _embed_target(self, target: Tensor, positions: Tensor | None = None) -> Tensor:
        return self._embed(target, self.target_embedding, self.target_positions, positions)

    def _encode(self, source: Tensor, masks: Masks = NO_MASKS, maps: Any = None) -> Any:
        """Ids `(B, S)` -> the memory `(B, S, D)` and its mask `(B, S)`.

        A list given as `maps` is filled with the attention weights `(B, H, S, S)` of each layer.
        """
        mask = masks.allowed(ops.not_equal(source, 0))
        hidden = self._embed(source, self.source_embedding, self.source_positions)  # (B, S, D)
        for index, layer in enumerate(self.encoder):
            heads = masks.of_layer("encoder", index)
            hidden = through(layer, maps, hidden, mask=mask, head_mask=heads)  # (B, S, D)
        return hidden if self.encoder_norm is None else self.encoder_norm(hidden), mask

    def _decode(self, target: Tensor, memory: Tensor, mask: Tensor, masks: Masks = NO_MASKS, maps: Any = None) -> Any:
        """Ids `(B, T)` of the previous tokens -> normalised vectors `(B, T, D)`.

        A list given as `maps` is filled with the weights `(B, H, T, T)` and `(B, H, T, S)` of each layer.
        """
        hidden = self._embed_target(target)  # (B, T, D)
        for index, layer in enumerate(self.decoder):
            heads = dict(head_mask=masks.of_layer("decoder", index), memory_head_mask=masks.of_layer("source", index))
            # Padding of the target stands at the end, where causality hides it from every token.
            hidden = through(layer, maps, hidden, memory, memory_mask=mask, **heads)  # (B, T, D)
        return self._normalized(hidden)

    def _normalized(self, hidden: Tensor) -> Tensor:
        return hidden if self.decoder_norm is None else self.decoder_norm(hidden)

    def logits_of(self, hidden: Any) -> Any:
        """What `without_logits` gives, `(..., D)` -> logits `(..., V)` in float32."""
        logits = to_logits(hidden, self.output_layer, self.target_embedding)
        logits = logits if self.output_bias is None else self.output_bias(logits)
        return add_bias(logits, self._unused_bias)

    @property
    def has_attention(self) -> bool:
        """Whether `step` returns attention weights: always."""
        return True

    @property
    def head_sizes(self) -> dict[str, tuple[int, int]]:
        """The layers and heads that `Masks` can switch off: of the encoder, and of the decoder's two attentions."""
        encoder, decoder = (self.encoder_layers, self.num_heads), (self.decoder_layers, self.num_heads)
        return {"encoder": encoder, "source": decoder, "decoder": decoder}

    def vectors(self, inputs: dict[str, Any], masks: Masks = NO_MASKS) -> Any:
        """What `without_logits` gives for the inputs, `(B, T, D)`, with tokens and heads left out."""
        memory, mask = self._encode(inputs["source"], masks)
        return self._decode(inputs["target"], memory, mask, masks)

    def output_weights(self) -> tuple[Any, Any]:
        """The last product's weights `(V, D)` and its bias `(V,)` or None: logits = vectors times weights^T + bias.

        Raises:
            ValueError: the weights are quantised.
        """
        # The target embedding's weights, if the output is tied to it.
        weights, bias = weights_and_bias(self.output_layer, self.target_embedding)
        bias = bias if self.output_bias is None else self.output_bias.bias
        return weights, add_bias(bias, self._unused_bias)

    def begin(self, source: Any, masks: Masks = NO_MASKS) -> tuple[dict[str, Any], tuple]:
        """Reads the source once.

        Args:
            source: ids `(B, S)`.
            masks: tokens and heads to leave out.

        Returns:
            memory: what belongs to a source row: a dict with the mask `(B, S)` and, for each decoder layer, the keys
                and values `(B, H, S, D / H)` of its attention to the source; and the heads of `masks`, if it has some.
            cache: what belongs to a hypothesis, with one hypothesis for each row (K = 1): for each decoder layer the
                keys and values `(B, 1, H, 0, D / H)` of the past tokens, none yet.
        """
        encoded, mask = self._encode(source, masks)
        memory = {"mask": mask, "layers": tuple(layer.prepare(encoded) for layer in self.decoder)}
        if masks.heads is not None:
            memory["heads"] = dict(masks.heads)
        shape = (ops.shape(source)[0], 1, self.num_heads, 0, self.units // self.num_heads)
        empty = ops.zeros(shape, self.compute_dtype)
        return memory, tuple((empty, empty) for _ in self.decoder)

    def step(self, tokens: Any, position: Any, memory: dict[str, Any], cache: tuple) -> tuple[Any, tuple, Any]:
        """Reads the next token of each hypothesis and predicts the one after it.

        Args:
            tokens: the last ids `(B, K)`.
            position: how many tokens the hypotheses had before.
            memory: from `begin`.
            cache: from `begin` or the last step, its tensors `(B, K, ...)`.

        Returns:
            logits `(B, K, V)` in float32; the cache; and the weights `(B, K, S)` of the last layer's attention to the
            source, the mean of its heads.
        """
        (batch, hypotheses), width = ops.shape(tokens), self.units // self.num_heads
        rows = batch * hypotheses
        positions = ops.reshape(ops.cast(position, "int32"), (1,))
        if self.positions == "learned":
            positions = ops.minimum(positions, self.target_positions.max_length - 1)  # a graph may step beyond them
        hidden = self._embed_target(ops.reshape(tokens, (rows, 1)), positions)  # (B K, 1, D)
        new_cache, masks = [], Masks(heads=memory.get("heads"))
        for index, (layer, prepared, cached) in enumerate(zip(self.decoder, memory["layers"], cache, strict=True)):
            heads, memory_heads = (masks.of_layer(kind, index) for kind in ("decoder", "source"))
            heads = None if heads is None else ops.repeat(heads, hypotheses, axis=0)  # (B K, H)
            # (B, K, H, T, D / H) -> (B K, H, T, D / H)
            flat = tuple(ops.reshape(array, (rows, self.num_heads, ops.shape(array)[3], width)) for array in cached)
            hidden, flat, _, weights = layer.step(
                hidden,
                flat,
                prepared,
                memory_mask=memory["mask"],
                positions=positions,
                return_attention_scores=True,
                head_mask=heads,
                memory_head_mask=memory_heads,
            )
            new_cache.append(tuple(ops.reshape(array, (batch, hypotheses, *ops.shape(array)[1:])) for array in flat))
        logits = self.logits_of(self._normalized(hidden))  # (B K, 1, V)
        logits = ops.reshape(logits, (batch, hypotheses, self.target_vocabulary_size))
        weights = ops.mean(weights[:, :, 0], axis=1)  # (B K, H, 1, S) -> (B K, S)
        return logits, tuple(new_cache), ops.reshape(weights, (batch, hypotheses, ops.shape(weights)[1]))

    def attention_maps(self, source: Any, target: Any, masks: Masks = NO_MASKS) -> tuple[Any, Any, Any]:
        """The attention weights of every head of every layer, of all tokens at once.

        Args:
            source: ids `(B, S)`.
            target: ids of the previous tokens `(B, T)`, as in the call; row i of the weights predicts token i + 1.
            masks: tokens and heads to leave out.

        Returns:
            Weights in float32: of the decoder's attention to the source `(B, M, H, T, S)`, of the encoder's
            self-attention `(B, N, H, S, S)`, and of the decoder's self-attention to the previous tokens
            `(B, M, H, T, T)`. The weights in rows of padding have no meaning.
        """
        encoder_maps: list[Any] = []
        decoder_maps: list[Any] = []
        memory, mask = self._encode(source, masks, encoder_maps)
        self._decode(target, memory, mask, masks, decoder_maps)
        past, to_source = (ops.stack(maps, axis=1) for maps in zip(*decoder_maps, strict=True))
        return to_source, ops.stack(encoder_maps, axis=1), past
