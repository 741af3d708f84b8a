"""How likely tokens are."""

import tensorflow as tf

from zoo.text.tokenizer import PADDING

_CHUNK = 256  # tokens whose logits are held at once


def score(model, inputs, tokens):
    """How likely a model finds texts.

    Args:
        model: one with `without_logits` and `output_weights`.
        inputs: what it is called with, the tokens before each one among it.
        tokens: ids `(B, T)`, 0 for padding.

    Returns:
        `log_probability`, float32 `(B,)`, of all tokens of a row, and `tokens`, int32 `(B,)`, how many they are.

    Raises:
        ValueError: the model has no such methods.
    """
    if not hasattr(model, "without_logits"):
        raise ValueError("`score` needs a model with `without_logits` and `output_weights`; this one has neither.")
    found = log_probabilities(model.without_logits()(inputs), tokens, *model.output_weights())
    return {
        "log_probability": tf.reduce_sum(found, axis=1),
        "tokens": tf.math.count_nonzero(tokens, axis=1, dtype=tf.int32),
    }


def log_probabilities(hidden, tokens, output_weights, bias=None):
    """Natural logarithms of the probabilities of tokens.

    Axes: B batch, T length, D width, V vocabulary.

    Args:
        hidden: float `(B, T, D)`, what the logits of each token are made of.
        tokens: ids `(B, T)`, 0 for padding.
        output_weights: `(V, D)`: logits are rows times its transpose.
        bias: `(V,)`, what is added to them; None for nothing.

    Returns:
        float32 `(B, T)`; 0 at padding. All logits are never held at once.
    """
    places = tf.cast(tf.where(tokens != PADDING), tf.int32)
    rows, ids = tf.gather_nd(hidden, places), tf.gather_nd(tokens, places)
    number = tf.shape(ids)[0]
    chunks = -(-number // _CHUNK)
    extra = chunks * _CHUNK - number
    rows = tf.reshape(tf.pad(rows, [[0, extra], [0, 0]]), [chunks, _CHUNK, hidden.shape[-1]])
    ids = tf.reshape(tf.pad(ids, [[0, extra]]), [chunks, _CHUNK])

    def of_chunk(chunk):
        rows, ids = chunk
        logits = tf.cast(tf.matmul(rows, tf.cast(output_weights, rows.dtype), transpose_b=True), tf.float32)
        logits = logits if bias is None else logits + tf.cast(bias, tf.float32)
        return tf.gather(logits, ids, batch_dims=1) - log_normalizer(logits)

    found = tf.map_fn(of_chunk, (rows, ids), fn_output_signature=tf.float32, parallel_iterations=1)
    return tf.tensor_scatter_nd_update(tf.zeros_like(tokens, tf.float32), places, tf.reshape(found, [-1])[:number])


def log_normalizer(logits):
    """What is taken from logits `(..., V)` to make them log-probabilities: log(sum(exp(logits))), `(...)`.

    The largest probability is exp(highest logit) / sum(exp(logits)), and oneDNN's softmax passes over its memory once,
    where differences, exponentials and sums are three operations that each do. Of 10,000 logits that is worth the time
    that it takes to be set up, other than of the few scores of an attention: half the time for 5 rows, a third for 160.
    """
    highest = tf.reduce_max(logits, axis=-1)
    return highest - tf.math.log(tf.reduce_max(tf.nn.softmax(logits), axis=-1))
