"""Training without logits, against the plain model compiled with Keras' own loss."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo_training.fitting.loss import TokenPrediction
from zoo_training.fitting.optimization import make_optimizer
from zoo_training.schema.recipe_tables import TrainingConfig

from zoo.models import RNNSeq2Seq, Transformer

SIZE = 13
LARGE = 1100  # a vocabulary that the loss divides


def transformer(ties="none", size=SIZE, **options):
    return Transformer(size, size, 8, 2, 16, 1, 1, **{"dropout": 0.0, "tied_embeddings": ties, **options})


def rnn(ties="none", size=SIZE, **options):
    return RNNSeq2Seq(size, size, units=8, readout_units=8, tied_embeddings=ties, **options)


def bigrams(size=SIZE, dropout=0.0):
    """A model that knows nothing but the last token, and so is traced at once."""
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in ("source", "target")}
    hidden = keras.layers.Dropout(dropout)(keras.layers.Embedding(size, 8)(inputs["target"]))
    logits = keras.layers.Dense(size, bias_initializer="random_normal")
    model = keras.Model(inputs, logits(hidden))
    model.without_logits = lambda: keras.Model(inputs, hidden)
    model.output_weights = lambda: (keras.ops.transpose(logits.kernel), logits.bias)
    return model


FAMILIES = {"transformer": transformer, "rnn": rnn}
both = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def batches(shapes, size=SIZE, seed=0):
    """Batches of random pairs whose targets are padded, each to another length."""
    random = np.random.default_rng(seed)
    for rows, length in shapes:
        lengths = random.integers(1, length + 1, rows)
        weights = (np.arange(length) < lengths[:, None]).astype("float32")
        source = random.integers(1, size, (rows, length + 1)).astype("int32")
        target, labels = (random.integers(1, size, (rows, length)) * weights.astype("int32") for _ in "ab")
        yield {"source": source, "target": target.astype("int32")}, labels.astype("int32"), weights


def dataset(batches):
    batches = list(batches)
    ids, weights = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, None], tf.float32)
    signature = {"source": ids, "target": ids}, ids, weights
    made = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=signature)
    return made.apply(tf.data.experimental.assert_cardinality(len(batches)))


UNEQUAL = [(4, 5), (1, 2), (6, 3), (3, 9)]


def twins(family, **options):
    """Two models with the same weights."""
    one, other = family(**options), family(**options)
    other.set_weights(one.get_weights())
    return one, other


def compiled(model, smoothing=0.0, r_drop=0.0, **config):
    prediction = TokenPrediction(model, smoothing, r_drop)
    config = TrainingConfig(**{"learning_rate": 1e-2, "jit_compile": False, **config})
    prediction.compile(make_optimizer(config, 10), jit_compile=config.jit_compile)
    prediction.optimizer.build(prediction.trainable_variables)  # otherwise the first step is traced twice
    return prediction


def tokens_loss(model, data, smoothing=0.0):
    """(mean loss of all tokens, share of right ones), by the logits in NumPy."""
    losses, right, weights = [], [], []
    for inputs, labels, counted in data:
        logits = np.array(model(inputs), "float64")
        log_softmax = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        at_label = np.take_along_axis(log_softmax, labels[..., None], axis=-1)[..., 0]
        losses.append(-((1 - smoothing) * at_label + smoothing * log_softmax.mean(axis=-1))[counted > 0])
        right.append((logits.argmax(axis=-1) == labels)[counted > 0])
        weights.append(counted[counted > 0])
    return np.concatenate(losses).mean(), np.concatenate(right).mean()


@pytest.mark.long
class TestTheSameTraining:
    @pytest.mark.parametrize(
        ("family", "ties", "jit_compile"),
        [(transformer, "all", True), (rnn, "target", False)],
    )
    def test_weights_after_some_steps(self, family, ties, jit_compile):
        ours, theirs = twins(family, ties=ties)
        data = dataset(itertools.islice(batches(itertools.repeat((4, 5))), 4))
        compiled(ours, jit_compile=jit_compile, epsilon=1e-3).fit(data, verbose=0, shuffle=False)
        loss = keras.losses.SparseCategoricalCrossentropy(True, reduction="mean_with_sample_weight")
        optimizer = make_optimizer(TrainingConfig(learning_rate=1e-2, epsilon=1e-3), 10)
        theirs.compile(optimizer, loss, run_eagerly=True)
        before = theirs.get_weights()
        theirs.fit(data, verbose=0, shuffle=False)
        assert np.abs(theirs.get_weights()[0] - before[0]).max() > 1e-3
        for one, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)

    @pytest.mark.parametrize(("family", "ties"), [(transformer, "target"), (rnn, "none")])
    def test_with_smoothed_labels_and_a_large_vocabulary(self, family, ties):
        ours, theirs = twins(family, ties=ties, size=LARGE)
        data = list(batches([(4, 5)] * 3, LARGE))
        compiled(ours, 0.1, epsilon=1e-3).fit(dataset(data), verbose=0, shuffle=False)
        optimizer = make_optimizer(TrainingConfig(learning_rate=1e-2, epsilon=1e-3), 10)
        loss = keras.losses.CategoricalCrossentropy(True, 0.1, reduction="mean_with_sample_weight")
        for inputs, labels, counted in data:
            with tf.GradientTape() as tape:
                value = loss(tf.one_hot(labels, LARGE), theirs(inputs, training=True), counted)
            variables = theirs.trainable_variables
            optimizer.apply(tape.gradient(value, variables), variables)
        for one, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


def test_it_trains_without_a_graph_too(eager):
    """As people do who look for an error, by `tf.config.run_functions_eagerly`."""
    model = rnn("target")
    data = list(batches([(4, 5)]))
    loss, right = tokens_loss(model, data)
    before = model.get_weights()
    logs = compiled(model).fit(dataset(data), verbose=0).history
    assert logs == {"loss": [pytest.approx(loss, rel=1e-5)], "token_accuracy": [pytest.approx(right, rel=1e-5)]}
    assert all(np.abs(one - other).max() > 0 for one, other in zip(model.get_weights(), before, strict=True))


class TestRDrop:
    @pytest.mark.long
    @pytest.mark.parametrize(("size", "jit_compile"), [(SIZE, True), (LARGE, False)])
    def test_without_dropout_the_training_is_the_same(self, size, jit_compile):
        """Both passes then agree, and their divergence and its gradient are 0."""
        one, two = twins(bigrams, size=size)
        data = dataset(batches([(4, 5)] * 3, size))
        histories = [
            compiled(model, 0.1, r_drop, epsilon=1e-3, jit_compile=jit_compile).fit(data, verbose=0, shuffle=False)
            for model, r_drop in ((one, 0.0), (two, 5.0))
        ]
        assert histories[1].history["loss"] == pytest.approx(histories[0].history["loss"], rel=1e-5)
        for first, second in zip(one.get_weights(), two.get_weights(), strict=True):
            np.testing.assert_allclose(first, second, rtol=0, atol=1e-5)

    def test_it_brings_predictions_with_dropout_together(self):
        def divergence(model):
            inputs = next(iter(batches([(8, 6)])))[0]
            p, q = (tf.nn.softmax(model(inputs, training=True)).numpy() for _ in "pq")
            return ((p - q) * np.log(p / q)).sum(-1).mean()

        found, data = [], dataset(list(batches([(8, 6)])))
        for r_drop in (0.0, 20.0):
            keras.utils.set_random_seed(0)
            model = bigrams(dropout=0.3)
            prediction = compiled(model, 0.0, r_drop, schedule="constant")
            before = prediction.evaluate(data, verbose=0)[0]
            prediction.fit(data.repeat(60), verbose=0, shuffle=False)
            assert prediction.evaluate(data, verbose=0)[0] < before - 0.5  # so the model knows more than nothing
            found.append(divergence(model))
        assert found[1] < found[0] / 2

    def test_validation_reads_each_batch_once(self):
        model, data = bigrams(dropout=0.5), list(batches(UNEQUAL))
        one, two = (compiled(model, 0.1, r_drop) for r_drop in (0.0, 5.0))
        inputs = data[0][0]
        assert [len(two(inputs, training=training)) for training in (False, True)] == [4, 8]
        assert one.evaluate(dataset(data), verbose=0) == two.evaluate(dataset(data), verbose=0)


class TestWithoutLogits:
    @pytest.mark.parametrize(("family", "ties"), [(transformer, "all"), (rnn, "none"), (rnn, "target")])
    def test_rows_times_weights_are_the_logits(self, family, ties, randomize):
        model = randomize(family(ties))
        ((inputs, *_),) = batches([(3, 4)])
        weights, bias = model.output_weights()
        assert tuple(weights.shape) == (SIZE, 8)
        assert (bias is None) == (ties != "none")
        logits = model.without_logits()(inputs) @ np.array(weights).T + (0 if bias is None else np.array(bias))
        np.testing.assert_allclose(logits, model(inputs), rtol=1e-4, atol=1e-5)

    @both
    def test_the_weights_are_shared_and_dropout_is_on_in_training_alone(self, family):
        model = family(dropout=0.5)
        prediction = TokenPrediction(model)
        assert {id(each) for each in prediction.trainable_variables} == {id(each) for each in model.trainable_variables}
        assert len(prediction.trainable_variables) == len(model.trainable_variables)
        ((inputs, *_),) = batches([(3, 4)])
        first, second = (np.array(prediction(inputs, training=True)) for _ in "ab")
        assert not np.array_equal(first, second)
        first, second = (np.array(prediction(inputs, training=False)) for _ in "ab")
        assert np.array_equal(first, second)


class TestMetrics:
    def test_both_logs_are_means_over_tokens_and_only_that_of_training_is_smoothed(self, randomize):
        """By hand, from the logits: a share of the label's log-probability becomes the mean of all."""
        model = randomize(bigrams())
        prediction = compiled(model, 0.3, learning_rate=1e-12)
        data = list(batches(UNEQUAL))
        loss, right = tokens_loss(model, data)
        found = prediction.evaluate(dataset(data), verbose=0, return_dict=True)
        assert found == {"loss": pytest.approx(loss, rel=1e-5), "token_accuracy": pytest.approx(right, rel=1e-5)}
        history = prediction.fit(dataset(data * 2), steps_per_epoch=4, epochs=2, verbose=0, shuffle=False).history
        smoothed, _ = tokens_loss(model, data, 0.3)
        assert set(history) == {"loss", "token_accuracy"}
        assert history["loss"] == [pytest.approx(smoothed, rel=1e-5)] * 2  # every epoch begins anew
        assert history["token_accuracy"] == [pytest.approx(right, rel=1e-5)] * 2

    def test_a_batch_without_a_token_that_counts(self):
        """It changes neither metrics nor, by itself, weights."""
        prediction = compiled(bigrams())
        before = prediction.model.get_weights()
        ((inputs, labels, counted),) = batches([(3, 4)])
        logs = prediction.train_on_batch(inputs, labels, 0 * counted, return_dict=True)
        assert logs == {"loss": 0, "token_accuracy": 0}
        for one, other in zip(prediction.model.get_weights(), before, strict=True):
            assert np.array_equal(one, other)
        data = list(batches(UNEQUAL))
        alone = prediction.evaluate(dataset(data), verbose=0)
        assert prediction.evaluate(dataset([*data, (inputs, labels, 0 * counted)]), verbose=0) == alone


