import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.models import GPT
from zoo.testing import FamilyTests

# Sizes that differ from each other; rows of all lengths, one without any token.
SIZES = dict(vocabulary_size=13, units=12, num_heads=6, num_layers=2, context_length=16, feed_forward_units=10)
TOKENS = np.array([[4, 5, 6, 7, 8, 9], [5, 9, 3, 0, 0, 0], [0, 0, 0, 0, 0, 0], [12, 0, 0, 0, 0, 0]], "int32")
KINDS = {
    "GPT-2": {},
    "modern, untied": dict(
        positions="rotary",
        normalization="rms",
        activation="swiglu",
        use_bias=False,
        num_key_value_heads=2,
        tied_embeddings=False,
        unused_ids=(9, 10),
    ),
}


@pytest.fixture(scope="module", params=KINDS)
def model(request, randomize):
    """One model of every kind, with random weights. Tests leave it as it is."""
    return randomize(GPT(**{**SIZES, **KINDS[request.param]}))


class TestFamily(FamilyTests):
    without_gradient = ("key/bias",)  # it adds the same to all scores of a row
    test_an_export_says_the_same = None  # in tests/serving
    test_it_learns = None  # `test_fit_learns_to_count_under_xla` tests more

    @pytest.fixture(scope="class", autouse=True)
    def under_test(self, request, model):
        request.cls.model = model


def test_padding_of_a_prompt_may_stand_before_its_tokens_and_on_both_sides(model):
    suite = TestFamily()
    suite.model = model
    tokens = TestFamily.source
    expected = suite._alone(model, tokens, TestFamily.target)
    before = np.stack([np.concatenate([row[row == 0], row[row != 0]]) for row in tokens])
    both = np.pad([np.roll(row, 1) if row[-1] == 0 else row for row in tokens], [(0, 0), (2, 1)])
    for padded in (before, both):
        logits, _ = suite._stepped(model, padded, TestFamily.target)
        np.testing.assert_allclose(logits, expected, atol=2e-5)


# What it computes.


def test_computes_gpt_2(randomize, numpy_softmax):
    model = randomize(GPT(**SIZES))
    w = {weight.path: weight.numpy().astype("float64") for weight in model.weights}
    ids = TOKENS[0]

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * w[f"{name}/gamma"] + w[f"{name}/beta"]

    def heads(x, name):
        return np.einsum("td,dhe->hte", x, w[f"{name}/kernel"]) + w[f"{name}/bias"][:, None]

    hidden = w["embedding/embeddings"][ids] + w["positions/embeddings"][: len(ids)]
    for name in ("layer_1", "layer_2"):
        x, part = norm(hidden, f"{name}/self_attention_norm"), f"{name}/self_attention"
        query, key, value = (heads(x, f"{part}/{each}") for each in ("query", "key", "value"))
        scores = np.einsum("hte,hse->hts", query, key) / np.sqrt(12 / 6)
        contexts = np.einsum("hts,hse->the", numpy_softmax(scores, np.tril(np.ones((6, 6), bool))), value)
        output = f"{part}/attention_output"
        hidden = hidden + np.einsum("the,hed->td", contexts, w[f"{output}/kernel"]) + w[f"{output}/bias"]
        x, part = norm(hidden, f"{name}/feed_forward_norm"), f"{name}/feed_forward"
        x = x @ w[f"{part}/input/kernel"] + w[f"{part}/input/bias"]
        x = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))  # GPT-2's gelu
        hidden = hidden + x @ w[f"{part}/output/kernel"] + w[f"{part}/output/bias"]
    expected = norm(hidden, "norm") @ w["embedding/embeddings"].T
    np.testing.assert_allclose(model(TOKENS)[0], expected, atol=2e-5)


def test_the_defaults_are_gpt_2s():
    """124,439,808 parameters with its vocabulary, as the checkpoint has."""
    model = GPT(50_257, num_layers=1)
    layer = 4 * 768 * 768 + 2 * 768 * 3072 + 768 * 4 + 3072 + 768 + 4 * 768
    others = 50_257 * 768 + 1024 * 768 + 2 * 768
    assert model.count_params() == others + layer
    assert others + 12 * layer == 124_439_808


