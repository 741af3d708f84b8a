import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.models import RNNSeq2Seq
from zoo.testing import FamilyTests

KINDS = [  # attention, cell, conditional, layers of the encoder
    ("additive", "gru", False, 1),
    ("dot", "lstm", False, 2),
    ("scaled", "gru", False, 1),
    ("general", "lstm", False, 1),
    ("concat", "gru", False, 1),
    (None, "lstm", False, 2),
    (None, "gru", False, 1),
    ("additive", "gru", True, 3),
    ("general", "lstm", True, 1),
]

# Vocabularies, widths and lengths that differ from each other; rows of all lengths, one without any token.
SIZES = dict(source_vocabulary_size=11, target_vocabulary_size=9, units=6, embedding_dim=5, readout_units=4)
TIED = {**SIZES, "target_vocabulary_size": 11, "readout_units": 5}
SOURCE = np.array([[4, 5, 6, 7, 3], [8, 3, 0, 0, 0], [0, 0, 0, 0, 0], [10, 9, 3, 0, 0]], "int32")
TARGET = np.array([[2, 4, 5], [2, 6, 7], [2, 4, 4], [2, 8, 0]], "int32")
BATCH = {"source": SOURCE, "target": TARGET}


# These kinds have every part of the family once but the defaults, which `test_ensemble.py` has.
FAMILIES = {
    "no attention, tied, two layers": {"attention": None, "tied_embeddings": "all", "encoder_layers": 2, **TIED},
    "LSTM, conditional, tied": {"cell": "lstm", "conditional": True, "tied_embeddings": "target", **TIED},
}


class TestFamily(FamilyTests):
    test_an_export_says_the_same = None  # in tests/serving
    test_it_learns = None  # `test_fit_learns_from_batches_of_two_shapes_under_xla` tests more

    @pytest.fixture(scope="class", autouse=True, params=FAMILIES)
    def under_test(self, request, randomize):
        request.cls.model = randomize(RNNSeq2Seq(**{**SIZES, **FAMILIES[request.param]}))


# What it computes.


def expected_logits(model, source, target, numpy_steps, numpy_softmax):
    """The equations of the class, for one row: `(S,)` and `(T,)` -> `(T, V)`."""
    w = {weight.path: weight.numpy().astype("float64") for weight in model.weights}
    step, kept = numpy_steps[model.cell], {"gru": 1, "lstm": 2}[model.cell]

    def cell(name):
        return [w[f"{name}/{part}"] for part in ("kernel", "recurrent_kernel", "bias")]

    def dense(x, name):
        return x @ w[f"{name}/kernel"] + w[f"{name}/bias"]

    def read(inputs, name):
        weights = cell(name)
        states, hidden = (np.zeros(len(weights[1])),) * kept, np.zeros((len(inputs), len(weights[1])))
        for i, vector in enumerate(inputs):
            states = step(vector, states, *weights)
            hidden[i] = states[0]
        return hidden, states[0]

    def score(s, h):
        part = {name.removeprefix("decoder/attention/"): weight for name, weight in w.items() if "attention" in name}
        if model.attention == "additive":
            return np.tanh(s @ part["query_kernel"] + h @ part["key_kernel"]) @ part["score_kernel"][:, 0]
        if model.attention == "concat":
            pairs = np.concatenate([np.tile(s, (len(h), 1)), h], -1)
            return np.tanh(pairs @ part["kernel"]) @ part["score_kernel"][:, 0]
        if model.attention == "general":
            return h @ part["kernel"] @ s
        return h @ s / (np.sqrt(len(s)) if model.attention == "scaled" else 1)

    tokens = source[source != 0]
    annotations = w["source_embedding/embeddings"][tokens]
    for layer in ("encoder", "encoder_2", "encoder_3")[: model.encoder_layers]:
        forward, last = read(annotations, f"{layer}/forward_cell")
        backward, first = read(annotations[::-1], f"{layer}/backward_cell")
        annotations = np.concatenate([forward, backward[::-1]], -1)
    thought = np.concatenate([last, first])
    bridges = ("initial_hidden", "initial_carry")[:kept]
    states = tuple(np.tanh(dense(first if model.attention else thought, bridge)) for bridge in bridges)
    logits = []
    for token in target:
        embedded = w["target_embedding/embeddings"][token]
        context = thought
        if model.conditional:
            states = step(embedded, states, *cell("decoder/cell"))
        if model.attention:
            context = numpy_softmax(score(states[0], annotations)) @ annotations if len(tokens) else 0 * thought
        if model.conditional:
            states = step(context, states, *cell("decoder/context_cell"))
        else:
            states = step(np.concatenate([embedded, context]), states, *cell("decoder/cell"))
        readout = dense(np.concatenate([states[0], embedded, context]), "readout/dense")
        logits.append(dense(readout.reshape(-1, 2).max(-1), "logits"))
    return np.array(logits)


