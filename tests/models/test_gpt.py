import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.decoding import beam_search, greedy
from zoo.models import GPT

# Sizes that differ from each other; rows of all lengths, one without any token.
SIZES = dict(vocabulary_size=13, units=12, num_heads=6, num_layers=2, context_length=16, feed_forward_units=10)
TOKENS = np.array([[4, 5, 6, 7, 8, 9], [5, 9, 3, 0, 0, 0], [0, 0, 0, 0, 0, 0], [12, 0, 0, 0, 0, 0]], "int32")
MORE = np.array([[4, 7, 5], [12, 8, 4], [2, 6, 11], [3, 4, 10]], "int32")
KINDS = {
    "GPT-2": {},
    "modern": {
        "positions": "rotary",
        "normalization": "rms",
        "activation": "swiglu",
        "use_bias": False,
        "num_key_value_heads": 2,
    },
    "untied": {"tied_embeddings": False},
}


@pytest.fixture(scope="module", params=KINDS)
def model(request, randomize):
    """Of each kind one, with random weights. Tests leave it as it is."""
    return randomize(GPT(**{**SIZES, **KINDS[request.param]}))


def step_through(model, tokens, more):
    """The logits of single steps after a prompt, side by side."""
    memory, cache = model.begin(tokens)
    logits = []
    for i in range(more.shape[1]):
        one, cache, weights = model.step(more[:, i : i + 1], i, memory, cache)
        logits.append(one)
        assert weights is None
    return np.concatenate(logits, 1)


def one_shot(model, tokens, more):
    """The same for each row alone, with all tokens at once and no padding."""
    alone = [np.concatenate([row[row != 0], new]) for row, new in zip(tokens, more, strict=True)]
    return np.stack([np.array(model(row[None]))[0, -more.shape[1] :] for row in alone])


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
    logits = model(TOKENS)
    assert logits.dtype == "float32"
    np.testing.assert_allclose(logits[0], expected, atol=2e-5)


def test_the_defaults_are_gpt_2s():
    """124,439,808 parameters with its vocabulary, as the checkpoint has."""
    model = GPT(50_257, num_layers=1)
    layer = 4 * 768 * 768 + 2 * 768 * 3072 + 768 * 4 + 3072 + 768 + 4 * 768
    others = 50_257 * 768 + 1024 * 768 + 2 * 768
    assert model.count_params() == others + layer
    assert others + 12 * layer == 124_439_808


def test_what_is_added_up_begins_smaller_by_the_root_of_how_often():
    keras.utils.set_random_seed(0)
    weights = {weight.path: np.std(weight) for weight in GPT(64, units=96, num_heads=2, num_layers=8).weights}
    for name, deviation in weights.items():
        if name.endswith(("attention_output/kernel", "feed_forward/output/kernel")):
            assert abs(deviation - 0.02 / 4) < 0.0005, name
        elif name.endswith(("kernel", "embeddings")):
            assert abs(deviation - 0.02) < 0.002, name


# What depends on what.


def test_a_token_changes_what_follows_it_and_nothing_before(model):
    before = np.array(model(TOKENS))
    tokens = TOKENS.copy()
    tokens[0, 2] = 11
    after = np.array(model(tokens))
    np.testing.assert_array_equal(after[0, :2], before[0, :2])
    assert (np.abs(after - before)[0, 2:].max(-1) > 1e-4).all()
    np.testing.assert_array_equal(after[1:], before[1:])


def test_the_order_matters(model):
    swapped = TOKENS[:1, [1, 0, 2, 3, 4, 5]]
    assert np.abs(np.array(model(swapped) - model(TOKENS[:1]))[0, 2:]).max() > 1e-3


@pytest.mark.parametrize("side", ["behind", "before", "both"])
def test_stepping_is_the_one_shot_pass_of_each_row_alone(model, side):
    """Of prompts of different lengths, wherever their padding stands."""
    tokens = TOKENS
    if side == "before":
        tokens = np.stack([np.concatenate([row[row == 0], row[row != 0]]) for row in TOKENS])
    if side == "both":
        tokens = np.pad([np.roll(row, 1) if row[-1] == 0 else row for row in TOKENS], [(0, 0), (2, 1)])
    np.testing.assert_allclose(step_through(model, tokens, MORE), one_shot(model, TOKENS, MORE), atol=1e-5)


def test_hypotheses_step_side_by_side(model):
    memory, cache = model.begin(TOKENS)
    tokens = np.array([[2, 4, 5], [2, 6, 7], [2, 8, 8], [3, 4, 5]])  # B = 4, K = 3
    cache = tuple(tuple(np.repeat(each, 3, axis=1) for each in layer) for layer in cache)
    first, cache, _ = model.step(tokens, 0, memory, cache)
    second, cache, _ = model.step(tokens[:, ::-1], 1, memory, cache)
    groups = model.num_key_value_heads or 6
    assert {each.shape for layer in cache for each in layer} == {(4, 3, groups, 6 + 2, 2)}
    for k in range(3):
        alone = one_shot(model, TOKENS, np.stack([tokens[:, k], tokens[:, 2 - k]], 1))
        np.testing.assert_allclose(np.stack([first[:, k], second[:, k]], 1), alone, atol=1e-5)


