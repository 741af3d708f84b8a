"""The decoder-only language model: Radford et al. 2018, 2019."""

import dataclasses

import keras
from keras import ops

from zoo.layers import Dropout, LearnedPositionalEmbedding, RotaryEmbedding, TransformerDecoderLayer
from zoo.layers.checks import check_choice, check_positive, check_rate
from zoo.layers.normalization import NORMALIZATIONS, make_normalization
from zoo.models.family import Family

_POSITIONS = ("learned", "rotary")
_NEVER = -1e9  # a logit


@keras.saving.register_keras_serializable(package="zoo")
class GPT(Family):
    """Layers of causal self-attention, each token predicted from those before it.

    The graph, with x the tokens and E their embeddings, each row a position:

        h = E x + positions,    h = layer(h), N times,    h = norm(h)       TransformerDecoderLayer, norm first
        p(x_{i+1}) = softmax(h_i E^T)

    The defaults are those of the smallest GPT-2, but for its vocabulary. A model as they are built today is

        GPT(size, positions="rotary", normalization="rms", activation="swiglu", use_bias=False, num_key_value_heads=4)

    Inputs are ids, 0 for padding, which stands behind the tokens, where causality hides it; the outputs are logits.

    Axes: B batch, T length, V vocabulary, D width, H heads, G key and value heads, K hypotheses a row.

    Args:
        vocabulary_size: V.
        units: D.
        num_heads: H, a divisor of D.
        num_layers: N.
        context_length: how many tokens the model is for. Learned positions allow no more.
        feed_forward_units: width of the feed-forward networks in between; 4 D if None.
        num_key_value_heads: G, a divisor of H: the fewer, the smaller the cache (Ainslie et al. 2023); H if None.
        positions: "learned", or "rotary", which turns queries and keys instead.
        normalization: "layer" or "rms".
        activation: of the feed-forward networks, see `FeedForward`.
        dropout: rate, on the embeddings and after each part of a layer.
        attention_dropout: rate, on the attention weights.
        feed_forward_dropout: rate, inside the feed-forward networks.
        tied_embeddings: whether E is the matrix of the output as well.
        use_bias: whether projections and feed-forward networks have biases.
        unused_ids: ids that are never to be predicted, as where they stand for nothing: their logits are -1e9.
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
        vocabulary_size,
        units=768,
        num_heads=12,
        num_layers=12,
        context_length=1024,
        feed_forward_units=None,
        num_key_value_heads=None,
        positions="learned",
        normalization="layer",
        activation="gelu_tanh",
        dropout=0.0,
        attention_dropout=0.0,
        feed_forward_dropout=0.0,
        tied_embeddings=True,
        use_bias=True,
        unused_ids=(),
        dtype=None,
        name=None,
        trainable=True,
    ):
        config = dict(
            vocabulary_size=check_positive("vocabulary_size", vocabulary_size),
            units=check_positive("units", units),
            num_heads=check_positive("num_heads", num_heads),
            num_layers=check_positive("num_layers", num_layers),
            context_length=check_positive("context_length", context_length),
            feed_forward_units=feed_forward_units,
            num_key_value_heads=num_key_value_heads,
            positions=check_choice("positions", positions, _POSITIONS),
            normalization=check_choice("normalization", normalization, tuple(NORMALIZATIONS)),
            activation=activation,
            dropout=check_rate("dropout", dropout),
            attention_dropout=attention_dropout,
            feed_forward_dropout=feed_forward_dropout,
            tied_embeddings=tied_embeddings,
            use_bias=use_bias,
            unused_ids=_checked_ids(unused_ids, vocabulary_size),
        )
        dtype = keras.dtype_policies.get(dtype)

        # The layers.
        initializer = keras.initializers.RandomNormal(stddev=0.02)
        embedding = keras.layers.ReversibleEmbedding if tied_embeddings else keras.layers.Embedding

        def make_layer(index):
            return TransformerDecoderLayer(
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
                rotary_embedding=RotaryEmbedding(dtype=dtype) if positions == "rotary" else None,
                kernel_initializer=initializer,
                cross_attention=False,
                dtype=dtype,
                name=f"layer_{index + 1}",
            )

        def make_positions():
            return LearnedPositionalEmbedding(context_length, initializer, dtype=dtype, name="positions")

        def make_output():
            arguments = {"use_bias": False, "kernel_initializer": initializer}
            return keras.layers.Dense(vocabulary_size, **arguments, dtype=dtype, name="logits")

        parts = _Parts(
            embedding=embedding(
                vocabulary_size, units, embeddings_initializer=initializer, dtype=dtype, name="embedding"
            ),
            positions=make_positions() if positions == "learned" else None,
            dropout=Dropout(dropout, dtype=dtype, name="embedding_dropout"),
            decoder=[make_layer(index) for index in range(num_layers)],
            norm=make_normalization(normalization, 1e-5, dtype=dtype, name="norm"),
            output=None if tied_embeddings else make_output(),
            output_bias=_bias_against(unused_ids, vocabulary_size),
        )

        # The graph.
        tokens = keras.Input((None,), dtype="int32", name="tokens")
        hidden = parts.embed(tokens)
        for layer in parts.decoder:
            hidden = layer(hidden)
        hidden = parts.norm(hidden)
        super().__init__(tokens, hidden, parts.logits(hidden), config, dtype, name, trainable)
        self._parts = parts
        # What is added to the sum N times, twice a layer, begins so much smaller (Radford et al. 2019, section 2.3).
        for layer in parts.decoder:
            for kernel in (layer.self_attention.output_dense.kernel, layer.feed_forward.output_projection.kernel):
                kernel.assign(kernel * (2 * num_layers) ** -0.5)

    def output_weights(self):
        """The last product's weights `(V, D)` and its bias `(V,)` or None: logits are rows times weights^T + bias."""
        return self._parts.output_weights()

    def begin(self, tokens):
        """Reads what stands before, all at once.

        Args:
            tokens: ids `(B, T)` of any number a row, and zeros before or behind them.

        Returns:
            memory: what belongs to a row: a dict with the mask `(B, T)` and the number of tokens `(B,)`.
            cache: what belongs to a hypothesis, of which there is one a row yet: for each layer the keys and values
                `(B, 1, G, T, D / H)` of the tokens, behind the padding.
        """
        tokens, mask, lengths, positions = align_right(tokens)
        hidden, cache = self._parts.embed(tokens, positions), []
        for layer in self._parts.decoder:
            hidden, cached = layer.step(hidden, mask=mask, positions=positions)
            cache.append(tuple(each[:, None] for each in cached))
        return {"mask": mask, "lengths": lengths}, tuple(cache)

    def step(self, tokens, position, memory, cache):
        """Reads one more token of each hypothesis and predicts the next.

        Args:
            tokens: the last ids `(B, K)`.
            position: how many tokens the hypotheses have had since `begin`.
            memory: from `begin`.
            cache: from `begin` or the last step, its tensors `(B, K, ...)`.

        Returns:
            logits `(B, K, V)` in float32; the cache; and None, where models with a source give attention weights.
        """
        hypotheses = tokens.shape[1] or ops.shape(tokens)[1]
        positions, padding = memory["lengths"] + ops.cast(position, "int32"), memory["mask"]
        if self._parts.positions is not None:
            # A row that has ended is stepped on with the others, maybe beyond the context.
            positions = ops.minimum(positions, self.context_length - 1)
        batch, before = ops.shape(padding)[0], ops.shape(cache[0][0])[3]
        since = ops.ones((batch, before + 1 - ops.shape(padding)[1]), "bool")
        mask = ops.concatenate([padding, since], axis=1)
        if hypotheses != 1:
            positions, mask = (ops.repeat(each, hypotheses, axis=0) for each in (positions, mask))

        def flattened(cached):  # (B, K, ...) -> (B K, ...)
            return cached[:, 0] if hypotheses == 1 else ops.reshape(cached, (-1, *ops.shape(cached)[2:]))

        def unflattened(flat):
            if hypotheses == 1:
                return flat[:, None]
            return ops.reshape(flat, (batch, hypotheses, *ops.shape(flat)[1:]))

        positions = positions[:, None]
        hidden = self._parts.embed(ops.reshape(tokens, (-1, 1)), positions)
        new_cache = []
        for layer, cached in zip(self._parts.decoder, cache, strict=True):
            hidden, flat = layer.step(hidden, tuple(map(flattened, cached)), mask=mask, positions=positions)
            new_cache.append(tuple(map(unflattened, flat)))
        hidden = ops.reshape(self._parts.norm(hidden), (batch, hypotheses, self.units))
        return self._parts.logits(hidden), tuple(new_cache), None

    def attention_maps(self, tokens):
        """What every head of every layer attends to, with all tokens at once.

        Args:
            tokens: ids `(B, T)`.

        Returns:
            Weights `(B, N, H, T, T)` in float32. Rows of padding hold weights as well, which mean nothing.
        """
        hidden, maps = self._parts.embed(tokens), []
        for layer in self._parts.decoder:
            hidden, weights = layer(hidden, return_attention_scores=True)
            maps.append(weights)
        return ops.stack(maps, axis=1)


