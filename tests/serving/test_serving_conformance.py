"""What a stock TensorFlow Serving asks of a SavedModel: its signatures, its ops, and answers to all requests."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from zoo.serving import newest_version

FAMILIES = {
    "additive gru": "exported",
    "thought vector, lstm, dropout": "exported_without_attention",
    "transformer, beam, dropout": "exported_transformer",
}
# Where a signature's output has axes of known sizes: the layers and the heads.
OF_HEADS = {"weights": {1: 2, 2: 2}, "source_weights": {1: 1, 2: 2}, "target_weights": {1: 2, 2: 2}}
KNOWN = {"attention_by_head": OF_HEADS}
SIGNATURES = {"serving_default", "generate", "score", "attention", "attention_by_head"}
TYPES = {"max_target_length": tf.int32, "tokens": tf.int32}
TYPES |= dict.fromkeys(("score", *OF_HEADS, "log_probability", "length_penalty"), tf.float32)
# What clients send. The last is longer than the longest source.
TEXTS = [
    b"cab",
    b"",
    b"  \t\r\n ",
    "e\u0301 1".encode(),
    b"\xff\xfe\x80",
    b"a\xc3",
    b"\xed\xa0\x80 b",
    b"a\0b\0",
    b"\0",
    "😀👩‍👩‍👧".encode(),
    "\u202eשלום \u0661".encode(),
    "\ufffd".encode(),
    b"a line\nand another",
    b"<script>&amp;\"'\\",
    b"abcd 4321 " * 3,
    b"cab " * 100,
]


@pytest.fixture(scope="module", params=FAMILIES)
def meta_graph(request):
    version = newest_version(request.getfixturevalue(FAMILIES[request.param]))
    model = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes())
    (graph,) = model.meta_graphs
    return graph


@pytest.fixture(scope="module")
def serve(servable):
    """The signature `serving_default`, from bytes to [(text, score)]."""
    signature = servable._signatures["serving_default"]

    def serve(texts):
        result = signature(text=tf.constant(texts, tf.string, [len(texts)]))
        assert result["text"].shape == result["score"].shape == [len(texts)]
        return list(zip(result["text"].numpy().tolist(), result["score"].numpy().tolist(), strict=True))

    return serve


def nodes(graph):
    functions = (function.node_def for function in graph.graph_def.library.function)
    return itertools.chain(graph.graph_def.node, *functions)


def ranks(tensors):
    return {name: len(tensor.tensor_shape.dim) for name, tensor in tensors.items()}


class TestSignatures:
    def test_names_and_ranks(self, meta_graph, request):
        assert list(meta_graph.meta_info_def.tags) == ["serve"]
        found = {name: each for name, each in meta_graph.signature_def.items() if not name.startswith("__")}
        tokens = {"source_tokens": 2, "target_tokens": 2}
        wanted = {
            "serving_default": ({"text": 1}, {"text": 1, "score": 1}),
            "generate": ({"text": 1, "max_target_length": 1, "length_penalty": 1}, {"text": 1, "score": 1}),
            "score": ({"text": 1, "target": 1}, {"log_probability": 1, "tokens": 1}),
        }
        if "thought vector" not in request.node.name:
            wanted["attention"] = {"text": 1}, {**tokens, "weights": 3}
        if "transformer" in request.node.name:
            wanted["attention_by_head"] = {"text": 1}, {**tokens, **dict.fromkeys(OF_HEADS, 5)}
        assert {name: (ranks(each.inputs), ranks(each.outputs)) for name, each in found.items()} == wanted
        assert found["serving_default"].method_name == "tensorflow/serving/predict"

    def test_types_and_axes_which_are_of_unknown_size_but_layers_and_heads(self, meta_graph):
        for name in SIGNATURES & set(meta_graph.signature_def):
            signature = meta_graph.signature_def[name]
            for key, tensor in [*signature.inputs.items(), *signature.outputs.items()]:
                assert tensor.dtype == TYPES.get(key, tf.string).as_datatype_enum, key
                assert not tensor.tensor_shape.unknown_rank
                sizes = enumerate(axis.size for axis in tensor.tensor_shape.dim)
                assert {axis: size for axis, size in sizes if size != -1} == KNOWN.get(name, {}).get(key, {})


class TestGraph:
    def test_ops_are_of_the_core_alone_without_python_gpu_chance_or_gradients(self, meta_graph):
        """A loader warns of functions whose own gradients were not saved, and nobody trains here."""
        library = {function.signature.name for function in meta_graph.graph_def.library.function}
        ops = {node.op for node in nodes(meta_graph)}
        assert {"LookupTableFindV2", "UnicodeDecode"} <= ops, "this is not the whole graph"
        assert [op for op in ops if op not in library and not is_core(op)] == []
        assert [op for op in ops if "PyFunc" in op or "Cudnn" in op or "Random" in op] == []
        assert [node.name for node in nodes(meta_graph) if "_gradient_op_type" in node.attr] == []

    def test_nothing_is_compiled_by_xla(self, meta_graph):
        functions = meta_graph.graph_def.library.function
        attributes = [*(function.attr for function in functions), *(node.attr for node in nodes(meta_graph))]
        assert not any(attribute["_XlaMustCompile"].b for attribute in attributes if "_XlaMustCompile" in attribute)

    def test_signatures_share_the_tokenizer_and_the_loop(self, meta_graph, request):
        loops = [node for node in nodes(meta_graph) if node.op in ("While", "StatelessWhile")]
        pieces = [node for node in nodes(meta_graph) if node.op == "UnicodeDecode"]
        assert len(pieces) == 2, "of the source, and of the targets to be scored"
        if "transformer" in request.node.name:
            assert len(loops) == 4, "phases, their steps and the way back; scores; 400 tokens are not cut into blocks"


def is_core(op):
    """Whether TensorFlow itself has this op: tensorflow-text's are called `Namespace>Name`, and are not in raw_ops."""
    return op in dir(tf.raw_ops) or op in ("Placeholder", "Const", "NoOp", "StatefulPartitionedCall", "PartitionedCall")


