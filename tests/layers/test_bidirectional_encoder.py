import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.layers import BidirectionalEncoder

# B, S, D, units: all different. Rows of all lengths from 0 to S.
WIDTH, UNITS = 3, 5
LENGTHS = np.array([4, 1, 0, 3, 2, 4])
MASK = np.arange(4) < LENGTHS[:, None]
STATES = {"gru": 1, "lstm": 2}


@pytest.fixture(params=STATES)
def kind(request):
    return request.param


@pytest.fixture
def inputs(arrays):
    return arrays(x=(6, 4, WIDTH)).x


@pytest.fixture
def encoder(kind, inputs, randomize):
    encoder = BidirectionalEncoder(UNITS, cell=kind)
    encoder(inputs, MASK)
    return randomize(encoder)


def read(step, row, weights):
    """The hidden states of a cell that reads the row from zeros."""
    states, hidden = (np.zeros(UNITS),) * 2, []
    for x in row:
        states = step(x, states, *weights)
        hidden.append(states[0])
    return np.array(hidden)


def test_each_row_is_read_both_ways_within_its_length(encoder, kind, inputs, numpy_steps):
    def step(x, states, *weights):
        return numpy_steps[kind](x, states[: STATES[kind]], *weights)

    weights = encoder.get_weights()
    annotations, forward, backward = encoder(inputs, MASK)
    for i, length in enumerate(LENGTHS):
        ahead = read(step, inputs[i, :length], weights[:3])
        back = read(step, inputs[i, :length][::-1], weights[3:])
        if length:
            np.testing.assert_allclose(annotations[i, :length], np.concatenate([ahead, back[::-1]], -1), atol=1e-6)
            np.testing.assert_allclose(forward[i], ahead[-1], atol=1e-6)
            np.testing.assert_allclose(backward[i], back[-1], atol=1e-6)
        else:
            assert not np.any(forward[i]) and not np.any(backward[i])
    np.testing.assert_array_equal(np.array(annotations)[~MASK], 0)


