import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.layers import AdditiveAttention, AttentionDecoder, DotProductAttention, MaxoutReadout, ScoredAttention

# B, T, S, and the widths of tokens, states and memory: all different.
ROWS, LENGTH, SOURCE, WIDTH, UNITS, MEMORY = 3, 5, 4, 6, 7, 8
MASK = np.array([[True, True, False, False], [True, True, True, True], [False] * 4])  # the last row has no memory


def make_attention(name):
    if name == "additive":
        return AdditiveAttention(2, name="attention")
    return None if name is None else DotProductAttention(name, name="attention")


# Cell and attention know nothing of each other: each of them once, and no attention.
PARTS = [("gru", "additive"), ("lstm", "general"), ("gru", None)]


@pytest.fixture(params=PARTS, ids=str)
def parts(request):
    return request.param


@pytest.fixture
def kind(parts):
    return parts[0]


@pytest.fixture
def attention(parts):
    return parts[1]


WITH_ATTENTION = pytest.mark.parametrize("parts", PARTS[:2], ids=str)


@pytest.fixture
def x(kind, attention, arrays):
    memory = (ROWS, SOURCE, MEMORY) if attention else (ROWS, MEMORY)
    made = arrays(inputs=(ROWS, LENGTH, WIDTH), hidden=(ROWS, UNITS), carry=(ROWS, UNITS), memory=memory)
    made.states = [made.hidden] if kind == "gru" else [made.hidden, made.carry]
    return made


@pytest.fixture
def conditional():
    return False


@pytest.fixture
def decoder(kind, attention, conditional, x, randomize):
    decoder = AttentionDecoder(UNITS, attention=make_attention(attention), cell=kind, conditional=conditional)
    decoder(x.inputs, x.states, x.memory, MASK)
    return randomize(decoder)


def scores(name, state, annotations, weights):
    """The scores of one state against each annotation of a row, by the papers' equations."""
    if name == "general":
        return annotations @ weights[0] @ state
    query_kernel, key_kernel, score_kernel = weights
    return (np.tanh(query_kernel.T @ state + annotations @ key_kernel) @ score_kernel)[:, 0]


def stepped(decoder, inputs, states, memory, mask=MASK):
    """All steps of K hypotheses `(B, K, T, E)` one by one: states, contexts and weights, `(B, K, T, *)`."""
    prepared = decoder.prepare(memory, mask)
    outputs = []
    for i in range(inputs.shape[2]):
        states, context, weights = decoder.step(inputs[:, :, i], states, prepared)
        outputs.append((states[0], context) if weights is None else (states[0], context, weights))
    return [np.stack(each, 2) for each in zip(*outputs, strict=True)]


@pytest.mark.parametrize(
    ("parts", "conditional"),
    [*((parts, False) for parts in PARTS), (("gru", "general"), True), (("lstm", "additive"), True)],
)
def test_computes_what_the_papers_say_at_once_and_step_by_step(
    decoder, kind, attention, conditional, x, numpy_steps, numpy_softmax
):
    """Attends with the previous state and reads token and context; a conditional one reads the token, then attends."""
    cell, step = decoder.recurrent_cell.get_weights(), numpy_steps[kind]
    expected = []
    for row in range(ROWS):
        current = tuple(state[row] for state in x.states)
        for i in range(LENGTH):
            if conditional:
                current = step(x.inputs[row, i], current, *cell)
            weights, context = np.zeros(0), x.memory[row]
            if attention:
                found = scores(attention, current[0], x.memory[row], decoder.attention.get_weights())
                weights = numpy_softmax(found, MASK[row])
                context = weights @ x.memory[row]
            if conditional:
                current = step(context, current, *decoder.context_cell.get_weights())
            else:
                current = step(np.concatenate([x.inputs[row, i], context]), current, *cell)
            expected.append((current[0], context, weights))
    expected = [np.reshape(each, (ROWS, LENGTH, -1)) for each in zip(*expected, strict=True)]
    results = decoder(x.inputs, x.states, x.memory, MASK, return_attention_scores=attention is not None)
    for found in (
        results,
        decoder(x.inputs, x.states, x.memory, MASK),
        [each[:, 0] for each in stepped(decoder, x.inputs[:, None], tuple(s[:, None] for s in x.states), x.memory)],
    ):
        for result, each in zip(found, expected, strict=False):
            np.testing.assert_allclose(result, each, atol=2e-6)
    if attention:
        assert (results[2].shape, results[2].dtype) == ((ROWS, LENGTH, SOURCE), "float32")
        np.testing.assert_array_equal(np.array(results[2])[expected[2] == 0], 0)