class TestRows:
    def test_every_output_is_utf8(self, serve):
        for text, score in serve(TEXTS):
            text.decode()
            assert score <= 0

    def test_a_row_does_not_see_its_neighbours(self, serve):
        texts = TEXTS[:-2]  # the others are as long as the longest neighbour
        alone = [serve([text])[0] for text in texts]
        for neighbors in (texts[::-1], TEXTS * 4, [b"4321 dcba " * 30]):
            among = serve([*neighbors, *texts])[len(neighbors) :]
            assert [text for text, _ in among] == [text for text, _ in alone]
            assert [score for _, score in among] == pytest.approx([score for _, score in alone], abs=1e-5)

    def test_rows_keep_their_order(self, serve):
        assert [text for text, _ in serve(TEXTS[::-1])] == [text for text, _ in serve(TEXTS)][::-1]
        assert len({text for text, _ in serve(TEXTS)}) > 5, "the rows are hard to tell apart"

    def test_of_nothing_comes_nothing_and_white_space_around_a_text_does_not_count(self, serve):
        assert serve([b""]) == serve([b" \t\r\n\v\f "]) == [(b"", 0.0)]
        assert serve([b"cab", b" "])[1] == (b"", 0.0)
        assert serve([]) == []
        assert serve([b"\n cab\t "]) == serve([b"cab"])

    def test_a_hundred_thousand_characters_are_read_up_to_the_limit(self, serve, translator):
        kept = (b"abcd 1234 " * 100)[: translator.max_source_length - 1]
        assert serve([b"abcd 1234 " * 10_000]) == [(serve([kept])[0][0], pytest.approx(serve([kept])[0][1], abs=1e-5))]

    def test_after_what_it_cannot_read_it_goes_on(self, servable, serve):
        before = serve([b"cab"])
        for wrong in (tf.constant([1]), tf.constant([1.5]), tf.constant("a"), tf.constant([["a"]])):
            with pytest.raises((TypeError, ValueError, tf.errors.InvalidArgumentError)):
                servable._translate(wrong)
        assert serve([b"cab"]) == before


class TestAttention:
    @pytest.mark.parametrize("kind", ["attention", "attention_by_head"])
    def test_weights_belong_to_the_tokens_and_are_zero_at_padding(self, kind, servable, servable_transformer):
        signatures = (servable if kind == "attention" else servable_transformer)._signatures
        texts = tf.constant([b"cab", b"", b"4321 abcd", b"\xff"])
        result = {name: tensor.numpy() for name, tensor in signatures[kind](text=texts).items()}
        read, written = result["source_tokens"] != b"", result["target_tokens"] != b""
        assert not written[1].any()
        expected = {"weights": (written, read), "source_weights": (read, read)}
        for name in expected.keys() & result.keys():
            rows, columns = expected[name]
            weights = result[name]
            between = (1, 2) if kind == "attention_by_head" else ()  # the axes of layers and heads
            rows, columns = (np.expand_dims(each, between) for each in (rows, columns))
            inside = rows[..., None] & columns[..., None, :]
            assert not np.any(weights * ~inside)
            np.testing.assert_allclose(weights.sum(-1), np.broadcast_to(rows, weights.shape[:-1]), atol=1e-5)
        if kind == "attention_by_head":
            assert result["weights"].shape[1:3] == (2, 2) and result["source_weights"].shape[1:3] == (1, 2)
            mean = result["weights"][:, -1].mean(1)
            np.testing.assert_allclose(mean, signatures["attention"](text=texts)["weights"], atol=1e-5)
        empty = signatures[kind](text=tf.constant([], tf.string))
        assert {name: len(tensor) for name, tensor in empty.items()} == dict.fromkeys(result, 0)

    def test_a_row_does_not_see_its_neighbours_and_tokens_spell_the_texts(self, servable):
        alone = servable.attend(["é?1"])[0]
        among = servable.attend(["é?1", "4321 abcd" * 30])[0]
        assert among.target_tokens == alone.target_tokens
        np.testing.assert_allclose(among.weights, alone.weights, atol=1e-5)
        assert alone.source_tokens == ["é", "<unk>", "1", "</s>"]
        assert "".join(alone.target_tokens).removesuffix("</s>") == servable(["é?1"])[0]
