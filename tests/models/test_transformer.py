import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.decoding import greedy
from zoo.models import Transformer

# Vocabularies, widths and lengths that differ from each other; rows of all lengths, one without any token.
SIZES = dict(
    source_vocabulary_size=11,
    target_vocabulary_size=9,
    units=6,
    num_heads=3,
    feed_forward_units=10,
    encoder_layers=1,
    decoder_layers=2,
    dropout=0.0,
)
SOURCE = np.array([[4, 5, 6, 7, 3], [8, 3, 0, 0, 0], [0, 0, 0, 0, 0], [10, 9, 3, 0, 0]], "int32")
TARGET = np.array([[2, 4, 5], [2, 6, 7], [2, 4, 4], [2, 8, 0]], "int32")
BATCH = {"source": SOURCE, "target": TARGET}
KINDS = {
    "as in the paper": {},
    "one vocabulary, norm first": {"tied_embeddings": "all", "norm_first": True, "target_vocabulary_size": 11},
    "untied, learned": {"tied_embeddings": "none", "positions": "learned", "max_length": 8, "activation": "gelu"},
    "modern": {
        "positions": "rotary",
        "normalization": "rms",
        "norm_first": True,
        "activation": "swiglu",
        "use_bias": False,
        "tied_embeddings": "target",
    },
}


@pytest.fixture(scope="module", params=KINDS)
def model(request, randomize):
    """Of each kind one, with random weights. Tests leave it as it is."""
    return randomize(Transformer(**{**SIZES, **KINDS[request.param]}))


def step_through(model, source, target):
    """The logits of single steps, side by side, and their attention weights."""
    memory, cache = model.begin(source)
    logits, weights = [], []
    for i in range(target.shape[1]):
        one, cache, attention = model.step(target[:, i : i + 1], i, memory, cache)
        logits.append(one)
        weights.append(attention)
    return np.concatenate(logits, 1), weights


# What it computes.


def expected_logits(model, source, target, softmax):
    """Vaswani et al. 2017, section 3, for one row without padding: `(S,)` and `(T,)` -> `(T, V)`."""
    w = {weight.path: weight.numpy().astype("float64") for weight in model.weights}

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * w[f"{name}/gamma"] + w[f"{name}/beta"]

    def attention(x, memory, name, mask=True):
        def heads(inputs, part):
            return np.einsum("td,dhe->hte", inputs, w[f"{name}/{part}/kernel"]) + w[f"{name}/{part}/bias"][:, None]

        query, key, value = heads(x, "query"), heads(memory, "key"), heads(memory, "value")
        scores = np.einsum("hte,hse->hts", query, key) / np.sqrt(query.shape[-1])
        contexts = np.einsum("hts,hse->the", softmax(scores, mask), value)
        output = f"{name}/attention_output"
        return np.einsum("the,hed->td", contexts, w[f"{output}/kernel"]) + w[f"{output}/bias"]

    def feed_forward(x, name):
        hidden = np.maximum(x @ w[f"{name}/input/kernel"] + w[f"{name}/input/bias"], 0)
        return hidden @ w[f"{name}/output/kernel"] + w[f"{name}/output/bias"]

    def embed(ids, name):
        table = w[f"{name}_embedding/embeddings"]
        angles = np.arange(len(ids))[:, None] / 10_000 ** (2 * np.arange(3) / 6)
        waves = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(len(ids), 6)
        return table[ids] * np.sqrt(6) + waves

    memory = embed(source, "source")
    name = "encoder_layer_1"
    memory = norm(memory + attention(memory, memory, f"{name}/self_attention"), f"{name}/self_attention_norm")
    memory = norm(memory + feed_forward(memory, f"{name}/feed_forward"), f"{name}/feed_forward_norm")
    hidden, causal = embed(target, "target"), np.tril(np.ones((len(target), len(target)), bool))
    for name in ("decoder_layer_1", "decoder_layer_2"):
        attended = attention(hidden, hidden, f"{name}/self_attention", causal)
        hidden = norm(hidden + attended, f"{name}/self_attention_norm")
        attended = attention(hidden, memory, f"{name}/memory_attention")
        hidden = norm(hidden + attended, f"{name}/memory_attention_norm")
        hidden = norm(hidden + feed_forward(hidden, f"{name}/feed_forward"), f"{name}/feed_forward_norm")
    return hidden @ w["target_embedding/embeddings"].T


def test_computes_the_paper(randomize, numpy_softmax):
    model = randomize(Transformer(**SIZES))
    logits = model(BATCH)
    assert logits.dtype == "float32"
    for row in (0, 1, 3):
        source, target = SOURCE[row][SOURCE[row] != 0], TARGET[row][TARGET[row] != 0]
        expected = expected_logits(model, source, target, numpy_softmax)
        np.testing.assert_allclose(logits[row, : len(target)], expected, atol=2e-5)


