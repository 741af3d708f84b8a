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
KNOWN = {"attention_by_head": {"weights": {1: 2, 2: 2}, "source_weights": {1: 1, 2: 2}}}
SIGNATURES = {"serving_default", "generate", "score", "attention", "attention_by_head"}
TYPES = {"max_target_length": tf.int32, "tokens": tf.int32}
TYPES |= dict.fromkeys(("score", "weights", "source_weights", "log_probability", "length_penalty"), tf.float32)
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
    def test_tag_and_names(self, meta_graph, request):
        assert list(meta_graph.meta_info_def.tags) == ["serve"]
        signatures = {name for name in meta_graph.signature_def if not name.startswith("__")}
        wanted = {"serving_default", "generate", "score"}
        if "thought vector" not in request.node.name:
            wanted.add("attention")
        if "transformer" in request.node.name:
            wanted.add("attention_by_head")
        assert signatures == wanted

    def test_inputs_and_outputs(self, meta_graph):
        default = meta_graph.signature_def["serving_default"]
        assert default.method_name == "tensorflow/serving/predict"
        assert ranks(default.inputs) == {"text": 1}
        assert ranks(default.outputs) == {"text": 1, "score": 1}
        generate, score = (meta_graph.signature_def[name] for name in ("generate", "score"))
        assert ranks(generate.inputs) == {"text": 1, "max_target_length": 1, "length_penalty": 1}
        assert ranks(generate.outputs) == {"text": 1, "score": 1}
        assert ranks(score.inputs) == {"text": 1, "target": 1}
        assert ranks(score.outputs) == {"log_probability": 1, "tokens": 1}
        if "attention" in meta_graph.signature_def:
            attention = meta_graph.signature_def["attention"]
            assert ranks(attention.inputs) == {"text": 1}
            assert ranks(attention.outputs) == {"source_tokens": 2, "target_tokens": 2, "weights": 3}
        if "attention_by_head" in meta_graph.signature_def:
            by_head = meta_graph.signature_def["attention_by_head"]
            assert ranks(by_head.inputs) == {"text": 1}
            tokens = {"source_tokens": 2, "target_tokens": 2}
            assert ranks(by_head.outputs) == {**tokens, "weights": 5, "source_weights": 5}

    def test_every_axis_is_of_unknown_size_but_layers_and_heads(self, meta_graph):
        for name in SIGNATURES & set(meta_graph.signature_def):
            signature = meta_graph.signature_def[name]
            for key, tensor in [*signature.inputs.items(), *signature.outputs.items()]:
                assert not tensor.tensor_shape.unknown_rank
                sizes = enumerate(axis.size for axis in tensor.tensor_shape.dim)
                assert {axis: size for axis, size in sizes if size != -1} == KNOWN.get(name, {}).get(key, {})

    def test_types(self, meta_graph):
        for name in SIGNATURES & set(meta_graph.signature_def):
            signature = meta_graph.signature_def[name]
            for key, tensor in [*signature.inputs.items(), *signature.outputs.items()]:
                assert tensor.dtype == TYPES.get(key, tf.string).as_datatype_enum, key


