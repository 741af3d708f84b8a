"""Cross-entropy over a large vocabulary, without ever holding all logits.

For N tokens and V words, logits are N V numbers, and a loss that takes them as they are reads and writes as many
several times over: for most translators that is where the memory goes, and much of the time. Here the last product of
the model belongs to the loss. Tokens are taken in pieces, and each piece's logits are used up, gradients included,
while they are still in the processor's cache. What is kept is the gradients of rows and weights.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

PIECES = 8
SMALL_VOCABULARY = 1000


class TokenLoss(NamedTuple):
    """Sums over all tokens, each weighted; scalars in float32.

    Attributes:
        loss: the loss that is minimised.
        right: the weights of the tokens whose label has the highest logit.
        weight: all weights.
    """

    loss: tf.Tensor
    right: tf.Tensor
    weight: tf.Tensor


def projected_cross_entropy(hidden, output_weights, bias, labels, sample_weights, label_smoothing=0.0) -> TokenLoss:
    """The cross-entropy between labels and the softmax of logits that are not given, but computed here.

        z = h W^T + b
        loss = sum_i w_i (log sum_v exp z_iv - (1 - e) z_i,label(i) - e mean_v z_iv)

    which is the cross-entropy with labels smoothed by e (Szegedy et al. 2016): 1 - e on the label, and e spread evenly
    over all V words. The logits are computed in the dtype of `hidden`, everything after in float32.

    It can be differentiated once, by `hidden`, `output_weights` and `bias`. All three gradients are computed together
    with the loss; where they are not asked for, the graph drops them.

    Axes: B batch, T target length, D width, V vocabulary.

    Args:
        hidden: `(B, T, D)`, the rows that the logits are computed from, h.
        output_weights: `(V, D)`, W.
        bias: `(V,)`, or None.
        labels: int `(B, T)`, each from 0 to V - 1.
        sample_weights: `(B, T)`, w; 0 at padding.
        label_smoothing: e, from 0 to less than 1.

    Returns:
        `TokenLoss`.

    Reference: https://arxiv.org/abs/1512.00567
    """
    width, vocabulary = output_weights.shape[1], output_weights.shape[0]
    pieces = PIECES if vocabulary > SMALL_VOCABULARY else 1
    bias = tf.zeros([vocabulary]) if bias is None else tf.cast(bias, tf.float32)

    @tf.custom_gradient
    def summed(rows, weights, bias):
        narrow = tf.cast(weights, rows.dtype)
        pieces_of = (_pieces(each, pieces) for each in (rows, labels, sample_weights))
        sums = [_piece(*piece, narrow, bias, label_smoothing) for piece in zip(*pieces_of, strict=True)]
        of_rows, *sums = zip(*sums, strict=True)
        loss, right, of_weights, of_bias = map(tf.add_n, sums)
        of_rows = tf.concat(of_rows, axis=0)[: tf.shape(rows)[0]]
        # The smoothed labels' own share in the last two gradients: e / V everywhere, and 1 - e at the label. Here, and
        # not by pieces, since what is scattered over the whole matrix is better scattered once.
        everywhere = label_smoothing / vocabulary * sample_weights
        at_label = (1 - label_smoothing) * sample_weights
        wide = tf.cast(rows, tf.float32)
        of_weights -= tf.linalg.matvec(wide, everywhere, transpose_a=True)
        of_weights = tf.tensor_scatter_nd_sub(of_weights, labels[:, None], wide * at_label[:, None])
        of_bias = tf.tensor_scatter_nd_sub(of_bias - tf.reduce_sum(everywhere), labels[:, None], at_label)

        def gradient(of_loss, _):
            return tf.cast(of_loss * of_rows, rows.dtype), of_loss * of_weights, of_loss * of_bias

        return (loss, right), gradient

    labels = tf.reshape(tf.cast(labels, tf.int32), [-1])
    sample_weights = tf.reshape(tf.cast(sample_weights, tf.float32), [-1])
    loss, right = summed(tf.reshape(hidden, [-1, width]), output_weights, bias)
    return TokenLoss(loss, right, tf.reduce_sum(sample_weights))


def _pieces(tensor, number):
    """Divides the first axis into pieces of one size, the last filled up with zeros."""
    size = -(-tf.shape(tensor)[0] // number)
    padding = [[0, number * size - tf.shape(tensor)[0]]] + [[0, 0]] * (tensor.shape.rank - 1)
    return tf.unstack(tf.reshape(tf.pad(tensor, padding), [number, size, *tensor.shape[1:]]))


def _piece(rows, labels, sample_weights, output_weights, bias, smoothing):
    """Some tokens: the gradient of their rows, loss, right ones, the gradients of weights and bias but for labels."""
    logits = tf.cast(tf.matmul(rows, output_weights, transpose_b=True), tf.float32) + bias  # (n, V)
    highest = tf.reduce_max(logits, axis=1)
    powers = tf.exp(logits - highest[:, None])
    total = tf.reduce_sum(powers, axis=1)
    label_logits = tf.gather(logits, labels, batch_dims=1)
    loss = highest + tf.math.log(total) - (1 - smoothing) * label_logits
    label_weights = tf.cast(tf.gather(output_weights, labels), tf.float32) * (1 - smoothing)
    if smoothing:
        # The mean of all logits is the product with the mean of all weights, and takes no pass over the logits.
        mean = tf.reduce_mean(tf.cast(output_weights, tf.float32), axis=0)
        loss -= smoothing * (tf.linalg.matvec(tf.cast(rows, tf.float32), mean) + tf.reduce_mean(bias))
        label_weights += smoothing * mean
    right = tf.cast(label_logits >= highest, tf.float32)
    # The softmax is powers times scale. The scale goes to the narrow side of both products: D numbers instead of V.
    scale = sample_weights / total
    powers = tf.cast(powers, rows.dtype)
    of_rows = tf.cast(tf.matmul(powers, output_weights), tf.float32) * scale[:, None]
    of_rows -= sample_weights[:, None] * label_weights
    of_weights = tf.matmul(powers, rows * tf.cast(scale, rows.dtype)[:, None], transpose_a=True)
    of_bias = tf.linalg.matvec(powers, tf.cast(scale, rows.dtype), transpose_a=True)
    sums = tf.reduce_sum(loss * sample_weights), tf.reduce_sum(right * sample_weights)
    return of_rows, *sums, tf.cast(of_weights, tf.float32), tf.cast(of_bias, tf.float32)
