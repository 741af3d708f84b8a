"""The loss without logits, against the same loss of logits: by Keras, PyTorch, and NumPy in float64."""

import math
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo_training.fitting.loss import PIECES, SMALL_VOCABULARY, projected_cross_entropy

LARGE = SMALL_VOCABULARY + 1  # the smallest vocabulary that is divided
PADDED = [[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]


def case(shape=(3, 4), width=5, vocabulary=11, bias=True, seed=0, weights=None, scale=1.0):
    """(hidden, weights, bias, labels, sample weights) in float32; the sample weights are no ones and zeros only."""
    random = np.random.default_rng(seed)
    hidden = scale * random.normal(size=(*shape, width))
    output = random.normal(size=(vocabulary, width))
    labels = random.integers(0, vocabulary, shape)
    counted = random.uniform(0.2, 2, shape) if weights is None else np.array(weights)
    offsets = random.normal(size=vocabulary).astype("float32") if bias else None
    return (
        hidden.astype("float32"),
        output.astype("float32"),
        offsets,
        labels.astype("int32"),
        counted.astype("float32"),
    )


def by_hand(hidden, output, bias, labels, counted, smoothing):
    """(loss, right, gradients of hidden, weights and bias), all logits written out, in float64."""
    rows = hidden.reshape(-1, hidden.shape[-1]).astype("float64")
    labels, counted, output = labels.ravel(), counted.ravel().astype("float64"), output.astype("float64")
    logits = rows @ output.T + (0 if bias is None else bias.astype("float64"))
    wanted = np.full(logits.shape, smoothing / len(output))
    wanted[np.arange(len(rows)), labels] += 1 - smoothing
    highest = logits.max(axis=1, keepdims=True)
    log_softmax = logits - highest - np.log(np.exp(logits - highest).sum(axis=1, keepdims=True))
    loss = -(counted[:, None] * wanted * log_softmax).sum()
    right = counted[logits.argmax(axis=1) == labels].sum()
    of_logits = counted[:, None] * (np.exp(log_softmax) - wanted)
    return loss, right, (of_logits @ output).reshape(hidden.shape), of_logits.T @ rows, of_logits.sum(axis=0)


def with_gradients(hidden, output, bias, labels, counted, smoothing):
    """What `by_hand` gives, by the function that is tested."""
    sources = [tf.convert_to_tensor(each) for each in (hidden, output, bias) if each is not None]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        tokens = projected_cross_entropy(*sources, *([None] if bias is None else []), labels, counted, smoothing)
        twice = 2 * tokens.loss  # a gradient from above goes through
    gradients = tape.gradient(twice, sources)
    return tokens.loss, tokens.correct, *(gradient / 2 for gradient in gradients)


def check(arguments, smoothing, function=with_gradients, rtol=1e-5):
    found = function(*arguments, smoothing)
    for ours, wanted in zip(found, by_hand(*arguments, smoothing), strict=False):
        wanted = np.asarray(wanted)
        np.testing.assert_allclose(ours, wanted, rtol=rtol, atol=rtol * max(1e-2, np.abs(wanted).max()))
    return found


class TestAgainstNumPy:
    @pytest.mark.parametrize(
        ("vocabulary", "bias", "smoothing"), [(2, True, 0.9), (11, False, 0.1), (11, True, 0.0), (LARGE, True, 0.1)]
    )
    def test_value_right_ones_and_all_gradients(self, vocabulary, bias, smoothing):
        found = check(case(vocabulary=vocabulary, bias=bias), smoothing)
        assert len(found) == (5 if bias else 4)

    @pytest.mark.parametrize("shape", [(1, 1), (1, PIECES - 1), (PIECES, 1), (1, PIECES + 1), (3, 7)])
    def test_any_number_of_tokens(self, shape):
        """Also fewer than pieces, and numbers that the pieces do not divide; here all have one label."""
        hidden, output, bias, labels, counted = case(shape, vocabulary=LARGE)
        check((hidden, output, bias, np.full_like(labels, LARGE - 1), counted), 0.1)

    @pytest.mark.parametrize("vocabulary", [11, LARGE])
    def test_padding_takes_no_part(self, vocabulary):
        """Whatever stands there: rows and labels may be anything, and get no gradient."""
        hidden, output, bias, labels, counted = case(vocabulary=vocabulary, weights=PADDED)
        results = [check((hidden, output, bias, labels, counted), 0.1)]
        padding = counted == 0
        hidden, labels = np.where(padding[..., None], 50.0, hidden).astype("float32"), np.where(padding, 0, labels)
        results.append(check((hidden, output, bias, labels, counted), 0.1))
        assert not np.any(results[1][2].numpy()[padding])
        for one, other in zip(*results, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)

    def test_the_sum_of_all_weights_which_may_be_nothing(self):
        *_, counted = arguments = case()
        assert float(projected_cross_entropy(*arguments).weight) == pytest.approx(counted.sum(), rel=1e-6)
        found = with_gradients(*case(weights=np.zeros((3, 4))), 0.1)
        assert not any(np.any(each) for each in found)

    @pytest.mark.parametrize("smoothing", [0.0, 0.1])
    def test_logits_of_ten_thousands(self, smoothing):
        found = check(case(scale=1e4), smoothing)
        assert all(np.isfinite(each).all() for each in found)

    def test_uniform_logits_have_the_loss_of_a_guess(self):
        """By hand: log V a token, with any smoothing, and the label's gradient 1 - e + e / V less than the rest's."""
        hidden, output, bias, labels, _ = case(vocabulary=4)
        once = np.ones_like(labels, "float32")
        loss, _, _, _, of_bias = with_gradients(0 * hidden, output, 0 * bias, 0 * labels, once, 0.2)
        assert float(loss) == pytest.approx(12 * math.log(4), rel=1e-6)
        np.testing.assert_allclose(of_bias, 12 * np.array([0.25 - 0.85, 0.2, 0.2, 0.2]), rtol=1e-5)


class TestAgainstOthers:
    @pytest.mark.parametrize(("vocabulary", "smoothing"), [(11, 0.1), (LARGE, 0.0)])
    def test_keras(self, vocabulary, smoothing):
        """Labels as one-hot rows, which Keras smooths itself."""

        def dense(hidden, output, bias, labels, counted, smoothing):
            sources = [tf.constant(each) for each in (hidden, output, bias)]
            with tf.GradientTape() as tape:
                tape.watch(sources)
                logits = tf.einsum("btd,vd->btv", *sources[:2]) + sources[2]
                loss = keras.losses.CategoricalCrossentropy(True, smoothing, reduction="sum")
                loss = loss(tf.one_hot(labels, len(output)), logits, counted)
            right = keras.metrics.sparse_categorical_accuracy(labels, logits)
            return loss, tf.reduce_sum(right * counted), *tape.gradient(loss, sources)

        arguments = case(vocabulary=vocabulary, weights=PADDED)
        for ours, theirs in zip(with_gradients(*arguments, smoothing), dense(*arguments, smoothing), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)

    @pytest.mark.peers
    @pytest.mark.parametrize(("vocabulary", "smoothing"), [(11, 0.0), (LARGE, 0.1)])
    def test_torch(self, vocabulary, smoothing):
        import torch

        hidden, output, bias, labels, counted = case(vocabulary=vocabulary, weights=PADDED)
        sources = [torch.tensor(each, requires_grad=True) for each in (hidden, output, bias)]
        logits = (sources[0] @ sources[1].T + sources[2]).flatten(0, 1)
        wanted = torch.tensor(np.where(counted > 0, labels, -100)).flatten().long()
        loss = torch.nn.functional.cross_entropy(logits, wanted, reduction="sum", label_smoothing=smoothing)
        loss.backward()
        ours = with_gradients(hidden, output, bias, labels, counted, smoothing)
        np.testing.assert_allclose(ours[0], loss.item(), rtol=1e-5)
        for one, other in zip(ours[2:], sources, strict=True):
            np.testing.assert_allclose(one, other.grad, rtol=1e-4, atol=1e-5)


class TestPrecision:
    @pytest.mark.parametrize(("dtype", "rounding", "vocabulary"), [("bfloat16", 2**-8, 11), ("float16", 2**-11, LARGE)])
    def test_lower_precision_of_the_vectors(self, vocabulary, dtype, rounding):
        """Vectors and their gradient are narrow; loss, weights, bias and theirs are not."""
        width = 16
        hidden, output, bias, labels, counted = case((6, 8), width, vocabulary)
        # Some kernels add up a product of n terms in the narrow dtype. Each addition may be off by one rounding, in
        # either direction: like a random walk, together by sqrt(n / 3) roundings. The bound is twice that.
        tolerance = 2 * math.sqrt(max(vocabulary, width) / 3) * rounding
        narrow = tf.cast(hidden, dtype)
        found = with_gradients(narrow, output, bias, labels, counted, 0.1)
        wanted = by_hand(tf.cast(narrow, tf.float32).numpy(), output, bias, labels, counted, 0.1)
        assert [each.dtype.name for each in found] == ["float32", "float32", dtype, "float32", "float32"]
        assert float(found[0]) == pytest.approx(wanted[0], rel=tolerance)
        for ours, theirs in zip(found[2:], wanted[2:], strict=True):
            np.testing.assert_allclose(tf.cast(ours, tf.float32), theirs, rtol=0, atol=tolerance * np.abs(theirs).max())

    def test_a_mean_over_many_tokens_does_not_vanish_in_float16(self):
        """1 / N is added after the gradient of each token is known, not before."""
        hidden, output, bias, labels, counted = case((64, 64), 4, LARGE, weights=np.ones((64, 64)))
        source = tf.cast(hidden, tf.float16)
        with tf.GradientTape() as tape:
            tape.watch(source)
            tokens = projected_cross_entropy(source, output, bias, labels, counted)
            loss = 2.0**15 * tokens.loss / tokens.weight  # scaled, as Keras' LossScaleOptimizer does
        found = tf.cast(tape.gradient(loss, source), tf.float32) * 2.0**-15
        wanted = by_hand(hidden, output, bias, labels, counted, 0.0)[2] / 64**2
        np.testing.assert_allclose(found, wanted, rtol=0, atol=0.005 * np.abs(wanted).max())


class TestGraphs:
    @pytest.mark.parametrize(("vocabulary", "jit_compile"), [(11, True), (LARGE, False)])
    def test_compiled_for_any_number_of_tokens(self, vocabulary, jit_compile):
        hidden, output, bias, labels, counted = case(vocabulary=vocabulary)
        arrays = hidden, labels, counted
        signature = [tf.TensorSpec([None, None, *array.shape[2:]], array.dtype) for array in arrays]

        @tf.function(input_signature=signature, jit_compile=jit_compile, autograph=False)
        def compiled(hidden, labels, counted):
            return with_gradients(hidden, output, bias, labels, counted, 0.1)

        check((hidden, output, bias, labels, counted), 0.1, lambda h, o, b, lab, c, s: compiled(h, lab, c))


def r_drop_by_definition(hidden, output, bias, labels, counted, smoothing, weight):
    """(loss, right, gradients): equation 4 of Liang et al. 2021, halved, with in float64."""
    sources = [tf.cast(each, tf.float64) for each in (hidden, output, bias)]
    wanted = (1 - smoothing) * tf.one_hot(labels, len(output), dtype=tf.float64) + smoothing / len(output)
    with tf.GradientTape() as tape:
        tape.watch(sources)
        logits = tf.einsum("btd,vd->btv", *sources[:2]) + sources[2]
        p, q = (tf.nn.log_softmax(each) for each in tf.split(logits, 2))  # logarithms
        entropies = -tf.reduce_sum(wanted * (p + q), axis=-1)
        divergences = (tf.reduce_sum(tf.exp(one) * (one - other), axis=-1) for one, other in ((p, q), (q, p)))
        loss = entropies + weight * sum(divergences) / 2
        loss = tf.reduce_sum(counted * loss) / 2
    right = [counted[np.argmax(each, -1) == labels].sum() for each in (p, q)]
    return loss, sum(right) / 2, *tape.gradient(loss, sources)


class TestRDrop:
    @pytest.mark.parametrize(
        ("shape", "vocabulary", "smoothing", "jit_compile"),
        [
            ((3, 4), 11, 0.1, False),
            ((3, 7), LARGE, 0.1, False),
            ((1, 1), LARGE, 0.0, False),
            ((2, 5), LARGE, 0.1, True),
        ],
    )
    def test_against_its_definition(self, shape, vocabulary, smoothing, jit_compile):
        """One padded token; the number of pieces does not divide that of tokens."""
        _, output, bias, labels, counted = case(shape, vocabulary=vocabulary, scale=0.5)
        if counted.size > 1:
            counted[-1, -1] = 0
        hidden = case((2 * shape[0], shape[1]), seed=1, scale=0.5)[0]  # two passes
        sources = [tf.constant(each) for each in (hidden, output, bias)]

        def step(*sources):
            with tf.GradientTape() as tape:
                tape.watch(sources)
                tokens = projected_cross_entropy(*sources, labels, counted, smoothing, r_drop=3.0)
            return tokens.loss, tokens.correct, *tape.gradient(tokens.loss, sources), tokens.weight

        if jit_compile:
            step = tf.function(step, jit_compile=True, autograph=False)
        *found, weight = step(*sources)
        assert float(weight) == pytest.approx(counted.sum(), rel=1e-6)
        by_definition = r_drop_by_definition(hidden, output, bias, labels, counted, smoothing, 3.0)
        for ours, wanted in zip(found, by_definition, strict=True):
            wanted = np.asarray(wanted)
            np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5 * max(1, np.abs(wanted).max()))

    def test_two_equal_passes_have_the_loss_of_one(self):
        hidden, *others = case(vocabulary=LARGE)
        one = projected_cross_entropy(hidden, *others, 0.1)
        two = projected_cross_entropy(np.concatenate([hidden, hidden]), *others, 0.1, r_drop=5.0)
        for each, wanted in zip(two, one, strict=True):
            assert float(each) == pytest.approx(float(wanted), rel=1e-5)