def test_keras_bidirectional_with_the_same_weights_gives_the_same_and_its_gradients(encoder, kind, inputs):
    layer = {"gru": keras.layers.GRU, "lstm": keras.layers.LSTM}[kind]
    peer = keras.layers.Bidirectional(layer(UNITS, return_sequences=True, return_state=True, use_cudnn=False))
    peer(inputs, mask=MASK)
    peer.set_weights(encoder.get_weights())

    def called_by_peer(inputs):
        # Keras carries states through padding, where ours are zero, so what it returns there is left out.
        expected, *states = peer(inputs, mask=MASK)
        return tf.where(MASK[:, :, None], expected, 0.0), states[0], states[STATES[kind]]

    def with_gradients(call, weights):
        x = tf.constant(inputs)
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = call(x)
            # Each output's elements count differently, in either direction.
            loss = tf.add_n(
                [tf.reduce_sum(tf.sin(tf.range(1.0, tf.size(o) + 1)) * tf.reshape(o, [-1])) for o in outputs]
            )
        return [*outputs, *tape.gradient(loss, [x, *weights])]

    # In training, where the permutations have gradients of their own.
    ours = with_gradients(lambda x: encoder(x, MASK, training=True), encoder.weights)
    for one, other in zip(ours, with_gradients(called_by_peer, peer.weights), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_padding_is_without_effect_and_without_gradient_whatever_and_however_long_it_is(encoder, inputs):
    expected = encoder(inputs, MASK)
    garbage = tf.constant(np.where(MASK[:, :, None], inputs, 1e4).astype("float32"))
    with tf.GradientTape() as tape:
        tape.watch(garbage)
        results = encoder(garbage, MASK)
        loss = tf.add_n([tf.reduce_sum(output**2) for output in results])
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(np.abs(tape.gradient(loss, garbage)).max(-1) > 0, MASK)
    longer = encoder(np.pad(inputs, [(0, 0), (0, 3), (0, 0)]), np.pad(MASK, [(0, 0), (0, 3)]))
    np.testing.assert_allclose(longer[0], np.pad(expected[0], [(0, 0), (0, 3), (0, 0)]), atol=1e-6)
    for ours, theirs in zip(longer[1:], expected[1:], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize(("kind", "training"), [("gru", True), ("lstm", False)])
def test_padding_may_stand_anywhere(encoder, inputs, training):
    mask = np.array([[0, 1, 1, 0], [0, 0, 0, 1], [0] * 4, [1, 0, 1, 1], [0, 1, 0, 1], [1] * 4], bool)
    lengths = mask.sum(1)
    compact = np.stack([np.concatenate([row[keep], row[~keep]]) for row, keep in zip(inputs, mask, strict=True)])
    with tf.GradientTape(persistent=True) as tape:
        here, there = tf.constant(inputs), tf.constant(compact)
        tape.watch([here, there])
        results = encoder(here, mask, training=training)
        expected = encoder(there, np.arange(4) < lengths[:, None], training=training)
        losses = [sum(tf.reduce_sum(part**2) for part in parts) for parts in (results, expected)]
    gradients = [np.array(tape.gradient(*pair)) for pair in zip(losses, (here, there), strict=True)]
    for result, one in zip((results[0], gradients[0]), (expected[0], gradients[1]), strict=True):
        for row, other, keep in zip(np.array(result), np.array(one), mask, strict=True):
            np.testing.assert_allclose(row[keep], other[: keep.sum()], atol=1e-6)
            assert not row[~keep].any()
    for result, one in zip(results[1:], expected[1:], strict=True):
        np.testing.assert_allclose(result, one, atol=1e-6)


def test_the_mask_of_an_embedding_is_taken_and_goes_on_with_the_annotations(encoder):
    ids = np.array([[0, 1, 2], [3, 0, 0]])
    embedded = keras.layers.Embedding(4, WIDTH, mask_zero=True)(ids)
    results = encoder(embedded)
    for result, expected in zip(results, encoder(np.array(embedded), ids != 0), strict=True):
        np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(results[0]._keras_mask, ids != 0)
    assert not any(hasattr(result, "_keras_mask") for result in results[1:])
    # Without any mask all positions are tokens.
    np.testing.assert_array_equal(encoder(np.array(embedded))[0], encoder(np.array(embedded), np.ones((2, 3), bool))[0])


def test_layer_check(layer_check, inputs):
    shapes = {"kernel": (3, 20), "recurrent_kernel": (5, 20), "bias": (20,)}
    layer_check(
        BidirectionalEncoder,
        {"units": UNITS, "cell": "lstm"},
        {"inputs": inputs, "mask": MASK},
        weights={f"{way}_cell/{name}": shape for way in ("forward", "backward") for name, shape in shapes.items()},
        outputs=[(6, 4, 10), (6, 5), (6, 5)],
        mask_goes_on=True,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"units": "5"}, r"^`units` must be a positive integer\. Received: units='5'$"),
        ({"units": 5, "cell": "GRU"}, r"^`cell` must be one of 'gru', 'lstm'\. Received: cell='GRU'$"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        BidirectionalEncoder(**arguments)


def test_inputs_or_a_mask_that_do_not_fit_are_refused(inputs):
    layer = BidirectionalEncoder(UNITS)
    with pytest.raises(ValueError, match="expected ndim=3, found ndim=2"):
        layer(inputs[:, 0])
    for mask in (MASK[:, :3], MASK[:1, :3], MASK[:5], np.pad(MASK, [(0, 0), (0, 1)]), np.ones((6, 4, 4), bool)):
        with pytest.raises(ValueError, match=r"`mask` must have the shape of the tokens, \(6, 4\)\. Received"):
            layer(inputs, mask)
    with pytest.raises(ValueError, match="`mask` must be True, or 1, at tokens"):
        layer(inputs, np.where(MASK, 0.0, -1e9))
    np.testing.assert_array_equal(layer(inputs, MASK.astype("float32"))[0], layer(inputs, MASK)[0])
    with pytest.raises(ValueError, match=rf"`inputs` must have the width {inputs.shape[-1]}, which the layer"):
        layer(inputs[..., 1:])


def test_a_mask_of_one_row_counts_for_all(inputs):
    layer, every = BidirectionalEncoder(UNITS), np.tile(MASK[:1], (6, 1))
    annotations = layer(inputs, MASK[:1])[0]
    np.testing.assert_array_equal(annotations, layer(inputs, every)[0])
    np.testing.assert_array_equal(annotations._keras_mask, every)


def test_with_floatx_float64(monkeypatch):
    """Keras' integers are then int64."""
    x = np.random.default_rng(0).normal(size=(2, 3, 5))
    layer = BidirectionalEncoder(4)
    expected = layer(x.astype("float32"))
    keras.config.set_floatx("float64")
    try:
        double = BidirectionalEncoder(4)
        double.build(x.shape)
        double.set_weights(layer.get_weights())
        for one, other in zip(double(x), expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)
    finally:
        keras.config.set_floatx("float32")
