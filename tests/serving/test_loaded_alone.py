"""An exported model, moved and loaded by TensorFlow alone: eagerly, and in a session as TensorFlow Serving does it."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.long

BATCHES = [
    [b"cab", b"", "é 1".encode(), b"\xff\xfe", b"4321 abcd" * 9, b"a\0b", "😀".encode()],
    [b"dd"],
    [b"", b" "],
    [],
]
# Neither Keras nor the zoo nor further ops can be imported here; -I keeps this folder and PYTHONPATH off the path.
# (TensorFlow's own package imports Keras; what it has imported is taken away again.)
PROGRAM = """
import json, os, sys
import tensorflow as tf

def is_absent(name):
    return name.partition(".")[0] in ("zoo", "zoo_training", "keras", "tf_keras", "tensorflow_text")

class Absent:
    def find_spec(self, name, *_):
        if is_absent(name):
            raise ModuleNotFoundError(name)

for name in list(filter(is_absent, sys.modules)):
    del sys.modules[name]
sys.meta_path.insert(0, Absent())
path, batches = sys.argv[1], [[bytes.fromhex(text) for text in batch] for batch in json.loads(sys.argv[2])]

def listed(result):
    return {name: [[v.hex() for v in row] if isinstance(row, list) and row and isinstance(row[0], bytes)
                   else row.hex() if isinstance(row, bytes) else row for row in value.tolist()]
            for name, value in result.items()}

def given(names, batch):
    rows = [len(batch)]
    inputs = {"text": tf.constant(batch, tf.string, rows), "target": tf.constant(batch[::-1], tf.string, rows),
              "max_target_length": tf.fill(rows, 5), "length_penalty": tf.fill(rows, 0.5)}
    return {name: inputs[name] for name in names}

# What is said is kept; warnings of a model come from Python.
tf.config.list_logical_devices()
for stream in (sys.stdout, sys.stderr):
    stream.flush()
log, outputs = os.open("said", os.O_RDWR | os.O_CREAT), [os.dup(1), os.dup(2)]
os.dup2(log, 1), os.dup2(log, 2)
tf.saved_model.load(sys.argv[3]).signatures["serving_default"](text=tf.constant(["cab"]))
model = tf.saved_model.load(path)
eager, arrays = {}, {}
for name, signature in model.signatures.items():
    inputs = [given(signature.structured_input_signature[1], batch) for batch in batches]
    eager[name] = [listed({key: value.numpy() for key, value in signature(**each).items()}) for each in inputs]
    arrays[name] = [{key: value.numpy() for key, value in each.items()} for each in inputs]

for stream in (sys.stdout, sys.stderr):
    stream.flush()
os.dup2(outputs[0], 1), os.dup2(outputs[1], 2)
said = open("said").read()

session = {}
with tf.compat.v1.Session(graph=tf.Graph()) as served:
    graph = tf.compat.v1.saved_model.load(served, ["serve"], path)
    for name in eager:
        signature = graph.signature_def[name]
        fetches = {key: tensor.name for key, tensor in signature.outputs.items()}
        session[name] = [
            listed(served.run(fetches, {signature.inputs[key].name: value for key, value in each.items()}))
            for each in arrays[name]
        ]

print(json.dumps({"eager": eager, "session": session, "said": said, "strangers": list(filter(is_absent, sys.modules))}))
"""


@pytest.fixture(scope="module")
def alone(exported, exported_transformer, tmp_path_factory):
    """What a new process gets from a copy of the model, in another place."""
    place = tmp_path_factory.mktemp("elsewhere") / "moved"
    shutil.copytree(exported, place / "before")
    (place / "before").rename(place / "after")
    batches = json.dumps([[text.hex() for text in batch] for batch in BATCHES])
    command = [sys.executable, "-I", "-c", PROGRAM, str(place / "after" / "1"), batches, str(exported_transformer)]
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}  # at a lower level TensorFlow prints notes on the processor
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=place, check=False, env=quiet)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_nothing_of_ours_is_imported_and_it_loads_without_a_word(alone):
    """No warning of gradients that were not saved, nor of anything else, but for notes on the machine."""
    assert (alone["strangers"], alone["said"]) == ([], "")
    assert set(alone["eager"]) == set(alone["session"]) == {"serving_default", "generate", "score", "attention"}


def test_answers_are_the_translators(alone, translator, servable, eager):
    """By `generate` its own; otherwise those of a servable, which `zoo.testing.TaskTests` compares with it."""
    texts = set()
    for number, batch in enumerate(BATCHES):
        rows = [len(batch)]
        text, target = (tf.constant(each, tf.string, rows) for each in (batch, batch[::-1]))
        expected = {
            "serving_default": servable._signatures["serving_default"](text=text),
            "generate": translator._generate(text, tf.fill(rows, 5), tf.fill(rows, 0.5)),
            "score": servable._signatures["score"](text=text, target=target),
            "attention": servable._signatures["attention"](text=text),
        }
        for loaded in (alone["eager"], alone["session"]):
            for name, tensors in expected.items():
                for key, tensor in tensors.items():
                    found, wanted = loaded[name][number][key], tensor.numpy()
                    if tensor.dtype == tf.string:
                        hexed = (
                            row.hex() if isinstance(row, bytes) else [each.hex() for each in row] for row in wanted
                        )
                        assert found == [*hexed], f"{name}, {key}"
                    else:
                        found = np.reshape(found, wanted.shape)
                        np.testing.assert_allclose(found, wanted, atol=1e-5, err_msg=f"{name}, {key}")
            texts.update(loaded["serving_default"][number]["text"])
    assert len(texts) >= 6, "or equal answers would mean little"