@pytest.mark.parametrize("beams", [1, 3])
def test_decodes_in_a_graph_of_unknown_sizes(model, beams):
    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def decode(tokens):
        limits = tf.fill([tf.shape(tokens)[0]], 7)
        if beams == 1:
            return greedy(model, tokens, limits).ids
        return beam_search(model, tokens, limits, beams).ids[:, 0]

    ids = np.array(decode(TOKENS))
    for row, found in zip(TOKENS, ids, strict=True):
        alone = np.array(decode(row[None]))[0]
        np.testing.assert_array_equal(found[found != 0], alone[alone != 0])
    if beams == 1:  # given what was decoded, the whole model finds the same tokens likeliest
        previous = np.pad(ids[:, :-1], [(0, 0), (1, 0)], constant_values=2)
        logits = one_shot(model, TOKENS, np.where(previous == 0, 4, previous))
        np.testing.assert_array_equal(np.where(ids != 0, logits[..., 3:].argmax(-1) + 3, 0), ids)


# Training.


def test_gradients_reach_every_weight(model):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(TOKENS) ** 2)
    for weight, gradient in zip(model.weights, tape.gradient(loss, model.trainable_weights), strict=True):
        gradient = np.array(tf.convert_to_tensor(gradient))
        assert np.isfinite(gradient).all(), weight.path
        if not weight.path.endswith("key/bias"):  # which moves all scores of a row alike
            assert np.abs(gradient).max() > 1e-4, weight.path


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [True, False], ids=["XLA", "graph"])
def test_fit_learns_to_count(jit_compile):
    keras.utils.set_random_seed(0)
    model = GPT(13, units=24, num_heads=3, num_layers=2, context_length=8)
    model.compile(
        keras.optimizers.Adam(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=jit_compile,
    )
    tokens = 4 + (np.random.default_rng(0).integers(0, 9, (64, 1)) + np.arange(8)) % 9
    data = tf.data.Dataset.from_tensor_slices((tokens[:, :-1], tokens[:, 1:])).batch(32)
    losses = model.fit(data.repeat(30), epochs=2, shuffle=False, verbose=0).history["loss"]
    assert losses[1] < losses[0] / 4


def test_the_rows_before_the_last_product(model):
    weights, bias = model.output_weights()
    assert bias is None
    rows = model.without_logits()(TOKENS)
    np.testing.assert_allclose(np.array(rows) @ np.array(weights).T, model(TOKENS), atol=1e-5)


@pytest.mark.parametrize("rate", ["dropout", "attention_dropout", "feed_forward_dropout"])
def test_dropout_falls_in_training_only(rate):
    model = GPT(**SIZES, **{rate: 0.5})
    np.testing.assert_array_equal(model(TOKENS), model(TOKENS, training=False))
    assert np.abs(model(TOKENS, training=True) - model(TOKENS)).max() > 0


# Keeping and precision.


def test_saved_and_loaded_it_gives_the_same(model, tmp_path):
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded) is GPT
    assert loaded.get_config() == model.get_config()
    np.testing.assert_array_equal(loaded(TOKENS), model(TOKENS))
    np.testing.assert_array_equal(step_through(loaded, TOKENS, MORE), step_through(model, TOKENS, MORE))


@pytest.mark.parametrize(("policy", "precision"), [("mixed_bfloat16", 2**-8), ("mixed_float16", 2**-11)])
def test_lower_precision(model, policy, precision):
    low = GPT(**{**model.get_config(), "dtype": policy})
    low.set_weights(model.get_weights())
    logits = low(TOKENS)
    assert logits.dtype == "float32"
    scale = np.abs(model(TOKENS)).max()
    np.testing.assert_allclose(logits, model(TOKENS), rtol=0, atol=32 * precision * scale)
    stepped = step_through(low, TOKENS, MORE)
    np.testing.assert_allclose(stepped, one_shot(low, TOKENS, MORE), rtol=0, atol=8 * precision * scale)
    _, cache = low.begin(TOKENS)
    assert {each.dtype.name for layer in cache for each in layer} == {low.compute_dtype}


# A user's mistakes.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"units": 7}, r"^The width D must be a multiple of `num_heads`.*Received: D=7, num_heads=6"),
        ({"num_heads": 0}, r"^`num_heads` must be a positive integer\. Received: num_heads=0$"),
        ({"num_layers": 1.5}, r"^`num_layers` must be a positive integer\. Received: num_layers=1\.5$"),
        ({"context_length": 0}, r"^`context_length` must be a positive integer\."),
        ({"feed_forward_units": -1}, r"^`feed_forward_units` must be a positive integer\."),
        ({"feed_forward_units": 0}, r"^`feed_forward_units` must be a positive integer\."),
        ({"num_key_value_heads": 4}, r"num_key_value_heads"),
        ({"dropout": 1.0}, r"^`dropout` must be at least 0 and below 1\. Received: dropout=1\.0$"),
        ({"positions": "sinusoidal"}, r"^`positions` must be one of 'learned', 'rotary'\."),
        ({"activation": "tan"}, r"^`activation` must be one of 'gelu', .*Received: activation='tan'$"),
        ({"normalization": "batch"}, r"^`normalization` must be one of 'layer', 'rms'\."),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        GPT(**{**SIZES, **arguments})


# What it attends to.


def test_attention_maps_are_what_the_layers_return(model):
    maps = model.attention_maps(TOKENS)
    assert tuple(maps.shape) == (4, 2, 6, 6, 6)
    given = {f"layer_{n}": model.get_layer(f"layer_{n}").input for n in (1, 2)}
    for number, (name, inputs) in enumerate(keras.Model(model.inputs, given)(TOKENS).items()):
        _, weights = model.get_layer(name)(inputs, return_attention_scores=True)
        np.testing.assert_allclose(maps[:, number], weights, atol=1e-6)
    assert not np.triu(maps, 1).any()
    np.testing.assert_allclose(np.sum(maps, -1), 1, atol=1e-5)
