"""`zoo.models.Transformer`, its decoder packed."""

import math

import numpy as np
import tensorflow as tf

from zoo.layers.functions.positions import frequencies
from zoo.serving.packed.decoder_layer import PackedDecoderLayer
from zoo.serving.packed.norms import Norm, Unnormalized, normalized
from zoo.serving.packed.output import PackedOutput
from zoo.serving.packed.product import FORBIDDEN, as_array, variable


class PackedTransformer(tf.Module):
    """What a `zoo.models.Transformer` computes, with its methods for decoding and scoring.

    The encoder, which runs once, is the model's own, in its precision; the decoder computes in float32.

    Axes: B batch, K hypotheses a row, S source length, T target length, V vocabulary, D width, M decoder layers,
    N encoder layers, H heads, d width of a head.

    Args:
        model: the model. Later changes of its weights are not to be made.
        longest: how many tokens a target may have.

    Raises:
        ValueError: there are fewer learned positions.
    """

    has_attention = True

    def __init__(self, model, longest):
        super().__init__()
        self.source_vocabulary_size = model.source_vocabulary_size
        self.target_vocabulary_size = model.target_vocabulary_size
        self._encoder, self.norm_first = _Encoder(model), model.norm_first
        layers = [model.get_layer(f"decoder_layer_{i + 1}") for i in range(model.decoder_layers)]
        first = Norm(layers[0].self_attention_norm)
        before = Unnormalized(first)
        self._layers = []
        for layer in layers:
            self._layers.append(PackedDecoderLayer(layer, before))
            before = self._layers[-1].last
        last = Norm(model.get_layer("decoder_norm")) if self.norm_first else before
        self._heads, self._width = model.num_heads, model.units // model.num_heads
        self._prepare = [layer.prepare for layer in layers]

        # Scaled and centred, unless they are the output's weights as well, or the encoder's.
        table, constant = as_array(model.get_layer("target_embedding").embeddings), first.constant
        self._scale, self._centering = 1.0, None
        if model.tied_embeddings == "none":
            table = self._part(model.units**0.5 * table, first)[:, :-1]
        else:
            self._scale = model.units**0.5
            constant /= self._scale
            self._centering = Unnormalized(first).residual() if first.centered and self.norm_first else None
        self._embeddings = variable(np.pad(table, [[0, 0], [0, 1]], constant_values=constant))
        if model.tied_embeddings == "all":
            self._encoder.embeddings = self._embeddings
        self._positions = None
        if model.positions == "learned":
            table = as_array(model.get_layer("target_positions").embeddings)
            if len(table) < longest:
                raise ValueError(
                    f"A target may have {longest} tokens, more than the {len(table)} learned positions that there are."
                    " Give the Translator a smaller `max_target_length`."
                )
            table = table[:longest]
            self._positions = variable(self._part(table, first))
        elif model.positions == "sinusoidal":
            table = _waves(longest, model.units, model.get_layer("target_positions").max_wavelength)
            self._positions = variable(self._part(table, first))
        kernel = bias = None
        if model.tied_embeddings == "none":
            output = model.get_layer("logits")
            kernel, bias = as_array(output.kernel), as_array(output.bias)
        self._output = PackedOutput(last, self._embeddings, kernel, bias)

        memory = [layer.memory_attention for layer in layers]
        memory = [weight for each in memory for part in (each.key_dense, each.value_dense) for weight in part.weights]
        # Never read: what a `tf.Module` holds is what an export finds, and these are used by layers that are none.
        self._kept = [*self._encoder.weights, *(weight.value for weight in memory)]

    @property
    def weights(self):
        """All of them, the encoder's included."""
        return list(self.variables)

    def begin(self, source):
        """As `zoo.models.Transformer.begin`, with a memory of its own.

        Args:
            source: ids `(B, S)`.

        Returns:
            memory: the mask `(B, S)`, what it adds to scores `(B, 1, 1, 1, S)`, and for each decoder layer the keys and
                values `(B, 1, H, S, d)` of its attention to the source.
            cache: for each decoder layer the keys and values `(B, 1, H, 0, d)` of the tokens before, none so far.
        """
        memory = self._memory(source)
        empty = tf.zeros([tf.shape(source)[0], 1, self._heads, 0, self._width])
        return memory, tuple((empty, empty) for _ in self._layers)

    def step(self, tokens, position, memory, cache):
        """As `zoo.models.Transformer.step`."""
        hypotheses = tokens.shape[1] or tf.shape(tokens)[1]
        rows, turns = self._embedded(tf.reshape(tokens, [-1]), tf.reshape(position, [1]))
        new, weights = [], None
        for layer, prepared, each in zip(self._layers, memory["layers"], cache, strict=True):
            rows, each, weights = layer.step(rows, hypotheses, turns, each, None, prepared, memory["bias"])
            new.append(each)
        logits = self._output.logits(normalized(rows) if self.norm_first else rows)
        logits = tf.reshape(logits, [-1, hypotheses, self.target_vocabulary_size])
        weights = tf.reduce_mean(weights, axis=2)[:, :, 0]
        return logits, tuple(new), _where_allowed(weights, memory["mask"][:, None])

    def without_logits(self):
        """As `zoo.models.Transformer.without_logits`, as a function of ids; see `PackedOutput.scaled` for its rows."""

        def rows_of(inputs):
            rows, shape, _ = self._read(self._memory(inputs["source"]), inputs["target"])
            rows = self._output.scaled(normalized(rows) if self.norm_first else rows)
            return tf.reshape(rows, [*shape, rows.shape[-1]])

        return rows_of

    def output_weights(self):
        """The last product's weights and its bias, see `PackedOutput.weights`."""
        return self._output.weights()

    def attention_maps(self, source, target):
        """As `zoo.models.Transformer.attention_maps`."""
        encoder_maps = []
        memory = self._memory(source, encoder_maps)
        _, _, maps = self._read(memory, target)
        maps = [_where_allowed(weights, memory["mask"][:, None, None]) for weights in maps]
        return tf.stack(maps, axis=1), tf.stack(encoder_maps, axis=1)

    def _read(self, memory, target):
        """All tokens `(B, T)` at once: rows `(B T, D + 1)`, B and T, and each layer's weights `(B, H, T, S)`."""
        shape = tf.unstack(tf.shape(target))
        positions = tf.tile(tf.range(shape[1]), [shape[0]])
        rows, turns = self._embedded(tf.reshape(target, [-1]), positions)
        turns = None if turns is None else tf.reshape(turns, [*shape, *turns.shape[2:]])
        maps = []
        for layer, prepared in zip(self._layers, memory["layers"], strict=True):
            rows, _, weights = layer.read(rows, shape, turns, None, prepared, memory["bias"])
            maps.append(weights)
        return rows, shape, maps

    def _memory(self, source, maps=None):
        encoded, mask = self._encoder.encode(source, maps)
        # Of a source with nothing in it all scores are alike; then it is the values that are zero.
        shown = tf.cast(mask, tf.float32)[:, None, :, None]
        prepared = []
        for prepare in self._prepare:
            keys, values = (tf.cast(each, tf.float32) for each in prepare(encoded))
            prepared.append((keys[:, None], (values * shown)[:, None]))
        return {"mask": mask, "bias": tf.where(mask, 0.0, FORBIDDEN)[:, None, None, None], "layers": tuple(prepared)}

    def _embedded(self, tokens, positions):
        """Rows `(N, D + 1)` of tokens `(N,)` at positions `(N,)` or `(1,)`, and how their heads turn `(., 1, ...)`."""
        rows = tf.gather(self._embeddings, tokens)
        rows = rows if self._scale == 1 else rows * self._scale
        rows = rows if self._centering is None else self._centering(rows)
        if self._positions is not None:
            rows += tf.gather(self._positions, positions)
        return rows, self._layers[0].self_attention.turns(positions[:, None])

    def _part(self, values, first):
        """What is in the sum that the first part reads: `(..., D + 1)`, without its mean if norms come first."""
        return first.part(values) if self.norm_first else np.pad(values, [*[(0, 0)] * (values.ndim - 1), (0, 1)])


