"""The transformer, an encoder-decoder of attention alone: Vaswani et al. 2017."""

import dataclasses

import keras
from keras import ops

from zoo.layers import (
    Dropout,
    LearnedPositionalEmbedding,
    RotaryEmbedding,
    SinusoidalPositionalEncoding,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
)
from zoo.layers.checks import check_choice, check_positive, check_rate
from zoo.layers.normalization import NORMALIZATIONS, make_normalization
from zoo.models.family import Family, check_ties

_POSITIONS = ("sinusoidal", "learned", "rotary")


@keras.saving.register_keras_serializable(package="zoo")
class Transformer(Family):
    """An encoder of self-attention, and a decoder of causal self-attention and attention to what was encoded.

    The graph, with x the source, y the target and E their embeddings, each row a position:

        h = E_x x sqrt(D) + positions,    h = encoder layer(h), N times             TransformerEncoderLayer
        s = E_y y sqrt(D) + positions,    s = decoder layer(s, h), M times          TransformerDecoderLayer
        p(y_{i+1}) = softmax(s_i W_o)

    With `norm_first`, a last normalisation follows each stack, as nothing has normalised its sum.

    Inputs are ids, 0 for padding; the masks are computed from them. The outputs are logits.

    Axes: B batch, S source length, T target length, V target vocabulary, D width, H heads, K hypotheses a source row.

    Args:
        source_vocabulary_size: number of source ids.
        target_vocabulary_size: number of target ids, V.
        units: D.
        num_heads: H, a divisor of D.
        feed_forward_units: width of the feed-forward networks in between.
        encoder_layers: N.
        decoder_layers: M.
        dropout: rate, on the embeddings and after each part of a layer.
        attention_dropout: rate, on the attention weights.
        feed_forward_dropout: rate, inside the feed-forward networks.
        activation: of the feed-forward networks, see `FeedForward`.
        normalization: "layer" or "rms".
        norm_first: whether parts are normalised before (True) or after they are added, see `TransformerEncoderLayer`.
        positions: "sinusoidal" as in the paper, "learned", or "rotary", which turns the queries and keys of the
            self-attention instead.
        max_length: the longest source and target that learned positions are for; the others serve any length.
        tied_embeddings: "none"; "target", where E_y is W_o too (Press and Wolf 2017); or "all", where E_x is the same
            as well, which needs one vocabulary for both sides, as in the paper.
        use_bias: whether projections and feed-forward networks have biases.
        dtype: name or policy that all layers compute in, such as "mixed_bfloat16"; the global policy if None.
        name: name of the model.
        trainable: whether training changes the weights.

    Call arguments (a dict or a list, in this order):
        source: ids `(B, S)`.
        target: ids of the previous tokens `(B, T)`, that is the start token and then the target but for its last.

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
        source_vocabulary_size,
        target_vocabulary_size,
        units=512,
        num_heads=8,
        feed_forward_units=2048,
        encoder_layers=6,
        decoder_layers=6,
        dropout=0.1,
        attention_dropout=0.0,
        feed_forward_dropout=0.0,
        activation="relu",
        normalization="layer",
        norm_first=False,
        positions="sinusoidal",
        max_length=None,
        tied_embeddings="target",
        use_bias=True,
        dtype=None,
        name=None,
        trainable=True,
    ):
        config = dict(
            source_vocabulary_size=check_positive("source_vocabulary_size", source_vocabulary_size),
            target_vocabulary_size=check_positive("target_vocabulary_size", target_vocabulary_size),
            units=check_positive("units", units),
            num_heads=check_positive("num_heads", num_heads),
            feed_forward_units=feed_forward_units,
            encoder_layers=check_positive("encoder_layers", encoder_layers),
            decoder_layers=check_positive("decoder_layers", decoder_layers),
            dropout=check_rate("dropout", dropout),
            attention_dropout=attention_dropout,
            feed_forward_dropout=feed_forward_dropout,
            activation=activation,
            normalization=check_choice("normalization", normalization, tuple(NORMALIZATIONS)),
            norm_first=norm_first,
            positions=check_choice("positions", positions, _POSITIONS),
            max_length=None if max_length is None else check_positive("max_length", max_length),
            tied_embeddings=check_ties(tied_embeddings, source_vocabulary_size, target_vocabulary_size),
            use_bias=use_bias,
        )
        if positions == "learned" and max_length is None:
            raise ValueError("`positions='learned'` needs `max_length`. Received: max_length=None")
        dtype = keras.dtype_policies.get(dtype)

        # The layers.
        def make_embedding(size, name):
            tied = name == "target_embedding" and tied_embeddings != "none"
            layer = keras.layers.ReversibleEmbedding if tied else keras.layers.Embedding
            # Times the root of D, as large as the positions.
            initializer = keras.initializers.RandomNormal(stddev=units**-0.5)
            return layer(size, units, embeddings_initializer=initializer, dtype=dtype, name=name)

        def make_positions(side):
            if positions == "sinusoidal":
                return SinusoidalPositionalEncoding(dtype=dtype, name=f"{side}_positions")
            if positions == "learned":
                return LearnedPositionalEmbedding(max_length, dtype=dtype, name=f"{side}_positions")
            return None

        def make_layers(layer, side, number):
            names = "feed_forward_units dropout attention_dropout feed_forward_dropout activation normalization"
            arguments = {each: config[each] for each in (*names.split(), "num_heads", "norm_first", "use_bias")}
            rotary = RotaryEmbedding(dtype=dtype) if positions == "rotary" else None
            return [
                layer(**arguments, rotary_embedding=rotary, dtype=dtype, name=f"{side}_layer_{index + 1}")
                for index in range(number)
            ]

        def make_norm(side):
            return make_normalization(normalization, 1e-5, dtype=dtype, name=f"{side}_norm") if norm_first else None

        target_embedding = make_embedding(target_vocabulary_size, "target_embedding")
        if tied_embeddings == "all":
            source_embedding = target_embedding
        else:
            source_embedding = make_embedding(source_vocabulary_size, "source_embedding")
        output_layer = None
        if tied_embeddings == "none":
            output_layer = keras.layers.Dense(target_vocabulary_size, dtype=dtype, name="logits")
        parts = _Parts(
            scale=units**0.5,
            embeddings={"source": source_embedding, "target": target_embedding},
            positions={side: make_positions(side) for side in ("source", "target")},
            dropout=Dropout(dropout, dtype=dtype, name="embedding_dropout"),
            encoder=make_layers(TransformerEncoderLayer, "encoder", encoder_layers),
            decoder=make_layers(TransformerDecoderLayer, "decoder", decoder_layers),
            norms={side: make_norm(side) for side in ("encoder", "decoder")},
            output=output_layer,
        )

        # The graph.
        source = keras.Input((None,), dtype="int32", name="source")
        target = keras.Input((None,), dtype="int32", name="target")
        memory, mask = parts.encode(source)
        hidden = parts.embed("target", target)
        for layer in parts.decoder:
            # Padding stands at the end, where causality hides it from every real token.
            hidden = layer(hidden, memory, memory_mask=mask)
        hidden = parts.normalized("decoder", hidden)
        inputs = {"source": source, "target": target}
        super().__init__(inputs, hidden, parts.logits(hidden), config, dtype, name, trainable)
        self._parts = parts

    @property
    def has_attention(self):
        """Whether `step` returns attention weights: always."""
        return True

    def output_weights(self):
        """The last product's weights `(V, D)` and its bias `(V,)` or None: logits are rows times weights^T + bias."""
        return self._parts.output_weights()

    def begin(self, source):
        """Reads the source once.

        Args:
            source: ids `(B, S)`.

        Returns:
            memory: what belongs to a source row: a dict with the mask `(B, S)` and, for each decoder layer, the keys
                and values `(B, H, S, D / H)` of its attention to the source.
            cache: what belongs to a hypothesis, of which there is one a row yet: for each decoder layer the keys and
                values `(B, 1, H, 0, D / H)` of the tokens before, none so far.
        """
        encoded, mask = self._parts.encode(source)
        memory = {"mask": mask, "layers": tuple(layer.prepare(encoded) for layer in self._parts.decoder)}
        shape = (ops.shape(source)[0], 1, self.num_heads, 0, self.units // self.num_heads)
        empty = ops.zeros(shape, self.compute_dtype)
        return memory, tuple((empty, empty) for _ in self._parts.decoder)

    def step(self, tokens, position, memory, cache):
        """Reads one more token of each hypothesis and predicts the next.

        Args:
            tokens: the last ids `(B, K)`.
            position: how many tokens the hypotheses held before.
            memory: from `begin`.
            cache: from `begin` or the last step, its tensors `(B, K, ...)`.

        Returns:
            logits `(B, K, V)` in float32; the cache; and the weights `(B, K, S)` of the last layer's attention to the
            source, the mean of its heads.
        """
        (batch, hypotheses), width = ops.shape(tokens), self.units // self.num_heads
        rows = batch * hypotheses
        positions = ops.reshape(ops.cast(position, "int32"), (1,))
        hidden = self._parts.embed("target", ops.reshape(tokens, (rows, 1)), positions)  # (B K, 1, D)
        new_cache = []
        for layer, prepared, cached in zip(self._parts.decoder, memory["layers"], cache, strict=True):
            flat = tuple(ops.reshape(each, (rows, self.num_heads, ops.shape(each)[3], width)) for each in cached)
            hidden, flat, _, weights = layer.step(
                hidden, flat, prepared, memory_mask=memory["mask"], positions=positions, return_attention_scores=True
            )
            new_cache.append(tuple(ops.reshape(each, (batch, hypotheses, *ops.shape(each)[1:])) for each in flat))
        logits = self._parts.logits(self._parts.normalized("decoder", hidden))
        logits = ops.reshape(logits, (batch, hypotheses, self.target_vocabulary_size))
        weights = ops.mean(weights[:, :, 0], axis=1)  # (B K, S)
        return logits, tuple(new_cache), ops.reshape(weights, (batch, hypotheses, ops.shape(weights)[1]))

    def attention_maps(self, source, target):
        """What every head of every layer attends to, with all tokens at once.

        Args:
            source: ids `(B, S)`.
            target: ids of the previous tokens `(B, T)`, as in the call; what row i attends to predicts token i + 1.

        Returns:
            Weights in float32: of the decoder's attention to the source `(B, M, H, T, S)`, and of the encoder's
            self-attention `(B, N, H, S, S)`. Rows of padding hold weights as well, which mean nothing.
        """
        encoder_maps, decoder_maps = [], []
        memory, mask = self._parts.encode(source, encoder_maps)
        hidden = self._parts.embed("target", target)
        for layer in self._parts.decoder:
            hidden, _, weights = layer(hidden, memory, memory_mask=mask, return_attention_scores=True)
            decoder_maps.append(weights)
        return ops.stack(decoder_maps, axis=1), ops.stack(encoder_maps, axis=1)


@dataclasses.dataclass(frozen=True)
class _Parts:
    """The layers, and the ways through them that the whole model and its steps share."""

    scale: float
    embeddings: dict
    positions: dict
    dropout: keras.layers.Layer
    encoder: list
    decoder: list
    norms: dict
    output: keras.layers.Layer | None

    def embed(self, side, ids, positions=None):
        """Ids `(B, T)` -> vectors `(B, T, D)` that know their positions."""
        embedded = self.embeddings[side](ids) * self.scale
        if self.positions[side] is not None:
            embedded = self.positions[side](embedded, positions=positions)
        return self.dropout(embedded)

    def encode(self, source, maps=None):
        """Ids `(B, S)` -> what they are encoded as `(B, S, D)`, and the mask `(B, S)`.

        A list given as `maps` is filled with the attention weights `(B, H, S, S)` of each layer.
        """
        mask = ops.not_equal(source, 0)
        hidden = self.embed("source", source)
        for layer in self.encoder:
            if maps is None:
                hidden = layer(hidden, mask=mask)
            else:
                hidden, weights = layer(hidden, mask=mask, return_attention_scores=True)
                maps.append(weights)
        return self.normalized("encoder", hidden), mask

    def output_weights(self):
        """The weights `(V, D)` of the last product, and its bias or None."""
        if self.output is not None:
            return ops.transpose(self.output.kernel), self.output.bias
        return self.embeddings["target"].embeddings, None

    def logits(self, hidden):
        """Normalised `(B, T, D)` -> logits `(B, T, V)` in float32."""
        if self.output is not None:
            return ops.cast(self.output(hidden), "float32")
        return ops.cast(self.embeddings["target"](hidden, reverse=True), "float32")

    def normalized(self, side, hidden):
        """What leaves a stack, normalised if nothing has normalised its sum."""
        return hidden if self.norms[side] is None else self.norms[side](hidden)
