"""What classifiers and masked language models are trained by, against Keras' own loss of all logits."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo_training.fitting.loss import ClassesPrediction, ClassPrediction, MaskedTokenPrediction, VotesPrediction

from zoo.models import Classifier, Encoder, MaskedLanguageModel, TokenClassifier


def encoder(size=13, **arguments):
    return Encoder(size, units=8, num_heads=2, num_layers=1, max_length=9, dropout=0, attention_dropout=0, **arguments)


def ids(rows, length, size=13, seed=0):
    random = np.random.default_rng(seed)
    shown = np.arange(length) < random.integers(2, length + 1, rows)[:, None]
    return random.integers(4, size, (rows, length), "int32") * shown


def gradients(objective, inputs, labels, weights):
    with tf.GradientTape() as tape:
        loss = objective.compute_loss(inputs, labels, objective(inputs, training=True), weights, training=True)
    return loss, tape.gradient(loss, objective.model.trainable_variables)


gradients_in_a_graph = tf.function(gradients, autograph=False)  # as in `fit`; one objective shows that it is the same


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_classes_by_keras_cross_entropy_of_one_hot_labels(smoothing):
    model = Classifier(encoder(), 3, dropout=0)
    inputs, labels = {"ids": ids(5, 7)}, np.array([0, 2, 1, 2, 0], "int32")
    weights = np.array([1.0, 0.0, 2.5, 1.0, 0.5], "float32")
    objective = ClassPrediction(model, smoothing)
    loss, ours = gradients(objective, inputs, tf.constant(labels), tf.constant(weights))
    with tf.GradientTape() as tape:
        crossed = keras.losses.CategoricalCrossentropy(True, smoothing, reduction=None)
        expected = tf.reduce_sum(crossed(np.eye(3)[labels], model(inputs)) * weights) / weights.sum()
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    for one, other in zip(ours, tape.gradient(expected, model.trainable_variables), strict=True):
        np.testing.assert_allclose(tf.convert_to_tensor(one), tf.convert_to_tensor(other), atol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_votes_by_keras_cross_entropy_of_each_token(smoothing):
    model = Classifier(encoder(), 3, dropout=0, pooling="votes")
    tokens = TokenClassifier(model.encoder, 3, dropout=0)
    tokens.set_weights(model.get_weights())
    inputs, labels = {"ids": ids(5, 7)}, np.array([0, 2, 1, 2, 0], "int32")
    weights = np.array([1.0, 0.0, 2.5, 1.0, 0.5], "float32")
    objective = VotesPrediction(model, smoothing)
    loss, ours = gradients(objective, inputs, tf.constant(labels), tf.constant(weights))
    shown = (inputs["ids"] > 0).astype("float32")  # (B, T)
    with tf.GradientTape() as tape:
        crossed = keras.losses.CategoricalCrossentropy(True, smoothing, reduction=None)
        of_tokens = crossed(np.repeat(np.eye(3)[labels][:, None], 7, axis=1), tokens(inputs))  # (B, T)
        of_texts = tf.reduce_sum(of_tokens * shown, axis=1) / shown.sum(1)  # (B,)
        expected = tf.reduce_sum(of_texts * weights) / weights.sum()
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    for one, other in zip(ours, tape.gradient(expected, tokens.trainable_variables), strict=True):
        np.testing.assert_allclose(tf.convert_to_tensor(one), tf.convert_to_tensor(other), atol=1e-6)


@pytest.mark.parametrize("smoothing", [0.3, pytest.param(0.0, marks=pytest.mark.long)])
def test_several_classes_of_a_text_by_keras_binary_cross_entropy(smoothing):
    model = Classifier(encoder(), 3, dropout=0, multi_label=True)
    inputs, weights = {"ids": ids(5, 7)}, np.array([1.0, 0.0, 2.5, 1.0, 0.5], "float32")
    labels = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1], [0, 0, 0]], "int32")
    objective = ClassesPrediction(model, smoothing)
    loss, ours = gradients(objective, inputs, tf.constant(labels), tf.constant(weights))
    with tf.GradientTape() as tape:
        crossed = keras.losses.BinaryCrossentropy(True, smoothing, reduction=None)
        expected = tf.reduce_sum(crossed(labels.astype("float32"), model(inputs)) * weights) / weights.sum()
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    for one, other in zip(ours, tape.gradient(expected, model.trainable_variables), strict=True):
        np.testing.assert_allclose(tf.convert_to_tensor(one), tf.convert_to_tensor(other), atol=1e-6)


def test_a_text_with_several_classes_is_right_if_all_are():
    logits = tf.constant([[2.0, -1.0, 0.5], [2.0, -1.0, 0.5], [-1.0, -2.0, -0.1], [3.0, 2.0, 1.0]])
    labels = tf.constant([[1, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0]])
    _, correct = ClassesPrediction(Classifier(encoder(), 3, multi_label=True)).losses_and_correct(labels, logits, 0.0)
    assert correct.numpy().tolist() == [True, False, True, False]


def test_an_epoch_counts_texts_by_their_weight_whatever_the_batches():
    model = Classifier(encoder(), 2, dropout=0)
    inputs, labels, weights = (
        ids(6, 7),
        np.array([0, 1, 1, 0, 1, 1], "int32"),
        np.array([1, 1, 1, 1, 0, 2.0], "float32"),
    )
    objective = ClassPrediction(model, label_smoothing=0.5)
    objective.compile(jit_compile=False)
    data = tf.data.Dataset.from_tensor_slices(({"ids": inputs}, labels, weights))
    scores = [objective.evaluate(data.batch(size), verbose=0, return_dict=True) for size in (6, 4)]
    logits = model.predict({"ids": inputs}, verbose=0)
    log_probabilities = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    loss = -(log_probabilities[np.arange(6), labels] * weights).sum() / 6  # validation is without smoothing
    accuracy = ((logits.argmax(1) == labels) * weights).sum() / 6
    for each in scores:
        assert (each["loss"], each["accuracy"]) == (pytest.approx(loss, rel=1e-5), pytest.approx(accuracy))


@pytest.mark.parametrize("unused", [(), (4, 7)])
def test_hidden_tokens_by_the_logits_of_all_places(unused):
    model = MaskedLanguageModel(encoder(), unused_ids=unused)
    model.output_bias.bias.assign(np.linspace(-1, 1, 13))
    inputs = ids(3, 7)
    places = np.array([[1, 3], [0, 1], [2, 5]], "int32")
    labels, weights = np.array([[5, 6], [8, 9], [12, 5]], "int32"), np.array([[1, 1], [1, 0], [0.5, 2]], "float32")
    objective = MaskedTokenPrediction(model)
    batch = {"ids": inputs, "places": places}, tf.constant(labels), tf.constant(weights)
    loss, ours = gradients_in_a_graph(objective, *batch)
    with tf.GradientTape() as tape:
        logits = tf.gather(model({"ids": inputs}), places, batch_dims=1)  # (B, M, V)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        expected = tf.reduce_sum(losses * weights) / weights.sum()
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    for one, other in zip(ours, tape.gradient(expected, model.trainable_variables), strict=True):
        np.testing.assert_allclose(tf.convert_to_tensor(one), tf.convert_to_tensor(other), atol=1e-6)


@pytest.mark.parametrize("several", [False, True], ids=["one class", "several classes"])
def test_r_drop_adds_the_divergences_of_two_passes(several):
    """By hand: equation 4 of Liang et al. 2021, halved; of several classes the mean over yes and no of each."""
    random = np.random.default_rng(0)
    first, second = logits = random.normal(size=(2, 5, 3))
    weights = np.array([1.0, 0.0, 2.5, 1.0, 0.5])
    if several:
        labels = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1], [0, 0, 0]])
        p, q = (np.stack([1 / (1 + np.exp(-each)), 1 / (1 + np.exp(each))], axis=-1) for each in logits)  # (B, C, 2)
        of_labels = np.stack([labels, 1 - labels], axis=-1) / 3
        divergences = ((p - q) * np.log(p / q)).sum((1, 2)) / 3  # in both directions
        losses = -(of_labels * (np.log(p) + np.log(q))).sum((1, 2))
    else:
        labels = np.array([0, 2, 1, 2, 0])
        p, q = (np.exp(each) / np.exp(each).sum(1, keepdims=True) for each in logits)
        divergences = ((p - q) * np.log(p / q)).sum(1)
        losses = -np.log(p * q)[np.arange(5), labels]
    expected = ((losses + 4.0 * divergences / 2) / 2 * weights).sum() / weights.sum()
    model = Classifier(encoder(), 3, multi_label=several)
    objective = (ClassesPrediction if several else ClassPrediction)(model, r_drop=4.0)
    batch = tf.constant(labels, tf.int32), tf.constant(np.concatenate([first, second]), tf.float32)
    loss = objective.compute_loss(None, *batch, tf.constant(weights, tf.float32), training=True)
    assert float(loss) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", [ClassPrediction, MaskedTokenPrediction])
def test_with_r_drop_each_text_is_read_twice_in_training_alone(kind):
    inputs = {"ids": ids(3, 7)}
    body = Encoder(13, units=8, num_heads=2, num_layers=1, max_length=9, dropout=0.5)
    if kind is ClassPrediction:
        objective = kind(Classifier(body, 4), r_drop=1.0)
    else:
        objective = kind(MaskedLanguageModel(body), r_drop=1.0)
        inputs["places"] = np.array([[1, 3], [0, 1], [2, 5]], "int32")
    inputs = {name: tf.constant(each) for name, each in inputs.items()}
    alone = objective(inputs, training=False)
    first, second = tf.split(objective(inputs, training=True), 2)
    assert first.shape == second.shape == alone.shape
    assert np.abs(first - second).max() > 0.01  # other dropout
