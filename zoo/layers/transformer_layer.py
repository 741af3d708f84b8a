"""What the layers of a transformer's encoder and decoder share."""

import keras
from keras import ops

from zoo.layers.checks import check_choice, check_positive, check_rate
from zoo.layers.dropout import Dropout
from zoo.layers.feed_forward import FeedForward
from zoo.layers.functions.tensors import scores_dtype
from zoo.layers.multi_head_attention import MultiHeadAttention
from zoo.layers.normalization import NORMALIZATIONS, make_normalization


class TransformerLayer(keras.layers.Layer):
    """Self-attention and a feed-forward network, each with dropout, a residual connection and a normalisation.

    The arguments are described at its subclasses.
    """

    def __init__(
        self,
        num_heads,
        feed_forward_units,
        dropout=0.0,
        attention_dropout=0.0,
        feed_forward_dropout=0.0,
        activation="relu",
        normalization="layer",
        norm_first=False,
        use_bias=True,
        key_dim=None,
        num_key_value_heads=None,
        rotary_embedding=None,
        sliding_window=None,
        flash_attention=None,
        epsilon=1e-5,
        kernel_initializer="glorot_uniform",
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.num_heads = check_positive("num_heads", num_heads)
        self.feed_forward_units = check_positive("feed_forward_units", feed_forward_units)
        self.dropout = check_rate("dropout", dropout)
        self.attention_dropout = check_rate("attention_dropout", attention_dropout)
        self.feed_forward_dropout = check_rate("feed_forward_dropout", feed_forward_dropout)
        self.activation = activation
        self.normalization = check_choice("normalization", normalization, tuple(NORMALIZATIONS))
        self.norm_first = norm_first
        self.use_bias = use_bias
        self.key_dim = None if key_dim is None else check_positive("key_dim", key_dim)
        self.num_key_value_heads = num_key_value_heads
        self.rotary_embedding = rotary_embedding
        self.sliding_window = sliding_window
        self.flash_attention = flash_attention
        self.epsilon = epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self.feed_forward = FeedForward(
            feed_forward_units,
            activation,
            feed_forward_dropout,
            use_bias,
            self.kernel_initializer,
            self._seed(1),
            dtype=self.dtype_policy,
            name="feed_forward",
        )

    def build(self, inputs_shape):
        """Creates the self-attention, the feed-forward network and their normalisations."""
        self.self_attention = self._attention(
            "self_attention",
            inputs_shape[-1],
            seed=self._seed(2),
            rotary_embedding=self.rotary_embedding,
            sliding_window=self.sliding_window,
        )
        self.self_attention.build(inputs_shape, inputs_shape)
        self.self_attention_norm = self._norm("self_attention_norm", inputs_shape)
        self.feed_forward.build(inputs_shape)
        self.feed_forward_norm = self._norm("feed_forward_norm", inputs_shape)
        self._dropout_layer = Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy)

    def _seed(self, number):
        """A seed of its own for each part, since equal ones would draw the same noise; None for None."""
        return None if self.seed is None else self.seed + number

    def _attention(self, name, width, **options):
        if self.key_dim is None and width % self.num_heads:
            raise ValueError(
                f"The width D must be a multiple of `num_heads` where `key_dim` is not given. "
                f"Received: D={width}, num_heads={self.num_heads}"
            )
        return MultiHeadAttention(
            self.num_heads,
            self.key_dim or width // self.num_heads,
            dropout=self.attention_dropout,
            use_bias=self.use_bias,
            flash_attention=self.flash_attention,
            kernel_initializer=self.kernel_initializer,
            num_key_value_heads=self.num_key_value_heads,
            dtype=self.dtype_policy,
            name=name,
            **options,
        )

    def _norm(self, name, inputs_shape):
        norm = make_normalization(self.normalization, self.epsilon, dtype=self.dtype_policy, name=name)
        norm.build(inputs_shape)
        return norm

    @staticmethod
    def _without_mask(inputs, mask):
        """The inputs without the mask that Keras attached to them, and the mask to go by.

        Left there, the attention would take it for the queries too, even if another mask was given.
        """
        attached = getattr(inputs, "_keras_mask", None)
        if attached is None:
            return inputs, mask
        return ops.reshape(inputs, ops.shape(inputs)), attached if mask is None else mask

    def _residual(self, part, norm, inputs, training=None):
        """The inputs and what the part makes of them; the part may return more, which is passed on.

        Returns:
            The sum `(B, T, D)`, and a tuple of the rest.
        """
        output, *rest = part(norm(inputs) if self.norm_first else inputs)
        total = inputs + self._dropout_layer(output, training=training)
        return (total if self.norm_first else norm(total)), tuple(rest)

    def _feed_forward(self, inputs, training=None):
        def part(x):
            return (self.feed_forward(x, training=training),)

        return self._residual(part, self.feed_forward_norm, inputs, training)[0]

    def compute_output_shape(self, inputs_shape, *others):
        """The inputs' shape."""
        return inputs_shape

    def _weights_spec(self, inputs, keys):
        shape = (inputs.shape[0], self.num_heads, inputs.shape[1], keys.shape[1])
        return keras.KerasTensor(shape, dtype=scores_dtype(self.compute_dtype))

    def get_config(self):
        """The constructor's arguments."""
        names = (
            "num_heads feed_forward_units dropout attention_dropout feed_forward_dropout activation normalization "
            "norm_first use_bias key_dim num_key_value_heads sliding_window flash_attention epsilon seed"
        )
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in names.split()},
            "rotary_embedding": keras.saving.serialize_keras_object(self.rotary_embedding),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }

    @classmethod
    def from_config(cls, config):
        """The layer that `get_config` describes, its rotary embedding included."""
        rotary = keras.saving.deserialize_keras_object(config.get("rotary_embedding"))
        return cls(**{**config, "rotary_embedding": rotary})
