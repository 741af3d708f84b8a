"""`zoo.models.GPT`, packed."""

import numpy as np
import tensorflow as tf

from zoo.models.gpt import align_right
from zoo.serving.packed.decoder_layer import PackedDecoderLayer
from zoo.serving.packed.norms import Norm, Unnormalized, normalized
from zoo.serving.packed.output import PackedOutput
from zoo.serving.packed.product import FORBIDDEN, as_array, variable


class PackedGPT(tf.Module):
    """What a `zoo.models.GPT` computes, in float32, with its methods for decoding, scoring and showing its attention.

    Axes: B batch, K hypotheses a row, T length, V vocabulary, D width, G key and value heads, d width of a head,
    P length of the longest prompt, S tokens so far, P included.

    Args:
        model: the model. Later changes of its weights change nothing here.
        longest: how many tokens a text may have.
    """

    def __init__(self, model, longest):
        super().__init__()
        self.vocabulary_size, self.context_length = model.vocabulary_size, min(longest, model.context_length)
        norm = Norm(model.get_layer("norm"))
        self._layers = [PackedDecoderLayer(model.get_layer(f"layer_{i + 1}")) for i in range(model.num_layers)]
        table = as_array(model.get_layer("embedding").embeddings)
        self._embeddings = variable(np.pad(table, [[0, 0], [0, 1]], constant_values=norm.constant))
        self._positions = None
        if model.positions == "learned":
            table = as_array(model.get_layer("positions").embeddings)[:longest]
            self._positions = variable(np.pad(table, [[0, 0], [0, 1]]))
        # Not in the embeddings, which may be the output's weights as well.
        self._centering = Unnormalized(norm).residual() if norm.centered else None
        bias = model.output_weights()[1]
        kernel = None if model.tied_embeddings else as_array(model.get_layer("logits").kernel)
        self._output = PackedOutput(norm, self._embeddings, kernel, None if bias is None else as_array(bias))

    @property
    def weights(self):
        """All of them."""
        return list(self.variables)

    def begin(self, tokens):
        """As `zoo.models.GPT.begin`, with memory and cache of its own.

        Args:
            tokens: ids `(B, P)` of any number a row, and zeros before or behind them.

        Returns:
            memory: of each row the number of tokens `(B,)`, and what a token to come adds to the bias.
            cache: the bias of the scores `(B, 1, 1, 1, S)`, which forbids padding, and for each layer the keys and
                values `(B, 1, G, S, d)`.
        """
        tokens, mask, lengths, positions = align_right(tokens)
        _, cache = self._read(tokens, positions, mask)
        bias = tf.where(mask, 0.0, FORBIDDEN)[:, None, None, None]
        allowed = tf.zeros_like(lengths, tf.float32)[:, None, None, None, None]
        return {"lengths": lengths, "allowed": allowed}, (bias, cache)

    def step(self, tokens, position, memory, cache):
        """As `zoo.models.GPT.step`."""
        hypotheses = tokens.shape[1] or tf.shape(tokens)[1]
        positions, allowed = (memory["lengths"] + position)[:, None], memory["allowed"]
        if hypotheses != 1:
            positions, allowed = (tf.repeat(each, hypotheses, axis=1) for each in (positions, allowed))
        if self._positions is not None:
            # A row that has ended is stepped on with the others, maybe beyond the context.
            positions = tf.minimum(positions, self.context_length - 1)
        bias, caches = cache
        bias = tf.concat([bias, allowed], axis=4)
        rows, turns = self._embedded(tf.reshape(tokens, [-1]), positions)
        new = []
        for layer, each in zip(self._layers, caches, strict=True):
            rows, each, _ = layer.step(rows, hypotheses, turns, each, bias)
            new.append(each)
        logits = self._output.logits(normalized(rows))
        return tf.reshape(logits, [-1, hypotheses, self.vocabulary_size]), (bias, tuple(new)), None

    def without_logits(self):
        """As `zoo.models.GPT.without_logits`, as a function of ids `(B, T)`; see `PackedOutput.scaled` for its rows."""

        def rows_of(tokens):
            rows, _ = self._read(tokens, _from_the_start(tokens))
            rows = self._output.scaled(normalized(rows))
            return tf.reshape(rows, [*tf.unstack(tf.shape(tokens)), rows.shape[-1]])

        return rows_of

    def output_weights(self):
        """The last product's weights and its bias, see `PackedOutput.weights`."""
        return self._output.weights()

    def attention_maps(self, tokens):
        """As `zoo.models.GPT.attention_maps`."""
        maps = []
        self._read(tokens, _from_the_start(tokens), maps=maps)
        return tf.stack(maps, axis=1)

    def _read(self, tokens, positions, mask=None, maps=None):
        """All tokens `(B, T)` at once: rows `(B T, D + 1)` before the last norm, and each layer's keys and values.

        To `maps`, if it is a list, each layer's weights `(B, H, T, T)` are added.
        """
        rows, turns = self._embedded(tf.reshape(tokens, [-1]), positions)
        shape, cache = tf.unstack(tf.shape(tokens)), []
        for layer in self._layers:
            rows, keys_and_values, weights = layer.read(rows, shape, turns, mask, return_weights=maps is not None)
            cache.append(keys_and_values)
            if maps is not None:
                maps.append(weights)
        return rows, tuple(cache)

    def _embedded(self, tokens, positions):
        """Rows `(N, D + 1)` of as many tokens `(N,)`, and how their heads turn, for positions `(B, T)`, N together."""
        rows = tf.gather(self._embeddings, tokens)
        if self._positions is not None:
            rows += tf.gather(self._positions, tf.reshape(positions, [-1]))
        if self._centering is not None:
            rows = self._centering(rows)
        return rows, self._layers[0].self_attention.turns(positions)


def _from_the_start(tokens):
    """Positions `(B, T)` of tokens behind which there may be padding."""
    return tf.broadcast_to(tf.range(tf.shape(tokens)[1]), tf.shape(tokens))
