"""The recurrent encoder-decoder, with attention (Bahdanau et al. 2014) and without (Cho et al. 2014)."""

from typing import Any

import keras
from keras import ops

from zoo.layers import (
    AdditiveAttention,
    AttentionDecoder,
    BidirectionalEncoder,
    ConcatAttention,
    DotProductAttention,
    Dropout,
    MaxoutReadout,
    ReversibleEmbedding,
)
from zoo.layers.checks import check_choice, check_positive, check_rate
from zoo.layers.functions.tensors import Tensor
from zoo.models.family import Family, check_ties, to_logits, weights_and_bias
from zoo.models.masks import NO_MASKS, Masks


@keras.saving.register_keras_serializable(package="zoo")
class RNNSeq2Seq(Family):
    """A bidirectional recurrent encoder and a recurrent decoder that attends to its annotations.

    The graph, with y the target, h the annotations and s the decoder's state (Bahdanau et al. 2014, appendix A):

        h_j = [forward state; backward state]         BidirectionalEncoder, of one or more layers
        s_0 = tanh(W_s h'_1)                          from the last layer's backward state at the first token
        c_i = attention(s_{i-1}, h)                   from the previous state
        s_i = cell([E y_{i-1}; c_i], s_{i-1})         AttentionDecoder, which can be `conditional`
        p(y_i) = softmax(W_o maxout(U_o s_i + V_o E y_{i-1} + C_o c_i))    MaxoutReadout, a linear layer

    With `attention=None` the decoder sees only the encoder's last states: the forward one after the last token and the
    backward one after the first. Joined, they make s_0 and are the context of every step (the "thought vector").

    Inputs are ids, 0 for padding; the masks are computed from them. The outputs are logits. To translate ids, without
    tokenizers: `zoo.decoding.greedy`, `beam_search`. Text needs a `zoo.Translator`.

    Axes: B batch, S source length, T target length, V target vocabulary, K hypotheses of a source row.

    Args:
        source_vocabulary_size: number of source ids.
        target_vocabulary_size: number of target ids, V.
        attention: score function: "additive", "dot", "scaled", "general", "concat" or None. "dot" and "scaled" multiply
            state and annotation directly, so both need one width: `units` must be even, and each encoder direction has
            `units / 2`.
        cell: recurrent cell, "gru" or "lstm".
        units: width of the decoder's state, of each encoder direction, and of the attention's hidden layer.
        embedding_dim: width of the embeddings; `units` if None.
        readout_units: width of the maxout layer; `units / 2`, the paper's proportion, if None.
        dropout: rate, on the embeddings, and on the maxout layer unless `readout_dropout` is set.
        annotation_dropout: rate, on the annotations that the decoder attends to, or on the thought vector.
        readout_dropout: rate, on the maxout layer; `dropout` if None.
        tied_embeddings: shared matrices: "none"; "target", where the target embedding is also the output matrix, which
            then has no bias (Press and Wolf 2017); or "all", where the source embedding is the same too, which needs
            one vocabulary for both sides.
        conditional: whether the decoder reads the last token before it attends, see `AttentionDecoder`.
        encoder_layers: bidirectional layers of the encoder. Each reads the annotations of the one before, with
            `dropout` on them.
        dtype: name or policy that all layers compute in, such as "mixed_bfloat16"; the global policy if None.
        name: name of the model.
        trainable: whether training changes the weights.

    Call arguments (a dict; Keras also takes a list in this order, with a warning):
        source: ids `(B, S)`.
        target: ids of the previous tokens `(B, T)`, that is the start token and then the target without its last.

    Returns:
        logits `(B, T, V)` in float32.

    Raises:
        ValueError: an unknown attention or cell, a size that is not a positive integer, an odd `units` with "dot" or
            "scaled", `conditional` without attention, or widths or vocabularies that cannot be tied.

    Example:
        >>> import numpy as np
        >>> model = RNNSeq2Seq(source_vocabulary_size=20, target_vocabulary_size=10, units=8)
        >>> tuple(model({"source": np.ones((2, 5), "int32"), "target": np.ones((2, 3), "int32")}).shape)
        (2, 3, 10)

    References: https://arxiv.org/abs/1409.0473, https://arxiv.org/abs/1406.1078, https://arxiv.org/abs/1508.04025
    """

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        attention: str | None = "additive",
        cell: str = "gru",
        units: int = 256,
        embedding_dim: int | None = None,
        readout_units: int | None = None,
        dropout: float = 0.0,
        annotation_dropout: float = 0.0,
        readout_dropout: float | None = None,
        tied_embeddings: str = "none",
        conditional: bool = False,
        encoder_layers: int = 1,
        dtype: Any = None,
        name: str | None = None,
        trainable: bool = True,
    ):
        source_vocabulary_size = check_positive("source_vocabulary_size", source_vocabulary_size)
        target_vocabulary_size = check_positive("target_vocabulary_size", target_vocabulary_size)
        check_choice("attention", attention, ("additive", "dot", "scaled", "general", "concat", None))
        units = check_positive("units", units)
        bare_product = attention in ("dot", "scaled")
        if bare_product and units % 2:
            raise ValueError(f"attention={attention!r} needs an even `units`. Received: units={units}")
        width = units if embedding_dim is None else check_positive("embedding_dim", embedding_dim)
        readout_width = max(1, units // 2) if readout_units is None else check_positive("readout_units", readout_units)
        check_rate("dropout", dropout)
        check_rate("annotation_dropout", annotation_dropout)
        readout_rate = dropout if readout_dropout is None else check_rate("readout_dropout", readout_dropout)
        tied = check_ties(tied_embeddings, source_vocabulary_size, target_vocabulary_size) != "none"
        if tied and width != readout_width:
            raise ValueError(
                f"`tied_embeddings={tied_embeddings!r}` needs `embedding_dim` and `readout_units` to be the same. "
                f"Received: embedding_dim={width}, readout_units={readout_width}"
            )
        encoder_layers = check_positive("encoder_layers", encoder_layers)
        dtype = keras.dtype_policies.get(dtype)

        # Layers.
        embedding = ReversibleEmbedding if tied else keras.layers.Embedding
        self.target_embedding = embedding(target_vocabulary_size, width, dtype=dtype, name="target_embedding")
        self.source_embedding = self.target_embedding
        if tied_embeddings != "all":
            self.source_embedding = keras.layers.Embedding(
                source_vocabulary_size, width, dtype=dtype, name="source_embedding"
            )
        self.embedding_dropout = Dropout(dropout, dtype=dtype, name="embedding_dropout")
        encoder_units = units // 2 if bare_product else units
        self.encoder = BidirectionalEncoder(encoder_units, cell=cell, dtype=dtype, name="encoder")
        self.further_encoders = [
            BidirectionalEncoder(encoder_units, cell=cell, dtype=dtype, name=f"encoder_{number}")
            for number in range(2, encoder_layers + 1)
        ]
        self.encoder_dropout = [
            Dropout(dropout, dtype=dtype, name=f"encoder_dropout_{number}") for number in range(1, encoder_layers)
        ]
        self.annotation_dropout_layer = Dropout(annotation_dropout, dtype=dtype, name="annotation_dropout")
        self.bridges = [
            keras.layers.Dense(units, activation="tanh", dtype=dtype, name=f"initial_{state}")
            for state in self.encoder.forward_cell.states
        ]
        attention_layer = None
        if attention == "additive":
            attention_layer = AdditiveAttention(units, dtype=dtype, name="attention")
        elif attention == "concat":
            attention_layer = ConcatAttention(units, dtype=dtype, name="attention")
        elif attention is not None:
            attention_layer = DotProductAttention(attention, dtype=dtype, name="attention")
        self.decoder = AttentionDecoder(units, attention_layer, cell, conditional, dtype=dtype, name="decoder")
        self.readout = MaxoutReadout(readout_width, dropout=readout_rate, dtype=dtype, name="readout")
        self.output_layer = None if tied else keras.layers.Dense(target_vocabulary_size, dtype=dtype, name="logits")

        # Graph.
        self.attention = attention
        source = keras.Input((None,), dtype="int32", name="source")  # (B, S)
        target = keras.Input((None,), dtype="int32", name="target")  # (B, T)
        hidden = self.vectors({"source": source, "target": target})  # (B, T, D)
        logits = self.logits_of(hidden)  # (B, T, V)
        super().__init__({"source": source, "target": target}, logits, hidden, dtype, name, trainable)

        # Config.
        self.source_vocabulary_size = source_vocabulary_size
        self.target_vocabulary_size = target_vocabulary_size
        self.cell = cell
        self.units = units
        self.embedding_dim = embedding_dim
        self.readout_units = readout_units
        self.dropout = dropout
        self.annotation_dropout = annotation_dropout
        self.readout_dropout = readout_dropout
        self.tied_embeddings = tied_embeddings
        self.conditional = conditional
        self.encoder_layers = encoder_layers

    @property
    def head_sizes(self) -> dict[str, tuple[int, int]]:
        """There are no heads that `Masks` could switch off."""
        return {}

    def vectors(self, inputs: dict[str, Any], masks: Masks = NO_MASKS) -> Any:
        """What `without_logits` gives for the inputs, `(B, T, D)`, with tokens left out."""
        annotations, summary, mask = self._encode(inputs["source"], masks)
        annotations = self.annotation_dropout_layer(annotations)
        initial_states = [bridge(summary) for bridge in self.bridges]  # of (B, units)
        embedded = self.embedding_dropout(self.target_embedding(inputs["target"]))  # (B, T, E)
        states, contexts = self.decoder(embedded, initial_states, annotations, mask)  # (B, T, units), (B, T, 2 units)
        return self.readout([states, embedded, contexts])  # (B, T, D)

    def _encode(self, source: Tensor, masks: Masks = NO_MASKS) -> Any:
        """Ids `(B, S)` -> what the decoder attends to, what its first state is made of, and the mask `(B, S)`.

        Both come from the last layer. With attention these are the annotations `(B, S, 2 units)` and the backward state
        at the first token `(B, units)`; without it, both are the last states of the two directions `(B, 2 units)`.
        """
        # A hidden token is skipped like padding: a state that had read it would tell of it.
        mask = masks.allowed(ops.not_equal(source, 0))
        embedded = self.embedding_dropout(self.source_embedding(source))  # (B, S, E)
        annotations, forward, backward = self.encoder(embedded, mask)
        for dropped, layer in zip(self.encoder_dropout, self.further_encoders, strict=True):
            annotations, forward, backward = layer(dropped(annotations), mask)
        if self.attention is not None:
            return annotations, backward, mask
        thought = ops.concatenate([forward, backward], axis=-1)  # (B, 2 units)
        return thought, thought, mask

    def logits_of(self, hidden: Any) -> Any:
        """What `without_logits` gives, `(..., D)` -> logits `(..., V)` in float32."""
        return to_logits(hidden, self.output_layer, self.target_embedding)

    @property
    def has_attention(self) -> bool:
        """Whether `step` returns attention weights."""
        return self.attention is not None

    def output_weights(self) -> tuple[Any, Any]:
        """The last product's weights `(V, D)` and its bias `(V,)` or None: logits = vectors times weights^T + bias.

        Raises:
            ValueError: the weights are quantised.
        """
        return weights_and_bias(self.output_layer, self.target_embedding)

    def begin(self, source: Any, masks: Masks = NO_MASKS) -> tuple[dict[str, Any], tuple]:
        """Reads the source once.

        Args:
            source: ids `(B, S)`.
            masks: tokens to leave out. Neither direction reads them.

        Returns:
            memory: what belongs to a source row: a dict of tensors with leading axis B.
            cache: what belongs to a hypothesis, with one hypothesis for each row (K = 1): the decoder's states, a tuple
                of `(B, 1, units)`.
        """
        annotations, summary, mask = self._encode(source, masks)
        return self.decoder.prepare(annotations, mask), tuple(bridge(summary)[:, None] for bridge in self.bridges)

    def step(self, tokens: Any, position: Any, memory: dict[str, Any], cache: tuple) -> tuple[Any, tuple, Any]:
        """Reads the next token of each hypothesis and predicts the one after it.

        Args:
            tokens: the last ids `(B, K)`.
            position: how many tokens the hypotheses had before; not used, since the state contains the past.
            memory: from `begin`.
            cache: from `begin` or the last step, its tensors `(B, K, ...)`.

        Returns:
            logits `(B, K, V)` in float32, the cache, and the attention weights `(B, K, S)`, None without attention.
        """
        embedded = self.target_embedding(tokens)  # (B, K, E)
        cache, context, weights = self.decoder.step(embedded, cache, memory)
        # cache[0] is s_i; an LSTM's second state is cache[1].
        hidden = self.readout([cache[0], embedded, context])  # (B, K, D)
        return self.logits_of(hidden), cache, weights
