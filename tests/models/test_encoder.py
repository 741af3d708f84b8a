"""Encoders, and the heads on top of them."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.models import (
    GPT,
    Classifier,
    Encoder,
    MaskedLanguageModel,
    NgramEncoder,
    RNNEncoder,
    SentenceEmbedder,
    TokenClassifier,
)
from zoo.models.ngram_encoder import ngram_keys

# Sizes that differ from each other; a row without padding, with it, and of a single token.
SIZES = dict(vocabulary_size=13, units=6, num_heads=3, num_layers=2, feed_forward_units=10, max_length=8)
IDS = np.array([[4, 5, 6, 7], [8, 9, 0, 0], [12, 0, 0, 0]], "int32")
SEGMENTS = np.array([[0, 0, 1, 1], [0, 1, 0, 0], [1, 0, 0, 0]], "int32")
KINDS = {
    "BERT": dict(num_segments=2),
    "modern": dict(positions="rotary", normalization="rms", norm_first=True, activation="swiglu", use_bias=False),
    "sinusoidal": dict(positions="sinusoidal", activation="relu", feed_forward_units=None),
}
HEADS = {
    "classifier": lambda encoder: Classifier(encoder, 5, pooling="attention", hidden_units=7),
    "voting classifier": lambda encoder: Classifier(encoder, 5, pooling="votes", hidden_units=7),
    "token classifier": lambda encoder: TokenClassifier(encoder, 5),
    "masked": lambda encoder: MaskedLanguageModel(encoder),
    "embedder": lambda encoder: SentenceEmbedder(encoder, embedding_units=7),
}


def inputs_of(model, rows=slice(None), length=4):
    inputs = {"ids": IDS[rows, :length], "segments": SEGMENTS[rows, :length]}
    return {name: inputs[name] for name in model.input}


@pytest.fixture(scope="module", params=[*KINDS, "recurrent", "n-grams"])
def encoder(request, randomize):
    if request.param == "n-grams":
        return randomize(NgramEncoder(13, units=6, longest=3, buckets=64))
    if request.param == "recurrent":
        return randomize(RNNEncoder(13, units=3, embedding_units=6, num_layers=2, cell="lstm"))
    return randomize(Encoder(**{**SIZES, **KINDS[request.param]}))


@pytest.fixture(scope="module", params=HEADS)
def head(request, randomize):
    return randomize(HEADS[request.param](Encoder(**SIZES, **KINDS["BERT"])))


# What they compute.


def bert(w, ids, segments, softmax):
    """Devlin et al. 2019, in NumPy: tokens `(T,)` without padding -> vectors `(T, D)` and weights `(N, H, T, T)`."""

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * w[f"{name}/gamma"] + w[f"{name}/beta"]

    def heads(x, name):
        return np.einsum("td,dhe->hte", x, w[f"{name}/kernel"]) + w[f"{name}/bias"][:, None]

    gelu = np.vectorize(lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2)
    h = w["token_embedding/embeddings"][ids] + w["positions/embeddings"][: len(ids)]
    h = norm(h + w["segment_embedding/embeddings"][segments], "embedding_norm")
    maps = []
    for name in ("layer_1", "layer_2"):
        query, key, value = (heads(h, f"{name}/self_attention/{part}") for part in ("query", "key", "value"))
        maps.append(softmax(np.einsum("hte,hse->hts", query, key) / np.sqrt(2)))
        context = np.einsum("hts,hse->hte", maps[-1], value)
        output = np.einsum("hte,hed->td", context, w[f"{name}/self_attention/attention_output/kernel"])
        h = norm(h + output + w[f"{name}/self_attention/attention_output/bias"], f"{name}/self_attention_norm")
        inner = gelu(h @ w[f"{name}/feed_forward/input/kernel"] + w[f"{name}/feed_forward/input/bias"])
        outer = inner @ w[f"{name}/feed_forward/output/kernel"] + w[f"{name}/feed_forward/output/bias"]
        h = norm(h + outer, f"{name}/feed_forward_norm")
    return h, np.array(maps)


def weights_of(model):
    return {weight.path: weight.numpy().astype("float64") for weight in model.weights}


def test_computes_bert(randomize, numpy_softmax):
    model = randomize(Encoder(**SIZES, **KINDS["BERT"]))
    vectors, maps = model(inputs_of(model)), model.attention_maps(**inputs_of(model))
    for row, length in enumerate((4, 2, 1)):
        expected = bert(weights_of(model), IDS[row, :length], SEGMENTS[row, :length], numpy_softmax)
        np.testing.assert_allclose(vectors[row, :length], expected[0], atol=2e-5)
        np.testing.assert_allclose(maps[row, :, :, :length, :length], expected[1], atol=1e-5)
        np.testing.assert_array_equal(maps[row, :, :, :length, length:], 0)


def test_a_head_may_be_cloned_and_be_a_part_of_another_model_that_is_saved(tmp_path, randomize):
    """With an activation that Keras does not have."""
    model = randomize(Classifier(Encoder(**SIZES), 3, hidden_units=7, activation="gelu_tanh"))
    inputs = inputs_of(model)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(clone(inputs), model(inputs))
    whole = keras.Model(model.input, keras.layers.Rescaling(2.0)(model.output))
    whole.save(tmp_path / "whole.keras")
    loaded = keras.models.load_model(tmp_path / "whole.keras")
    np.testing.assert_array_equal(loaded(inputs), 2 * np.array(model(inputs)))


def test_heads_compute_their_equations(head):
    """Of the encoder's vectors, which the test before checks."""
    inputs, w = inputs_of(head), weights_of(head)
    vectors, outputs = head.encoder(inputs).numpy().astype("float64"), head(inputs)
    for row, length in enumerate((4, 2, 1)):
        h = vectors[row, :length]
        if isinstance(head, Classifier) and head.pooling == "votes":
            z = np.tanh(h @ w["hidden/kernel"] + w["hidden/bias"]) @ w["logits/kernel"] + w["logits/bias"]  # (T, C)
            votes = (z - np.log(np.exp(z).sum(-1, keepdims=True))).mean(0)
            np.testing.assert_allclose(head.votes()(inputs)[row], votes, atol=1e-5)
            expected, found = np.sqrt(length) * votes, outputs[row]
        elif isinstance(head, Classifier):
            odds = np.exp(np.tanh(h @ w["pooling/key/kernel"] + w["pooling/key/bias"]) @ w["pooling/score/kernel"])
            weights = (odds / odds.sum())[:, 0]
            np.testing.assert_allclose(head.pooling_weights(**inputs)[row, :length], weights, atol=1e-5)
            hidden = np.tanh(weights @ h @ w["hidden/kernel"] + w["hidden/bias"])
            expected, found = hidden @ w["logits/kernel"] + w["logits/bias"], outputs[row]
        elif isinstance(head, TokenClassifier):
            expected, found = h @ w["logits/kernel"] + w["logits/bias"], outputs[row, :length]
        elif isinstance(head, MaskedLanguageModel):
            x = h @ w["transform/kernel"] + w["transform/bias"]
            x = x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2
            x = x - x.mean(-1, keepdims=True)
            x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * w["transform_norm/gamma"]
            x = x + w["transform_norm/beta"]
            expected = x @ w["token_embedding/embeddings"].T + w["output_bias/bias"]
            found = outputs[row, :length]
        else:
            expected = h.mean(0) @ w["projection/kernel"]
            expected, found = expected / np.linalg.norm(expected), outputs[row]
        np.testing.assert_allclose(found, expected, atol=5e-5)