class TestGraph:
    def test_no_python_and_no_kernel_of_a_gpu(self, meta_graph):
        ops = {node.op for node in nodes(meta_graph)}
        assert {"LookupTableFindV2", "UnicodeDecode"} <= ops, "this is not the whole graph"
        assert [op for op in ops if "PyFunc" in op or "Cudnn" in op or "CudnnRNN" in op] == []

    def test_ops_of_the_core_alone(self, meta_graph):
        library = {function.signature.name for function in meta_graph.graph_def.library.function}
        assert [node.op for node in nodes(meta_graph) if node.op not in library and not is_core(node.op)] == []

    def test_nothing_is_compiled_by_xla(self, meta_graph):
        functions = meta_graph.graph_def.library.function
        attributes = [*(function.attr for function in functions), *(node.attr for node in nodes(meta_graph))]
        assert not any(attribute["_XlaMustCompile"].b for attribute in attributes if "_XlaMustCompile" in attribute)

    def test_nothing_asks_for_a_gradient(self, meta_graph):
        """A loader warns of functions whose own gradients were not saved, and nobody trains here."""
        assert [node.name for node in nodes(meta_graph) if "_gradient_op_type" in node.attr] == []

    def test_signatures_share_the_tokenizer_and_the_loop(self, meta_graph, request):
        loops = [node for node in nodes(meta_graph) if node.op in ("While", "StatelessWhile")]
        pieces = [node for node in nodes(meta_graph) if node.op == "UnicodeDecode"]
        assert len(pieces) == 2, "of the source, and of the targets to be scored"
        if "transformer" in request.node.name:
            assert len(loops) == 4, "phases, their steps and the way back; scores; 400 tokens are not cut into blocks"

    def test_nothing_is_drawn_by_chance(self, meta_graph):
        assert [node.op for node in nodes(meta_graph) if "Random" in node.op] == []


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

    def test_of_nothing_comes_nothing(self, serve):
        assert serve([b""]) == serve([b" \t\r\n\v\f "]) == [(b"", 0.0)]
        assert serve([b"cab", b" "])[1] == (b"", 0.0)

    def test_white_space_around_a_text_does_not_count(self, serve):
        assert serve([b"\n cab\t "]) == serve([b"cab"])

    def test_no_rows(self, serve, servable):
        assert serve([]) == []
        attention = servable._attend(tf.constant([], tf.string))
        assert {name: len(tensor) for name, tensor in attention.items()} == dict.fromkeys(attention, 0)

    def test_a_hundred_thousand_characters_are_read_up_to_the_limit(self, serve, translator):
        kept = (b"abcd 1234 " * 100)[: translator.max_source_length - 1]
        assert serve([b"abcd 1234 " * 10_000]) == [(serve([kept])[0][0], pytest.approx(serve([kept])[0][1], abs=1e-5))]

    def test_after_what_it_cannot_read_it_goes_on(self, servable, serve):
        before = serve([b"cab"])
        for wrong in (tf.constant([1]), tf.constant([1.5]), tf.constant("a"), tf.constant([["a"]])):
            with pytest.raises((TypeError, ValueError, tf.errors.InvalidArgumentError)):
                servable._translate(wrong)
        assert serve([b"cab"]) == before


class TestAttentionByHead:
    def test_weights_belong_to_the_tokens_and_are_zero_at_padding(self, servable_transformer):
        signature = servable_transformer._signatures["attention_by_head"]
        texts = tf.constant([b"cab", b"", b"4321 abcd", b"\xff"])
        result = {name: tensor.numpy() for name, tensor in signature(text=texts).items()}
        read = result["source_tokens"] != b""
        written = result["target_tokens"] != b""
        assert result["weights"].shape == (4, 2, 2, written.shape[1], read.shape[1])
        assert result["source_weights"].shape == (4, 1, 2, read.shape[1], read.shape[1])
        for weights, rows in ((result["weights"], written), (result["source_weights"], read)):
            inside = rows[:, None, None, :, None] & read[:, None, None, None, :]
            assert not np.any(weights * ~inside)
            sums = np.broadcast_to(rows[:, None, None], weights.shape[:-1])
            np.testing.assert_allclose(weights.sum(-1), sums, atol=1e-5)
        mean = result["weights"][:, -1].mean(1)
        np.testing.assert_allclose(mean, servable_transformer._attend(texts)["weights"], atol=1e-5)
        empty = signature(text=tf.constant([], tf.string))
        assert {name: len(tensor) for name, tensor in empty.items()} == dict.fromkeys(result, 0)


class TestAttention:
    def test_weights_belong_to_the_tokens_and_are_zero_at_padding(self, servable):
        texts = [b"cab", b"", b"4321 abcd", b"\xff"]
        result = {name: tensor.numpy() for name, tensor in servable._attend(tf.constant(texts)).items()}
        rows, targets, sources = result["weights"].shape
        assert result["source_tokens"].shape == (rows, sources)
        assert result["target_tokens"].shape == (rows, targets)
        read = (result["source_tokens"] != b"")[:, None, :]
        written = (result["target_tokens"] != b"")[:, :, None]
        assert (result["weights"][~(read & written)] == 0).all()
        np.testing.assert_allclose(result["weights"].sum(axis=2), written[:, :, 0], atol=1e-5)
        assert written.sum(axis=1)[:, 0].tolist()[1] == 0

    def test_a_row_does_not_see_its_neighbours(self, servable):
        alone = servable.attend(["cab"])[0]
        among = servable.attend(["cab", "4321 abcd" * 30])[0]
        assert among.target_tokens == alone.target_tokens
        np.testing.assert_allclose(among.weights, alone.weights, atol=1e-5)

    def test_tokens_spell_the_texts(self, servable):
        (alignment,) = servable.attend(["é?1"])
        assert alignment.source_tokens == ["é", "<unk>", "1", "</s>"]
        assert "".join(alignment.target_tokens).removesuffix("</s>") == servable(["é?1"])[0]
