"""`zoo.models.Encoder` and its heads, packed: no work for padding.

A batch of texts is as long as its longest text, so a third of it or more may be padding. Here the tokens of all texts
are rows `(N, D)` of one matrix, without padding, for all products, normalisations and activations: nine tenths of the
work. Only the scores of the attention need texts side by side:

1. Texts are sorted by their length and put into groups (`_GROUPS`), whose texts are about equally long.
2. A gather takes queries, keys and values of a group from the rows, `(3, B, H, T, d)`, and so also moves heads to the
   front. What stands at padding is any other token; a bias keeps it from being attended to.
3. Another gather takes the contexts of all groups back into rows.

The indices are computed once a request, not in each layer. Texts that are equally long, such as a single one, are one
group without a bias.

Otherwise a layer is as in `attention`: one product for queries, keys and values, with the factor of the scores in the
query's kernel. A wide layer is in two parts, which two threads compute at the same time (`Part` there): one sentence
takes 0.6 of the time with a model of MiniLM's size (benchmarks/notes.md, embedding.py). Normalisations are not inside
the weights as they are there: for hundreds of rows, fewer passes over the rows count, not fewer operations. With
oneDNN, TensorFlow computes products, their biases and GELU in one pass.

Axes: B texts, T length, N tokens of all texts, D width, H heads, d width of a head.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from zoo.layers import SequencePooling, TransformerEncoderLayer
from zoo.layers.functions.blockwise_attention import BLOCK
from zoo.models import Classifier, Encoder, MaskedLanguageModel, SentenceEmbedder
from zoo.serving.packed.attention import PackedSelfAttention, attend_in_parts
from zoo.serving.packed.groups import Group
from zoo.serving.packed.layers import PackedFeedForward, in_sum, parts_of
from zoo.serving.packed.products import Unmoved, as_array, variable
from zoo.serving.packed.transformer import waves

_GROUPS = 4  # more of them save scores, and cost operations


class _Layout:
    """The tokens of a batch as rows.

    Attributes:
        texts: the text of each row, `(N,)`.
        columns: its place in the text, `(N,)`.
        groups: see the module.
        contexts: where the groups hold the contexts of each row's heads, `(N, H)`.
    """

    def __init__(self, texts: tf.Tensor, columns: tf.Tensor, groups: list[Group], contexts: tf.Tensor):
        self.texts, self.columns, self.groups, self.contexts = texts, columns, groups, contexts

    @classmethod
    def whole(cls, ids: tf.Tensor, heads: int, shown: tf.Tensor | None = None) -> _Layout:
        """Every place of ids `(B, T)` is a row, in one group; `shown` is that of the `Group`."""
        texts, length = tf.unstack(tf.shape(ids))
        group = Group(tf.reshape(tf.range(texts * length), [texts, length]), shown, heads)
        contexts = tf.reshape(group.contexts, [-1, heads])  # (B T, H)
        return cls(tf.repeat(tf.range(texts), length), tf.tile(tf.range(length), [texts]), [group], contexts)

    @classmethod
    def of_tokens(cls, ids: tf.Tensor, heads: int) -> _Layout:
        """The tokens of ids `(B, T)`, which are not 0, by the lengths of their texts."""
        lengths = tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)  # (B,)
        order = tf.argsort(lengths, stable=True)
        lengths = tf.gather(lengths, order)
        places = tf.where(tf.gather(ids, order) != 0)  # (N, 2)
        begins = tf.cumsum(lengths, exclusive=True)
        groups, offset, texts = [], 0, tf.size(lengths)
        for number in range(_GROUPS):
            of_group = slice(number * texts // _GROUPS, (number + 1) * texts // _GROUPS)
            length = tf.reduce_max(tf.concat([lengths[of_group], [0]], 0))
            steps = tf.range(length)
            shown = steps < lengths[of_group][:, None]  # (B, T)
            slots = tf.where(shown, begins[of_group][:, None] + steps, 0)  # (B, T)
            groups.append(Group(slots, shown, heads, offset))
            offset += groups[-1].size
        contexts = tf.concat([tf.boolean_mask(group.contexts, group.shown) for group in groups], 0)  # (N, H)
        return cls(tf.gather(order, places[:, 0]), tf.cast(places[:, 1], tf.int32), groups, contexts)


class _Norm(tf.Module):
    """`keras.layers.LayerNormalization` or `keras.layers.RMSNormalization` of rows."""

    def __init__(self, layer: keras.layers.Layer):
        super().__init__()
        self.centered, self.epsilon = hasattr(layer, "beta"), layer.epsilon
        self.scale = variable(as_array(layer.gamma if self.centered else layer.scale))
        self.shift = variable(as_array(layer.beta)) if self.centered else None

    def __call__(self, rows: tf.Tensor) -> tf.Tensor:
        """`(N, D)` -> `(N, D)`."""
        if self.centered:
            rows -= tf.reduce_mean(rows, axis=-1, keepdims=True)
        # In few passes: 6 norms of 1500 rows took 8.0 ms by `tf.nn.moments`, and take 3.9 ms.
        length = tf.raw_ops.EuclideanNorm(input=rows, axis=[-1], keep_dims=True)  # (N, 1)
        rows *= tf.math.rsqrt(tf.square(length) / rows.shape[-1] + self.epsilon)
        rows *= self.scale
        return rows if self.shift is None else rows + self.shift


class _EncoderLayer(tf.Module):
    """A `zoo.layers.TransformerEncoderLayer` of rows, with its formulas."""

    def __init__(self, layer: TransformerEncoderLayer):
        super().__init__()
        self.norm_first = layer.norm_first
        heads, units = parts_of(layer)
        self.attention = [PackedSelfAttention(layer.self_attention, Unmoved(), Unmoved(), part) for part in heads]
        self.attention_norm = _Norm(layer.self_attention_norm)
        self.feed_forward = [PackedFeedForward(layer.feed_forward, Unmoved(), Unmoved(), part) for part in units]
        self.feed_forward_norm = _Norm(layer.feed_forward_norm)

    def __call__(self, rows: tf.Tensor, attending: dict[str, Any], maps: list[tf.Tensor] | None = None) -> tf.Tensor:
        """Rows `(N, D)` -> `(N, D)`.

        Args:
            rows: all tokens.
            attending: arguments of `PackedSelfAttention.encode`.
            maps: a list to which the weights `(B, H, T, T)` are added, if there is one group; None for none.
        """

        def attended(inputs):
            return attend_in_parts(self.attention, inputs, maps, **attending)

        def fed_forward(inputs):
            return [part(inputs) for part in self.feed_forward]

        if self.norm_first:
            rows = in_sum(rows, attended(self.attention_norm(rows)))
            return in_sum(rows, fed_forward(self.feed_forward_norm(rows)))
        rows = self.attention_norm(in_sum(rows, attended(rows)))
        return self.feed_forward_norm(in_sum(rows, fed_forward(rows)))


class PackedEncoder(tf.Module):
    """The function of a `zoo.models.Encoder` in float32, with its attention maps.

        h = norm(E x + P + G segment),    h = layer(h), N times

    Args:
        model: the model. Its weights must not change later.
        max_length: how many tokens a text may have.
    """

    def __init__(self, model: Encoder, max_length: int):
        super().__init__()
        self.vocabulary_size, self.units = model.vocabulary_size, model.units
        self.positions, self.most_positions, self.num_segments = (
            model.positions,
            model.most_positions,
            model.num_segments,
        )
        self.input = tuple(model.input)  # the names
        self.norm_first, self._in_blocks = model.norm_first, max_length > BLOCK
        self._layers = [_EncoderLayer(layer) for layer in model.encoder]
        self._heads = self._layers[0].attention[0].heads
        self._norm = _Norm(model.norm)
        self._embeddings = model.token_embedding.embeddings.value  # (V, D), which an output may share
        self._positions, self._segments = None, None
        positions: Any = model.position_embedding
        if self.positions == "learned":
            self._positions = variable(as_array(positions.embeddings)[:max_length])  # (max_length, D)
        elif self.positions == "sinusoidal":
            self._positions = variable(waves(max_length, model.units, positions))  # (max_length, D)
        if model.segment_embedding is not None:
            self._segments = variable(as_array(model.segment_embedding.embeddings))  # (number of segments, D)

    def __call__(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """As the model's call, with zeros at padding: `(B, T, D)`."""
        rows, texts, columns = self.rows(**inputs)
        return tf.scatter_nd(tf.stack([texts, columns], 1), rows, [*tf.unstack(tf.shape(inputs["ids"])), self.units])

    def rows(self, ids: tf.Tensor, segments: tf.Tensor | None = None) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The vectors of all tokens, in any order.

        Args:
            ids: `(B, T)`.
            segments: `(B, T)`; only with segments.

        Returns:
            Vectors `(N, D)`, the text of each `(N,)`, and its place in the text `(N,)`.
        """

        def encoded(layout):
            return self._encoded(layout, ids, segments), layout.texts, layout.columns

        return tf.cond(
            tf.reduce_all(ids != 0),
            lambda: encoded(_Layout.whole(ids, self._heads)),
            lambda: encoded(_Layout.of_tokens(ids, self._heads)),
        )

    def attention_maps(self, ids: tf.Tensor, segments: tf.Tensor | None = None) -> tf.Tensor:
        """As `zoo.models.Encoder.attention_maps`."""
        maps: list[tf.Tensor] = []
        self._encoded(_Layout.whole(ids, self._heads, ids != 0), ids, segments, maps)
        return tf.stack(maps, axis=1)  # (B, N, H, T, T)

    def _encoded(
        self, layout: _Layout, ids: tf.Tensor, segments: tf.Tensor | None, maps: list[tf.Tensor] | None = None
    ) -> tf.Tensor:
        """The vectors `(N, D)` of the rows of a layout."""
        places = tf.stack([layout.texts, layout.columns], 1)  # (N, 2)
        rows = tf.gather(self._embeddings, tf.gather_nd(ids, places))  # (N, D)
        if self._positions is not None:
            rows += tf.gather(self._positions, layout.columns)
        if self._segments is not None:
            rows += tf.gather(self._segments, tf.gather_nd(segments, places))
        rows = rows if self.norm_first else self._norm(rows)
        attending = {
            "groups": layout.groups,
            "places": layout.contexts,
            "rotations": self._layers[0].attention[0].rotations(layout.columns),  # (N, 3 H, d / 2)
            "in_blocks": self._in_blocks,
        }
        for layer in self._layers:
            rows = layer(rows, attending, maps)
        return self._norm(rows) if self.norm_first else rows


class _PackedHead(tf.Module):
    """A head with a packed encoder, in place of the model that it was made of.

    The head's own layers read a few vectors, so they are called as they are.

    Args:
        model: the model. Its weights must not change later.
        max_length: how many tokens a text may have.
    """

    def __init__(self, model: Any, max_length: int):
        super().__init__()
        self.encoder = PackedEncoder(model.encoder, max_length)
        self.input = self.encoder.input
        # An export holds the variables that a `tf.Module` has as attributes, and layers are no modules.
        own = {id(weight) for weight in model.encoder.weights}
        self._tracked = [weight.value for weight in model.weights if id(weight) not in own]

    @property
    def weights(self) -> list[tf.Variable]:
        """All variables, for an export to track."""
        return list(self.variables)


class _PackedPooled(_PackedHead):
    """A head that reads one vector a text."""

    def __init__(self, model: Any, max_length: int):
        super().__init__(model, max_length)
        self.pooling_layer = model.pooling_layer
        self._outputs = keras.Model(model.pooling_layer.output, model.output)  # (B, D) -> the model's outputs

    def __call__(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """As the model's call."""
        return self._outputs(self._pooled(inputs))

    def pooling_weights(self, **inputs: tf.Tensor) -> tf.Tensor:
        """As the model's `pooling_weights`."""
        return self.pooling_layer(self.encoder(inputs), inputs["ids"] != 0, return_attention_scores=True)[1]

    def _pooled(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """One vector a text, `(B, D)`, of rows where that is possible."""
        if not isinstance(self.pooling_layer, SequencePooling):
            return self.pooling_layer(self.encoder(inputs), inputs["ids"] != 0)
        rows, texts, columns = self.encoder.rows(**inputs)
        number = tf.shape(inputs["ids"])[0]
        if self.pooling_layer.kind == "first":
            first = tf.where(columns == 0)  # (R, 1): a text that begins with padding has none
            return tf.scatter_nd(
                tf.gather_nd(texts, first)[:, None], tf.gather_nd(rows, first), [number, rows.shape[1]]
            )
        sizes = tf.math.bincount(texts, minlength=number, maxlength=number)[:, None]  # (B, 1)
        if self.pooling_layer.kind == "max":
            return tf.where(sizes > 0, tf.math.unsorted_segment_max(rows, texts, number), 0.0)
        return tf.math.unsorted_segment_sum(rows, texts, number) / tf.cast(tf.maximum(sizes, 1), tf.float32)


class PackedClassifier(_PackedPooled):
    """The function of a `zoo.models.Classifier`."""

    reproduces = Classifier

    def __init__(self, model: Classifier, max_length: int):
        super().__init__(model, max_length)
        self.num_classes, self.multi_label = model.num_classes, model.multi_label


class PackedSentenceEmbedder(_PackedPooled):
    """The function of a `zoo.models.SentenceEmbedder`."""

    reproduces = SentenceEmbedder


class PackedMaskedLanguageModel(_PackedHead):
    """The function of a `zoo.models.MaskedLanguageModel`."""

    reproduces = MaskedLanguageModel

    def __init__(self, model: MaskedLanguageModel, max_length: int):
        super().__init__(model, max_length)
        self.logits_of = model.logits_of

    def __call__(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """As the model's call."""
        return self.logits_of(self.encoder(inputs))