def test_ids_that_are_never_predicted():
    model = MaskedLanguageModel(Encoder(**SIZES), unused_ids=[0, 5])
    logits = model(inputs_of(model)).numpy()
    assert (logits[..., [0, 5]] < -1e8).all()
    assert (np.delete(logits, [0, 5], axis=-1) > -1e3).all()


@pytest.mark.parametrize("pooling", ["first", "mean", "max"])
def test_poolings_of_a_classifier(pooling, randomize):
    model = randomize(Classifier(Encoder(**SIZES), 5, pooling=pooling))
    inputs, w = inputs_of(model), weights_of(model)
    h = model.encoder(inputs).numpy()[1, :2]
    pooled = {"first": h[0], "mean": h.mean(0), "max": h.max(0)}[pooling]
    np.testing.assert_allclose(model(inputs)[1], pooled @ w["logits/kernel"] + w["logits/bias"], atol=1e-5)
    with pytest.raises(ValueError, match="it was built without pooling='attention'"):
        model.pooling_weights(**inputs)


# What holds for all of them.


def alone_and_among_others(model):
    """The outputs of each row, in its batch and without neighbours and padding."""
    together = model(inputs_of(model))
    for row, length in enumerate((4, 2, 1)):
        single = model(inputs_of(model, slice(row, row + 1), length))[0]
        same = together[row, :length] if len(single.shape) == 2 else together[row]
        yield single, same


