"""Encoders, from the ids of a text to a vector for each token: BERT (Devlin et al. 2019), and a recurrent one."""

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from zoo.layers import (
    BidirectionalEncoder,
    Dropout,
    LearnedPositionalEmbedding,
    ReversibleEmbedding,
    RotaryEmbedding,
    SinusoidalPositionalEncoding,
    TransformerEncoderLayer,
)
from zoo.layers.checks import check_choice, check_positive, check_positive_number, check_rate
from zoo.layers.functions.tensors import Tensor
from zoo.layers.transformer_layers import make_normalization
from zoo.models.family import FunctionalModel, through


@keras.saving.register_keras_serializable(package="zoo")
class Encoder(FunctionalModel):
    """BERT's encoder: every token attends to the whole text, before and behind it.

    The graph, with x the ids, E their embeddings, P the positions and G the segments, one row a token:

        h = dropout(norm(E x + P + G segment)),    h = encoder layer(h), N times         TransformerEncoderLayer

    With `norm_first` there is no norm before the layers, whose sums are not normalised, but one after the last.

    A head makes a model for a task of it: see `Classifier`, `TokenClassifier`, `MaskedLanguageModel` and
    `SentenceEmbedder`.

    Axes: B batch, T length, V vocabulary, D width, N layers, H heads.

    Args:
        vocabulary_size: number of ids, V.
        units: width of the model, D.
        num_heads: attention heads, H, a divisor of D.
        num_layers: number of layers, N.
        feed_forward_units: width of the hidden layer of the feed-forward networks; None for 4 D.
        max_length: the longest text for learned positions; the others allow any length.
        num_segments: how many kinds of segments there are, such as 2 for a pair of texts; 0 for none, and then no
            input `segments`.
        dropout: rate, on the embeddings and after each part of a layer.
        attention_dropout: rate, on the attention weights.
        feed_forward_dropout: rate, inside the feed-forward networks.
        activation: activation of the feed-forward networks, see `FeedForward`.
        normalization: normalisation layers, "layer" or "rms".
        norm_first: whether parts are pre-norm (True) or post-norm, as in BERT (False), see `TransformerEncoderLayer`.
        positions: how positions are encoded: "learned" as in BERT, "sinusoidal", or "rotary", which rotates the
            queries and keys.
        use_bias: whether projections and feed-forward networks have biases.
        epsilon: of the normalisations.
        dtype: name or policy that all layers compute in, such as "mixed_bfloat16"; the global policy if None.
        name: name of the model.
        trainable: whether training changes the weights.

    Call arguments (a dict):
        ids: `(B, T)`, 0 for padding, which no token attends to.
        segments: `(B, T)`, from 0 to `num_segments - 1`; only with `num_segments`.

    Returns:
        A vector for each token, `(B, T, D)`; the vectors at padding have no meaning.

    Raises:
        ValueError: an argument out of its range, or a width that the heads do not divide.

    Example:
        >>> import numpy as np
        >>> encoder = Encoder(vocabulary_size=20, units=8, num_heads=2, num_layers=1, max_length=10)
        >>> tuple(encoder({"ids": np.ones((2, 5), "int32")}).shape)
        (2, 5, 8)

    Reference: https://arxiv.org/abs/1810.04805
    """

    def __init__(
        self,
        vocabulary_size: int,
        units: int = 256,
        num_heads: int = 4,
        num_layers: int = 4,
        feed_forward_units: int | None = None,
        max_length: int = 512,
        num_segments: int = 0,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        feed_forward_dropout: float = 0.0,
        activation: str | Callable = "gelu",
        normalization: str = "layer",
        norm_first: bool = False,
        positions: str = "learned",
        use_bias: bool = True,
        epsilon: float = 1e-5,
        dtype: Any = None,
        name: str | None = None,
        trainable: bool = True,
    ):
        vocabulary_size = check_positive("vocabulary_size", vocabulary_size)
        units = check_positive("units", units)
        num_layers = check_positive("num_layers", num_layers)
        max_length = check_positive("max_length", max_length)
        if num_segments:
            num_segments = check_positive("num_segments", num_segments)
        check_choice("positions", positions, ("learned", "sinusoidal", "rotary"))
        check_rate("dropout", dropout)
        check_positive_number("epsilon", epsilon)
        dtype = keras.dtype_policies.get(dtype)

        # Layers.
        # Sinusoidal positions are of size 1, beside which smaller embeddings would be lost in the norm of the sum.
        deviation = 1.0 if positions == "sinusoidal" else 0.02
        # One for each layer: an initializer gives the same numbers each time it is asked.
        new_initializer = functools.partial(keras.initializers.RandomNormal, stddev=deviation)
        self.token_embedding = ReversibleEmbedding(
            vocabulary_size, units, embeddings_initializer=new_initializer(), dtype=dtype, name="token_embedding"
        )
        self.position_embedding = None
        if positions == "learned":
            self.position_embedding = LearnedPositionalEmbedding(
                max_length, new_initializer(), dtype=dtype, name="positions"
            )
        elif positions == "sinusoidal":
            self.position_embedding = SinusoidalPositionalEncoding(dtype=dtype, name="positions")
        self.segment_embedding = None
        if num_segments:
            self.segment_embedding = keras.layers.Embedding(
                num_segments, units, embeddings_initializer=new_initializer(), dtype=dtype, name="segment_embedding"
            )
        self.norm = make_normalization(
            normalization, epsilon, dtype=dtype, name="norm" if norm_first else "embedding_norm"
        )
        self.embedding_dropout = Dropout(dropout, dtype=dtype, name="embedding_dropout")
        self.encoder = [
            TransformerEncoderLayer(
                num_heads,
                4 * units if feed_forward_units is None else feed_forward_units,
                dropout=dropout,
                attention_dropout=attention_dropout,
                feed_forward_dropout=feed_forward_dropout,
                activation=activation,
                normalization=normalization,
                norm_first=norm_first,
                use_bias=use_bias,
                rotary_embedding=RotaryEmbedding(dtype=dtype) if positions == "rotary" else None,
                epsilon=epsilon,
                kernel_initializer=keras.initializers.RandomNormal(stddev=0.02),
                dtype=dtype,
                name=f"layer_{index + 1}",
            )
            for index in range(num_layers)
        ]

        # Graph.
        self._norm_first = norm_first
        inputs = {"ids": keras.Input((None,), dtype="int32", name="ids")}  # (B, T)
        if num_segments:
            inputs["segments"] = keras.Input((None,), dtype="int32", name="segments")  # (B, T)
        super().__init__(inputs, self._encode(**inputs), dtype, name, trainable)

        # Config.
        self.vocabulary_size = vocabulary_size
        self.units = units
        self.num_heads = num_heads
        self.num_layers = num_layers
        self.feed_forward_units = feed_forward_units
        self.max_length = max_length
        self.most_positions = max_length if positions == "learned" else None
        self.num_segments = num_segments
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.feed_forward_dropout = feed_forward_dropout
        self.activation = self.encoder[0].activation
        self.normalization = normalization
        self.norm_first = norm_first
        self.positions = positions
        self.use_bias = use_bias
        self.epsilon = epsilon

    def _encode(self, ids: Tensor, segments: Tensor | None = None, maps: list[Tensor] | None = None) -> Tensor:
        """Ids `(B, T)` -> vectors `(B, T, D)`. A list given as `maps` is filled with the weights of each layer."""
        mask = ops.not_equal(ids, 0)  # (B, T)
        hidden = self.token_embedding(ids)  # (B, T, D)
        if self.position_embedding is not None:
            hidden = self.position_embedding(hidden)
        if self.segment_embedding is not None:
            hidden = hidden + self.segment_embedding(segments)
        hidden = hidden if self._norm_first else self.norm(hidden)
        hidden = self.embedding_dropout(hidden)
        for layer in self.encoder:
            hidden = through(layer, maps, hidden, mask=mask)  # (B, T, D), maps (B, H, T, T)
        return self.norm(hidden) if self._norm_first else hidden

    def attention_maps(self, ids: Any, segments: Any = None) -> Any:
        """The attention weights of every head of every layer.

        Args:
            ids: `(B, T)`, as in the call.
            segments: `(B, T)`, as in the call; only with `num_segments`.

        Returns:
            Weights `(B, N, H, T, T)` in float32. The weights in rows of padding have no meaning.

        Raises:
            ValueError: segments that are missing, or that the encoder does not have.
        """
        if (segments is not None) != bool(self.num_segments):
            problem = "missing" if segments is None else "given to an encoder without any"
            raise ValueError(f"`segments` are {problem}. Received: num_segments={self.num_segments}")
        maps: list[Any] = []
        self._encode(ids, segments, maps)
        return ops.stack(maps, axis=1)