@dataclasses.dataclass(frozen=True)
class _Parts:
    """The layers, and the ways through them that the whole model and its steps share."""

    embedding: keras.layers.Layer
    positions: keras.layers.Layer | None
    dropout: keras.layers.Layer
    decoder: list
    norm: keras.layers.Layer
    output: keras.layers.Layer | None
    output_bias: tuple | None

    def embed(self, tokens, positions=None):
        """Ids `(B, T)` -> vectors `(B, T, D)`, which know learned positions."""
        hidden = self.embedding(tokens)
        if self.positions is not None:
            hidden = self.positions(hidden, positions=positions)
        return self.dropout(hidden)

    def logits(self, hidden):
        """Normalised `(B, T, D)` -> logits `(B, T, V)` in float32."""
        logits = self.embedding(hidden, reverse=True) if self.output is None else self.output(hidden)
        logits = ops.cast(logits, "float32")
        return logits if self.output_bias is None else logits + self._bias()

    def output_weights(self):
        """The weights `(V, D)` of the last product, and its bias or None."""
        weights = self.embedding.embeddings if self.output is None else ops.transpose(self.output.kernel)
        return weights, self._bias()

    def _bias(self):
        return None if self.output_bias is None else ops.convert_to_tensor(self.output_bias, "float32")


