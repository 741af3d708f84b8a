"""The attentions with a score: what each computes, and then what they have in common."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.layers import AdditiveAttention, ConcatAttention, DotProductAttention, ScoredAttention

MAKERS = {
    "additive": lambda **kwargs: AdditiveAttention(6, **kwargs),
    "concat": lambda **kwargs: ConcatAttention(6, **kwargs),
    "dot": lambda **kwargs: DotProductAttention("dot", **kwargs),
    "scaled": lambda **kwargs: DotProductAttention("scaled", **kwargs),
    "general": lambda **kwargs: DotProductAttention("general", **kwargs),
}
# B, T, S, and the widths of query, key and value: all different, but for the key, which products need alike.
SHAPES = dict(query=(2, 3, 5), key=(2, 4, 5), value=(2, 4, 7))
WIDE = (2, 4, 6)  # a key of another width
MASK = np.array([[True, False, True, True], [False, True, False, False]])
NOTHING = np.array([[True, False, True, True], [False, False, False, False]])
WEIGHTS = {
    "additive": {"query_kernel": (5, 6), "key_kernel": (6, 6), "score_kernel": (6, 1)},
    "concat": {"kernel": (11, 6), "score_kernel": (6, 1)},
    "dot": {},
    "scaled": {},
    "general": {"kernel": (6, 5)},
}


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


@pytest.fixture
def x(arrays):
    return arrays(**SHAPES)


@pytest.fixture
def attention(make, x, randomize):
    layer = make()
    layer(x.query, x.value, x.key)
    return randomize(layer)


def score_of_the_papers(name, q, h, weights):
    """Bahdanau et al. 2014, appendix A.1.2; Luong et al. 2015, equation 8; Vaswani et al. 2017, equation 1."""
    if name == "additive":
        query_kernel, key_kernel, score_kernel = weights
        return score_kernel[:, 0] @ np.tanh(query_kernel.T @ q + key_kernel.T @ h)
    if name == "concat":
        kernel, score_kernel = weights
        return score_kernel[:, 0] @ np.tanh(kernel.T @ np.concatenate([q, h]))
    if name == "general":
        return q @ weights[0].T @ h
    return q @ h / (np.sqrt(5) if name == "scaled" else 1)


@pytest.mark.parametrize("name", MAKERS)
def test_computes_what_the_papers_say(arrays, randomize, numpy_softmax, name):
    x = arrays(**{**SHAPES, "key": SHAPES["key"] if name in ("dot", "scaled") else WIDE})
    layer = MAKERS[name]()
    layer(x.query, x.value, x.key)
    randomize(layer)
    scores = np.zeros((2, 3, 4))
    for b, i, j in np.ndindex(scores.shape):
        scores[b, i, j] = score_of_the_papers(name, x.query[b, i], x.key[b, j], layer.get_weights())
    for mask in (None, NOTHING):
        context, weights = layer(x.query, x.value, key=x.key, mask=mask, return_attention_scores=True)
        expected = numpy_softmax(scores, True if mask is None else mask[:, None])
        np.testing.assert_allclose(weights, expected, atol=1e-6)
        np.testing.assert_allclose(context, expected @ x.value, atol=1e-5)


def test_additive_attention_computed_by_hand():
    layer = AdditiveAttention(1)
    query, value = np.array([[[1.0]]], "float32"), np.array([[[0.0, 1.0], [2.0, 5.0]]], "float32")
    layer(query, value)
    # e_1 = 2 tanh(1 + 0 + 1), e_2 = 2 tanh(1 + 2 + 5)
    layer.set_weights([np.array([[1.0]]), np.array([[1.0], [1.0]]), np.array([[2.0]])])
    odds = np.exp(2 * np.tanh(2.0)), np.exp(2 * np.tanh(8.0))
    first, second = odds / np.sum(odds)
    context, weights = layer(query, value, return_attention_scores=True)
    np.testing.assert_allclose(weights, [[[first, second]]], rtol=1e-6)
    np.testing.assert_allclose(context, [[[2 * second, first + 5 * second]]], rtol=1e-6)


def test_products_computed_by_hand_and_scaled_by_default():
    query, value = np.array([[[2.0, 0.0, 0.0, 0.0]]]), np.array([[[1.0, 9, 9, 9], [0.0, 4, 4, 4]]])
    key = np.array([[[np.log(3.0), 7, 7, 7], [0.0, 7, 7, 7]]])
    # 2 log 3 against 0, and log 3 against 0 when divided by the root of 4.
    np.testing.assert_allclose(DotProductAttention("dot")(query, value, key)[0, 0, 0], 9 / 10, rtol=1e-6)
    np.testing.assert_allclose(DotProductAttention()(query, value, key)[0, 0], [3 / 4, *[7.75] * 3], rtol=1e-6)


def test_integers_are_vectors_like_floats(make):
    x, layer = np.array([[[1, 0, 2], [0, 1, 3]]]), make()
    np.testing.assert_array_equal(layer(x, x, x), layer(*[x.astype("float32")] * 3))


@pytest.mark.parametrize("name", MAKERS)
def test_layer_check(layer_check, arrays, name):
    x = arrays(**{**SHAPES, "key": WIDE if WEIGHTS[name] else SHAPES["key"]})
    layer = MAKERS[name]()
    own = {"score": name} if isinstance(layer, DotProductAttention) else {"units": 6}
    layer_check(
        type(layer),
        {**own, "kernel_initializer": "he_normal"},
        {"query": x.query, "value": x.value, "key": x.key, "mask": NOTHING},
        weights=WEIGHTS[name],
        outputs=[(2, 3, 7), (2, 3, 4)],
        options={"return_attention_scores": True},
    )


def test_without_key_the_values_are_scored(x):
    for layer, kernel, shape in (
        (AdditiveAttention(6), "key_kernel", (7, 6)),
        (ConcatAttention(6), "kernel", (5 + 7, 6)),
        (DotProductAttention("general"), "kernel", (7, 5)),
    ):
        layer(x.query, x.value)
        assert getattr(layer, kernel).shape == shape


def test_kernels_of_one_shape_are_drawn_apart():
    layer = AdditiveAttention(4, kernel_initializer=keras.initializers.RandomNormal())
    layer.build((2, 3, 5), (2, 4, 5))
    assert np.abs(layer.query_kernel - layer.key_kernel).max() > 0


def test_is_a_base_only():
    with pytest.raises(TypeError, match=r"abstract.*project_key.*scores"):
        ScoredAttention()


def test_refuses_arguments():
    with pytest.raises(ValueError, match=r"^`units` must be a positive integer\. Received: units='8'$"):
        AdditiveAttention("8")
    message = r"^`score` must be one of 'dot', 'scaled', 'general'\. Received: score='bilinear'$"
    with pytest.raises(ValueError, match=message):
        DotProductAttention("bilinear")


@pytest.mark.parametrize("score", ["dot", "scaled"])
def test_products_need_one_width(x, score):
    message = rf"score='{score}' needs queries and keys of one width.*Received: query width 5, key width "
    with pytest.raises(ValueError, match=f"{message}7$"):
        DotProductAttention(score)(x.query, x.value)
    with pytest.raises(ValueError, match=f"{message}6$"):
        DotProductAttention(score)(x.query, x.value, np.zeros(WIDE))


# What they have in common.


def test_a_list_of_inputs_is_refused(x):
    """As `keras.layers.AdditiveAttention` takes it."""
    told = r"AdditiveAttention takes its inputs one by one, layer\(query, value\) or .*: a "
    with pytest.raises(ValueError, match=f"{told}list of 2$"):
        AdditiveAttention(6)([x.query, x.value])
    with pytest.raises(ValueError, match=f"{told}tuple of 3$"):
        AdditiveAttention(6)((keras.Input((3, 5)), keras.Input((4, 7)), keras.Input((4, 5))))


def test_projecting_then_attending_is_the_call(attention, x):
    expected = attention(x.query, x.value, x.key, mask=MASK, return_attention_scores=True)
    projected = attention.project_key(x.key)
    # Once projected, the keys serve query after query.
    for i in range(3):
        context, weights = attention.attend(x.query[:, i : i + 1], projected, x.value, MASK)
        np.testing.assert_allclose(context, expected[0][:, i : i + 1], atol=1e-6)
        np.testing.assert_allclose(weights, expected[1][:, i : i + 1], atol=1e-6)


def test_attending_refuses_other_rows_and_widths(attention, x):
    projected = attention.project_key(x.key)
    with pytest.raises(ValueError, match=r"^The shape of `value` must begin with \(3,\)\. .*\(2, 4, 7\)$"):
        attention.attend(np.zeros((3, 3, 5), "float32"), projected, x.value)
    with pytest.raises(ValueError, match=r"^Keys and values must be equally many\. Received: 4 and 3$"):
        attention.attend(x.query, projected, x.value[:, :3])
    message = r"`query` must have the width 5, which .* of shape \(2, 3, 7\)"
    with pytest.raises(ValueError, match=message if attention.weights else "one width.*query width 7, key width 5"):
        attention(np.zeros((2, 3, 7)), x.value, x.key)
    if attention.weights:
        with pytest.raises(ValueError, match=r"`key` must have the width 5, which .* of shape \(2, 4, 7\)"):
            attention(x.query, x.value)


def test_a_graph_need_not_know_the_width_of_the_keys(attention, x):
    specs = [tf.TensorSpec([None, None, 5]), tf.TensorSpec(None), tf.TensorSpec([None, None, None])]
    called = tf.function(lambda q, v, k: attention(q, tf.ensure_shape(v, [None, None, 7]), k), input_signature=specs)
    np.testing.assert_allclose(called(x.query, x.value, x.key), attention(x.query, x.value, x.key), atol=1e-6)


def test_one_row_of_keys_is_for_all(attention, x):
    one, all_rows = (attention.project_key(np.repeat(x.key[:1], rows, 0)) for rows in (1, 2))
    found, expected = (
        attention.attend(x.query, keys, np.repeat(x.value[:1], len(keys), 0))[0] for keys in (one, all_rows)
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_attending_refuses_masks(attention, x):
    added, one_key = np.where(MASK, 0, -np.inf).astype("float32"), MASK[:, :1]
    negative = r"A mask with negative numbers.*pass `mask == 0` instead"
    for mask, message in (added, negative), (one_key, r"`mask` must be \(batch, keys\)"):
        with pytest.raises(ValueError, match=message):
            attention.attend(x.query, attention.project_key(x.key), x.value, mask)


@pytest.mark.parametrize(
    ("policy", "scored", "compiled"),
    [("float32", False, True), ("mixed_bfloat16", True, False), ("float64", True, False)],
    ids=["context alone, graph", "bfloat16", "float64"],
)
def test_nothing_to_attend_to_gives_zeros_on_every_path(make, x, policy, scored, compiled):
    layer = make(dtype=policy)

    def call(query, value, key, mask):
        return layer(query, value, key, mask=mask, return_attention_scores=scored)

    mask = np.array([[False] * 4, [False, True, False, False]])
    outputs = (tf.function(call, autograph=False) if compiled else call)(x.query, x.value, x.key, mask)
    context = outputs[0] if scored else outputs
    np.testing.assert_array_equal(tf.cast(context[0], "float32"), np.zeros((3, 7)))
    # The other row has one key to attend to and gets its value.
    value = tf.cast(tf.cast(x.value[1, 1], layer.compute_dtype), "float32")
    np.testing.assert_allclose(tf.cast(context[1], "float32"), np.tile(value, (3, 1)), rtol=1e-6)
    assert context.dtype == layer.compute_dtype
    if scored:
        assert outputs[1].dtype == ("float64" if policy == "float64" else "float32")
        np.testing.assert_array_equal(outputs[1], np.broadcast_to(mask[:, None], (2, 3, 4)))


def test_no_gradient_comes_from_a_row_with_nothing_to_attend_to(attention, x):
    inputs = [tf.constant(array) for array in (x.query, x.value, x.key)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        context = attention(*inputs, mask=np.array([[False] * 4, [True] * 4]))
        loss = tf.reduce_sum(context**2)
    for gradient in tape.gradient(loss, inputs):
        np.testing.assert_array_equal(gradient[0], np.zeros_like(gradient[0]))
        assert np.isfinite(gradient[1]).all() and np.abs(gradient[1]).max() > 0


def test_the_parts_compute_in_the_policys_type_outside_a_call_too(make, x):
    layer = make(dtype="mixed_bfloat16")
    query, value, key = (tf.cast(array, layer.compute_dtype) for array in (x.query, x.value, x.key))
    expected = layer(query, value, key, mask=MASK, return_attention_scores=True)
    projected = layer.project_key(key)
    assert projected.dtype == layer.compute_dtype
    for result, one in zip(layer.attend(query, projected, value, MASK), expected, strict=True):
        assert result.dtype == one.dtype
        np.testing.assert_array_equal(tf.cast(result, "float32"), tf.cast(one, "float32"))


# Masks of queries and keys, such as Keras attaches to tensors: with the pairs they leave some of each.
PAIRS = np.random.default_rng(4).random((2, 3, 4)) > 0.3
QUERIES = np.array([[True, True, False], [False, True, True]])
VALUES = np.array([[True, True, True, False], [True, False, True, True]])
KEYS = np.array([[False, True, True, True], [True, True, True, False]])
MASKS = dict(mask=MASK, query_mask=QUERIES, value_mask=VALUES, key_mask=KEYS)


@pytest.mark.parametrize(
    ("mask", "queries", "values", "keys"),
    [
        (MASK, None, None, None),
        (MASK, QUERIES, VALUES, KEYS),
        (PAIRS, None, VALUES, None),
        (PAIRS, QUERIES, None, KEYS),
        (PAIRS[:1], QUERIES, None, None),
        (None, None, VALUES, KEYS),
        (None, QUERIES, None, None),
    ],
)
def test_all_masks_hold_together(x, randomize, mask, queries, values, keys):
    layer = DotProductAttention("general")
    layer.build((2, 3, 5), (2, 4, 7), (2, 4, 5))
    randomize(layer)
    allowed = np.ones((2, 3, 4), bool)
    for b, i, j in np.ndindex(2, 3, 4):
        told = [each[b, j] for each in (values, keys) if each is not None]
        told += [] if queries is None else [queries[b, i]]
        told += [] if mask is None else [mask[b, j] if mask.ndim == 2 else mask[b % len(mask), i, j]]
        allowed[b, i, j] = all(told)
    options = dict(mask=mask, query_mask=queries, value_mask=values, key_mask=keys, return_attention_scores=True)
    results = layer(x.query, x.value, x.key, **options)
    expected = layer.attend(x.query, layer.project_key(x.key), x.value, allowed)
    for result, each in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, each, atol=1e-6)
    np.testing.assert_array_equal(np.array(results[1]) > 0, allowed)


def test_every_attention_takes_every_mask(attention, x, called, numpy_softmax):
    def call(*inputs):
        return attention(*inputs, **MASKS, return_attention_scores=True)

    context, weights = called("XLA", call, x.query, x.value, x.key)
    scores = np.array(attention.scores(x.query, attention.project_key(x.key)))
    expected = numpy_softmax(scores, (MASK & VALUES & KEYS)[:, None] & QUERIES[:, :, None])
    np.testing.assert_allclose(weights, expected, atol=1e-5)
    np.testing.assert_allclose(context, expected @ x.value, atol=1e-5)
    # And eagerly, without the weights.
    np.testing.assert_allclose(attention(x.query, x.value, x.key, **MASKS), context, atol=1e-5)


def test_masks_of_numbers_are_masks_of_what_is_not_zero(attention, x):
    expected = attention(x.query, x.value, x.key, mask=MASK, query_mask=QUERIES)
    numbers = attention(x.query, x.value, x.key, mask=3.0 * MASK, query_mask=QUERIES.astype("int32"))
    np.testing.assert_array_equal(numbers, expected)


def embedded(width, ids):
    return keras.layers.Embedding(9, width, mask_zero=True)(np.array(ids))


@pytest.mark.parametrize("with_key", [True, False], ids=["key", "no key"])
def test_masks_of_embeddings_are_taken_and_the_querys_goes_on(make, with_key):
    # Values of the queries' width, for the products; the key has a mask of its own.
    tensors = [embedded(5, QUERIES * [1, 2, 3]), embedded(5, VALUES * [4, 5, 6, 7])]
    tensors += [embedded(5, KEYS * [8, 7, 6, 5])] if with_key else []
    attention, plain = make(), [np.array(each) for each in tensors]
    results = attention(*tensors, return_attention_scores=True)
    given = dict(query_mask=QUERIES, value_mask=VALUES, **({"key_mask": KEYS} if with_key else {}))
    for result, each in zip(results, attention(*plain, **given, return_attention_scores=True), strict=True):
        np.testing.assert_array_equal(result, each)
    np.testing.assert_array_equal(results[0]._keras_mask, QUERIES)
    assert not hasattr(results[1], "_keras_mask")
    # Those that are given are preferred, and `mask` holds besides.
    others = {name: ~mask for name, mask in given.items()}
    results = attention(*tensors, mask=PAIRS, **others, return_attention_scores=True)
    for result, each in zip(
        results, attention(*plain, mask=PAIRS, **others, return_attention_scores=True), strict=True
    ):
        np.testing.assert_array_equal(result, each)
    np.testing.assert_array_equal(results[0]._keras_mask, QUERIES)
    # A mask that is given is no mask of the context.
    assert not hasattr(attention(*plain, mask=PAIRS, **given), "_keras_mask")


def test_masks_of_embeddings_are_taken_in_the_graph_of_a_model():
    source, target = keras.Input((None,)), keras.Input((None,))
    memory = keras.layers.Embedding(9, 5, mask_zero=True)(source)
    context = AdditiveAttention(6)(keras.layers.Embedding(9, 5, mask_zero=True)(target), memory)
    model = keras.Model([source, target], keras.layers.Dense(2)(context))
    graph = tf.function(
        lambda *ids: model(list(ids)), input_signature=[tf.TensorSpec((None, None))] * 2, autograph=False
    )
    ids = [VALUES * [4.0, 5, 6, 7], QUERIES * [1.0, 2, 3]]
    before = model(ids)
    longer = graph(np.pad(ids[0], [(0, 0), (0, 2)]), np.pad(ids[1], [(0, 0), (2, 0)]))
    np.testing.assert_allclose(np.array(longer[:, 2:])[QUERIES], np.array(before)[QUERIES], atol=1e-6)
    np.testing.assert_array_equal(before._keras_mask, QUERIES)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"query": (3, 5)}, r"must all be of rank 3.*query \(3, 5\), value \(2, 4, 7\), key \(2, 4, 5\)"),
        ({"key": (2, 6, 5)}, r"All axes of value and key but the last must be equal.*key \(2, 6, 5\)"),
        ({"query": (3, 3, 5)}, r"Query and value must be equal in the axes \(0,\).*query \(3, 3, 5\)"),
        (
            {"mask": (2, 3)},
            r"`mask` must have the first axes of its input, \(2, 4\)\. Received: mask of shape \(2, 3\)",
        ),
        ({"mask": (2, 4, 4)}, r"`mask` must fit .*Received: mask of shape \(2, 4, 4\)"),
        ({"mask": (2, 6, 3, 4)}, r"`mask` must have 2 to 3 axes .*before them the batch\. Received: .*2, 6, 3"),
        ({"query_mask": (2, 4)}, r"`query_mask` must have the first axes of its input, \(2, 3\)\."),
        ({"value_mask": (2, 3)}, r"`value_mask` must have the first axes of its input, \(2, 4\)\."),
        ({"key_mask": (3, 4)}, r"`key_mask` must have the first axes of its input, \(2, 4\)\."),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, dict) else "",
)
def test_refuses_shapes_that_do_not_fit(x, shapes, message):
    attention = DotProductAttention("general")
    attention(x.query, x.value, x.key)
    inputs = [np.zeros(shapes.get(name, SHAPES[name])) for name in ("query", "value", "key")]
    masks = {name: np.ones(shape, bool) for name, shape in shapes.items() if "mask" in name}
    with pytest.raises(ValueError, match=message):
        attention(*inputs, **masks)


def test_refuses_a_list_of_masks(x):
    with pytest.raises(ValueError, match=r"`mask` must be one tensor\. Give the masks of query and value,"):
        AdditiveAttention(6)(x.query, x.value, mask=[QUERIES, np.ones((2, 4), bool)])


def test_refuses_shapes_that_do_not_fit_in_a_symbolic_call_too():
    with pytest.raises(ValueError, match="All axes of value and key but the last must be equal"):
        AdditiveAttention(6)(keras.Input((3, 5)), keras.Input((4, 7)), keras.Input((6, 5)))


@pytest.mark.parametrize("name", ["dot", "scaled", "general", "additive", "concat"])
def test_scores_of_half_precision_are_float32(name, arrays, randomize):
    # Products of these are far beyond 65,504, the largest number of float16.
    x = arrays(query=(2, 3, 5), key=(2, 4, 5), value=(2, 4, 7))
    x.query, x.key = (np.round(100 * each) for each in (x.query, x.key))
    layers = [MAKERS[name](dtype=policy) for policy in ("float32", "mixed_float16")]
    contexts = []
    for layer in layers:
        layer(x.query, x.value, x.key)
        randomize(layer)
        layer.set_weights(layers[0].get_weights())
        scores = layer.scores(
            *(keras.ops.cast(each, layer.compute_dtype) for each in (x.query, layer.project_key(x.key)))
        )
        assert keras.backend.standardize_dtype(scores.dtype) == "float32"
        contexts.append(layer(x.query, x.value, x.key))
    assert np.isfinite(contexts[1]).all()
    if name in ("dot", "scaled"):  # which have no half-precision projections
        np.testing.assert_allclose(contexts[1], contexts[0], atol=2e-3)
