"""Packed encoders and heads against the models that they were made of."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from zoo import TextEmbedder
from zoo.layers.functions import forward_only
from zoo.models import Classifier, Encoder, MaskedLanguageModel, SentenceEmbedder
from zoo.serving import exporting
from zoo.serving.packed import groups, layers, pack
from zoo.tasks.encoder_tasks import MaskFiller, TextClassifier
from zoo.text import CharacterTokenizer, WordPieceTokenizer

SIZES = dict(vocabulary_size=13, units=12, num_heads=3, num_layers=2, feed_forward_units=10, max_length=8)
KINDS = {
    "BERT": dict(num_segments=2),
    "norm first": dict(norm_first=True, activation="gelu_tanh"),
    "modern": dict(positions="rotary", normalization="rms", activation="swiglu", use_bias=False, norm_first=True),
    "post-norm, rotary": dict(positions="rotary", normalization="rms"),
    "sinusoidal": dict(positions="sinusoidal", activation="relu", epsilon=0.2),
}
# Rows of all lengths, in no order: without padding, one token, none; padding before and between the tokens.
IDS = np.array(
    [
        [4, 5, 6, 7, 3],
        [9, 0, 0, 0, 0],
        [0, 0, 0, 0, 0],
        [12, 8, 3, 0, 0],
        [0, 0, 5, 8, 0],
        [6, 3, 0, 0, 0],
        [7, 0, 9, 0, 4],
    ],
    "int32",
)
BATCHES = {
    "all lengths": IDS,
    "equal lengths": np.array([[4, 5, 6], [7, 7, 3]], "int32"),
    "one text": IDS[:1],
    "one token": IDS[:1, :1],
    "a padded text": IDS[3:4],
    "only padding": IDS[2:3],
    "no text": IDS[:0],
}
FOR_HEADS = [BATCHES[name] for name in ("all lengths", "equal lengths", "no text")]


def batch(ids, model):
    """The inputs of a model; the segments, where it has any, also at padding."""
    segments = {"segments": tf.constant(ids % 2)} if "segments" in model.input else {}
    return {"ids": tf.constant(ids), **segments}


def assert_same(found, expected, tolerance=1e-5):
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=tolerance * max(1, np.abs(expected).max(initial=0)))


@pytest.fixture(scope="module", params=KINDS)
def encoder(request, randomize):
    """Of each kind one, with random weights."""
    return randomize(Encoder(**SIZES, **KINDS[request.param]))


def test_vectors_of_tokens_and_attention_maps_are_the_models(encoder):
    packed = pack(MaskedLanguageModel(encoder), 8).encoder
    for ids in BATCHES.values():
        inputs = batch(ids, encoder)
        shown = (ids != 0)[..., None]  # (B, T, 1)
        assert_same(packed(inputs).numpy(), np.where(shown, encoder(inputs), 0))
        assert packed.rows(**inputs)[0].shape == (shown.sum(), 12)  # without padding
    inputs, shown = batch(IDS, encoder), (IDS != 0)[:, None, None, :, None]  # (B, 1, 1, T, 1)
    assert_same(*(np.where(shown, each.attention_maps(**inputs), 0) for each in (packed, encoder)))


@pytest.mark.parametrize(
    ("kind", "heads", "units", "inner", "parts"),
    [("BERT", 4, 16, 10, 2), ("modern", 4, 16, 10, 2), ("BERT", 3, 12, 11, 1)],
)
def test_two_parts_of_a_layer_are_the_layer(kind, heads, units, inner, parts, randomize, monkeypatch):
    """An odd number of heads stays in one part, and so does an odd number of inner units."""
    monkeypatch.setattr(layers, "WIDE", units * inner)
    sizes = dict(SIZES, num_heads=heads, units=units, feed_forward_units=inner)
    encoder = randomize(Encoder(**sizes, **KINDS[kind]))
    packed = pack(MaskedLanguageModel(encoder), 8).encoder
    layer = packed._layers[0]
    assert (len(layer.attention), len(layer.feed_forward)) == (parts, parts)
    for ids in (IDS, BATCHES["equal lengths"]):
        inputs = batch(ids, encoder)
        assert_same(packed(inputs).numpy(), np.where((ids != 0)[..., None], encoder(inputs), 0))
    assert_same(packed.attention_maps(**inputs), encoder.attention_maps(**inputs))


HEADS = {
    "first": (Classifier, dict(num_classes=4, pooling="first", hidden_units=7)),
    "mean": (SentenceEmbedder, dict(pooling="mean")),
    "max": (SentenceEmbedder, dict(pooling="max", normalize=False, embedding_units=5)),
    "attention": (Classifier, dict(num_classes=4, pooling="attention", multi_label=True)),
    "masks": (MaskedLanguageModel, dict(activation="tanh")),
}


@pytest.mark.parametrize(("kind", "arguments"), HEADS.values(), ids=HEADS)
def test_heads_are_the_models(kind, arguments, randomize):
    model = randomize(kind(Encoder(**SIZES, num_segments=2), **arguments))
    packed = pack(model, 8)
    assert packed is not model
    for ids in FOR_HEADS:
        if not len(ids) and kind is not MaskedLanguageModel:  # which Keras does not pool
            assert packed(batch(ids, model)).shape[0] == 0
            continue
        inputs = batch(ids, model)
        found, expected = packed(inputs).numpy(), model(inputs).numpy()
        if kind is MaskedLanguageModel:  # logits at padding mean nothing
            found, expected = (np.where(ids[..., None] != 0, each, 0) for each in (found, expected))
        assert_same(found, expected)
    if arguments.get("pooling") == "attention":
        inputs = batch(IDS, model)
        assert_same(packed.pooling_weights(**inputs).numpy(), model.pooling_weights(**inputs).numpy())


def test_any_number_of_texts_is_put_into_groups(randomize):
    model = randomize(SentenceEmbedder(Encoder(**SIZES)))
    packed = pack(model, 8)
    for texts in (2, 3, 5, 9):
        ids = np.tile(IDS, [2, 1])[:texts]
        assert_same(packed({"ids": tf.constant(ids)}).numpy(), model({"ids": ids}).numpy())


def test_scores_of_long_texts_are_computed_in_blocks_where_needed(randomize):
    model = randomize(SentenceEmbedder(Encoder(**{**SIZES, "positions": "rotary"})))
    with forward_only(600):
        packed = pack(model, 600)
        assert_same(packed({"ids": tf.constant(IDS)}).numpy(), model({"ids": IDS}).numpy())


def test_every_weight_is_stored_once(randomize):
    """But for the copies of positions that no text reaches."""
    model = randomize(MaskedLanguageModel(Encoder(**SIZES, num_segments=2)))
    weights = pack(model, 8).weights
    sizes = [int(np.prod(weight.shape)) for weight in weights]
    assert len({id(weight) for weight in weights}) == len(sizes)
    assert sum(sizes) == sum(int(np.prod(weight.shape)) for weight in model.weights)
    shorter = pack(model, 6).weights
    assert [6, 12] in [each.shape for each in shorter]


def test_mixed_precision_is_packed_in_float32(randomize):
    """But for the head's own layers, which stay in bfloat16."""
    model = randomize(MaskedLanguageModel(Encoder(**SIZES, dtype="mixed_bfloat16")))
    exact = MaskedLanguageModel(Encoder(**SIZES))
    exact.set_weights(model.get_weights())
    packed, inputs = pack(model, 8), {"ids": tf.constant(IDS[:1])}
    assert_same(packed.encoder(inputs).numpy(), exact.encoder(inputs).numpy())
    assert_same(packed(inputs).numpy(), exact(inputs).numpy(), tolerance=0.02)