def hlo(function, *arguments):
    """The program that XLA made of a function."""
    compiled = tf.function(function, jit_compile=True, autograph=False)
    return compiled.experimental_get_compiler_ir(*arguments)(stage="optimized_hlo")


def largest(program):
    """The number of elements of the largest array in a program."""
    shapes = re.findall(r"\b(?:f32|f16|bf16|s32|pred|u32)\[([\d,]+)\]", program)
    return max(math.prod(map(int, shape.split(","))) for shape in shapes)


def products(program):
    """The number of products of matrices in a program."""
    return len(re.findall(r"= \S+ (?:dot|custom-call)\(", program))


class TestCosts:
    TOKENS, WIDTH, VOCABULARY = 16 * 64, 8, 2000

    @pytest.fixture(scope="class")
    def arguments(self):
        arguments = case((16, 64), self.WIDTH, self.VOCABULARY, weights=np.ones((16, 64)))
        return [tf.constant(each) for each in arguments]

    def test_no_array_holds_all_logits(self, arguments):
        """Under XLA every shape is in the program; the largest are the logits of one piece, or weights."""

        def step(*arguments):
            return with_gradients(*arguments, 0.1)

        of_piece = self.TOKENS * self.VOCABULARY // PIECES
        program = hlo(step, *arguments)
        assert largest(program) == of_piece < self.TOKENS * self.VOCABULARY / 4
        assert products(program) >= 3 * PIECES

    def test_evaluation_computes_no_gradients(self, arguments):
        """Of three products a piece only one is left: the logits."""
        program = hlo(lambda *arguments: projected_cross_entropy(*arguments)[:2], *arguments)
        assert products(program) == PIECES