@pytest.mark.parametrize(("attention", "cell", "conditional", "layers"), KINDS)
def test_computes_the_equations(attention, cell, conditional, layers, randomize, numpy_steps, numpy_softmax):
    arguments = dict(attention=attention, cell=cell, conditional=conditional, encoder_layers=layers)
    model = randomize(RNNSeq2Seq(**arguments, **SIZES))
    logits = model(BATCH)
    assert (logits.shape, logits.dtype) == ((4, 3, 9), "float32")
    for row, source, target in zip(logits, SOURCE, TARGET, strict=True):
        np.testing.assert_allclose(row, expected_logits(model, source, target, numpy_steps, numpy_softmax), atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "shapes"),
    [
        (
            SIZES,
            {
                "source_embedding/embeddings": (11, 5),
                "target_embedding/embeddings": (9, 5),
                "encoder/backward_cell/recurrent_kernel": (6, 18),
                "decoder/attention/key_kernel": (12, 6),
                "decoder/cell/kernel": (5 + 12, 18),
                "readout/dense/kernel": (6 + 5 + 12, 8),
                "logits/kernel": (4, 9),
            },
        ),
        (  # a bare product gives each direction half the units
            dict(source_vocabulary_size=10, target_vocabulary_size=12, attention="dot", cell="lstm", units=6),
            {
                "source_embedding/embeddings": (10, 6),
                "encoder/backward_cell/recurrent_kernel": (3, 12),
                "initial_carry/kernel": (3, 6),
                "decoder/cell/kernel": (6 + 6, 24),
                "logits/kernel": (3, 12),
            },
        ),
    ],
    ids=["given", "defaults"],
)
def test_weights_have_the_sizes_asked_for(arguments, shapes):
    found = {weight.path: tuple(weight.shape) for weight in RNNSeq2Seq(**arguments).weights}
    assert {path: found[path] for path in shapes} == shapes


def test_without_attention_only_the_two_last_states_reach_the_decoder(randomize):
    model = randomize(RNNSeq2Seq(attention=None, **SIZES))
    memory, _ = model.begin(SOURCE)
    _, forward, backward = model.encoder(model.source_embedding(SOURCE), SOURCE != 0)
    assert memory.keys() == {"context", "projected_context"}
    np.testing.assert_array_equal(memory["context"], np.concatenate([forward, backward], -1))


# Training.


def test_no_gradient_reaches_the_embedding_of_padding(randomize):
    model = randomize(RNNSeq2Seq(**SIZES))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model({"source": SOURCE, "target": TARGET[:, :2]}) ** 2)
    gradient = np.array(tf.convert_to_tensor(tape.gradient(loss, model.source_embedding.embeddings)))
    np.testing.assert_array_equal(np.abs(gradient).max(-1) > 0, np.isin(range(11), SOURCE[SOURCE != 0]))