CHARACTERS = CharacterTokenizer("abcd ")
PIECES = WordPieceTokenizer(["[MASK]", *"abcd", "##a", "##b", "cab"])
TASKS = {
    "classifier of pairs": lambda encoder: TextClassifier(
        Classifier(encoder(CHARACTERS, num_segments=2), 2, pooling="attention"), CHARACTERS, ["no", "yes"], pairs=True
    ),
    "embedder": lambda encoder: TextEmbedder(SentenceEmbedder(encoder(CHARACTERS)), CHARACTERS),
    "filler": lambda encoder: MaskFiller(MaskedLanguageModel(encoder(PIECES)), PIECES, num_candidates=2),
}


@pytest.fixture(params=TASKS)
def task(request, randomize):
    def encoder(tokenizer, **more):
        return Encoder(**{**SIZES, "vocabulary_size": tokenizer.size}, **more)

    task = TASKS[request.param](encoder)
    randomize(task.model)
    return task


def assert_same_answers(found, expected):
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        if values.dtype == tf.string:
            assert found[name].numpy().tolist() == values.numpy().tolist()
        else:
            assert_same(found[name].numpy(), values.numpy())


def test_signatures_of_a_packed_task_answer_as_the_tasks(task, eager):
    packed = exporting.with_packed_model(task)
    assert packed.model is not task.model
    requests = task.example_requests(["a [MASK] cab", "", "b", "abcd abcd abcd"])
    assert requests.keys() == packed.signatures().keys()
    for name, inputs in requests.items():
        assert_same_answers(packed.signatures()[name](**inputs), task.signatures()[name](**inputs))


