"""`zoo.models.Transformer`, packed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.layers import SinusoidalPositionalEncoding
from zoo.layers.functions.blockwise_attention import BLOCK
from zoo.layers.functions.positions import frequencies
from zoo.models.masks import NO_MASKS, Masks
from zoo.models.transformer import Transformer
from zoo.serving.packed.groups import Group
from zoo.serving.packed.layers import PackedLayer, is_wide
from zoo.serving.packed.products import (
    FORBIDDEN,
    Embedding,
    Norm,
    PackedOutput,
    Unnormalized,
    as_array,
    matrix,
    normalized,
    product,
    side_by_side,
    variable,
)


class PackedTransformer(tf.Module):
    """The function of a `zoo.models.Transformer` in float32, with its methods for decoding, scoring and attention maps.

        h = E x sqrt(D) + positions,    h = layer(h), N times
        s = E y sqrt(D) + positions,    s = layer(s, h), M times,    logits = norm(s) W

    Rows have D + 1 features: the last one is a constant, which `products` explains. The encoder runs once for each
    request. One product turns its result into the keys and values of all decoder layers.

    Axes: B batch, K hypotheses of a row, R rows (hypotheses in a step, tokens in a prefill), S source length,
    T target length, V vocabulary, D width, M decoder layers, N encoder layers, H heads, d width of a head.

    Args:
        model: the model. Later changes of its weights change nothing here.
        max_length: how many tokens a target may have.
        max_source_length: how many tokens a source may have; None for as many.

    Raises:
        ValueError: there are fewer learned positions than a text may have tokens.
    """

    has_attention = True

    def __init__(self, model: Transformer, max_length: int, max_source_length: int | None = None):
        super().__init__()
        self.source_vocabulary_size = model.source_vocabulary_size
        self.target_vocabulary_size = model.target_vocabulary_size
        self.head_sizes, self.norm_first = model.head_sizes, model.norm_first
        encoder = [model.get_layer(f"encoder_layer_{i + 1}") for i in range(model.encoder_layers)]
        decoder = [model.get_layer(f"decoder_layer_{i + 1}") for i in range(model.decoder_layers)]
        self._encoder, encoded = _stack(encoder, model.get_layer("encoder_norm") if self.norm_first else None)
        self._layers, last = _stack(decoder, model.get_layer("decoder_norm") if self.norm_first else None)

        # Keys and values of all decoder layers, and all heads of each, in one product: (R, D + 1) -> (R, 2 M H d).
        memory = [layer.memory_attention for layer in decoder]
        memory = [matrix(dense) for each in memory for dense in (each.key_dense, each.value_dense)]
        self._memory_product = encoded.reading(*side_by_side(*memory))

        # The constant is the same in encoder and decoder, whose norms have the same epsilon. So they can share a table.
        first, first_of_encoder = (Norm(layers[0].self_attention_norm) for layers in (decoder, encoder))
        scale = model.units**0.5 if model.scale_embeddings else 1.0
        target = np.asarray(model.get_layer("target_embedding").embeddings, "float32")  # (V, D)
        kernel = as_array(model.get_layer("logits").kernel) if model.tied_embeddings == "none" else None
        bias = model.output_weights()[1]
        bias = None if bias is None else as_array(bias)
        self.in_parts = is_wide(decoder[0])
        self._output = PackedOutput(last, kernel, bias, target, first.constant / scale, self.in_parts)
        tied = None if model.tied_embeddings == "none" else self._output
        centered = first.centered and self.norm_first
        self._target = Embedding(target, first, centered, scale, tied)
        self._source = self._target
        if model.tied_embeddings != "all":
            source = np.asarray(model.get_layer("source_embedding").embeddings, "float32")
            self._source = Embedding(source, first_of_encoder, centered, scale)

        self._in_blocks = (max_source_length or max_length) > BLOCK
        # Sinusoidal positions come from a table too: computed at each step they cost up to 2% of one row.
        self._target_positions = _positions(model, "target", max_length, first)  # (max_length, D + 1) or None
        self._source_positions = _positions(model, "source", max_source_length or max_length, first_of_encoder)
        for side, table, longest in (
            ("source", self._source_positions, max_source_length),
            ("target", self._target_positions, max_length),
        ):
            if table is not None and longest and (found := table.shape[0]) < longest:
                raise ValueError(
                    f"A {side} may have {longest} tokens, more than the {found} learned positions that there are. Give "
                    f"the Translator a smaller `max_{side}_length`."
                )

    @property
    def vector_size(self) -> int:
        """The width of the rows that the function of `without_logits` gives: D + 1 or D + 2."""
        return self._output.size

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
            memory: the mask `(B, S)`, the bias of the scores `(B, 1, 1, 1, S)`, and for each decoder layer, and each
                part of it, the keys and values `(B, 1, H, S, d)` of its attention to the source; and the heads of
                `masks`, if it has some.
            cache: likewise the keys and values `(B, 1, H, 0, d)` of past tokens, none so far.
        """
        memory = self._memory(source, masks)
        attention = self._layers[0].self_attention[0]
        empty = tf.zeros([tf.shape(source)[0], 1, attention.groups, 0, attention.width])  # (B, 1, H, 0, d)
        return memory, tuple(tuple((empty, empty) for _ in layer.self_attention) for layer in self._layers)

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
        in_source = _where_allowed(tf.stack(encoder_maps, axis=1), memory["mask"][:, None, None, None])
        return to_source, in_source, past  # the second (B, N, H, S, S)

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
        """See `begin`. The weights `(B, H, S, S)` of the encoder's layers are added to `maps`, if there is a list."""
        mask = masks.allowed(source != 0)
        layers = self._keys_and_values(self._encoded(source, mask, masks, maps), mask)
        bias = tf.where(mask, 0.0, FORBIDDEN)[:, None, None, None]  # (B, 1, 1, 1, S)
        left_out = {} if masks.heads is None else {"heads": dict(masks.heads)}
        return {"mask": mask, "bias": bias, "layers": layers, **left_out}

    def _encoded(self, source: tf.Tensor, mask: tf.Tensor, masks: Masks, maps: list[tf.Tensor] | None) -> tf.Tensor:
        """Ids `(B, S)` -> rows `(B S, D + 1)` behind the encoder. The mask `(B, S)` allows what may be attended to."""
        shape = tf.unstack(tf.shape(source))
        columns = tf.tile(tf.range(shape[1]), [shape[0]])  # (B S,)
        rows = self._source(tf.reshape(source, [-1]))  # (B S, D + 1)
        if self._source_positions is not None:
            rows += tf.gather(self._source_positions, columns)
        attention = self._encoder[0].self_attention[0]
        group = Group(tf.reshape(tf.range(tf.size(source)), shape), mask, attention.heads)
        attending = {
            "groups": [group],
            "places": tf.reshape(group.contexts, [-1, attention.heads]),  # (B S, H)
            "rotations": attention.rotations(columns),  # (B S, 3 H, d / 2)
            "in_blocks": self._in_blocks,
        }
        for index, layer in enumerate(self._encoder):
            rows = layer.encode(rows, maps, head_mask=masks.of_layer("encoder", index), **attending)
        return normalized(rows) if self.norm_first else rows

    def _keys_and_values(self, rows: tf.Tensor, mask: tf.Tensor) -> Any:
        """Of `_encoded` rows and the mask `(B, S)` what the decoder layers attend to: `layers` of the memory."""
        rows = self._memory_product(rows)  # (B S, 2 M H d)
        # If a source is all padding, the bias forbids all keys alike and the softmax is uniform. Zero values then give
        # a zero context, as the model's own attention does.
        rows *= tf.cast(tf.reshape(mask, [-1, 1]), tf.float32)
        # One gather moves heads to the front, as in `groups`. Each layer has the keys of its parts, then their values.
        parts = [part for layer in self._layers for _ in range(2) for part in layer.cross_attention]
        heads, width = [part.heads for part in parts], parts[0].width
        number = sum(heads)  # 2 M H, with all heads of a layer
        batch, length = tf.unstack(tf.shape(mask))
        vectors = tf.reshape(tf.range(batch * length) * number, [batch, 1, 1, length])
        vectors += tf.reshape(tf.range(number), [1, 1, number, 1])  # (B, 1, 2 M H, S)
        vectors = tf.gather(tf.reshape(rows, [-1, width]), vectors)  # (B, 1, 2 M H, S, d)
        pieces = iter(tf.split(vectors, heads, axis=2))  # (B, 1, H, S, d) each, with the heads of a part
        layers = []
        for layer in self._layers:
            keys, values = ([next(pieces) for _ in layer.cross_attention] for _ in range(2))
            layers.append(tuple(zip(keys, values, strict=True)))
        return tuple(layers)

    def _embedded(self, tokens: tf.Tensor, positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Target tokens `(R,)` at `(R,)` or `(1,)` -> rows `(R, D + 1)`, and rotations `(., 1, 3 H, d / 2)`."""
        rows = self._target(tokens)
        if self._target_positions is not None:
            rows += tf.gather(self._target_positions, positions)
        return rows, self._layers[0].self_attention[0].rotations(positions[:, None])


def _stack(layers: list[Any], norm: Any) -> tuple[list[PackedLayer], Norm]:
    """The layers, packed, and the `Norm` that their result has passed: `norm`, or without it that of the last layer."""
    before: Norm | Unnormalized = Unnormalized(Norm(layers[0].self_attention_norm))
    packed = []
    for layer in layers:
        packed.append(PackedLayer(layer, before))
        before = packed[-1].last
    return packed, packed[-1].last if norm is None else Norm(norm)


def _positions(model: Transformer, side: str, length: int, first: Norm) -> tf.Variable | None:
    """The table `(length, D + 1)` of "source" or "target", shorter if fewer are learned; None without a table."""
    if model.positions not in ("learned", "sinusoidal"):
        return None
    layer: Any = model.get_layer(f"{side}_positions")
    learned = model.positions == "learned"
    table = as_array(layer.embeddings)[:length] if learned else waves(length, model.units, layer)
    # A mean is removed here only where norms come first.
    return variable(first.part(table) if model.norm_first else np.pad(table, [[0, 0], [0, 1]]))


def waves(length: int, width: int, layer: SinusoidalPositionalEncoding) -> np.ndarray:
    """The table `(T, D)` of the layer."""
    angles = np.arange(length)[:, None] * frequencies(width, layer.max_wavelength)  # (T, D / 2)
    table = np.stack([np.sin(angles), np.cos(angles)], axis=1 if layer.pairs == "halves" else 2)
    return table.reshape(length, -1)[:, :width]  # (T, D)


def _where_allowed(weights: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    return tf.where(mask, weights, 0.0)
