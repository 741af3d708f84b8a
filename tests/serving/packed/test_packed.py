"""Packed language models and transformers against the models that they were made of."""

import collections
import contextlib
from operator import attrgetter, methodcaller

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from zoo import TextGenerator, Translator
from zoo.decoding.loop import loops_for_a_server
from zoo.decoding.sampling import generate
from zoo.layers.functions import forward_only
from zoo.models import GPT, Transformer
from zoo.serving import exporting, open_servable
from zoo.serving.packed import layers, pack, products
from zoo.text import CharacterTokenizer

# Sizes that differ from each other; rows of all lengths, one without any token.
OF_GPT = dict(vocabulary_size=13, units=12, num_heads=6, num_layers=2, context_length=16, feed_forward_units=10)
OF_TRANSFORMER = dict(source_vocabulary_size=13, target_vocabulary_size=13, units=12, num_heads=6)
OF_TRANSFORMER |= dict(feed_forward_units=10, encoder_layers=1, decoder_layers=2)
MODERN = dict(positions="rotary", normalization="rms", activation="swiglu", use_bias=False)
KINDS = {
    "GPT-2": (GPT, dict(unused_ids=(0, 7))),
    "modern GPT, untied": (GPT, dict(**MODERN, num_key_value_heads=2, tied_embeddings=False, unused_ids=(0, 1))),
    "transformer": (Transformer, {}),
    "norm first, learned, one table": (
        Transformer,
        dict(norm_first=True, positions="learned", max_length=16, tied_embeddings="all"),
    ),
    "modern transformer": (Transformer, dict(**MODERN, norm_first=True)),
    "post-norm, rotary, untied": (Transformer, dict(positions="rotary", normalization="rms", tied_embeddings="none")),
}
SOURCE = np.array([[4, 5, 6, 7, 3], [0, 9, 3, 0, 0], [0, 0, 0, 0, 0], [12, 8, 3, 0, 0]], "int32")
TARGET = np.array([[2, 7, 5], [2, 8, 4], [2, 6, 11], [2, 4, 10]], "int32")


def make(family, **arguments):
    return family(**{**(OF_GPT if family is GPT else OF_TRANSFORMER), **arguments})


@pytest.fixture(scope="module", params=KINDS)
def model(request, randomize):
    """Of each kind one, with random weights."""
    family, arguments = KINDS[request.param]
    return randomize(make(family, **arguments))


