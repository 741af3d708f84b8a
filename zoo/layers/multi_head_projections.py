"""What multi-head attention learns: its arguments and its weights, as Keras has them."""

import keras

from zoo.layers.checks import check_positive, check_rate
from zoo.layers.functions.attention_axes import AttentionAxes
from zoo.layers.projection import Projection


class MultiHeadProjections(keras.layers.Layer):
    """The projections of queries, keys and values into heads, and of the heads' contexts to the output.

    It is the half of `MultiHeadAttention` that `keras.layers.MultiHeadAttention` prescribes: arguments, configuration,
    weights, their names and their order. The other half computes.
    """

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        dropout=0.0,
        use_bias=True,
        output_shape=None,
        attention_axes=None,
        sliding_window=None,
        flash_attention=None,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        activity_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        use_gate=False,
        seed=None,
        num_key_value_heads=None,
        rotary_embedding=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.num_heads = check_positive("num_heads", num_heads)
        self.key_dim = check_positive("key_dim", key_dim)
        self.value_dim = key_dim if value_dim is None else check_positive("value_dim", value_dim)
        self.dropout = check_rate("dropout", dropout)
        self.use_bias = use_bias
        # Not `output_shape`, which means something else on the layers of a functional model.
        self._output_shape = _as_shape(output_shape)
        self.attention_axes = _as_axes(attention_axes)
        self.sliding_window = None if sliding_window is None else check_positive("sliding_window", sliding_window)
        self.flash_attention = flash_attention
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        # Keras applies a layer's own `activity_regularizer` to its output; this one is the projections'.
        self._activity_regularizer = keras.regularizers.get(activity_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.use_gate = use_gate
        self.seed = seed
        self.num_key_value_heads = num_key_value_heads
        self._groups = num_heads
        if num_key_value_heads is not None:
            self._groups = check_positive("num_key_value_heads", num_key_value_heads)
            if num_heads % num_key_value_heads:
                raise ValueError(
                    f"`num_key_value_heads` must divide `num_heads`. Received: "
                    f"num_key_value_heads={num_key_value_heads}, num_heads={num_heads}"
                )
        self.rotary_embedding = rotary_embedding

    def build(self, query_shape, value_shape, key_shape=None):
        """Creates the projections.

        Args:
            query_shape: shape of the query.
            value_shape: shape of the value.
            key_shape: shape of the key; None for that of the value.

        Raises:
            ValueError: shapes that do not fit each other or the attention axes.
        """
        key_shape = value_shape if key_shape is None else key_shape
        self._axes = AttentionAxes(len(query_shape), self.attention_axes)
        self._axes.check_shapes(query_shape, value_shape, key_shape)
        if len(self._axes.axes) > 1 and (self.sliding_window is not None or self.rotary_embedding is not None):
            name = "sliding_window" if self.sliding_window is not None else "rotary_embedding"
            raise ValueError(f"`{name}` needs one axis to count positions along. Received: {self._axes}")
        # The order is that of Keras, and with it the order of the weights.
        self._query_dense = self._projection("query", 1, (self.num_heads, self.key_dim))
        self._key_dense = self._projection("key", 1, (self._groups, self.key_dim))
        if self.use_gate:
            self._gate_dense = self._projection("gate", 1, (self.num_heads, self.value_dim), activation="sigmoid")
            self._gate_dense.build(query_shape)
        self._value_dense = self._projection("value", 1, (self._groups, self.value_dim))
        # Keras' own, for its seeds alone: a file of `keras.layers.MultiHeadAttention` has them.
        self._dropout_layer = keras.layers.Dropout(self.dropout, dtype=self.dtype_policy, seed=self.seed)
        self._output_dense = self._projection("attention_output", 2, self._output_shape or (query_shape[-1],))
        self._query_dense.build(query_shape)
        self._key_dense.build(key_shape)
        self._value_dense.build(value_shape)
        self._output_dense.build((*query_shape[:-1], self.num_heads, self.value_dim))

    def _projection(self, name, contracted, output_shape, activation=None):
        return Projection(
            contracted,
            output_shape,
            self.use_bias,
            activation=activation,
            kernel_initializer=self.kernel_initializer,
            bias_initializer=self.bias_initializer,
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            activity_regularizer=self._activity_regularizer,
            kernel_constraint=self.kernel_constraint,
            bias_constraint=self.bias_constraint,
            dtype=self.dtype_policy,
            name=name,
        )

    @property
    def query_dense(self):
        """The query's projection, a `keras.layers.EinsumDense`."""
        return self._query_dense

    @property
    def key_dense(self):
        """The key's projection."""
        return self._key_dense

    @property
    def value_dense(self):
        """The value's projection."""
        return self._value_dense

    @property
    def output_dense(self):
        """The projection of the heads' contexts to the output."""
        return self._output_dense

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "output_shape": self._output_shape,
            "attention_axes": self.attention_axes,
            "sliding_window": self.sliding_window,
            "flash_attention": self.flash_attention,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": keras.regularizers.serialize(self.bias_regularizer),
            "activity_regularizer": keras.regularizers.serialize(self._activity_regularizer),
            "kernel_constraint": keras.constraints.serialize(self.kernel_constraint),
            "bias_constraint": keras.constraints.serialize(self.bias_constraint),
            "use_gate": self.use_gate,
            "seed": self.seed,
            "num_key_value_heads": self.num_key_value_heads,
            "rotary_embedding": keras.saving.serialize_keras_object(self.rotary_embedding),
        }

    @classmethod
    def from_config(cls, config):
        """The layer that `get_config` describes, here or in `keras.layers.MultiHeadAttention`."""
        rotary = keras.saving.deserialize_keras_object(config.get("rotary_embedding"))
        return cls(**{**config, "rotary_embedding": rotary})


def _as_shape(output_shape):
    """The output's last axes as a tuple, None if the query decides."""
    if output_shape is None:
        return None
    sizes = (output_shape,) if isinstance(output_shape, int) else output_shape
    if not isinstance(sizes, (list, tuple)) or not sizes:
        raise ValueError(f"`output_shape` must be an integer or several. Received: output_shape={output_shape!r}")
    return tuple(check_positive("output_shape", size) for size in sizes)


def _as_axes(attention_axes):
    """The attention axes as a tuple, None for all."""
    if attention_axes is None:
        return None
    axes = (attention_axes,) if isinstance(attention_axes, int) else attention_axes
    if not isinstance(axes, (list, tuple)) or not axes or not all(isinstance(axis, int) for axis in axes):
        raise ValueError(f"`attention_axes` must be an integer or several. Received: attention_axes={attention_axes!r}")
    return tuple(axes)
