"""The requests that a server warms up with: what the signatures take, and answer."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from zoo.serving.exporting import write_warm_up
from zoo.serving.layout import WARM_UP_FILE
from zoo.text import BytePairTokenizer, CharacterTokenizer
from zoo.text.tokenizer import example_texts


def requests(version):
    for record in tf.data.TFRecordDataset(str(version / WARM_UP_FILE)):
        yield prediction_log_pb2.PredictionLog.FromString(record.numpy()).predict_log.request


def answered(servable):
    """How many rows each signature is asked for, in the order of the file; the first request of each is made."""
    signatures, rows = servable._signatures, {}
    for request in requests(servable.path):
        inputs = {key: tf.constant(tf.make_ndarray(value)) for key, value in request.inputs.items()}
        name = request.model_spec.signature_name
        specs = signatures[name].structured_input_signature[1]
        assert {key: value.dtype for key, value in inputs.items()} == {key: spec.dtype for key, spec in specs.items()}
        if name not in rows:  # the first call of each takes long; a server makes all of them, see test_model_server.py
            outputs = signatures[name](**inputs)
            assert {len(each) for each in outputs.values()} == {len(inputs["text"])}
        rows.setdefault(name, []).append(len(inputs["text"]))
    assert set(rows) == set(signatures)
    return rows


@pytest.mark.long
def test_every_signature_answers_them(servable_transformer, servable_generator):
    rows = answered(servable_transformer)
    assert set(rows) == {"serving_default", "generate", "score", "attention", "attention_by_head"}
    assert all(each == [1, 4, 16] for each in rows.values())
    rows = answered(servable_generator)
    assert rows.pop("serving_default") == [1]
    assert rows == {name: [1, 4, 16] for name in ("generate", "score", "attention", "attention_by_head")}


def test_they_are_of_the_texts_given(transformer, tmp_path):
    write_warm_up(tmp_path, transformer, ["é", "b"])
    texts = [list(request.inputs["text"].string_val) for request in requests(tmp_path)]
    assert texts[0] == ["é".encode()]
    assert texts[-1] == ["é".encode(), b"b"] * 8
    first = (tmp_path / WARM_UP_FILE).read_bytes()
    write_warm_up(tmp_path, transformer, ["é", "b"])
    assert (tmp_path / WARM_UP_FILE).read_bytes() == first


def test_texts_of_any_iterable_are_used(transformer, tmp_path):
    written = []
    for texts in (["é", "b"], np.array(["é", "b"]), iter(["é", "b"])):
        write_warm_up(tmp_path, transformer, texts)
        written.append((tmp_path / WARM_UP_FILE).read_bytes())
    assert written == written[:1] * 3


def test_texts_of_any_tokenizer():
    for tokenizer in (CharacterTokenizer("a"), BytePairTokenizer.learn(["ß中 abab"] * 3, 270)):
        texts = example_texts(tokenizer)
        assert texts == example_texts(tokenizer)
        assert all(isinstance(text, str) for text in texts)
