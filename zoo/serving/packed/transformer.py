"""`zoo.models.Transformer`, with its decoder packed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.layers import SinusoidalPositionalEncoding
from zoo.layers.functions.positions import frequencies
from zoo.models.masks import NO_MASKS, Masks
from zoo.models.transformer import Transformer
from zoo.serving.packed.layers import PackedDecoderLayer
from zoo.serving.packed.products import (
    FORBIDDEN,
    Norm,
    PackedOutput,
    Unnormalized,
    as_array,
    normalized,
    product,
    variable,
)


class PackedTransformer(tf.Module):
    """The function of a `zoo.models.Transformer`, with its methods for decoding, scoring and attention maps.

        h = encoder(x),    s = E y sqrt(D) + positions,    s = layer(s, h), M times,    logits = norm(s) W

    Rows have D + 1 features: the last one is a constant, which `products` explains. The encoder runs once for each
    request. It is the model's own, in its precision; the decoder computes in float32.

    Axes: B batch, K hypotheses of a row, R rows (hypotheses in a step, tokens in a prefill), S source length,
    T target length, V vocabulary, D width, M decoder layers, N encoder layers, H heads, d width of a head.

    Args:
        model: the model. Its weights must not change later.
        max_length: how many tokens a target may have.

    Raises:
        ValueError: there are fewer learned positions than `max_length`.
    """

    has_attention = True

    def __init__(self, model: Transformer, max_length: int):
        super().__init__()
        self.source_vocabulary_size = model.source_vocabulary_size
        self.target_vocabulary_size = model.target_vocabulary_size
        self.head_sizes = model.head_sizes
        self._encoder, self.norm_first = _Encoder(model), model.norm_first
        layers = [model.get_layer(f"decoder_layer_{i + 1}") for i in range(model.decoder_layers)]
        first = Norm(layers[0].self_attention_norm)
        before: Norm | Unnormalized = Unnormalized(first)
        self._layers: list[PackedDecoderLayer] = []
        for layer in layers:
            self._layers.append(PackedDecoderLayer(layer, before))
            before = self._layers[-1].last
        last = Norm(model.get_layer("decoder_norm")) if self.norm_first else self._layers[-1].last
        self._prepare = [layer.prepare for layer in layers]

        # The table already contains the factor sqrt(D), and its rows have no mean. If the output or the encoder shares
        # the table, each step applies both instead, and the constant is divided by the factor.
        table, constant = np.asarray(model.get_layer("target_embedding").embeddings, "float32"), first.constant
        self._scale, self._centering = 1.0, None
        scale = model.units**0.5 if model.scale_embeddings else 1.0
        if model.tied_embeddings == "none":
            table = self._part(scale * table.astype("float64"), first)[:, :-1]
        else:
            self._scale = scale
            constant /= self._scale
            self._centering = Unnormalized(first).residual() if first.centered and self.norm_first else None
        bias = model.output_weights()[1]
        bias = None if bias is None else as_array(bias)
        kernel = as_array(model.get_layer("logits").kernel) if model.tied_embeddings == "none" else None
        self._output = PackedOutput(last, kernel, bias, table, constant)
        self._embeddings = None
        if model.tied_embeddings == "none":
            self._embeddings = variable(np.pad(table, [[0, 0], [0, 1]], constant_values=constant))  # (V, D + 1)
        if model.tied_embeddings == "all":
            self._encoder.lookup = self._output.embeddings
        # Sinusoidal positions come from a table too: computed at each step they cost up to 2% of one row.
        self._positions = None
        if model.positions == "learned":
            positions = as_array(model.get_layer("target_positions").embeddings)
            if len(positions) < max_length:
                raise ValueError(
                    f"A target may have {max_length} tokens, more than the {len(positions)} learned positions that "
                    "there are. Give the Translator a smaller `max_target_length`."
                )
            self._positions = variable(self._part(positions[:max_length], first))  # (max_length, D + 1)
        elif model.positions == "sinusoidal":
            positions = waves(max_length, model.units, model.get_layer("target_positions"))
            self._positions = variable(self._part(positions, first))  # (max_length, D + 1)

        memory = [layer.memory_attention for layer in layers]
        memory = [weight for each in memory for part in (each.key_dense, each.value_dense) for weight in part.weights]
        # An export stores only variables that are attributes of a `tf.Module`. The Keras layers that use these are not
        # modules.
        self._tracked = [*self._encoder.weights, *(weight.value for weight in memory)]

    @property
    def weights(self) -> list[tf.Variable]:
        """All variables, the encoder's included, for an export to track."""
        return list(self.variables)

    def begin(self, source: tf.Tensor, masks: Masks = NO_MASKS) -> tuple[Any, Any]:
        """As `zoo.models.Transformer.begin`, but the memory has another form.

        Args:
            source: ids `(B, S)`.
            masks: tokens and heads to leave out.

        Returns:
            memory: the mask `(B, S)`, the bias of the scores `(B, 1, 1, 1, S)`, and for each decoder layer the keys and
                values `(B, 1, H, S, d)` of its attention to the source; and the heads of `masks`, if it has some.
            cache: for each decoder layer the keys and values `(B, 1, H, 0, d)` of past tokens, none so far.
        """
        memory = self._memory(source, masks)
        attention = self._layers[0].self_attention
        empty = tf.zeros([tf.shape(source)[0], 1, attention.groups, 0, attention.width])  # (B, 1, H, 0, d)
        return memory, tuple((empty, empty) for _ in self._layers)

    def prepare_output_columns(self) -> None:
        """To be called before the first use of `output_columns`. The weights then have the output's table twice."""
        self._output.prepare_columns()

    def output_columns(self, ids: tf.Tensor) -> tf.Tensor:
        """The weights of the last product for ids `(B, C)` only, which `step` takes: `(B, D + 1 or D + 2, C)`."""
        return self._output.columns(ids)

    def step(
        self, tokens: tf.Tensor, position: tf.Tensor, memory: Any, cache: Any, output: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, Any, tf.Tensor]:
        """As `zoo.models.Transformer.step`; with an `output` from `output_columns`, logits `(B, K, C)`."""
        hypotheses = tokens.shape[1] or tf.shape(tokens)[1]
        rows, rotations = self._embedded(tf.reshape(tokens, [-1]), tf.reshape(position, [1]))
        new, weights, heads = [], None, self._head_masks(memory)
        for layer, prepared, each, masks in zip(self._layers, memory["layers"], cache, heads, strict=True):
            source = prepared, memory["bias"]
            rows, each, weights = layer.decode_step(rows, hypotheses, rotations, each, None, *source, *masks)
            new.append(each)
        rows = self._output.scaled(normalized(rows) if self.norm_first else rows)  # (B K, D + 1 or D + 2)
        if output is None:
            logits = tf.reshape(self._output.of_scaled(rows), [-1, hypotheses, self.target_vocabulary_size])
        else:
            logits = product(tf.reshape(rows, [-1, hypotheses, rows.shape[1]]), output)  # (B, K, C)
        weights = tf.reduce_mean(weights, axis=2)[:, :, 0]  # (B, K, H, 1, S) -> (B, K, S)
        return logits, tuple(new), _where_allowed(weights, memory["mask"][:, None])

    def without_logits(self) -> Callable[[dict[str, tf.Tensor]], tf.Tensor]:
        """As `zoo.models.Transformer.without_logits`: a function from ids to rows for `logits_of`."""
        return self.vectors

    def vectors(self, inputs: dict[str, tf.Tensor], masks: Masks = NO_MASKS) -> tf.Tensor:
        """As the function of `without_logits`, with tokens and heads left out."""
        rows, shape, _ = self._prefill(self._memory(inputs["source"], masks), inputs["target"])
        rows = self._output.scaled(normalized(rows) if self.norm_first else rows)
        return tf.reshape(rows, [*shape, rows.shape[-1]])  # (B, T, D + 1 or D + 2)

    def logits_of(self, rows: tf.Tensor) -> tf.Tensor:
        """Rows `(R, .)` that the function of `without_logits` gave -> logits `(R, V)`."""
        return self._output.of_scaled(rows)

    def attention_maps(
        self, source: tf.Tensor, target: tf.Tensor, masks: Masks = NO_MASKS
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """As `zoo.models.Transformer.attention_maps`."""
        encoder_maps: list[tf.Tensor] = []
        memory = self._memory(source, masks, encoder_maps)
        _, _, maps = self._prefill(memory, target, return_weights=True)
        past, to_source = (tf.stack(each, axis=1) for each in zip(*maps, strict=True))  # (B, M, H, T, T or S)
        to_source = _where_allowed(to_source, memory["mask"][:, None, None, None])
        return to_source, tf.stack(encoder_maps, axis=1), past  # the second (B, N, H, S, S)

    def _prefill(
        self, memory: Any, target: tf.Tensor, return_weights: bool = False
    ) -> tuple[tf.Tensor, list[tf.Tensor], list[list[tf.Tensor]]]:
        """All tokens `(B, T)` at once: rows `(B T, D + 1)`, B and T, and each layer's weights.

        These are `(B, H, T, T)` of the self-attention, None unless asked for, and `(B, H, T, S)`.
        """
        shape = tf.unstack(tf.shape(target))
        positions = tf.tile(tf.range(shape[1]), [shape[0]])  # (B T,)
        rows, rotations = self._embedded(tf.reshape(target, [-1]), positions)
        if rotations is not None:
            rotations = tf.reshape(rotations, [*shape, *rotations.shape[2:]])  # (B, T, 3 H, d / 2)
        maps = []
        for layer, prepared, masks in zip(self._layers, memory["layers"], self._head_masks(memory), strict=True):
            rows, _, weights = layer.prefill(
                rows, shape, rotations, None, prepared, memory["bias"], return_weights, *masks
            )
            maps.append(weights)
        return rows, shape, maps

    def _head_masks(self, memory: Any) -> list[tuple[Any, Any]]:
        """For each decoder layer the `head_mask` of its self-attention and of its attention to the source."""
        masks = Masks(heads=memory.get("heads"))
        return [(masks.of_layer("decoder", i), masks.of_layer("source", i)) for i in range(len(self._layers))]

    def _memory(
        self, source: tf.Tensor, masks: Masks = NO_MASKS, maps: list[tf.Tensor] | None = None
    ) -> dict[str, Any]:
        encoded, mask = self._encoder.encode(source, masks, maps)
        # If a source is all padding, the bias forbids all keys alike and the softmax is uniform. Zero values then give
        # a zero context, as the model's own attention does.
        shown = tf.cast(mask, tf.float32)[:, None, :, None]  # (B, 1, S, 1)
        prepared = []
        for prepare in self._prepare:
            keys, values = (tf.cast(each, tf.float32) for each in prepare(encoded))  # (B, H, S, d)
            prepared.append((keys[:, None], (values * shown)[:, None]))  # (B, 1, H, S, d)
        bias = tf.where(mask, 0.0, FORBIDDEN)[:, None, None, None]  # (B, 1, 1, 1, S)
        heads = {} if masks.heads is None else {"heads": dict(masks.heads)}
        return {"mask": mask, "bias": bias, "layers": tuple(prepared), **heads}

    def _embedded(self, tokens: tf.Tensor, positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Tokens `(R,)` at positions `(R,)` or `(1,)` -> rows `(R, D + 1)`, and rotations `(., 1, 3 H, d / 2)`."""
        table = self._embeddings
        rows = self._output.embeddings(tokens) if table is None else tf.gather(table, tokens)  # (R, D + 1)
        rows = rows if self._scale == 1 else rows * self._scale
        rows = rows if self._centering is None else self._centering(rows)
        if self._positions is not None:
            rows += tf.gather(self._positions, positions)
        return rows, self._layers[0].self_attention.rotations(positions[:, None])

    def _part(self, values: np.ndarray, first: Norm) -> np.ndarray:
        """A summand of the first row: `(..., D)` -> `(..., D + 1)`, without its mean if norms come first."""
        return first.part(values) if self.norm_first else np.pad(values, [*[(0, 0)] * (values.ndim - 1), (0, 1)])


class _Encoder:
    """The model's own encoder, with embeddings that may be those of the decoder.

    Attributes:
        lookup: a function from ids `(R,)` to embeddings `(R, D)` or wider.
    """

    def __init__(self, model: Transformer):
        self.weights: list[tf.Variable] = []  # of its layers, and the embeddings
        self.lookup: Any = None  # set later, if the decoder holds the embeddings
        if model.tied_embeddings != "all":
            table = model.get_layer("source_embedding").embeddings.value
            self.weights.append(table)
            self.lookup = functools.partial(tf.gather, table)
        self.units, self.scale = model.units, model.units**0.5 if model.scale_embeddings else 1.0
        self.positions = model.get_layer("source_positions") if model.positions in ("sinusoidal", "learned") else None
        self.layers = [model.get_layer(f"encoder_layer_{i + 1}") for i in range(model.encoder_layers)]
        self.norm = model.get_layer("encoder_norm") if model.norm_first else None
        layers = [each for each in (self.positions, *self.layers, self.norm) if each is not None]
        self.weights += [weight.value for layer in layers for weight in layer.weights]

    def encode(
        self, source: tf.Tensor, masks: Masks = NO_MASKS, maps: list[tf.Tensor] | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """As the model does it: ids `(B, S)` -> `(B, S, D)` and the mask `(B, S)`."""
        mask = masks.allowed(source != 0)
        hidden = self.lookup(tf.reshape(source, [-1]))[:, : self.units] * self.scale  # (B S, D)
        hidden = tf.reshape(hidden, [*tf.unstack(tf.shape(source)), self.units])  # (B, S, D)
        hidden = hidden if self.positions is None else self.positions(hidden)
        for index, layer in enumerate(self.layers):
            options = dict(mask=mask, head_mask=masks.of_layer("encoder", index))
            if maps is None:
                hidden = layer(hidden, **options)
            else:
                hidden, weights = layer(hidden, return_attention_scores=True, **options)
                maps.append(weights)
        return hidden if self.norm is None else self.norm(hidden), mask


def waves(length: int, width: int, layer: SinusoidalPositionalEncoding) -> np.ndarray:
    """The table `(T, D)` of the layer."""
    angles = np.arange(length)[:, None] * frequencies(width, layer.max_wavelength)  # (T, D / 2)
    table = np.stack([np.sin(angles), np.cos(angles)], axis=1 if layer.pairs == "halves" else 2)
    return table.reshape(length, -1)[:, :width]  # (T, D)


def _where_allowed(weights: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    return tf.where(mask, weights, 0.0)