def test_gradients_are_those_of_finite_differences(randomize):
    # float64 but for the softmax and the logits: at a step of 1e-2 their rounding is some 1e-5 of the slope.
    model = randomize(RNNSeq2Seq(attention="additive", dtype="float64", **SIZES))
    random = np.random.default_rng(5)
    form = random.normal(size=(4, 3, 9)).astype("float32")
    weights = [weight.value for weight in model.weights]

    def loss():
        return tf.reduce_sum(model(BATCH) * form)

    with tf.GradientTape() as tape:
        value = loss()
    gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(value, weights)]
    directions = [random.normal(size=weight.shape) for weight in weights]
    norm = np.sqrt(sum(np.sum(direction**2) for direction in directions))

    def moved(distance):
        for weight, direction in zip(weights, directions, strict=True):
            weight.assign_add(distance / norm * direction)
        result = float(loss())
        for weight, direction in zip(weights, directions, strict=True):
            weight.assign_sub(distance / norm * direction)
        return result

    expected = sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True)) / norm
    np.testing.assert_allclose((moved(1e-2) - moved(-1e-2)) / 2e-2, expected, rtol=1e-3)


@pytest.mark.long
def test_fit_learns_from_batches_of_two_shapes_under_xla():
    """Sources of tokens 4 to 7, whose targets are the same tokens."""
    random = np.random.default_rng(0)

    def batch(rows, length):
        labels = random.integers(4, 8, (rows, length)).astype("int32")
        target = np.concatenate([np.full((rows, 1), 2, "int32"), labels[:, :-1]], 1)
        inputs = {"source": np.pad(labels, [(0, 0), (0, 1)]), "target": target}
        return tf.data.Dataset.from_tensors((inputs, labels, np.ones(labels.shape, "float32")))

    model = RNNSeq2Seq(8, 8, units=16, dropout=0.1)
    model.compile(
        keras.optimizers.Adam(0.03),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight"),
        jit_compile=True,  # where the batch is of unknown size too, inside the loop and in its gradient
    )
    model.optimizer.build(model.trainable_variables)  # otherwise the first step is compiled twice
    batches = batch(16, 3).concatenate(batch(12, 5)).repeat(20)
    losses = model.fit(batches, epochs=2, shuffle=False, verbose=0).history["loss"]
    assert losses[1] < losses[0] / 2


@pytest.mark.parametrize("side", ["source", "target"])
def test_dropout_falls_on_the_embeddings_of_both_sides_in_training_only(side, randomize):
    model = randomize(RNNSeq2Seq(attention="general", dropout=0.5, **SIZES))
    np.testing.assert_array_equal(model(BATCH), model(BATCH, training=False))
    model.readout.dropout_layer.rate = 0.0
    other = model.target_embedding if side == "source" else model.source_embedding
    other.embeddings.assign(0 * other.embeddings)
    assert np.abs(model(BATCH, training=True) - model(BATCH)).max() > 1e-2


@pytest.mark.parametrize("attention", ["additive", None])
def test_dropout_falls_on_the_annotations_at_their_own_rate(attention, randomize):
    model = randomize(RNNSeq2Seq(attention=attention, annotation_dropout=0.5, **SIZES))
    assert np.abs(model(BATCH, training=True) - model(BATCH)).max() > 1e-2
    model.get_layer("annotation_dropout").rate = 0.0
    np.testing.assert_array_equal(model(BATCH, training=True), model(BATCH))


def test_dropout_falls_between_the_layers_of_the_encoder(randomize):
    model = randomize(RNNSeq2Seq(encoder_layers=2, dropout=0.5, **SIZES))
    for dropped in (model.embedding_dropout, model.readout.dropout_layer):
        dropped.rate = 0.0
    assert np.abs(model(BATCH, training=True) - model(BATCH)).max() > 1e-2
    model.get_layer("encoder_dropout_1").rate = 0.0
    np.testing.assert_array_equal(model(BATCH, training=True), model(BATCH))


