"""What `model.fit` trains: a model of ids with the cross-entropy of its predicted tokens, or of its class.

A vocabulary is large: for N tokens and V words the logits are N V numbers, and a loss that takes them as an input reads
and writes them several times. In most translators this takes most of the memory and much of the time. So here the
loss computes the model's last product itself, and no array ever holds all logits (`projected_cross_entropy`).

With `r_drop`, a model reads each batch twice in a training step, each time with other dropout, and the loss also
counts how far the two predictions are apart (R-Drop, Liang et al. 2021). Dropout trains many models that share
their weights, and a prediction uses all of them together. R-Drop makes them agree. With p and q the two predictions of
one token, C the cross-entropy, and a the weight `r_drop`:

    loss = (C(p) + C(q)) / 2 + a/4 (KL(p||q) + KL(q||p))

That is half of the paper's equation 4, so that the learning rate keeps its meaning. Both divergences together need no
logarithm. With y and z the logits of p and q, what normalises them cancels out:

    KL(p||q) + KL(q||p) = sum_v (p_v - q_v) (y_v - z_v)

Reference: https://arxiv.org/abs/2106.14448
"""

from __future__ import annotations

from typing import NamedTuple

import keras
import tensorflow as tf

PIECES = 8  # parts of a batch's tokens; the reason is in `projected_cross_entropy`
SMALL_VOCABULARY = 1000  # up to this size the logits of all tokens are computed at once