def test_a_row_does_not_depend_on_its_neighbours_and_padding(encoder):
    for single, same in alone_and_among_others(encoder):
        np.testing.assert_allclose(same, single, atol=2e-5)


def test_an_answer_does_not_depend_on_neighbours_and_padding(head):
    for single, same in alone_and_among_others(head):
        np.testing.assert_allclose(same, single, atol=2e-5)


def test_a_token_sees_what_is_before_and_behind_it(encoder):
    ids, other = IDS[:1].copy(), IDS[:1].copy()
    other[0, 2] = 11
    inputs = inputs_of(encoder, slice(0, 1))
    changed = np.abs(encoder({**inputs, "ids": ids}) - encoder({**inputs, "ids": other})).max(-1)[0]
    seen = np.arange(4) >= 2 if isinstance(encoder, NgramEncoder) else True  # it sees what is before alone
    np.testing.assert_array_equal(changed > 1e-4, np.broadcast_to(seen, 4))


@pytest.mark.parametrize("longest", [1, 3])
def test_a_token_sees_no_farther_than_the_longest_n_gram(longest, randomize):
    model, other = randomize(NgramEncoder(13, units=6, longest=longest)), np.full((1, 8), 5)
    other[0, 2] = 11
    changed = np.abs(model({"ids": np.full((1, 8), 5)}) - model({"ids": other})).max(-1)[0] > 1e-4
    assert np.flatnonzero(changed).tolist() == list(range(2, 2 + longest))


def check_saved(model, path):
    model.save(path)
    loaded = keras.models.load_model(path)
    assert type(loaded) is type(model)
    assert loaded.get_config() == model.get_config()
    np.testing.assert_array_equal(loaded(inputs_of(model)), model(inputs_of(model)))
    copy = type(model).from_config(model.get_config())
    assert [weight.shape for weight in copy.weights] == [weight.shape for weight in model.weights]


def test_a_saved_encoder_is_loaded_as_it_was(encoder, tmp_path):
    check_saved(encoder, tmp_path / "encoder.keras")


def test_a_saved_head_is_loaded_as_it_was(head, tmp_path):
    check_saved(head, tmp_path / "head.keras")