@pytest.mark.long
@pytest.mark.parametrize("name", ["classifier", "embedder", "filler"])
def test_exports_answer_as_the_tasks(readers, exported_readers, name, eager):
    task, loaded = readers[name], tf.saved_model.load(str(exported_readers[name]))
    for texts in (["a [MASK] cab", "", "b", "abcd abcd abcd"], ["dab a"], ["ab", "cd"]):
        for name, inputs in task.example_requests(texts).items():
            assert_same_answers(loaded.signatures[name](**inputs), task.signatures()[name](**inputs))


def layer_operations(layers):
    """How many of each operation the graph for texts of equal lengths has, and its branches for few scores."""
    model = SentenceEmbedder(Encoder(**{**SIZES, "num_layers": layers}))
    function = tf.function(pack(model, 8), autograph=False)
    graph = function.get_concrete_function({"ids": tf.TensorSpec([None, None], tf.int32)}).graph.as_graph_def()
    functions = {each.signature.name: each for each in graph.library.function}

    def count(function):
        counts = collections.Counter(node.op for node in function.node_def)
        inner = [node.attr["then_branch"].func.name for node in function.node_def if "then_branch" in node.attr]
        return sum((count(functions[name]) for name in inner), counts)

    with_layers = (each for each in functions.values() if any("then_branch" in node.attr for node in each.node_def))
    return min(map(count, with_layers), key=lambda counts: counts.total())


def test_a_layer_has_few_operations():
    of_layer = layer_operations(3) - layer_operations(2)
    for name in ("Const", "ReadVariableOp", "Placeholder"):
        del of_layer[name]
    assert of_layer.total() <= 50
    assert of_layer["If"] + of_layer["StatelessIf"] == 1
    assert of_layer["GatherV2"] == 2
    assert not {"Transpose", "Shape", "StridedSlice", "Where"} & set(of_layer)


@pytest.mark.parametrize("few", [0, 1e9], ids=["oneDNN's operations", "operations for few scores"])
def test_few_and_many_scores_give_the_same(few, randomize, monkeypatch):
    monkeypatch.setattr(groups, "_FEW", few)
    model = randomize(SentenceEmbedder(Encoder(**SIZES)))
    assert_same(pack(model, 8)({"ids": tf.constant(IDS)}).numpy(), model({"ids": IDS}).numpy())