@pytest.mark.long
class TestPrecision:
    def under(self, policy, make, **options):
        """A model that is made under a policy."""
        keras.config.set_dtype_policy(policy)
        try:
            return make(**options)
        finally:
            keras.config.set_dtype_policy("float32")

    @pytest.mark.parametrize(
        ("make", "policy", "jit_compile"), [(transformer, "mixed_float16", False), (bigrams, "mixed_bfloat16", True)]
    )
    def test_it_learns(self, make, policy, jit_compile):
        keras.utils.set_random_seed(0)
        model = self.under(policy, make, size=LARGE)
        prediction = compiled(model, 0.1, schedule="constant", jit_compile=jit_compile)
        assert prediction.compute_dtype == policy.removeprefix("mixed_")
        assert {each.dtype for each in prediction.trainable_variables} == {"float32"}
        data = dataset(list(batches([(4, 5)], LARGE)) * 12)
        losses = prediction.fit(data, epochs=2, verbose=0, shuffle=False).history["loss"]
        assert losses[1] < losses[0] - 0.1

    def test_a_scale_that_is_too_high_falls_until_steps_are_made(self):
        without_scale = compiled(self.under("mixed_bfloat16", bigrams)).optimizer
        assert type(without_scale) is not keras.optimizers.LossScaleOptimizer
        prediction = compiled(self.under("mixed_float16", bigrams))
        optimizer = prediction.optimizer
        assert type(optimizer) is keras.optimizers.LossScaleOptimizer
        optimizer.dynamic_scale.assign(2.0**40)
        data = dataset(list(batches([(4, 5)])) * 40)
        losses = prediction.fit(data, verbose=0, shuffle=False).history["loss"]
        assert 1 < float(optimizer.dynamic_scale) < 2.0**35
        assert int(optimizer.iterations) > 5
        assert np.isfinite(losses).all()
        assert all(np.isfinite(each).all() for each in prediction.model.get_weights())
