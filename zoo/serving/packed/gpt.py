"""`zoo.models.GPT`, packed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from zoo.models.gpt import GPT, align_right, visible_pairs
from zoo.models.masks import NO_MASKS, Masks
from zoo.serving.packed.attention import Places
from zoo.serving.packed.layers import PackedLayer, is_wide
from zoo.serving.packed.products import (
    FORBIDDEN,
    Embedding,
    Norm,
    PackedOutput,
    as_array,
    normalized,
    variable,
)

_ROOM_STEPS = 64


class _WithRoom(NamedTuple):
    """A cache for some steps at most. The other form is in `PackedGPT.begin`.

    Attributes:
        first: the position of the first step.
        filled: S before the first step.
        places: the `Places` of position 0; a step adds its position to the rows.
        bias: `(B, K, 1, 1, S + steps)`, zero at every token to come.
        forbidden: `(steps, S + steps)`, what each step adds to the bias: it forbids what is not written yet.
        layers: for each layer, and each part of it, keys and values `(2 B K G (S + steps), d)`.
    """

    first: tf.Tensor
    filled: tf.Tensor
    places: Places
    bias: tf.Tensor
    forbidden: tf.Tensor
    layers: tuple[tuple[tf.Tensor, ...], ...]


class PackedGPT(tf.Module):
    """The function of a `zoo.models.GPT` in float32, with its methods for decoding, scoring and attention maps.

        h = E x + positions,    h = layer(h), N times,    logits = norm(h) E^T

    Axes: B batch, K hypotheses of a row, R rows (hypotheses in a step, tokens in a prefill), T length,
    V vocabulary, D width, H heads, G key and value heads of a part of a layer, d width of a head, P length
    of the longest prompt, S tokens so far, P included.

    Args:
        model: the model. Later changes of its weights change nothing here.
        max_length: how many tokens a text may have.
    """

    def __init__(self, model: GPT, max_length: int):
        super().__init__()
        self.head_sizes = model.head_sizes
        self.vocabulary_size, self.context_length = model.vocabulary_size, min(max_length, model.context_length)
        norm = Norm(model.get_layer("norm"))
        self._layers = [PackedLayer(model.get_layer(f"layer_{i + 1}")) for i in range(model.num_layers)]
        table = np.asarray(model.get_layer("embedding").embeddings, "float32")  # (V, D)
        bias = model.output_weights()[1]
        kernel = None if model.tied_embeddings else as_array(model.get_layer("logits").kernel)
        bias = None if bias is None else as_array(bias)
        self.in_parts = is_wide(model.get_layer("layer_1"))
        self._output = PackedOutput(norm, kernel, bias, table, norm.constant, self.in_parts)
        tied = self._output if model.tied_embeddings else None
        self._embedding = Embedding(table, norm, norm.centered, output=tied)
        # A layer with a sliding window cuts its cache at each step, which is a copy anyway.
        windows = any(layer.self_attention[0].window is not None for layer in self._layers)
        self.room_steps = 0 if windows else _ROOM_STEPS
        self._positions = None
        if model.positions == "learned":
            positions = as_array(model.get_layer("positions").embeddings)[:max_length]
            self._positions = variable(norm.part(positions))  # (max_length, D + 1)

    @property
    def weights(self) -> list[tf.Variable]:
        """All variables, for an export to track."""
        return list(self.variables)

    def begin(self, tokens: tf.Tensor) -> tuple[Any, Any]:
        """As `zoo.models.GPT.begin`, but memory and cache have another form.

        Args:
            tokens: ids `(B, P)`, any number in a row, with zeros before or behind them.

        Returns:
            memory: each row's number of tokens `(B,)`, and the zeros that each further token appends to the bias.
            cache: the bias of the scores `(B, 1, 1, 1, S)`, which forbids padding, and for each layer, and each part of
                it, the keys and values `(B, 1, G, S, d)`.
        """
        tokens, mask, lengths, positions = align_right(tokens)
        _, cache = self._prefill(tokens, positions, mask)
        bias = tf.where(mask, 0.0, FORBIDDEN)[:, None, None, None]  # (B, 1, 1, 1, P)
        allowed = tf.zeros_like(lengths, tf.float32)[:, None, None, None, None]  # (B, 1, 1, 1, 1)
        return {"lengths": lengths, "allowed": allowed}, (bias, cache)

    def step(self, tokens: tf.Tensor, position: tf.Tensor, memory: Any, cache: Any) -> tuple[tf.Tensor, Any, None]:
        """As `zoo.models.GPT.step`. A cache of `with_room` is used up: only the returned one may be used again."""
        hypotheses = tokens.shape[1] or tf.shape(tokens)[1]
        positions, allowed = (memory["lengths"] + position)[:, None], memory["allowed"]
        if hypotheses != 1:
            positions, allowed = (tf.repeat(each, hypotheses, axis=1) for each in (positions, allowed))
        if self._positions is not None:
            # A row that has ended is stepped on with the others, maybe beyond the context.
            positions = tf.minimum(positions, self.context_length - 1)  # (B, K)
        rows, rotations = self._embedded(tf.reshape(tokens, [-1]), positions)
        if isinstance(cache, _WithRoom):
            caches = cache.layers
            # A loop forgets that the shape has 6 entries.
            places = Places(tf.ensure_shape(cache.places.shape, [6]), cache.places.rows + position)
            # A step too many fails in this gather, on a CPU.
            bias = cache.bias + tf.gather(cache.forbidden, position - cache.first)  # (B, K, 1, 1, S + steps)
        else:
            (bias, caches), places = cache, None
            # The bias grows with the cache, so that no step computes which of all tokens are padding.
            bias = tf.concat([bias, allowed], axis=4)  # (B, K, 1, 1, S + 1)
        new = []
        for layer, each in zip(self._layers, caches, strict=True):
            rows, each, _ = layer.decode_step(rows, hypotheses, rotations, each, bias, places=places)
            new.append(each)
        logits = self._output.logits(normalized(rows))  # (B K, V)
        cache = (bias, tuple(new)) if places is None else cache._replace(layers=tuple(new))
        return tf.reshape(logits, [-1, hypotheses, self.vocabulary_size]), cache, None

    def with_room(self, cache: Any, position: tf.Tensor, steps: int | tf.Tensor) -> _WithRoom:
        """A cache of `begin` or `step` with room for some steps, the first of them at this position."""
        bias, layers = cache
        batch, hypotheses, groups, filled, width = tf.unstack(tf.shape(layers[0][0][0]))
        size = filled + steps
        # The rows of a step are in the order in which it computes them: for each hypothesis keys, then values.
        heads = tf.reshape(tf.range(2 * batch * hypotheses * groups) * size, [2, -1, groups])  # (2, B K, G)
        rows = tf.reshape(tf.transpose(heads, [1, 0, 2]), [-1]) + filled - position  # (B K 2 G,)
        written = tf.range(size) <= filled + tf.range(steps)[:, None]  # (steps, S + steps)
        behind = [[0, 0], [0, 0], [0, 0], [0, 0], [0, steps]]
        return _WithRoom(
            position,
            filled,
            Places(tf.stack([2, batch, hypotheses, groups, size, width]), rows),
            tf.pad(bias, behind),
            tf.where(written, 0.0, FORBIDDEN),
            tuple(
                tuple(tf.reshape(tf.pad(tf.stack(part), [*behind, [0, 0]]), [-1, width]) for part in layer)
                for layer in layers
            ),
        )

    def without_room(self, cache: _WithRoom, position: tf.Tensor) -> tuple[Any, Any]:
        """The cache before the step of a position, as `begin` gives it."""
        filled = cache.filled + position - cache.first
        shape = [*tf.unstack(cache.places.shape, num=6)[:5], self._layers[0].self_attention[0].width]
        layers = tuple(
            tuple(tuple(tf.unstack(tf.reshape(part, shape)[..., :filled, :], num=2)) for part in layer)
            for layer in cache.layers
        )
        return cache.bias[..., :filled], layers

    def without_logits(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """As `zoo.models.GPT.without_logits`: a function from ids `(B, T)` to rows for `logits_of`."""
        return self.vectors

    def vectors(self, tokens: tf.Tensor, masks: Masks = NO_MASKS) -> tf.Tensor:
        """As the function of `without_logits`, with tokens and heads left out."""
        rows, _ = self._prefill(tokens, _from_the_start(tokens), visible_pairs(masks.shown), masks)
        rows = self._output.scaled(normalized(rows))
        return tf.reshape(rows, [*tf.unstack(tf.shape(tokens)), rows.shape[-1]])  # (B, T, D + 1 or D + 2)

    def logits_of(self, rows: tf.Tensor) -> tf.Tensor:
        """Rows `(R, .)` that the function of `without_logits` gave -> logits `(R, V)`."""
        return self._output.of_scaled(rows)

    def attention_maps(self, tokens: tf.Tensor, masks: Masks = NO_MASKS) -> tf.Tensor:
        """As `zoo.models.GPT.attention_maps`."""
        maps: list[tf.Tensor] = []
        self._prefill(tokens, _from_the_start(tokens), visible_pairs(masks.shown), masks, maps)
        return tf.stack(maps, axis=1)  # (B, N, H, T, T)

    def _prefill(
        self,
        tokens: tf.Tensor,
        positions: tf.Tensor,
        mask: tf.Tensor | None = None,
        masks: Masks = NO_MASKS,
        maps: list[tf.Tensor] | None = None,
    ) -> tuple[tf.Tensor, Any]:
        """All tokens `(B, T)` at once: rows `(B T, D + 1)` before the last norm, and each layer's keys and values.

        Each layer's weights `(B, H, T, T)` are appended to `maps`, if it is a list.
        """
        rows, rotations = self._embedded(tf.reshape(tokens, [-1]), positions)
        shape, cache = tf.unstack(tf.shape(tokens)), []
        for index, layer in enumerate(self._layers):
            options = dict(return_weights=maps is not None, head_mask=masks.of_layer("", index))
            rows, cached, weights = layer.prefill(rows, shape, rotations, mask, **options)
            cache.append(cached)
            if maps is not None:
                maps += weights
        return rows, tuple(cache)

    def _embedded(self, tokens: tf.Tensor, positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Tokens `(R,)` at positions `(B, T)`, with R = B T -> rows `(R, D + 1)` and the rotations of their heads."""
        rows = self._embedding(tokens)  # (R, D + 1)
        if self._positions is not None:
            rows += tf.gather(self._positions, tf.reshape(positions, [-1]))
        return rows, self._layers[0].self_attention[0].rotations(positions)


def _from_the_start(tokens: tf.Tensor) -> tf.Tensor:
    """Positions `(B, T)` of tokens whose padding, if any, is behind them."""
    return tf.broadcast_to(tf.range(tf.shape(tokens)[1]), tf.shape(tokens))