class _Prediction(keras.Model):
    """What both kinds of predictions share: the wrapped model, and means of the loss and of what is right."""

    ACCURACY = "accuracy"  # the name of the metric

    def __init__(self, model: keras.Model, label_smoothing: float = 0.0, r_drop: float = 0.0):
        super().__init__(name=f"{model.name}_prediction", dtype=model.dtype_policy)
        self.model = model
        self.label_smoothing = label_smoothing
        self.r_drop = r_drop
        self._loss_metric = keras.metrics.Mean(name="loss")
        self._accuracy_metric = keras.metrics.Mean(name=self.ACCURACY)
        self.built = True

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Loss and accuracy since the beginning of the epoch."""
        return {metric.name: metric.result() for metric in (self._loss_metric, self._accuracy_metric)}

    def loss_weight(self, data):
        """What a batch counts among the batches of several workers: the weights of its tokens or texts."""
        return tf.reduce_sum(tf.cast(data[2], tf.float32))


class TokenPrediction(_Prediction):
    """Fits a model of ids by the cross-entropy of its next tokens, the mean over all tokens with a weight.

    It wraps a model of `zoo.models` for `fit` and `evaluate`, and shares its weights. Without `r_drop`, the result is
    the same as that of the model compiled with `SparseCategoricalCrossentropy(reduction="mean_with_sample_weight")`,
    with label smoothing in addition.
    Batches are (inputs, labels, weights). Labels are smoothed in training only: `evaluate` gives the negative
    log-likelihood of a token, without smoothing.

    Metrics, both over tokens, not over batches: `loss`, and `token_accuracy`, the share of tokens whose label has the
    highest logit.

    Args:
        model: a model with `without_logits` and `output_weights`.
        label_smoothing: the share of probability, from 0 to less than 1, that is spread over the whole vocabulary.
        r_drop: the weight of the divergence between two passes with different dropout; 0 for one pass. `loss` counts
            it in training only.
    """

    ACCURACY = "token_accuracy"

    def __init__(self, model: keras.Model, label_smoothing: float = 0.0, r_drop: float = 0.0):
        super().__init__(model, label_smoothing, r_drop)
        self._body = self._body_of(model)

    def _body_of(self, model):
        return model.without_logits()

    def call(self, inputs, training=None):
        """The vectors that the logits would be computed from, `(B, T, D)`; in training with `r_drop`, `(2B, T, D)`."""
        return self._vectors(_twice(inputs) if training and self.r_drop else inputs, training)

    def _vectors(self, inputs, training):
        return self._body(inputs, training=training)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """The mean loss of a token; `y_pred`, as Keras calls it, is what `call` gives, no predictions yet."""
        options = (self.label_smoothing, self.r_drop) if training else ()
        tokens = projected_cross_entropy(y_pred, *self.model.output_weights(), y, sample_weight, *options)
        weight = keras.ops.maximum(tokens.weight, 1e-7)  # a batch of padding only has the loss 0
        self._loss_metric.update_state(tokens.loss / weight, sample_weight=tokens.weight)
        self._accuracy_metric.update_state(tokens.correct / weight, sample_weight=tokens.weight)
        return tokens.loss / weight


class MaskedTokenPrediction(TokenPrediction):
    """Fits a `zoo.models.MaskedLanguageModel` by the cross-entropy of the tokens that were hidden: Devlin et al. 2019.

    Only the vectors at the hidden tokens are multiplied by the vocabulary, a seventh of all. Inputs have `places` in
    addition to those of the model: where the hidden tokens are, int `(B, M)`; labels and weights are `(B, M)`.

    Reference: https://arxiv.org/abs/1810.04805
    """

    def _body_of(self, model):
        return model.encoder

    def _vectors(self, inputs, training):
        # Only those that the logits of the hidden tokens are computed from, (B, M, D).
        inputs = dict(inputs)
        places = inputs.pop("places")  # (B, M)
        hidden = tf.gather(self._body(inputs, training=training), places, batch_dims=1)  # (B, M, D)
        return self.model.transformed(hidden)


class ClassPrediction(_Prediction):
    """Fits a `zoo.models.Classifier` by the cross-entropy of the classes, the mean over all texts with a weight.

    Batches are (inputs, labels `(B,)`, weights `(B,)`). Labels are smoothed in training only.

    Metrics: `loss`, and `accuracy`, the share of texts whose class has the highest logit. In both, a text counts by
    its weight.

    Args:
        model: a model from ids to logits `(B, C)`.
        label_smoothing: the share of probability, from 0 to less than 1, that is spread over all classes.
        r_drop: the weight of the divergence between two passes with different dropout; 0 for one pass. `loss` counts
            it in training only.
    """

    def call(self, inputs, training=None):
        """The logits: `(B, C)`, or `(2B, C)` in training with `r_drop`."""
        return self.model(_twice(inputs) if training and self.r_drop else inputs, training=training)

    def losses_and_correct(self, labels, logits, smoothing):
        """The loss of each text, and whether its class has the highest logit: float32 and bool `(B,)`."""
        log_probabilities = self.log_probabilities(logits)  # (B, C)
        of_labels = tf.gather(log_probabilities, labels, batch_dims=1)  # (B,)
        losses = -(1 - smoothing) * of_labels - smoothing * tf.reduce_mean(log_probabilities, axis=1)  # (B,)
        return losses, tf.argmax(logits, axis=1, output_type=labels.dtype) == labels

    def log_probabilities(self, logits):
        """The log-probabilities of the classes, `(B, C)`, from what `call` gives."""
        return tf.nn.log_softmax(logits)

    def divergences(self, first, second):
        """KL(p||q) + KL(q||p) of each text, from the logits `(B, C)` of two passes: float32 `(B,)`."""
        return tf.reduce_sum((tf.nn.softmax(first) - tf.nn.softmax(second)) * (first - second), axis=1)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """The mean loss of a text; `y_pred` are the logits."""
        twice = training and self.r_drop
        losses, correct = self.losses_and_correct(
            _twice(y) if twice else y, y_pred, self.label_smoothing if training else 0.0
        )
        correct = tf.cast(correct, tf.float32)
        if twice:
            losses, correct = (tf.add_n(tf.split(each, 2)) / 2 for each in (losses, correct))  # (B,)
            losses += self.r_drop / 4 * self.divergences(*tf.split(y_pred, 2))
        loss = tf.math.divide_no_nan(tf.reduce_sum(losses * sample_weight), tf.reduce_sum(sample_weight))
        self._loss_metric.update_state(losses, sample_weight=sample_weight)
        self._accuracy_metric.update_state(correct, sample_weight=sample_weight)
        return loss


class VotesPrediction(ClassPrediction):
    """Likewise for a classifier whose tokens vote, by the mean of the cross-entropies of a text's tokens.

        loss = -sum_c p_c votes_c,    p the smoothed label

    `call` gives the votes `(B, C)`, means of log-probabilities. They are not normalised again: then a token would
    learn only what the others leave open. `zoo.models.Classifier` says more. With `r_drop`, p and q at the top of this
    file are softmax(votes).

    Args:
        model: a `zoo.models.Classifier` with `pooling="votes"`.
        label_smoothing: as in `ClassPrediction`.
        r_drop: as in `ClassPrediction`.
    """

    def __init__(self, model: keras.Model, label_smoothing: float = 0.0, r_drop: float = 0.0):
        super().__init__(model, label_smoothing, r_drop)
        self._votes = model.votes()

    def call(self, inputs, training=None):
        """The votes: `(B, C)`, or `(2B, C)` in training with `r_drop`."""
        return self._votes(_twice(inputs) if training and self.r_drop else inputs, training=training)

    def log_probabilities(self, logits):
        """The votes are log-probabilities already."""
        return logits


class ClassesPrediction(ClassPrediction):
    """Likewise for texts that may belong to several classes, by the binary cross-entropy of each class.

        loss = -1/C sum_c [t_c log s(z_c) + (1 - t_c) log(1 - s(z_c))],   t_c = (1 - e) y_c + e / 2

    s is the sigmoid, e the label smoothing. Batches are (inputs, labels 0 or 1 `(B, C)`, weights `(B,)`). `accuracy` is
    the share of texts of which every class is right, if a probability above 0.5 counts as a yes.
    """

    def losses_and_correct(self, labels, logits, smoothing):
        """The loss of each text, and whether all its classes are right: float32 and bool `(B,)`."""
        targets = (1 - smoothing) * tf.cast(labels, logits.dtype) + smoothing / 2  # (B, C)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(targets, logits)  # (B, C)
        return tf.reduce_mean(losses, axis=1), tf.reduce_all((logits > 0) == (labels > 0), axis=1)

    def divergences(self, first, second):
        """The mean over the classes of both divergences: float32 `(B,)`. The logits of a yes and a no are z and 0."""
        return tf.reduce_mean((tf.sigmoid(first) - tf.sigmoid(second)) * (first - second), axis=1)


def _twice(inputs):
    """A nest of tensors with each of their rows twice: first all rows, then all rows again."""
    return tf.nest.map_structure(lambda each: tf.concat([each, each], axis=0), inputs)


class TokenLoss(NamedTuple):
    """Weighted sums over all tokens, scalars in float32.

    Attributes:
        loss: the loss that is minimised.
        correct: the weights of the tokens whose label has the highest logit.
        weight: all weights.
    """

    loss: tf.Tensor
    correct: tf.Tensor
    weight: tf.Tensor


def projected_cross_entropy(
    hidden, output_weights, bias, labels, sample_weights, label_smoothing=0.0, r_drop=0.0
) -> TokenLoss:
    """The cross-entropy between labels and the softmax of logits, which are computed here piece by piece.

        z = h W^T + b
        loss = sum_i w_i (log sum_v exp z_iv - (1 - e) z_i,label(i) - e mean_v z_iv)

    This is the cross-entropy with labels smoothed by e (Szegedy et al. 2016): 1 - e on the label, and e spread evenly
    over all V words. The logits are computed in the dtype of `hidden`, everything after in float32. With `r_drop`,
    `hidden` comes from two passes, and the loss is the one at the top of this file.

    It can be differentiated once, by `hidden`, `output_weights` and `bias`. All three gradients are computed together
    with the loss; if they are not used, the graph drops them.

    Axes: B batch, T target length, D width, V vocabulary; in the code N = B T tokens, or with `r_drop` 2 B T, and n
    tokens of a piece.

    Args:
        hidden: the vectors that the logits are computed from, h: `(B, T, D)`, or with `r_drop` `(2B, T, D)`, first
            all rows of one pass, then all rows of the other.
        output_weights: `(V, D)`, W.
        bias: `(V,)`, or None.
        labels: int `(B, T)`, from 0 to V - 1.
        sample_weights: `(B, T)`, w; 0 at padding.
        label_smoothing: e, from 0 to less than 1.
        r_drop: the weight of the divergence between the two passes, a; 0 if there is one pass.

    Returns:
        `TokenLoss`.

    References: https://arxiv.org/abs/1512.00567, https://arxiv.org/abs/2106.14448
    """
    width, vocabulary = output_weights.shape[1], output_weights.shape[0]
    passes = 2 if r_drop else 1
    pieces = passes * PIECES if vocabulary > SMALL_VOCABULARY else 1
    bias = tf.zeros([vocabulary]) if bias is None else tf.cast(bias, tf.float32)

    # One axis of tokens, N = B T; with R-Drop, N = 2 B T.
    labels = tf.reshape(tf.cast(labels, tf.int32), [-1])  # (B T,)
    sample_weights = tf.reshape(tf.cast(sample_weights, tf.float32), [-1])  # (B T,)
    vectors = tf.reshape(hidden, [-1, width])  # (N, D)
    if r_drop:
        # Both passes of a token become neighbours, so that they are in one piece. Each has half of its weight.
        vectors = tf.reshape(tf.stack(tf.split(vectors, 2), axis=1), [-1, width])  # (N, D)
        labels, sample_weights = tf.repeat(labels, 2), tf.repeat(sample_weights / 2, 2)  # (N,)

    # The gradient is written by hand, because autodiff would keep the logits of all pieces until the backward pass.
    # Here each piece's logits are used up, gradients included, while they are in the processor's cache; the residuals
    # are the gradients themselves, (N, D) + (V, D) numbers. See "translation training" in benchmarks/notes.md.
    @tf.custom_gradient
    def summed(vectors, weights, bias):
        narrow = tf.cast(weights, vectors.dtype)
        pieces_of = (_pieces(tensor, pieces, passes) for tensor in (vectors, labels, sample_weights))
        of_pieces = [_piece(*piece, narrow, bias, label_smoothing, r_drop) for piece in zip(*pieces_of, strict=True)]
        vectors_grad, *others = zip(*of_pieces, strict=True)
        loss, correct, weights_grad, bias_grad = map(tf.add_n, others)
        vectors_grad = tf.concat(vectors_grad, axis=0)[: tf.shape(vectors)[0]]  # (N, D)
        # The smoothed labels' own share of the last two gradients: e / V everywhere, and 1 - e at the label. It is
        # added here and not in the pieces, because a scatter passes over the whole (V, D) matrix.
        everywhere = label_smoothing / vocabulary * sample_weights  # (N,)
        at_label = (1 - label_smoothing) * sample_weights  # (N,)
        wide = tf.cast(vectors, tf.float32)
        weights_grad -= tf.linalg.matvec(wide, everywhere, transpose_a=True)  # (D,), the same for every word
        weights_grad = tf.tensor_scatter_nd_sub(weights_grad, labels[:, None], wide * at_label[:, None])  # (V, D)
        bias_grad = tf.tensor_scatter_nd_sub(bias_grad - tf.reduce_sum(everywhere), labels[:, None], at_label)  # (V,)

        def gradient(grad_output, _):
            of_vectors = tf.cast(grad_output * vectors_grad, vectors.dtype)
            return of_vectors, grad_output * weights_grad, grad_output * bias_grad

        return (loss, correct), gradient

    # Read before: without a graph, TensorFlow would take a variable for one that the function found by itself.
    loss, correct = summed(vectors, tf.convert_to_tensor(output_weights), bias)
    return TokenLoss(loss, correct, tf.reduce_sum(sample_weights))


def _pieces(tensor, number, together):
    """Divides the first axis into pieces of one size, a multiple of `together`, the last filled up with zeros."""
    size = together * -(-tf.shape(tensor)[0] // (number * together))
    padding = [[0, number * size - tf.shape(tensor)[0]]] + [[0, 0]] * (tensor.shape.rank - 1)
    return tf.unstack(tf.reshape(tf.pad(tensor, padding), [number, size, *tensor.shape[1:]]))


def _piece(vectors, labels, sample_weights, output_weights, bias, smoothing, r_drop):
    """Of some tokens: (gradient of vectors, loss, correct, gradients of weights and bias without the labels' share).

    With `r_drop`, rows 2i and 2i + 1 are the two passes of one token.
    """
    logits = tf.cast(tf.matmul(vectors, output_weights, transpose_b=True), tf.float32) + bias  # (n, V)
    highest = tf.reduce_max(logits, axis=1)  # (n,)
    powers = tf.exp(logits - highest[:, None])  # (n, V)
    total = tf.reduce_sum(powers, axis=1)  # (n,)
    label_logits = tf.gather(logits, labels, batch_dims=1)  # (n,)
    loss = highest + tf.math.log(total) - (1 - smoothing) * label_logits  # (n,)
    label_weights = tf.cast(tf.gather(output_weights, labels), tf.float32) * (1 - smoothing)  # (n, D)
    if smoothing:
        # The mean of all logits is the product with the mean of all weights, and takes no pass over the logits.
        mean = tf.reduce_mean(tf.cast(output_weights, tf.float32), axis=0)  # (D,)
        loss -= smoothing * (tf.linalg.matvec(tf.cast(vectors, tf.float32), mean) + tf.reduce_mean(bias))
        label_weights += smoothing * mean
    correct = tf.cast(label_logits >= highest, tf.float32)
    # The gradient of the logits, without the labels' share, is of_logits * scale. The scale goes to the narrow side of
    # both products: D numbers instead of V.
    if r_drop:
        # Of a pass with prediction p and logits y, beside q and z, the loss has the share a/2 sum_v p_v (y_v - z_v).
        # The gradient of both shares by y is a/2 (p_v (y_v - z_v - sum_u p_u (y_u - z_u)) + p_v - q_v).
        own = powers / total[:, None]  # (n, V)
        difference = logits - _neighbours_exchanged(logits)  # (n, V)
        divergence = tf.reduce_sum(own * difference, axis=1)  # (n,)
        loss += r_drop / 2 * divergence
        of_logits = own * (1 + r_drop / 2 * (1 + difference - divergence[:, None]))  # (n, V)
        of_logits -= r_drop / 2 * _neighbours_exchanged(own)
        scale = sample_weights  # (n,)
    else:
        of_logits, scale = powers, sample_weights / total  # (n, V), (n,)
    of_logits = tf.cast(of_logits, vectors.dtype)
    vectors_grad = tf.cast(tf.matmul(of_logits, output_weights), tf.float32) * scale[:, None]  # (n, D)
    vectors_grad -= sample_weights[:, None] * label_weights
    narrow_scale = tf.cast(scale, vectors.dtype)
    weights_grad = tf.matmul(of_logits, vectors * narrow_scale[:, None], transpose_a=True)  # (V, D)
    bias_grad = tf.linalg.matvec(of_logits, narrow_scale, transpose_a=True)  # (V,)
    sums = tf.reduce_sum(loss * sample_weights), tf.reduce_sum(correct * sample_weights)
    return vectors_grad, *sums, tf.cast(weights_grad, tf.float32), tf.cast(bias_grad, tf.float32)


def _neighbours_exchanged(tensor):
    """Each two rows in the other order: `(n, V)`."""
    pairs = tf.reshape(tensor, [-1, 2, tensor.shape[1]])  # (n / 2, 2, V)
    return tf.reshape(tf.reverse(pairs, [1]), tf.shape(tensor))  # (n, V)