def test_a_text_without_tokens_has_an_answer(encoder, randomize):
    nothing = {name: np.zeros((2, 3), "int32") for name in encoder.input}
    assert np.isfinite(encoder(nothing)).all()
    np.testing.assert_array_equal(SentenceEmbedder(encoder)(nothing), 0)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_a_text_without_tokens_adds_nothing_to_the_gradient(policy, randomize):
    """The length of a zero vector has a steep derivative, which float16 cannot hold."""
    embedder = randomize(SentenceEmbedder(Encoder(**SIZES, dropout=0.0, dtype=policy), embedding_units=7))
    factors = np.random.default_rng(2).normal(size=7)

    def gradients(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(embedder({"ids": ids}) * factors)
        return [np.array(tf.convert_to_tensor(each)) for each in tape.gradient(loss, embedder.trainable_variables)]

    alone, beside = gradients(IDS[:1]), gradients(np.concatenate([IDS[:1], np.zeros((1, 4), "int32")]))
    for one, other in zip(alone, beside, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-2, atol=2e-2 * max(np.abs(each).max() for each in alone))


def test_a_frozen_encoder_stays_frozen_and_is_not_trained(tmp_path):
    model = Classifier(Encoder(**SIZES), 5)
    model.encoder.trainable = False
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert [weight.path for weight in loaded.trainable_weights] == ["logits/kernel", "logits/bias"]


def test_every_weight_has_a_gradient(head):
    with tf.GradientTape() as tape:
        outputs = head(inputs_of(head), training=True)
        loss = tf.reduce_sum(outputs * np.random.default_rng(1).normal(size=outputs.shape))
    for weight, gradient in zip(head.trainable_weights, tape.gradient(loss, head.trainable_variables), strict=True):
        assert gradient is not None, weight.path
        # A bias of the keys adds the same to all scores of a query.
        assert weight.path.endswith("key/bias") or np.abs(tf.convert_to_tensor(gradient)).max() > 0, weight.path


def test_lower_precision(head):
    """In float16, whose range is smaller than that of bfloat16, and whose rounding is finer: the bound is tight."""
    config = head.get_config()
    config["encoder"]["config"]["dtype"] = {"class_name": "DTypePolicy", "config": {"name": "mixed_float16"}}
    low = type(head).from_config(config)
    low.set_weights(head.get_weights())
    outputs, expected = low(inputs_of(head)), head(inputs_of(head))
    assert outputs.dtype == "float32"
    assert low.encoder.compute_dtype == "float16"
    # What stands at padding means nothing.
    real = (IDS > 0)[..., None] if len(outputs.shape) == 3 else 1
    scale = np.abs(expected * real).max()
    np.testing.assert_allclose(outputs * real, expected * real, rtol=0, atol=2**-6 * scale)


def test_n_grams_by_pythons_integers(randomize):
    model = randomize(NgramEncoder(13, units=6, longest=3, buckets=64))
    (table,) = (weight.numpy() for weight in model.weights)
    for row, vectors in zip(IDS, np.array(model({"ids": IDS})), strict=True):
        for place in np.flatnonzero(row):
            expected, key = 0.0, None
            for n in range(3):
                token = int(row[place - n]) if place >= n else 0
                key = token % 64 if key is None else (key * 20011 + token + 1) % 64
                expected = expected + table[key]
            np.testing.assert_allclose(vectors[place], expected, atol=1e-6)


def test_the_keys_of_the_largest_ids_do_not_overflow():
    ids = np.array([[1_000_000, 999_999, 65_535, 131_071, 7, 65_535]], "int32")
    for size, keys in enumerate(ngram_keys(tf.constant(ids), 4, 2**16), 1):
        for place in range(ids.shape[1]):
            key = int(ids[0, place]) % 2**16
            for back in range(1, size):
                key = (key * 20011 + (int(ids[0, place - back]) if place >= back else 0) + 1) % 2**16
            assert int(keys[0, place]) == key


@pytest.mark.parametrize("buckets", [2**16, 2**14, 2**10])
@pytest.mark.parametrize("size", [2, 3])
def test_few_n_grams_share_a_bucket(size, buckets):
    """All N n-grams of 30 letters use about as many rows as N random keys."""
    letters = np.stack(np.meshgrid(*[np.arange(4, 34)] * size), -1).reshape(-1, size)  # (N, n)
    keys = np.array(ngram_keys(tf.constant(letters, tf.int32), size, buckets)[-1])[:, -1]
    by_chance = buckets * (1 - (1 - 1 / buckets) ** len(keys))
    assert len(np.unique(keys)) > 0.9 * by_chance


@pytest.mark.long
def test_a_classifier_learns_which_token_decides():
    """Texts of random tokens, of which one says the class; its weight becomes the largest."""
    keras.utils.set_random_seed(1)
    random = np.random.default_rng(3)
    labels = random.integers(0, 3, 600)
    ids = random.integers(7, 13, (600, 6))
    places = random.integers(0, 6, 600)
    ids[np.arange(600), places] = 4 + labels
    model = Classifier(RNNEncoder(13, units=8, dropout=0.0), 3, pooling="attention", dropout=0.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss, jit_compile=False)
    model.optimizer.build(model.trainable_variables)  # otherwise the first step is traced twice
    model.fit({"ids": ids[:500]}, labels[:500], batch_size=50, epochs=6, verbose=0)
    assert (np.argmax(model({"ids": ids[500:]}), axis=-1) == labels[500:]).mean() > 0.97


# What they refuse.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"units": 7}, "must be a multiple of `num_heads`"),
        ({"num_layers": 0}, "`num_layers` must be"),
        ({"num_segments": -1}, "`num_segments` must be"),
        ({"positions": "relative"}, "`positions` must be one of"),
        ({"dropout": 1.5}, "`dropout` must be"),
        ({"epsilon": 0}, "`epsilon` must be"),
        ({"normalization": "batch"}, "`normalization` must be one of 'layer', 'rms'"),
        ({"activation": "relo"}, "`activation` must be one of"),
    ],
)
def test_arguments_out_of_range(changes, message):
    with pytest.raises(ValueError, match=message):
        Encoder(**{**SIZES, **changes})