class _Encoder:
    """The model's own encoder, with embeddings that may be those of the decoder.

    Attributes:
        embeddings: variable `(V, D)` or wider.
    """

    def __init__(self, model):
        self.embeddings = None
        if model.tied_embeddings != "all":
            self.embeddings = model.get_layer("source_embedding").embeddings.value
        self.units = model.units
        self.positions = model.get_layer("source_positions") if model.positions in ("sinusoidal", "learned") else None
        self.layers = [model.get_layer(f"encoder_layer_{i + 1}") for i in range(model.encoder_layers)]
        self.norm = model.get_layer("encoder_norm") if model.norm_first else None

    @property
    def weights(self):
        """Variables: those of its layers, and the embeddings."""
        layers = [each for each in (self.positions, *self.layers, self.norm) if each is not None]
        return [self.embeddings, *(weight.value for layer in layers for weight in layer.weights)]

    def encode(self, source, maps=None):
        """As the model does it: ids `(B, S)` -> `(B, S, D)` and the mask `(B, S)`."""
        mask = source != 0
        hidden = tf.gather(self.embeddings, source)[..., : self.units] * self.units**0.5
        hidden = hidden if self.positions is None else self.positions(hidden)
        for layer in self.layers:
            if maps is None:
                hidden = layer(hidden, mask=mask)
            else:
                hidden, weights = layer(hidden, mask=mask, return_attention_scores=True)
                maps.append(weights)
        return hidden if self.norm is None else self.norm(hidden), mask


def _waves(longest, width, max_wavelength):
    """What `zoo.layers.SinusoidalPositionalEncoding` adds to so many tokens: `(T, D)`."""
    turns = np.repeat(frequencies(width, max_wavelength), 2)[:width]
    phases = np.where(np.arange(width) % 2, math.pi / 2, 0)  # a cosine is a sine that is a quarter ahead
    return np.sin(np.arange(longest)[:, None] * turns + phases)


def _where_allowed(weights, mask):
    return tf.where(mask, weights, 0.0)
