import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.models import Transformer
from zoo.testing import FamilyTests

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
    "modern, one vocabulary": dict(
        positions="learned",
        max_length=8,
        normalization="rms",
        norm_first=True,
        activation="swiglu",
        use_bias=False,
        target_vocabulary_size=11,
        tied_embeddings="all",
    ),
}


@pytest.fixture(scope="module", params=KINDS)
def model(request, randomize):
    """One model of every kind, with random weights. Tests leave it as it is."""
    return randomize(Transformer(**{**SIZES, **KINDS[request.param]}))


class TestFamily(FamilyTests):
    without_gradient = ("key/bias",)  # it adds the same number to all scores of a query
    test_an_export_says_the_same = None  # in tests/serving
    test_it_learns = None  # `test_fit_learns_to_reverse_under_xla`, in make test-long, tests more

    @pytest.fixture(scope="class", autouse=True)
    def under_test(self, request, model):
        request.cls.model = model


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


@pytest.mark.long
def test_fit_learns_to_reverse_under_xla():
    model = Transformer(**{**SIZES, "units": 24, "source_vocabulary_size": 8, "target_vocabulary_size": 8})
    model.compile(
        keras.optimizers.Adam(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=True,
    )
    model.optimizer.build(model.trainable_variables)  # otherwise the first step is compiled twice
    source = np.random.default_rng(0).integers(4, 8, (64, 5))
    target = np.pad(source[:, :0:-1], [(0, 0), (1, 0)], constant_values=2)
    data = tf.data.Dataset.from_tensor_slices(({"source": source, "target": target}, source[:, ::-1])).batch(32)
    losses = model.fit(data.repeat(30), epochs=2, shuffle=False, verbose=0).history["loss"]
    assert losses[1] < losses[0] / 2


def test_the_memory_is_kept_once_a_row_and_the_cache_has_the_policys_type(model):
    low = Transformer(**{**model.get_config(), "dtype": "mixed_float16"})
    memory, cache = low.begin(SOURCE)
    assert {array.dtype.name for layer in cache for array in layer} == {"float16"}
    assert {array.shape for layer in cache for array in layer} == {(4, 1, 3, 0, 2)}
    assert {array.shape for layer in memory["layers"] for array in layer} == {(4, 3, 5, 2)}


def test_each_rate_reaches_the_layers_and_dropout_acts_in_training_only():
    """What the layers do with their rates is tested there."""
    rates = dict(dropout=0.1, attention_dropout=0.2, feed_forward_dropout=0.3)
    model = Transformer(**{**SIZES, **rates})
    for layer in (*model.encoder, *model.decoder):
        assert {name: getattr(layer, name) for name in rates} == rates
    assert model.embedding_dropout.rate == 0.1
    np.testing.assert_array_equal(model(BATCH), model(BATCH, training=False))
    assert np.abs(model(BATCH, training=True) - model(BATCH)).max() > 0


# A user's mistakes.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"units": 7}, r"^The width D must be a multiple of `num_heads`.*Received: D=7, num_heads=3"),
        ({"encoder_layers": 0}, r"^`encoder_layers` must be a positive integer\. Received: encoder_layers=0$"),
        ({"decoder_layers": 1.5}, r"^`decoder_layers` must be a positive integer\. Received: decoder_layers=1\.5$"),
        ({"dropout": 1.0}, r"^`dropout` must be at least 0 and below 1\. Received: dropout=1\.0$"),
        ({"positions": "sine"}, r"^`positions` must be one of 'sinusoidal', 'learned', 'rotary'\."),
        ({"positions": "learned"}, r"^`positions='learned'` needs `max_length`\."),
        ({"tied_embeddings": "source"}, r"^`tied_embeddings` must be one of 'none', 'target', 'all'\."),
        ({"tied_embeddings": "all"}, r"needs one vocabulary.*source_vocabulary_size=11, target_vocabulary_size=9$"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        Transformer(**{**SIZES, **arguments})


# What it attends to.


def test_attention_maps_are_what_the_layers_return(model):
    """Each layer called alone, with what the functional graph gives it."""
    maps, source_maps, past_maps = model.attention_maps(SOURCE, TARGET)
    assert tuple(maps.shape) == (4, 2, 3, 3, 5) and tuple(source_maps.shape) == (4, 1, 3, 5, 5)
    assert tuple(past_maps.shape) == (4, 2, 3, 3, 3)
    assert maps.dtype == source_maps.dtype == past_maps.dtype == "float32"
    names = ("encoder_layer_1", "decoder_layer_1", "decoder_layer_2")
    layers = {name: model.get_layer(name) for name in names}
    given = {name: layer.input for name, layer in layers.items()}
    values = keras.Model({each.name: each for each in model.inputs}, given)(BATCH)
    for name, layer in layers.items():
        inputs = keras.tree.flatten(values[name])
        if name.startswith("encoder"):
            _, expected = layer(inputs[0], mask=SOURCE != 0, return_attention_scores=True)
            found = source_maps[:, 0]
        else:
            _, past, expected = layer(*inputs[:2], memory_mask=SOURCE != 0, return_attention_scores=True)
            found = maps[:, int(name[-1]) - 1]
            np.testing.assert_allclose(past_maps[:, int(name[-1]) - 1], past, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=name)


def test_attention_maps_agree_with_the_steps(model):
    maps, _, _ = model.attention_maps(SOURCE, TARGET)
    _, stepped = TestFamily()._stepped(model, SOURCE, TARGET)
    real = (TARGET != 0)[:, :, None]  # what a row of padding attends to means nothing
    of_last_layer = np.mean(maps, axis=2)[:, -1]
    np.testing.assert_allclose(of_last_layer * real, np.concatenate(stepped, 1) * real, atol=1e-5)