@pytest.mark.parametrize(
    ("tied", "embeddings"),
    [
        ("none", {"source_embedding/embeddings", "target_embedding/embeddings", "logits/kernel", "logits/bias"}),
        ("target", {"source_embedding/embeddings", "target_embedding/embeddings"}),
        ("all", {"target_embedding/embeddings"}),
    ],
)
def test_ties_what_it_says(tied, embeddings):
    model = Transformer(**{**SIZES, "source_vocabulary_size": 9}, tied_embeddings=tied)
    assert {weight.path for weight in model.weights if "layer" not in weight.path} == embeddings


def test_the_tiny_configuration_has_the_size_that_papers_give():
    # Wu et al. 2021: 4 + 4 layers, width 128, feed-forward 256, 4 heads; 2.6M parameters with a joint vocabulary of
    # about 10,000, which all embeddings share.
    sizes = dict(units=128, num_heads=4, feed_forward_units=256, encoder_layers=4, decoder_layers=4)
    model = Transformer(10_000, 10_000, **sizes, tied_embeddings="all")
    encoder_layer = 4 * (128 * 128 + 128) + (2 * 128 * 256 + 256 + 128) + 2 * 256
    decoder_layer = encoder_layer + 4 * (128 * 128 + 128) + 256
    assert model.count_params() == 10_000 * 128 + 4 * encoder_layer + 4 * decoder_layer == 2_605_056


# What depends on what.


def test_a_token_changes_what_follows_it_and_nothing_before(model):
    before = np.array(model(BATCH))
    target = TARGET.copy()
    target[:, 1] = 3
    after = np.array(model({"source": SOURCE, "target": target}))
    np.testing.assert_array_equal(after[:, 0], before[:, 0])
    assert (np.abs(after - before)[:, 1:].max(-1) > 1e-4).all()


def test_padding_and_neighbours_change_nothing(model):
    batched = model({"source": np.pad(SOURCE, [(0, 0), (0, 2)]), "target": np.pad(TARGET, [(0, 0), (0, 1)])})
    for i, source in enumerate(SOURCE):
        alone = model({"source": source[source != 0][None], "target": TARGET[i : i + 1]})
        np.testing.assert_allclose(batched[i, :3], alone[0], atol=1e-5)


def test_each_source_token_matters(model):
    before = model(BATCH)
    for position in range(5):
        source = SOURCE.copy()
        source[0, position] = 9
        after = model({"source": source, "target": TARGET})
        assert np.abs(after[0] - before[0]).max() > 1e-4
        np.testing.assert_array_equal(after[1:], before[1:])


def test_the_order_of_the_source_matters(model):
    swapped = SOURCE[:, [1, 0, 2, 3, 4]]
    assert np.abs(model({"source": swapped, "target": TARGET}) - model(BATCH))[0].max() > 1e-3


def test_stepping_is_the_one_shot_pass(model):
    logits, weights = step_through(model, SOURCE, TARGET)
    np.testing.assert_allclose(logits, model(BATCH), atol=1e-5)
    for attention in weights:
        np.testing.assert_array_equal(np.array(attention)[:, 0] > 0, SOURCE != 0)
        np.testing.assert_allclose(np.sum(attention, -1)[:, 0], [1, 1, 0, 1], rtol=1e-6)


def test_hypotheses_step_side_by_side(model):
    memory, cache = model.begin(SOURCE)
    tokens = np.array([[2, 4, 5], [2, 6, 7], [2, 8, 8], [3, 4, 5]])  # B = 4, K = 3
    cache = tuple(tuple(np.repeat(each, 3, axis=1) for each in layer) for layer in cache)
    first, cache, _ = model.step(tokens, 0, memory, cache)
    second, cache, weights = model.step(tokens[:, ::-1], 1, memory, cache)
    assert second.shape == (4, 3, model.target_vocabulary_size)
    assert weights.shape == (4, 3, 5)
    assert {each.shape[:4] for layer in cache for each in layer} == {(4, 3, 3, 2)}
    # The source is kept once a row, whatever the number of hypotheses.
    assert {each.shape[0] for layer in memory["layers"] for each in layer} == {4}
    for k in range(3):
        alone, _ = step_through(model, SOURCE, np.stack([tokens[:, k], tokens[:, 2 - k]], 1))
        np.testing.assert_allclose(np.stack([first[:, k], second[:, k]], 1), alone, atol=1e-5)