@keras.saving.register_keras_serializable(package="zoo")
class RNNEncoder(FunctionalModel):
    """A recurrent encoder that reads a text forwards and backwards.

        h = dropout(E x),    h = [forward cell(h); backward cell(h)], N times                 BidirectionalEncoder

    With a `Classifier` with `pooling="attention"` on top, it is the word level of the hierarchical attention classifier
    of Yang et al. 2016: the weights of its one attention say which words decided.

    Axes: B batch, T length, V vocabulary.

    Args:
        vocabulary_size: number of ids, V.
        units: width of each direction's state.
        embedding_units: width of the embeddings; None for `units`.
        num_layers: layers of cells, N.
        cell: "gru" or "lstm".
        dropout: rate, on the embeddings and the outputs of each layer.
        dtype: name or policy that all layers compute in; the global policy if None.
        name: name of the model.
        trainable: whether training changes the weights.

    Call arguments (a dict):
        ids: `(B, T)`, 0 for padding.

    Returns:
        A vector for each token, `(B, T, 2 units)`, zero at padding.

    Raises:
        ValueError: an argument out of its range.

    Example:
        >>> import numpy as np
        >>> tuple(RNNEncoder(vocabulary_size=20, units=8)({"ids": np.ones((2, 5), "int32")}).shape)
        (2, 5, 16)

    References: https://aclanthology.org/N16-1174, https://arxiv.org/abs/1409.0473
    """

    def __init__(
        self,
        vocabulary_size: int,
        units: int = 128,
        embedding_units: int | None = None,
        num_layers: int = 1,
        cell: str = "gru",
        dropout: float = 0.3,
        dtype: Any = None,
        name: str | None = None,
        trainable: bool = True,
    ):
        vocabulary_size = check_positive("vocabulary_size", vocabulary_size)
        units = check_positive("units", units)
        num_layers = check_positive("num_layers", num_layers)
        width = units if embedding_units is None else check_positive("embedding_units", embedding_units)
        check_rate("dropout", dropout)
        dtype = keras.dtype_policies.get(dtype)

        # Layers.
        self.token_embedding = ReversibleEmbedding(vocabulary_size, width, dtype=dtype, name="token_embedding")
        self.embedding_dropout = Dropout(dropout, dtype=dtype, name="embedding_dropout")
        self.encoder = [
            BidirectionalEncoder(units, cell, dtype=dtype, name=f"layer_{index + 1}") for index in range(num_layers)
        ]
        self.output_dropout = [
            Dropout(dropout, dtype=dtype, name=f"dropout_{index + 1}") for index in range(num_layers)
        ]

        # Graph.
        ids = keras.Input((None,), dtype="int32", name="ids")  # (B, T)
        mask = ops.not_equal(ids, 0)  # (B, T)
        hidden = self.embedding_dropout(self.token_embedding(ids))  # (B, T, embedding units)
        for layer, dropped in zip(self.encoder, self.output_dropout, strict=True):
            hidden, _, _ = layer(hidden, mask)  # (B, T, 2 units)
            hidden = dropped(hidden)
        super().__init__({"ids": ids}, hidden, dtype, name, trainable)

        # Config.
        self.vocabulary_size = vocabulary_size
        self.units = units
        self.embedding_units = embedding_units
        self.num_layers = num_layers
        self.cell = cell
        self.dropout = dropout