def test_the_readouts_rate_is_its_own_or_that_of_the_embeddings():
    assert RNNSeq2Seq(dropout=0.5, **SIZES).readout.dropout == 0.5
    assert RNNSeq2Seq(dropout=0.5, readout_dropout=0.0, **SIZES).readout.dropout == 0.0


# Tied embeddings, and precision.


@pytest.mark.parametrize(("ties", "attention"), [("target", "additive"), ("all", None)])
def test_a_tied_embedding_is_the_output_layer_without_a_bias(ties, attention, randomize):
    """A model that is not tied, with the same numbers put into its layers, gives the same."""
    tied = randomize(RNNSeq2Seq(attention=attention, tied_embeddings=ties, **TIED))
    loose = randomize(RNNSeq2Seq(attention=attention, **TIED))
    embedding = tied.target_embedding.embeddings.numpy()
    numbers = {weight.path: weight.numpy() for weight in tied.weights}
    numbers.update({"logits/kernel": embedding.T, "logits/bias": np.zeros(11, "float32")})
    if ties == "all":
        numbers["source_embedding/embeddings"] = embedding
    for weight in loose.weights:
        weight.assign(numbers[weight.path])
    np.testing.assert_allclose(tied(BATCH), loose(BATCH), atol=1e-6)
    saved = 11 * 5 + 11 + (11 * 5 if ties == "all" else 0)
    assert loose.count_params() - tied.count_params() == saved


def test_follows_the_global_policy():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = RNNSeq2Seq(**SIZES)
    finally:
        keras.config.set_dtype_policy(before)
    assert {layer.dtype_policy.name for layer in model.layers if layer.weights} == {"mixed_bfloat16"}
    assert RNNSeq2Seq.from_config(model.get_config()).decoder.attention.compute_dtype == "bfloat16"


# A user's mistakes.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"attention": "dot", "units": 7}, r"^attention='dot' needs an even `units`\. Received: units=7$"),
        (
            {"attention": "luong"},
            r"^`attention` must be one of 'additive', 'dot', 'scaled', 'general', 'concat', None\. "
            r"Received: attention='luong'$",
        ),
        ({"cell": "rnn"}, r"^`cell` must be one of 'gru', 'lstm'\. Received: cell='rnn'$"),
        (
            {"tied_embeddings": "target"},
            r"^`tied_embeddings='target'` needs `embedding_dim` and `readout_units` to be the same\. Received: "
            r"embedding_dim=5, readout_units=4$",
        ),
        (
            {"tied_embeddings": "all", "readout_units": 5},
            r"^`tied_embeddings='all'` needs one vocabulary for both sides\. Received: source_vocabulary_size=11, "
            r"target_vocabulary_size=9$",
        ),
        ({"attention": None, "conditional": True}, r"^`conditional` needs attention; this decoder has a fixed context"),
        ({"tied_embeddings": True}, r"^`tied_embeddings` must be one of 'none', 'target', 'all'\. Received: "),
        ({"annotation_dropout": -0.1}, r"^`annotation_dropout` must be at least 0 and below 1\. Received: "),
        ({"readout_dropout": 1}, r"^`readout_dropout` must be at least 0 and below 1\. Received: "),
        ({"dropout": 1.0}, r"^`dropout` must be at least 0 and below 1\. Received: dropout=1\.0$"),
        ({"encoder_layers": 0}, r"^`encoder_layers` must be a positive integer\. Received: encoder_layers=0$"),
        ({"units": 0}, r"^`units` must be a positive integer\. Received: units=0$"),
        ({"embedding_dim": 0}, r"^`embedding_dim` must be a positive integer\. Received: embedding_dim=0$"),
        ({"source_vocabulary_size": "9"}, r"^`source_vocabulary_size` must be a positive integer\."),
        ({"target_vocabulary_size": None}, r"^`target_vocabulary_size` must be a positive integer\."),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        RNNSeq2Seq(**{**SIZES, **arguments})