@keras.saving.register_keras_serializable("tests")
class Nearness(ScoredAttention):
    """A score of a user, without weights and so without `build`."""

    def project_key(self, key):
        return key

    def scores(self, query, projected_key):
        return -tf.reduce_sum((query[:, :, None] - projected_key[:, None]) ** 2, axis=-1)


def test_a_score_of_ones_own_needs_no_build(arrays, numpy_softmax, tmp_path):
    x = arrays(inputs=(ROWS, LENGTH, WIDTH), hidden=(ROWS, UNITS), memory=(ROWS, SOURCE, UNITS))
    given = [keras.Input(each.shape[1:]) for each in (x.inputs, x.hidden, x.memory)]
    decoder = AttentionDecoder(UNITS, Nearness())
    outputs = decoder(given[0], [given[1]], given[2], return_attention_scores=True)
    keras.Model(given, outputs).save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    states, _, weights = loaded([x.inputs, x.hidden, x.memory])
    queries = np.concatenate([x.hidden[:, None], states[:, :-1]], axis=1)  # (B, T, units): the states before
    distances = ((queries[:, :, None] - x.memory[:, None]) ** 2).sum(-1)
    np.testing.assert_allclose(weights, numpy_softmax(-distances), atol=1e-6)


def test_without_the_rest_of_a_configuration_the_defaults_hold():
    assert AttentionDecoder.from_config({"units": UNITS}).attention is None


def test_hypotheses_of_one_source_row_do_not_meet(decoder, x, arrays):
    hypotheses = 2
    other = arrays(seed=1, inputs=x.inputs.shape, states=(len(x.states), ROWS, UNITS))
    both = stepped(
        decoder,
        np.stack([x.inputs, other.inputs], 1),
        tuple(np.stack(pair, 1) for pair in zip(x.states, other.states, strict=True)),
        x.memory,
    )
    for k, (inputs, states) in enumerate([(x.inputs, x.states), (other.inputs, other.states)]):
        alone = stepped(decoder, inputs[:, None], tuple(state[:, None] for state in states), x.memory)
        for ours, theirs in zip(both, alone, strict=True):
            assert ours.shape[:3] == (ROWS, hypotheses, LENGTH)
            np.testing.assert_allclose(ours[:, k], theirs[:, 0], atol=1e-6)


@WITH_ATTENTION
def test_forbidden_memory_is_without_effect_and_without_gradient(decoder, x, attention):
    expected = decoder(x.inputs, x.states, x.memory, MASK)
    memory = tf.constant(np.where(MASK[:, :, None], x.memory, 100).astype("float32"))
    with tf.GradientTape() as tape:
        tape.watch(memory)
        results = decoder(x.inputs, x.states, memory, MASK)
        loss = tf.add_n([tf.reduce_sum(result**2) for result in results])
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(np.abs(tape.gradient(loss, memory)).max(-1) > 0, MASK)


def with_mask(array, mask):
    """The array as a layer before would return it, with a mask of Keras."""
    tensor = tf.constant(array)
    tensor._keras_mask = tf.constant(mask)
    return tensor