def pack_in(parts, model, *lengths):
    """The packed model, with layers in so many parts as if they were wide."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers, "WIDE", 1 if parts == 2 else 2**60)
        packed = pack(model, *lengths)
    assert packed.in_parts == (parts == 2)
    return packed


IN_PARTS = pytest.mark.parametrize("parts", [1, 2], ids=["one part", "two parts"])


@pytest.fixture(scope="module", params=[1, 2], ids=["one part", "two parts"])
def packed(request, model):
    return pack_in(request.param, model, 16)


def stepped(model, source, hypotheses=1):
    """The logits of steps, and the weights where there are any, each hypothesis with tokens of its own."""
    memory, cache = model.begin(tf.constant(source))
    cache = tf.nest.map_structure(lambda each: tf.repeat(each, hypotheses, axis=1), cache)
    found = []
    for i in range(TARGET.shape[1]):
        ids = [np.roll(TARGET, number, axis=0)[: len(source), i] for number in range(hypotheses)]
        logits, cache, weights = model.step(tf.constant(np.stack(ids, 1)), tf.constant(i), memory, cache)
        found.append(logits if weights is None else np.concatenate([logits, weights], axis=-1))
    return np.stack(found)


@pytest.fixture(scope="module")
def steps_of_three(model):
    with forward_only(16):
        return stepped(model, SOURCE, 3)


def test_steps_of_several_hypotheses_are_the_models(steps_of_three, packed):
    with forward_only(16):
        np.testing.assert_allclose(stepped(packed, SOURCE, 3), steps_of_three, atol=2e-5)


def test_steps_without_rows_or_prompts(model, packed):
    with forward_only(16):
        assert stepped(packed, SOURCE[:0]).shape == (3, 0, 1, 13 if isinstance(model, GPT) else 13 + 5)
        if isinstance(model, GPT):
            np.testing.assert_allclose(stepped(packed, SOURCE[:, :0]), stepped(model, SOURCE[:, :0]), atol=2e-5)


OF_LANGUAGE = [kind for kind, (family, _) in KINDS.items() if family is GPT]


@pytest.mark.parametrize(
    ("kind", "hypotheses", "parts"),
    [*((kind, 1, 1) for kind in OF_LANGUAGE), *((kind, 3, 2) for kind in OF_LANGUAGE)],
)
def test_steps_in_room_are_the_steps_that_copy(kind, hypotheses, parts, randomize):
    """After one step without room, three in room for three; the cache is then the same, and goes on."""
    model = pack_in(parts, randomize(make(GPT, **KINDS[kind][1])), 16)
    memory, cache = model.begin(tf.constant(SOURCE))
    cache = tf.nest.map_structure(lambda each: tf.repeat(each, hypotheses, axis=1), cache)
    ids = tf.constant(np.random.default_rng(1).integers(4, 13, (5, len(SOURCE), hypotheses)), tf.int32)
    copied, logits = [cache], []
    for i in range(5):
        step, following, _ = model.step(ids[i], tf.constant(i), memory, copied[-1])
        copied.append(following)
        logits.append(step)
    inside = model.with_room(copied[1], tf.constant(1), 3)
    for i in range(1, 4):
        step, inside, _ = model.step(ids[i], tf.constant(i), memory, inside)
        np.testing.assert_allclose(step, logits[i], atol=2e-6)
    left = model.without_room(inside, tf.constant(4))
    with pytest.raises(tf.errors.InvalidArgumentError):  # one step too many
        model.step(ids[4], tf.constant(4), memory, inside)
    tf.nest.assert_same_structure(left, copied[4], check_types=False)
    for found, wanted in zip(tf.nest.flatten(left), tf.nest.flatten(copied[4]), strict=True):
        np.testing.assert_allclose(found, wanted, atol=2e-6)
    np.testing.assert_allclose(model.step(ids[4], tf.constant(4), memory, left)[0], logits[4], atol=2e-6)


DRAWN = [0.0, 1.0, 0.7, 1.3]  # temperatures; the first row is the likeliest


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "temperature", "parts"),
    [
        ("GPT-2", 0.0, 1),
        ("modern GPT, untied", 0.0, 2),
        ("modern GPT, untied", DRAWN, 1),
    ],
    ids=["GPT-2, likeliest, one part", "modern, likeliest, two", "modern, drawn, one"],
)
def test_texts_do_not_depend_on_the_room(kind, temperature, parts, randomize):
    """In an export's loops, in TensorFlow's own, whose steps may overlap, and in eager ones.

    Rows end at different times, with a room and one step behind it, and some write more tokens than the context has.
    """
    model = pack_in(parts, randomize(make(GPT, **{**KINDS[kind][1], "num_layers": 1}), scale=0.4), 16)
    specs = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)

    def call(prompts, limits):
        return generate(model, prompts, limits, temperature, seed=3)[:2]

    def traced(steps, in_a_server):
        model.room_steps = steps
        with loops_for_a_server(on_one_thread=parts == 1) if in_a_server else contextlib.nullcontext():
            return tf.function(call, autograph=False).get_concrete_function(*specs)

    copying, *calls = traced(0, True), traced(3, True), traced(3, False)
    for limits in ([40, 3, 0, 17], [4, 6, 1, 2], [0, 0, 0, 0], [1, 1, 1, 1]):
        expected = copying(tf.constant(SOURCE), tf.constant(limits))
        for written in (*calls, call) if limits[0] == 4 else calls:
            found = written(tf.constant(SOURCE), tf.constant(limits))
            np.testing.assert_array_equal(found[0], expected[0])
            np.testing.assert_allclose(found[1], expected[1], atol=1e-5)


def test_a_window_of_the_latest_tokens_has_no_room():
    assert pack(make(GPT), 16).room_steps > 0
    assert pack(make(GPT, sliding_window=[None, 4]), 16).room_steps == 0


def test_the_likeliest_tokens_of_a_language_model_have_a_loop_without_branches():
    """Only such a loop can be run by one thread; the other one draws."""
    model = pack(make(GPT), 16)

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([], tf.float32)], autograph=False
    )
    def call(prompts, temperature):
        return generate(model, prompts, 5, temperature).ids

    with loops_for_a_server():
        graph = call.get_concrete_function().graph.as_graph_def()
    nodes = [node for function in graph.library.function for node in function.node_def]
    whole = [each for each in nodes if each.op.endswith("While") and not each.attr["_lower_using_switch_merge"].b]
    executors = [each.attr["body"].func.attr["_executor"].s for each in whole]
    assert sorted(executors) == [b"", b"SINGLE_THREADED_EXECUTOR"]
    ids = call([[4, 5, 6]], 0.0)
    np.testing.assert_array_equal(ids, generate(model, [[4, 5, 6]], 5, 0.0).ids)


@IN_PARTS
def test_the_logits_of_some_ids_are_those_among_all(model, parts):
    packed = pack_in(parts, model, 16)
    if isinstance(model, GPT):
        assert not hasattr(packed, "output_columns")
        return
    ids = np.array([[3, 12, 5], [4, 4, 0], [7, 6, 5], [9, 3, 8]], "int32")
    packed.prepare_output_columns()
    memory, cache = packed.begin(tf.constant(SOURCE))
    cache = tf.nest.map_structure(lambda each: tf.repeat(each, 2, axis=1), cache)
    tokens = tf.constant(TARGET[:, :2])
    with forward_only(16):
        logits, _, weights = packed.step(tokens, tf.constant(0), memory, cache)
        some, _, same = packed.step(tokens, tf.constant(0), memory, cache, packed.output_columns(tf.constant(ids)))
    for row in range(4):
        np.testing.assert_allclose(some[row], logits.numpy()[row][:, ids[row]], atol=2e-5)
    np.testing.assert_array_equal(same, weights)


def test_what_logits_and_attention_maps_are_made_of_is_the_models(model, packed):
    source, target = tf.constant(SOURCE), tf.constant(TARGET)
    inputs = target if isinstance(model, GPT) else {"source": source, "target": target}
    read = (tf.constant(SOURCE[[0, 3]]),) if isinstance(model, GPT) else (source, target)
    with forward_only(16):
        rows = packed.without_logits()(inputs)  # (B, T, .)
        logits = tf.reshape(packed.logits_of(tf.reshape(rows, [-1, rows.shape[-1]])), [*rows.shape[:2], -1])
        maps = tf.nest.flatten(packed.attention_maps(*read))
    np.testing.assert_allclose(logits, model(inputs), atol=2e-5)
    for found, expected in zip(maps, tf.nest.flatten(model.attention_maps(*read)), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_every_weight_is_stored_once(model, packed):
    """The numbers beyond the model's own are constants next to features, positions, centring and residuals."""
    weights = packed.variables if isinstance(model, GPT) else packed.weights
    sizes = [int(np.prod(weight.shape)) for weight in weights]
    ours, more = sum(sizes), sum(int(np.prod(weight.shape)) for weight in model.weights)
    assert len({id(weight) for weight in weights}) == len(sizes)
    assert more < ours < 1.5 * more


