"""The recurrent encoder-decoder, with attention (Bahdanau et al. 2014) and without (Cho et al. 2014)."""

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
)
from zoo.layers.checks import check_choice, check_positive, check_rate
from zoo.models.family import Family, check_ties

_ATTENTIONS = ("additive", "dot", "scaled", "general", "concat", None)


@keras.saving.register_keras_serializable(package="zoo")
class RNNSeq2Seq(Family):
    """A bidirectional recurrent encoder and a recurrent decoder that attends to its annotations.

    The graph, with y the target, h the annotations and s the decoder's state (Bahdanau et al. 2014, appendix A):

        h_j = [forward state; backward state]         BidirectionalEncoder
        s_0 = tanh(W_s h'_1)                          from the backward state at the first token
        c_i = attention(s_{i-1}, h)                   from the previous state
        s_i = cell([E y_{i-1}; c_i], s_{i-1})         AttentionDecoder, which can be `conditional`
        p(y_i) = softmax(W_o maxout(U_o s_i + V_o E y_{i-1} + C_o c_i))    MaxoutReadout, a linear layer

    With `attention=None` only the last encoder state, the forward one after the last token beside the backward
    one after the first, reaches the decoder: it makes s_0 and is the context of every step (the "thought vector").

    Inputs are ids, 0 for padding; the masks are computed from them. The outputs are logits.

    Axes: B batch, S source length, T target length, V target vocabulary, K hypotheses of a source row.

    Args:
        source_vocabulary_size: number of source ids.
        target_vocabulary_size: number of target ids, V.
        attention: "additive", "dot", "scaled", "general", "concat" or None. The products "dot" and "scaled" have
            no kernel between state and annotation, so there the encoder's two directions share the decoder's
            width: `units` must be even, and each direction has `units / 2`.
        cell: "gru" or "lstm".
        units: width of the decoder's state, of each encoder direction, and of the attention's hidden layer.
        embedding_dim: width of the embeddings; `units` if None.
        readout_units: width of the maxout layer; `units / 2`, the paper's proportion, if None.
        dropout: rate, on the embeddings, and on the maxout layer if `readout_dropout` does not say else.
        annotation_dropout: rate, on the encoder's annotations as they are attended to, or on the thought vector.
        readout_dropout: rate, on the maxout layer; `dropout` if None.
        tied_embeddings: "none"; "target", where E is W_o too, which then has no bias (Press and Wolf 2017); or "all",
            where the source embedding is the same as well, which needs one vocabulary for both sides.
        conditional: whether the decoder attends with a state that knows the last token already, see `AttentionDecoder`.
        dtype: name or policy that all layers compute in, such as "mixed_bfloat16"; the global policy if None.
        name: name of the model.
        trainable: whether training changes the weights.

    Call arguments (a dict or a list, in this order):
        source: ids `(B, S)`.
        target: ids of the previous tokens `(B, T)`, that is the start token and then the target but for its last.

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
        source_vocabulary_size,
        target_vocabulary_size,
        attention="additive",
        cell="gru",
        units=256,
        embedding_dim=None,
        readout_units=None,
        dropout=0.0,
        annotation_dropout=0.0,
        readout_dropout=None,
        tied_embeddings="none",
        conditional=False,
        dtype=None,
        name=None,
        trainable=True,
    ):
        check_positive("units", units)
        check_choice("attention", attention, _ATTENTIONS)
        bare_product = attention in ("dot", "scaled")
        if bare_product and units % 2:
            raise ValueError(f"attention={attention!r} needs an even `units`. Received: units={units}")
        config = dict(
            source_vocabulary_size=check_positive("source_vocabulary_size", source_vocabulary_size),
            target_vocabulary_size=check_positive("target_vocabulary_size", target_vocabulary_size),
            attention=attention,
            cell=cell,
            units=units,
            embedding_dim=None if embedding_dim is None else check_positive("embedding_dim", embedding_dim),
            readout_units=None if readout_units is None else check_positive("readout_units", readout_units),
            dropout=check_rate("dropout", dropout),
            annotation_dropout=check_rate("annotation_dropout", annotation_dropout),
            readout_dropout=None if readout_dropout is None else check_rate("readout_dropout", readout_dropout),
            tied_embeddings=check_ties(tied_embeddings, source_vocabulary_size, target_vocabulary_size),
            conditional=conditional,
        )
        dtype = keras.dtype_policies.get(dtype)
        embedding_dim = embedding_dim or units
        readout_units = readout_units or max(1, units // 2)
        readout_dropout = dropout if readout_dropout is None else readout_dropout
        tied = tied_embeddings != "none"
        if tied and embedding_dim != readout_units:
            raise ValueError(
                f"`tied_embeddings={tied_embeddings!r}` needs `embedding_dim` and `readout_units` to be the same. "
                f"Received: embedding_dim={embedding_dim}, readout_units={readout_units}"
            )

        # The layers.
        embedding = keras.layers.ReversibleEmbedding if tied else keras.layers.Embedding
        target_embedding = embedding(target_vocabulary_size, embedding_dim, dtype=dtype, name="target_embedding")
        source_embedding = target_embedding
        if tied_embeddings != "all":
            source_embedding = keras.layers.Embedding(
                source_vocabulary_size, embedding_dim, dtype=dtype, name="source_embedding"
            )
        embedding_dropout = Dropout(dropout, dtype=dtype, name="embedding_dropout")
        encoder = BidirectionalEncoder(units // 2 if bare_product else units, cell=cell, dtype=dtype, name="encoder")
        bridges = [
            keras.layers.Dense(units, activation="tanh", dtype=dtype, name=f"initial_{state}")
            for state in encoder.forward_cell.states
        ]
        decoder = AttentionDecoder(
            units, _make_attention(attention, units, dtype), cell, conditional, dtype=dtype, name="decoder"
        )
        readout = MaxoutReadout(readout_units, dropout=readout_dropout, dtype=dtype, name="readout")
        output = None if tied else keras.layers.Dense(target_vocabulary_size, dtype=dtype, name="logits")

        # The graph.
        source = keras.Input((None,), dtype="int32", name="source")
        target = keras.Input((None,), dtype="int32", name="target")
        mask = ops.not_equal(source, 0)
        memory, summary = _read(encoder, embedding_dropout(source_embedding(source)), mask, attention)
        memory = Dropout(annotation_dropout, dtype=dtype, name="annotation_dropout")(memory)
        initial_states = [bridge(summary) for bridge in bridges]
        embedded = embedding_dropout(target_embedding(target))
        states, contexts = decoder(embedded, initial_states, memory, mask)
        hidden = readout([states, embedded, contexts])
        logits = _logits(hidden, output, target_embedding)
        inputs = {"source": source, "target": target}
        super().__init__(inputs, hidden, logits, config, dtype, name, trainable)
        self.source_embedding, self.target_embedding = source_embedding, target_embedding
        self.encoder, self.bridges, self.decoder = encoder, bridges, decoder
        self.readout, self.output_layer = readout, output

    @property
    def has_attention(self):
        """Whether `step` returns attention weights."""
        return self.attention is not None

    def output_weights(self):
        """The last product's weights `(V, D)` and its bias `(V,)` or None: logits are rows times weights^T + bias."""
        if self.output_layer is None:
            return self.target_embedding.embeddings, None
        return ops.transpose(self.output_layer.kernel), self.output_layer.bias

    def begin(self, source):
        """Reads the source once.

        Args:
            source: ids `(B, S)`.

        Returns:
            memory: what belongs to a source row; a dict of tensors with leading axis B.
            cache: what belongs to a hypothesis, of which there is one a row yet: the decoder's states, a tuple of
                `(B, 1, units)`.
        """
        mask = ops.not_equal(source, 0)
        memory, summary = _read(self.encoder, self.source_embedding(source), mask, self.attention)
        cache = tuple(ops.expand_dims(bridge(summary), 1) for bridge in self.bridges)
        return self.decoder.prepare(memory, mask), cache

    def step(self, tokens, position, memory, cache):
        """Reads one more token of each hypothesis and predicts the next.

        Args:
            tokens: the last ids `(B, K)`.
            position: how many tokens the hypotheses held before; a recurrent state has it in itself.
            memory: from `begin`.
            cache: from `begin` or the last step, its tensors `(B, K, ...)`.

        Returns:
            logits `(B, K, V)` in float32, the cache, and the attention weights `(B, K, S)`, None without attention.
        """
        embedded = self.target_embedding(tokens)
        cache, context, weights = self.decoder.step(embedded, cache, memory)
        hidden = self.readout([cache[0], embedded, context])
        return _logits(hidden, self.output_layer, self.target_embedding), cache, weights


def _read(encoder, embedded, mask, attention):
    """Source vectors `(B, S, E)` -> what the decoder attends to `(B, S, 2 D)`, and what its first state is made of.

    Without attention both are the encoder's last state `(B, 2 D)`.
    """
    annotations, forward, backward = encoder(embedded, mask)
    if attention is None:
        thought = ops.concatenate([forward, backward], axis=-1)
        return thought, thought
    return annotations, backward


def _logits(hidden, output, embedding):
    """The readout -> logits in float32, by the output layer, or by the embedding if there is none."""
    logits = embedding(hidden, reverse=True) if output is None else output(hidden)
    return ops.cast(logits, "float32")


def _make_attention(attention, units, dtype):
    """The attention layer of that name, None for None."""
    if attention is None:
        return None
    if attention == "additive":
        return AdditiveAttention(units, dtype=dtype, name="attention")
    if attention == "concat":
        return ConcatAttention(units, dtype=dtype, name="attention")
    return DotProductAttention(attention, dtype=dtype, name="attention")