def test_masks_of_keras_are_taken(decoder, attention, x):
    """The memory's as if it was given; at a masked input the states stay, as in Keras' own layers."""
    inputs_mask = np.array([[True, True, False, True, False], [False, True, True, True, True], [True] * 5])
    memory = with_mask(x.memory, MASK) if attention else x.memory
    results = decoder(with_mask(x.inputs, inputs_mask), x.states, memory)
    for result in results:
        np.testing.assert_array_equal(result._keras_mask, inputs_mask)
    for row, keep in enumerate(inputs_mask):
        one = slice(row, row + 1)
        states = [state[one] for state in x.states]
        expected = decoder(x.inputs[one][:, keep], states, x.memory[one], MASK[one] if attention else None)
        for result, other in zip(results, expected, strict=True):
            np.testing.assert_allclose(np.array(result)[row, keep], other[0], atol=1e-6)
    kept = np.array(results[0])
    np.testing.assert_array_equal(kept[0, 2], kept[0, 1])
    # A mask that is given replaces the one that the memory carries.
    if attention:
        given = decoder(x.inputs, x.states, with_mask(x.memory, ~MASK), MASK)
        for result, other in zip(given, decoder(x.inputs, x.states, x.memory, MASK), strict=True):
            np.testing.assert_array_equal(result, other)
            assert not hasattr(result, "_keras_mask")


def test_a_model_of_masked_embeddings_is_blind_to_padding(randomize):
    source, target = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    embedded = keras.layers.Embedding(9, 4, mask_zero=True)(source)
    annotations = keras.layers.Bidirectional(keras.layers.GRU(3, return_sequences=True))(embedded)
    first = keras.layers.Dense(UNITS)(keras.layers.GlobalAveragePooling1D()(annotations))
    hidden = keras.layers.Embedding(9, WIDTH, mask_zero=True)(target)
    states, contexts = AttentionDecoder(UNITS, AdditiveAttention(2))(hidden, [first], annotations)
    readout = MaxoutReadout(5)([states, hidden, contexts])
    model = randomize(keras.Model([source, target], keras.layers.Dense(9)(readout)))
    sources, targets = np.array([[4, 5, 0, 0], [6, 7, 8, 3]]), np.array([[1, 4, 0], [1, 6, 7]])
    outputs = model([sources, targets])
    np.testing.assert_array_equal(outputs._keras_mask, targets != 0)
    alone = model([sources[:1, :2], targets[:1, :2]])
    np.testing.assert_allclose(outputs[:1, :2], alone, atol=1e-6)


@pytest.mark.parametrize("parts", [("lstm", None)], ids=str)
def test_a_fixed_context_is_the_memory_at_every_step(decoder, x, attention):
    _, contexts = decoder(x.inputs, x.states, x.memory)
    np.testing.assert_array_equal(contexts, np.repeat(x.memory[:, None], LENGTH, 1))
    symbolic = keras.Input((None, WIDTH)), [keras.Input((UNITS,))] * 2, keras.Input((MEMORY,))
    for given in ((x.inputs, x.states, x.memory), symbolic):
        with pytest.raises(ValueError, match="`return_attention_scores` needs attention; this decoder has a fixed con"):
            decoder(*given, return_attention_scores=True)


def test_a_dot_product_needs_a_memory_of_the_states_width(arrays):
    x = arrays(inputs=(ROWS, LENGTH, WIDTH), state=(ROWS, UNITS), memory=(ROWS, SOURCE, MEMORY))
    decoder = AttentionDecoder(UNITS, attention=DotProductAttention("dot"))
    with pytest.raises(ValueError, match=r"one width.*Received: query width 7, key width 8$"):
        decoder(x.inputs, [x.state], x.memory)