@pytest.mark.parametrize(
    ("family", "arguments"),
    [(GPT, {}), (Transformer, {}), (Transformer, {"positions": "learned", "max_length": 7})],
    ids=["GPT-2", "sinusoidal", "learned"],
)
def test_positions_reach_as_far_as_the_longest_text(family, arguments, randomize):
    model = randomize(make(family, **arguments))
    longest = 8 if family is GPT else 3
    lengths = (longest,) if family is GPT else (longest, SOURCE.shape[1])
    short = pack(model, *lengths)
    assert [longest, 13] in [each.shape for each in short.variables]
    with forward_only(16):
        np.testing.assert_allclose(stepped(short, SOURCE), stepped(model, SOURCE), atol=2e-5)
    if arguments:
        with pytest.raises(ValueError, match=r"A target may have 8 tokens, more than the 7 learned positions"):
            pack(model, 8)
        with pytest.raises(ValueError, match=r"A source may have 9 tokens, more than the 7 learned positions"):
            pack(model, 7, 9)


@pytest.mark.parametrize("family", [GPT, Transformer])
def test_mixed_precision_is_packed_in_float32(family, randomize):
    model, exact = randomize(make(family, dtype="mixed_bfloat16")), make(family)
    exact.set_weights(model.get_weights())
    with forward_only(16):
        np.testing.assert_allclose(stepped(pack(model, 16), SOURCE), stepped(exact, SOURCE), atol=2e-5)