def align_right(tokens):
    """Moves padding before the tokens: a cache goes on at its end, so there the tokens belong.

    Args:
        tokens: ids `(B, T)` of any number a row, and zeros before or behind them.

    Returns:
        The ids, the mask of tokens and their positions in the text, 0 for padding, all `(B, T)`; before the positions
        the number of tokens `(B,)`.
    """
    is_token = ops.not_equal(tokens, 0)
    length = ops.shape(tokens)[1]
    numbers = ops.arange(length)
    order = ops.argsort(numbers + length * ops.cast(is_token, "int32"), axis=1)
    tokens, mask = (ops.take_along_axis(each, order, axis=1) for each in (tokens, is_token))
    lengths = ops.sum(ops.cast(is_token, "int32"), axis=1)
    return tokens, mask, lengths, ops.maximum(numbers - (length - lengths[:, None]), 0)


def _checked_ids(ids, vocabulary_size):
    ids = tuple(ids)
    if not all(isinstance(each, int) and 0 <= each < vocabulary_size for each in ids):
        raise ValueError(f"`unused_ids` must be integers from 0 to {vocabulary_size - 1}. Received: unused_ids={ids}")
    return ids


def _bias_against(ids, vocabulary_size):
    """A bias of the logits that keeps these ids from being predicted, or None if there are none."""
    unused = set(ids)
    return tuple(_NEVER if each in unused else 0.0 for each in range(vocabulary_size)) if unused else None