def test_kernels_into_the_residual_stream_start_smaller():
    weights = {weight.path: np.std(weight) for weight in GPT(64, units=96, num_heads=2, num_layers=8).weights}
    for name, deviation in weights.items():
        if name.endswith(("attention_output/kernel", "feed_forward/output/kernel")):
            assert abs(deviation - 0.02 / 4) < 0.0005, name  # 2 x 8 additions
        elif name.endswith(("kernel", "embeddings")):
            assert abs(deviation - 0.02) < 0.002, name


def test_unused_ids_are_never_predicted():
    logits = np.array(GPT(**SIZES, unused_ids=[6, 10])(TOKENS))
    unused = np.isin(np.arange(13), [6, 10])
    assert (logits[..., unused] < -1e8).all() and (np.abs(logits[..., ~unused]) < 1e3).all()


def test_positions_of_rows_that_have_ended_stay_inside_the_context(randomize):
    model = randomize(GPT(**{**SIZES, "context_length": 7}))
    memory, cache = model.begin(TOKENS)
    for position in range(3):  # the first row is full after one step
        logits, cache, _ = model.step(np.full((4, 1), 5), position, memory, cache)
    alone = np.concatenate([TOKENS[3, :1], [5, 5, 5]])[None]
    np.testing.assert_allclose(logits[3, 0], model(alone)[0, -1], atol=2e-5)
    assert np.isfinite(logits).all()


@pytest.mark.long
def test_fit_learns_to_count_under_xla():
    model = GPT(13, units=24, num_heads=3, num_layers=1, context_length=8)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, jit_compile=True)
    model.optimizer.build(model.trainable_variables)  # otherwise the first step is compiled twice
    tokens = 4 + (np.random.default_rng(0).integers(0, 9, (64, 1)) + np.arange(8)) % 9
    data = tf.data.Dataset.from_tensor_slices((tokens[:, :-1], tokens[:, 1:])).batch(32)
    losses = model.fit(data.repeat(30), epochs=2, shuffle=False, verbose=0).history["loss"]
    assert losses[1] < losses[0] / 4


def test_each_rate_reaches_the_layers_and_dropout_acts_in_training_only():
    """What the layers do with their rates is tested there."""
    rates = dict(dropout=0.1, attention_dropout=0.2, feed_forward_dropout=0.3)
    model = GPT(**SIZES, **rates)
    for layer in model.decoder:
        assert {name: getattr(layer, name) for name in rates} == rates
    assert model.embedding_dropout.rate == 0.1
    assert np.abs(model(TOKENS, training=True) - model(TOKENS)).max() > 0
    np.testing.assert_array_equal(model(TOKENS), model(TOKENS, training=False))


def test_the_cache_has_the_policys_type_and_the_groups_of_keys(model):
    low = GPT(**{**model.get_config(), "dtype": "mixed_float16"})
    _, cache = low.begin(TOKENS)
    assert {array.dtype.name for layer in cache for array in layer} == {"float16"}
    assert {array.shape for layer in cache for array in layer} == {(4, 1, model.num_key_value_heads or 6, 6, 2)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"units": 7}, r"^The width D must be a multiple of `num_heads`.*Received: D=7, num_heads=6"),
        ({"num_layers": 1.5}, r"^`num_layers` must be a positive integer\. Received: num_layers=1\.5$"),
        ({"context_length": 0}, r"^`context_length` must be a positive integer\."),
        ({"num_key_value_heads": 4}, r"num_key_value_heads"),
        ({"dropout": 1.0}, r"^`dropout` must be at least 0 and below 1\. Received: dropout=1\.0$"),
        ({"positions": "sinusoidal"}, r"^`positions` must be one of 'learned', 'rotary'\."),
        ({"unused_ids": [13]}, r"^`unused_ids` must be integers from 0 to 12\. Received: unused_ids=\(13,\)$"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        GPT(**{**SIZES, **arguments})


def test_attention_maps_are_what_the_layers_return(model):
    maps = model.attention_maps(TOKENS)
    assert tuple(maps.shape) == (4, 2, 6, 6, 6)
    given = {f"layer_{n}": model.get_layer(f"layer_{n}").input for n in (1, 2)}
    for number, (name, inputs) in enumerate(keras.Model(model.inputs, given)([TOKENS]).items()):
        _, weights = model.get_layer(name)(inputs, return_attention_scores=True)
        np.testing.assert_allclose(maps[:, number], weights, atol=1e-6)
