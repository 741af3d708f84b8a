"""One layer of a transformer's encoder: Vaswani et al. 2017, section 3.1."""

import keras

from zoo.layers.transformer_layer import TransformerLayer


@keras.saving.register_keras_serializable(package="zoo")
class TransformerEncoderLayer(TransformerLayer):
    """Self-attention, then a feed-forward network, each added to its inputs and normalised.

        x = norm(x + dropout(self_attention(x)))
        y = norm(x + dropout(feed_forward(x)))

    Or, with `norm_first`, `x + dropout(f(norm(x)))` in both places.

    Axes: B batch, T length, D width, H heads.

    Args:
        num_heads: H.
        feed_forward_units: width of the feed-forward network in between.
        dropout: the share of features dropped after each part, before it is added, in training.
        attention_dropout: the share of attention weights dropped in training.
        feed_forward_dropout: the share of features dropped inside the feed-forward network in training.
        activation: of the feed-forward network, see `FeedForward`: "relu" in the paper, "gelu_tanh" in GPT-2,
            "swiglu" in Llama.
        normalization: "layer" (Ba et al. 2016) or "rms" (Zhang and Sennrich 2019).
        norm_first: False normalises each sum, `norm(x + f(x))`, as in the paper; True what goes into each part,
            `x + f(norm(x))`, which trains without a warm-up (Xiong et al. 2020) and wants a norm after the last layer.
        use_bias: whether projections and feed-forward network have biases.
        key_dim: width of a head; None for D / H.
        num_key_value_heads: see `MultiHeadAttention`, as the next three.
        rotary_embedding: of the self-attention.
        sliding_window: of the self-attention.
        flash_attention: of every attention.
        epsilon: of the normalisation.
        kernel_initializer: of projections and feed-forward network.
        seed: of all dropout.
        **kwargs: the arguments of every Keras layer.

    Call arguments:
        inputs: `(B, T, D)`.
        mask: boolean `(B, T)`, True at real tokens, the ones that may be attended to; None allows all, or takes the
            mask that Keras attached to the inputs.
        training: whether to drop features.
        return_attention_scores: whether to return the attention weights too.

    Returns:
        `(B, T, D)`, and if asked for, the weights `(B, H, T, T)` in float32.

    Raises:
        ValueError: an argument out of its range, a width that the heads do not divide.

    Example:
        >>> import numpy as np
        >>> layer = TransformerEncoderLayer(num_heads=4, feed_forward_units=64)
        >>> mask = np.array([[True, True, True], [True, True, False]])
        >>> tuple(layer(np.ones((2, 3, 32)), mask=mask).shape)
        (2, 3, 32)

    References: https://arxiv.org/abs/1706.03762, https://arxiv.org/abs/2002.04745 (norm_first)
    """

    def call(self, inputs, mask=None, training=None, return_attention_scores=False):
        """Both parts; see the class."""
        inputs, mask = self._without_mask(inputs, mask)

        def attend(x):
            output = self.self_attention(
                x, x, value_mask=mask, training=training, return_attention_scores=return_attention_scores
            )
            return output if return_attention_scores else (output,)

        attended, weights = self._residual(attend, self.self_attention_norm, inputs, training)
        outputs = self._feed_forward(attended, training)
        return (outputs, *weights) if return_attention_scores else outputs

    def compute_output_spec(self, inputs, mask=None, training=None, return_attention_scores=False):
        """The symbolic outputs, and the weights if asked for."""
        outputs = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        return (outputs, self._weights_spec(inputs, inputs)) if return_attention_scores else outputs