def test_decodes_in_a_graph_of_unknown_sizes(model):
    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def decode(source):
        return greedy(model, source, tf.fill([tf.shape(source)[0]], 7), return_weights=True)

    hypotheses = decode(SOURCE)
    # Given what was decoded, the whole model finds the same token likeliest everywhere.
    ids = np.array(hypotheses.ids)
    previous = np.pad(ids[:, :-1], [(0, 0), (1, 0)], constant_values=2)
    logits = np.array(model({"source": SOURCE, "target": previous}))
    np.testing.assert_array_equal(np.where(ids != 0, logits[..., 3:].argmax(-1) + 3, 0), ids)
    for i, source in enumerate(SOURCE):
        alone = np.array(decode(source[source != 0][None]).ids)[0]
        np.testing.assert_array_equal(ids[i][ids[i] != 0], alone[alone != 0])


def test_runs_in_a_graph_of_unknown_sizes(model):
    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2)
    def call(source, target):
        return model({"source": source, "target": target})

    np.testing.assert_allclose(call(SOURCE, TARGET), model(BATCH), atol=1e-5)
    np.testing.assert_allclose(call(SOURCE[1:, :3], TARGET[1:, :1]), model(BATCH)[1:, :1], atol=1e-5)


# Training.


def test_gradients_reach_every_weight(model):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(BATCH) ** 2)
    for weight, gradient in zip(model.weights, tape.gradient(loss, model.trainable_weights), strict=True):
        assert gradient is not None, weight.path
        gradient = np.array(tf.convert_to_tensor(gradient))
        assert np.isfinite(gradient).all(), weight.path
        # All scores of a row move with the key's bias, which its softmax does not see, unless positions turn it.
        if not weight.path.endswith("key/bias"):
            assert np.abs(gradient).max() > 1e-4, weight.path


@pytest.mark.long
@pytest.mark.parametrize("jit_compile", [True, False], ids=["XLA", "graph"])
def test_fit_learns_to_reverse(jit_compile):
    keras.utils.set_random_seed(0)
    model = Transformer(**{**SIZES, "units": 24, "source_vocabulary_size": 8, "target_vocabulary_size": 8})
    model.compile(
        keras.optimizers.Adam(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=jit_compile,
    )
    source = np.random.default_rng(0).integers(4, 8, (64, 5))
    target = np.pad(source[:, :0:-1], [(0, 0), (1, 0)], constant_values=2)
    data = tf.data.Dataset.from_tensor_slices(({"source": source, "target": target}, source[:, ::-1])).batch(32)
    losses = model.fit(data.repeat(30), epochs=2, shuffle=False, verbose=0).history["loss"]
    assert losses[1] < losses[0] / 2


@pytest.mark.parametrize("rate", ["dropout", "attention_dropout", "feed_forward_dropout"])
def test_dropout_falls_in_training_only(rate):
    model = Transformer(**{**SIZES, rate: 0.5})
    np.testing.assert_array_equal(model(BATCH), model(BATCH, training=False))
    assert np.abs(model(BATCH, training=True) - model(BATCH)).max() > 0


# Keeping and precision.


def test_configuration_makes_the_model_again(model):
    config = model.get_config()
    again = Transformer.from_config(config)
    assert again.get_config() == config == model.get_config()
    again.set_weights(model.get_weights())
    np.testing.assert_array_equal(again(BATCH), model(BATCH))


def test_saved_and_loaded_it_gives_the_same(model, tmp_path):
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded) is Transformer
    assert loaded.get_config() == model.get_config()
    np.testing.assert_array_equal(loaded(BATCH), model(BATCH))
    np.testing.assert_array_equal(step_through(loaded, SOURCE, TARGET)[0], step_through(model, SOURCE, TARGET)[0])


@pytest.mark.parametrize(("policy", "precision"), [("mixed_bfloat16", 2**-8), ("mixed_float16", 2**-11)])
def test_lower_precision(model, policy, precision):
    low = Transformer(**{**model.get_config(), "dtype": policy})
    low.set_weights(model.get_weights())
    logits = low(BATCH)
    assert logits.dtype == "float32"
    scale = np.abs(model(BATCH)).max()
    np.testing.assert_allclose(logits, model(BATCH), rtol=0, atol=32 * precision * scale)
    np.testing.assert_allclose(step_through(low, SOURCE, TARGET)[0], logits, rtol=0, atol=8 * precision * scale)
    _, cache = low.begin(SOURCE)
    assert {each.dtype.name for layer in cache for each in layer} == {low.compute_dtype}