@pytest.mark.parametrize("parts", [("lstm", "additive"), ("gru", None)], ids=str)
def test_a_memory_or_mask_that_does_not_fit_is_refused(kind, attention, x):
    decoder = AttentionDecoder(UNITS, attention=make_attention(attention), cell=kind)
    wanted, other = ("S, D", x.memory[:, 0]) if attention else ("D", np.stack([x.memory] * 2, 1))
    for inputs in (x.inputs, keras.Input((None, WIDTH))):
        with pytest.raises(ValueError, match=rf"`memory` must be \(B, {wanted}\).* Received: memory of shape "):
            decoder(inputs, x.states, other)
    with pytest.raises(ValueError, match=r"`inputs` must be \(B, T, E\)\. Received: inputs of shape "):
        decoder(x.inputs[:, 0], x.states, x.memory)
    # One row of memory was attended to by all.
    for states, memory, rows in ((x.states, x.memory[:1], "3.* 1"), ([s[:2] for s in x.states], x.memory, "3, 2.* 3")):
        with pytest.raises(ValueError, match=rf"the same number of rows B\. Received: \({rows}\) rows"):
            decoder(x.inputs, states, memory)
    prepared, step = decoder.prepare(x.memory, MASK if attention else None), x.inputs[:, :2]
    with pytest.raises(ValueError, match=rf"^`memory` must have the width {MEMORY}, which the layer was built for"):
        decoder.prepare(x.memory[..., 1:])
    with pytest.raises(ValueError, match=rf"^`inputs` must have the width {WIDTH}, which .*\(3, 2, {WIDTH - 1}\)$"):
        decoder.step(step[..., 1:], [state[:, None] for state in x.states], prepared)
    with pytest.raises(ValueError, match=r"^The shape of `states` must begin with \(3, 2\)\. Received: .* \(3, 1, "):
        decoder.step(step, [state[:, None] for state in x.states], prepared)
    if attention:
        for mask in (MASK[:, :3], MASK[:2]):
            with pytest.raises(ValueError, match=r"`mask` must have the shape of the tokens, \(3, 4\)"):
                decoder(x.inputs, x.states, x.memory, mask)
        with pytest.raises(ValueError, match="`mask` must be True, or 1, at tokens"):
            decoder(x.inputs, x.states, x.memory, np.where(MASK, 0.0, -1e9))
        found, expected = (decoder(x.inputs, x.states, x.memory, m) for m in (MASK[:1], np.tile(MASK[:1], (3, 1))))
        np.testing.assert_array_equal(found[0], expected[0])


def test_a_decoder_that_is_not_built_says_so(kind, attention, x):
    decoder = AttentionDecoder(UNITS, attention=make_attention(attention), cell=kind, name="mine")
    for call in (lambda: decoder.prepare(x.memory), lambda: decoder.step(x.inputs, x.states, {})):
        with pytest.raises(ValueError, match=r"^mine has no weights yet; call it once, or `build` it"):
            call()


def test_shapes_are_known_without_a_call(decoder, x):
    shapes = decoder.compute_output_shape(x.inputs.shape, [s.shape for s in x.states], x.memory.shape, MASK.shape)
    assert shapes == tuple(tuple(each.shape) for each in decoder(x.inputs, x.states, x.memory, MASK))


CELL_SHAPES = {
    "gru": {"kernel": (14, 21), "recurrent_kernel": (7, 21), "bias": (2, 21)},
    "lstm": {"kernel": (14, 28), "recurrent_kernel": (7, 28), "bias": (28,)},
}
ATTENTION_SHAPES = {
    "additive": {"query_kernel": (7, 2), "key_kernel": (8, 2), "score_kernel": (2, 1)},
    None: {},
}


@pytest.mark.parametrize("parts", [("gru", "additive"), ("gru", None)], ids=str)  # an LSTM's is below
def test_layer_check(layer_check, kind, attention, x):
    weights = {f"cell/{name}": shape for name, shape in CELL_SHAPES[kind].items()}
    weights |= {f"attention/{name}": shape for name, shape in ATTENTION_SHAPES[attention].items()}
    outputs = [(ROWS, LENGTH, UNITS), (ROWS, LENGTH, MEMORY)]
    layer_check(
        AttentionDecoder,
        {"units": UNITS, "attention": make_attention(attention), "cell": kind},
        {"inputs": x.inputs, "initial_states": x.states, "memory": x.memory, "mask": MASK},
        weights=weights,
        outputs=[*outputs, (ROWS, LENGTH, SOURCE)] if attention else outputs,
        options={"return_attention_scores": attention is not None},
    )