def test_long_sources_are_encoded_in_blocks_where_needed(randomize):
    model = randomize(make(Transformer))
    source = tf.constant(np.random.default_rng(0).integers(4, 13, (1, 520)), tf.int32)
    with forward_only(600):
        packed = pack(model, 8, 600)
        logits = packed.step(tf.constant([[2]]), tf.constant(0), *packed.begin(source))[0]
        expected = model.step(tf.constant([[2]]), tf.constant(0), *model.begin(source))[0]
    np.testing.assert_allclose(logits, expected, atol=2e-5)


def step_operations(number):
    """How many of each operation the bodies of an export's two loops have: of the likeliest tokens, of drawn ones."""
    tokenizer = CharacterTokenizer("abcd")
    generator = exporting.with_packed_model(TextGenerator(GPT(tokenizer.size, 12, 3, number, 32), tokenizer))
    graph = generator.signatures()["generate"].get_concrete_function().graph.as_graph_def()
    bodies = [collections.Counter(node.op for node in function.node_def) for function in graph.library.function]
    loops = [counts for counts in bodies if counts["TensorListSetItem"] and counts["EuclideanNorm"]]
    return sorted(loops, key=collections.Counter.total)  # Drawing takes more than choosing the likeliest.


def test_a_step_has_few_operations_and_none_that_onednn_takes():
    for one, two in zip(step_operations(1), step_operations(2), strict=True):
        of_layer = two - one
        assert of_layer.total() - of_layer["Const"] <= 38
        slow = {"MatMul", "BatchMatMulV2", "Softmax", "BiasAdd", "Shape", "Transpose", "StridedSlice"}
        assert not slow & set(of_layer)


@pytest.mark.long
@pytest.mark.parametrize("family", [GPT, Transformer])
def test_an_export_in_two_parts_answers_as_its_model(family, randomize, tmp_path, monkeypatch):
    """With the products of wide layers, and steps that all threads may share."""
    tokenizer, texts = CharacterTokenizer("abcdefghi"), ["abc", "", "fedca"]
    model = randomize(make(family), scale=0.4)  # as many ids as the tokenizer has
    if family is GPT:
        task, ask = TextGenerator(model, tokenizer), methodcaller("generate", texts, 9, temperature=0.0)
        number = attrgetter("log_probability")
    else:
        task = Translator(model, tokenizer, tokenizer, 12, 9, beam_size=3)
        ask, number = methodcaller("translate", texts), attrgetter("score")
    monkeypatch.setattr(layers, "WIDE", 1)
    monkeypatch.setattr(products, "LARGE", 1)
    version = exporting.export(task, tmp_path / "wide")
    for found, expected in zip(ask(open_servable(version)), ask(task), strict=True):
        assert found.text == expected.text
        np.testing.assert_allclose(number(found), number(expected), atol=1e-4)
    graph = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes()).meta_graphs[0].graph_def
    nodes = [node for function in graph.library.function for node in function.node_def]
    bodies = [each.attr["body"].func for each in nodes if each.op.endswith("While")]
    assert bodies and not any("_executor" in each.attr for each in bodies)