# A user's mistakes.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"units": 7}, r"^The width D must be a multiple of `num_heads`.*Received: D=7, num_heads=3"),
        ({"num_heads": 0}, r"^`num_heads` must be a positive integer\. Received: num_heads=0$"),
        ({"encoder_layers": 0}, r"^`encoder_layers` must be a positive integer\. Received: encoder_layers=0$"),
        ({"decoder_layers": 1.5}, r"^`decoder_layers` must be a positive integer\. Received: decoder_layers=1\.5$"),
        ({"feed_forward_units": -1}, r"^`feed_forward_units` must be a positive integer\."),
        ({"dropout": 1.0}, r"^`dropout` must be at least 0 and below 1\. Received: dropout=1\.0$"),
        ({"positions": "sine"}, r"^`positions` must be one of 'sinusoidal', 'learned', 'rotary'\."),
        ({"positions": "learned"}, r"^`positions='learned'` needs `max_length`\."),
        ({"activation": "tan"}, r"^`activation` must be one of 'gelu', .*Received: activation='tan'$"),
        ({"normalization": "batch"}, r"^`normalization` must be one of 'layer', 'rms'\."),
        ({"tied_embeddings": "source"}, r"^`tied_embeddings` must be one of 'none', 'target', 'all'\."),
        (
            {"tied_embeddings": "all"},
            r"needs one vocabulary.*source_vocabulary_size=11, target_vocabulary_size=9$",
        ),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        Transformer(**{**SIZES, **arguments})


# What it attends to.


def test_attention_maps_are_what_the_layers_return(model):
    """Each layer called by itself, with what the one before has given."""
    maps, source_maps = model.attention_maps(SOURCE, TARGET)
    sizes = (model.decoder_layers, model.num_heads, TARGET.shape[1], SOURCE.shape[1])
    assert tuple(maps.shape) == (len(SOURCE), *sizes)
    assert tuple(source_maps.shape) == (len(SOURCE), model.encoder_layers, model.num_heads, *2 * sizes[-1:])
    assert maps.dtype == source_maps.dtype == "float32"
    mask = SOURCE != 0
    # The functional graph knows what each layer is given.
    names = [f"encoder_layer_{n + 1}" for n in range(model.encoder_layers)]
    names += [f"decoder_layer_{n + 1}" for n in range(model.decoder_layers)]
    given = {name: model.get_layer(name).input for name in names}
    values = keras.Model({each.name: each for each in model.inputs}, given)(BATCH)
    for number in range(model.encoder_layers):
        name = f"encoder_layer_{number + 1}"
        inputs = keras.tree.flatten(values[name])[0]
        _, weights = model.get_layer(name)(inputs, mask=mask, return_attention_scores=True)
        np.testing.assert_allclose(source_maps[:, number], weights, atol=1e-6)
    for number in range(model.decoder_layers):
        name = f"decoder_layer_{number + 1}"
        inputs, memory = keras.tree.flatten(values[name])[:2]
        *_, weights = model.get_layer(name)(inputs, memory, memory_mask=mask, return_attention_scores=True)
        np.testing.assert_allclose(maps[:, number], weights, atol=1e-6)


def test_attention_maps_are_weights_on_what_is_no_padding(model):
    maps, source_maps = model.attention_maps(SOURCE, TARGET)
    for each in (np.array(maps), np.array(source_maps)):
        real = (SOURCE != 0)[:, None, None, None, :]
        assert not np.any(each * ~real)
        # The third row has no token: nothing to attend to.
        total = np.array([1, 1, 0, 1])[:, None, None, None]
        np.testing.assert_allclose(each.sum(-1), np.broadcast_to(total, each.shape[:-1]), atol=1e-5)
    assert np.ptp(maps, axis=(1, 2)).max() > 0.05, "heads and layers that are all alike would hide a mistake"


def test_attention_maps_agree_with_the_steps(model):
    maps, _ = model.attention_maps(SOURCE, TARGET)
    _, stepped = step_through(model, SOURCE, TARGET)
    real = (TARGET != 0)[:, :, None]  # what a row of padding attends to means nothing
    of_last_layer = np.mean(maps, axis=2)[:, -1]
    np.testing.assert_allclose(of_last_layer * real, np.concatenate(stepped, 1) * real, atol=1e-5)


def test_attention_maps_of_a_padded_source_are_those_of_the_source_alone(model):
    maps, source_maps = model.attention_maps(SOURCE[1:2], TARGET[1:2])
    alone, source_alone = model.attention_maps(SOURCE[1:2, :2], TARGET[1:2])
    np.testing.assert_allclose(maps[..., :2], alone, atol=1e-5)
    np.testing.assert_allclose(source_maps[..., :2, :2], source_alone, atol=1e-5)


def test_attention_maps_do_not_look_ahead(model):
    changed = TARGET.copy()
    changed[:, 2] = 7
    maps, _ = model.attention_maps(SOURCE, TARGET)
    others, _ = model.attention_maps(SOURCE, changed)
    np.testing.assert_array_equal(maps[..., :2, :], others[..., :2, :])