@pytest.mark.parametrize("parts", [("lstm", "additive")], ids=str)
def test_layer_check_of_a_conditional_one(layer_check, x):
    weights = {f"attention/{name}": shape for name, shape in ATTENTION_SHAPES["additive"].items()}
    for cell, width in (("cell", WIDTH), ("context_cell", MEMORY)):
        weights |= {f"{cell}/{name}": shape for name, shape in (CELL_SHAPES["lstm"] | {"kernel": (width, 28)}).items()}
    layer_check(
        AttentionDecoder,
        {"units": UNITS, "attention": make_attention("additive"), "cell": "lstm", "conditional": True},
        {"inputs": x.inputs, "initial_states": x.states, "memory": x.memory, "mask": MASK},
        weights=weights,
        outputs=[(ROWS, LENGTH, UNITS), (ROWS, LENGTH, MEMORY), (ROWS, LENGTH, SOURCE)],
        options={"return_attention_scores": True},
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"units": -1}, r"^`units` must be a positive integer\. Received: units=-1$"),
        (
            {"units": 5, "attention": "additive"},
            r"^`attention` must be a layer such as AdditiveAttention\(units\), or None\. Received: attention='add",
        ),
        ({"units": 5, "conditional": True}, r"^`conditional` needs attention; this decoder has a fixed context\.$"),
        ({"units": 5, "cell": "rnn"}, r"^`cell` must be one of 'gru', 'lstm'\. Received: cell='rnn'$"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        AttentionDecoder(**arguments)


@pytest.mark.parametrize("parts", [("gru", "additive"), ("lstm", None)], ids=str)
def test_refuses_initial_states_that_do_not_fit(decoder, kind, x):
    message = f"must be a list of tensors .B, 7., one for each of the {kind} cell's states: hidden"
    for states in (x.hidden, [*x.states, x.hidden], [x.memory[..., :1]] * len(x.states)):
        with pytest.raises(ValueError, match=message):
            decoder(x.inputs, states, x.memory)


def test_integers_are_vectors_like_floats(decoder, x):
    given = [np.round(2 * each).astype("int32") for each in (x.inputs, *x.states, x.memory)]
    found, expected = (
        decoder(inputs, states, memory, MASK)
        for inputs, *states, memory in (given, [each.astype("float32") for each in given])
    )
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs, strict=True)


def test_weights_of_float64_stay_float64(arrays):
    layer = AttentionDecoder(UNITS, AdditiveAttention(2, dtype="float64"), dtype="float64")
    x = arrays(inputs=(ROWS, LENGTH, WIDTH), hidden=(ROWS, UNITS), memory=(ROWS, SOURCE, MEMORY))
    given = [keras.Input(each.shape[1:], dtype="float64") for each in (x.inputs, x.hidden, x.memory)]
    for inputs, hidden, memory in (given, (x.inputs, x.hidden, x.memory)):
        weights = layer(inputs, [hidden], memory, return_attention_scores=True)[2]
        assert keras.backend.standardize_dtype(weights.dtype) == "float64"


@WITH_ATTENTION
def test_weights_are_float32_under_a_lower_precision(kind, attention, x):
    layer = AttentionDecoder(UNITS, make_attention(attention), kind, dtype="mixed_bfloat16")
    states, contexts, weights = layer(x.inputs, x.states, x.memory, MASK, return_attention_scores=True)
    assert (states.dtype, contexts.dtype, weights.dtype) == ("bfloat16", "bfloat16", "float32")
    sums = np.broadcast_to(MASK.any(axis=1, keepdims=True), weights.shape[:2])
    np.testing.assert_allclose(np.sum(weights, axis=-1), sums, atol=1e-6)  # rounded to 8 bits they are 1e-3 away
    for result, each in zip(layer(x.inputs, x.states, x.memory, MASK), (states, contexts), strict=True):
        np.testing.assert_array_equal(np.array(result, "float32"), np.array(each, "float32"))