def test_maps_without_the_segments_of_the_model_or_with_others_are_refused():
    ids = np.ones((1, 3), "int32")
    with pytest.raises(ValueError, match=r"^`segments` are missing\. Received: num_segments=2$"):
        Encoder(**{**SIZES, "num_segments": 2}).attention_maps(ids)
    with pytest.raises(ValueError, match=r"^`segments` are given to an encoder without any"):
        Encoder(**{**SIZES, "num_segments": 0}).attention_maps(ids, ids)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"longest": 0}, "`longest` must be"),
        ({"buckets": 2**17}, r"^`buckets` must be a power of two, at most 65536\. Received: buckets=131072$"),
        ({"buckets": 20_000}, r"^`buckets` must be a power of two, at most 65536\. Received: buckets=20000$"),
        ({"dropout": 1.5}, "`dropout` must be"),
    ],
)
def test_arguments_of_n_grams_out_of_range(changes, message):
    with pytest.raises(ValueError, match=message):
        NgramEncoder(13, **changes)


def test_a_text_longer_than_the_positions_is_refused():
    with pytest.raises(ValueError, match="max_length=8"):
        Encoder(**SIZES)({"ids": np.ones((1, 9), "int32")})


@pytest.fixture(scope="module")
def untrained():
    return Encoder(**SIZES)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda e: Classifier(e, 3, pooling="votes", multi_label=True),
            "`pooling='votes'` is for one class a text",
        ),
        (lambda e: SentenceEmbedder(e, pooling="votes"), "`pooling` must be one of"),
        (lambda e: Classifier(e, 3).votes(), "was built with pooling='mean'"),
        (lambda e: Classifier(e, 0), "`num_classes` must be"),
        (lambda e: Classifier(e, 3, pooling="sum"), "`pooling` must be one of"),
        (lambda e: Classifier(e, 3, hidden_units=0), "`hidden_units` must be"),
        (lambda e: TokenClassifier(e, 3, dropout=-1), "`dropout` must be"),
        (lambda e: SentenceEmbedder(e, embedding_units=0), "`embedding_units` must be"),
        (lambda e: SentenceEmbedder(keras.Sequential()), "`encoder` must be a model with an input `ids`"),
        (lambda e: TokenClassifier("encoder", 3), "`encoder` must be a model with an input `ids`"),
        (lambda e: Classifier(GPT(13, 6, 3, 1), 3), "`encoder` must be a model with an input `ids`"),
        (lambda e: MaskedLanguageModel(e, epsilon=-1), "`epsilon` must be a positive number"),
        (lambda e: MaskedLanguageModel(e, unused_ids=[13]), "`unused_ids` must be integers from 0 to 12"),
        (lambda e: MaskedLanguageModel(RNNEncoder(13, 4)), "embeddings of width 4, vectors of width 8"),
        (
            lambda e: MaskedLanguageModel(keras.Model(e.input, e.output, name="own")),
            "must have a `token_embedding` whose call takes `reverse`, as `zoo.models.Encoder` has. Received: .*own",
        ),
    ],
)
def test_what_heads_refuse(untrained, make, message):
    with pytest.raises(ValueError, match=message):
        make(untrained)


def test_an_embedding_that_only_looks_up_is_refused():
    encoder = Encoder(**SIZES)
    encoder = keras.Model(encoder.input, encoder.output, name="own")
    encoder.token_embedding = keras.layers.Embedding(13, encoder.output.shape[-1])
    with pytest.raises(ValueError, match=r"must have a `token_embedding` whose call takes `reverse`.* Received: .*own"):
        MaskedLanguageModel(encoder)
