"""One layer of a transformer's decoder: Vaswani et al. 2017, section 3.1."""

import keras
from keras import ops

from zoo.layers.transformer_layer import TransformerLayer


@keras.saving.register_keras_serializable(package="zoo")
class TransformerDecoderLayer(TransformerLayer):
    """Causal self-attention, attention to a memory, then a feed-forward network, each added and normalised.

        x = norm(x + dropout(causal_self_attention(x)))
        x = norm(x + dropout(attention(x, memory)))
        y = norm(x + dropout(feed_forward(x)))

    Or, with `norm_first`, `x + dropout(f(norm(x)))` in all places. Without a memory (`cross_attention=False`) the
    second line is missing, and the layer is what GPT is made of.

    Axes: B batch, T length, S length of the memory, D width, H heads, G heads of keys and values.

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
        cross_attention: whether there is a memory to attend to.

    Call arguments:
        inputs: `(B, T, D)`.
        memory: what the encoder returns, `(B, S, any width)`; needed with cross attention, not taken without.
        inputs_mask: boolean `(B, T)`, True at tokens that may be attended to; None allows all, or takes the mask that
            Keras attached to the inputs.
        memory_mask: boolean `(B, S)`, likewise for the memory.
        training: whether to drop features.
        return_attention_scores: whether to return the attention weights too.

    Returns:
        `(B, T, D)`, and if asked for, the weights of the self-attention `(B, H, T, T)` and, with cross attention, of
        that `(B, H, T, S)`, in float32.

    Raises:
        ValueError: an argument out of its range, a width that the heads do not divide, a memory that is missing or
            has no place.

    Example:
        >>> import numpy as np
        >>> layer = TransformerDecoderLayer(num_heads=4, feed_forward_units=64)
        >>> x, memory = np.random.default_rng(0).normal(size=(2, 3, 32)), np.ones((2, 5, 32))
        >>> whole = layer(x, memory)
        >>> prepared, cache = layer.prepare(memory), None
        >>> for t in range(3):
        ...     last, cache = layer.step(x[:, t : t + 1], cache, prepared)
        >>> bool(np.allclose(last[:, 0], whole[:, 2], atol=1e-5))
        True

    References: https://arxiv.org/abs/1706.03762, https://arxiv.org/abs/2002.04745 (norm_first)
    """

    def __init__(self, *args, cross_attention=True, **kwargs):
        super().__init__(*args, **kwargs)
        self.cross_attention = cross_attention

    def build(self, inputs_shape, memory_shape=None):
        """Creates the attentions, the feed-forward network and their normalisations."""
        self._check_memory(memory_shape)
        super().build(inputs_shape)
        if self.cross_attention:
            self.memory_attention = self._attention("memory_attention", inputs_shape[-1], seed=self._seed(3))
            self.memory_attention.build(inputs_shape, memory_shape)
            self.memory_attention_norm = self._norm("memory_attention_norm", inputs_shape)

    def _check_memory(self, memory):
        if self.cross_attention and memory is None:
            raise ValueError("`memory` is missing; a layer without one has cross_attention=False.")
        if memory is not None and not self.cross_attention:
            raise ValueError("`memory` was given to a layer with cross_attention=False.")

    def call(
        self,
        inputs,
        memory=None,
        inputs_mask=None,
        memory_mask=None,
        training=None,
        return_attention_scores=False,
    ):
        """All parts, with all tokens at once; see the class."""
        self._check_memory(memory)
        inputs, inputs_mask = self._without_mask(inputs, inputs_mask)
        options = dict(training=training, return_attention_scores=return_attention_scores)

        def attend(x):
            output = self.self_attention(x, x, value_mask=inputs_mask, use_causal_mask=True, **options)
            return output if return_attention_scores else (output,)

        def attend_to_memory(x):
            output = self.memory_attention(x, memory, value_mask=memory_mask, **options)
            return output if return_attention_scores else (output,)

        outputs, weights = self._residual(attend, self.self_attention_norm, inputs, training)
        if self.cross_attention:
            outputs, more = self._residual(attend_to_memory, self.memory_attention_norm, outputs, training)
            weights += more
        outputs = self._feed_forward(outputs, training)
        return (outputs, *weights) if return_attention_scores else outputs

    def prepare(self, memory):
        """What of the memory every step needs: its keys and values, computed once a sentence.

        Args:
            memory: `(B, S, any width)`.

        Returns:
            Keys `(B, G, S, key_dim)` and values `(B, G, S, key_dim)`.
        """
        return self.memory_attention.project_memory(memory)

    def step(
        self,
        inputs,
        cache=None,
        prepared=None,
        mask=None,
        memory_mask=None,
        positions=None,
        return_attention_scores=False,
    ):
        """The next tokens, after those in the cache; stepping through a sequence gives what the call gives.

        Rows may be several hypotheses of each row of the memory, one after the other: they share what `prepare` made,
        which is never copied.

        Args:
            inputs: the next tokens `(B, T, D)`, or `(K B, T, D)` with K hypotheses a row of the memory.
            cache: what the last step returned; None at the start.
            prepared: from `prepare`; None without cross attention.
            mask: boolean `(B, S + T)` for the S tokens in the cache and the new ones, True where they may be attended
                to, with one row a row of the inputs; None allows all.
            memory_mask: boolean `(B, S)`, with one row a row of the memory; None allows all.
            positions: see `MultiHeadAttention.step`.
            return_attention_scores: whether to return the attention weights too.

        Returns:
            The outputs, of the inputs' shape; the new cache, see `MultiHeadAttention.step`; and if asked for, the
            weights as in the call.
        """
        self._check_memory(prepared)
        inputs = ops.cast(inputs, self.compute_dtype)
        shape = ops.shape(inputs)

        def attend(x):
            return self.self_attention.step(x, cache, mask, positions, return_attention_scores)

        def attend_to_memory(x):
            rows = ops.shape(prepared[0])[0]
            folded = ops.reshape(x, (rows, -1, shape[2]))  # hypotheses in the place of queries
            output, weights = self.memory_attention.attend(folded, prepared, memory_mask, return_attention_scores=True)
            # (B, H, K T, S) -> (K B, H, T, S)
            sizes = ops.shape(weights)
            weights = ops.reshape(weights, (rows, sizes[1], -1, shape[1], sizes[3]))
            weights = ops.reshape(ops.swapaxes(weights, 1, 2), (-1, sizes[1], shape[1], sizes[3]))
            return ops.reshape(output, shape), weights

        outputs, (cache, *weights) = self._residual(attend, self.self_attention_norm, inputs)
        if self.cross_attention:
            outputs, more = self._residual(attend_to_memory, self.memory_attention_norm, outputs)
            weights += more
        outputs = self._feed_forward(outputs)
        return (outputs, cache, *weights) if return_attention_scores else (outputs, cache)

    def compute_output_spec(
        self,
        inputs,
        memory=None,
        inputs_mask=None,
        memory_mask=None,
        training=None,
        return_attention_scores=False,
    ):
        """The symbolic outputs, and the weights if asked for."""
        self._check_memory(memory)
        outputs = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        weights = [self._weights_spec(inputs, keys) for keys in (inputs, memory) if keys is not None]
        return (outputs, *weights) if return_attention_scores else outputs

    def get_config(self):
        """The constructor's arguments."""
        return {**super().get_config(), "cross_attention": self.cross_attention}
